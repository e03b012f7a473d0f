#include "core/repair/loss_cases.h"

#define REORDER_MAX 1024 /* so far behind the prior sn a straggler may be: queues overtake each other (a bound) */
#define ROUND_CONFIRM 3  /* that many in a row so near are the second round after all (test_loss_cases) */

void rs_ring_start(rs_ring *r, uint64_t first, uint64_t end) {
    *r = (rs_ring){.first = first, .end = end};
}

uint64_t rs_ring_next(const rs_ring *r, uint64_t sn) {
    return sn + 1 == r->end ? r->first : sn + 1;
}

uint64_t rs_ring_distance(const rs_ring *r, uint64_t from, uint64_t to) {
    return to >= from ? to - from : to + (r->end - r->first) - from;
}

static void count_run(rs_ring *r, uint64_t sn) {
    r->run = r->run && sn == rs_ring_next(r, r->run_sn) ? r->run + 1 : 1;
    r->run_sn = sn;
}

/* The initial sn is the first of `confirm` consecutive packets: one packet through a ringing circuit is not light yet
 * (Sec. II). */
static rs_loss before_light(rs_ring *r, uint64_t sn, uint32_t confirm) {
    count_run(r, sn);
    if (r->run == 1)
        r->initial = sn;
    r->prior = sn;
    if (r->run < confirm)
        return (rs_loss){.what = RS_CASE_DARK};
    r->lit = true;
    r->run = 0;
    r->round_done = rs_ring_next(r, r->prior) == r->initial;
    return (rs_loss){.what = RS_CASE_LIGHT};
}

static uint64_t near_by(const rs_ring *r) {
    uint64_t ring = r->end - r->first;
    return ring / 8 < REORDER_MAX ? ring / 8 : REORDER_MAX;
}

/* Stragglers may come many in a row too, but none of them was here before: the second round shows at the initial or at
 * the prior sn, which were. */
static bool is_round(const rs_ring *r, uint64_t sn) {
    bool again = sn == r->prior || rs_ring_distance(r, r->initial, sn) < r->run;
    return r->run >= ROUND_CONFIRM && again;
}

/* In the sent range: case 3, or a straggler. */
static rs_loss behind(rs_ring *r, uint64_t sn) {
    count_run(r, sn);
    if (rs_ring_distance(r, sn, r->prior) <= near_by(r) && !is_round(r, sn))
        return (rs_loss){.what = RS_CASE_LATE};
    r->round_done = true;
    return (rs_loss){.what = RS_CASE_ROUND, .lost_after = r->prior, .lost_before = r->initial};
}

rs_loss rs_ring_packet(rs_ring *r, uint64_t sn, uint32_t confirm) {
    if (!r->lit)
        return before_light(r, sn, confirm);
    if (r->round_done)
        return (rs_loss){.what = RS_CASE_LATE};
    uint64_t sent = rs_ring_distance(r, r->initial, r->prior);
    uint64_t here = rs_ring_distance(r, r->initial, sn);
    if (here <= sent)
        return behind(r, sn);
    /* A leap over nearly all the ring to just before the initial sn: a straggler from before light rather than a loss
     * so large. */
    if (rs_ring_distance(r, sn, r->initial) <= near_by(r) && here - sent > near_by(r)) {
        count_run(r, sn);
        if (r->run < ROUND_CONFIRM)
            return (rs_loss){.what = RS_CASE_LATE};
    }
    rs_loss loss = {.what = here == sent + 1 ? RS_CASE_NEXT : RS_CASE_GAP, .lost_after = r->prior, .lost_before = sn};
    r->run = 0;
    r->prior = sn;
    r->round_done = rs_ring_next(r, sn) == r->initial; /* nothing is left to expect: no need to wait for case 3 */
    return loss;
}
