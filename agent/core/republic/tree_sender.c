#include "core/republic/tree_sender.h"

#include "core/feedback/report.h"
#include "core/feedback/reporter.h"
#include "core/feedback/tree.h"
#include "core/republic/feedback_sender.h"
#include "core/republic/speakers.h"
#include "core/republic/window.h"
#include "core/transfer/places.h"

/* Where no other source is named: docs/feedback.md. */
#define PROMOTED_MOST 8u                /* that speak for themselves */
#define ROOM_ASKED (UINT64_C(16) << 20) /* bytes, that agents ask the kernel for; half of it is a window */
#define SAMPLE_LEAST RS_CONTROL_LATE
#define SAMPLE_EACH RS_MS      /* of each receiver: all together 1,000 a second (a bound)... */
#define SLOW_FOR RS_HOST_BUSY  /* behind the others for so long: it speaks for itself */
#define LOSSY_PPM 20000u       /* so does one that loses so much more than who reports for it */
#define CLAIM_AGE RS_HOST_BUSY /* what was said so long ago was true by now, or is a lie */
#define LIE_PPM 50000u         /* of losses that nobody was told of */

void rs_tree_sender_free(rs_node *node, rs_sending *x) {
    rs_tree_sender *t = x->t.own;
    for (uint32_t i = 0; i < rs_speaker_count(x); i++)
        rs_progress_of(rs_speaker(x, i))->rate = NULL;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        x->recipients[i].reported = false;
    rs_memory_give(&node->allocator, t->nodes);
    rs_memory_give(&node->allocator, t);
    rs_engine_take(&x->t, NULL, NULL);
}

/* ------------------------------------------------------------------------------------------------------- its shape */

static void add_child(const rs_sending *x, rs_tree_sender *t, uint32_t parent, uint32_t child) {
    x->recipients[child].reported = true;
    t->nodes[child].parent = parent;
    t->nodes[child].next = t->nodes[parent].first_child;
    t->nodes[parent].first_child = child;
}

static void add_speaker(rs_tree_sender *t, const rs_sending *x, uint32_t place) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    t->nodes[place].parent = RS_TREE_NOBODY;
    rs_progress_of(&x->recipients[place])->rate = &t->rates[t->speaker_count];
    x->recipients[place].reported = false;
    t->speakers[t->speaker_count++] =
        (rs_tree_speaker){.place = place, .marks = own->sent_times.count, .slow = RS_TREE_NOBODY};
}

static void remove_child(rs_tree_sender *t, uint32_t child) {
    uint32_t *at = &t->nodes[t->nodes[child].parent].first_child;
    while (*at != child)
        at = &t->nodes[*at].next;
    *at = t->nodes[child].next;
}

static uint32_t child_count(const rs_tree_sender *t, uint32_t place) {
    uint32_t count = 0;
    for (uint32_t at = t->nodes[place].first_child; at != RS_TREE_NOBODY; at = t->nodes[at].next)
        count++;
    return count;
}

static void tell(rs_node *node, rs_time now, const rs_sending *x, uint32_t place) {
    rs_recipient *r = &x->recipients[place];
    if (rs_has_accepted(r) && rs_knows_tree(node, r))
        rs_control_set_pending(node, now, &r->link, RS_CONTROL_REPORT_TO);
}

static bool takes_part(const rs_node *node, const rs_sending *x, const rs_recipient *r) {
    (void)node, (void)x;
    return rs_is_active(r) && r->member && r->light != RS_LIGHT_DEMOTED;
}

/* NULL: not all are where others can be told of them, too many know no tree, or out of memory. */
static rs_ordered *in_order(rs_node *node, const rs_sending *x, uint32_t *count) {
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        unknown += takes_part(node, x, &x->recipients[i]) && !rs_knows_tree(node, &x->recipients[i]);
    return unknown > PROMOTED_MOST ? NULL : rs_order_by_racks(node, x, takes_part, count);
}

static rs_tree_sender *make(rs_node *node, const rs_sending *x) {
    rs_tree_sender *t = rs_memory_take(&node->allocator, sizeof *t + RS_SPEAKERS_MOST * sizeof t->rates[0]);
    if (t && !(t->nodes = rs_memory_take(&node->allocator, x->recipient_count * sizeof *t->nodes))) {
        rs_memory_give(&node->allocator, t);
        return NULL;
    }
    return t;
}

static void grow(rs_tree_sender *t, const rs_sending *x, const rs_ordered *order, const rs_tree *shape) {
    for (uint32_t i = 0; i < x->recipient_count; i++)
        t->nodes[i] = (rs_tree_member){.parent = RS_TREE_NOBODY, .first_child = RS_TREE_NOBODY, .next = RS_TREE_NOBODY};
    for (uint32_t i = shape->count; i-- > 0;) {
        rs_tree_place place = rs_tree_place_of(shape, i);
        rs_tree_member *n = &t->nodes[order[i].place];
        n->placed = true;
        n->height = (uint8_t)place.height;
        n->rack = (uint32_t)(order[i].rack ^ order[i].rack >> 32);
        if (place.parent == RS_TREE_SENDER)
            add_speaker(t, x, order[i].place);
        else
            add_child(x, t, order[place.parent].place, order[i].place);
    }
    for (uint32_t i = 0; i < shape->count; i++) {
        uint32_t children = child_count(t, order[i].place);
        t->children_most = children > t->children_most ? children : t->children_most;
    }
}

/* All report to the sender. */
static bool begin_direct(rs_node *node, rs_sending *x) {
    rs_tree_sender *t = rs_memory_take(&node->allocator, sizeof *t + x->recipient_count * sizeof t->rates[0]);
    for (uint32_t i = 0; t && i < x->recipient_count; i++)
        rs_progress_of(&x->recipients[i])->rate = &t->rates[i];
    rs_engine_take(&x->t, x->t.engine, t);
    return t != NULL;
}

static void without_tree(rs_node *node, rs_time now, rs_sending *x, uint32_t place);

/* More than so many report by the tree: each report takes its time at the sender, and all of a round must come within a
 * quarter of the window, which a fast path goes through in less. The tree's own tops are no more than that. */
static uint32_t direct_most(const rs_node *node, const rs_sending *x) {
    uint64_t quarter = (uint64_t)rs_wire_time(ROOM_ASKED / 8, x->rate.ceiling_bps) / RS_REPORTS_EACH;
    uint32_t most = quarter > RS_TREE_TOPS ? quarter < UINT32_MAX ? (uint32_t)quarter : UINT32_MAX : RS_TREE_TOPS;
    return node->config.direct_receivers < most ? node->config.direct_receivers : most;
}

/* How often each of them says RATE itself. On a slow link they would fill what its switch leaves to control, and
 * reports would wait behind them. */
static rs_time sample_time(const rs_sending *x, uint32_t count) {
    rs_time share = rs_wire_time(RS_REPORT_WIRE, x->rate.ceiling_bps) * RS_REPORT_PART;
    rs_time all = (share > SAMPLE_EACH ? share : SAMPLE_EACH) * (rs_time)count;
    return all > SAMPLE_LEAST ? all : SAMPLE_LEAST;
}

/* Who collects the most reports carries messages, too. */
static void carry_by_tops(rs_node *node, rs_time now, rs_sending *x, const rs_tree_sender *t, const rs_ordered *order,
                          uint32_t count) {
    rs_carried_pair *pairs =
        node->config.carries ? rs_memory_take(&node->allocator, count * sizeof *pairs) : NULL; /* else by connections */
    uint32_t used = 0;
    for (uint32_t s = 0; pairs && s < t->speaker_count; s++)
        for (uint32_t i = 0; i < count; i++) {
            uint32_t top = order[i].place;
            while (t->nodes[top].parent != RS_TREE_NOBODY)
                top = t->nodes[top].parent;
            if (top == t->speakers[s].place && top != order[i].place)
                pairs[used++] = (rs_carried_pair){top, order[i].place};
        }
    if (pairs)
        rs_carriers_begin(node, now, x, pairs, used);
    rs_memory_give(&node->allocator, pairs);
}

bool rs_tree_begin(rs_node *node, rs_time now, rs_sending *x) {
    const rs_config *c = &node->config;
    uint32_t count = 0, *starts = NULL, direct = direct_most(node, x);
    rs_republic_sender *own = rs_republic_sender_of(x);
    bool had = rs_tree_of(x) != NULL, enough = true;
    rs_engine_drop(node, &x->t); /* a view of another engine may have come before */
    own->rate_of = own->window_of = NULL;
    rs_ordered *order = NULL;
    rs_tree_sender *t = NULL;
    if (c->directory.place_of && x->recipient_count > direct && (order = in_order(node, x, &count)) && count > direct &&
        (starts = rs_memory_take(&node->allocator, count * sizeof *starts)) && (t = make(node, x))) {
        const rs_tree shape = rs_tree_by_racks(node, order, count, starts);
        grow(t, x, order, &shape);
        t->sample = sample_time(x, count);
        x->said_each = t->sample;
        rs_engine_take(&x->t, x->t.engine, t);
        x->feedback_interval = 5 * RS_MS;
        x->rate.epoch = 2 * x->feedback_interval;
        x->rate.epoch_end = now + x->rate.epoch;
        carry_by_tops(node, now, x, t, order, count);
        for (uint32_t i = 0; i < x->recipient_count; i++)
            if (x->recipients[i].room && (t->least_room == 0 || x->recipients[i].room < t->least_room))
                t->least_room = x->recipients[i].room;
    } else {
        enough = begin_direct(node, x);
    }
    rs_memory_give(&node->allocator, order);
    rs_memory_give(&node->allocator, starts);
    for (uint32_t i = 0; (t || had) && i < x->recipient_count; i++)
        if (t && rs_has_accepted(&x->recipients[i]) && !rs_knows_tree(node, &x->recipients[i]))
            without_tree(node, now, x, i);
        else if (rs_is_active(&x->recipients[i]))
            tell(node, now, x, i);
    return enough;
}

bool rs_tree_tell(const rs_node *node, const rs_sending *x, const rs_recipient *r, uint32_t what, rs_message *m) {
    const rs_tree_sender *t = rs_tree_of(x);
    uint32_t place = rs_place_of(x, r);
    if (what != RS_CONTROL_REPORT_TO)
        return false;
    m->type = RS_MSG_REPORT_TO;
    if (!t || !t->nodes[place].placed)
        return true;
    const rs_tree_member *n = &t->nodes[place];
    m->report_to.on = true;
    m->report_to.height = n->height;
    m->report_to.sample_us = (uint32_t)(t->sample / 1000);
    if (n->parent != RS_TREE_NOBODY &&
        !rs_place_on_wire(node, x->recipients[n->parent].link.peer->id, &m->report_to.parent))
        return false;
    for (uint32_t at = n->first_child; at != RS_TREE_NOBODY && m->report_to.count < RS_REPORT_TO_MOST;
         at = t->nodes[at].next)
        m->report_to.count +=
            rs_place_on_wire(node, x->recipients[at].link.peer->id, &m->report_to.children[m->report_to.count]);
    return true;
}

/* ------------------------------------------------------------------------------------------------- when it changes */

static bool can_collect(const rs_tree_sender *t, const rs_sending *x, uint32_t place) {
    const rs_recipient *r = &x->recipients[place];
    return rs_is_active(r) && rs_has_accepted(r) && r->light == RS_LIGHT_LIT && rs_link_is_up(&r->link) &&
           !t->nodes[place].demoted;
}

/* One of its rack, if there is any: what another repaired for those would share the rack's way in with the data. */
static uint32_t heir(const rs_tree_sender *t, const rs_sending *x, uint32_t place) {
    uint32_t other = RS_TREE_NOBODY;
    for (uint32_t at = t->nodes[place].first_child; at != RS_TREE_NOBODY; at = t->nodes[at].next) {
        if (!can_collect(t, x, at))
            continue;
        if (t->nodes[at].rack == t->nodes[place].rack)
            return at;
        other = other == RS_TREE_NOBODY ? at : other;
    }
    return other == RS_TREE_NOBODY ? t->nodes[place].first_child : other;
}

/* The path is known by reports of another, and nothing of its own. */
static void begin_from_model(rs_progress *progress) {
    *progress->rate = (rs_receiver_rate){.model = progress->rate->model};
    progress->rate->model.based = false;
}

/* Its children are collected by one of them, which takes its place; it is a child among them from now on. */
static void bypass(rs_node *node, rs_time now, rs_sending *x, uint32_t place, const char *why) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_tree_sender *t = rs_tree_of(x);
    rs_tree_member *n = &t->nodes[place];
    uint32_t next = heir(t, x, place), parent = n->parent, target = next;
    n->demoted = true;
    rs_carriers_lost(node, now, x, &x->recipients[place]);
    if (next == RS_TREE_NOBODY)
        return;
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .peer = x->recipients[place].link.peer->id};
    rs_format(log.cause, sizeof log.cause, "reports go around this receiver: %s", why);
    rs_emit(node, &log);
    remove_child(t, next);
    t->nodes[next].parent = parent;
    t->nodes[next].height = n->height > t->nodes[next].height + 1 ? n->height : (uint8_t)(t->nodes[next].height + 1);
    for (uint32_t at = n->first_child, after; at != RS_TREE_NOBODY; at = after) {
        after = t->nodes[at].next;
        if (child_count(t, target) == RS_REPORT_CHILDREN)
            target = t->nodes[target].first_child; /* full: one level more */
        add_child(x, t, target, at);
        tell(node, now, x, at);
    }
    n->first_child = RS_TREE_NOBODY;
    n->height = 0;
    rs_tree_speaker *s = rs_tree_speaker_of(t, place);
    if (s) {
        rs_recipient *r = &x->recipients[next];
        rs_progress *progress = rs_progress_of(r);
        if (rs_repair_is_coded(&own->repair))
            rs_repair_forget(&own->repair.table, (uint32_t)(s - t->speakers), false);
        *s = (rs_tree_speaker){.place = next, .marks = own->sent_times.count, .slow = RS_TREE_NOBODY};
        if (progress->seen_pos < rs_progress_of(&x->recipients[place])->seen_pos)
            progress->seen_pos = rs_progress_of(&x->recipients[place])->seen_pos;
        progress->seen_at = now;
        progress->rate = rs_progress_of(&x->recipients[place])->rate;
        r->reported = false;
        rs_progress_of(&x->recipients[place])->rate = NULL;
        begin_from_model(progress);
    } else {
        remove_child(t, place);
        add_child(x, t, parent, next);
        tell(node, now, x, parent);
    }
    add_child(x, t, next, place);
    tell(node, now, x, target);
    tell(node, now, x, next);
    tell(node, now, x, place);
    if (s)
        rs_rate_recompute(node, now, x);
}

/* As far as everybody was that it is reported with. */
static uint64_t claimed(rs_tree_sender *t, uint32_t place) {
    while (t->nodes[place].parent != RS_TREE_NOBODY)
        place = t->nodes[place].parent;
    const rs_tree_speaker *s = rs_tree_speaker_of(t, place);
    return s ? s->claim : 0;
}

/* It speaks for itself. */
static void promote(rs_node *node, rs_time now, rs_sending *x, uint32_t place) {
    rs_republic_sender *own = rs_republic_sender_of(x);
    rs_tree_sender *t = rs_tree_of(x);
    if (t->promoted == PROMOTED_MOST || t->speaker_count == RS_SPEAKERS_MOST || rs_tree_speaker_of(t, place) ||
        !t->nodes[place].placed || !can_collect(t, x, place))
        return;
    if (t->nodes[place].first_child != RS_TREE_NOBODY)
        bypass(node, now, x, place, "it is slower than the others, and speaks for itself");
    uint32_t parent = t->nodes[place].parent;
    uint64_t seen = claimed(t, place);
    remove_child(t, place);
    add_speaker(t, x, place);
    t->promoted++;
    rs_recipient *r = &x->recipients[place];
    rs_progress *progress = rs_progress_of(r);
    progress->seen_at = now;
    seen = seen > progress->start_pos ? seen : progress->start_pos;
    progress->seen_pos = seen > progress->seen_pos ? seen : progress->seen_pos;
    rs_sent_times_least(&own->sent_times, rs_reports_least(x));
    own->sent_times.interval = rs_report_interval(x);
    progress->rate->model = rs_progress_of(rs_speaker(x, 0))->rate->model; /* as the one that spoke for it */
    begin_from_model(progress);
    tell(node, now, x, parent);
    tell(node, now, x, place);
    rs_rate_recompute(node, now, x);
}

/* Its agent knows no tree, and reports to the sender: it speaks for itself. Of too many the sender cannot read all; if
 * that is known early, nobody reports by the tree, and of one that comes late it hears of losses only. */
static void without_tree(rs_node *node, rs_time now, rs_sending *x, uint32_t place) {
    rs_tree_sender *t = rs_tree_of(x);
    rs_tree_member *n = &t->nodes[place];
    if (!n->placed || n->unknown)
        return;
    bool room = t->promoted < PROMOTED_MOST, early = x->phase <= RS_PHASE_ATTEMPT;
    if (!room && early) {
        rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .peer = x->recipients[place].link.peer->id};
        rs_format(log.cause, sizeof log.cause, "all receivers report directly: the agents of many know no other way");
        rs_emit(node, &log);
        rs_engine_drop(node, &x->t);
        for (uint32_t i = 0; i < x->recipient_count; i++)
            if (rs_is_active(&x->recipients[i]))
                tell(node, now, x, i);
        if (!begin_direct(node, x))
            rs_sender_unicast(node, now, x, "out of memory: it is not known how fast receivers are");
        return;
    }
    n->unknown = n->demoted = true;
    if (n->first_child != RS_TREE_NOBODY)
        bypass(node, now, x, place, "its agent knows no reports by a tree");
    if (n->parent == RS_TREE_NOBODY)
        return; /* it speaks already */
    uint32_t parent = n->parent;
    remove_child(t, place);
    tell(node, now, x, parent);
    if (room) {
        add_speaker(t, x, place);
        t->promoted++;
    } else {
        n->parent = RS_TREE_NOBODY;
        n->placed = x->recipients[place].reported = false;
    }
}

void rs_tree_accepted(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r) {
    rs_tree_sender *t = rs_tree_of(x);
    if (!t)
        return;
    if (r->room && (t->least_room == 0 || r->room < t->least_room))
        t->least_room = r->room;
    if (rs_knows_tree(node, r))
        tell(node, now, x, rs_place_of(x, r));
    else
        without_tree(node, now, x, rs_place_of(x, r));
}

void rs_tree_connected(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r) {
    if (rs_tree_of(x))
        tell(node, now, x, rs_place_of(x, r));
}

void rs_tree_late(const rs_sending *x, rs_recipient *r) {
    const rs_tree_sender *t = rs_tree_of(x);
    const rs_recipient *last = NULL;
    if (!t || !rs_speaks(x, r))
        return;
    for (uint32_t i = 0; i < t->speaker_count; i++) {
        const rs_recipient *other = rs_speaker(x, i);
        if (other != r && rs_is_active(other) && other->light == RS_LIGHT_LIT &&
            (!last || rs_progress_of(other)->seen_pos < rs_progress_of(last)->seen_pos))
            last = other;
    }
    if (!last)
        return;
    rs_progress *progress = rs_progress_of(r);
    progress->rate->model = rs_progress_of(last)->rate->model;
    begin_from_model(progress);
    if (rs_progress_of(last)->seen_pos > progress->seen_pos)
        progress->seen_pos = rs_progress_of(last)->seen_pos;
}

void rs_tree_on_receiver_removed(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r) {
    rs_tree_sender *t = rs_tree_of(x);
    uint32_t place = rs_place_of(x, r);
    bool served = r->state == RS_RECIPIENT_DONE && x->phase > RS_PHASE_ATTEMPT; /* it still serves those below */
    if (!t || rs_is_finished(&x->t) || !t->nodes[place].placed || served ||
        t->nodes[place].first_child == RS_TREE_NOBODY)
        return;
    bypass(node, now, x, place, rs_link_is_up(&r->link) ? "it takes no part any more" : "its control channel is down");
}

static void look_for_silent(rs_node *node, rs_time now, rs_sending *x) {
    rs_tree_sender *t = rs_tree_of(x);
    uint32_t silent = 0;
    for (uint32_t i = 0; i < t->speaker_count; i++)
        silent += rs_tree_silent(x, rs_speaker(x, i), now);
    if (silent * 2 > t->speaker_count)
        return; /* it is rather the network here */
    for (uint32_t i = 0; silent && i < t->speaker_count; i++) {
        uint32_t place = t->speakers[i].place;
        if (t->nodes[place].first_child != RS_TREE_NOBODY && rs_tree_silent(x, &x->recipients[place], now))
            bypass(node, now, x, place, "it reported nothing for 10 ms");
    }
}

/* -------------------------------------------------------------------------------------------------- what is said */

static uint32_t place_at(const rs_node *node, const rs_sending *x, uint32_t address) {
    const rs_tree_sender *t = rs_tree_of(x);
    rs_peer peer = address ? node->config.directory.peer_at(node->config.directory.context, address, 0) : RS_NO_PEER;
    const rs_recipient *r = peer != RS_NO_PEER ? rs_recipient_of(x, peer) : NULL;
    return r && rs_is_active(r) && t->nodes[rs_place_of(x, r)].placed ? rs_place_of(x, r) : RS_TREE_NOBODY;
}

/* Somebody it speaks for holds the others back, or loses more than they: that one speaks for itself. */
static void check_slow(rs_node *node, rs_time now, rs_sending *x, rs_tree_speaker *s, const rs_report *report) {
    uint64_t window = rs_window_room(x, &x->recipients[s->place]);
    uint32_t slow = place_at(node, x, report->least_of);
    bool behind = (report->flags & RS_REPORT_LEAST) && x->pos - s->claim > window / 2;
    if (!behind || slow == RS_TREE_NOBODY || slow != s->slow) {
        s->slow = behind ? slow : RS_TREE_NOBODY;
        s->slow_since = now;
    } else if (now - s->slow_since >= SLOW_FOR) {
        s->slow = RS_TREE_NOBODY;
        promote(node, now, x, slow);
        return;
    }
    if (report->lossy_ppm > LOSSY_PPM) {
        uint32_t lossy = place_at(node, x, report->lossy_of);
        if (lossy != RS_TREE_NOBODY)
            promote(node, now, x, lossy);
    }
}

static void note_claim(rs_time now, rs_tree_speaker *s, uint64_t least, uint32_t ppm) {
    if (now - s->claim_at >= CLAIM_AGE) {
        s->claim_old = s->claim;
        s->claim_at = now;
    }
    s->claim = least;
    s->claim_ppm -= s->claim_ppm / 1024;
    s->claim_ppm = ppm > s->claim_ppm ? ppm : s->claim_ppm;
}

/* The position of an sn that was sent of late. */
static uint64_t newest_position(const rs_sending *x, uint64_t sn) {
    uint64_t ring = x->end - x->first, offset = sn - x->first, last = x->pos - 1;
    uint64_t back = (last - offset) % ring;
    return last - back;
}

static bool was_sent(const rs_sending *x, uint64_t sn) {
    return sn >= x->first && sn < x->end && sn - x->first < x->pos;
}

rs_rx_verdict rs_tree_report(rs_node *node, rs_time now, rs_sending *x, const rs_packet_in *packet) {
    rs_republic_sender *state = rs_republic_sender_of(x);
    rs_tree_sender *t = rs_tree_of(x);
    rs_report report;
    rs_recipient *r = rs_recipient_of(x, packet->peer);
    if (!t)
        return RS_RX_UNKNOWN; /* of an engine that it went by before */
    if (packet->payload_length > 0 || !rs_report_decode(packet->header, packet->header_length, &report))
        return RS_RX_BAD;
    if (!r || report.session != x->t.session || !rs_is_active(r))
        return RS_RX_NONE;
    rs_tree_speaker *s = rs_tree_speaker_of(t, rs_place_of(x, r));
    if (!s || r->light != RS_LIGHT_LIT || x->phase != RS_PHASE_HIGH_RATE)
        return RS_RX_NONE;
    bool own = report.flags & RS_REPORT_OWN, waits = report.flags & RS_REPORT_LEAST;
    if ((own && !was_sent(x, report.highest)) || (waits && !was_sent(x, report.least)))
        return RS_RX_BAD;
    r->link.heard_at = now;
    x->stats.acks_received++;
    s->marks = state->sent_times.count;
    note_claim(now, s, waits ? newest_position(x, report.least) : x->pos - 1, report.lossy_ppm);
    rs_report_taken(node, now, x, r, &report, s->claim);
    check_slow(node, now, x, s, &report);
    uint32_t silent = place_at(node, x, report.silent);
    if (silent != RS_TREE_NOBODY && t->nodes[silent].first_child != RS_TREE_NOBODY)
        bypass(node, now, x, silent, "the one that it reports to heard nothing of it for 10 ms");
    look_for_silent(node, now, x);
    return RS_RX_NONE;
}

/* Losses can have been told by now: those that report count them over so many packets first. */
static bool tells_losses(const rs_sending *x, uint64_t pos) {
    return pos >= rs_republic_sender_of(x)->high_pos + RS_REPORT_LOSSES * 3 / 2;
}

/* Who lies is not known: one of those between it and the sender, each in its turn. */
void rs_tree_sample(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r, uint64_t pos,
                    uint32_t lossy_ppm) {
    rs_tree_sender *t = rs_tree_of(x);
    uint32_t place = rs_place_of(x, r), top = place, depth = 0;
    if (!t->nodes[place].placed)
        return;
    for (; t->nodes[top].parent != RS_TREE_NOBODY; top = t->nodes[top].parent)
        depth++;
    rs_tree_speaker *s = rs_tree_speaker_of(t, top);
    bool ahead = s->claim_old > pos + 1,
         loses = tells_losses(x, pos) && lossy_ppm > LIE_PPM && s->claim_ppm < lossy_ppm / 4;
    if (depth == 0 || (!ahead && !loses))
        return;
    uint32_t blamed = place;
    for (uint32_t up = s->disputes++ % depth + 1; up > 0; up--)
        blamed = t->nodes[blamed].parent;
    bypass(node, now, x, blamed,
           ahead ? "one that it reports for is further behind than it said"
                 : "one that it reports for loses more than it said");
}
