#include "core/republic/tree_receiver.h"

#include "core/feedback/reporter.h"
#include "core/republic/feedback_receiver.h"
#include "core/republic/receiver.h"

/* Bounds: others of that order would do. */
#define NEAR_FIRST (4 * RS_MS) /* an answer is waited for so long while no round trip is known */
#define NEAR_LEAST (1 * RS_MS)
#define NEAR_MOST RS_REPORT_SILENT   /* then it is silent */
#define NEAR_LEAST_ENDED (RS_MS / 4) /* no data are in the way of answers (rostrum sim run broadcast) */
/* Requests in a row without an answer, each after twice the wait (the parent may miss the same, and wait for a repair
 * that is coded), that long in all: the sender is asked, */
#define NEAR_TRIES 6 /* test_tree */
#define NEAR_FOR (63 * NEAR_LEAST)
#define FAR_FOR (200 * RS_MS) /* for so long. */
#define FINAL_REPORTS 3       /* reports of being done: one may be lost (test_tree) */
#define LAST_EVERY (1 * RS_MS)
#define SERVE_LEAST RS_CONTROL_LATE      /* after the last request of somebody below, */
#define SERVE_MOST (4 * RS_CONTROL_LATE) /* and after all is here: whoever is not heard has other help */
#define OVER_FIRST (4 * RS_MS) /* who has not said by then that it is whole hears again that the data are over... */
#define OVER_TIMES 2           /* ...so often, each after twice the wait: then the sender says it (test_tree) */
#define BESIDE_MOST 900000u    /* ppm (a bound) */
#define MANY 4u                /* a quarter of the children (a bound: a twentieth loses the same by chance) */
#define SHARED RS_DATA_ATTEMPT /* in a parent's repair: it had missed that, too (docs/protocol.md) */

typedef struct {
    rs_reporter reporter; /* What it collects of its children, and says to its parent. */
    bool has_parent;      /* Else it reports to the sender itself. */
    rs_time sample;       /* It says RATE so often all the same. */
    /* asking */
    bool asks;         /* A request is to be sent. */
    bool unanswered;   /* Nothing came since the last request. */
    uint32_t tries;    /* So many requests in a row brought nothing, */
    rs_time vain;      /* for so long. */
    rs_time asked_at;  /* The oldest of them went then. */
    rs_time far_until; /* The sender is asked until then. */
    rs_rtt rtt;        /* From a request to the first repair: */
    rs_time least;     /* so long at least; 0: unknown. */
    /* losses of its own */
    uint64_t base_offset;   /* They are counted from there, */
    uint64_t base_received; /* where so many packets had come. */
    uint64_t base_mended;   /* So many repairs had come from its parent then, */
    uint64_t base_at_once;  /* and so many of what the parent did not miss itself. */
    uint64_t at_once;       /* Such have come. */
    bool tells_shared;      /* The parent says which those are. */
    uint32_t lossy_ppm;     /* It lost that part of late, */
    uint32_t mended_ppm;    /* and had that from its parent, beside what all get. */
    uint64_t mark_sn;       /* The newest packet that asked for a report. */
    /* the end */
    uint32_t final_reports; /* So many reports of being done are still to go, */
    rs_time last_due;       /* the next one then. */
    bool over;              /* The session's data are over: those below are told, */
    uint32_t over_told;     /* so often until now, */
    rs_time over_due;       /* and again then. */
    bool verified;          /* All is here and checked. */
    rs_time serve_until;    /* It is there for others until then. */
    uint32_t turn;          /* The repair of the child at that place is next. */
} tree;

static tree *of(const rs_receiving *x) {
    return x->t.owner && x->t.owner->id == RS_PROTOCOL_REPUBLIC ? x->t.own : NULL;
}

bool rs_tree_is_on(const rs_receiving *x) {
    return of(x) != NULL;
}

bool rs_tree_has_parent(const rs_receiving *x) {
    return of(x) && of(x)->has_parent;
}

bool rs_tree_asks(const rs_receiving *x) {
    return rs_tree_has_parent(x) && of(x)->far_until == 0;
}

rs_time rs_tree_sample_time(rs_node *node, const rs_receiving *x) {
    rs_time sample = of(x)->sample;
    return sample / 2 + (rs_time)(rs_random(node) % ((uint64_t)sample + 1));
}

static void free_children(rs_node *node, tree *t) {
    rs_memory_give(&node->allocator, t->reporter.children);
    t->reporter.children = NULL;
    t->reporter.child_count = 0;
}

void rs_tree_receiver_free(rs_node *node, rs_receiving *x) {
    tree *t = of(x);
    if (!t)
        return;
    rs_list_remove(&x->t.in_acking);
    rs_list_remove(&x->t.in_mending);
    free_children(node, t);
    rs_memory_give(&node->allocator, t);
    rs_engine_take(&x->t, NULL, NULL);
}

/* ---------------------------------------------------------------------------------------------------- its place */

/* Takes over what is known of those that were its children before. */
static bool take_children(rs_node *node, rs_time now, tree *t, const rs_message *m) {
    const rs_directory *d = &node->config.directory;
    uint32_t count = m->report_to.count;
    rs_reporter_child *children = count ? rs_memory_take(&node->allocator, count * sizeof *children) : NULL;
    if (count && !children)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const rs_wire_place *place = &m->report_to.children[i];
        rs_peer peer = d->peer_at(d->context, place->address, place->port);
        const rs_reporter_child *before = rs_reporter_child_of(&t->reporter, peer);
        if (before) {
            children[i] = *before;
            continue;
        }
        children[i].peer = peer;
        children[i].address = place->address;
        children[i].heard_at = now;
        children[i].marks = t->reporter.marks;
    }
    free_children(node, t);
    t->reporter.children = children;
    t->reporter.child_count = count;
    return true;
}

/* Where to report, and whose reports to collect. Without a place in the tree, or memory for one, it reports by RATE. */
rs_rx_verdict rs_tree_told(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    const rs_directory *d = &node->config.directory;
    tree *t = of(x);
    if (!m->report_to.on || !d->peer_at || x->state == RS_RX_FINISHED) {
        rs_tree_receiver_free(node, x);
        return RS_RX_NONE;
    }
    bool is_new = !t;
    if (is_new && !(t = rs_memory_take(&node->allocator, sizeof *t)))
        return RS_RX_NONE;
    if (is_new) {
        rs_engine_take(&x->t, x->t.engine, t);
        rs_reporter_session(&t->reporter, x->ring.first, x->ring.end);
        t->mark_sn = UINT64_MAX;
        t->last_due = t->over_due = RS_NEVER;
    }
    const rs_wire_place *to = &m->report_to.parent;
    rs_peer parent = to->address ? d->peer_at(d->context, to->address, to->port) : x->link.peer->id;
    if (parent == RS_NO_PEER || !take_children(node, now, t, m)) {
        rs_tree_receiver_free(node, x);
        return RS_RX_NONE;
    }
    if (parent != t->reporter.parent) {
        t->tells_shared = false;
        t->tries = 0;
        t->vain = 0;
        t->far_until = 0;
        t->rtt = (rs_rtt){0};
        t->least = 0;
    }
    t->reporter.parent = parent;
    t->reporter.height = m->report_to.height;
    t->has_parent = to->address != 0;
    /* The sender reads maps of speakers only; what it was to be asked by a connection is asked here. */
    if (t->has_parent && (own->asks == RS_ASKS_MAPS || (is_new && x->link.via))) {
        own->asks = RS_ASKS_RANGES;
        rs_request_repeat(node, now, x);
    }
    t->sample = (rs_time)m->report_to.sample_us * 1000;
    t->reporter.done |= x->state > RS_RX_RECEIVING || x->ring.round_done;
    if (t->reporter.done)
        rs_tree_done(node, now, x); /* the new one does not know it */
    if (t->over)
        rs_tree_over(node, now, x); /* nor do new ones below */
    return RS_RX_NONE;
}

/* What it had by then was lost to both, far from here, and came by a repair for all: one of the two takes the place of
 * the lost packet. */
static uint64_t mended_near(const rs_receiving *x) {
    return x->stats.peer_repairs_received - x->stats.peer_repairs_old;
}

static void count_from(rs_receiving *x, tree *t, uint64_t offset, uint64_t received) {
    t->base_offset = offset;
    t->base_received = received;
    t->base_mended = mended_near(x);
    t->base_at_once = t->at_once;
}

/* What its parent sent takes of its NIC besides what the sender sends to all. What the parent missed too was lost
 * before it came here, and left its place to a repair. */
static uint64_t mended_beside(const rs_receiving *x, const tree *t, uint64_t lost) {
    uint64_t mended = mended_near(x) - t->base_mended, at_once = t->at_once - t->base_at_once;
    uint64_t shared = t->tells_shared && lost > at_once ? lost - at_once : 0;
    return mended > shared ? mended - shared : 0;
}

void rs_tree_session(rs_receiving *x) {
    tree *t = of(x);
    if (!t)
        return;
    rs_reporter_session(&t->reporter, x->ring.first, x->ring.end);
    count_from(x, t, 0, 0);
    t->mark_sn = UINT64_MAX;
    t->final_reports = t->over_told = 0;
    t->over = false;
    t->last_due = t->over_due = RS_NEVER;
}

/* -------------------------------------------------------------------------------------------------------- reports */

static void wake(rs_node *node, rs_time now, rs_receiving *x) {
    if (rs_reporter_due(&of(x)->reporter, now) || of(x)->asks)
        rs_list_keep(&node->acking, &x->t.in_acking, true);
    rs_receiver_arm(node, x);
}

static void count_losses(rs_receiving *x, tree *t) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    uint64_t ring = x->ring.end - x->ring.first;
    uint64_t offset =
        x->ring.prior >= x->ring.initial ? x->ring.prior - x->ring.initial : x->ring.prior + ring - x->ring.initial;
    if (offset < t->base_offset || own->session_received < t->base_received)
        count_from(x, t, offset, own->session_received);
    uint64_t expected = offset - t->base_offset, got = own->session_received - t->base_received;
    if (expected < RS_REPORT_LOSSES)
        return;
    uint64_t lost = got < expected ? expected - got : 0, beside = mended_beside(x, t, lost);
    t->lossy_ppm = (uint32_t)(lost * 1000000 / expected);
    t->mended_ppm = beside < expected ? (uint32_t)(beside * 1000000 / expected) : 1000000;
    count_from(x, t, offset, own->session_received);
}

static rs_report own_report(rs_node *node, rs_time now, rs_receiving *x, tree *t) {
    rs_message m = {0};
    rs_report own = {.nonce = x->t.nonce, .session = x->t.session};
    if (x->state != RS_RX_RECEIVING || !x->ring.lit)
        return own;
    rs_report_own(node, now, x, &m);
    count_losses(x, t);
    own.flags = RS_REPORT_OWN;
    own.highest = m.rate.highest;
    own.received = m.rate.received;
    own.repairs = m.rate.repairs;
    own.dropped = m.rate.dropped;
    own.at = m.rate.at;
    own.waited = m.rate.waited;
    own.lossy_ppm = t->lossy_ppm;
    /* Its parent's repairs come beside what the sender sends at its rate. A tenth of the share is left at least: after
     * a pause they may be more than the data. */
    uint32_t beside = t->mended_ppm < BESIDE_MOST ? t->mended_ppm : BESIDE_MOST;
    own.share_bps = m.rate.share_bps / 1000000 * (1000000 - beside);
    return own;
}

/* The packet behind one that asks for a report asks again, for those that lost the first. On a slow path each asks:
 * then every other one counts. */
void rs_tree_mark(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    tree *t = of(x);
    bool again = t->mark_sn != UINT64_MAX && sn == t->mark_sn + 1;
    t->mark_sn = again ? UINT64_MAX : sn;
    if (now >= t->far_until)
        t->far_until = 0;
    if (again)
        return;
    rs_report own = own_report(node, now, x, t);
    rs_reporter_mark(&t->reporter, now, &own);
    wake(node, now, x);
}

void rs_tree_done(rs_node *node, rs_time now, rs_receiving *x) {
    tree *t = of(x);
    if (!t)
        return;
    rs_reporter_done(&t->reporter, now, x->state > RS_RX_RECEIVING);
    t->final_reports = FINAL_REPORTS;
    t->last_due = now + LAST_EVERY;
    wake(node, now, x);
}

static void tell_over(rs_node *node, rs_time now, rs_receiving *x) {
    tree *t = of(x);
    rs_reporter_over(&t->reporter);
    t->over_due = t->over_told < OVER_TIMES ? now + (OVER_FIRST << t->over_told) : RS_NEVER;
    t->over_told++;
    if (t->reporter.child_count)
        rs_list_keep(&node->acking, &x->t.in_acking, true);
}

void rs_tree_over(rs_node *node, rs_time now, rs_receiving *x) {
    tree *t = of(x);
    if (!t)
        return;
    t->over = true;
    t->over_told = 0;
    tell_over(node, now, x);
    rs_receiver_arm(node, x);
}

/* A parent says that the data are over. It is not believed while they come: who asks for what is still to be sent would
 * have it twice. */
static bool is_over(rs_time now, const rs_receiving *x, rs_peer from, const rs_report *report) {
    const tree *t = of(x);
    return t->has_parent && from == t->reporter.parent && report->session == x->t.session &&
           report->flags == RS_REPORT_DONE && !t->over && now - x->data_at >= RS_TAIL_QUIET;
}

static bool over_packet(rs_receiving *x, tree *t, rs_packet_out *out) {
    rs_report report;
    if (!rs_reporter_tell_over(&t->reporter, &report, &out->peer))
        return false;
    report.nonce = x->t.nonce;
    report.session = x->t.session;
    out->header_length = (uint16_t)rs_report_encode(&report, out->header);
    x->stats.acks_sent++;
    return true;
}

static void report_packet(rs_time now, rs_receiving *x, tree *t, rs_packet_out *out) {
    rs_report report;
    rs_reporter_make(&t->reporter, now, &report);
    report.nonce = x->t.nonce;
    report.session = x->t.session;
    if (report.flags & RS_REPORT_OWN) { /* what it was kept here is no part of the path */
        uint64_t kept = (uint64_t)(now - t->reporter.marked_at);
        report.waited = report.waited + kept < RS_RATE_WAITED_MAX ? report.waited + kept : RS_RATE_WAITED_MAX;
    }
    out->header_length = (uint16_t)rs_report_encode(&report, out->header);
    x->stats.acks_sent++;
}

/* ------------------------------------------------------------------------------------------- asking and answering */

/* While data flow, answers wait behind them, and for what the parent misses itself. Afterwards they do not. */
rs_time rs_tree_request_timeout(const rs_receiving *x) {
    const tree *t = of(x);
    bool free = x->ended && t->least;
    rs_time late = (free ? t->least : rs_rtt_late(&t->rtt, NEAR_FIRST / 4)) * 4;
    rs_time least = free ? NEAR_LEAST_ENDED : NEAR_LEAST;
    return (late < least ? least : late > NEAR_MOST ? NEAR_MOST : late) << t->tries;
}

void rs_tree_request(rs_node *node, rs_receiving *x) {
    of(x)->asks = true;
    rs_list_keep(&node->acking, &x->t.in_acking, true);
}

/* Nothing came of the last request in time. */
void rs_tree_retry(rs_time now, rs_receiving *x) {
    tree *t = of(x);
    if (!t || !t->has_parent)
        return;
    if (t->far_until) {
        t->far_until = now < t->far_until ? t->far_until : 0;
        t->tries = 0;
        t->vain = 0;
    } else {
        t->vain += rs_tree_request_timeout(x);
        if (++t->tries >= NEAR_TRIES && t->vain >= NEAR_FOR)
            t->far_until = now + FAR_FOR;
    }
    t->unanswered = false;
}

static bool request_packet(rs_node *node, rs_time now, rs_receiving *x, tree *t, rs_packet_out *out) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_repair_request request = {.nonce = x->t.nonce, .session = x->t.session};
    t->asks = false;
    if (x->state != RS_RX_RECEIVING || !rs_tree_asks(x))
        return false;
    request.count = rs_next_ranges(now, x, request.range, RS_REQUEST_RANGES);
    if (request.count == 0)
        return false;
    t->asks = own->to_ask.count > 0 && request.count == RS_REQUEST_RANGES;
    if (!t->unanswered)
        t->asked_at = now;
    t->unanswered = true;
    if (own->retry_due < x->t.timer.due)
        rs_receiver_arm(node, x);
    out->header_length = (uint16_t)rs_request_encode(&request, out->header);
    x->stats.requests_sent++;
    return true;
}

static void note_round_trip(tree *t, rs_time took) {
    rs_rtt_sample(&t->rtt, took);
    t->least = t->least == 0 || took < t->least ? took : t->least;
}

/* So do those below: it was lost before the ways to them and to this receiver part. Of many children one misses it by
 * chance. */
static bool miss_it_too(const tree *t, uint64_t sn) {
    uint32_t many = 0;
    for (uint32_t i = 0; i < t->reporter.child_count; i++)
        many += rs_ranges_has(&t->reporter.children[i].awaited, sn);
    return many && many * MANY >= t->reporter.child_count;
}

static rs_rx_result answered(rs_node *node, rs_time now, rs_receiving *x, tree *t, const rs_packet_in *packet) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_rx_result result = {.verdict = RS_RX_OLD, .xfer = x->t.id};
    rs_data_header h;
    if (!rs_wire_decode_data(packet->header, packet->header_length, &h) || h.sn >= x->t.fragments ||
        packet->payload_length != rs_fragment_length(&x->t, h.sn))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    x->stats.peer_repairs_received++;
    if (x->state != RS_RX_RECEIVING || packet->peer != t->reporter.parent) {
        x->stats.peer_repairs_old++;
        return result;
    }
    if (t->unanswered && t->tries == 0)
        note_round_trip(t, now - t->asked_at);
    t->unanswered = false;
    t->tries = 0;
    t->vain = 0;
    t->tells_shared |= h.flags & SHARED;
    t->at_once += !(h.flags & SHARED) && !miss_it_too(t, h.sn);
    result = rs_republic_store(node, x, h.sn, false);
    if (result.verdict != RS_RX_STORE)
        x->stats.peer_repairs_old++;
    own->retry_due = own->asked.count ? now + rs_tree_request_timeout(x) : RS_NEVER;
    rs_receiver_arm(node, x);
    rs_request_schedule(node, now, x);
    rs_republic_check_complete(node, now, x);
    return result;
}

static void asked(rs_node *node, rs_time now, rs_receiving *x, tree *t, rs_reporter_child *c,
                  const rs_repair_request *request) {
    for (uint32_t i = 0; i < request->count; i++)
        if (request->range[i].to <= x->t.fragments && c->wanted.count + 1 < RS_RANGES_CAP) /* the rest is asked again */
            rs_ranges_add(&c->wanted, request->range[i].from, request->range[i].to);
    if (t->verified && t->serve_until < now + SERVE_LEAST)
        t->serve_until = now + SERVE_LEAST;
    if (x->present.words && c->wanted.count)
        rs_list_keep(&node->mending, &x->t.in_mending, true);
}

/* What those below asked for, and was not here, has come. What came to all will most likely have come to them, too: who
 * lacks it asks again, for which there is time while data come. */
void rs_tree_stored(rs_node *node, rs_receiving *x, uint64_t sn, bool to_all) {
    tree *t = of(x);
    for (uint32_t i = 0; t && i < t->reporter.child_count; i++) {
        rs_reporter_child *c = &t->reporter.children[i];
        if (c->awaited.count == 0 || !rs_ranges_remove(&c->awaited, sn) || (to_all && !x->ended) ||
            c->came.count + 1 >= RS_RANGES_CAP)
            continue;
        rs_ranges_add(&c->came, sn, sn + 1);
        rs_list_keep(&node->mending, &x->t.in_mending, true);
    }
}

/* The next fragment for that child; `shared`: it was missing here, too. */
static bool next_for(const rs_receiving *x, rs_reporter_child *c, uint64_t *sn, bool *shared) {
    *shared = rs_ranges_pop_sn(&c->came, sn);
    if (*shared) {
        rs_ranges_remove(&c->wanted, *sn);
        return true;
    }
    while (rs_ranges_pop_sn(&c->wanted, sn)) {
        if (rs_seqset_has(&x->present, *sn))
            return true;
        if (c->awaited.count + 1 < RS_RANGES_CAP)
            rs_ranges_add(&c->awaited, *sn, *sn + 1);
    }
    return false;
}

static bool repair_packet(rs_receiving *x, tree *t, rs_packet_out *out) {
    uint64_t sn;
    bool shared;
    for (uint32_t i = 0; i < t->reporter.child_count; i++) {
        rs_reporter_child *c = &t->reporter.children[(t->turn + i) % t->reporter.child_count];
        if (!next_for(x, c, &sn, &shared))
            continue;
        rs_data_header header = {.session = x->t.session,
                                 .engine = x->t.engine->id,
                                 .nonce = x->t.nonce,
                                 .sn = sn,
                                 .flags = (uint8_t)((sn == 0 ? RS_DATA_FIRST : 0) | (shared ? SHARED : 0)),
                                 .aux = sn == 0 ? x->t.size : 0};
        rs_wire_encode_data(&header, out->header);
        out->header_length = RS_DATA_HEADER;
        out->peer = c->peer;
        out->payload_offset = sn * x->t.fragment_size;
        out->payload_length = rs_fragment_length(&x->t, sn);
        t->turn = (t->turn + i + 1) % t->reporter.child_count;
        x->stats.peer_repairs_sent++;
        return true;
    }
    return false;
}

/* ----------------------------------------------------------------------------------------- what comes and goes */

rs_rx_result rs_tree_datagram(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    tree *t = of(x);
    rs_report report;
    rs_repair_request request;
    if (!t)
        return (rs_rx_result){.verdict = RS_RX_UNKNOWN};
    if (packet->payload_length > 0)
        return answered(node, now, x, t, packet);
    if (rs_report_decode(packet->header, packet->header_length, &report)) {
        if (report.session == x->t.session && rs_reporter_heard(&t->reporter, now, packet->peer, &report)) {
            x->stats.acks_received++;
            wake(node, now, x);
        } else if (is_over(now, x, packet->peer, &report)) {
            rs_on_data_fnsd(node, now, x, &(rs_message){.type = RS_MSG_DATA_FNSD, .session = report.session});
        }
        return (rs_rx_result){.verdict = RS_RX_NONE};
    }
    if (rs_request_decode(packet->header, packet->header_length, &request)) {
        rs_reporter_child *c = rs_reporter_child_of(&t->reporter, packet->peer);
        if (c)
            asked(node, now, x, t, c, &request);
        return (rs_rx_result){.verdict = RS_RX_NONE};
    }
    rs_data_header h; /* an object of no bytes */
    return rs_wire_decode_data(packet->header, packet->header_length, &h) ? answered(node, now, x, t, packet)
                                                                          : (rs_rx_result){.verdict = RS_RX_BAD};
}

bool rs_tree_poll(rs_node *node, rs_time now, rs_receiving *x, bool repairs, rs_packet_out *out) {
    tree *t = of(x);
    out->channel = RS_CH_PEER_DATAGRAM;
    out->group = RS_NO_GROUP;
    out->xfer = x->t.id;
    out->payload_offset = out->payload_length = out->combine.count = 0;
    if (repairs)
        return t && x->present.words && repair_packet(x, t, out);
    if (t) {
        out->peer = t->reporter.parent;
        if (rs_reporter_due(&t->reporter, now)) {
            report_packet(now, x, t, out);
            return true;
        }
        if (t->asks && request_packet(node, now, x, t, out))
            return true;
        if (over_packet(x, t, out))
            return true;
    }
    rs_list_remove(&x->t.in_acking);
    return false;
}

void rs_tree_verified(rs_node *node, rs_time now, rs_receiving *x) {
    tree *t = of(x);
    t->verified = true;
    t->serve_until = now + SERVE_MOST;
    rs_receiver_arm(node, x);
}

rs_time rs_tree_due(const rs_receiving *x) {
    const tree *t = of(x);
    if (!t)
        return RS_NEVER;
    rs_time due = rs_list_empty(&x->t.in_acking) ? t->reporter.due : RS_NEVER;
    due = t->last_due < due ? t->last_due : due;
    due = t->over_due < due ? t->over_due : due;
    return t->verified && t->serve_until < due ? t->serve_until : due;
}

void rs_tree_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    tree *t = of(x);
    if (!t)
        return;
    if (now >= t->last_due) {
        t->final_reports -= t->final_reports > 0;
        t->last_due = t->final_reports || t->verified ? now + LAST_EVERY : RS_NEVER;
        if (t->final_reports)
            rs_reporter_done(&t->reporter, now, x->state > RS_RX_RECEIVING);
    }
    if (now >= t->over_due)
        tell_over(node, now, x);
    if (rs_reporter_due(&t->reporter, now))
        rs_list_keep(&node->acking, &x->t.in_acking, true);
    bool said = t->final_reports == 0 && rs_list_empty(&x->t.in_acking);
    if (t->verified && ((said && rs_reporter_served(&t->reporter)) || now >= t->serve_until))
        rs_receiver_end(node, now, x, true, RS_CONTROL_DATA_RCVD, "");
}
