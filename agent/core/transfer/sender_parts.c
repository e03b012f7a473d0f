/* Which receivers a session is for. A path may serve only some of those it was wanted for (a manager that splits
 * requests); the others want one of their own, and continue the same transfer. So each receiver knows how far its
 * sessions have come, and the next path is wanted for those that are least far: parts that have come equally far are
 * one again. Without such a manager all receivers are in each session. Ours. */
#include "core/transfer/engine.h"

bool rs_sender_lacks(const rs_sending *x, const rs_recipient *r) {
    return rs_is_active(r) && r->light != RS_LIGHT_LEFT && r->reached < x->t.fragments;
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

/* The data channel is over for it, until another session is for it again. */
static void leave(rs_node *node, rs_time now, rs_recipient *r) {
    r->member = false;
    if (!rs_is_active(r) || r->light == RS_LIGHT_LEFT)
        return;
    if (r->light == RS_LIGHT_LIT)
        r->light = RS_LIGHT_AWAITED;
    r->progress_at = now;
    rs_say(node, now, &r->link, RS_SAY_DATA_FNSD);
}

void rs_sender_join(rs_node *node, rs_time now, rs_sending *x) {
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        bool joins = r->wanted && rs_is_active(r) && r->light != RS_LIGHT_LEFT;
        r->wanted = false;
        if (r->member && !joins)
            leave(node, now, r);
        if (!joins)
            continue;
        if (r->state == RS_RECIPIENT_NEW) {
            r->state = RS_RECIPIENT_OPENED;
            r->link.heard_at = now; /* from now on it owes answers */
        }
        r->member = true;
        r->session = x->t.session;
        r->first = x->first;
        r->reached = x->end;
    }
}

void rs_sender_session_sent(rs_sending *x) {
    uint64_t ring = x->end - x->first, sent = x->pos < ring ? x->pos : ring;
    x->sent_before += sent;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (x->recipients[i].member)
            x->recipients[i].sent += sent;
}

uint64_t rs_sender_sent(const rs_sending *x) {
    uint64_t ring = x->end - x->first, sent = x->pos < ring ? x->pos : ring, all = 0, count = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        uint64_t its = r->sent + (r->member ? sent : 0);
        if (r->state == RS_RECIPIENT_FAILED)
            continue;
        all += its < x->t.fragments ? its : x->t.fragments;
        count++;
    }
    all = count ? all / count : x->sent_before + sent;
    return all < x->t.fragments ? all : x->t.fragments;
}

void rs_sender_apart(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r) {
    r->light = RS_LIGHT_LEFT;
    r->progress_at = now;
    const rs_news news = {.what = RS_NEWS_LEFT, .receiver = r};
    if (x->t.engine->notify)
        x->t.engine->notify(node, now, &x->t, &news);
    rs_say(node, now, &r->link, RS_SAY_OPEN | RS_SAY_DATA_FNSD);
}

void rs_sender_part_failed(rs_node *node, rs_time now, rs_sending *x, bool held, const char *cause) {
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        if (!rs_is_active(r) || r->light == RS_LIGHT_LEFT || !(held ? r->member : r->wanted))
            continue;
        if (rs_is_opened(r))
            rs_sender_apart(node, now, x, r);
        else
            rs_sender_fail(node, now, r, false, cause); /* it never had a path, and its address may not be known */
    }
}

bool rs_path_wants(const rs_node *node, rs_xfer xfer, rs_peer peer) {
    const rs_transfer *t = rs_by_id(node, xfer);
    if (!t || !t->sending || t->finished || ((const rs_sending *)t)->next != RS_NEXT_WANTED)
        return false;
    const rs_recipient *r = rs_recipient_of((const rs_sending *)t, peer);
    return r && r->wanted && rs_is_active(r);
}
