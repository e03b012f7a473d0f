/* A transfer by RDCM (docs/rdcm.md): its making and end, its memory, its timer, and the repair window's lower bound. */
#include "core/rdcm/rdcm.h"

#include "core/transfer/engine.h"

#define WINDOW_MOST (1u << 20)
#define WINDOW_LEAST 256u

static rs_time otherwise(rs_time given, rs_time fallback) {
    return given ? given : fallback;
}

bool rs_rdcm_fill_defaults(rs_rdcm_config *c) {
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

/* How many sns sets tell apart: all of a small object. */
static uint64_t capacity_for(const rs_node *node, const rs_transfer *t) {
    uint64_t capacity = 64, bytes = node->config.rdcm.stream_bytes;
    if (t->size == RS_STREAM && bytes) {
        for (capacity = WINDOW_LEAST; capacity < node->config.rdcm.window_packets;)
            if ((capacity *= 2) * t->fragment_size > bytes)
                return capacity > WINDOW_LEAST ? capacity / 2 : capacity;
        return capacity;
    }
    while (capacity < node->config.rdcm.window_packets && capacity < t->fragments + 63)
        capacity *= 2;
    return capacity;
}

rs_rdcm *rs_rdcm_new(rs_node *node, rs_transfer *transfer) {
    rs_rdcm *r = rs_allocate(node, sizeof *r);
    if (!r)
        return NULL;
    r->transfer = transfer;
    r->capacity = transfer->stream.capacity = capacity_for(node, transfer);
    transfer->stream.taken = UINT64_MAX;
    /* For those below a dead child nobody says what they expect until there is a new overlay: a stream waits for it, or
     * it would leave them behind. Of an object they can ask for all of it at any time. */
    r->owed_at = r->owed_next = INT64_MIN / 2;
    r->silent = r->transfer->stream.on ? node->config.receiver_silence_bound / 2 : RS_RDCM_SILENT_LEAST;
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        r->rings[i] = (rs_rdcm_ring){.predecessor = RS_NO_PEER, .parent = RS_NO_PEER, .ready = true};
        r->rings[i].successor.peer = RS_NO_PEER;
    }
    r->all.peer = r->stray = RS_NO_PEER;
    r->news[0] = r->news[1] = (rs_rdcm_news){.low = UINT64_MAX, .due = RS_NEVER};
    r->ready_due = r->request_due = r->serve_until = r->start_due = r->view_due = r->probe_due = RS_NEVER;
    r->later_due = RS_NEVER;
    r->limit = RS_BIC_FIRST - 1;
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
    rs_release(node, r->subtree.words);
    rs_release(node, r->children);
    if (r->here.mask != UINT64_MAX)
        rs_release(node, r->here.words);
    rs_release(node, r);
}

rs_receiving *rs_rdcm_receiving(const rs_rdcm *r) {
    return r->transfer->sending ? NULL : (rs_receiving *)r->transfer;
}

rs_sending *rs_rdcm_sending(const rs_rdcm *r) {
    return r->transfer->sending ? (rs_sending *)r->transfer : NULL;
}

void rs_rdcm_wake(rs_node *node, rs_rdcm *r, rs_time due) {
    if (due < r->transfer->timer.due && !r->transfer->finished)
        rs_timer_set(&node->timers, &r->transfer->timer, due);
}

void rs_rdcm_emit(rs_node *node, const rs_rdcm *r, rs_event_kind kind, rs_peer peer, rs_ring_kind ring) {
    rs_emit(node, &(rs_event){.kind = kind,
                              .xfer = r->transfer->id,
                              .peer = peer,
                              .ring = ring,
                              .version = r->version,
                              .session = r->transfer->session});
}

/* Sec. 3.3, Repair Window: received here, which counts as a child's ACK (rdcm/ack.c), and acknowledged by the successor
 * in each ring. Who has failed is not waited for. Of a stream, what the caller here has not taken is needed, too. */
uint64_t rs_rdcm_low(const rs_rdcm *r) {
    uint64_t low = r->here.cum < r->transfer->stream.taken ? r->here.cum : r->transfer->stream.taken;
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        const rs_rdcm_watch *w = &r->rings[i].successor;
        if (w->in_use && !w->failed && w->acked.cum < low)
            low = w->acked.cum;
    }
    return low;
}

static uint64_t stream_here(const rs_transfer *t) {
    return rs_rdcm_of(t)->here.cum;
}

static void stream_end(rs_node *node, rs_transfer *t, uint64_t end) {
    rs_rdcm *r = t->own;
    (void)node;
    r->here.end = r->subtree.end = r->all.acked.end = end;
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        r->rings[i].successor.acked.end = end;
}

static bool fill_defaults(rs_config *config) {
    return rs_rdcm_fill_defaults(&config->rdcm);
}

const rs_engine rs_engine_rdcm = {
    .id = RS_PROTOCOL_RDCM,
    .name = "RDCM",
    .fill_defaults = fill_defaults,
    .free = rs_rdcm_free,
    .stream_here = stream_here,
    .stream_end = stream_end,
    .path_kinds = 1u << RS_PATH_PACKET,
    .receiver_events = 26,
    .streams = true,
    .begins_over = true,
    .sender =
        {
            /* When the path moves it is another tree under the same group: peers repair meanwhile. */
            .begin = rs_rdcm_begin,
            .message = rs_rdcm_message,
            .peer_datagram = rs_rdcm_sender_datagram,
            .advance = rs_rdcm_advance,
            .schedule = rs_rdcm_schedule,
            .poll_data = rs_rdcm_poll_data,
            .timeout = rs_rdcm_sender_timeout,
            .deadline = rs_rdcm_sender_due,
            .receiver_removed = rs_rdcm_left,
            .view = rs_rdcm_sender_view,
            .stream_grown = rs_rdcm_stream_grown,
            .stats = rs_rdcm_sender_stats,
        },
    .receiver =
        {
            .begin = rs_rdcm_offered,
            .accept = rs_rdcm_accept,
            .accepted = rs_rdcm_ended,
            .data_packet = rs_rdcm_tree_packet,
            .patch = rs_rdcm_patch,
            .peer_datagram = rs_rdcm_receiver_datagram,
            .data_over = rs_rdcm_data_over,
            .says = rs_rdcm_says,
            .open_again = rs_rdcm_open_again,
            .timeout = rs_rdcm_receiver_timeout,
            .deadline = rs_rdcm_receiver_due,
            .poll_ack = rs_rdcm_poll_ack,
            .poll_repair = rs_rdcm_poll_repair,
            .view = rs_rdcm_receiver_view,
            .verified = rs_rdcm_verified,
            .stop = rs_rdcm_receiver_finished,
            .lacks = rs_rdcm_lacks,
            .stream_taken = rs_rdcm_stream_taken,
            .stream_ends = rs_rdcm_stream_ends,
            .stats = rs_rdcm_receiver_stats,
        },
};
