/* The pump: what the core has to say goes to those who do it, packets to their roads. Only here is the core asked. */
#include "daemon/agent.h"
#include "daemon/data/combine.h"
#include "daemon/streams/streams.h"

#define PUMP_PACKETS 1024u /* packets fetched from the core before sockets are looked at again */

static void peer_wanted(rs_agent *agent, rs_peer peer) {
    if (rs_control_is_up(agent->control, peer))
        rs_peer_up(agent->node, rs_agent_now(agent), peer);
    else
        rs_control_want(agent->control, peer);
}

static void stream_moved(rs_agent *agent, rs_xfer xfer) {
    const rs_transfer *transfer = rs_transfers_find(&agent->transfers, xfer);
    if (transfer && transfer->source)
        rs_stream_source_moved(transfer->source);
    if (transfer && transfer->sink)
        rs_stream_sink_moved(transfer->sink);
}

static void handle_event(rs_agent *agent, const rs_event *event) {
    switch (event->kind) {
    case RS_EV_PATH_WANTED:
    case RS_EV_PHASE:
    case RS_EV_FIRST_LIGHT:
    case RS_EV_NO_LIGHT:
    case RS_EV_PEER_DONE:
    case RS_EV_PEER_FAILED:
    case RS_EV_PATH_DONE:
    case RS_EV_SEND_DONE:
    case RS_EV_RETAKE:
        rs_sending_event(agent, event);
        break;
    case RS_EV_INCOMING:
    case RS_EV_SESSION:
    case RS_EV_COMPLETE:
    case RS_EV_DIGEST:
    case RS_EV_RECEIVE_DONE:
        rs_receiving_event(agent, event);
        break;
    case RS_EV_PEER_WANTED:
        peer_wanted(agent, event->peer);
        break;
    case RS_EV_RECEIVER_FAILED:
    case RS_EV_LINK_SUSPECTED:
    case RS_EV_LINK_WORKS:
    case RS_EV_VIEW_USED:
        rs_overlay_event(agent->overlay, event);
        break;
    case RS_EV_STREAM_MOVED:
        stream_moved(agent, event->xfer);
        break;
    case RS_EV_LOG: {
        const rs_transfer *transfer = rs_transfers_find(&agent->transfers, event->xfer);
        rs_log(RS_LOG_INFO, "core", "object=%s %s", transfer ? rs_id_text(&transfer->id) : "-", event->cause);
        break;
    }
    }
}

static void send_message(rs_agent *agent, const rs_packet_out *out) {
    rs_connection_payload payload = {0};
    if (out->payload_length > 0) {
        rs_transfer *transfer = rs_transfers_find(&agent->transfers, out->xfer);
        const uint8_t *at = transfer ? rs_transfer_payload(transfer, out->payload_offset) : NULL;
        if (!at)
            return;
        payload = (rs_connection_payload){.map = at,
                                          .fd = transfer->object ? transfer->object->fd : -1,
                                          .offset = out->payload_offset,
                                          .length = out->payload_length};
        rs_sending_count(transfer, out->payload_length);
    }
    rs_control_send(agent->control, out->peer, out->header, out->header_length, out->payload_length ? &payload : NULL);
}

void rs_agent_unreadable(void *context, rs_xfer xfer) {
    rs_agent *agent = context;
    rs_transfer *transfer = rs_transfers_find(&agent->transfers, xfer);
    if (transfer && transfer->sending)
        rs_sending_cancel(agent, transfer, "the object's file became shorter while it was being sent");
}

static void send_data(rs_agent *agent, const rs_packet_out *out) {
    rs_transfer *transfer = rs_transfers_find(&agent->transfers, out->xfer);
    const uint8_t *payload =
        transfer && out->payload_length ? rs_transfer_payload(transfer, out->payload_offset) : NULL;
    if (!transfer || (out->payload_length > 0 && !payload))
        return;
    if (out->combine.count > 0) {
        uint8_t *room = rs_data_payload_room(agent->data);
        if (!rs_combine_make(room, out->payload_length, transfer->object->map, &out->combine)) {
            rs_agent_unreadable(agent, out->xfer);
            return;
        }
        payload = room;
    }
    rs_sending_count(transfer, out->payload_length);
    rs_data_push(agent->data, payload);
}

static void send_to_peer(rs_agent *agent, const rs_packet_out *out) {
    const rs_transfer *transfer = rs_transfers_find(&agent->transfers, out->xfer);
    const uint8_t *payload =
        transfer && out->payload_length ? rs_transfer_payload(transfer, out->payload_offset) : NULL;
    if (out->payload_length == 0 || payload)
        rs_overlay_send(agent->overlay, out, payload);
}

/* True: packets went out. */
static bool pump_packets(rs_agent *agent) {
    unsigned count = 0;
    rs_packet_out *out;
    while (count < PUMP_PACKETS && (out = rs_data_slot(agent->data)) &&
           rs_poll_tx(agent->node, rs_agent_now(agent), out)) {
        if (out->channel == RS_CH_GROUP)
            send_data(agent, out);
        else if (out->channel == RS_CH_PEER_RELIABLE)
            send_message(agent, out);
        else
            send_to_peer(agent, out);
        count++;
    }
    rs_data_flush(agent->data);
    rs_overlay_flush(agent->overlay);
    return count > 0;
}

void rs_agent_pump(rs_agent *agent) {
    bool more = true;
    for (unsigned rounds = 0; more && rounds < 16; rounds++) {
        rs_event event;
        more = false;
        while (rs_poll_event(agent->node, &event)) {
            handle_event(agent, &event);
            more = true;
        }
        more |= pump_packets(agent);
        more |= rs_groups_pump(agent->groups);
    }
}
