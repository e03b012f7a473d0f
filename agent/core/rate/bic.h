/* Binary increase congestion control (Xu, Harfoush, Rhee: Binary Increase Congestion Control for Fast Long-Distance
 * Networks, INFOCOM 2004), as RDCM's receivers run it (Sec. 3.5): a window in packets that grows as packets come in by
 * the multicast tree and shrinks when one is lost there. */
#ifndef RS_CORE_RDCM_BIC_H
#define RS_CORE_RDCM_BIC_H

#include "core/base/types.h"

#define RS_BIC_FIRST 16 /* packets: the window to begin with (docs/rdcm.md) */

typedef struct {
    uint32_t window; /* packets, at least 2 */
    uint32_t most;   /* never more: what the receiver's socket takes */
    uint32_t slow_start_until;
    uint32_t last_max; /* where it was when packets were lost; 0 = never */
    uint32_t came;     /* packets since it grew */
} rs_bic;

void rs_bic_start(rs_bic *bic, uint32_t most);
void rs_bic_packet(rs_bic *bic); /* one came in, and the window was what held the sender */
void rs_bic_loss(rs_bic *bic);   /* once per window */
void rs_bic_halve(rs_bic *bic);  /* to see what is lost then */

#endif
