/* The three cases of the paper's Fig. 4: what a new sn from the data channel says about losses, from initial and prior
 * sn in the ring.
 *
 * Ours: a packet a little behind the prior sn is taken for a late or doubled one, not for the second round (case 3),
 * unless several in a row confirm it that were here before: network and hosts may reorder. The caller's bitmap stays
 * the truth either way, and DATA_FNSD makes up for a round that was not noticed. */
#ifndef RS_CORE_LOSS_CASES_H
#define RS_CORE_LOSS_CASES_H

#include "core/base/types.h"

typedef struct {
    uint64_t first, end; /* the ring: [first, end) */
    uint64_t initial, prior;
    uint64_t
        run_sn;   /* last packet of the present run of consecutive ones: before light; behind the prior sn after it */
    uint32_t run; /* its length, 0 = none */
    bool lit;     /* the initial sn is settled */
    bool round_done; /* a whole round has gone by since the initial sn */
} rs_ring;

typedef enum {
    RS_CASE_DARK,  /* no initial sn yet */
    RS_CASE_LIGHT, /* this packet settles it: say INTL_SEQ */
    RS_CASE_NEXT,  /* case 1: right after the prior sn */
    RS_CASE_GAP,   /* case 2: (lost_after, lost_before) is lost */
    RS_CASE_ROUND, /* case 3: the next round has begun; (lost_after, lost_before) = (prior, initial) is lost */
    RS_CASE_LATE   /* a straggler behind the prior sn, or anything after the round is done */
} rs_loss_case;

typedef struct {
    rs_loss_case what;                /* which of the three cases of Republic's Fig. 4 */
    uint64_t lost_after, lost_before; /* exclusive, going around; only with GAP and ROUND */
} rs_loss;

void rs_ring_start(rs_ring *ring, uint64_t first, uint64_t end);
/* A packet of this ring came in; sn is in [first, end). `confirm`: consecutive packets that make light, at least 1. */
rs_loss rs_ring_packet(rs_ring *ring, uint64_t sn, uint32_t confirm);
uint64_t rs_ring_next(const rs_ring *ring, uint64_t sn);                    /* the sn after it, going around */
uint64_t rs_ring_distance(const rs_ring *ring, uint64_t from, uint64_t to); /* steps from one to the other, forward */

#endif
