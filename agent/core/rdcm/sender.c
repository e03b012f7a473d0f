/* A sender by RDCM: when it begins, how far it may go (Sec. 3.5), what it sends again (Sec. 3.3: what no overlay child
 * acknowledges), and what is asked of it (Sec. 3.4). */
#include "core/rdcm/sender.h"

#include "core/rdcm/overlay.h"
#include "core/rdcm/receiver.h"
#include "core/rdcm/repair.h"
#include "core/transfer/engine.h"

/* Where no other source is named: docs/rdcm.md. */
#define ACCEPT_BOUND RS_CONTROL_LATE /* receivers that have not accepted are not waited for longer, if others have */
#define STALL_LEAST (2000 * RS_MS)   /* without any progress: what is left goes by unicast */
#define QUEUE_TIME (6 * RS_MS)       /* and two round trips and an ACK's delay of what goes through may be under way */
#define QUEUE_LEAST 32               /* packets (a bound) */
#define PACE_TIME (2 * RS_MS)        /* over which, or over a round trip, what goes through is measured (a bound) */
#define PROBE_LEAST (2 * RS_MS)
#define LAST_MOST (500 * RS_MS) /* a bound */
#define PROBE_MOST (100 * RS_MS)

static bool begin(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own ? x->t.own : rs_rdcm_new(node, &x->t);
    if (!r || !rs_watch_start(node, now, r, &r->all, RS_NO_PEER))
        return false;
    x->t.engine = &rs_engine_rdcm;
    r->here.end = x->t.fragments; /* all that was sent is here: `cum` is one past the newest */
    r->expected = RS_BIC_FIRST - 1;
    r->progress_at = now;
    r->start_due = now + ACCEPT_BOUND;
    r->view_due = x->grant.no_overlay ? RS_NEVER : now + rs_rdcm_options(node)->view_bound;
    return r->view != RS_RDCM_NO_VIEW || rs_rdcm_take_children(node, now, x, NULL, 0);
}

/* It is for the object's first session, on packets, all of it, and to all receivers. */
const char *rs_rdcm_begin(rs_node *node, rs_time now, rs_sending *x) {
    const char *why = x->grant.kind != RS_PATH_PACKET               ? "its path is a circuit"
                      : x->t.session > 0 || x->end < x->t.fragments ? "the path takes a part of the object only"
                      : rs_sender_others(x)                         ? "the path is for a part of the receivers only"
                      : !begin(node, now, x)                        ? "out of memory"
                                                                    : NULL;
    if (why)
        return why;
    x->rate.ceiling_bps = x->grant.rate_bps && x->grant.rate_bps < node->config.nic_rate_bps
                              ? x->grant.rate_bps
                              : node->config.nic_rate_bps; /* windows, not rates, leave room for others */
    rs_sender_open_members(node, now, x);
    return NULL;
}

/* Sec. 5.1: data packets go once the overlay is there on all servers. Bounded: without a view the sender is everybody's
 * parent, and who has not accepted gets what it misses later. */
static bool may_start(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    uint32_t open = 0, accepted = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        open += rs_is_active(&x->recipients[i]);
        accepted += rs_is_active(&x->recipients[i]) && rs_has_accepted(&x->recipients[i]);
    }
    r->start_due = now < r->start_due ? r->start_due : RS_NEVER;
    r->view_due = now < r->view_due ? r->view_due : RS_NEVER;
    if (accepted == 0 || (accepted < open && r->start_due != RS_NEVER))
        return false;
    if (r->view == RS_RDCM_NO_VIEW && r->view_due != RS_NEVER)
        return false;
    if (r->view == RS_RDCM_NO_VIEW && !x->grant.no_overlay) {
        rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .session = x->t.session};
        rs_format(log.cause, sizeof log.cause,
                  "no backup overlay from the manager in %lld ms: every receiver answers to the sender, who repairs",
                  (long long)(rs_rdcm_options(node)->view_bound / RS_MS));
        rs_emit(node, &log);
    }
    return true;
}

static void start(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    r->started = true;
    r->start_due = r->view_due = RS_NEVER;
    r->progress_at = x->stats.high_rate_at = r->pace_at = now;
    rs_sender_phase(node, x, RS_PHASE_HIGH_RATE);
    rs_pacer_start(&x->pacer, now - RS_PACER_QUANTUM, x->rate.ceiling_bps); /* a first batch goes at once */
    rs_rdcm_schedule(node, now, x);
}

static uint64_t sendable(const rs_sending *x) {
    const rs_rdcm *r = x->t.own;
    return x->t.size == RS_STREAM ? r->transfer->stream.available : x->t.fragments;
}

/* Ours: BIC fills any queue, and a host's or a switch's may hold a tenth of a second. No more is under way than what
 * children acknowledge in two round trips without a queue, the delay of an ACK and a little time beside, much as
 * Republic's window has it. */
static uint64_t queue(const rs_node *node, const rs_rdcm *r) {
    rs_time span = 2 * r->min_rtt + QUEUE_TIME + rs_rdcm_options(node)->ack_delay;
    return r->pace * (uint64_t)(span / 1000) / 1000000 + QUEUE_LEAST;
}

static void measure_pace(rs_time now, rs_rdcm *r) {
    rs_time took = now - r->pace_at, least = r->min_rtt > PACE_TIME ? r->min_rtt : PACE_TIME;
    if (took < least)
        return;
    uint64_t pace = (r->all.acked.cum - r->pace_cum) * 1000000 / (uint64_t)(took / 1000);
    uint64_t kept = took < 16 * least ? r->pace - r->pace / 8 : 0; /* nothing was sent for a while */
    r->pace = pace > kept ? pace : kept;
    r->pace_at = now;
    r->pace_cum = r->all.acked.cum;
}

/* One past the last sn that may go: what receivers expect, and what the set of acknowledged ones can tell apart. */
static uint64_t limit(const rs_node *node, const rs_sending *x) {
    const rs_rdcm *r = x->t.own;
    bool controlled = !rs_rdcm_options(node)->no_congestion_control;
    uint64_t behind = r->transfer->stream.on ? r->capacity / 2 : r->capacity - 64;
    uint64_t sets = r->all.acked.cum + behind, can = sendable(x);
    uint64_t most = controlled && r->expected + 1 < sets ? r->expected + 1 : sets;
    if (controlled && r->pace && r->all.acked.cum + queue(node, r) < most)
        most = r->all.acked.cum + queue(node, r);
    return most < can ? most : can;
}

static bool is_over(const rs_sending *x) {
    return x->t.size != RS_STREAM && rs_rdcm_of(&x->t)->all.acked.cum >= x->t.fragments;
}

static void data_done(rs_node *node, rs_time now, rs_sending *x) {
    rs_data_stop(node, x);
    x->stats.data_done_at = now;
    x->fnsd_due = now + (rs_rdcm_of(&x->t)->view == RS_RDCM_NO_VIEW ? RS_DRAIN /* no neighbour mends what is missing */
                                                                    : rs_rdcm_options(node)->request_bound);
    rs_sender_phase(node, x, RS_PHASE_PATCHING);
}

void rs_rdcm_advance(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = rs_rdcm_of(&x->t);
    if (x->phase >= RS_PHASE_PATCHING) { /* it may be over before it began: who accepts later asks by ranges */
        r->start_due = r->view_due = RS_NEVER;
    } else if (!r->started) {
        if (may_start(node, now, x))
            start(node, now, x);
    } else if (x->phase == RS_PHASE_HIGH_RATE && is_over(x)) {
        data_done(node, now, x);
    }
}

/* ---------------------------------------------------------------------------------------------------------- packets */

static bool probe_is_due(rs_time now, const rs_sending *x) {
    return now >= rs_rdcm_of(&x->t)->probe_due && x->pos < sendable(x) &&
           rs_rdcm_set_fits(&rs_rdcm_of(&x->t)->all.acked, x->pos);
}

/* One child is enough for the sender to go on, and neighbours mend what another lost. Without a view there are none:
 * that the last packet of all for now was lost nobody would know until the next one. */
static bool last_is_due(rs_time now, const rs_sending *x) {
    const rs_rdcm *r = x->t.own;
    return now >= r->last_due && x->pos > 0;
}

static bool last_is_lacked(const rs_sending *x) {
    const rs_rdcm *r = x->t.own;
    for (uint32_t i = 0; i < r->child_count; i++) {
        const rs_recipient *c = rs_recipient_of((rs_sending *)(uintptr_t)x, r->children[i].peer);
        if (c && rs_is_active(c) && rs_has_accepted(c) && r->children[i].cum < x->pos)
            return true;
    }
    return false;
}

static void last_again(rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    r->last_pause = 2 * r->last_pause < LAST_MOST ? 2 * r->last_pause : LAST_MOST;
    r->last_due = last_is_lacked(x) ? now + r->last_pause : RS_NEVER;
}

static void sent_new(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    x->pos++;
    if (x->t.stream.on && r->view == RS_RDCM_NO_VIEW && !x->t.stream.by_unicast) {
        r->last_pause = RS_RDCM_WITHOUT_RING;
        r->last_due = now + r->last_pause;
    }
    r->here.cum = r->here.top = x->pos;
    rs_rdcm_note_owed(r, now, rs_watch_timeout(node, &r->all));
    rs_passes_note(&r->passes, now, x->pos, rs_watch_timeout(node, &r->all) / 16);
    rs_watch_grown(node, now, r, &r->all);
}

static void probed(rs_rdcm *r) {
    r->probe_pause = 2 * r->probe_pause < PROBE_MOST ? 2 * r->probe_pause : PROBE_MOST;
    r->probe_due = RS_NEVER;
}

static void patch_all(rs_node *node, rs_time now, rs_sending *x, uint64_t from, uint64_t to) {
    for (uint32_t i = 0; i < x->recipient_count && from < to; i++)
        if (rs_is_active(&x->recipients[i]))
            rs_sender_patch(node, now, &x->recipients[i], from, to);
}

/* A stream without a path: what may go, goes to each receiver by its control channel, in windows as by the tree. */
static void feed(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    uint64_t from = x->pos, most = limit(node, x);
    if (from >= most && probe_is_due(now, x)) {
        most = from + 1;
        probed(r);
    } else if (from < most) {
        r->probe_due = RS_NEVER;
    }
    while (x->pos < most)
        sent_new(node, now, x);
    patch_all(node, now, x, from, x->pos);
}

/* What no child has acknowledged is sent again: it went by a tree of which nothing is known. */
void rs_rdcm_stream_lost_path(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    r->progress_at = now;
    if (x->phase == RS_PHASE_HIGH_RATE)
        patch_all(node, now, x, r->all.acked.cum, x->pos);
    rs_rdcm_schedule(node, now, x);
    rs_sender_arm(node, x);
}

void rs_rdcm_schedule(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    if (x->t.stream.by_unicast && x->phase == RS_PHASE_HIGH_RATE)
        feed(node, now, x);
    bool open = x->pos < limit(node, x), tree = !x->t.stream.by_unicast;
    if (x->phase != RS_PHASE_HIGH_RATE || !tree ||
        !(open || r->all.check_at <= now || probe_is_due(now, x) || last_is_due(now, x))) {
        rs_data_stop(node, x);
        if (x->phase == RS_PHASE_HIGH_RATE && x->pos < sendable(x) && r->probe_due == RS_NEVER) {
            r->probe_pause = r->probe_pause ? r->probe_pause : PROBE_LEAST + 2 * rs_watch_timeout(node, &r->all);
            r->probe_due = now + r->probe_pause;
        }
        rs_sender_arm(node, x);
        return;
    }
    if (open)
        r->probe_due = RS_NEVER;
    rs_data_schedule(node, now, x, rs_pacer_due(&x->pacer));
}

static void data_packet(rs_sending *x, uint64_t sn, uint64_t most, bool report, rs_packet_out *out) {
    rs_data_header header = {.session = x->t.session, .engine = RS_PROTOCOL_RDCM, .nonce = x->t.nonce, .sn = sn};
    if (sn == 0 && x->t.size != RS_STREAM) {
        header.flags = RS_DATA_FIRST;
        header.aux = x->t.size;
    } else {
        header.flags = RS_DATA_LIMIT;
        header.aux = most - 1;
    }
    header.flags |= report ? RS_DATA_REPORT : 0;
    rs_data_packet(x, &header, out);
    x->stats.packets_sent++;
}

/* A packet that no child acknowledged, or the next one, or one more than receivers expect if nothing else makes them
 * speak. False: nothing now. */
bool rs_rdcm_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_rdcm *r = x->t.own;
    uint64_t most = limit(node, x), sn;
    if (rs_watch_next(node, now, r, &r->all, &sn)) {
        data_packet(x, sn, most > sn ? most : sn + 1, true, out);
    } else if (x->pos < most) {
        data_packet(x, x->pos, most, x->pos + 1 == sendable(x), out);
        sent_new(node, now, x);
    } else if (probe_is_due(now, x)) {
        data_packet(x, x->pos, x->pos + 1, true, out);
        sent_new(node, now, x);
        probed(r);
    } else if (last_is_due(now, x)) {
        bool lacked = last_is_lacked(x);
        last_again(now, x);
        if (!lacked) {
            rs_rdcm_schedule(node, now, x);
            return false;
        }
        data_packet(x, x->pos - 1, most > x->pos ? most : x->pos, true, out);
    } else {
        rs_data_stop(node, x);
        rs_sender_arm(node, x);
        return false;
    }
    rs_pacer_sent(&node->nic, now, rs_wire_bytes(out));
    rs_pacer_sent(&x->pacer, now, rs_wire_bytes(out));
    rs_rdcm_schedule(node, now, x);
    return true;
}

/* -------------------------------------------------------------------------------------------------------- answers */

bool rs_rdcm_take_children(rs_node *node, rs_time now, rs_sending *x, const rs_peer *peers, uint32_t count) {
    rs_rdcm *r = x->t.own;
    uint32_t most = peers ? count : x->recipient_count;
    rs_rdcm_child *children = rs_memory_take(&node->allocator, (most ? most : 1) * sizeof *children);
    if (!children)
        return false;
    rs_rdcm_child *before = r->children;
    r->child_count = 0;
    for (uint32_t i = 0; i < most; i++) {
        rs_recipient *c = peers ? rs_recipient_of(x, peers[i]) : &x->recipients[i];
        if (!c)
            continue;
        children[r->child_count] = (rs_rdcm_child){c->link.peer->id, x->pos + RS_BIC_FIRST - 1, 0, now, 0};
        if (!rs_is_active(c))
            children[r->child_count].expected = RS_RDCM_NO_LIMIT;
        else if (c->child)
            children[r->child_count] = before[c->child - 1];
        r->child_count++;
    }
    for (uint32_t i = 0; i < x->recipient_count; i++)
        x->recipients[i].child = 0;
    for (uint32_t i = 0; i < r->child_count; i++)
        rs_recipient_of(x, children[i].peer)->child = i + 1;
    rs_memory_give(&node->allocator, before);
    r->children = children;
    return true;
}

/* The least of what its children expect, who say it for all below them. One that answers nothing, or has all, holds
 * nobody back; but where all that lack something are silent, the final answer of each still counts: nobody tells that
 * more can go. */
void rs_rdcm_find_limit(rs_sending *x) {
    rs_rdcm *r = x->t.own;
    uint64_t least = RS_RDCM_NO_LIMIT, of_silent = RS_RDCM_NO_LIMIT;
    for (uint32_t i = 0; i < r->child_count; i++) {
        const rs_rdcm_child *child = &r->children[i];
        uint64_t *to = rs_rdcm_is_silent(r, child) ? &of_silent : &least;
        *to = child->expected < *to ? child->expected : *to;
    }
    r->expected = least < RS_RDCM_NO_LIMIT ? least : of_silent;
}

void rs_rdcm_on_receiver_removed(rs_node *node, rs_time now, rs_recipient *from) {
    rs_sending *x = (rs_sending *)from->link.transfer;
    if (!from->child || rs_is_active(from))
        return;
    rs_rdcm_of(&x->t)->children[from->child - 1].expected = RS_RDCM_NO_LIMIT;
    rs_rdcm_find_limit(x);
    rs_rdcm_schedule(node, now, x);
}

/* Half as fast again as a window in a round trip: packets of a window do not go all at once, into one queue. */
static void pace(const rs_node *node, rs_sending *x) {
    const rs_rdcm *r = x->t.own;
    rs_time rtt = r->all.rtt.smoothed;
    uint64_t window = r->expected + 1 > r->all.acked.cum ? r->expected + 1 - r->all.acked.cum : 1;
    int64_t rate = x->rate.ceiling_bps;
    uint64_t bits = (uint64_t)(x->t.fragment_size + RS_DATA_HEADER + RS_WIRE_OVERHEAD) * 12;
    if (!rs_rdcm_options(node)->no_congestion_control && rtt > 0 && window < r->capacity) {
        uint64_t paced = window * bits * 1000000 / (uint64_t)(rtt / 1000 + 1);
        rate = paced < (uint64_t)rate ? (int64_t)paced : rate;
    }
    x->pacer.rate_bps = rate > 1000000 ? rate : 1000000;
}

static rs_rx_verdict on_ack(rs_node *node, rs_time now, rs_sending *x, rs_recipient *from, const rs_ack *ack) {
    rs_rdcm *r = x->t.own;
    if (!r->started || !(ack->flags & RS_ACK_TO_PARENT))
        return RS_RX_NONE;
    x->stats.acks_received++;
    from->link.heard_at = now; /* alive, whatever keeps its control messages */
    uint64_t before = r->expected, cum = ack->cum;
    rs_rdcm_child *child = from->child ? &r->children[from->child - 1] : NULL;
    uint64_t expected = rs_rdcm_expected_of(r, ack);
    bool may_move = child && (expected < before || child->expected <= before);
    if (child)
        *child = (rs_rdcm_child){child->peer, expected, ack->settled > child->settled ? ack->settled : child->settled,
                                 now, cum > child->cum ? cum : child->cum};
    rs_ack known = *ack;
    known.settled = rs_rdcm_least_settled(r); /* one child is enough, so all must have lost it */
    known.cum = cum < x->pos ? cum : x->pos;  /* what was never sent cannot be here */
    if (rs_watch_learn(node, now, r, &r->all, &known))
        r->progress_at = now;
    measure_pace(now, r);
    if (may_move)
        rs_rdcm_find_limit(x);
    if (r->expected > before)
        r->probe_pause = 0;
    pace(node, x);
    rs_rdcm_advance(node, now, x);
    if (x->phase == RS_PHASE_HIGH_RATE)
        rs_rdcm_schedule(node, now, x);
    if (r->transfer->stream.on)
        rs_rdcm_stream_moved(node, r);
    rs_sender_arm(node, x);
    return RS_RX_NONE;
}

static rs_rx_verdict on_request(rs_node *node, rs_time now, rs_sending *x, rs_recipient *from, const rs_message *m) {
    uint64_t start = m->ptch_req.start, end = m->ptch_req.end, size = x->t.fragments;
    bool open = x->t.stream.on;
    if (!open && (start >= size || end >= size))
        return RS_RX_BAD;
    uint64_t sent = x->phase < RS_PHASE_PATCHING || open ? x->pos : size; /* nothing else goes any more */
    uint64_t first = start + 1 >= size ? 0 : start + 1, past = end == 0 ? sent : end;
    past = past < sent ? past : sent;
    if (open && first < x->t.stream.released) {
        rs_sender_fail(node, now, from, true, "was left behind: what it misses has left the stream's window");
        rs_sender_settle(node, now, x);
        return RS_RX_NONE;
    }
    rs_rdcm_of(&x->t)->progress_at = now;
    rs_sender_patch(node, now, from, first, past);
    return RS_RX_NONE;
}

rs_rx_verdict rs_rdcm_sender_datagram(rs_node *node, rs_time now, rs_sending *x, const rs_packet_in *packet) {
    rs_ack ack;
    if (!rs_ack_decode(packet->header, packet->header_length, &ack))
        return RS_RX_BAD;
    return on_ack(node, now, x, rs_recipient_of(x, packet->peer), &ack);
}

rs_rx_verdict rs_rdcm_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *from, const rs_message *m) {
    if (m->type == RS_MSG_PTCH_REQ)
        return on_request(node, now, x, from, m);
    return m->session > x->t.session ? RS_RX_BAD : RS_RX_NONE;
}

static void give_up_the_tree(rs_node *node, rs_time now, rs_sending *x) {
    char text[RS_CAUSE_MAX];
    rs_format(text, sizeof text, "no receiver acknowledged anything new in %lld ms",
              (long long)((now - rs_rdcm_of(&x->t)->progress_at) / RS_MS));
    if (x->t.stream.on && x->t.stream.by_unicast)
        rs_sender_fail_all(node, now, x, text);
    else if (x->t.stream.on)
        rs_stream_unicast(node, now, x, text);
    else
        rs_sender_unicast(node, now, x, text);
}

/* Who is stopped answers nothing by any way: that says nothing of the tree, and has a bound of its own. */
static bool somebody_is_there(const rs_node *node, rs_time now, const rs_sending *x) {
    rs_time bound = node->config.receiver_silence_bound / 4;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (rs_is_active(&x->recipients[i]) && now - x->recipients[i].link.heard_at < bound)
            return true;
    return false;
}

static rs_time stall_due(const rs_node *node, const rs_sending *x) {
    const rs_rdcm *r = x->t.own;
    rs_time all = node->config.receiver_silence_bound, bound = x->t.stream.by_unicast ? all : all / 2;
    bool waits = r->started && x->phase == RS_PHASE_HIGH_RATE && (r->all.acked.cum < x->pos || x->pos < sendable(x));
    rs_time due = r->progress_at + (bound > STALL_LEAST ? bound : STALL_LEAST);
    return !waits ? RS_NEVER : due > r->stall_later ? due : r->stall_later;
}

static void stalled(rs_node *node, rs_time now, rs_sending *x) {
    if (x->t.stream.on && !somebody_is_there(node, now, x))
        rs_rdcm_of(&x->t)->stall_later = now + node->config.receiver_silence_bound / 8;
    else
        give_up_the_tree(node, now, x);
}

void rs_rdcm_sender_timeout(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    if (!r->started)
        rs_rdcm_advance(node, now, x);
    if (now >= stall_due(node, x)) {
        stalled(node, now, x);
        return;
    }
    if (x->phase != RS_PHASE_HIGH_RATE)
        return;
    rs_rdcm_find_limit(x); /* somebody may have fallen silent */
    rs_rdcm_schedule(node, now, x);
}

rs_time rs_rdcm_sender_due(const rs_node *node, const rs_sending *x) {
    const rs_rdcm *r = x->t.own;
    if (!r->started)
        return r->start_due < r->view_due ? r->start_due : r->view_due;
    if (x->phase != RS_PHASE_HIGH_RATE)
        return RS_NEVER;
    rs_time due = stall_due(node, x);
    if (!rs_list_empty(&x->in_ready) || x->data_timer.at != 0)
        return due; /* it looks at the rest when it sends */
    due = r->probe_due < due ? r->probe_due : due;
    due = r->last_due < due ? r->last_due : due;
    if (x->t.stream.by_unicast)
        return due; /* what is lost there comes again without us */
    return r->all.check_at < due ? r->all.check_at : due;
}

void rs_rdcm_sender_stats(const rs_node *node, const rs_sending *x, rs_xfer_stats *out) {
    const rs_rdcm *r = x->t.own;
    out->view = r->version;
    out->window = r->expected + 1 > r->all.acked.cum ? r->expected + 1 - r->all.acked.cum : 0;
    out->ack_timeout = rs_watch_timeout(node, &r->all);
    out->sender_ack_rtt = r->all.rtt.smoothed;
    if (x->phase == RS_PHASE_HIGH_RATE)
        out->rate_bps = x->pacer.rate_bps;
}
