/* The sender's side of the protocol of Sec. III-A: what it says to receivers, and one handler per message from them. */
#include "core/republic/republic.h"
#include "core/transfer/engine.h"

#include <string.h>

#define RETAKES_MOST 64 /* digests taken again for one receiver: each costs the sender a piece's worth of reading */

static uint32_t hashed(rs_peer peer) {
    return peer * UINT32_C(2654435761);
}

rs_recipient *rs_recipient_of(const rs_sending *x, rs_peer peer) {
    for (uint32_t at = hashed(peer) & x->index_mask;; at = (at + 1) & x->index_mask) {
        if (x->index[at] == 0)
            return NULL;
        rs_recipient *r = &x->recipients[x->index[at] - 1];
        if (r->link.peer->id == peer)
            return r;
    }
}

/* To one that has left the data channel: its session is the whole object, by patches. */
static void open_apart(const rs_node *node, const rs_sending *x, rs_message *m) {
    m->open.first = 0;
    m->open.end = x->t.fragments;
    m->open.group_address = 0;
    m->open.data_port = 0;
    m->open.path_kind = RS_OPEN_NO_PATH;
    m->open.engine = node->engines[0]->id;
}

/* To one whose session is over: what that did not bring comes by patches. */
static void open_over(const rs_node *node, const rs_recipient *r, rs_message *m) {
    m->open.first = r->first;
    m->open.end = r->reached;
    m->open.group_address = 0;
    m->open.data_port = 0;
    m->open.path_kind = RS_OPEN_NO_PATH;
    m->open.engine = node->engines[0]->id;
}

static void open_says(const rs_sending *x, rs_message *m) {
    m->type = RS_MSG_OPEN;
    m->open.size = x->t.size;
    m->open.fragment_size = x->t.fragment_size;
    m->open.first = x->first;
    m->open.end = x->end;
    m->open.object = x->t.object;
    m->open.engine = x->t.engine->id;
    m->open.feedback_us = (uint32_t)(x->feedback_interval / 1000);
    m->open.digest = x->t.digest;
    m->open.light_confirm = (uint8_t)x->light_confirm;
    if (x->no_data_channel)
        return;
    m->open.group_address = x->grant.group_address;
    m->open.data_port = x->grant.data_port;
    m->open.path_kind = (uint8_t)x->grant.kind;
}

bool rs_sender_says(const rs_node *node, const rs_sending *x, const rs_recipient *r, uint32_t what, rs_message *m) {
    if (x->t.finished || r->state != RS_RECIPIENT_ACTIVE)
        return false;
    if (what == RS_SAY_OPEN)
        open_says(x, m);
    else if (what == RS_SAY_DATA_FNSD)
        m->type = RS_MSG_DATA_FNSD;
    else if (what == RS_SAY_LEAVES)
        return rs_leaves_said(x, r, m);
    else
        return false;
    m->session = r->apart ? RS_SESSION_APART : r->session;
    if (r->apart && what == RS_SAY_OPEN)
        open_apart(node, x, m);
    else if (!r->member && what == RS_SAY_OPEN)
        open_over(node, r, m);
    else if (what == RS_SAY_OPEN && !r->accepted && x->t.stream.on) {
        m->open.size = RS_STREAM; /* or who has not heard of it would take it for an object; its end it hears then */
        m->open.end = RS_STREAM_FRAGMENTS;
    }
    return true;
}

static rs_rx_verdict on_open_ack(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    char cause[RS_CAUSE_MAX];
    r->progress_at = now;
    if (m->open_ack.status == RS_ACK_HAVE) {
        /* One that had accepted it got it here: it has only forgotten this transfer, which it was done with. */
        rs_sender_done(node, now, r, 0, !r->accepted);
        rs_sender_settle(node, now, x);
    } else if (m->open_ack.status == RS_ACK_REFUSED) {
        rs_words(cause, sizeof cause, "refused the object: %s", m->open_ack.cause.text);
        rs_sender_fail(node, now, r, false, cause);
        rs_sender_settle(node, now, x);
    } else {
        r->room = m->open_ack.room;
    }
    if (m->open_ack.status == RS_ACK_ACCEPTED && !r->accepted) {
        r->accepted = true;
        r->accepted_at = now;
        const rs_news news = {.what = RS_NEWS_ACCEPTED, .receiver = r};
        if (x->t.stream.on && x->t.size != RS_STREAM)
            rs_say(node, now, &r->link, RS_SAY_OPEN);
        if (x->t.engine->notify)
            x->t.engine->notify(node, now, &x->t, &news);
        rs_sender_arm(node, x);
    }
    return RS_RX_NONE;
}

/* The receiver has light since `sn`. It has been sent a whole round when the sn before it comes by again. */
static rs_rx_verdict on_intl_seq(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    if (m->session > x->t.session)
        return RS_RX_BAD;
    if (m->session < x->t.session || !r->member || r->lit || r->apart)
        return RS_RX_NONE;
    if (x->phase != RS_PHASE_ATTEMPT && x->phase != RS_PHASE_HIGH_RATE)
        return RS_RX_NONE;
    uint64_t ring = x->end - x->first;
    if (m->intl_seq.sn < x->first || m->intl_seq.sn - x->first >= ring || m->intl_seq.sn - x->first >= x->pos)
        return RS_RX_BAD; /* never sent */
    /* Of all the times it was sent, the last: later than the truth is safe, earlier is not. */
    uint64_t offset = m->intl_seq.sn - x->first;
    r->start_pos = offset + (x->pos - 1 - offset) / ring * ring;
    r->lit = true;
    r->progress_at = now;
    r->seen_pos = r->start_pos;
    rs_window_seen(node, now, x, r, r->start_pos);
    rs_republic_lit(now, x);
    rs_emit(node, &(rs_event){.kind = RS_EV_FIRST_LIGHT,
                              .xfer = x->t.id,
                              .peer = r->link.peer->id,
                              .sn = m->intl_seq.sn,
                              .session = m->session});
    rs_republic_advance(node, now, x);
    return RS_RX_NONE;
}

static bool ring_named(const rs_sending *x, const rs_recipient *r, uint32_t session, rs_session_ring *out) {
    if (session == RS_SESSION_OBJECT || session == RS_SESSION_APART) {
        *out = (rs_session_ring){.first = 0, .end = x->t.fragments};
        return true;
    }
    if (session == r->session) { /* which may be long past */
        *out = (rs_session_ring){.session = session, .first = r->first, .end = r->reached};
        return true;
    }
    for (uint32_t i = 0; i < RS_RINGS; i++) {
        *out = x->rings[i];
        if (out->end && out->session == session)
            return true;
    }
    return false;
}

/* The range (start, end), both excluded, going around: to the fragments this receiver is to be patched. */
static rs_rx_verdict on_ptch_req(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    rs_session_ring ring;
    if (m->session > x->t.session && m->session != RS_SESSION_OBJECT && !(r->apart && m->session == RS_SESSION_APART))
        return RS_RX_BAD;
    if (!ring_named(x, r, m->session, &ring))
        return RS_RX_NONE; /* a session long past: the receiver asks again in the ring of the object */
    uint64_t start = m->ptch_req.start, end = m->ptch_req.end;
    if (start < ring.first || start >= ring.end || end < ring.first || end >= ring.end)
        return RS_RX_BAD;
    uint64_t size = ring.end - ring.first;
    uint64_t steps = end > start ? end - start : end + size - start;
    uint64_t many = size == 1 ? 1 : steps - 1;
    uint64_t from = start + 1 == ring.end ? ring.first : start + 1;
    uint64_t straight = many < ring.end - from ? many : ring.end - from;
    if (rs_sender_too_many(node, now, r))
        return RS_RX_NONE;
    r->progress_at = now;
    rs_repair_asked(node, now, x, r, from, from + straight);
    rs_repair_asked(node, now, x, r, ring.first, ring.first + (many - straight));
    return RS_RX_NONE;
}

rs_rx_verdict rs_republic_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r,
                                         const rs_message *m) {
    switch (m->type) {
    case RS_MSG_INTL_SEQ:
        return on_intl_seq(node, now, x, r, m);
    case RS_MSG_PTCH_REQ:
        return on_ptch_req(node, now, x, r, m);
    case RS_MSG_PTCH_MAP:
        return rs_on_ptch_map(node, now, x, r, m);
    default:
        return rs_on_rate(node, now, x, r, m);
    }
}

static rs_rx_verdict on_data_rcvd(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    char cause[RS_CAUSE_MAX];
    if (m->data_rcvd.status == RS_RCVD_WHOLE) {
        rs_sender_done(node, now, r, m->data_rcvd.patched, false);
    } else {
        bool mismatch = m->data_rcvd.status == RS_RCVD_MISMATCH;
        rs_words(cause, sizeof cause, "%s: %s", mismatch ? "got the object with a wrong digest" : "gave up",
                 m->data_rcvd.cause.text);
        rs_sender_fail(node, now, r, false, cause);
    }
    rs_sender_settle(node, now, x);
    return RS_RX_NONE;
}

/* Digests of pieces, for receivers whose copy has a wrong digest. A sender is asked to take that of a piece again when
 * what it sends stays wrong: if that has changed, a program has changed the object while it was sent, and nothing can
 * mend it. Ours. */

rs_status rs_send_leaves(rs_node *node, rs_xfer xfer, const uint8_t *leaves, uint64_t count) {
    rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || t->finished)
        return RS_ERR_UNKNOWN;
    ((rs_sending *)t)->leaves = leaves;
    ((rs_sending *)t)->leaf_count = count;
    return RS_OK;
}

static void give_up_on(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const char *cause) {
    rs_sender_fail(node, now, r, true, cause);
    rs_sender_settle(node, now, x);
}

rs_rx_verdict rs_on_leaf_req(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    uint32_t width = x->t.digest.length, fit = width ? RS_LEAVES_BYTES / width : 0;
    if (!x->leaves || fit == 0) {
        give_up_on(node, now, x, r, "its copy has a wrong digest, and no digests of pieces are known here");
        return RS_RX_NONE;
    }
    if (m->leaf_req.first >= x->leaf_count || m->leaf_req.count > x->leaf_count - m->leaf_req.first)
        return RS_RX_BAD;
    r->progress_at = now;
    if (++r->leaf_requests > 8 * (x->leaf_count / fit + 1) + RETAKES_MOST || r->retakes > RETAKES_MOST) {
        give_up_on(node, now, x, r, "asks for the digests of pieces over and over");
        return RS_RX_NONE;
    }
    r->leaf_first = m->leaf_req.first;
    r->leaf_count = m->leaf_req.count < fit ? m->leaf_req.count : fit;
    if (!m->leaf_req.retake) {
        rs_say(node, now, &r->link, RS_SAY_LEAVES);
    } else if (!r->retaking) {
        r->retaking = true;
        r->retakes++;
        rs_emit(node, &(rs_event){.kind = RS_EV_RETAKE,
                                  .xfer = x->t.id,
                                  .peer = r->link.peer->id,
                                  .sn = r->leaf_first,
                                  .session = x->t.session});
    }
    return RS_RX_NONE;
}

rs_status rs_send_retaken(rs_node *node, rs_time now, rs_xfer xfer, rs_peer peer, uint64_t leaf, bool same) {
    rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || t->finished)
        return RS_ERR_UNKNOWN;
    rs_sending *x = (rs_sending *)t;
    rs_recipient *r = rs_recipient_of(x, peer);
    if (!r || r->state != RS_RECIPIENT_ACTIVE || !r->retaking)
        return RS_ERR_STATE;
    r->retaking = false;
    if (same) {
        rs_say(node, now, &r->link, RS_SAY_LEAVES);
        return RS_OK;
    }
    char cause[RS_CAUSE_MAX];
    rs_words(cause, sizeof cause,
             "the object's bytes changed at the sender after their digest was taken, in piece %llu: a program wrote to "
             "it while it was sent",
             (unsigned long long)leaf);
    give_up_on(node, now, x, r, cause);
    return RS_OK;
}

bool rs_leaves_said(const rs_sending *x, const rs_recipient *r, rs_message *m) {
    size_t width = x->t.digest.length;
    if (!x->leaves || r->leaf_count == 0)
        return false;
    m->type = RS_MSG_LEAVES;
    m->leaves.first = r->leaf_first;
    m->leaves.count = (uint16_t)r->leaf_count;
    m->leaves.width = (uint8_t)width;
    memcpy(m->leaves.bytes, x->leaves + r->leaf_first * width, r->leaf_count * width);
    return true;
}

static rs_rx_verdict on_abort(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    char cause[RS_CAUSE_MAX];
    rs_words(cause, sizeof cause, "aborted: %s", m->abort.cause.text);
    rs_sender_fail(node, now, r, false, cause);
    rs_sender_settle(node, now, x);
    return RS_RX_NONE;
}

rs_rx_verdict rs_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    r->link.heard_at = now;
    if (r->state != RS_RECIPIENT_ACTIVE)
        return RS_RX_NONE; /* words that crossed ours */
    if (!r->accepted && (m->type == RS_MSG_INTL_SEQ || m->type == RS_MSG_PTCH_REQ || m->type == RS_MSG_DATA_RCVD ||
                         m->type == RS_MSG_RATE || m->type == RS_MSG_PTCH_MAP || m->type == RS_MSG_LEAF_REQ))
        return RS_RX_NONE; /* about an earlier transfer of this object */
    switch (m->type) {
    case RS_MSG_OPEN_ACK:
        return on_open_ack(node, now, x, r, m);
    case RS_MSG_INTL_SEQ:
    case RS_MSG_PTCH_REQ:
    case RS_MSG_PTCH_MAP:
    case RS_MSG_RATE:
        return x->t.engine->message(node, now, &r->link, m);
    case RS_MSG_DATA_RCVD:
        return on_data_rcvd(node, now, x, r, m);
    case RS_MSG_LEAF_REQ:
        return rs_on_leaf_req(node, now, x, r, m);
    case RS_MSG_ABORT:
        return on_abort(node, now, x, r, m);
    case RS_MSG_PING:
        rs_on_ping(node, now, &r->link, m);
        return RS_RX_NONE;
    case RS_MSG_PONG:
        rs_on_pong(now, &r->link, m);
        return RS_RX_NONE;
    default:
        return RS_RX_BAD;
    }
}
