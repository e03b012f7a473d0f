/* Continuing streams: no end until it is told, and a window of bounded size at all. How large that is, and up to where
 * nobody needs anything, the engine says. */
#include "core/transfer/engine.h"

void rs_stream_released(rs_node *node, rs_transfer *t, uint64_t low) {
    rs_stream *s = &t->stream;
    s->released = low > s->released ? low : s->released;
    if (s->moved_told)
        return;
    s->moved_told = true;
    rs_emit(node, &(rs_event){.kind = RS_EV_STREAM_MOVED, .xfer = t->id, .peer = RS_NO_PEER, .session = t->session});
}

uint64_t rs_stream_past(const rs_transfer *t) {
    return t->stream.released + t->stream.capacity - 64;
}

static rs_transfer *stream(const rs_node *node, rs_xfer xfer) {
    rs_transfer *t = rs_by_id(node, xfer);
    return t && !t->finished && t->stream.on && t->own ? t : NULL;
}

static uint64_t here(const rs_transfer *t) {
    uint64_t here, top;
    t->owner->stream->extent(t, &here, &top);
    return here;
}

rs_status rs_stream_window(rs_node *node, rs_xfer xfer, uint64_t *first, uint64_t *came, uint64_t *end) {
    rs_transfer *t = stream(node, xfer);
    if (!t)
        return RS_ERR_UNKNOWN;
    uint64_t each = t->fragment_size, past = rs_stream_past(t) * each, size = t->size;
    t->stream.moved_told = false;
    *first = t->stream.released * each;
    *came = here(t) * each < size ? here(t) * each : size;
    *end = past < size ? past : size;
    return RS_OK;
}

rs_status rs_stream_taken(rs_node *node, rs_time now, rs_xfer xfer, uint64_t bytes) {
    rs_transfer *t = stream(node, xfer);
    if (!t || t->sending)
        return RS_ERR_UNKNOWN;
    rs_receiving *x = (rs_receiving *)t;
    uint64_t taken = bytes == t->size ? t->fragments : bytes / t->fragment_size;
    if (taken > here(t))
        return RS_ERR_INVALID;
    t->stream.taken = taken;
    if (x->state == RS_RX_VERIFYING)
        x->verify_due = now + node->config.no_path_bound;
    rs_engine_notify(node, now, t, RS_NEWS_TAKEN);
    rs_receiver_arm(node, x);
    return RS_OK;
}

/* At a sender it may not have begun yet. */
static void tell_owner(rs_node *node, rs_time now, rs_transfer *t, rs_news_kind what) {
    const rs_news news = {.what = what};
    t->owner->notify(node, now, t, &news);
}

rs_status rs_stream_extend(rs_node *node, rs_time now, rs_xfer xfer, uint64_t bytes, bool last) {
    rs_transfer *t = stream(node, xfer);
    if (!t || !t->sending)
        return RS_ERR_UNKNOWN;
    rs_sending *x = (rs_sending *)t;
    uint64_t each = t->fragment_size, fragments = rs_fragments(bytes, t->fragment_size);
    if (t->size != RS_STREAM)
        return RS_ERR_STATE;
    if ((!last && bytes % each) || bytes < t->stream.available * each)
        return RS_ERR_INVALID;
    if (fragments > rs_stream_past(t))
        return RS_ERR_LIMIT;
    t->stream.available = bytes == 0 && !last ? 0 : fragments;
    if (last) {
        t->size = bytes;
        t->fragments = x->end = fragments;
        tell_owner(node, now, t, RS_NEWS_ENDS);
        for (uint32_t i = 0; i < x->recipient_count && x->sessions; i++)
            if (x->recipients[i].state == RS_RECIPIENT_ACTIVE)
                rs_say(node, now, &x->recipients[i].link, RS_SAY_OPEN);
    }
    tell_owner(node, now, t, RS_NEWS_GROWN);
    return RS_OK;
}

bool rs_stream_ends(rs_node *node, rs_time now, rs_receiving *x, uint64_t size) {
    uint64_t fragments = rs_fragments(size, x->t.fragment_size), came = 0, top = 0;
    if (x->t.own)
        x->t.owner->stream->extent(&x->t, &came, &top);
    if (!x->t.engine->stream || top > fragments)
        return false;
    x->t.size = size;
    x->t.fragments = fragments;
    rs_engine_notify(node, now, &x->t, RS_NEWS_ENDS);
    return true;
}
