/* What nobody repairs is asked of the sender (Sec. 3.4: after the crash of a receiver its successors may miss packets
 * that others have released). Requests are PTCH_REQ and what comes is PTCH_DATA, as in Republic.
 *
 * The lowest missing packet has a bound: as long as it moves, repairs work. Without a ring, as when the manager gave no
 * overlay, a much shorter one: then this is how losses are mended. */
#include "core/rdcm/rdcm.h"

#define WITHOUT_RING (10 * RS_MS)
#define PATIENCE (1000 * RS_MS) /* the control channel is reliable: to ask again is a last resort */
/* Whoever repaired with wrong bytes does it again: the sender is asked soon, but of forged packets not more often. */
#define REFUSED_SOON (10 * RS_MS)
#define REFUSED_AGAIN (50 * RS_MS)
#define RUNS_MOST 16 /* asked for at once */

/* Up to where packets should be here. */
static uint64_t due_top(const rs_receiving *x) {
    const rs_rdcm *r = x->t.own;
    uint64_t top = r->here.top > r->refused_top ? r->here.top : r->refused_top;
    return x->ended && x->t.size != RS_STREAM ? x->t.fragments : top;
}

static rs_time bound(const rs_node *node, const rs_rdcm *r) {
    bool ring = r->rings[RS_RING_LEAF].predecessor != RS_NO_PEER || r->rings[RS_RING_PROXY].predecessor != RS_NO_PEER;
    rs_time given = rs_rdcm_options(node)->request_bound;
    return ring || given < WITHOUT_RING ? given : WITHOUT_RING;
}

/* `here.cum` has moved, or there may be a gap since now. */
void rs_rdcm_request_moved(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    if (x->state != RS_RX_RECEIVING || r->here.cum >= due_top(x)) {
        r->request_due = RS_NEVER;
        return;
    }
    if (r->request_due != RS_NEVER && r->missing == r->here.cum)
        return;
    r->missing = r->here.cum;
    r->request_due = now + bound(node, r);
    rs_rdcm_wake(node, r, r->request_due);
}

void rs_rdcm_request_refused(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    rs_rdcm *r = x->t.own;
    if (!rs_rdcm_lacks(x, sn))
        return;
    r->refused_top = sn + 1 > r->refused_top ? sn + 1 : r->refused_top;
    rs_rdcm_request_moved(node, now, x);
    rs_time soon = now + REFUSED_SOON;
    if (now - r->refused_request < REFUSED_AGAIN || r->request_due <= soon)
        return;
    r->refused_request = now;
    r->request_due = soon;
    rs_rdcm_wake(node, r, soon);
}

void rs_rdcm_request_look(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    if (now < r->request_due)
        return;
    r->request_due = now + PATIENCE;
    r->request_at = r->here.cum;
    r->request_top = due_top(x);
    r->request_runs = RUNS_MOST;
    rs_say(node, now, &x->link, RS_SAY_PTCH_REQ);
}

static uint64_t first_here(const rs_rdcm_set *set, uint64_t from, uint64_t to, bool here) {
    while (from < to) {
        uint64_t word = rs_rdcm_set_word(set, from / 64);
        word = (here ? word : ~word) >> (from % 64);
        if (word) {
            from += (uint64_t)__builtin_ctzll(word);
            return from < to ? from : to;
        }
        from = (from / 64 + 1) * 64;
    }
    return to;
}

/* The next PTCH_REQ: a run of missing packets, named as an exclusive range in the ring of the object. */
static bool next_request(rs_receiving *x, rs_message *m) {
    rs_rdcm *r = x->t.own;
    uint64_t from = first_here(&r->here, r->request_at, r->request_top, false);
    uint64_t to = first_here(&r->here, from, r->request_top, true);
    if (r->request_runs == 0 || from >= to)
        return false;
    r->request_runs--;
    r->request_at = rs_request_object(&x->t, from, to, m);
    x->stats.requests_sent++;
    x->stats.lost += r->request_at - from;
    return true;
}

static bool requests_left(const rs_receiving *x) {
    const rs_rdcm *r = x->t.own;
    return r->request_runs > 0 && first_here(&r->here, r->request_at, r->request_top, false) < r->request_top;
}

bool rs_rdcm_says(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more) {
    (void)node, (void)now;
    if (what != RS_SAY_PTCH_REQ || !next_request(x, m))
        return false;
    *more = requests_left(x);
    return true;
}
