/* Pieces whose digest is wrong. Pieces of an object are the leaves of its digest tree. While a receiver verifies the
 * object its caller, who computes digests, may ask the sender for those of pieces, and say of a piece that its bytes
 * are wrong: its fragments are fetched once more, as patches, whichever engine brought them, and RS_EV_COMPLETE comes
 * again. Ours. */
#include "core/transfer/pieces.h"

#include <string.h>

#include "core/transfer/engine.h"

#define RETAKES_MOST 64 /* digests taken again for one receiver: each costs the sender a piece's worth of reading */

/* ----------------------------------------------------------------------------------------------- at a receiver */

bool rs_pieces_wait(const rs_receiving *x) {
    return x->leaf_count > 0 || x->again.words != NULL;
}

static rs_receiving *verifying(rs_node *node, rs_xfer id) {
    rs_transfer *t = rs_by_id(node, id);
    bool right = t && !t->sending && !rs_is_finished(t) && ((rs_receiving *)t)->state == RS_RX_VERIFYING;
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
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_LEAF_REQ);
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
    uint64_t *words = rs_memory_take(&node->allocator, rs_seqset_words(end - first) * sizeof *words);
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
    rs_memory_give(&node->allocator, x->again.words);
    x->again.words = NULL;
}

void rs_again_ask(rs_node *node, rs_time now, rs_receiving *x) {
    x->again_due = now + rs_receiver_request_timeout(x);
    x->again_at = 0;
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_PTCH_REQ);
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

bool rs_again_pending(const rs_receiving *x) {
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
    x->again_due = now + rs_receiver_request_timeout(x);
    if (x->again.count < x->again.size) {
        rs_receiver_arm(node, x);
        return result;
    }
    rs_again_free(node, x);
    x->again_due = RS_NEVER;
    rs_control_clear(node, now, &x->link, RS_CONTROL_PTCH_REQ);
    rs_receiver_await_check(node, now, x);
    return result;
}

/* ----------------------------------------------------------------------------------------------- at the sender */

/* A sender is asked to take the digest of a piece again when what it sends stays wrong: if that has changed, a program
 * has changed the object while it was sent, and nothing can mend it. */
rs_status rs_send_leaves(rs_node *node, rs_xfer xfer, const uint8_t *leaves, uint64_t count) {
    rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || rs_is_finished(t))
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
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_LEAVES);
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
    if (!t || !t->sending || rs_is_finished(t))
        return RS_ERR_UNKNOWN;
    rs_sending *x = (rs_sending *)t;
    rs_recipient *r = rs_recipient_of(x, peer);
    if (!r || !rs_is_active(r) || !r->retaking)
        return RS_ERR_STATE;
    r->retaking = false;
    if (same) {
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_LEAVES);
        return RS_OK;
    }
    char cause[RS_CAUSE_MAX];
    rs_format(
        cause, sizeof cause,
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
