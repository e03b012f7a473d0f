/* What a receiver misses, and asking for it (Sec. III-A3). The bitmap of what is there is the truth; a second one marks what is asked for. */
#include "core/state.h"

#define PATIENCE (1000 * RS_MS) /* the control channel is reliable: to ask again without a new connection is a last resort */

rs_time rs_receiver_patience(const rs_receiving *x) {
    rs_time late = 4 * rs_rtt_late(&x->link.peer->rtt, 0);
    return late > PATIENCE ? late : PATIENCE;
}

static void ask(rs_receiving *x, uint64_t from, uint64_t to) {
    for (uint64_t sn = from; sn < to; sn++)
        rs_seqset_add(&x->asked, sn);
    rs_ranges_add(&x->to_ask, from, to);
}

void rs_ask_missing(rs_node *node, rs_time now, rs_receiving *x, uint64_t from, uint64_t to) {
    uint64_t before = x->asked.count;
    for (uint64_t at = from; at < to;) {
        uint64_t start = rs_seqset_next_absent(&x->present, &x->asked, at, to);
        uint64_t end = rs_seqset_next_present(&x->present, &x->asked, start, to);
        if (start < to)
            ask(x, start, end);
        at = end;
    }
    if (x->asked.count == before)
        return;
    x->retry_due = now + rs_receiver_patience(x);
    rs_say(node, now, &x->link, RS_SAY_PTCH_REQ);
    rs_receiver_arm(node, x);
}

uint64_t rs_ask_between(rs_node *node, rs_time now, rs_receiving *x, uint64_t after, uint64_t before) {
    uint64_t asked = x->asked.count, from = rs_ring_next(&x->ring, after);
    if (after != before && from <= before) {
        rs_ask_missing(node, now, x, from, before);
    } else {
        rs_ask_missing(node, now, x, from, x->ring.end);
        rs_ask_missing(node, now, x, x->ring.first, before);
    }
    return x->asked.count - asked;
}

void rs_ask_again(rs_node *node, rs_time now, rs_receiving *x) {
    rs_seqset_clear(&x->asked);
    x->to_ask.count = 0;
    x->retry_due = RS_NEVER;
    rs_unsay(node, now, &x->link, RS_SAY_PTCH_REQ);
    rs_ask_missing(node, now, x, 0, x->ring.first);
    if (x->ended || x->ring.round_done)
        rs_ask_missing(node, now, x, x->ring.first, x->ring.end);
    else if (x->ring.lit && x->ring.initial <= x->ring.prior)
        rs_ask_missing(node, now, x, x->ring.initial, x->ring.prior);
    else if (x->ring.lit) {
        rs_ask_missing(node, now, x, x->ring.initial, x->ring.end);
        rs_ask_missing(node, now, x, x->ring.first, x->ring.prior);
    }
}

/* Names [from, to) as the exclusive range of a ring. */
static void name(rs_message *m, uint32_t session, uint64_t first, uint64_t end, uint64_t from, uint64_t to) {
    m->type = RS_MSG_PTCH_REQ;
    m->session = session;
    m->ptch_req.start = from == first ? end - 1 : from - 1;
    m->ptch_req.end = to == end ? first : to;
}

/* The next PTCH_REQ. A range that goes around the ring's end, as (prior, initial) does, is one message. */
bool rs_next_request(rs_receiving *x, rs_message *m) {
    uint64_t first = x->ring.first, end = x->ring.end;
    if (x->to_ask.count == 0)
        return false;
    rs_range r = rs_ranges_take(&x->to_ask, 0);
    uint32_t last = x->to_ask.count - 1;
    if (x->to_ask.count && r.from == first && x->to_ask.range[last].to == end && x->to_ask.range[last].from > first) {
        rs_range tail = rs_ranges_take(&x->to_ask, last);
        name(m, x->t.session, first, end, tail.from, r.to);
        return true;
    }
    uint32_t session = x->t.session;
    if (r.from < first || r.to > end) {
        session = RS_SESSION_OBJECT;
        first = 0;
        end = x->t.fragments;
    }
    if (r.from == first && r.to == end && end - first > 1) { /* a whole ring has no name of its own: two requests */
        rs_ranges_add(&x->to_ask, first, first + 1);
        r.from = first + 1;
    }
    name(m, session, first, end, r.from, r.to);
    return true;
}
