/* A host: the protocol node of agent/core, fed with packets and time, and the application and manager beside it. */
#include "engine/state.h"

#include <string.h>

#define STUCK 64 /* turns at one time without the deadline moving: the engine hangs */

static void note(sim *s, const host *h, const rs_event *e, sim_note_kind kind, uint64_t value) {
    s->notes = sim_grow(s, s->notes, s->note_count, &s->note_capacity, sizeof *s->notes);
    s->notes[s->note_count++] = (sim_note){.at = s->now,
                                           .value = value,
                                           .host = h->place,
                                           .peer = e->peer == RS_NO_PEER ? SIM_ERROR : e->peer,
                                           .kind = kind,
                                           .transfer = e->xfer};
}

static void remember(sim *s, host *h, uint64_t object, rs_xfer xfer) {
    for (uint32_t i = 0; i < h->receiving_count; i++)
        if (h->receivings[i].object == object) {
            h->receivings[i].xfer = xfer;
            return;
        }
    uint64_t capacity = h->receiving_capacity;
    h->receivings = sim_grow(s, h->receivings, h->receiving_count, &capacity, sizeof *h->receivings);
    h->receiving_capacity = (uint32_t)capacity;
    h->receivings[h->receiving_count++] = (receiving){object, xfer};
}

static void incoming(sim *s, host *h, rs_xfer xfer) {
    rs_incoming info;
    if (rs_incoming_info(h->node, xfer, &info) != RS_OK)
        return;
    remember(s, h, info.object.data, xfer);
    rs_group group = info.group_address ? info.group_address : RS_NO_GROUP;
    if (rs_incoming_accept(h->node, s->now, xfer, group, h->room) != RS_OK)
        rs_incoming_refuse(h->node, s->now, xfer, "out of memory");
}

static void told(sim *s, host *h, const rs_event *e) {
    switch (e->kind) {
    case RS_EV_PATH_WANTED:
        note(s, h, e, SIM_NOTE_PATH_WANTED, e->bytes);
        if (h->has_path)
            thing_put(s, s->now + h->path.manager_delay_ns, THING_GRANT, h->place, 0, e->xfer, NULL);
        break;
    case RS_EV_PHASE:
        note(s, h, e, SIM_NOTE_PHASE, e->phase);
        break;
    case RS_EV_FIRST_LIGHT:
        note(s, h, e, SIM_NOTE_FIRST_LIGHT, e->sn);
        break;
    case RS_EV_PEER_DONE:
        note(s, h, e, SIM_NOTE_PEER_DONE, e->bytes);
        break;
    case RS_EV_PEER_FAILED:
        note(s, h, e, SIM_NOTE_PEER_FAILED, 0);
        break;
    case RS_EV_PATH_DONE:
        note(s, h, e, SIM_NOTE_PATH_DONE, 0);
        break;
    case RS_EV_SEND_DONE:
        note(s, h, e, SIM_NOTE_SEND_DONE, e->bytes);
        s->sent = true;
        break;
    case RS_EV_INCOMING:
    case RS_EV_SESSION:
        incoming(s, h, e->xfer);
        break;
    case RS_EV_COMPLETE:
        note(s, h, e, SIM_NOTE_COMPLETE, 0);
        rs_verified(h->node, s->now, e->xfer, true, NULL);
        break;
    case RS_EV_RECEIVE_DONE:
        note(s, h, e, SIM_NOTE_RECEIVE_DONE, e->ok);
        break;
    case RS_EV_PEER_WANTED:
        connection_open(s, h->place, e->peer);
        break;
    case RS_EV_NO_LIGHT:
    case RS_EV_LOG:
        break;
    }
}

static void put_out(sim *s, host *h, const rs_packet_out *out) {
    packet_kind kind = out->channel == RS_CH_GROUP           ? PACKET_GROUP
                       : out->channel == RS_CH_PEER_RELIABLE ? PACKET_CONTROL
                                                             : PACKET_DATAGRAM;
    packet *p = packet_new(s, kind, out->header_length);
    memcpy(p->header, out->header, out->header_length);
    p->from = h->place;
    p->payload_length = out->payload_length;
    p->payload_offset = out->payload_offset;
    p->wire_bytes = out->header_length + out->payload_length +
                    (kind == PACKET_CONTROL ? (uint32_t)SIM_TCP_OVERHEAD : (uint32_t)SIM_UDP_OVERHEAD);
    if (kind == PACKET_GROUP) {
        p->group = out->group;
        network_send(s, h->place, p);
        return;
    }
    p->to = out->peer;
    if (kind == PACKET_CONTROL)
        connection_send(s, h->place, out->peer, p);
    else
        network_send(s, h->place, p);
}

static uint32_t index_of(const sim *s, const host *h) {
    return s->places[h->place].host_index;
}

void host_pump(sim *s, host *h) {
    rs_event event;
    rs_packet_out out;
    uint32_t index = index_of(s, h);
    if (s->places[h->place].crashed)
        return;
    for (bool any = true; any;) {
        any = false;
        for (; rs_poll_event(h->node, &event); any = true)
            told(s, h, &event);
        for (; rs_poll_tx(h->node, s->now, &out); any = true)
            put_out(s, h, &out);
    }
    calendar_set(&s->calendar, source_of_host(index), rs_deadline(h->node));
}

void host_due(sim *s, host *h) {
    for (int turns = 0; rs_deadline(h->node) <= s->now; turns++) {
        if (turns == STUCK) {
            s->failed = true;
            sim_fail(s, "the engine of host %u does not move past its deadline", h->place);
            return;
        }
        rs_timeout(h->node, s->now);
        host_pump(s, h);
    }
    calendar_set(&s->calendar, source_of_host(index_of(s, h)), rs_deadline(h->node));
}

void host_receive(sim *s, host *h, packet *p) {
    static const rs_channel channels[] = {RS_CH_GROUP, RS_CH_PEER_DATAGRAM, RS_CH_PEER_RELIABLE};
    rs_packet_in in = {.channel = channels[p->kind],
                       .peer = p->kind == PACKET_GROUP ? RS_NO_PEER : p->from,
                       .group = p->group,
                       .header = p->header,
                       .header_length = p->header_length,
                       .payload_length = p->payload_length};
    rs_rx_result r = rs_receive(h->node, s->now, &in);
    if (r.verdict == RS_RX_BAD) {
        s->failed = true;
        sim_fail(s, "host %u finds a packet of host %u malformed", h->place, p->from);
    } else if (r.verdict == RS_RX_STORE && (r.offset != p->payload_offset || r.length != p->payload_length)) {
        s->failed = true;
        sim_fail(s, "host %u would store a fragment at the wrong place", h->place);
    }
    host_pump(s, h);
}

void host_granted(sim *s, host *h, rs_xfer xfer) {
    rs_path_grant grant = {.group = h->path.group,
                           .group_address = h->path.group,
                           .data_port = 7070,
                           .accepted_size = h->path.accepted_bytes ? h->path.accepted_bytes : UINT64_MAX,
                           .kind = h->path.circuit ? RS_PATH_CIRCUIT : RS_PATH_PACKET,
                           .reconfiguration = h->path.reconfiguration_ns,
                           .rate_bps = h->path.rate_bps,
                           .light_bound = h->path.light_bound_ns};
    rs_path_granted(h->node, s->now, xfer, &grant);
    host_pump(s, h);
}
