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
#define LAST_SECTIONS 2        /* of an object: who has all is there for nobody, so these go to the sender itself */

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
    rs_wan_due *due = rs_memory_take(&node->allocator, (sections + 1) * sizeof *due);
    if (!w || !due) {
        rs_memory_give(&node->allocator, w);
        rs_memory_give(&node->allocator, due);
        return false;
    }
    *w = (rs_wan_receiver){.due = due,
                           .section_count = sections,
                           .late = LATE_LEAST,
                           .grtt = 100 * RS_MS,
                           .group = 1,
                           .report_due = RS_NEVER,
                           .nack_due = RS_NEVER,
                           .ask_due = RS_NEVER};
    for (uint64_t i = 0; i < sections; i++)
        due[i] = (rs_wan_due){.due = RS_NEVER};
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
    rs_memory_give(&node->allocator, w->tree);
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
    w->due[section].due = due;
    if (due >= w->nack_due)
        return;
    w->nack_due = due;
    rs_receiver_arm(node, x);
}

/* What was collected goes on when it is due. */
static void collected_by(rs_node *node, rs_receiving *x) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_time due = rs_wan_collect_due(w->tree);
    if (due >= w->nack_due)
        return;
    w->nack_due = due;
    rs_receiver_arm(node, x);
}

/* Of one that goes on, as far as it was sent. */
static uint64_t section_end(const rs_receiving *x, uint64_t section) {
    const rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    uint64_t end = (section + 1) * RS_WAN_SECTION, sent = section < w->ended ? x->ring.end : w->next;
    end = end < x->ring.end ? end : x->ring.end;
    return end < sent ? end : sent;
}

static uint64_t first_missing(const rs_receiving *x, uint64_t section) {
    uint64_t from = section * RS_WAN_SECTION, end = section_end(x, section);
    from = from > x->ring.first ? from : x->ring.first;
    return from < end ? rs_seqset_next_absent(&x->present, NULL, from, end) : end;
}

/* The sender has to stop in a section: what is missing so far is what keeps it from going on. */
static void section_halted(rs_node *node, rs_time now, rs_receiving *x) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    uint64_t section = w->ended;
    if (section < w->section_count && w->due[section].due == RS_NEVER &&
        first_missing(x, section) < section_end(x, section))
        nack_by(node, x, section, now + w->late);
}

/* Sections before `section` were sent: what is missing of them is said when late packets have come. */
static void sections_over(rs_node *node, rs_time now, rs_receiving *x, uint64_t section) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    uint32_t group = w->tree && w->group > RS_REPORT_TO_MOST ? RS_REPORT_TO_MOST : w->group;
    rs_time spread = group > 1 ? backoff(node, group, (rs_time)group * RS_REPORTS_EACH) : 0;
    for (; w->ended < section && w->ended < w->section_count; w->ended++) {
        if (w->tree)
            rs_wan_collect_over(w->tree, now, w->ended, w->grtt);
        rs_time below = w->tree ? rs_wan_collect_time(w->tree, w->grtt) : 0;
        if (first_missing(x, w->ended) < section_end(x, w->ended))
            nack_by(node, x, w->ended, now + w->late + spread + below);
    }
    if (w->tree)
        collected_by(node, x);
}

static void stored(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    uint64_t section = sn / RS_WAN_SECTION;
    rs_wan_due *d = &w->due[section];
    if (w->tree && d->times && d->up && !d->came) {
        rs_wan_parent_answered(w->tree, now - d->up_at, w->grtt);
        if (!d->again)
            rs_wan_parent_was(w->tree, now, true, w->grtt);
    }
    d->came = d->times > 0;
    d->times = d->times > 0; /* something came of it */
    if (d->due != RS_NEVER && first_missing(x, section) == section_end(x, section))
        d->due = RS_NEVER;
    if (sn == w->cum)
        advance_cum(x);
    if (x->state == RS_RX_RECEIVING && x->present.count == x->t.fragments) {
        w->report_due = w->nack_due = w->ask_due = RS_NEVER;
        status_soon(node, x); /* what the sender keeps for it can go */
        for (uint32_t i = 0; w->tree && i < RS_WAN_COLLECTED; i++)
            w->tree->sections[i].due = now; /* it will not be here for long */
        w->say_up = w->tree != NULL;
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

static void word(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h, bool by_group,
                 const rs_packet_in *packet) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_time came = now - packet->waited;
    rs_wan_word said = rs_wan_unpack(h->aux);
    x->link.heard_at = now;
    w->repairs += said.repair;
    w->marked += packet->marked;
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
        w->stamp_at = came;
    } else if (h->sn >= w->next) {
        w->next = h->sn + 1;
        w->stamp_us = said.stamp_us;
        w->stamp_at = came;
        w->late -= (w->late - LATE_LEAST) / 65536;
        sections_over(node, now, x, w->next == x->ring.end ? w->section_count : h->sn / RS_WAN_SECTION);
    } else if (!said.repair) {
        came_late(w, came, said.stamp_us);
    }
    if (h->flags & RS_DATA_REPORT) {
        status_soon(node, x);
        if (h->sn + 1 == w->next)
            section_halted(node, now, x);
    }
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
    if (w->due[sn / RS_WAN_SECTION].due != RS_NEVER) /* they come, one after the other */
        w->due[sn / RS_WAN_SECTION].due = now + 2 * w->grtt + 50 * RS_MS;
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
    word(node, now, x, h, true, packet);
    rs_rx_result result = rs_receiver_store(x, h->sn);
    if (result.verdict == RS_RX_STORE)
        stored(node, now, x, h->sn);
    return result;
}

/* NACKs of one below it in the tree. */
static rs_rx_result collect(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_wan_status s;
    if (packet->payload_length || !rs_wan_decode_status(packet->header, packet->header_length, &s))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (s.session != x->t.session || x->state > RS_RX_SERVING)
        return (rs_rx_result){.verdict = RS_RX_NONE};
    for (uint32_t i = 0; i < s.nack_count; i++)
        if (s.nacks[i].base < x->ring.first || s.nacks[i].base + s.nacks[i].bits > x->ring.end)
            return (rs_rx_result){.verdict = RS_RX_BAD};
    x->stats.acks_received++;
    for (uint32_t i = 0; i < s.nack_count; i++)
        rs_wan_collect(w->tree, now, &s.nacks[i], s.receivers, w->grtt);
    if (x->state == RS_RX_RECEIVING) {
        collected_by(node, x);
    } else { /* it has all, and is about to go */
        for (uint32_t i = 0; i < RS_WAN_COLLECTED; i++)
            w->tree->sections[i].due = now;
        w->say_up = true;
        rs_list_keep(&node->acking, &x->t.in_acking, true);
    }
    return (rs_rx_result){.verdict = RS_RX_NONE};
}

rs_rx_result rs_wan_repair_datagram(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    const rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_data_header h;
    if (w && w->tree && rs_wan_collects_from(w->tree, packet->peer))
        return collect(node, now, x, packet);
    if (packet->peer != x->link.peer->id || !rs_wire_decode_data(packet->header, packet->header_length, &h) ||
        h.sn >= x->t.fragments || packet->payload_length != rs_fragment_length(&x->t, h.sn))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (x->state != RS_RX_RECEIVING)
        return old(x);
    x->stats.peer_repairs_received += !is_unicast(x);
    x->stats.packets_received += is_unicast(x);
    word(node, now, x, &h, is_unicast(x), packet);
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

static void leave_tree(rs_node *node, rs_wan_receiver *w) {
    rs_memory_give(&node->allocator, w->tree);
    w->tree = NULL;
}

rs_rx_verdict rs_wan_told(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m) {
    const rs_directory *d = &node->config.directory;
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    (void)now;
    if (!w || m->session != x->t.session)
        return RS_RX_NONE;
    if (!m->report_to.on || !d->peer_at || is_unicast(x) || x->state != RS_RX_RECEIVING) {
        leave_tree(node, w);
        return RS_RX_NONE;
    }
    rs_wan_collector *c = w->tree ? w->tree : rs_memory_take(&node->allocator, sizeof *c);
    if (!c)
        return RS_RX_NONE; /* its NACKs go to the sender, and those of others that come are refused */
    const rs_wire_place *to = &m->report_to.parent;
    rs_peer parent = to->address ? d->peer_at(d->context, to->address, to->port) : RS_NO_PEER;
    if (!w->tree || parent != c->parent)
        c->silent = 0, c->alone_until = 0;
    c->ended = w->ended;
    c->parent = parent;
    c->height = m->report_to.height;
    c->child_count = 0;
    for (uint32_t i = 0; i < m->report_to.count; i++) {
        rs_peer child = d->peer_at(d->context, m->report_to.children[i].address, m->report_to.children[i].port);
        if (child != RS_NO_PEER && child != x->link.peer->id)
            c->children[c->child_count++] = child;
    }
    w->tree = c;
    return RS_RX_NONE;
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
            leave_tree(node, w); /* its sender makes another one */
        }
    }
    if (w && x->state == RS_RX_RECEIVING && due_end(x) > 0)
        ask_at(node, x, now + RS_TAIL_QUIET);
    if (x->state != RS_RX_OFFERED)
        rs_control_set_pending(node, now, &x->link, RS_CONTROL_OPEN_ACK);
    return RS_RX_NONE;
}

/* ------------------------------------------------------------------------------------------------ what is said */

/* By way of the parent. Of a section's NACKs only the first goes there, so what is lost on the way, or at a parent that
 * is gone, costs a round trip. */
static bool goes_up(const rs_wan_receiver *w, rs_time now, uint64_t section, bool first) {
    return w->tree && first && section < w->ended && section + LAST_SECTIONS < w->section_count &&
           rs_wan_has_parent(w->tree, now);
}

/* Returns how many it lacks itself. */
static uint64_t add_missing(const rs_receiving *x, uint64_t section, uint8_t map[RS_WAN_SECTION / 8]) {
    uint64_t at = first_missing(x, section), end = section_end(x, section), count = 0;
    while (at < end) {
        uint64_t to = rs_seqset_next_present(&x->present, NULL, at, end);
        for (; at < to; at++, count++)
            map[at % RS_WAN_SECTION / 8] |= (uint8_t)(1u << at % 8);
        at = rs_seqset_next_absent(&x->present, NULL, at, end);
    }
    return count;
}

/* What those below it miss of a section goes into its own NACK. */
static void add_collected(rs_wan_receiver *w, uint64_t section, uint8_t map[RS_WAN_SECTION / 8], rs_wan_status *s) {
    rs_wan_collected *c = w->tree ? rs_wan_collected_of(w->tree, section) : NULL;
    if (!c)
        return;
    for (uint32_t i = 0; i < RS_WAN_SECTION / 8; i++)
        map[i] |= c->map[i];
    s->receivers += c->receivers < UINT32_MAX - s->receivers ? c->receivers : 0;
    c->receivers = 0;
}

/* Its own, with what it collected of that section. It is said again if nothing comes of it, after twice as long. */
static void take_own(rs_time now, rs_receiving *x, uint64_t section, rs_wan_status *s, bool up) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_wan_due *d = &w->due[section];
    uint8_t map[RS_WAN_SECTION / 8] = {0};
    uint64_t missing = add_missing(x, section, map);
    x->stats.lost += d->times == 0 ? missing : 0;
    add_collected(w, section, map, s);
    rs_wan_nack_of(section, map, &s->nacks[s->nack_count++]);
    if (d->times == 0) {
        d->up = up;
        d->up_at = now;
        d->came = d->again = false;
    } else {
        if (w->tree && d->up && !d->again && !d->came)
            rs_wan_parent_was(w->tree, now, false, w->grtt);
        d->again = true;
    }
    uint32_t doublings = d->times > 1 ? d->times - 1 : 0;
    rs_time answer = up && w->tree->answer > w->grtt ? w->tree->answer : w->grtt; /* those above wait for others */
    d->due = now + ((answer + answer / 4 + w->late + 20 * RS_MS) << doublings);
    if (d->times < REPEATS_MOST)
        d->times++;
}

/* NACKs of that section are due: of its own, or only those that it collected. */
static void take_nack(rs_time now, rs_receiving *x, uint64_t section, bool own, rs_wan_status *s, bool up) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    if (goes_up(w, now, section, !own || w->due[section].times == 0) != up) {
        w->say |= up;
        w->say_up |= !up;
    } else if (s->nack_count == RS_WAN_NACKS) {
        w->say |= !up;
        w->say_up |= up;
    } else if (own) {
        take_own(now, x, section, s, up);
    } else {
        uint8_t map[RS_WAN_SECTION / 8] = {0};
        add_collected(w, section, map, s);
        rs_wan_nack_of(section, map, &s->nacks[s->nack_count++]);
    }
}

/* NACKs that are due, as many as fit: those for the parent (`up`), or those for the sender. */
static void take_nacks(rs_time now, rs_receiving *x, rs_wan_status *s, bool up) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    bool receives = x->state == RS_RX_RECEIVING;
    w->nack_due = RS_NEVER;
    for (uint64_t i = w->cum / RS_WAN_SECTION; receives && i <= w->ended && i < w->section_count; i++) {
        if (w->due[i].due <= now && first_missing(x, i) == section_end(x, i))
            w->due[i].due = RS_NEVER;
        if (w->due[i].due <= now)
            take_nack(now, x, i, true, s, up);
        if (w->due[i].due > now && w->due[i].due < w->nack_due)
            w->nack_due = w->due[i].due;
    }
    for (uint32_t i = 0; w->tree && i < RS_WAN_COLLECTED; i++) {
        const rs_wan_collected *c = &w->tree->sections[i];
        if (c->receivers == 0 || c->due > now)
            continue;
        bool own = receives && c->section < w->ended && w->due[c->section].times == 0 &&
                   first_missing(x, c->section) < section_end(x, c->section);
        take_nack(now, x, c->section, own, s, up);
    }
    for (uint32_t i = 0; w->tree && i < RS_WAN_COLLECTED; i++) {
        const rs_wan_collected *c = &w->tree->sections[i];
        if (c->receivers && c->due > now && c->due < w->nack_due)
            w->nack_due = c->due;
    }
}

static rs_wan_status status_of(const rs_receiving *x) {
    return (rs_wan_status){.nonce = x->t.nonce, .session = x->t.session, .receivers = 1};
}

static void status_packet(const rs_receiving *x, rs_peer to, const rs_wan_status *s, rs_packet_out *out) {
    *out = (rs_packet_out){.channel = RS_CH_PEER_DATAGRAM, .peer = to, .group = RS_NO_GROUP, .xfer = x->t.id};
    out->header_length = (uint16_t)rs_wan_encode_status(s, out->header);
}

/* False: none is for the parent. */
static bool nacks_up(rs_time now, rs_receiving *x, rs_packet_out *out) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    rs_wan_status s = status_of(x);
    w->say_up = false;
    take_nacks(now, x, &s, true);
    if (s.nack_count == 0)
        return false;
    status_packet(x, w->tree->parent, &s, out);
    return true;
}

bool rs_wan_poll_status(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out) {
    rs_wan_receiver *w = rs_wan_receiver_of(&x->t);
    bool finished = x->state > RS_RX_SERVING || !x->present.words, up = w && !finished && w->say_up;
    up = up && nacks_up(now, x, out);
    if (!w || finished || (!up && !w->say)) {
        rs_list_keep(&node->acking, &x->t.in_acking, false);
        return false;
    }
    if (!up) {
        rs_wan_status s = status_of(x);
        s.next = w->next;
        s.cum = w->cum;
        s.received = w->received;
        s.repairs = w->repairs;
        s.marked = w->marked;
        s.dropped = x->session_dropped;
        s.stamp_us = w->stamp_us;
        s.at = (uint64_t)(w->stamp_at > x->waited ? w->stamp_at - x->waited : 0);
        rs_time waited = (w->stamp_at ? now - w->stamp_at + x->waited : 0) / 1000;
        s.waited_us = waited < 0 ? 0 : waited < UINT32_MAX ? (uint32_t)waited : UINT32_MAX;
        w->say = false;
        take_nacks(now, x, &s, false);
        status_packet(x, x->link.peer->id, &s, out);
        w->reported_at = now;
    }
    x->stats.acks_sent++;
    if (!w->say && !w->say_up)
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
        rs_list_keep(&node->acking, &x->t.in_acking, true);
    w->say |= now >= w->report_due || (now >= w->nack_due && !w->tree);
    w->say_up |= now >= w->nack_due && w->tree;
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
