/* A node of group messages in two groups (one in order, both with repairs and NAKs), given any sequence of datagrams,
 * views, messages and times. Each step is a byte that says what, and what it needs: packets are made of the fuzzer's
 * bytes, with small numbers where ids belong so that they meet; some are packets that the node itself or its twin
 * sent. Views list some of the servers as members, some as publishers, in incarnations that change or are not known.
 * What is given out can be read to its last byte, and what a node sends its twin takes. Whatever is said: data goes by
 * request to members only, windows keep their bound, streams are of those who were listed, and no packet of a sender
 * in one incarnation is delivered twice. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/heap.h"
#include "core/groups/messages.h"
#include "core/groups/wire.h"
#include "core/ricochet/options.h"
#include "core/ricochet/wire.h"

#define SERVERS 6u
#define LIVES 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const uint8_t *at, *end;
    rs_messages *node, *twin;
    rs_time now;
    uint64_t version;
    bool member[2][SERVERS], listed[2][SERVERS]; /* by the node's newest view; by any */
    uint64_t delivered[2][SERVERS][LIVES];       /* sns below 64, bits: since the node knows the group */
} run;

#define WINDOW_BYTES 4096u

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static uint8_t next(run *r) {
    return r->at < r->end ? *r->at++ : 0;
}

/* Every byte, so that the sanitizer sees what is not there. */
static void read_all(const uint8_t *bytes, size_t length) {
    static volatile uint8_t last;
    for (size_t i = 0; i < length; i++)
        last = bytes[i];
    (void)last;
}

static void drain(run *r, rs_messages *node, bool to_twin) {
    rs_messages_event event;
    rs_messages_out out;
    rs_messages_stats stats;
    while (rs_messages_poll_event(node, &event)) {
        read_all(event.bytes, event.kind == RS_MESSAGES_DELIVER ? event.length : 0);
        if (event.kind != RS_MESSAGES_DELIVER || node != r->node)
            continue;
        must(event.group < 2 && event.sender < SERVERS && r->listed[event.group][event.sender]);
        if (event.sn >= 64 || event.incarnation >= LIVES || event.part > 0)
            continue;
        uint64_t *seen = &r->delivered[event.group][event.sender][event.incarnation];
        must(!(*seen >> event.sn & 1));
        *seen |= UINT64_C(1) << event.sn;
    }
    rs_messages_stats_get(node, &stats);
    must(stats.streams <= 2 * SERVERS && stats.peers <= SERVERS);
    must(stats.window_bytes <= WINDOW_BYTES + 2 * SERVERS * 64 + 2 * 64 * sizeof(uint64_t));
    for (uint32_t i = 0; i < 200 && rs_messages_poll_tx(node, r->now, &out); i++) {
        uint8_t bytes[2048];
        uint32_t length = 0;
        for (uint32_t k = 0; k < out.piece_count; k++) {
            must(length + out.piece[k].length <= sizeof bytes);
            memcpy(bytes + length, out.piece[k].bytes, out.piece[k].length);
            length += out.piece[k].length;
        }
        must(length <= 600);
        rs_gm_id id;
        rs_gm_body body;
        if (node == r->node && rs_gm_get_kind(bytes, length) == RS_GM_KIND_AGAIN &&
            rs_gm_get_data(bytes, length, &id, &body))
            must(out.peer < SERVERS && id.group < 2 && r->member[id.group][out.peer]);
        (void)rs_messages_soon(to_twin ? r->twin : r->node, length % 4, bytes, length);
        must(rs_messages_receive(to_twin ? r->twin : r->node, r->now, to_twin ? 0 : 1, bytes, length));
    }
    while (rs_messages_poll_tx(node, r->now, &out))
        ;
}

static void view(run *r, rs_messages *node, uint32_t group, uint8_t how) {
    rs_peer members[SERVERS], publishers[SERVERS];
    uint32_t incarnations[SERVERS];
    uint8_t lives = next(r), who = next(r);
    char options[32];
    snprintf(options, sizeof options, "r=%u,c=3,stagger=%u,flush=%u", 2 + (how >> 1) % 3, 1 + (how >> 3) % 2,
             (how >> 4) % 2);
    rs_messages_view v = {.group = group,
                          .channel = group,
                          .version = r->version,
                          .members = members,
                          .publishers = publishers,
                          .incarnations = lives & 0x80 ? incarnations : NULL,
                          .protocol = how & 1 ? "ricochet" : "plain",
                          .order = group ? RS_ORDER_FIFO : RS_ORDER_NONE,
                          .options = how & 1 ? options : NULL};
    for (uint32_t i = 0; i < SERVERS; i++) {
        if (i < 2 || how >> (i + 2) & 1)
            members[v.member_count++] = i;
        else if (who >> i & 1)
            publishers[v.publisher_count++] = i;
    }
    for (uint32_t i = 0; i < v.member_count + v.publisher_count; i++) {
        rs_peer peer = i < v.member_count ? members[i] : publishers[i - v.member_count];
        incarnations[i] = peer < 2 ? 1 : (lives >> peer) % 3;
    }
    if (rs_messages_set_view(node, r->now, &v) != RS_OK || node != r->node)
        return;
    memset(r->member[group], 0, sizeof r->member[group]);
    for (uint32_t i = 0; i < v.member_count; i++)
        r->member[group][members[i]] = r->listed[group][members[i]] = true;
    for (uint32_t i = 0; i < v.publisher_count; i++)
        r->listed[group][publishers[i]] = true;
}

static void seal_body(uint8_t *bytes, uint32_t length, const rs_gm_id *id) {
    uint8_t complete[RS_GM_HEADER + RS_GM_BODY + 255];
    const rs_gm_body head = {
        .length = (uint16_t)(length - RS_GM_BODY), .form = RS_GM_SINGLE, .views = {.count = 1, .view = {{1, 255}}}};
    rs_gm_put_header(complete, RS_GM_KIND_DATA, id);
    memcpy(complete + RS_GM_HEADER, bytes, length);
    rs_gm_put_body(complete + RS_GM_HEADER, &head);
    rs_gm_seal(complete, RS_GM_HEADER + length);
    memcpy(bytes, complete + RS_GM_HEADER, length);
}

/* A packet of a kind, its ids small numbers, the rest the fuzzer's. */
static void packet(run *r, rs_gm_kind kind) {
    uint8_t bytes[600], control = next(r);
    uint32_t length = 0, count = 1 + control % 5;
    rs_gm_id id = {next(r) % 5, 1 + control % 2, next(r) % 3, 1 + next(r) % 80};
    if (kind == RS_GM_KIND_DATA || kind == RS_GM_KIND_AGAIN) {
        uint32_t payload = next(r);
        rs_gm_views views = {.count = 1, .view = {{1 + next(r) % 8, next(r)}}};
        rs_gm_body body = {(uint16_t)payload, control >> 4 & 1, false, views};
        rs_gm_put_header(bytes, kind, &id);
        rs_gm_put_body(bytes + RS_GM_HEADER, &body);
        length = RS_GM_DATA_LEAST + payload;
        for (uint32_t i = RS_GM_DATA_LEAST; i < length; i++)
            bytes[i] = next(r);
    } else if (kind == RS_RICOCHET_KIND_REPAIR) {
        uint32_t body = RS_GM_BODY + next(r);
        rs_ricochet_put_repair(bytes, 3, count, body);
        for (uint32_t i = 0; i < count; i++) {
            id.sn += i > 0 ? next(r) % 3 : 0;
            id.sender = next(r) % 5;
            rs_gm_put_id(bytes + RS_RICOCHET_REPAIR + i * RS_GM_ID, &id);
        }
        length = RS_RICOCHET_REPAIR + count * RS_GM_ID + body;
        uint8_t *mixed = bytes + RS_RICOCHET_REPAIR + count * RS_GM_ID;
        for (uint32_t i = 0; i < body; i++)
            mixed[i] = next(r);
        if (count == 1) /* of one packet, as its sender would have sealed it: else nothing would come out of it */
            seal_body(mixed, body, &id);
    } else if (kind == RS_GM_KIND_NAK) {
        rs_gm_put_nak(bytes, next(r) % 5, count);
        for (uint32_t i = 0; i < count; i++, id.sn++)
            rs_gm_put_nak_item(bytes + RS_GM_NAK + i * RS_GM_NAK_ITEM, &(rs_gm_nak_item){id, next(r)});
        length = RS_GM_NAK + count * RS_GM_NAK_ITEM;
    } else {
        rs_gm_put_state(bytes, id.sender, id.incarnation, count);
        for (uint32_t i = 0; i < count; i++, id.group = next(r) % 3, id.sn += next(r) % 100) {
            rs_gm_state_item item = {id.group, id.sn, {.count = 1, .view = {{1 + next(r) % 8, next(r)}}}};
            rs_gm_put_state_item(bytes + RS_GM_STATE + i * RS_GM_STATE_ITEM, &item);
        }
        length = RS_GM_STATE + count * RS_GM_STATE_ITEM;
    }
    uint32_t cut = control >= 0xf0 ? next(r) : 0;
    length -= cut < length ? cut : 0;
    if (cut == 0 && (control & 0x60) != 0x60) /* most have their check */
        rs_gm_seal(bytes, kind == RS_RICOCHET_KIND_REPAIR ? rs_ricochet_head_length(bytes[8]) : length);
    uint8_t from = next(r); /* mostly who it says it is of */
    rs_peer maker = length >= 8 ? bytes[4] : 0;
    rs_messages_receive_as(r->node, r->now,
                           from < 0xe0   ? maker
                           : from < 0xf8 ? from % SERVERS
                                         : RS_NO_PEER,
                           next(r) % 2 ? RS_CAME_LATE : RS_CAME_TO_ALL, bytes, length);
}

static void step(run *r) {
    uint8_t what = next(r), how = next(r);
    uint8_t message[2000];
    switch (what % 10) {
    case 0:
        r->version++;
        view(r, r->node, how % 2, how);
        view(r, r->twin, how % 2, how);
        break;
    case 1:
        r->now += (rs_time)how * 1000000;
        rs_messages_timeout(r->node, r->now);
        rs_messages_timeout(r->twin, r->now);
        break;
    case 2:
        memset(message, how, sizeof message);
        rs_messages_publish(r->node, r->now, how % 2, message, (uint32_t)how * 7, NULL);
        break;
    case 3:
        memset(message, how, sizeof message);
        rs_messages_publish(r->twin, r->now, how % 2, message, (uint32_t)how * 7, NULL);
        drain(r, r->twin, how & 1);
        break;
    case 4:
        if (how == 77) {
            rs_messages_forget(r->node, r->now, what % 2);
            memset(r->delivered[what % 2], 0, sizeof r->delivered[0]); /* it knows nothing of it any more */
            memset(r->member[what % 2], 0, sizeof r->member[0]);
        }
        rs_messages_enqueue(r->node, how % SERVERS, r->at,
                            (size_t)(r->end - r->at) < how ? (size_t)(r->end - r->at) : how);
        rs_messages_work(r->node, r->now, how % 4);
        break;
    default:
        packet(r, (rs_gm_kind)(1 + what % 5));
    }
    drain(r, r->node, true);
    drain(r, r->twin, false);
    must(rs_messages_deadline(r->node) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const rs_ricochet_config ricochet = {.kept_repairs = 8, .repair_buffers = 64, .flush = 5000000};
    rs_messages_config config = {.self = 0,
                                 .incarnation = 1,
                                 .seed = 5,
                                 .packet_bytes = 600,
                                 .message_bytes = 4000,
                                 .receive_bytes = 16384,
                                 .send_bytes = 16384,
                                 .assembly_bytes = 10000,
                                 .deliveries = 16,
                                 .rx_queue_packets = 4,
                                 .max_groups = 4,
                                 .max_streams = 64,
                                 .max_missing = 100,
                                 .window_packets = 64,
                                 .window_bytes = WINDOW_BYTES,
                                 .sealed = size > 0 && data[0] >= 0x80,
                                 .engines = &(rs_group_engine_config){"ricochet", &ricochet},
                                 .engine_count = 1};
    run r = {.at = data, .end = data + size, .now = 1000000000};
    r.node = rs_messages_new(&config, &rs_heap);
    config.self = 1;
    r.twin = rs_messages_new(&config, &rs_heap);
    must(r.node && r.twin);
    for (r.version = 1; r.version < 3; r.version++) {
        view(&r, r.node, (uint32_t)(r.version % 2), 0x1d);
        view(&r, r.twin, (uint32_t)(r.version % 2), 0x1d);
    }
    while (r.at < r.end)
        step(&r);
    rs_messages_free(r.node);
    rs_messages_free(r.twin);
    return 0;
}
