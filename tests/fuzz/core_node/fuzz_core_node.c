/* Three nodes on a network run by the fuzzer, two of which are called: the input is a program of calls, deliveries,
 * losses and forged packets. Checked besides the sanitizers: output ends, deadlines move, a fragment is stored once,
 * memory is given back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/wire.h"
#include "core/feedback/report.h"
#include "core/rdcm/options.h"
#include "core/rdcm/wire.h"
#include "core/transfer/node.h"
#include "core/wan/options.h"
#include "core/wan/wire.h"

#define NODES 3
#define FRAGMENTS_MOST 2048
#define QUEUE 256
#define POLLS_MOST 20000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const uint8_t *at;
    size_t left;
} bytes;

typedef struct {
    uint32_t from, to;
    rs_packet_out packet;
} flying;

typedef struct {
    bytes in;
    rs_node *node[NODES];
    rs_xfer last[NODES], incoming[NODES], complete[NODES];
    rs_time now;
    flying queue[QUEUE];
    uint32_t head, queued;
    uint64_t nonce;            /* of the OPEN that flew last */
    uint64_t token, challenge; /* that were said last by a datagram */
    uint8_t stored[NODES][FRAGMENTS_MOST];
    rs_xfer stored_of[NODES];
    int64_t outstanding;
} world;

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static uint64_t take(world *w, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count && w->in.left; i++, w->in.left--)
        value = value << 8 | *w->in.at++;
    return value;
}

static void *counted_alloc(void *context, size_t size) {
    ((world *)context)->outstanding++;
    return calloc(1, size);
}

static void counted_release(void *context, void *memory) {
    ((world *)context)->outstanding--;
    free(memory);
}

static rs_object_id object(world *w) {
    return (rs_object_id){.app = "fuzz", .data = take(w, 1) % 3};
}

/* Of a transfer under way, or of none, or of a forged one. */
static uint64_t nonce(world *w) {
    uint64_t choice = take(w, 1);
    return choice % 4 ? w->nonce : 1 + choice / 4 % 3;
}

static void receive(world *w, uint32_t to, const rs_packet_in *in) {
    rs_stream_piece piece;
    if (rs_stream_piece_of(w->node[to], in, &piece) && take(w, 1) % 4 == 0) {
        rs_stream_piece_refuse(w->node[to], w->now, in);
        return;
    }
    rs_rx_result r = rs_receive(w->node[to], w->now, in);
    if (r.verdict != RS_RX_STORE && r.verdict != RS_RX_COMBINE)
        return;
    must(r.verdict == RS_RX_COMBINE ? r.length <= in->payload_length : r.length == in->payload_length);
    if (r.xfer != w->stored_of[to]) {
        memset(w->stored[to], 0, sizeof w->stored[to]);
        w->stored_of[to] = r.xfer;
        return; /* transfers take turns: only the run of one is followed */
    }
    rs_incoming info;
    if (rs_incoming_info(w->node[to], r.xfer, &info) != RS_OK || info.fragment_size == 0)
        return;
    uint64_t first, here, end, sn = r.offset / info.fragment_size;
    if (rs_stream_window(w->node[to], r.xfer, &first, &here, &end) == RS_OK) {
        must(first <= here && here <= end && r.offset + r.length <= end); /* there is room for it */
        return;
    }
    must(sn < FRAGMENTS_MOST && !w->stored[to][sn]);
    w->stored[to][sn] = 1;
    if (r.verdict != RS_RX_COMBINE)
        return;
    must(r.combine->count > 0 && r.combine->count < RS_COMBINE_MAX);
    for (uint32_t i = 0; i < r.combine->count; i++) /* within the object, and none of them what is to be made */
        must(r.combine->length[i] <= r.length && r.combine->offset[i] != r.offset &&
             r.combine->offset[i] + r.combine->length[i] <= info.size);
}

static void deliver(world *w, uint32_t which) {
    flying f = w->queue[(w->head + which) % QUEUE]; /* overtakes those before it; the first one takes its place */
    if (which)
        w->queue[(w->head + which) % QUEUE] = w->queue[w->head];
    w->head = (w->head + 1) % QUEUE;
    w->queued--;
    rs_packet_in in = {.channel = f.packet.channel,
                       .peer = f.packet.channel == RS_CH_GROUP ? RS_NO_PEER : f.from,
                       .group = f.packet.group,
                       .header = f.packet.header,
                       .header_length = f.packet.header_length,
                       .payload_length = f.packet.payload_length};
    receive(w, f.to, &in);
}

static void answer(world *w, uint32_t n, const rs_event *e) {
    rs_incoming info;
    if (e->kind == RS_EV_INCOMING) {
        w->incoming[n] = e->xfer;
        if (rs_incoming_info(w->node[n], e->xfer, &info) != RS_OK)
            return; /* ended before its event was polled */
        if (info.size != RS_STREAM && info.size / info.fragment_size >= FRAGMENTS_MOST)
            rs_incoming_refuse(w->node[n], w->now, e->xfer, "too large");
        else if (take(w, 1) % 4)
            rs_incoming_accept(w->node[n], w->now, e->xfer, 1, 1 << 20);
    } else if (e->kind == RS_EV_COMPLETE) {
        w->complete[n] = e->xfer;
        uint64_t choice = take(w, 1);
        if (choice >= 240) { /* a digest is wrong */
            uint64_t offset = take(w, 2), length = take(w, 2);
            if (choice % 2)
                rs_leaves_want(w->node[n], w->now, e->xfer, take(w, 1), (uint16_t)take(w, 1), choice & 2);
            if (rs_fetch_again(w->node[n], w->now, e->xfer, &offset, &length) == RS_OK)
                memset(w->stored[n], 0, sizeof w->stored[n]);
        } else if (choice % 4)
            rs_verified(w->node[n], w->now, e->xfer, true, "");
    } else if (e->kind == RS_EV_RETAKE) {
        rs_send_retaken(w->node[n], w->now, e->xfer, e->peer, e->sn, take(w, 1) % 4);
    } else if (e->kind == RS_EV_PEER_WANTED && take(w, 1) % 4) {
        rs_peer_up(w->node[n], w->now, e->peer);
    }
}

/* Lets a node say and send what it has. The polls end, or the node talks for ever. */
static void pump(world *w, uint32_t n) {
    uint32_t polls = 0;
    rs_packet_out out;
    rs_event event;
    for (bool any = true; any;) {
        any = false;
        while (rs_poll_event(w->node[n], &event)) {
            must(memchr(event.cause, 0, sizeof event.cause) != NULL);
            answer(w, n, &event);
            any = true;
            must(++polls < POLLS_MOST);
        }
        while (rs_poll_tx(w->node[n], w->now, &out)) {
            any = true;
            must(++polls < POLLS_MOST && out.header_length <= RS_HEADER_MAX);
            rs_message m;
            if (out.channel == RS_CH_PEER_RELIABLE &&
                rs_wire_decode(out.header, out.header_length, out.payload_length, &m) && m.type == RS_MSG_OPEN)
                w->nonce = m.nonce;
            rs_said_proof proof;
            rs_told told;
            if (out.channel == RS_CH_PEER_DATAGRAM && rs_said_decode(out.header, out.header_length, &m, &proof))
                w->challenge = proof.challenge;
            if (out.channel == RS_CH_PEER_DATAGRAM && rs_told_decode(out.header, out.header_length, &told))
                w->token = told.token;
            for (uint32_t to = 0; to < NODES; to++)
                if (w->queued < QUEUE && to != n && (out.channel == RS_CH_GROUP || out.peer == to))
                    w->queue[(w->head + w->queued++) % QUEUE] = (flying){n, to, out};
        }
    }
}

static void wake(world *w, uint32_t n) {
    for (int turns = 0; rs_deadline(w->node[n]) <= w->now; turns++) {
        must(turns < 16);
        rs_timeout(w->node[n], w->now);
        pump(w, n);
    }
}

static void forge_open(world *w, rs_message *m, uint64_t a, uint64_t b) {
    m->open.object = object(w);
    m->open.size = take(w, 1) % 8 ? a : a << 40;
    m->open.fragment_size = 1 + (uint32_t)(b % 300);
    m->open.first = take(w, 1) % 8;
    m->open.end = m->open.first + 1 + take(w, 1);
    m->open.engine = (uint8_t)(take(w, 1) % 3);
    m->open.path_kind = m->open.engine == RS_PROTOCOL_RDCM ? RS_PATH_PACKET : (uint8_t)(take(w, 1) % 4);
    m->open.group_address = m->open.path_kind ? 0xe0000005 : 0;
    m->open.light_confirm = (uint8_t)(1 + take(w, 1) % 3);
    if (m->open.engine == RS_PROTOCOL_RDCM && take(w, 1) % 4 == 0) {
        m->open.size = RS_STREAM;
        m->open.first = 0;
        m->open.end = RS_STREAM_FRAGMENTS;
    }
}

static void forge_carried(world *w, rs_message *m, uint64_t a, uint64_t b) {
    const rs_message_type types[] = {RS_MSG_OPEN, RS_MSG_OPEN_ACK, RS_MSG_INTL_SEQ, RS_MSG_DATA_FNSD,
                                     RS_MSG_PING, RS_MSG_PONG,     RS_MSG_ABORT,    RS_MSG_REPORT_TO};
    rs_message said = {.type = types[a % 8], .nonce = m->nonce, .session = m->session};
    rs_wire_inner inner = {0};
    if (m->type == RS_MSG_CARRY_TO) {
        m->carry_to.first = (uint16_t)(a % 4);
        m->carry_to.count = (uint8_t)(1 + b % 4);
        for (uint32_t i = 0; i < m->carry_to.count; i++)
            m->carry_to.places[i] = (rs_wire_place){1 + (uint32_t)(take(w, 1) % 4), 1};
        return;
    }
    if (said.type == RS_MSG_OPEN)
        forge_open(w, &said, take(w, 2), b);
    else if (said.type == RS_MSG_INTL_SEQ)
        said.intl_seq.sn = b;
    rs_wire_inner_set(&inner, &said);
    if (m->type == RS_MSG_CARRY) {
        m->carry.bytes = 1;
        m->carry.set[0] = (uint8_t)(1 + b % 15);
        m->carry.inner = inner;
    } else {
        m->carried.sender = (rs_wire_place){(uint32_t)(b % 5), b % 5 ? 1 : 0};
        m->carried.inner = inner;
    }
}

/* A well-formed message that nobody sent, its fields as the input says. */
static void forge(world *w, uint32_t to) {
    rs_message m;
    uint8_t header[RS_HEADER_MAX];
    memset(&m, 0, sizeof m);
    m.type = (rs_message_type)(1 + take(w, 1) % RS_MSG_CARRIED);
    m.nonce = nonce(w);
    m.session = (uint32_t)(take(w, 1) % 5);
    if (m.session == 4)
        m.session = RS_SESSION_OBJECT;
    uint64_t a = take(w, 2), b = take(w, 2);
    uint32_t payload = 0;
    if (m.type == RS_MSG_OPEN) {
        forge_open(w, &m, a, b);
    } else if (m.type == RS_MSG_PTCH_DATA) {
        m.ptch_data.sn = a;
        payload = (uint32_t)(b % 1500);
    } else if (m.type == RS_MSG_PTCH_MAP) {
        m.ptch_map.from = a;
        m.ptch_map.base = a + b % 300;
        m.ptch_map.number = (uint32_t)(b % 5);
        m.ptch_map.last = b % 2;
        m.ptch_map.bits = 24;
        for (int i = 0; i < 3; i++)
            m.ptch_map.map[i] = (uint8_t)take(w, 1);
    } else if (m.type == RS_MSG_LEAF_REQ) {
        m.leaf_req.first = a;
        m.leaf_req.count = (uint16_t)(1 + b % 40);
        m.leaf_req.retake = m.leaf_req.count == 1;
    } else if (m.type == RS_MSG_LEAVES) {
        m.leaves.first = a;
        m.leaves.count = (uint16_t)(1 + b % 28);
        m.leaves.width = 16;
    } else if (m.type == RS_MSG_REPORT_TO && a % 8) {
        m.report_to.on = true;
        m.report_to.height = (uint8_t)(b % 4);
        m.report_to.sample_us = 1 + (uint32_t)(b % 1000);
        m.report_to.parent = (rs_wire_place){(uint32_t)(a % 5), a % 5 ? 1 : 0};
        m.report_to.count = (uint8_t)(take(w, 1) % 4);
        for (uint32_t i = 0; i < m.report_to.count; i++)
            m.report_to.children[i] = (rs_wire_place){1 + (uint32_t)(take(w, 1) % 4), 1};
    } else if (m.type == RS_MSG_NAME) {
        m.name.object = object(w);
        m.name.length = (uint16_t)(a % (RS_NAME_MAX + 2));
    } else if (m.type == RS_MSG_KEY) {
        m.key.epoch = (uint16_t)a;
    } else if (m.type >= RS_MSG_CARRY_TO) {
        forge_carried(w, &m, a, b);
    } else if (m.type == RS_MSG_REPORT_TO) {
        m.report_to.on = false;
    } else if (m.type == RS_MSG_OPEN_ACK || m.type == RS_MSG_DATA_RCVD) {
        m.open_ack.status = m.data_rcvd.status = (uint8_t)(a % (m.type == RS_MSG_OPEN_ACK ? 4 : 3));
        rs_wire_cause_set(m.type == RS_MSG_OPEN_ACK ? &m.open_ack.cause : &m.data_rcvd.cause, "\x1b[2J forged");
    } else if (m.type != RS_MSG_ABORT && m.type != RS_MSG_HELLO) {
        m.ptch_req.start = a;
        m.ptch_req.end = b;
        if (m.type == RS_MSG_RATE)
            m.rate.share_bps = take(w, 8) >> 14;
        m.rate.receivers = m.type == RS_MSG_RATE;
    }
    size_t length = rs_wire_encode(&m, payload, header, sizeof header);
    rs_packet_in in = {.channel = RS_CH_PEER_RELIABLE,
                       .peer = (rs_peer)(take(w, 1) % 3),
                       .header = header,
                       .header_length = length,
                       .payload_length = payload};
    if (length)
        receive(w, to, &in);
}

static void forge_data(world *w, uint32_t to) {
    uint8_t header[RS_DATA_HEADER];
    rs_data_header h = {.nonce = nonce(w), .session = (uint32_t)(take(w, 1) % 4), .sn = take(w, 2)};
    h.flags = (uint8_t)(take(w, 1) % 4);
    h.aux = h.flags & RS_DATA_FIRST ? take(w, 2) : 0;
    rs_wire_encode_data(&h, header);
    rs_packet_in in = {.channel = RS_CH_GROUP,
                       .peer = RS_NO_PEER,
                       .group = 1,
                       .header = header,
                       .header_length = sizeof header,
                       .payload_length = (uint32_t)take(w, 2) % 1500};
    receive(w, to, &in);
}

/* What a receiver without a connection says, or is told: some of it as the node itself would say it. */
static size_t forge_said(world *w, uint8_t *header) {
    const rs_message_type types[] = {RS_MSG_RATE, RS_MSG_DATA_RCVD, RS_MSG_PING};
    rs_said_proof proof = {.token = w->token ? w->token : take(w, 1), .challenge = take(w, 1)};
    if (take(w, 1) % 2) {
        const rs_told told = {.nonce = nonce(w),
                              .session = (uint32_t)(take(w, 1) % 3),
                              .challenge = w->challenge ? w->challenge : 1,
                              .token = 1 + take(w, 1),
                              .print = 1 + take(w, 1),
                              .digest_print = take(w, 1)};
        return rs_told_encode(&told, header);
    }
    rs_message m = {.type = types[take(w, 1) % 3], .nonce = nonce(w), .session = (uint32_t)(take(w, 1) % 3)};
    if (m.type == RS_MSG_RATE) {
        m.rate.highest = take(w, 1);
        m.rate.receivers = 1;
    }
    return rs_said_encode(&m, &proof, header);
}

static void forge_report(world *w, uint32_t to) {
    uint8_t header[RS_HEADER_MAX];
    size_t length;
    uint64_t kind = take(w, 1) % 4;
    if (kind == 3) {
        length = forge_said(w, header);
    } else if (kind) {
        rs_report r = {.nonce = nonce(w), .session = (uint32_t)(take(w, 1) % 3), .receivers = 1};
        r.flags = (uint32_t)(take(w, 1) % 16);
        r.highest = take(w, 1);
        r.received = take(w, 1);
        r.repairs = take(w, 1);
        r.at = take(w, 3);
        r.least = take(w, 1);
        r.least_of = (uint32_t)(take(w, 1) % 5);
        r.lossy_ppm = (uint32_t)(take(w, 1) << 11);
        r.lossy_of = (uint32_t)(take(w, 1) % 5);
        r.silent = (uint32_t)(take(w, 1) % 5);
        r.share_bps = take(w, 5);
        length = rs_report_encode(&r, header);
    } else {
        rs_repair_request r = {.nonce = nonce(w), .count = 1 + (uint32_t)(take(w, 1) % RS_REQUEST_RANGES)};
        for (uint32_t i = 0; i < r.count; i++) {
            r.range[i].from = take(w, 1);
            r.range[i].to = r.range[i].from + 1 + take(w, 1) % 8;
        }
        length = rs_request_encode(&r, header);
    }
    rs_packet_in in = {.channel = RS_CH_PEER_DATAGRAM,
                       .peer = (rs_peer)(take(w, 1) % 3),
                       .group = RS_NO_GROUP,
                       .header = header,
                       .header_length = length};
    receive(w, to, &in);
}

/* Peers are at their numbers + 1. */
static rs_peer peer_at(void *context, uint32_t address, uint16_t port) {
    (void)context;
    (void)port;
    return address - 1;
}

static bool place_of(void *context, rs_peer peer, uint32_t *address, uint16_t *port) {
    (void)context;
    *address = peer + 1;
    *port = 1;
    return true;
}

static void forge_repair(world *w, uint32_t to) {
    uint8_t header[RS_REPAIR_HEADER];
    rs_repair_header h = {.nonce = nonce(w),
                          .session = (uint32_t)(take(w, 1) % 4),
                          .number = 1 + (uint32_t)take(w, 1),
                          .count = (uint32_t)(take(w, 1) % (RS_COMBINE_MAX + 1))};
    uint64_t flags = take(w, 1);
    h.mark = flags & 1 || h.count == 0;
    h.done = flags & 2;
    h.member[0] = h.count ? take(w, 2) : 0;
    for (uint32_t i = 1; i < h.count; i++)
        h.member[i] = h.member[i - 1] + 1 + take(w, 1) % 255;
    rs_wire_encode_repair(&h, header);
    rs_packet_in in = {.channel = RS_CH_GROUP,
                       .peer = RS_NO_PEER,
                       .group = 1,
                       .header = header,
                       .header_length = sizeof header,
                       .payload_length = (uint32_t)take(w, 2) % 1500};
    receive(w, to, &in);
}

static rs_peer some_peer(world *w) {
    uint32_t peer = (uint32_t)(take(w, 1) % 4);
    return peer == 3 ? RS_NO_PEER : peer;
}

/* A view of an overlay that no manager would make. */
static void view(world *w, uint32_t n) {
    const rs_peer children[] = {some_peer(w), some_peer(w), some_peer(w)};
    const rs_ring_place leaf = {some_peer(w), some_peer(w), some_peer(w)};
    const rs_ring_place proxy = {some_peer(w), some_peer(w), some_peer(w)};
    const rs_view v = {.version = take(w, 1),
                       .leaf = leaf,
                       .proxy = proxy,
                       .children = children,
                       .child_count = (uint32_t)(take(w, 1) % 4)};
    rs_set_view(w->node[n], w->now, take(w, 1) % 2 ? w->last[n] : w->incoming[n], &v);
}

static void forge_status(world *w, uint32_t to) {
    uint8_t header[RS_HEADER_MAX];
    rs_wan_status s = {.nonce = nonce(w), .session = (uint32_t)(take(w, 1) % 3), .receivers = 1};
    s.next = take(w, 2);
    s.cum = take(w, 1) % 8 ? take(w, 2) : take(w, 8) >> 3;
    s.received = s.next + take(w, 1);
    s.stamp_us = take(w, 5);
    s.at = take(w, 8) >> 3;
    s.waited_us = (uint32_t)take(w, 4);
    s.receivers += s.waited_us % 3;
    s.nack_count = (uint32_t)(take(w, 1) % (RS_WAN_NACKS + 1));
    for (uint32_t i = 0; i < s.nack_count; i++) {
        s.nacks[i].base = take(w, 2);
        s.nacks[i].bits = 9;
        s.nacks[i].map[0] = (uint8_t)(take(w, 1) | 1);
        s.nacks[i].map[1] = 1;
    }
    rs_packet_in in = {.channel = RS_CH_PEER_DATAGRAM,
                       .peer = (rs_peer)(take(w, 1) % 3),
                       .header = header,
                       .header_length = rs_wan_encode_status(&s, header)};
    receive(w, to, &in);
}

static void forge_ack(world *w, uint32_t to) {
    uint8_t header[RS_ACK_HEADER + 8 * RS_ACK_WORDS];
    rs_ack ack = {.flags = (uint8_t)(take(w, 1) % 128), .nonce = nonce(w), .version = take(w, 1)};
    if (ack.version % 4 == 3) {
        forge_status(w, to);
        return;
    }
    ack.cum = take(w, 1) % 8 ? take(w, 1) : take(w, 8) >> 3;
    ack.expected = take(w, 1) % 8 ? take(w, 2) : take(w, 8);
    ack.base = (take(w, 1) % 8 ? take(w, 1) : take(w, 7)) / 64 * 64;
    ack.words = (uint32_t)(take(w, 1) % 4);
    for (uint32_t i = 0; i < ack.words; i++)
        ack.map[i] = take(w, 8);
    rs_packet_in in = {.channel = RS_CH_PEER_DATAGRAM,
                       .peer = (rs_peer)(take(w, 1) % 3),
                       .header = header,
                       .header_length = rs_ack_encode(&ack, header)};
    receive(w, to, &in);
}

static void garbage(world *w, uint32_t to) {
    uint8_t header[80];
    size_t length = take(w, 1) % sizeof header;
    for (size_t i = 0; i < length; i++)
        header[i] = (uint8_t)take(w, 1);
    rs_packet_in in = {.channel = (rs_channel)(take(w, 1) % 3),
                       .peer = (rs_peer)(take(w, 1) % 3),
                       .header = header,
                       .header_length = length,
                       .payload_length = (uint32_t)take(w, 1)};
    receive(w, to, &in);
}

static void open_transfer(world *w, uint32_t n) {
    const rs_peer receivers[] = {1 - n, 2, 7};
    rs_send_params params = {.object = object(w),
                             .size = take(w, 1) % 4 ? take(w, 2) : RS_STREAM,
                             .protocol = RS_PROTOCOL_RDCM,
                             .receivers = receivers,
                             .receiver_count = 1 + (uint32_t)take(w, 1) % 3};
    static const uint8_t leaves[40 * 16];
    rs_xfer xfer;
    if (take(w, 1) % 2)
        params.digest = (rs_digest){.algorithm = 1, .length = 16};
    if (rs_send_open(w->node[n], w->now, &params, &xfer) != RS_OK)
        return;
    w->last[n] = xfer;
    if (params.digest.length)
        rs_send_leaves(w->node[n], xfer, leaves, sizeof leaves / 16);
}

static void grant(world *w, uint32_t n) {
    rs_path_grant g = {.group = 1,
                       .group_address = 5,
                       .data_port = 7070,
                       .accepted_size = take(w, 2),
                       .kind = (rs_path_kind)(take(w, 1) % 3),
                       .reconfiguration = (rs_time)take(w, 1) * 1000000,
                       .rate_bps = (int64_t)take(w, 4),
                       .light_bound = (rs_time)take(w, 1) * 10000000};
    static const rs_protocol protocols[] = {RS_PROTOCOL_REPUBLIC, RS_PROTOCOL_RDCM, RS_PROTOCOL_WAN, RS_PROTOCOL_RDCM};
    if (g.kind == RS_PATH_PACKET)
        g.protocol = protocols[g.light_bound / 10000000 % 4];
    rs_path_granted(w->node[n], w->now, w->last[n], &g);
}

static void path_call(world *w, uint32_t n) {
    switch (take(w, 1) % 5) {
    case 0:
        rs_path_denied(w->node[n], w->now, w->last[n], "no");
        break;
    case 1:
        rs_path_moved(w->node[n], w->now, w->last[n], (rs_path_kind)(take(w, 1) % 3));
        break;
    case 2:
        rs_path_failed(w->node[n], w->now, w->last[n], NULL);
        break;
    case 3:
        rs_send_cancel(w->node[n], w->now, w->last[n], "enough");
        break;
    default:
        rs_receive_cancel(w->node[n], w->now, w->incoming[n], NULL);
    }
}

/* A batch of datagrams is written to the places predicted for it: none may be named twice. */
static void predict_two(world *w, uint32_t n) {
    uint32_t one = (uint32_t)take(w, 1), two = (uint32_t)take(w, 1), length;
    uint64_t offset, other;
    rs_xfer xfer, other_xfer;
    if (one != two && rs_predict(w->node[n], 1, one, &xfer, &offset, &length) &&
        rs_predict(w->node[n], 1, two, &other_xfer, &other, &length) && xfer == other_xfer && offset == other)
        abort();
}

/* Of a stream: more of it, its end, what was taken, at any time and of any size. */
static void stream_call(world *w, uint32_t n) {
    uint64_t what = take(w, 1), bytes = take(w, 1) * (what & 1 ? 100 : 33), first, here, end;
    rs_xfer in = what & 2 ? w->incoming[n] : w->last[n];
    if (what & 4)
        rs_stream_extend(w->node[n], w->now, w->last[n], what & 8 ? bytes << 8 : bytes, (what & 48) == 48);
    else if (rs_stream_window(w->node[n], in, &first, &here, &end) == RS_OK && what & 8)
        rs_stream_taken(w->node[n], w->now, in, here);
    else
        rs_stream_taken(w->node[n], w->now, in, bytes);
}

static void receiver_call(world *w, uint32_t n) {
    rs_xfer_stats stats;
    switch (take(w, 1) % 8) {
    case 0:
        rs_incoming_refuse(w->node[n], w->now, w->incoming[n], NULL);
        break;
    case 1:
        rs_incoming_have(w->node[n], w->now, w->incoming[n]);
        break;
    case 2:
        rs_verified(w->node[n], w->now, w->complete[n], take(w, 1) % 2, NULL);
        break;
    case 3:
        rs_receive_drops(w->node[n], w->now, 1, take(w, 1));
        break;
    case 4:
        predict_two(w, n);
        break;
    case 5:
    case 6:
        stream_call(w, n);
        break;
    default:
        rs_xfer_stats_get(w->node[n], take(w, 1) % 2 ? w->incoming[n] : w->last[n], &stats);
    }
}

static void peer_call(world *w, uint32_t n) {
    rs_peer peer = (rs_peer)(take(w, 1) % 3);
    switch (take(w, 1) % 4) {
    case 0:
        rs_peer_down(w->node[n], w->now, peer, "cut");
        break;
    case 1:
        rs_peer_writable(w->node[n], w->now, peer, take(w, 1) % 2);
        break;
    default:
        rs_peer_up(w->node[n], w->now, peer);
    }
}

static void pass_time(world *w) {
    uint64_t how = take(w, 1);
    rs_time next =
        rs_deadline(w->node[0]) < rs_deadline(w->node[1]) ? rs_deadline(w->node[0]) : rs_deadline(w->node[1]);
    if (how % 2 && next != RS_NEVER && next > w->now)
        w->now = next;
    else
        w->now += (rs_time)(1) << (how % 34);
    for (uint32_t n = 0; n < NODES; n++)
        wake(w, n);
}

static void step(world *w) {
    uint64_t what = take(w, 1);
    uint32_t n = what & 1;
    switch (what >> 1 & 15) {
    case 0:
        open_transfer(w, n);
        break;
    case 1:
        grant(w, n);
        break;
    case 2:
        path_call(w, n);
        break;
    case 3:
        receiver_call(w, n);
        break;
    case 4:
        peer_call(w, n);
        break;
    case 5:
        forge(w, n);
        break;
    case 6:
        forge_data(w, n);
        break;
    case 7:
        if (what & 32)
            forge_report(w, n);
        else
            garbage(w, n);
        break;
    case 8:
        while (w->queued) /* all that flies is lost */
            w->queued--;
        break;
    case 9:
        if (w->queued)
            deliver(w, (uint32_t)take(w, 1) % w->queued);
        break;
    case 10:
    case 11:
    case 12:
        for (uint32_t i = 0; i < 16 && w->queued; i++)
            deliver(w, 0);
        break;
    case 13:
        forge_repair(w, n);
        break;
    case 14:
        if (what & 32)
            view(w, n);
        else
            forge_ack(w, take(w, 1) % NODES);
        break;
    default:
        pass_time(w);
    }
    for (uint32_t each = 0; each < NODES; each++)
        pump(w, each);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static world w; /* large; cleared for each run */
    memset(&w, 0, sizeof w);
    w.in = (bytes){data, size};
    rs_allocator allocator = {.alloc = counted_alloc, .release = counted_release, .context = &w};
    const rs_rdcm_config rdcm = {.stream_bytes = 25600};
    const rs_wan_config wan = {.coded = true, .proactive = 5};
    for (uint32_t n = 0; n < NODES; n++) {
        rs_config config = {.seed = n,
                            .fragment_size = 100,
                            .light_confirm = (uint32_t)take(&w, 1) % 4,
                            .start_policy = (rs_start_policy)(take(&w, 1) % 2),
                            .max_transfers = 4,
                            .direct_receivers = 1,
                            .carries = true,
                            .feedback_arity = 1 + n,
                            .directory = {.peer_at = peer_at, .place_of = place_of, .host_bits = 1},
                            .options[RS_PROTOCOL_RDCM] = &rdcm,
                            .options[RS_PROTOCOL_WAN] = &wan,
                            .nic_rate_bps = 1000000000};
        w.node[n] = rs_node_new(&config, &allocator);
        must(w.node[n] != NULL);
    }
    while (w.in.left)
        step(&w);
    for (uint32_t n = 0; n < NODES; n++)
        rs_node_free(w.node[n]);
    must(w.outstanding == 0);
    return 0;
}
