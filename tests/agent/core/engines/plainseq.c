/* The plainest engine of objects, as a proof of the seam (core/transfer/engine.h): every fragment once, in order, by
 * the data channel at the path's rate, when all receivers have accepted; what a receiver misses after DATA_FNSD it asks
 * for and gets by unicast. Nothing is measured, nothing adapts. */
#include "core/transfer/engine.h"

#define ENGINE 7
#define ACCEPT_BOUND (250 * RS_MS)     /* who has not accepted by then is not waited for, if others have */
#define DRAIN (1 * RS_MS)              /* from the last packet to releasing the path */
#define QUIET (4 * RS_MS)              /* after DATA_FNSD: data packets may be late */
#define REQUEST_TIMEOUT (1000 * RS_MS) /* requests are sent reliably: to ask again is a last resort */

extern const rs_engine rs_engine_plainseq;

typedef struct {
    rs_time due;     /* The sender begins then at the latest, or its last packet is gone; the receiver asks (again). */
    uint64_t ask_at; /* The receiver's next request is about fragments from there on. */
} plainseq;

static plainseq *of(const rs_transfer *t) {
    return t->own;
}

static plainseq *make(rs_node *node, rs_transfer *t) {
    plainseq *p = t->own ? t->own : rs_memory_take(&node->allocator, sizeof *p);
    if (p) {
        *p = (plainseq){.due = RS_NEVER};
        rs_engine_take(t, &rs_engine_plainseq, p);
    }
    return p;
}

static void let_go(rs_node *node, rs_transfer *t) {
    rs_memory_give(&node->allocator, t->own);
}

/* -------------------------------------------------------------------------------------------------- at the sender */

static void data_done(rs_node *node, rs_time now, rs_sending *x) {
    rs_data_stop(node, x);
    x->stats.data_done_at = now;
    x->path_done_due = x->fnsd_due = now + DRAIN;
    rs_sender_phase(node, x, RS_PHASE_PATCHING);
    rs_sender_arm(node, x);
}

static void schedule(rs_node *node, rs_time now, rs_sending *x) {
    rs_time due = rs_pacer_due(&x->pacer);
    rs_data_stop(node, x);
    if (x->phase != RS_PHASE_HIGH_RATE)
        return;
    if (x->pos == x->end - x->first) { /* what follows is an event, and events come from rs_timeout */
        of(&x->t)->due = now;
        rs_sender_arm(node, x);
    } else if (due > now) {
        rs_timer_set(&node->data_timers, &x->data_timer, due);
    } else {
        rs_list_append(&node->ready, &x->in_ready);
    }
}

/* All that are there have accepted, or were waited for long enough; or nobody is left in this session. */
static void advance(rs_node *node, rs_time now, rs_sending *x) {
    uint32_t members = 0, accepted = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        bool is_member = rs_is_active(r) && r->member;
        members += is_member;
        accepted += is_member && rs_has_accepted(r);
    }
    if (x->phase == RS_PHASE_HIGH_RATE && members == 0)
        data_done(node, now, x);
    if (x->phase != RS_PHASE_ATTEMPT || (members && (accepted == 0 || (accepted < members && of(&x->t)->due > now))))
        return;
    of(&x->t)->due = RS_NEVER;
    x->stats.high_rate_at = now;
    rs_sender_phase(node, x, RS_PHASE_HIGH_RATE);
    rs_pacer_start(&x->pacer, now, rs_rate_bps(&x->rate));
    schedule(node, now, x);
}

static const char *path_granted(rs_node *node, rs_time now, rs_sending *x) {
    plainseq *p = make(node, &x->t);
    if (!p)
        return "out of memory";
    x->t.engine = &rs_engine_plainseq;
    p->due = now + ACCEPT_BOUND;
    rs_sender_open_members(node, now, x);
    rs_sender_phase(node, x, RS_PHASE_ATTEMPT);
    rs_sender_want_path(node, now, x);
    advance(node, now, x);
    rs_sender_arm(node, x);
    return NULL;
}

static bool poll(rs_node *node, rs_time now, rs_transfer *t, rs_turn turn, rs_packet_out *out) {
    rs_sending *x = (rs_sending *)t;
    rs_data_header h = {.session = t->session, .engine = ENGINE, .nonce = t->nonce, .sn = x->first + x->pos};
    (void)turn;
    if (x->phase != RS_PHASE_HIGH_RATE || x->pos == x->end - x->first) {
        schedule(node, now, x);
        return false;
    }
    if (h.sn == 0) {
        h.flags = RS_DATA_FIRST;
        h.aux = t->size;
    }
    rs_data_packet(x, &h, out);
    x->pos++;
    x->stats.packets_sent++;
    rs_pacer_sent(&node->nic, now, rs_wire_bytes(out));
    rs_pacer_sent(&x->pacer, now, rs_wire_bytes(out));
    schedule(node, now, x);
    return true;
}

static void sender_timeout(rs_node *node, rs_time now, rs_sending *x) {
    plainseq *p = of(&x->t);
    if (now < p->due)
        return;
    advance(node, now, x);
    p->due = RS_NEVER;
    if (x->phase == RS_PHASE_HIGH_RATE && x->pos == x->end - x->first)
        data_done(node, now, x);
}

/* ------------------------------------------------------------------------------------------------- at a receiver */

static void ask(rs_node *node, rs_time now, rs_receiving *x) {
    of(&x->t)->ask_at = 0;
    of(&x->t)->due = now + REQUEST_TIMEOUT;
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_PTCH_REQ);
}

static void ask_at(rs_node *node, rs_receiving *x, rs_time due) {
    of(&x->t)->due = due;
    rs_receiver_arm(node, x);
}

/* What should be here: the sessions before, and the present one when it is over. */
static uint64_t due_end(const rs_receiving *x) {
    return x->ended || x->path_kind == RS_OPEN_NO_PATH ? x->ring.end : x->ring.first;
}

static bool begin(rs_node *node, rs_time now, rs_receiving *x) {
    plainseq *p = make(node, &x->t);
    if (p && due_end(x) > 0)
        ask(node, now, x);
    return p != NULL;
}

static bool say(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more) {
    plainseq *p = of(&x->t);
    uint64_t end = due_end(x);
    (void)node, (void)now;
    if (what != RS_CONTROL_PTCH_REQ || x->state != RS_RX_RECEIVING)
        return false;
    uint64_t from = rs_seqset_next_absent(&x->present, NULL, p->ask_at, end);
    uint64_t to = rs_seqset_next_present(&x->present, NULL, from, end);
    if (from >= to)
        return false;
    p->ask_at = rs_request_object(&x->t, from, to, m);
    x->stats.lost += p->ask_at - from;
    *more = rs_seqset_next_absent(&x->present, NULL, p->ask_at, end) < end;
    return true;
}

static rs_rx_result data_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                                const rs_packet_in *packet) {
    bool patch = packet->channel == RS_CH_PEER_RELIABLE;
    if (h->flags & RS_DATA_REPAIR)
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (x->state != RS_RX_RECEIVING)
        return (rs_rx_result){.verdict = RS_RX_OLD, .xfer = x->t.id};
    x->link.heard_at = now;
    x->stats.packets_received += !patch;
    rs_rx_result result = rs_receiver_store(x, h->sn);
    x->stats.patches_received += patch && result.verdict == RS_RX_STORE;
    if (of(&x->t)->due != RS_NEVER && x->ended && patch)
        of(&x->t)->due = now + REQUEST_TIMEOUT;
    if (x->present.count == x->t.fragments) {
        of(&x->t)->due = RS_NEVER;
        rs_receiver_complete(node, now, x);
    }
    return result;
}

static rs_rx_verdict receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    if (m->type == RS_MSG_DATA_FNSD) {
        ask_at(node, x, now + QUIET);
        return RS_RX_NONE;
    }
    if (m->session > x->t.session && m->open.engine != ENGINE) { /* the rest comes by another engine */
        rs_engine_drop(node, &x->t);
        return x->t.engine->message(node, now, &x->link, m);
    }
    if (m->session > x->t.session)
        rs_receiver_next_session(node, x, m);
    if (x->state == RS_RX_RECEIVING && due_end(x) > 0)
        ask_at(node, x, now + QUIET);
    if (x->state != RS_RX_OFFERED)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK);
    return RS_RX_NONE;
}

/* ------------------------------------------------------------------------------------------------------ both ends */

static rs_rx_verdict message(rs_node *node, rs_time now, rs_peer_session *link, const rs_message *m) {
    rs_transfer *t = link->transfer;
    if (!t->sending)
        return receiver_message(node, now, (rs_receiving *)t, m);
    if (m->type != RS_MSG_PTCH_REQ)
        return RS_RX_NONE;
    uint64_t start = m->ptch_req.start, end = m->ptch_req.end;
    if (m->session != RS_SESSION_OBJECT || start >= t->fragments || end >= t->fragments)
        return RS_RX_BAD;
    rs_sender_patch(node, now, RS_HOLDER(rs_recipient, link, link), start + 1 == t->fragments ? 0 : start + 1,
                    end == 0 ? t->fragments : end);
    return RS_RX_NONE;
}

static void timeout(rs_node *node, rs_time now, rs_transfer *t) {
    if (!t->own)
        return;
    if (t->sending)
        sender_timeout(node, now, (rs_sending *)t);
    else if (now >= of(t)->due)
        ask(node, now, (rs_receiving *)t);
}

static rs_time deadline(const rs_node *node, const rs_transfer *t) {
    (void)node;
    return t->own ? of(t)->due : RS_NEVER;
}

static void notify(rs_node *node, rs_time now, rs_transfer *t, const rs_news *news) {
    rs_sending *x = (rs_sending *)t;
    if (!t->own)
        return;
    if (news->what == RS_NEWS_DATA_TIMER) {
        schedule(node, now, x);
    } else if (news->what == RS_NEWS_ACCEPTED || news->what == RS_NEWS_RECEIVERS) {
        advance(node, now, x);
    } else if (news->what == RS_NEWS_RESUMED) {
        rs_pacer_resume(&x->pacer, now);
    } else if (news->what == RS_NEWS_CONNECTED && due_end((rs_receiving *)t) > 0) {
        ask(node, now, (rs_receiving *)t);
    }
}

const rs_engine rs_engine_plainseq = {
    .id = ENGINE,
    .name = "plain sequence",
    .word = "plainseq",
    .path_kinds = 1u << RS_OPEN_NO_PATH | 1u << RS_PATH_CIRCUIT | 1u << RS_PATH_PACKET,
    .receiver_events = 10,
    .path_granted = path_granted,
    .begin = begin,
    .data_packet = data_packet,
    .message = message,
    .say = say,
    .poll = poll,
    .timeout = timeout,
    .deadline = deadline,
    .notify = notify,
    .free = let_go,
};
