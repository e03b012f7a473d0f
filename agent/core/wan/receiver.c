/* A receiver over a wide area: what it misses of a section it says in one NACK, when the section has been sent and the
 * time that packets come late by is over; its statuses tell the sender besides how the path is doing. */
#include "core/wan/receiver.h"

#include "core/wan/wan.h"

#include <math.h>

/* Where no other source is named: docs/wan.md. */
#define LATE_LEAST (1 * RS_MS)
#define LATE_MOST (100 * RS_MS)
#define HERE_I_AM (50 * RS_MS) /* by unicast, until data comes: address translators must see a packet (a bound) */
#define REPEATS_MOST 5         /* doublings of the time to a further NACK of the same section */

static rs_time report_interval(const rs_wan_receiver *w) {
    rs_time every = w->grtt / 8 < RS_WAN_REPORT_MOST ? w->grtt / 8 : RS_WAN_REPORT_MOST,
            all = (rs_time)w->group * RS_REPORTS_EACH;
    every = every > RS_WAN_REPORT_LEAST ? every : RS_WAN_REPORT_LEAST;
    return every > all ? every : all;
}

/* Data comes by the sender's own port, from one peer to the other. */
static bool is_unicast(const rs_receiving *x) {
    return x->path_kind == RS_PATH_PACKET && x->group_address == 0;
}

static void status_soon(rs_node *node, rs_receiving *x) {
    rs_wan_receiver_of(&x->t)->say = true;
    rs_list_keep(&node->acking, &x->t.in_acking, true);
}

static void advance_cum(rs_receiving *x) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    if (w->cum < x->t.fragments && rs_seqset_has(&x->present, w->cum))
        w->cum = rs_seqset_next_absent(&x->present, NULL, w->cum, x->t.fragments);
}

bool rs_wan_accept(rs_node *node, rs_time now, rs_receiving *x) {
    rs_wan_receiver *w = rs_memory_take(&node->allocator, sizeof *w);
    uint64_t sections = (x->t.fragments + RS_WAN_SECTION - 1) / RS_WAN_SECTION;
    rs_time *due = rs_memory_take(&node->allocator, (sections + 1) * sizeof *due);
    uint8_t *times = rs_memory_take(&node->allocator, sections + 1);
    if (!w || !due || !times) {
        rs_memory_give(&node->allocator, w);
        rs_memory_give(&node->allocator, due);
        rs_memory_give(&node->allocator, times);
        return false;
    }
    *w = (rs_wan_receiver){.due = due,
                           .times = times,
                           .section_count = sections,
                           .late = LATE_LEAST,
                           .grtt = 100 * RS_MS,
                           .group = 1,
                           .report_due = RS_NEVER,
                           .nack_due = RS_NEVER,
                           .ask_due = RS_NEVER};
    for (uint64_t i = 0; i < sections; i++)
        due[i] = RS_NEVER;
    rs_engine_take(&x->t, &rs_engine_wan, w);
    advance_cum(x);
    if (is_unicast(x)) { /* what is here, and where it is reached from */
        w->report_due = now + RS_WAN_REPORT_LEAST;
        status_soon(node, x);
        rs_receiver_arm(node, x);
    }
    if (x->ended || x->path_kind == RS_OPEN_NO_PATH || x->ring.first > 0) {
        w->ask_due = now + RS_TAIL_QUIET;
        rs_receiver_arm(node, x);
    }
    return true;
}

void rs_wan_receiver_free(rs_node *node, rs_receiving *x) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_memory_give(&node->allocator, w->due);
    rs_memory_give(&node->allocator, w->times);
    rs_memory_give(&node->allocator, w);
}

/* ---------------------------------------------------------------------------------------------- what comes in */

/* RFC 5401, 5.2: a random time up to `most`, truncated exponential, so that of many receivers few say the same thing at
 * once. */
static rs_time backoff(rs_node *node, uint32_t group, rs_time most) {
    double lambda = log(group) + 1, top = (double)most;
    if (most <= 0)
        return 0;
    double x = rs_random_part(rs_random(node)) * (lambda / top) + lambda / (top * (exp(lambda) - 1));
    double time = top / lambda * log(x * (exp(lambda) - 1) * (top / lambda));
    return time > 0 ? (rs_time)time : 0;
}

static void nack_by(rs_node *node, rs_receiving *x, uint64_t section, rs_time due) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    w->due[section] = due;
    if (due >= w->nack_due)
        return;
    w->nack_due = due;
    rs_receiver_arm(node, x);
}

static uint64_t section_end(const rs_receiving *x, uint64_t section) {
    uint64_t end = (section + 1) * RS_WAN_SECTION;
    return end < x->ring.end ? end : x->ring.end;
}

static uint64_t first_missing(const rs_receiving *x, uint64_t section) {
    uint64_t from = section * RS_WAN_SECTION, end = section_end(x, section);
    from = from > x->ring.first ? from : x->ring.first;
    return from < end ? rs_seqset_next_absent(&x->present, NULL, from, end) : end;
}

/* Sections before `section` were sent: what is missing of them is said when late packets have come. */
static void sections_over(rs_node *node, rs_time now, rs_receiving *x, uint64_t section) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_time spread = w->group > 1 ? backoff(node, w->group, (rs_time)w->group * RS_REPORTS_EACH) : 0;
    for (; w->ended < section && w->ended < w->section_count; w->ended++)
        if (first_missing(x, w->ended) < section_end(x, w->ended))
            nack_by(node, x, w->ended, now + w->late + spread);
}

static void stored(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    uint64_t section = sn / RS_WAN_SECTION;
    w->times[section] = w->times[section] > 0; /* something came of it */
    if (w->due[section] != RS_NEVER && first_missing(x, section) == section_end(x, section))
        w->due[section] = RS_NEVER;
    if (sn == w->cum)
        advance_cum(x);
    if (x->state == RS_RX_RECEIVING && x->present.count == x->t.fragments) {
        w->report_due = w->nack_due = w->ask_due = RS_NEVER;
        status_soon(node, x); /* what the sender keeps for it can go */
        rs_receiver_complete(node, now, x);
    }
}

/* Since the newest packet another one, sent before, came late by so much. */
static void came_late(rs_wan_receiver *w, rs_time now, uint64_t stamp_us) {
    uint64_t mask = (UINT64_C(1) << RS_WAN_STAMP_BITS) - 1;
    rs_time late = now - w->stamp_at + (rs_time)((w->stamp_us - stamp_us) & mask) * 1000;
    late += late / 4;
    late = late < LATE_MOST ? late : LATE_MOST;
    w->late = late > w->late ? late : w->late;
}

static void word(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h, bool by_group, bool marked) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_wan_word said = rs_wan_unpack(h->aux);
    x->link.heard_at = now;
    w->repairs += said.repair;
    w->marked += marked;
    if (said.grtt > 0) {
        w->grtt = said.grtt;
        w->group = said.group;
    }
    if (!by_group || h->sn < x->ring.first || h->sn >= x->ring.end)
        return;
    w->received += !said.repair;
    x->data_at = now;
    if (said.repair && h->sn + 1 < w->next) {
        w->stamp_us = said.stamp_us; /* it stood in the same queue */
        w->stamp_at = now;
    } else if (h->sn >= w->next) {
        w->next = h->sn + 1;
        w->stamp_us = said.stamp_us;
        w->stamp_at = now;
        w->late -= (w->late - LATE_LEAST) / 65536;
        sections_over(node, now, x, w->next == x->ring.end ? w->section_count : h->sn / RS_WAN_SECTION);
    } else if (!said.repair) {
        came_late(w, now, said.stamp_us);
    }
    if (h->flags & RS_DATA_REPORT)
        status_soon(node, x);
    if (w->report_due == RS_NEVER) {
        w->report_due = now + report_interval(w);
        rs_receiver_arm(node, x);
    }
}

static rs_rx_result old(const rs_receiving *x) {
    return (rs_rx_result){.verdict = RS_RX_OLD, .xfer = x->t.id};
}

/* The XOR of fragments of which at most one is missing here. */
static rs_rx_result coded(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_repair_header h;
    if (!rs_wire_decode_repair(packet->header, packet->header_length, &h) || h.engine != RS_PROTOCOL_WAN ||
        h.count == 0)
        return (rs_rx_result){.verdict = RS_RX_BAD};
    uint64_t lacks = 0;
    uint32_t missing = 0, longest = 0;
    for (uint32_t i = 0; i < h.count; i++) {
        if (h.member[i] >= x->t.fragments)
            return (rs_rx_result){.verdict = RS_RX_BAD};
        uint32_t length = rs_fragment_length(&x->t, h.member[i]);
        longest = length > longest ? length : longest;
        if (x->state == RS_RX_RECEIVING && !rs_seqset_has(&x->present, h.member[i])) {
            lacks = h.member[i];
            missing++;
        }
    }
    if (packet->payload_length != longest)
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (x->state != RS_RX_RECEIVING)
        return old(x);
    x->link.heard_at = x->data_at = now;
    x->stats.repairs_received++;
    w->repairs++;
    w->marked += packet->marked;
    if (missing != 1)
        return old(x);
    node->combine.count = 0;
    for (uint32_t i = 0; i < h.count; i++) {
        if (h.member[i] == lacks)
            continue;
        node->combine.length[node->combine.count] = rs_fragment_length(&x->t, h.member[i]);
        node->combine.offset[node->combine.count++] = h.member[i] * x->t.fragment_size;
    }
    rs_rx_result result = rs_receiver_store(x, lacks);
    x->stats.repairs_used++;
    if (result.verdict == RS_RX_STORE && node->combine.count) {
        result.verdict = RS_RX_COMBINE;
        result.combine = &node->combine;
    }
    stored(node, now, x, lacks);
    return result;
}

static rs_rx_result patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_rx_result result = rs_receiver_store(x, sn);
    if (w->ask_due != RS_NEVER)
        w->ask_due = now + RS_REQUEST_TIMEOUT;
    if (result.verdict != RS_RX_STORE)
        return result;
    x->stats.patches_received++;
    if (w->due[sn / RS_WAN_SECTION] != RS_NEVER) /* they come, one after the other */
        w->due[sn / RS_WAN_SECTION] = now + 2 * w->grtt + 50 * RS_MS;
    stored(node, now, x, sn);
    return result;
}

rs_rx_result rs_wan_data(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                         const rs_packet_in *packet) {
    if (packet->channel == RS_CH_PEER_RELIABLE)
        return patch(node, now, x, h->sn);
    if (h->flags & RS_DATA_REPAIR)
        return coded(node, now, x, packet);
    if (x->state != RS_RX_RECEIVING)
        return old(x);
    x->stats.packets_received++;
    word(node, now, x, h, true, packet->marked);
    rs_rx_result result = rs_receiver_store(x, h->sn);
    if (result.verdict == RS_RX_STORE)
        stored(node, now, x, h->sn);
    return result;
}

rs_rx_result rs_wan_repair_datagram(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    rs_data_header h;
    if (packet->peer != x->link.peer->id || !rs_wire_decode_data(packet->header, packet->header_length, &h) ||
        h.sn >= x->t.fragments || packet->payload_length != rs_fragment_length(&x->t, h.sn))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (x->state != RS_RX_RECEIVING)
        return old(x);
    x->stats.peer_repairs_received += !is_unicast(x);
    x->stats.packets_received += is_unicast(x);
    word(node, now, x, &h, is_unicast(x), packet->marked);
    rs_rx_result result = rs_receiver_store(x, h.sn);
    if (result.verdict == RS_RX_STORE)
        stored(node, now, x, h.sn);
    else
        x->stats.peer_repairs_old++;
    return result;
}

/* What should be here: the sessions before, and the present one when it is over. */
static uint64_t due_end(const rs_receiving *x) {
    return x->ended || x->path_kind == RS_OPEN_NO_PATH ? x->ring.end : x->ring.first;
}

static void ask_at(rs_node *node, rs_receiving *x, rs_time due) {
    rs_wan_receiver_of(&x->t)->ask_due = due;
    rs_receiver_arm(node, x);
}

rs_rx_verdict rs_wan_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    if (m->type == RS_MSG_DATA_FNSD) {
        if (w)
            ask_at(node, x, now + RS_TAIL_QUIET);
        return RS_RX_NONE;
    }
    if (m->session > x->t.session && m->open.engine != RS_PROTOCOL_WAN) { /* the rest comes by another engine */
        rs_engine_drop(node, &x->t);
        return x->t.engine->message(node, now, &x->link, m);
    }
    if (m->session > x->t.session) {
        rs_receiver_next_session(node, x, m);
        if (w) {
            w->next = w->received = w->repairs = w->marked = 0;
            w->ended = 0;
        }
    }
    if (w && x->state == RS_RX_RECEIVING && due_end(x) > 0)
        ask_at(node, x, now + RS_TAIL_QUIET);
    if (x->state != RS_RX_OFFERED)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK);
    return RS_RX_NONE;
}

/* ------------------------------------------------------------------------------------------------ what is said */

/* Returns how many it names. */
static uint64_t fill_nack(const rs_receiving *x, uint64_t section, rs_wan_nack *n) {
    uint64_t at = first_missing(x, section), end = section_end(x, section);
    uint64_t count = 0;
    *n = (rs_wan_nack){.base = at};
    while (at < end) {
        uint64_t to = rs_seqset_next_present(&x->present, NULL, at, end);
        for (; at < to; at++, count++) {
            n->map[(at - n->base) / 8] |= (uint8_t)(1u << (at - n->base) % 8);
            n->bits = (uint16_t)(at - n->base + 1);
        }
        at = rs_seqset_next_absent(&x->present, NULL, at, end);
    }
    return count;
}

/* NACKs that are due, as many as fit; each is said again if nothing comes of it, after twice as long. */
static bool take_nacks(rs_time now, rs_receiving *x, rs_wan_status *s) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    bool more = false;
    w->nack_due = RS_NEVER;
    for (uint64_t i = w->cum / RS_WAN_SECTION; i < w->ended; i++) {
        if (w->due[i] <= now && first_missing(x, i) == section_end(x, i))
            w->due[i] = RS_NEVER;
        if (w->due[i] <= now && s->nack_count == RS_WAN_NACKS) {
            more = true;
        } else if (w->due[i] <= now) {
            rs_wan_nack *n = &s->nacks[s->nack_count++];
            uint64_t missing = fill_nack(x, i, n);
            x->stats.lost += w->times[i] == 0 ? missing : 0;
            uint32_t doublings = w->times[i] > 1 ? w->times[i] - 1 : 0;
            w->due[i] = now + ((w->grtt + w->grtt / 4 + w->late + 20 * RS_MS) << doublings);
            if (w->times[i] < REPEATS_MOST)
                w->times[i]++;
        }
        w->nack_due = w->due[i] < w->nack_due ? w->due[i] : w->nack_due;
    }
    return more;
}

bool rs_wan_poll_status(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    bool finished = x->state > RS_RX_SERVING || !x->present.words;
    if (!w || !w->say || finished) {
        rs_list_keep(&node->acking, &x->t.in_acking, false);
        return false;
    }
    rs_wan_status s = {.nonce = x->t.nonce,
                       .session = x->t.session,
                       .receivers = 1,
                       .next = w->next,
                       .cum = w->cum,
                       .received = w->received,
                       .repairs = w->repairs,
                       .marked = w->marked,
                       .dropped = x->session_dropped,
                       .stamp_us = w->stamp_us,
                       .at = (uint64_t)(w->stamp_at > x->waited ? w->stamp_at - x->waited : 0)};
    rs_time waited = (w->stamp_at ? now - w->stamp_at + x->waited : 0) / 1000;
    s.waited_us = waited < 0 ? 0 : waited < UINT32_MAX ? (uint32_t)waited : UINT32_MAX;
    w->say = x->state == RS_RX_RECEIVING && take_nacks(now, x, &s);
    *out = (rs_packet_out){
        .channel = RS_CH_PEER_DATAGRAM, .peer = x->link.peer->id, .group = RS_NO_GROUP, .xfer = x->t.id};
    out->header_length = (uint16_t)rs_wan_encode_status(&s, out->header);
    w->reported_at = now;
    x->stats.acks_sent++;
    if (!w->say)
        rs_list_keep(&node->acking, &x->t.in_acking, false);
    if (x->state == RS_RX_RECEIVING)
        rs_receiver_arm(node, x);
    return true;
}

bool rs_wan_request(rs_node *node, rs_time now, rs_receiving *x, rs_message *m, bool *more) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    uint64_t end = due_end(x);
    (void)node, (void)now;
    if (!w || x->state != RS_RX_RECEIVING)
        return false;
    uint64_t from = rs_seqset_next_absent(&x->present, NULL, w->ask_at, end);
    uint64_t to = rs_seqset_next_present(&x->present, NULL, from, end);
    if (from >= to)
        return false;
    w->ask_at = rs_request_object(&x->t, from, to, m);
    x->stats.requests_sent++;
    *more = rs_seqset_next_absent(&x->present, NULL, w->ask_at, end) < end;
    return true;
}

static void ask(rs_node *node, rs_time now, rs_receiving *x) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    w->ask_at = 0;
    w->ask_due = now + RS_REQUEST_TIMEOUT;
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_PTCH_REQ);
}

void rs_wan_connected(rs_node *node, rs_time now, rs_receiving *x) {
    if (due_end(x) > 0)
        ask(node, now, x);
}

void rs_wan_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    if (x->state != RS_RX_RECEIVING) {
        w->report_due = w->nack_due = w->ask_due = RS_NEVER;
        return;
    }
    if (now >= w->nack_due || now >= w->report_due)
        status_soon(node, x);
    if (now >= w->nack_due)
        w->nack_due = RS_NEVER; /* until the status is made */
    if (now >= w->report_due)   /* while packets come: a silent path has nothing to report */
        w->report_due = now - x->data_at < 2 * w->grtt + 100 * RS_MS ? now + report_interval(w)
                        : is_unicast(x) && w->next == 0              ? now + HERE_I_AM
                                                                     : RS_NEVER;
    if (now >= w->ask_due)
        ask(node, now, x);
}

rs_time rs_wan_receiver_due(const rs_receiving *x) {
    const rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_time due = w->report_due < w->nack_due ? w->report_due : w->nack_due;
    return due < w->ask_due ? due : w->ask_due;
}
