/* The links of the network in virtual time: what nodes give out, and what becomes of it on the way. */
#include "net_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TCP_BYTES 90 /* of a segment on the wire, besides what it carries */

static void note_message(net *n, rs_peer from, rs_peer to, const uint8_t *bytes, size_t length, uint32_t payload) {
    net_said said = {.at = n->knobs.now, .from = from, .to = to, .payload_length = payload};
    assert_true(rs_wire_decode(bytes, length, payload, &said.message));
    if (n->knobs.quiet)
        return;
    n->said = grow(n->said, n->said_count, &n->said_capacity, sizeof *n->said);
    n->said[n->said_count++] = said;
}

/* What a sender's memory has changed leaves it wrong. */
static bool spoils(const net_server *s, uint64_t sn) {
    return sn >= s->spoils_from && sn < s->spoils_to;
}

void put_control(net *n, rs_peer from, const rs_packet_out *out) {
    net_connection *c = between(n, from, out->peer);
    int way = from < out->peer;
    assert_true(c->up);
    assert_false(c->full[way]); /* only for peers that are up and writable */
    note_message(n, from, out->peer, out->header, out->header_length, out->payload_length);
    hash(n, &n->knobs.now, sizeof n->knobs.now);
    hash(n, out->header, out->header_length);
    rs_time start = c->free_at[way] > n->knobs.now ? c->free_at[way] : n->knobs.now;
    uint64_t bytes = out->header_length + out->payload_length;
    if (n->knobs.control_rate_bps)
        start += (rs_time)(bytes * 8 * 1000000000 / (uint64_t)n->knobs.control_rate_bps);
    c->free_at[way] = start;
    rs_time arrives = start + n->knobs.control_delay;
    if (n->knobs.control_port_bps && out->payload_length == 0) {
        rs_time *port = &n->servers[out->peer].control_free;
        *port = *port > start ? *port : start;
        bytes += c->said_at[way] == n->knobs.now ? 0 : TCP_BYTES; /* what is said at once goes by one segment */
        *port += (rs_time)(bytes * 8 * 1000000000 / (uint64_t)n->knobs.control_port_bps);
        arrives = *port + n->knobs.control_delay;
    }
    net_item *i = item(DO_CONTROL, arrives, from, out->peer);
    c->said_at[way] = n->knobs.now;
    i->epoch = c->epoch;
    i->length = out->header_length;
    i->payload_length = out->payload_length;
    i->payload_offset = out->payload_offset;
    rs_message m;
    i->wrong = rs_wire_decode(out->header, out->header_length, out->payload_length, &m) && m.type == RS_MSG_PTCH_DATA &&
               spoils(&n->servers[from], m.ptch_data.sn);
    if (out->header_length > sizeof i->bytes) {
        i->more = malloc(out->header_length);
        memcpy(i->more, out->header, out->header_length);
    } else {
        memcpy(i->bytes, out->header, out->header_length);
    }
    push(n, i);
    rs_time backlog = n->knobs.control_rate_bps ? WRITABLE_BYTES * 8 * SEC / n->knobs.control_rate_bps : RS_NEVER;
    if (start - n->knobs.now > backlog) {
        c->full[way] = true;
        rs_peer_writable(n->servers[from].node, n->knobs.now, out->peer, false);
        net_item *drained = item(DO_DRAINED, start - backlog / 2, from, out->peer);
        drained->epoch = c->epoch;
        push(n, drained);
    }
}

static bool lost(net *n, rs_peer to, const rs_data_header *h) {
    net_server *s = &n->servers[to];
    if (n->knobs.now < s->dark_until)
        return true;
    if (n->knobs.now < s->ringing_until && net_random(n) < s->ringing_loss)
        return true;
    if (n->knobs.drop && n->knobs.drop(n, to, h, n->knobs.drop_context))
        return true;
    if (n->knobs.loss <= 0)
        return false;
    if (n->knobs.burst <= 1)
        return net_random(n) < n->knobs.loss;
    double leave = 1 / n->knobs.burst, enter = n->knobs.loss / (1 - n->knobs.loss) * leave; /* Gilbert */
    s->in_burst = net_random(n) < (s->in_burst ? 1 - leave : enter);
    return s->in_burst;
}

/* The sender's own port: a queue of bytes. False if it is full. */
static bool through_uplink(net *n, rs_peer from, const rs_packet_out *out, rs_time *at) {
    net_server *s = &n->servers[from];
    if (n->knobs.uplink_bps == 0)
        return true;
    double each = (out->payload_length + RS_DATA_HEADER + RS_WIRE_OVERHEAD) * 8e9 / (double)n->knobs.uplink_bps;
    rs_time start = s->uplink_free > n->knobs.now ? s->uplink_free : n->knobs.now;
    if ((double)(start - n->knobs.now) * (double)n->knobs.uplink_bps / 8e9 > (double)n->knobs.uplink_bytes) {
        n->knobs.uplink_drops++;
        return false;
    }
    s->uplink_free = start + (rs_time)each;
    *at = s->uplink_free;
    return true;
}

/* The port or socket in front of a slow server: a queue; what does not fit is lost. */
static bool through_bottleneck(net *n, rs_peer to, const rs_packet_out *out, rs_time *at) {
    net_server *s = &n->servers[to];
    if (s->bottleneck_bps == 0)
        return true;
    rs_time each = (rs_time)((uint64_t)(out->payload_length + RS_DATA_HEADER + RS_WIRE_OVERHEAD) * 8 * 1000000000 /
                             (uint64_t)s->bottleneck_bps);
    rs_time start = s->port_free > n->knobs.now ? s->port_free : n->knobs.now;
    if (start - n->knobs.now > each * s->buffer_packets) {
        n->due[to] = NOT_ASKED;
        if (s->at_socket)
            rs_receive_drops(s->node, n->knobs.now, out->group, 1);
        return false;
    }
    s->port_free = start + each;
    *at += start + each - n->knobs.now;
    return true;
}

/* Payloads are not modelled byte by byte: a payload is the set of pieces whose XOR it is. */
static void note_repair(net *n, const rs_packet_out *out) {
    rs_repair_header h;
    assert_true(rs_wire_decode_repair(out->header, out->header_length, &h));
    n->knobs.repair_packets += h.count > 0;
    assert_int_equal(out->combine.count, h.count > 1 ? h.count : 0);
    assert_true(h.count > 0 || out->payload_length == 0);
    for (uint32_t i = 0; i < out->combine.count; i++)
        assert_true(out->combine.length[i] <= out->payload_length);
}

net_store *store_of(net_server *s, rs_xfer xfer) {
    for (uint32_t i = 0; i < s->store_count; i++)
        if (s->stores[i].xfer == xfer)
            return &s->stores[i];
    return NULL;
}

void watch(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header, size_t length) {
    if (n->knobs.watch)
        n->knobs.watch(n, arrives, channel, from, to, header, length, n->knobs.watch_context);
}

void put_data(net *n, rs_peer from, const rs_packet_out *out) {
    rs_data_header h = {.flags = RS_DATA_REPAIR};
    assert_int_equal(out->header_length, rs_wire_data_header_length(out->header, out->header_length));
    n->knobs.data_packets++;
    if (out->header_length == RS_REPAIR_HEADER) {
        note_repair(n, out);
    } else {
        assert_true(rs_wire_decode_data(out->header, out->header_length, &h));
        n->last_sn = h.sn;
    }
    hash(n, &n->knobs.now, sizeof n->knobs.now);
    hash(n, out->header, out->header_length);
    watch(n, false, RS_CH_GROUP, from, ANYONE, out->header, out->header_length);
    rs_time leaves = n->knobs.now;
    if (!through_uplink(n, from, out, &leaves))
        return;
    for (rs_peer to = 0; to < n->server_count; to++) {
        bool hears = out->group == NET_GROUP || out->group == n->servers[to].group;
        if (to == from || !hears || n->servers[to].dead || n->servers[to].frozen || lost(n, to, &h))
            continue;
        rs_time at = leaves + n->knobs.data_delay;
        if (n->knobs.data_jitter)
            at += (rs_time)(net_random(n) * (double)n->knobs.data_jitter);
        if (!through_bottleneck(n, to, out, &at))
            continue;
        if (n->knobs.look)
            at = (at + n->knobs.look - 1) / n->knobs.look * n->knobs.look;
        int copies = n->knobs.duplicate > 0 && net_random(n) < n->knobs.duplicate ? 2 : 1;
        for (int copy = 0; copy < copies; copy++) {
            net_item *i = item(DO_DATA, at + copy * 20 * US, from, to);
            i->epoch = n->servers[to].epoch;
            i->length = out->header_length;
            i->payload_length = out->payload_length;
            i->payload_offset = out->payload_offset;
            i->wrong = out->header_length == RS_DATA_HEADER && spoils(&n->servers[from], h.sn);
            if (out->combine.count)
                i->combine = out->combine;
            i->group = out->group;
            memcpy(i->bytes, out->header, out->header_length);
            push(n, i);
        }
    }
}

/* A packet to one peer: lost, late, doubled like others. What it repairs must be there. */
void put_datagram(net *n, rs_peer from, const rs_packet_out *out) {
    if (out->peer >= n->server_count)
        return;
    net_server *s = &n->servers[from];
    rs_data_header h;
    bool wrong = false;
    hash(n, &n->knobs.now, sizeof n->knobs.now);
    hash(n, out->header, out->header_length);
    watch(n, false, out->channel, from, out->peer, out->header, out->header_length);
    if (rs_wire_decode_data(out->header, out->header_length, &h)) {
        const net_store *store = store_of(s, out->xfer);
        assert_true(!store || !store->done);
        assert_true(!store || store->stored[h.sn] != 0);
        wrong = store ? store->stored[h.sn] == WRONG : spoils(s, h.sn); /* the sender itself has no store */
    } else {
        assert_int_equal(out->payload_length, 0);
    }
    if (s->mute || n->servers[out->peer].mute || net_random(n) < n->knobs.peer_loss)
        return;
    int copies = n->knobs.duplicate > 0 && net_random(n) < n->knobs.duplicate ? 2 : 1;
    for (int copy = 0; copy < copies; copy++) {
        rs_time at = n->knobs.now + n->knobs.data_delay + copy * 20 * US;
        if (n->knobs.data_jitter)
            at += (rs_time)(net_random(n) * (double)n->knobs.data_jitter);
        net_item *i = item(DO_DATAGRAM, at, from, out->peer);
        i->epoch = n->servers[out->peer].epoch;
        i->wrong = wrong;
        i->length = out->header_length;
        i->payload_length = out->payload_length;
        i->payload_offset = out->payload_offset;
        i->more = malloc(out->header_length);
        memcpy(i->more, out->header, out->header_length);
        push(n, i);
    }
}
