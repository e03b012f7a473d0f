/* What a receiver misses, and asking for it (Sec. III-A3). The bitmap of what is there is the truth; a second one
 * marks what is asked for. */
#include "core/transfer/state.h"

#include <string.h>

#define ASKED_RUNS 48          /* runs asked for and not here yet: fewer than the sender remembers (RS_RANGES_CAP) */
#define TAIL_QUIET (4 * RS_MS) /* no data packet for so long: nothing is under way any more */
#define PATIENCE \
    (1000 * RS_MS) /* the control channel is reliable: to ask again without a new connection is a last resort */

rs_time rs_receiver_patience(const rs_receiving *x) {
    rs_time late = 4 * rs_rtt_late(&x->link.peer->rtt, 0);
    return late > PATIENCE ? late : PATIENCE;
}

/* Notes what is missing in [from, to) as due. Ranges may grow together in `to_ask`: what is asked for is cut out of
 * the bitmap again. */
void rs_ask_missing(rs_node *node, rs_time now, rs_receiving *x, uint64_t from, uint64_t to) {
    bool any = false;
    for (uint64_t at = from; at < to;) {
        uint64_t start = rs_seqset_next_absent(&x->present, &x->asked, at, to);
        uint64_t end = rs_seqset_next_present(&x->present, &x->asked, start, to);
        if (x->asks != RS_ASKS_MAPS)
            rs_ranges_add(&x->to_ask, start, end);
        any |= start < end;
        at = end;
    }
    if (any && x->asks == RS_ASKS_MAPS)
        rs_map_soon(node, now, x);
    else if (any)
        rs_ask_on(node, now, x);
}

/* Says PTCH_REQ if something is due and the sender has not enough to do with what is asked for already. */
void rs_ask_on(rs_node *node, rs_time now, rs_receiving *x) {
    if (x->to_ask.count && x->asked_runs < ASKED_RUNS && !(x->link.say & RS_SAY_PTCH_REQ))
        rs_say(node, now, &x->link, RS_SAY_PTCH_REQ);
}

/* DATA_FNSD came. Asks for what is missing once no data packet came in for a while. */
void rs_ask_tail(rs_node *node, rs_time now, rs_receiving *x) {
    rs_time quiet = x->data_at + TAIL_QUIET;
    x->tail_due = quiet < x->tail_last ? quiet : x->tail_last;
    if (now < x->tail_due) {
        rs_receiver_arm(node, x);
        return;
    }
    x->tail_due = RS_NEVER;
    x->active = false;
    rs_ask_missing(node, now, x, 0, x->ring.end);
}

void rs_ask_between(rs_node *node, rs_time now, rs_receiving *x, uint64_t after, uint64_t before) {
    uint64_t from = rs_ring_next(&x->ring, after);
    if (after != before && from <= before) {
        rs_ask_missing(node, now, x, from, before);
    } else {
        rs_ask_missing(node, now, x, from, x->ring.end);
        rs_ask_missing(node, now, x, x->ring.first, before);
    }
}

void rs_ask_by(rs_node *node, rs_time now, rs_receiving *x, rs_asks how) {
    x->asks = how;
    x->stats.lost -= x->asked.count; /* they are counted again when asked for again */
    rs_seqset_clear(&x->asked);
    x->asked_runs = 0;
    x->to_ask.count = 0;
    x->retry_due = x->map_due = RS_NEVER;
    rs_unsay(node, now, &x->link, RS_SAY_PTCH_REQ | RS_SAY_PTCH_MAP);
}

uint32_t rs_due_ranges(const rs_receiving *x, rs_range out[3]) {
    const rs_ring *r = &x->ring;
    out[0] = (rs_range){0, r->first}; /* of the sessions before */
    if (x->ended || r->round_done) {
        out[0].to = r->end;
        return 1;
    }
    if (!r->lit)
        return 1;
    if (r->initial <= r->prior) {
        out[1] = (rs_range){r->initial, r->prior};
        return 2;
    }
    out[1] = (rs_range){r->first, r->prior};
    out[2] = (rs_range){r->initial, r->end};
    return 3;
}

void rs_ask_again(rs_node *node, rs_time now, rs_receiving *x) {
    rs_range due[3];
    rs_ask_by(node, now, x, x->asks);
    uint32_t count = rs_due_ranges(x, due);
    for (uint32_t i = 0; i < count; i++)
        rs_ask_missing(node, now, x, due[i].from, due[i].to);
}

static void mark_asked(rs_receiving *x, uint64_t from, uint64_t to) {
    x->asked_runs += 1;
    x->asked_runs -= from > 0 && rs_seqset_has(&x->asked, from - 1);
    x->asked_runs -= rs_seqset_has(&x->asked, to);
    rs_seqset_add_range(&x->asked, from, to);
    x->stats.lost += to - from;
}

/* A fragment that was asked for has come: runs end, or break in two. */
void rs_asked_came(rs_receiving *x, uint64_t sn) {
    if (!rs_seqset_remove(&x->asked, sn) || x->asks == RS_ASKS_MAPS)
        return;
    int neighbours = (sn > 0 && rs_seqset_has(&x->asked, sn - 1)) + rs_seqset_has(&x->asked, sn + 1);
    if (neighbours == 0)
        x->asked_runs--;
    else if (neighbours == 2)
        x->asked_runs++;
}

/* The first run that is still missing in what is due, taken out of it. */
static bool first_due(rs_receiving *x, rs_range *out) {
    while (x->to_ask.count) {
        rs_range r = rs_ranges_take(&x->to_ask, 0);
        out->from = rs_seqset_next_absent(&x->present, &x->asked, r.from, r.to);
        out->to = rs_seqset_next_present(&x->present, &x->asked, out->from, r.to);
        rs_ranges_add(&x->to_ask, out->to, r.to);
        if (out->from < out->to)
            return true;
    }
    return false;
}

/* The run up to the ring's end, if that is all that is due last. */
static bool tail_due(const rs_receiving *x, rs_range *out) {
    if (x->to_ask.count == 0)
        return false;
    *out = x->to_ask.range[x->to_ask.count - 1];
    return out->to == x->ring.end && out->from > x->ring.first &&
           rs_seqset_next_present(&x->present, &x->asked, out->from, out->to) == out->to;
}

/* Names [from, to) as the exclusive range of a ring. */
static void name(rs_message *m, uint32_t session, uint64_t first, uint64_t end, uint64_t from, uint64_t to) {
    m->type = RS_MSG_PTCH_REQ;
    m->session = session;
    m->ptch_req.start = from == first ? end - 1 : from - 1;
    m->ptch_req.end = to == end ? first : to;
}

/* The next PTCH_REQ. A range that goes around the ring's end, as (prior, initial) does, is one message. */
bool rs_next_request(rs_time now, rs_receiving *x, rs_message *m) {
    uint64_t first = x->ring.first, end = x->ring.end;
    uint32_t session = x->t.session;
    rs_range r, tail;
    if (x->asked_runs >= ASKED_RUNS || !first_due(x, &r))
        return false;
    x->retry_due = now + rs_receiver_patience(x);
    if (r.from == first && r.to < end && tail_due(x, &tail)) {
        rs_ranges_take(&x->to_ask, x->to_ask.count - 1);
        mark_asked(x, r.from, r.to);
        mark_asked(x, tail.from, tail.to);
        name(m, session, first, end, tail.from, r.to);
        return true;
    }
    if (r.from < first || r.to > end) {
        session = RS_SESSION_OBJECT;
        first = 0;
        end = x->t.fragments;
    }
    if (r.from == first && r.to == end && end - first > 1) { /* a whole ring has no name of its own: two requests */
        rs_ranges_add(&x->to_ask, first, first + 1);
        r.from = first + 1;
    }
    mark_asked(x, r.from, r.to);
    name(m, session, first, end, r.from, r.to);
    return true;
}

/* ---------------------------------------------------------------------------------- pieces whose digest is wrong
 *
 * Pieces of an object are the leaves of its digest tree. While the object is verified the caller, who computes digests,
 * may ask the sender for those of pieces, and say of a piece that its bytes are wrong: its fragments are fetched once
 * more, as patches, whichever engine brought them, and RS_EV_COMPLETE comes again. Ours. */

bool rs_pieces_wait(const rs_receiving *x) {
    return x->leaf_count > 0 || x->again.words != NULL;
}

static rs_receiving *verifying(rs_node *node, rs_xfer id) {
    rs_transfer *t = rs_by_id(node, id);
    bool right = t && !t->sending && !t->finished && ((rs_receiving *)t)->state == RS_RX_VERIFYING;
    return right ? (rs_receiving *)t : NULL;
}

rs_status rs_leaves_want(rs_node *node, rs_time now, rs_xfer xfer, uint64_t first, uint16_t count, bool retake) {
    rs_receiving *x = verifying(node, xfer);
    if (!x)
        return RS_ERR_STATE;
    if (count == 0 || (retake && count != 1) || first >= RS_STREAM_FRAGMENTS)
        return RS_ERR_INVALID;
    x->leaf_first = first;
    x->leaf_count = count;
    x->leaf_retake = retake;
    x->verify_due = now + node->config.no_path_bound;
    rs_say(node, now, &x->link, RS_SAY_LEAF_REQ);
    rs_receiver_arm(node, x);
    return RS_OK;
}

bool rs_leaf_request(const rs_receiving *x, rs_message *m) {
    if (x->state != RS_RX_VERIFYING || x->leaf_count == 0)
        return false;
    m->type = RS_MSG_LEAF_REQ;
    m->leaf_req.first = x->leaf_first;
    m->leaf_req.count = x->leaf_count;
    m->leaf_req.retake = x->leaf_retake;
    return true;
}

rs_rx_result rs_on_leaves(rs_node *node, rs_receiving *x, const rs_message *m) {
    bool asked = x->state == RS_RX_VERIFYING && x->leaf_count > 0 && m->leaves.first == x->leaf_first &&
                 m->leaves.count <= x->leaf_count;
    if (!asked)
        return (rs_rx_result){.verdict = RS_RX_NONE}; /* an answer to what was asked before */
    if (m->leaves.width != x->t.digest.length)
        return (rs_rx_result){.verdict = RS_RX_BAD};
    x->leaf_count = 0;
    memcpy(node->leaves, m->leaves.bytes, (size_t)m->leaves.count * m->leaves.width);
    return (rs_rx_result){.verdict = RS_RX_LEAVES,
                          .xfer = x->t.id,
                          .offset = m->leaves.first,
                          .length = (uint32_t)m->leaves.count * m->leaves.width,
                          .leaves = node->leaves};
}

rs_status rs_fetch_again(rs_node *node, rs_time now, rs_xfer xfer, uint64_t *offset, uint64_t *length) {
    rs_receiving *x = verifying(node, xfer);
    if (!x || x->again.words)
        return RS_ERR_STATE;
    if (*length == 0 || *offset >= x->t.size || *length > x->t.size - *offset)
        return RS_ERR_INVALID;
    uint64_t first = *offset / x->t.fragment_size, end = (*offset + *length - 1) / x->t.fragment_size + 1;
    uint64_t *words = rs_allocate(node, rs_seqset_words(end - first) * sizeof *words);
    if (!words)
        return RS_ERR_MEMORY;
    rs_seqset_init(&x->again, end - first, words);
    x->again_first = first;
    *offset = first * x->t.fragment_size;
    *length = (end == x->t.fragments ? x->t.size : end * x->t.fragment_size) - *offset;
    x->stats.bytes_present -= *length;
    x->stats.lost += end - first;
    x->verify_due = now + node->config.no_path_bound;
    rs_again_ask(node, now, x);
    rs_receiver_arm(node, x);
    return RS_OK;
}

void rs_again_free(rs_node *node, rs_receiving *x) {
    rs_release(node, x->again.words);
    x->again.words = NULL;
}

void rs_again_ask(rs_node *node, rs_time now, rs_receiving *x) {
    x->again_due = now + rs_receiver_patience(x);
    x->again_at = 0;
    rs_say(node, now, &x->link, RS_SAY_PTCH_REQ);
}

uint64_t rs_request_object(const rs_transfer *t, uint64_t from, uint64_t to, rs_message *m) {
    if (to - from == t->fragments && to - from > 1)
        to--;
    m->type = RS_MSG_PTCH_REQ;
    m->session = RS_SESSION_OBJECT;
    m->ptch_req.start = from == 0 ? t->fragments - 1 : from - 1;
    m->ptch_req.end = to == t->fragments ? 0 : to;
    return to;
}

bool rs_again_left(const rs_receiving *x) {
    return rs_seqset_next_absent(&x->again, NULL, x->again_at, x->again.size) < x->again.size;
}

/* The next run that is not here yet. All of an object has no name in its ring: it takes two requests. */
bool rs_again_request(rs_receiving *x, rs_message *m) {
    uint64_t from = rs_seqset_next_absent(&x->again, NULL, x->again_at, x->again.size);
    uint64_t to = rs_seqset_next_present(&x->again, NULL, from, x->again.size);
    if (from >= to)
        return false;
    x->again_at = rs_request_object(&x->t, from + x->again_first, to + x->again_first, m) - x->again_first;
    return true;
}

rs_rx_result rs_again_patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    rs_rx_result result = {.verdict = RS_RX_OLD,
                           .xfer = x->t.id,
                           .offset = sn * x->t.fragment_size,
                           .length = rs_fragment_length(&x->t, sn)};
    if (!x->again.words || sn < x->again_first || !rs_seqset_add(&x->again, sn - x->again_first))
        return result;
    result.verdict = RS_RX_STORE;
    x->stats.patches_received++;
    x->stats.bytes_present += result.length;
    x->again_due = now + rs_receiver_patience(x);
    if (x->again.count == x->again.size) {
        rs_again_free(node, x);
        x->again_due = RS_NEVER;
        x->verify_due = now + node->config.no_path_bound;
        rs_unsay(node, now, &x->link, RS_SAY_PTCH_REQ);
        rs_emit(node, &(rs_event){.kind = RS_EV_COMPLETE,
                                  .xfer = x->t.id,
                                  .peer = x->link.peer->id,
                                  .ok = true,
                                  .bytes = x->t.size,
                                  .session = x->t.session});
    }
    rs_receiver_arm(node, x);
    return result;
}
