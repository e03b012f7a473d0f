/* What leaves the node: control messages first, then data packets as pacers allow, round robin between transfers, with
 * patches in between. */
#include "core/republic/republic.h"
#include "core/transfer/engine.h"

#define DATA_PER_PATCH 4 /* when the NIC is the limit: patches must not stall the data channel */

void rs_data_stop(rs_node *node, rs_sending *x) {
    rs_timer_set(&node->data_timers, &x->data_timer, RS_NEVER);
    rs_list_remove(&x->in_ready);
}

void rs_republic_schedule(rs_node *node, rs_time now, rs_sending *x) {
    rs_time due = x->phase == RS_PHASE_ATTEMPT ? x->attempt_due : rs_pacer_due(&x->pacer);
    rs_time open = x->phase == RS_PHASE_PATCHING ? now : rs_window_due(x, now);
    if (x->phase == RS_PHASE_PATCHING && !rs_repair_tail_sends(x)) {
        rs_data_stop(node, x);
        return;
    }
    due = open > due ? open : due;
    if (due > now) {
        rs_list_remove(&x->in_ready);
        rs_timer_set(&node->data_timers, &x->data_timer, due);
        return;
    }
    rs_timer_set(&node->data_timers, &x->data_timer, RS_NEVER);
    rs_list_append(&node->ready, &x->in_ready);
}

rs_time rs_data_deadline(const rs_node *node) {
    const rs_timer *first = rs_timers_first(&node->data_timers);
    rs_time due = first ? first->due : RS_NEVER;
    if (node->held)
        due = RS_NEVER;
    if ((!node->held && !rs_list_empty(&node->ready)) || !rs_list_empty(&node->patching) ||
        !rs_list_empty(&node->mending))
        due = rs_pacer_due(&node->nic) < due ? rs_pacer_due(&node->nic) : due;
    return due;
}

void rs_data_packet(const rs_sending *x, const rs_data_header *header, rs_packet_out *out) {
    rs_wire_encode_data(header, out->header);
    out->channel = RS_CH_GROUP;
    out->peer = RS_NO_PEER;
    out->group = x->grant.group;
    out->xfer = x->t.id;
    out->header_length = RS_DATA_HEADER;
    out->payload_offset = header->sn * x->t.fragment_size;
    out->payload_length = rs_fragment_length(&x->t, header->sn);
    out->combine.count = 0;
}

static void data_packet(rs_time now, rs_sending *x, rs_packet_out *out) {
    uint64_t sn = x->first + x->pos % (x->end - x->first);
    rs_data_header header = {.session = x->t.session, .nonce = x->t.nonce, .sn = sn};
    if (sn == 0 || sn == x->first) {
        header.flags |= RS_DATA_FIRST;
        header.aux = x->t.size;
    }
    if (x->phase == RS_PHASE_ATTEMPT)
        header.flags |= RS_DATA_ATTEMPT;
    else if (rs_marks_packet(&x->marks, now, x->pos, x->pos + 1 >= x->window_pos || x->pos + 1 == x->stop_pos))
        header.flags |= RS_DATA_REPORT;
    rs_data_packet(x, &header, out);
}

static uint32_t on_wire(const rs_packet_out *out) {
    return out->header_length + out->payload_length + RS_WIRE_OVERHEAD;
}

static void attempt_sent(rs_time now, rs_sending *x) {
    x->stats.packets_attempt++;
    x->attempts++;
    if (x->attempt_slows && x->attempts % 64 == 0 && x->attempt_interval < 5 * RS_MS)
        x->attempt_interval *= 2;
    x->attempt_due += x->attempt_interval;
    if (x->attempt_due <= now) /* the caller was late: do not catch up, a probe's worth is its time */
        x->attempt_due = now + x->attempt_interval;
}

/* A repair packet instead of a data packet. */
static bool poll_repair(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    if (!rs_repair_poll(node, now, x, out))
        return false;
    rs_pacer_sent(&node->nic, now, on_wire(out));
    rs_pacer_sent(&x->pacer, now, on_wire(out));
    rs_republic_schedule(node, now, x);
    return true;
}

bool rs_republic_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    if (poll_repair(node, now, x, out))
        return true;
    if (x->phase == RS_PHASE_PATCHING) {
        rs_data_stop(node, x);
        return false;
    }
    data_packet(now, x, out);
    rs_repair_data_sent(x);
    x->pos++;
    x->stats.packets_sent++;
    rs_pacer_sent(&node->nic, now, on_wire(out));
    if (x->phase == RS_PHASE_ATTEMPT) {
        attempt_sent(now, x);
    } else {
        if (rs_rate_tick(&x->rate, now))
            rs_rate_apply(node, x);
        rs_pacer_sent(&x->pacer, now, on_wire(out));
    }
    if (x->pos == x->stop_pos) { /* the round is whole: what follows is an event, and events come from rs_timeout */
        rs_data_stop(node, x);
        x->advance_due = now;
        rs_sender_arm(node, x);
        return true;
    }
    rs_republic_schedule(node, now, x);
    return true;
}

static bool poll_data(rs_node *node, rs_time now, rs_packet_out *out) {
    while (!rs_list_empty(&node->ready)) {
        rs_sending *x = RS_HOLDER(rs_sending, in_ready, node->ready.next);
        if (x->t.engine->poll(node, now, &x->t, RS_TURN_DATA, out))
            return true; /* if not, it is in the list no more */
    }
    return false;
}

void rs_node_hold(rs_node *node, rs_time now, bool held) {
    bool ends = node->held && !held;
    node->held = held;
    for (rs_list *at = node->sending.next; ends && at != &node->sending; at = at->next)
        rs_engine_notify(node, now, RS_HOLDER(rs_transfer, listed, at), RS_NEWS_RESUMED);
}

bool rs_poll_tx(rs_node *node, rs_time now, rs_packet_out *out) {
    if (rs_poll_talk(node, now, out) || rs_poll_acks(node, now, out))
        return true;
    for (rs_timer *t = rs_timers_first(&node->data_timers); t && t->due <= now; t = rs_timers_first(&node->data_timers))
        rs_engine_notify(node, now, &((rs_sending *)t->owner)->t, RS_NEWS_DATA_TIMER);
    if (!rs_pacer_ready(&node->nic, now))
        return false;
    bool patch_turn = node->held || node->data_in_row >= DATA_PER_PATCH || rs_list_empty(&node->ready);
    if (patch_turn && (rs_poll_patch(node, now, out) || rs_poll_repairs(node, now, out))) {
        node->data_in_row = 0;
        rs_pacer_sent(&node->nic, now, on_wire(out));
        return true;
    }
    if (!node->held && poll_data(node, now, out)) {
        node->data_in_row++;
        return true;
    }
    return false;
}
