#include "core/transfer/members.h"

#include "core/transfer/engine.h"

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

void rs_recipient_index(rs_sending *x, uint32_t place) {
    uint32_t at = hashed(x->recipients[place].link.peer->id) & x->index_mask;
    while (x->index[at])
        at = (at + 1) & x->index_mask;
    x->index[at] = place + 1;
}

/* Which receivers a session is for. A path may serve only some of those it was wanted for (a manager that splits
 * requests); the others want one of their own, and continue the same transfer. So each receiver knows how far its
 * sessions have come, and the next path is wanted for those that are least far: parts that have come equally far are
 * one again. Without such a manager all receivers are in each session. Ours. */

bool rs_sender_lacks(const rs_sending *x, const rs_recipient *r) {
    return rs_is_active(r) && r->light != RS_LIGHT_DEMOTED && r->reached < x->t.fragments;
}

bool rs_sender_others(const rs_sending *x) {
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (!x->recipients[i].member && rs_sender_lacks(x, &x->recipients[i]))
            return true;
    return false;
}

bool rs_sender_choose(rs_sending *x) {
    uint64_t from = UINT64_MAX;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        if (rs_sender_lacks(x, r) && r->reached < from)
            from = r->reached;
    }
    if (from == UINT64_MAX)
        return false;
    x->wanted_from = from;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        x->recipients[i].wanted = rs_sender_lacks(x, &x->recipients[i]) && x->recipients[i].reached == from;
    return true;
}

bool rs_sender_served(rs_sending *x, const rs_path_grant *grant) {
    uint32_t some = 0;
    for (uint32_t i = 0; i < grant->receiver_count; i++) {
        const rs_recipient *r = rs_recipient_of(x, grant->receivers[i]);
        some += r && r->wanted;
    }
    if (grant->receiver_count == 0 || some == 0)
        return grant->receiver_count == 0;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        x->recipients[i].wanted = false;
    for (uint32_t i = 0; i < grant->receiver_count; i++) {
        rs_recipient *r = rs_recipient_of(x, grant->receivers[i]);
        if (r)
            r->wanted = rs_sender_lacks(x, r) && r->reached == x->wanted_from;
    }
    return true;
}

bool rs_sender_has_members(const rs_sending *x) {
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (x->recipients[i].wanted && rs_sender_lacks(x, &x->recipients[i]))
            return true;
    return false;
}

void rs_sender_session_sent(rs_sending *x) {
    uint64_t ring = x->end - x->first, sent = x->pos < ring ? x->pos : ring;
    x->sent_before += sent;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (x->recipients[i].member)
            x->recipients[i].sent += sent;
}

void rs_sender_count(rs_sending *x) {
    x->taking = 0;
    x->sent_to_all = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        if (r->state == RS_RECIPIENT_FAILED)
            continue;
        x->taking += r->member;
        x->sent_to_all += r->sent;
    }
}

void rs_sender_failed(rs_sending *x, rs_recipient *r) {
    r->state = RS_RECIPIENT_FAILED;
    x->failed++;
    x->kept -= r->kept;
    x->taking -= r->member;
    x->sent_to_all -= r->sent;
}

/* Of a send to thousands each tells when it has light, and when it is done: nobody looks at all of them for that. */
uint64_t rs_sender_sent(const rs_sending *x) {
    uint64_t ring = x->end - x->first, sent = x->pos < ring ? x->pos : ring, count = x->recipient_count - x->failed;
    uint64_t all = count ? (x->sent_to_all + sent * x->taking) / count : x->sent_before + sent;
    return all < x->t.fragments ? all : x->t.fragments;
}

void rs_sender_stats(const rs_node *node, const rs_sending *x, rs_xfer_stats *out) {
    uint64_t ring = x->end - x->first;
    uint64_t distinct = x->sent_before + (x->pos < ring ? x->pos : ring), mean = rs_sender_sent(x);
    *out = x->stats;
    out->phase = x->phase;
    out->packets_redundant =
        out->packets_sent > distinct ? out->packets_sent - distinct : 0; /* it may have begun later */
    out->bytes_present = mean >= x->t.fragments ? x->t.size : mean * x->t.fragment_size;
    out->receivers = x->recipient_count;
    out->receivers_done = x->done;
    out->receivers_failed = x->failed - x->left;
    rs_engine_stats(node, &x->t, out);
}

bool rs_sender_wants(rs_node *node, rs_recipient *r, uint64_t from, uint64_t to) {
    if (from < to && !r->want)
        r->want = rs_memory_take(&node->allocator, sizeof *r->want);
    if (r->want)
        rs_ranges_add(r->want, from, to);
    return r->want != NULL;
}

void rs_sender_wants_nothing(rs_node *node, rs_recipient *r) {
    rs_memory_give(&node->allocator, r->want);
    r->want = NULL;
}
