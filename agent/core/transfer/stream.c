/* Continuing streams: no end until it is told, and a window of bounded size at all. How large that is, and up to where
 * nobody needs anything, the engine says. */
#include "core/transfer/stream.h"

#include "core/transfer/engine.h"

#define WRONG_MOST 8 /* times that a fragment comes wrong from the sender itself */

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
    return t && !rs_is_finished(t) && t->stream.on && t->own && t->owner->stream ? t : NULL;
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
            if (rs_is_active(&x->recipients[i]))
                rs_control_set_pending(node, now, &x->recipients[i].link, RS_CONTROL_OPEN);
    }
    tell_owner(node, now, t, RS_NEWS_GROWN);
    return RS_OK;
}

/* ------------------------------------------------------------------------------- fragments whose bytes are wrong */

/* The stream that a packet with a fragment is of, and which fragment; NULL: none. */
static rs_receiving *stream_of(const rs_node *node, const rs_packet_in *packet, uint64_t *sn) {
    rs_data_header h;
    rs_message m;
    uint64_t nonce;
    if (packet->payload_length == 0)
        return NULL;
    if (packet->channel == RS_CH_PEER_RELIABLE) {
        if (!rs_wire_decode(packet->header, packet->header_length, packet->payload_length, &m) ||
            m.type != RS_MSG_PTCH_DATA)
            return NULL;
        nonce = m.nonce;
        *sn = m.ptch_data.sn;
    } else {
        if (!rs_wire_decode_data(packet->header, packet->header_length, &h))
            return NULL;
        nonce = h.nonce;
        *sn = h.sn;
    }
    rs_receiving *x = (rs_receiving *)rs_find_nonce(node, nonce, false);
    bool right = x && !rs_is_finished(&x->t) && x->t.stream.on && x->t.own && x->t.owner->stream &&
                 x->state == RS_RX_RECEIVING && *sn < x->t.fragments &&
                 packet->payload_length == rs_fragment_length(&x->t, *sn);
    if (right && packet->channel == RS_CH_PEER_RELIABLE)
        right = x->link.peer->id == packet->peer;
    return right ? x : NULL;
}

bool rs_receiving_has(const rs_node *node, const rs_packet_in *packet) {
    rs_data_header h;
    const rs_receiving *x = rs_wire_decode_data(packet->header, packet->header_length, &h)
                                ? (const rs_receiving *)rs_find_nonce(node, h.nonce, false)
                                : NULL;
    if (!x || x->state != RS_RX_RECEIVING || h.sn >= x->t.fragments)
        return true;
    return x->t.stream.on ? !x->t.own || !x->t.owner->stream->lacks(x, h.sn) : rs_seqset_has(&x->present, h.sn);
}

bool rs_stream_piece_of(const rs_node *node, const rs_packet_in *packet, rs_stream_piece *out) {
    uint64_t sn;
    rs_receiving *x = stream_of(node, packet, &sn);
    if (!x)
        return false;
    out->xfer = x->t.id;
    out->offset = sn * x->t.fragment_size;
    out->lacks = x->t.owner->stream->lacks(x, sn);
    return true;
}

/* Over its connection nobody but the sender speaks: what is wrong there is wrong at the sender. Of fragments only the
 * first that is missing counts, so that none is counted for another. */
static bool sender_is_wrong(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    char cause[RS_CAUSE_MAX];
    x->link.heard_at = now;
    if (sn != here(&x->t))
        return false;
    if (sn != x->wrong_sn)
        x->wrong_times = 0;
    x->wrong_sn = sn;
    if (++x->wrong_times < WRONG_MOST)
        return false;
    rs_format(cause, sizeof cause,
              "fragment %llu of the stream was changed by its sender, which sent it wrong %d times: its memory or NIC "
              "changes bytes",
              (unsigned long long)sn, WRONG_MOST);
    rs_receiver_end(node, now, x, false, RS_CONTROL_ABORT, cause);
    return true;
}

void rs_stream_piece_refuse(rs_node *node, rs_time now, const rs_packet_in *packet) {
    uint64_t sn;
    rs_receiving *x = stream_of(node, packet, &sn);
    if (!x)
        return;
    x->stats.fragments_refused++;
    bool sender = packet->channel == RS_CH_PEER_RELIABLE;
    if (sender && sender_is_wrong(node, now, x, sn))
        return;
    const rs_news news = {
        .what = RS_NEWS_REFUSED, .from = packet->channel == RS_CH_GROUP ? RS_NO_PEER : packet->peer, .sn = sn};
    x->t.owner->notify(node, now, &x->t, &news);
    rs_receiver_arm(node, x);
}
