/* RDCM's parts to each other and to the node. Private to agent/core. Section numbers are the paper's. */
#ifndef RS_CORE_RDCM_H
#define RS_CORE_RDCM_H

#include "core/rdcm/options.h"
#include "core/rdcm/state.h"
#include "core/transfer/engine.h"

#define RS_RDCM_WITHOUT_RING (10 * RS_MS) /* docs/rdcm.md */
#define RS_RDCM_SILENT_LEAST (20 * RS_MS) /* a child silent for so long holds nobody back (docs/rdcm.md) */
#define RS_RDCM_ANSWER (RS_MS / 8)        /* in which repairs are acknowledged (docs/rdcm.md) */
#define RS_RDCM_OVERTAKEN 3               /* by so many later packets of the tree: lost rather than late (RFC 5681) */
#define RS_RDCM_NO_LIMIT ((uint64_t)INT64_MAX / 4) /* half of what numbers that are added to may be (a bound) */

/* making and ending; memory; timers; the row in the table of engines */
extern const rs_engine rs_engine_rdcm;
static inline rs_rdcm *rs_rdcm_of(const rs_transfer *t) {
    return t->own;
}
static inline const rs_rdcm_config *rs_rdcm_options(const rs_node *node) {
    return node->options[RS_PROTOCOL_RDCM];
}
rs_rdcm *rs_rdcm_new(rs_node *node, rs_transfer *transfer); /* hangs it off the transfer */
void rs_rdcm_free(rs_node *node, rs_transfer *t);

/* streams */
void rs_rdcm_stream_moved(rs_node *node, rs_rdcm *r);
bool rs_rdcm_lacks(const rs_receiving *x, uint64_t sn); /* it is not here, and there is room for it */
void rs_rdcm_stream_taken(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_stream_grown(rs_node *node, rs_time now, rs_sending *x);

#endif
