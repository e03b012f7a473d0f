/* A transfer by RDCM (docs/rdcm.md): its making and end, its memory, its timer, and the repair window's lower bound. */
#include "core/rdcm.h"

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
    r->streams = transfer->size == RS_STREAM;
    r->capacity = capacity_for(node, transfer);
    r->taken = UINT64_MAX;
    /* For those below a dead child nobody says what they expect until there is a new overlay: a stream waits for it, or
     * it would leave them behind. Of an object they can ask for all of it at any time. */
    r->owed_at = r->owed_next = INT64_MIN / 2;
    r->silent = r->streams ? node->config.receiver_silence_bound / 2 : RS_RDCM_SILENT_LEAST;
    rs_list_init(&r->in_talking);
    rs_list_init(&r->in_mending);
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        r->rings[i] = (rs_rdcm_ring){.predecessor = RS_NO_PEER, .parent = RS_NO_PEER, .ready = true};
        r->rings[i].successor.peer = RS_NO_PEER;
    }
    r->all.peer = r->stray = RS_NO_PEER;
    r->news[0] = r->news[1] = (rs_rdcm_news){.low = UINT64_MAX, .due = RS_NEVER};
    r->ready_due = r->request_due = r->serve_until = r->start_due = r->view_due = r->probe_due = RS_NEVER;
    r->later_due = RS_NEVER;
    r->limit = RS_BIC_FIRST - 1;
    return r;
}

void rs_rdcm_free(rs_node *node, rs_rdcm *r) {
    if (!r)
        return;
    rs_list_remove(&r->in_talking);
    rs_list_remove(&r->in_mending);
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

/* Sec. 3.3, Repair Window: received here, which counts as a child's ACK (rdcm_ack.c), and acknowledged by the successor
 * in each ring. Who has failed is not waited for. Of a stream, what the caller here has not taken is needed, too. */
uint64_t rs_rdcm_low(const rs_rdcm *r) {
    uint64_t low = r->here.cum < r->taken ? r->here.cum : r->taken;
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        const rs_rdcm_watch *w = &r->rings[i].successor;
        if (w->in_use && !w->failed && w->acked.cum < low)
            low = w->acked.cum;
    }
    return low;
}
