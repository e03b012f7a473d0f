/* Repairs by multicast, at a receiver: what a repair packet gives, and telling by maps what is missing. Ours.
 *
 * A repair is of use if exactly one of its fragments is not here: then that one is the packet's payload XOR the others.
 * Nothing is kept of one that is of no use: its sender learns so from the next map. */
#include "core/republic/repair_receiver.h"

#include "core/republic/feedback_receiver.h"
#include "core/republic/receiver.h"
#include "core/republic/tree_receiver.h"

#define MAPS_MOST 16           /* messages of a report (a bound): what is not told spoils repairs for others' losses */
#define MAPS_LATE RS_HOST_BUSY /* what was told is told again if nothing of it came for so long */

/* Maps are said now and then while data flows: repairs are not in a hurry, and there may be many receivers. */
void rs_map_soon(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_time due = own->mapped_at + rs_report_least(x, x->feedback_interval);
    due = due > now ? due : now;
    if (due >= own->map_due)
        return;
    own->map_due = due;
    rs_receiver_arm(node, x);
}

static void report(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    own->map_due = RS_NEVER;
    own->mapped_at = now;
    own->map_at = 0;
    own->maps_left = MAPS_MOST;
    rs_control_set_pending(node, now, &x->link, RS_CONTROL_PTCH_MAP);
}

void rs_map_timeout(rs_node *node, rs_time now, rs_receiving *x) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    own->map_due = RS_NEVER;
    if (x->state == RS_RX_RECEIVING && own->asks == RS_ASKS_MAPS)
        report(node, now, x);
}

/* Runs of missing fragments in [from, end) that are due; false if there is none. */
static bool next_missing(const rs_receiving *x, const rs_range *due, uint32_t count, uint64_t from, rs_range *out) {
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = due[i].from > from ? due[i].from : from;
        if (at >= due[i].to)
            continue;
        out->from = rs_seqset_next_absent(&x->present, NULL, at, due[i].to);
        out->to = rs_seqset_next_present(&x->present, NULL, out->from, due[i].to);
        if (out->from < out->to)
            return true;
    }
    return false;
}

/* Each fragment counts as lost when it is told for the first time. */
static void note_asked(rs_receiving *x, uint64_t from, uint64_t to) {
    x->stats.lost += rs_seqset_add_range(&rs_republic_receiver_of(x)->asked, from, to);
}

/* The next PTCH_MAP of the present report: from `map_at` on. */
void rs_next_map(rs_time now, rs_receiving *x, rs_message *m) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    rs_range due[3], run = {0};
    uint32_t count = rs_due_ranges(x, due);
    m->type = RS_MSG_PTCH_MAP;
    m->ptch_map.from = m->ptch_map.base = own->map_at;
    m->ptch_map.number = own->repair_number;
    m->ptch_map.bits = 0;
    m->ptch_map.last = true;
    for (int i = 0; i < RS_MAP_BYTES; i++)
        m->ptch_map.map[i] = 0;
    if (!next_missing(x, due, count, own->map_at, &run)) {
        own->maps_left = 0;
        return;
    }
    uint64_t base = m->ptch_map.base = run.from, end = base + RS_MAP_BITS, told = base;
    do {
        uint64_t to = run.to < end ? run.to : end;
        for (uint64_t bit = run.from - base; bit < to - base; bit++)
            m->ptch_map.map[bit / 8] |= (uint8_t)(1u << bit % 8);
        note_asked(x, run.from, to);
        told = to;
    } while (next_missing(x, due, count, told, &run) && run.from < end);
    m->ptch_map.bits = (uint16_t)(told - base);
    m->ptch_map.last = !next_missing(x, due, count, told, &run);
    own->map_at = told;
    own->maps_left = m->ptch_map.last ? 0 : own->maps_left - 1;
    rs_time late = 4 * rs_rtt_late(&x->link.peer->rtt, 0);
    own->retry_due = now + (late > MAPS_LATE ? late : MAPS_LATE);
}

/* What a repair packet of the present session says besides its payload. Who asks a parent learns by it that the round
 * is over, and asks for the rest: DATA_FNSD comes to it later than this, and may be lost on the way. */
static void heed(rs_node *node, rs_time now, rs_receiving *x, const rs_repair_header *h) {
    rs_republic_receiver *own = rs_republic_receiver_of(x);
    if (h->done && rs_tree_has_parent(x)) {
        rs_request_rest(node, now, x);
        return;
    }
    /* One that asked a parent for the rest asks the sender since it has none. */
    bool ranges = own->asks != RS_ASKS_MAPS && !own->over;
    if (ranges && x->state == RS_RX_RECEIVING && !rs_tree_has_parent(x)) {
        rs_request_restart(node, now, x, RS_ASKS_MAPS);
        report(node, now, x);
    }
    if (own->asks != RS_ASKS_MAPS)
        return;
    own->session_repairs += h->count > 0;
    own->repair_number = h->number > own->repair_number ? h->number : own->repair_number;
    if (h->done && !x->ended) {
        x->ended = true;
        own->active = false;
    }
    if (h->mark)
        report(node, now, x);
    else if (own->asked.count)
        rs_map_soon(node, now, x);
}

/* How many members are not here; the last of them in `missing`. */
static uint32_t not_here(const rs_receiving *x, const rs_repair_header *h, uint32_t *missing) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        if (rs_seqset_has(&x->present, h->member[i]))
            continue;
        *missing = i;
        count++;
    }
    return count;
}

static rs_rx_result combine(rs_node *node, rs_receiving *x, const rs_repair_header *h, uint32_t missing) {
    rs_combine *with = &node->combine;
    rs_rx_result result = rs_republic_store(node, x, h->member[missing], true);
    with->count = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        if (i == missing)
            continue;
        uint32_t length = rs_fragment_length(&x->t, h->member[i]);
        with->offset[with->count] = h->member[i] * x->t.fragment_size;
        with->length[with->count++] = length < result.length ? length : result.length;
    }
    if (with->count) {
        result.verdict = RS_RX_COMBINE;
        result.combine = with;
    }
    x->stats.repairs_used++;
    return result;
}

rs_rx_result rs_receiver_repair(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet) {
    rs_repair_header h;
    uint32_t missing = 0;
    if (!rs_wire_decode_repair(packet->header, packet->header_length, &h) || h.engine != x->t.engine->id)
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (h.count && h.member[h.count - 1] >= x->t.fragments)
        return (rs_rx_result){.verdict = RS_RX_BAD};
    if (packet->payload_length != (h.count ? rs_fragment_length(&x->t, h.member[0]) : 0))
        return (rs_rx_result){.verdict = RS_RX_BAD};
    rs_rx_result result = {.verdict = RS_RX_OLD, .xfer = x->t.id};
    if (x->state == RS_RX_FINISHED)
        return result;
    x->link.heard_at = now;
    if (x->state == RS_RX_RECEIVING) {
        x->stats.repairs_received += h.count > 0;
        x->data_at = now;
        if (not_here(x, &h, &missing) == 1)
            result = combine(node, x, &h, missing);
    }
    if (h.session == x->t.session && x->path_kind != RS_OPEN_NO_PATH)
        heed(node, now, x, &h);
    rs_republic_check_complete(node, now, x);
    return result;
}
