/* A transfer by RDCM (docs/rdcm.md): its making and end, its memory and its timer. */
#include "core/rdcm/rdcm.h"

#include "core/rdcm/overlay.h"
#include "core/rdcm/receiver.h"
#include "core/rdcm/repair.h"
#include "core/rdcm/sender.h"
#include "core/transfer/engine.h"

#define WINDOW_MOST (1u << 20) /* packets (a bound) */
#define WINDOW_LEAST 256u      /* packets (docs/rdcm.md) */

static rs_time otherwise(rs_time given, rs_time fallback) {
    return given ? given : fallback;
}

static bool configure(const void *given, void *options) {
    rs_rdcm_config *c = options;
    if (given)
        *c = *(const rs_rdcm_config *)given;
    const rs_time times[] = {c->ack_delay,         c->ack_timeout,   c->ack_timeout_least,
                             c->ack_timeout_first, c->loss_delay,    c->failure_bound,
                             c->link_bound,        c->request_bound, c->view_bound};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (times[i] < 0 || times[i] > 60000 * RS_MS)
            return false;
    c->ack_every = c->ack_every ? c->ack_every : 8;
    c->ack_delay = otherwise(c->ack_delay, RS_MS / 4);
    c->ack_timeout_least = otherwise(c->ack_timeout_least, RS_MS);
    c->ack_timeout_first = otherwise(c->ack_timeout_first, 4 * RS_MS);
    c->failure_bound = otherwise(c->failure_bound, 50 * RS_MS);
    c->link_bound = otherwise(c->link_bound, 30 * RS_MS);
    c->request_bound = otherwise(c->request_bound, 200 * RS_MS);
    c->view_bound = otherwise(c->view_bound, 500 * RS_MS);
    uint32_t wanted = c->window_packets ? c->window_packets : 65536;
    if (wanted > WINDOW_MOST)
        return false;
    for (c->window_packets = WINDOW_LEAST; c->window_packets < wanted;)
        c->window_packets *= 2;
    return true;
}

/* How many sns sets tell apart: all of a small object, and 64 more, which may not be sent (`limit` in sender.c). */
static uint64_t capacity_for(const rs_node *node, const rs_transfer *t) {
    uint64_t capacity = 64, bytes = rs_rdcm_options(node)->stream_bytes;
    if (t->size == RS_STREAM && bytes) {
        for (capacity = WINDOW_LEAST; capacity < rs_rdcm_options(node)->window_packets;)
            if ((capacity *= 2) * t->fragment_size > bytes)
                return capacity > WINDOW_LEAST ? capacity / 2 : capacity;
        return capacity;
    }
    while (capacity < rs_rdcm_options(node)->window_packets && capacity < t->fragments + 64)
        capacity *= 2;
    return capacity;
}

rs_rdcm *rs_rdcm_new(rs_node *node, rs_transfer *transfer) {
    rs_rdcm *r = rs_memory_take(&node->allocator, sizeof *r);
    if (!r)
        return NULL;
    r->transfer = transfer;
    r->capacity = transfer->stream.capacity = capacity_for(node, transfer);
    transfer->stream.taken = UINT64_MAX;
    /* A stream waits for who is stopped as long as that one may be silent, and for those below a dead child, for whom
     * nobody says what they expect until there is a new overlay: it would leave them behind. Of an object they can ask
     * for all of it at any time. */
    for (int i = 0; i <= RS_RDCM_OWED; i++)
        r->owed[i] = INT64_MIN / 2;
    r->owed_parts = r->transfer->stream.on ? RS_RDCM_OWED : 1;
    r->silent = r->transfer->stream.on ? node->config.receiver_silence_bound : RS_RDCM_SILENT_LEAST;
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        r->rings[i] = (rs_rdcm_ring){.predecessor = RS_NO_PEER, .parent = RS_NO_PEER, .ready = true};
        r->rings[i].successor.peer = RS_NO_PEER;
    }
    r->all.peer = r->not_predecessor = RS_NO_PEER;
    r->news[0] = r->news[1] = (rs_rdcm_news){.low = UINT64_MAX, .due = RS_NEVER};
    r->ready_due = r->request_due = r->serve_until = r->start_due = r->view_due = r->probe_due = RS_NEVER;
    r->later_due = r->tail_due = r->last_due = RS_NEVER;
    r->refused_request = INT64_MIN / 2;
    r->limit = RS_BIC_FIRST - 1;
    if (!transfer->sending) /* until there is a view, the sender is everybody's parent */
        r->rings[RS_RING_LEAF].parent = ((rs_receiving *)transfer)->link.peer->id;
    rs_engine_take(transfer, &rs_engine_rdcm, r);
    return r;
}

void rs_rdcm_free(rs_node *node, rs_transfer *t) {
    rs_rdcm *r = t->own;
    if (t->sending)
        for (uint32_t i = 0; i < rs_rdcm_sending(r)->recipient_count; i++)
            rs_rdcm_sending(r)->recipients[i].child = 0; /* of children that go now */
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        rs_watch_end(node, &r->rings[i].successor);
    rs_watch_end(node, &r->all);
    rs_memory_give(&node->allocator, r->subtree.words);
    rs_memory_give(&node->allocator, r->children);
    if (r->here.mask != UINT64_MAX)
        rs_memory_give(&node->allocator, r->here.words);
    rs_memory_give(&node->allocator, r);
}

static void extent(const rs_transfer *t, uint64_t *here, uint64_t *top) {
    *here = rs_rdcm_of(t)->here.cum;
    *top = rs_rdcm_of(t)->here.top;
}

/* --------------------------------------------------------------------------------------------- streams */

void rs_rdcm_stream_moved(rs_node *node, rs_rdcm *r) {
    uint64_t low = rs_rdcm_low(r);
    if (r->transfer->sending) { /* half of the window stays, for requests */
        uint64_t cum = r->all.acked.cum;
        low = cum > r->capacity / 2 ? cum - r->capacity / 2 : 0;
    }
    rs_stream_released(node, r->transfer, low);
}

bool rs_rdcm_lacks(const rs_receiving *x, uint64_t sn) {
    return sn < rs_stream_past(&x->t) && !rs_rdcm_set_has(&rs_rdcm_of(&x->t)->here, sn);
}

void rs_rdcm_stream_taken(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    rs_rdcm_stream_moved(node, r);
    rs_rdcm_expected_moved(node, now, r, RS_RING_LEAF);
    if (r->own_child)
        rs_rdcm_expected_moved(node, now, r, RS_RING_PROXY);
}

void rs_rdcm_stream_grown(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    if (x->t.stream.available > x->pos)
        r->progress_at = now > r->progress_at ? now : r->progress_at;
    if (x->t.engine != &rs_engine_rdcm)
        return;
    rs_rdcm_advance(node, now, x);
    rs_rdcm_schedule(node, now, x);
    rs_sender_arm(node, x);
}

/* ------------------------------------------------------------------------------------------- the table of engines */

static rs_rx_result data_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                                const rs_packet_in *packet) {
    if (packet->channel == RS_CH_PEER_RELIABLE)
        return rs_rdcm_patch(node, now, x, h->sn);
    if (h->flags & RS_DATA_REPAIR)
        return (rs_rx_result){.verdict = RS_RX_BAD}; /* its repairs go from peer to peer, and are data packets */
    return rs_rdcm_tree_packet(node, now, x, h);
}

static rs_rx_verdict message(rs_node *node, rs_time now, rs_peer_session *link, const rs_message *m) {
    rs_transfer *t = link->transfer;
    if (t->sending)
        return rs_rdcm_message(node, now, (rs_sending *)t, RS_HOLDER(rs_recipient, link, link), m);
    if (m->type == RS_MSG_OPEN)
        return rs_rdcm_open_again(node, now, (rs_receiving *)t, m);
    rs_rdcm_ended(node, now, (rs_receiving *)t); /* DATA_FNSD */
    return RS_RX_NONE;
}

static bool serves(const rs_receiving *x) {
    (void)x;
    return true;
}

static rs_rx_result peer_datagram(rs_node *node, rs_time now, rs_transfer *t, const rs_packet_in *packet) {
    if (t->sending)
        return (rs_rx_result){.verdict = rs_rdcm_sender_datagram(node, now, (rs_sending *)t, packet)};
    return rs_rdcm_receiver_datagram(node, now, (rs_receiving *)t, packet);
}

static bool poll(rs_node *node, rs_time now, rs_transfer *t, rs_turn turn, rs_packet_out *out) {
    if (turn == RS_TURN_DATA)
        return rs_rdcm_poll_data(node, now, (rs_sending *)t, out);
    rs_receiving *x = (rs_receiving *)t;
    return turn == RS_TURN_ACK ? rs_rdcm_poll_ack(node, now, x, out) : rs_rdcm_poll_repair(node, now, x, out);
}

static void timeout(rs_node *node, rs_time now, rs_transfer *t) {
    if (t->sending)
        rs_rdcm_sender_timeout(node, now, (rs_sending *)t);
    else if (t->own)
        rs_rdcm_receiver_timeout(node, now, (rs_receiving *)t);
}

static rs_time deadline(const rs_node *node, const rs_transfer *t) {
    if (!t->own)
        return RS_NEVER;
    return t->sending ? rs_rdcm_sender_due(node, (const rs_sending *)t)
                      : rs_rdcm_receiver_due(node, (const rs_receiving *)t);
}

static void stream_ends(rs_node *node, rs_time now, rs_transfer *t) {
    rs_rdcm *r = t->own;
    if (!r)
        return;
    r->here.end = r->subtree.end = r->all.acked.end = t->fragments;
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        r->rings[i].successor.acked.end = t->fragments;
    if (!t->sending)
        rs_rdcm_ended(node, now, (rs_receiving *)t);
}

/* When the path moves it is another tree under the same group: peers repair meanwhile. */
static void notify(rs_node *node, rs_time now, rs_transfer *t, const rs_news *news) {
    switch (news->what) {
    case RS_NEWS_DATA_TIMER:
        rs_rdcm_schedule(node, now, (rs_sending *)t);
        break;
    case RS_NEWS_ACCEPTED:
    case RS_NEWS_RECEIVERS:
        rs_rdcm_advance(node, now, (rs_sending *)t);
        break;
    case RS_NEWS_REMOVED:
        rs_rdcm_on_receiver_removed(node, now, news->receiver);
        break;
    case RS_NEWS_GROWN:
        rs_rdcm_stream_grown(node, now, (rs_sending *)t);
        break;
    case RS_NEWS_PATH_LOST:
        rs_rdcm_stream_lost_path(node, now, (rs_sending *)t);
        break;
    case RS_NEWS_TAKEN:
        rs_rdcm_stream_taken(node, now, (rs_receiving *)t);
        break;
    case RS_NEWS_REFUSED:
        rs_rdcm_refused(node, now, (rs_receiving *)t, news->from, news->sn);
        break;
    case RS_NEWS_ENDS:
        stream_ends(node, now, t);
        break;
    case RS_NEWS_LEAVES:
        rs_rdcm_leaves(node, rs_rdcm_of(t));
        break;
    case RS_NEWS_VERIFIED:
        rs_rdcm_verified(node, now, (rs_receiving *)t);
        break;
    default:
        break;
    }
}

static rs_status view(rs_node *node, rs_time now, rs_transfer *t, const rs_view *v) {
    return t->sending ? rs_rdcm_sender_view(node, now, (rs_sending *)t, v)
                      : rs_rdcm_receiver_view(node, now, (rs_receiving *)t, v);
}

static void stats(const rs_node *node, const rs_transfer *t, rs_xfer_stats *out) {
    if (t->own && t->sending)
        rs_rdcm_sender_stats(node, (const rs_sending *)t, out);
    else if (t->own)
        rs_rdcm_receiver_stats(node, (const rs_receiving *)t, out);
}

static void stop(rs_node *node, rs_transfer *t) {
    if (!t->sending)
        rs_rdcm_receiver_finished(node, (rs_receiving *)t);
}

const rs_engine rs_engine_rdcm = {
    .id = RS_PROTOCOL_RDCM,
    .name = "RDCM",
    .word = "rdcm",
    .path_kinds = 1u << RS_PATH_PACKET,
    .traits = RS_ENGINE_STREAMS | RS_ENGINE_SERVES,
    .receiver_events = 26,
    .serves = serves,
    .stream = &(const rs_engine_stream){.extent = extent, .lacks = rs_rdcm_lacks},
    .options_size = sizeof(rs_rdcm_config),
    .configure = configure,
    .path_granted = rs_rdcm_begin,
    .begin = rs_rdcm_accept,
    .data_packet = data_packet,
    .message = message,
    .say = rs_rdcm_says,
    .peer_datagram = peer_datagram,
    .poll = poll,
    .timeout = timeout,
    .deadline = deadline,
    .notify = notify,
    .view = view,
    .stats = stats,
    .stop = stop,
    .free = rs_rdcm_free,
};
