/* What leaves the node: control messages first, then data packets as pacers allow, round robin between transfers, with
 * patches in between. */
#include "core/transfer/engine.h"

#define DATA_PER_PATCH 4 /* when the NIC is the limit: patches must not stall the data channel */

void rs_data_stop(rs_node *node, rs_sending *x) {
    rs_timer_set(&node->data_timers, &x->data_timer, RS_NEVER);
    rs_list_remove(&x->in_ready);
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

uint32_t rs_wire_bytes(const rs_packet_out *out) {
    return out->header_length + out->payload_length + RS_WIRE_OVERHEAD;
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
        rs_pacer_sent(&node->nic, now, rs_wire_bytes(out));
        return true;
    }
    if (!node->held && poll_data(node, now, out)) {
        node->data_in_row++;
        return true;
    }
    return false;
}
