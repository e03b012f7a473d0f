/* A receiver by RDCM: one handler for each packet that comes in. */
#include "core/rdcm/receiver.h"

#include "core/rdcm/overlay.h"
#include "core/rdcm/repair.h"
#include "core/rdcm/sender.h"
#include "core/transfer/engine.h"

#define SERVE_SILENT_SENDER 4 /* sender silence bounds: then there is other help (docs/rdcm.md) */

/* Where no other source is named: docs/rdcm.md. */
#define GOING (20 * RS_MS) /* one that leaves says so long that nothing is to be repaired to it (a bound) */
/* Whoever repaired with wrong bytes does it again: the sender is asked soon, but of forged packets not more often. */
#define REFUSED_SOON (10 * RS_MS)
#define REFUSED_AGAIN (50 * RS_MS)
#define RUNS_MOST 16 /* asked for at once (a bound) */

static rs_rx_result verdict(rs_rx_verdict what) {
    return (rs_rx_result){.verdict = what};
}

/* A view may have come before. */
bool rs_rdcm_accept(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own ? x->t.own : rs_rdcm_new(node, &x->t);
    uint64_t *words = r && x->t.stream.on ? rs_memory_take(&node->allocator, r->capacity / 64 * sizeof *words) : NULL;
    if (!r || (x->t.stream.on && !words))
        return false;
    if (words)
        rs_rdcm_set_init(&r->here, x->t.fragments, words, r->capacity / 64);
    else
        rs_rdcm_set_init(&r->here, x->t.fragments, x->present.words, 0);
    rs_rdcm_congestion_start(x);
    rs_rdcm_ended(node, now, x);
    return true;
}

/* ------------------------------------------------------------------------------------------------------ packets */

/* Counts a fragment as present if it is new. */
static rs_rx_result store(rs_receiving *x, uint64_t sn) {
    rs_rdcm *r = x->t.own;
    if (!r->transfer->stream.on) {
        rs_rx_result result = rs_receiver_store(x, sn);
        if (result.verdict == RS_RX_STORE)
            rs_rdcm_set_note(&r->here, sn);
        return result;
    }
    bool lacks = rs_rdcm_lacks(x, sn);
    rs_rx_result result = {.xfer = x->t.id,
                           .offset = sn * x->t.fragment_size,
                           .length = rs_fragment_length(&x->t, sn),
                           .verdict = lacks && rs_rdcm_set_add(&r->here, sn) ? RS_RX_STORE : RS_RX_OLD};
    if (result.verdict == RS_RX_STORE)
        x->stats.bytes_present += result.length;
    else
        x->stats.packets_old++;
    return result;
}

static rs_time grain(const rs_node *node, const rs_rdcm *r) {
    rs_time least = rs_watch_timeout(node, &r->rings[RS_RING_LEAF].successor) / 16;
    return least > 1000 ? least : 1000;
}

static void maybe_served(rs_node *node, rs_time now, rs_receiving *x);

static void check_complete(rs_node *node, rs_time now, rs_receiving *x) {
    if (x->state == RS_RX_RECEIVING && rs_rdcm_of(&x->t)->here.cum == x->t.fragments)
        rs_receiver_complete(node, now, x);
}

/* Sec. 3.3: acknowledge, and answer for it to those behind. The last packets of an object, if they are repaired here,
 * were waited for already; others that nothing came after may follow them by the tree. */
static void came(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn, uint64_t top_before, bool at_once) {
    rs_rdcm *r = x->t.own;
    bool overdue = sn < top_before || (sn >= r->tree_top && x->t.fragments - sn <= RS_RDCM_OVERTAKEN);
    if (r->here.top > top_before && !overdue)
        rs_passes_note(&r->passes, now, r->here.top, grain(node, r));
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        rs_rdcm_watch *w = &r->rings[i].successor;
        if (w->state == RS_WATCH_OFF)
            continue;
        if (overdue || sn + 1 == x->t.fragments)
            rs_watch_look(node, now, r, w); /* it may be due there already */
        else
            rs_watch_grown(node, now, r, w);
    }
    rs_rdcm_note_owed(r, now, rs_watch_timeout(node, &r->rings[RS_RING_LEAF].successor));
    rs_rdcm_news_of(node, now, r, RS_RING_LEAF, sn, at_once);
    rs_rdcm_request_moved(node, now, x);
    if (r->transfer->stream.on)
        rs_rdcm_stream_moved(node, r);
    check_complete(node, now, x);
}

/* Whoever sent this thinks that it is not here: an ACK was lost. */
static void say_again(rs_node *node, rs_rdcm *r) {
    rs_rdcm_say_all(node, r, RS_RING_LEAF);
    rs_rdcm_say_all(node, r, RS_RING_PROXY);
}

rs_rx_result rs_rdcm_tree_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h) {
    rs_rdcm *r = x->t.own;
    if (x->state != RS_RX_RECEIVING) {
        say_again(node, r);
        return (rs_rx_result){.verdict = RS_RX_OLD, .xfer = x->t.id};
    }
    uint64_t top = r->here.top;
    x->link.heard_at = x->data_at = now;
    x->stats.packets_received++;
    rs_rx_result result = store(x, h->sn);
    bool fresh = result.verdict == RS_RX_STORE;
    rs_rdcm_congestion_packet(node, now, x, h, fresh);
    x->ring.run = 1;
    x->ring.prior = h->sn;
    if (fresh)
        came(node, now, x, h->sn, top, h->flags & RS_DATA_REPORT);
    else if (h->flags & RS_DATA_REPORT)
        say_again(node, r);
    if (h->sn + 1 == x->t.fragments)
        rs_rdcm_tail_look(node, now, r);
    return result;
}

static bool is_predecessor(const rs_rdcm *r, rs_peer peer) {
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        if (r->rings[i].predecessor == peer)
            return true;
    return false;
}

/* A receiver that is: the sender's repairs go by the tree. */
static bool is_parent(const rs_receiving *x, rs_peer peer) {
    const rs_rdcm *r = x->t.own;
    return peer != x->link.peer->id &&
           (r->rings[RS_RING_LEAF].parent == peer || r->rings[RS_RING_PROXY].parent == peer);
}

/* The children lack what came by repair, and said so, or would have by now. */
static bool lost_below(const rs_rdcm *r, uint64_t sn) {
    return r->child_count && r->subtree.words && !rs_rdcm_set_has(&r->subtree, sn);
}

/* Sent by the parent to all of a ring: the successor there has it too, or tells. */
static void neighbours_have(rs_time now, rs_rdcm *r, rs_peer parent, uint64_t sn) {
    for (int i = 0; i < 2; i++)
        if (r->rings[i].parent == parent && r->rings[i].successor.state == RS_WATCH_KNOWN)
            rs_watch_assume(now, &r->rings[i].successor, sn);
}

static rs_rx_result on_repair(rs_node *node, rs_time now, rs_receiving *x, rs_peer from, const rs_packet_in *packet) {
    rs_rdcm *r = x->t.own;
    rs_data_header h;
    if (!rs_wire_decode_data(packet->header, packet->header_length, &h) || h.sn >= x->t.fragments ||
        packet->payload_length != rs_fragment_length(&x->t, h.sn))
        return verdict(RS_RX_BAD);
    x->stats.peer_repairs_received++;
    uint64_t top = r->here.top;
    rs_rx_result result = {.verdict = RS_RX_OLD, .xfer = x->t.id};
    /* Of an older ring, or of a newer one: it comes again if it is needed. */
    if (!is_predecessor(r, from) && !is_parent(x, from)) {
        r->not_predecessor = from;
        rs_rdcm_say(node, r, RS_RDCM_NOT_PREDECESSOR);
        return result;
    }
    bool below = lost_below(r, h.sn);
    if (x->state == RS_RX_RECEIVING)
        result = store(x, h.sn);
    if (result.verdict == RS_RX_STORE) {
        if (h.flags & RS_DATA_REPORT)
            neighbours_have(now, r, from, h.sn);
        if (below)
            rs_rdcm_seed(node, now, r, h.sn, from);
        came(node, now, x, h.sn, top, false);
        rs_rdcm_tail_look(node, now, r);
        rs_rdcm_say_repaired(node, now, r, from);
    } else {
        x->stats.peer_repairs_old++;
        rs_rdcm_say_to(node, r, from);
    }
    return result;
}

/* As if it had been lost; but who repaired, and knows no better, must not take this for the silence of a dead one. */
void rs_rdcm_refused(rs_node *node, rs_time now, rs_receiving *x, rs_peer from, uint64_t sn) {
    rs_rdcm *r = x->t.own;
    bool repaired = from != RS_NO_PEER && (is_predecessor(r, from) || is_parent(x, from));
    if (repaired)
        rs_rdcm_say_to(node, r, from);
    if (repaired || from == x->link.peer->id)
        rs_rdcm_request_refused(node, now, x, sn);
}

rs_rx_result rs_rdcm_patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    uint64_t top = rs_rdcm_of(&x->t)->here.top;
    rs_rx_result result = store(x, sn);
    if (result.verdict == RS_RX_STORE) {
        x->stats.patches_received++;
        came(node, now, x, sn, top, false);
    }
    return result;
}

/* --------------------------------------------------------------------------------------------- acknowledgements */

static rs_rdcm_child *child_of(const rs_rdcm *r, rs_peer peer) {
    for (uint32_t i = 0; i < r->child_count; i++)
        if (r->children[i].peer == peer)
            return &r->children[i];
    return NULL;
}

/* Sec. 3.3: the first ACK of a child for a packet is passed on in the proxy ring. */
static void on_child_ack(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_child *child, const rs_ack *ack) {
    rs_rdcm_set *set = &r->subtree;
    uint64_t fresh = 0, low = UINT64_MAX, cum = ack->cum < set->end ? ack->cum : set->end;
    child->heard_at = now;
    child->expected = rs_rdcm_expected_of(r, ack);
    child->settled = ack->settled > child->settled ? ack->settled : child->settled;
    if (cum > set->cum) {
        low = set->cum;
        fresh += cum - set->cum;
        rs_rdcm_set_raise(set, cum);
    }
    for (uint32_t i = 0; i < ack->words; i++) {
        uint64_t index = ack->base / 64 + i, bits = rs_rdcm_set_or(set, index, ack->map[i]);
        if (bits && index * 64 + (uint64_t)__builtin_ctzll(bits) < low)
            low = index * 64 + (uint64_t)__builtin_ctzll(bits);
        fresh += rs_rdcm_bits(bits);
    }
    rs_rdcm_set_settle(set);
    if (fresh) {
        r->news[RS_RING_PROXY].unacked += (uint32_t)(fresh < UINT32_MAX / 2 ? fresh - 1 : UINT32_MAX / 2);
        rs_rdcm_news_of(node, now, r, RS_RING_PROXY, low, false);
    } else {
        rs_rdcm_expected_moved(node, now, r, RS_RING_PROXY);
    }
    rs_rdcm_settled_moved(node, r);
}

/* A successor leaves: what it lacks is nobody's business. In the next view another follows. */
static void successor_goes(rs_node *node, rs_rdcm *r, rs_peer peer) {
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        if (r->rings[i].successor.state != RS_WATCH_OFF && r->rings[i].successor.peer == peer)
            rs_watch_end(node, &r->rings[i].successor);
}

static void on_ack(rs_node *node, rs_time now, rs_receiving *x, rs_peer from, const rs_ack *ack) {
    rs_rdcm *r = x->t.own;
    x->stats.acks_received++;
    if (ack->flags & (RS_ACK_READY | RS_ACK_LEFT | RS_ACK_WANTS_READY))
        rs_rdcm_ack_of_view(node, now, r, from, ack);
    if (r->leaving != RS_RDCM_STAYS)
        rs_rdcm_wake(node, r, now);
    if (ack->flags & RS_ACK_READY)
        return;
    bool low_moved = ack->flags & RS_ACK_GOES;
    if (ack->flags & RS_ACK_GOES)
        successor_goes(node, r, from);
    for (int i = 0; i < RS_RDCM_RINGS && (ack->flags & RS_ACK_TO_PREDECESSOR); i++) {
        rs_rdcm_watch *w = &r->rings[i].successor;
        if (w->state == RS_WATCH_OFF || w->peer != from)
            continue;
        low_moved |= rs_watch_learn(node, now, r, w, ack) > 0;
        if (i == RS_RING_LEAF || i == RS_RING_PROXY)
            rs_rdcm_starved_look(node, now, r, (rs_ring_kind)i);
    }
    if (r->tail_due == RS_NEVER)
        rs_rdcm_tail_look(node, now, r);
    rs_rdcm_child *child = ack->flags & RS_ACK_TO_PARENT ? child_of(r, from) : NULL;
    if (child)
        on_child_ack(node, now, r, child, ack);
    if (low_moved && r->transfer->stream.on)
        rs_rdcm_stream_moved(node, r);
    if (x->state == RS_RX_SERVING)
        maybe_served(node, now, x);
}

rs_rx_result rs_rdcm_receiver_datagram(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    rs_ack ack;
    if (!rs_ack_decode(packet->header, packet->header_length, &ack))
        return on_repair(node, now, x, packet->peer, packet);
    on_ack(node, now, x, packet->peer, &ack);
    return verdict(RS_RX_NONE);
}

/* ------------------------------------------------------------------------------------------- the end, and after it */

static bool is_served(const rs_rdcm *r) {
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        const rs_rdcm_watch *w = &r->rings[i].successor;
        if (w->state != RS_WATCH_OFF && !w->failed && w->acked.cum < r->here.cum)
            return false;
    }
    return true;
}

/* The object is here and checked. Others may still need repairs, and acknowledgements passed on: RECEIVE_DONE, after
 * which the caller may forget the object's place, comes when nobody does. */
static void maybe_served(rs_node *node, rs_time now, rs_receiving *x) {
    if (!is_served(x->t.own) && now < rs_rdcm_of(&x->t)->serve_until)
        return;
    rs_receiver_end(node, now, x, true, RS_CONTROL_DATA_RCVD, "");
}

void rs_rdcm_receiver_finished(rs_node *node, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    if (!r || r->here.cum < x->t.fragments || r->here.top == 0) {
        rs_engine_drop(node, &x->t);
        return;
    }
    rs_list_remove(&r->transfer->in_mending);
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        rs_watch_end(node, &r->rings[i].successor);
    rs_memory_give(&node->allocator, r->subtree.words);
    rs_memory_give(&node->allocator, r->children);
    if (r->here.mask != UINT64_MAX)
        rs_memory_give(&node->allocator, r->here.words);
    r->children = NULL;
    r->child_count = 0;
    r->here.words = NULL;
    r->subtree = r->here;
}

/* It goes on as before, until those behind it have other predecessors; but nothing more is asked for it, and it holds
 * nobody back. */
void rs_rdcm_leaves(rs_node *node, rs_rdcm *r) {
    r->leaving = RS_RDCM_LEAVES;
    r->request_due = RS_NEVER;
    say_again(node, r);
    rs_rdcm_wake(node, r, 0);
}

static bool is_needed(const rs_rdcm *r) {
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        if (r->rings[i].successor.state != RS_WATCH_OFF)
            return true;
    return false;
}

/* Its predecessors hear that nothing is to be repaired to it any more, before it ends. */
static void maybe_goes(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    if (r->leaving != RS_RDCM_LEAVES || (is_needed(r) && now < x->leaving_due - GOING))
        return;
    r->leaving = RS_RDCM_GOES;
    x->leaving_due = now + GOING;
    say_again(node, r);
}

void rs_rdcm_verified(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    r->serve_until = now + SERVE_SILENT_SENDER * node->config.sender_silence_bound;
    rs_rdcm_wake(node, r, r->serve_until);
    maybe_served(node, now, x);
}

void rs_rdcm_ended(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm_request_moved(node, now, x);
    check_complete(node, now, x);
}

/* OPEN again: a repetition; a stream's end; or what is left comes without a data channel, and not by RDCM. */
rs_rx_verdict rs_rdcm_open_again(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    bool further = m->session != x->t.session && x->state != RS_RX_SERVING;
    if (further && (x->state == RS_RX_VERIFYING || x->t.stream.on))
        return RS_RX_NONE;
    if (further) {
        rs_engine_drop(node, &x->t);
        return x->t.engine->message(node, now, &x->link, m);
    }
    if (x->state != RS_RX_OFFERED)
        rs_control_set_pending(node, now, &x->link,
                               RS_CONTROL_OPEN_ACK | (x->state == RS_RX_SERVING ? RS_CONTROL_DATA_RCVD : 0));
    return RS_RX_NONE;
}

rs_time rs_rdcm_receiver_due(const rs_node *node, const rs_receiving *x) {
    const rs_rdcm *r = x->t.own;
    const rs_time dues[] = {
        r->news[0].due, r->news[1].due, r->request_due,
        r->ready_due,   r->serve_until, rs_rdcm_congestion_due(node, r),
        r->later_due,   r->tail_due,    r->leaving == RS_RDCM_LEAVES ? x->leaving_due - GOING : RS_NEVER};
    rs_time due = rs_earliest(dues, sizeof dues / sizeof dues[0]);
    for (int i = 0; i < RS_RDCM_RINGS && rs_list_empty(&r->transfer->in_mending); i++)
        if (r->rings[i].successor.state != RS_WATCH_OFF && r->rings[i].successor.check_at < due)
            due = r->rings[i].successor.check_at;
    return due;
}

void rs_rdcm_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    for (int kind = 0; kind < 2; kind++)
        if (now >= r->news[kind].due)
            rs_rdcm_say_all(node, r, (rs_ring_kind)kind);
    rs_rdcm_say_later(node, now, r);
    if (now >= r->tail_due)
        rs_rdcm_tail_look(node, now, r);
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        rs_rdcm_watch *w = &r->rings[i].successor;
        if (w->state != RS_WATCH_OFF && now >= w->check_at)
            rs_list_keep(&node->mending, &r->transfer->in_mending, true);
    }
    if (now >= rs_rdcm_congestion_due(node, r))
        rs_rdcm_congestion_look(node, now, x);
    rs_rdcm_request_look(node, now, x);
    if (now >= r->ready_due)
        rs_rdcm_ready_look(node, now, r);
    maybe_goes(node, now, x);
    rs_rdcm_old_rings_look(node, now, r);
    if (x->state == RS_RX_SERVING)
        maybe_served(node, now, x);
}

void rs_rdcm_receiver_stats(const rs_node *node, const rs_receiving *x, rs_xfer_stats *out) {
    const rs_rdcm *r = x->t.own;
    out->view = r->version;
    out->window = r->bic.window;
    out->ack_timeout = rs_watch_timeout(node, &r->rings[RS_RING_LEAF].successor);
}

/* ------------------------------------------------------------------------------------------ requests to the sender
 *
 * What nobody repairs is asked of the sender (Sec. 3.4: after the crash of a receiver its successors may miss packets
 * that others have released). Requests are PTCH_REQ and what comes is PTCH_DATA, as in Republic.
 *
 * The lowest missing packet has a bound: as long as it moves, repairs work. Without a ring, as when the manager gave no
 * overlay, a much shorter one, above all once the last packet has gone by: then this is how losses are mended. */

/* Up to where packets should be here. */
static uint64_t due_top(const rs_receiving *x) {
    const rs_rdcm *r = x->t.own;
    uint64_t top = r->here.top > r->refused_top ? r->here.top : r->refused_top;
    return x->ended && x->t.size != RS_STREAM ? x->t.fragments : top;
}

static rs_time bound(const rs_node *node, const rs_receiving *x) {
    const rs_rdcm *r = x->t.own;
    bool ring = r->rings[RS_RING_LEAF].predecessor != RS_NO_PEER || r->rings[RS_RING_PROXY].predecessor != RS_NO_PEER;
    rs_time given = rs_rdcm_options(node)->request_bound;
    rs_time alone = due_top(x) == x->t.fragments ? RS_TAIL_QUIET : RS_RDCM_WITHOUT_RING;
    return ring || given < alone ? given : alone;
}

/* `here.cum` has moved, or there may be a gap since now. */
void rs_rdcm_request_moved(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    if (x->state != RS_RX_RECEIVING || r->leaving != RS_RDCM_STAYS || r->here.cum >= due_top(x)) {
        r->request_due = RS_NEVER;
        return;
    }
    rs_time due = now + bound(node, x);
    bool asked = r->request_top > r->here.cum;
    if (r->request_due != RS_NEVER && r->missing == r->here.cum && (asked || r->request_due <= due))
        return;
    r->missing = r->here.cum;
    r->request_due = due;
    rs_rdcm_wake(node, r, r->request_due);
}

void rs_rdcm_request_refused(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    rs_rdcm *r = x->t.own;
    if (!rs_rdcm_lacks(x, sn))
        return;
    r->refused_top = sn + 1 > r->refused_top ? sn + 1 : r->refused_top;
    rs_rdcm_request_moved(node, now, x);
    rs_time soon = now + REFUSED_SOON;
    if (now - r->refused_request < REFUSED_AGAIN || r->request_due <= soon)
        return;
    r->refused_request = now;
    r->request_due = soon;
    rs_rdcm_wake(node, r, soon);
}

void rs_rdcm_request_look(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    if (now < r->request_due)
        return;
    r->request_due = now + RS_REQUEST_TIMEOUT;
    r->request_at = r->here.cum;
    r->request_top = due_top(x);
    r->request_runs = RUNS_MOST;
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_PTCH_REQ);
}

static uint64_t first_here(const rs_rdcm_set *set, uint64_t from, uint64_t to, bool here) {
    while (from < to) {
        uint64_t word = rs_rdcm_set_word(set, from / 64);
        word = (here ? word : ~word) >> (from % 64);
        if (word) {
            from += (uint64_t)__builtin_ctzll(word);
            return from < to ? from : to;
        }
        from = (from / 64 + 1) * 64;
    }
    return to;
}

/* The next PTCH_REQ: a run of missing packets, named as an exclusive range in the ring of the object. */
static bool next_request(rs_receiving *x, rs_message *m) {
    rs_rdcm *r = x->t.own;
    uint64_t from = first_here(&r->here, r->request_at, r->request_top, false);
    uint64_t to = first_here(&r->here, from, r->request_top, true);
    if (r->request_runs == 0 || from >= to)
        return false;
    r->request_runs--;
    r->request_at = rs_request_object(&x->t, from, to, m);
    x->stats.requests_sent++;
    x->stats.lost += r->request_at - from;
    return true;
}

static bool requests_left(const rs_receiving *x) {
    const rs_rdcm *r = x->t.own;
    return r->request_runs > 0 && first_here(&r->here, r->request_at, r->request_top, false) < r->request_top;
}

bool rs_rdcm_says(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more) {
    (void)node, (void)now;
    if (what != RS_CONTROL_PTCH_REQ || !next_request(x, m))
        return false;
    *more = requests_left(x);
    return true;
}

/* Congestion control at a receiver (Sec. 3.5): losses on the tree shrink its window, packets that come by the tree let
 * it grow. Repairs do neither: they take other paths.
 *
 * Ours: the window grows only while it is what holds the sender back. The sender says in each packet up to where it may
 * go; that was said by the slowest receiver, which so knows itself. (TCP sees its own flight, RFC 7661.) */

void rs_rdcm_congestion_start(rs_receiving *x) {
    uint64_t most = x->room ? x->room / 2 / (x->t.fragment_size + RS_DATA_HEADER) : UINT32_MAX;
    rs_rdcm *r = x->t.own;
    uint64_t sets = r->capacity / 2 > 2 * RS_BIC_FIRST ? r->capacity / 2 : 2 * RS_BIC_FIRST;
    rs_bic_start(&r->bic, (uint32_t)(most < sets ? most : sets));
    r->said[0] = RS_BIC_FIRST - 1; /* what the sender begins with */
}

static void window_moved(rs_node *node, rs_time now, rs_rdcm *r) {
    rs_rdcm_expected_moved(node, now, r, RS_RING_LEAF);
    if (r->own_child)
        rs_rdcm_expected_moved(node, now, r, RS_RING_PROXY);
}

static void lost(rs_node *node, rs_time now, rs_receiving *x, const rs_rdcm_gap *gap) {
    rs_rdcm *r = x->t.own;
    x->stats.losses += gap->to - gap->from;
    rs_rdcm_say_lost(node, r);
    uint64_t said = rs_rdcm_expected(r, RS_RING_LEAF) + 1, by_window = r->tree_top + r->bic.window;
    if (rs_losses_lost(&r->losses, &r->bic, gap->from, gap->to, said < by_window ? said : by_window, r->limits))
        window_moved(node, now, r);
}

rs_time rs_rdcm_congestion_due(const rs_node *node, const rs_rdcm *r) {
    return r->gap_count && rs_rdcm_options(node)->loss_delay ? r->gaps[0].at + rs_rdcm_options(node)->loss_delay
                                                             : RS_NEVER;
}

/* The oldest gaps are over, whatever becomes of them. */
static void forget(rs_rdcm *r, uint32_t count) {
    r->gap_count -= count;
    for (uint32_t i = 0; count && i < r->gap_count; i++)
        r->gaps[i] = r->gaps[i + count];
}

void rs_rdcm_congestion_look(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    rs_time delay = rs_rdcm_options(node)->loss_delay;
    uint32_t done = 0;
    for (; done < r->gap_count; done++) {
        const rs_rdcm_gap *gap = &r->gaps[done];
        if (delay ? now < gap->at + delay : r->tree_top < gap->to + RS_RDCM_OVERTAKEN)
            break;
        if (gap->from < gap->to)
            lost(node, now, x, gap);
    }
    forget(r, done);
}

/* It was only late. */
static void came_late(rs_rdcm *r, uint64_t sn) {
    for (uint32_t i = 0; i < r->gap_count; i++) {
        rs_rdcm_gap *gap = &r->gaps[i];
        if (sn == gap->from && gap->from < gap->to)
            gap->from++;
        else if (sn + 1 == gap->to && gap->from < gap->to)
            gap->to--;
    }
}

/* No room for another: the oldest is lost a little earlier than `loss_delay` has it. To take two gaps for one would
 * count what came in between. */
static void make_room(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    if (r->gap_count < RS_RDCM_GAPS)
        return;
    if (r->gaps[0].from < r->gaps[0].to)
        lost(node, now, x, &r->gaps[0]);
    forget(r, 1);
}

/* The sender's first flight is RS_BIC_FIRST packets: to whom the first packet comes later than that, the tree did not
 * lead before. What went by meanwhile was not lost in a queue; its peers are told that it is missed. */
static void note_gap(rs_node *node, rs_time now, rs_receiving *x, uint64_t to) {
    rs_rdcm *r = x->t.own;
    if (r->tree_top == 0 && to > RS_BIC_FIRST) {
        r->tree_top = to;
        rs_rdcm_say_lost(node, r);
        return;
    }
    make_room(node, now, x);
    r->gaps[r->gap_count++] = (rs_rdcm_gap){r->tree_top, to, now};
    if (rs_rdcm_options(node)->loss_delay)
        rs_rdcm_wake(node, r, now + rs_rdcm_options(node)->loss_delay);
}

static bool holds_the_sender(rs_rdcm *r, const rs_data_header *h) {
    if (!(h->flags & RS_DATA_LIMIT))
        return false;
    if (h->aux != r->limit) {
        r->limit = h->aux;
        r->limits = false;
        for (int i = 0; i < RS_RDCM_SAID && !r->limits; i++)
            r->limits = r->said[i] == h->aux;
    }
    return r->limits && h->sn + r->bic.window / 2 >= h->aux;
}

void rs_rdcm_congestion_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h, bool fresh) {
    rs_rdcm *r = x->t.own;
    r->tree_at = now;
    if (h->sn < r->tree_top) {
        came_late(r, h->sn);
        return;
    }
    if (h->sn > r->tree_top)
        note_gap(node, now, x, h->sn);
    r->tree_top = h->sn + 1;
    r->tree_report = h->flags & RS_DATA_REPORT;
    if (r->gap_count)
        rs_rdcm_congestion_look(node, now, x);
    bool holds = holds_the_sender(r, h);
    if (rs_losses_passed(&r->losses, &r->bic, r->tree_top))
        window_moved(node, now, r);
    else if (fresh && holds && !r->losses.trial_packets)
        rs_bic_packet(&r->bic);
}

/* ----------------------------------------------------------------------------- a receiver that the tree leaves out
 *
 * Sec. 3.4, Link Failure. Ours: a receiver to whom nothing comes by the tree knows that before its predecessor can
 * infer it from repairs, which are few where hosts are busy. The ACKs of its successors show that packets come to them
 * by the tree, while to itself none does: then its own ACKs say so, and the predecessor, who has the packets by the
 * tree, reports it.
 *
 * A single failed link cuts off one of a leaf ring, or all of it. In the first case its successor there has a tree; in
 * the second only that of the proxy, in the ring above. */

/* Where no other source is named: docs/rdcm.md. */
#define AHEAD_LEAST 16 /* packets that a successor is ahead of what came here by the tree (docs/rdcm.md) */
#define ACKS_LEAST 3 /* in a row: one may have waited in a socket, before packets that wait in another (docs/rdcm.md) */

void rs_rdcm_starved_look(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind) {
    const rs_rdcm_watch *w = &r->rings[kind].successor, *leaf = &r->rings[RS_RING_LEAF].successor;
    rs_rdcm_starving *s = &r->starving[kind];
    rs_time bound = rs_rdcm_options(node)->link_bound;
    /* An old word does not count: of one that is cut off too, nothing comes that would take it back. */
    bool leaf_has =
        kind == RS_RING_PROXY && leaf->state != RS_WATCH_OFF && leaf->by_tree && now - leaf->heard_at < bound;
    if (leaf_has || s->version != r->version || r->tree_at > s->since)
        *s = (rs_rdcm_starving){.since = now, .version = r->version};
    if (leaf_has || !w->by_tree || w->acked.top < r->tree_top + AHEAD_LEAST)
        return;
    s->acks++;
    if (s->told || s->acks < ACKS_LEAST || now - s->since < bound)
        return;
    s->told = true;
    rs_rdcm_say_all(node, r, kind);
}

bool rs_rdcm_starves(const rs_rdcm *r, rs_ring_kind kind) {
    const rs_rdcm_starving *s = &r->starving[kind];
    return s->told && s->version == r->version && r->tree_at <= s->since;
}
