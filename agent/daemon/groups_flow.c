#include "daemon/groups_flow.h"

#include <string.h>

#include "core/messages/wire.h"

#define WINDOW_BYTES (8u << 20)
#define WINDOW_LEAST 256u
#define WINDOW_MOST 4096u
#define PACKET_COST 832u /* what the kernel needs beside a datagram's bytes */

uint32_t rs_flow_window(uint32_t packet_bytes) {
    uint32_t packets = WINDOW_BYTES / (packet_bytes + PACKET_COST);
    return packets < WINDOW_LEAST ? WINDOW_LEAST : packets > WINDOW_MOST ? WINDOW_MOST : packets;
}

void rs_flow_reset(rs_flow *flow) {
    *flow = (rs_flow){0};
}

/* The sn of the slowest that has told one of late; what was published a while ago if nobody has. */
static uint64_t base(const rs_flow *flow, rs_time now) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < flow->reporter_count; i++)
        if (now - flow->reporters[i].at < RS_FLOW_FRESH && flow->reporters[i].sn < least)
            least = flow->reporters[i].sn;
    return least == UINT64_MAX ? flow->floor : least;
}

bool rs_flow_open(rs_flow *flow, rs_time now, uint32_t window) {
    if (now - flow->mark_at >= RS_FLOW_AGE) {
        flow->floor = flow->mark;
        flow->mark = flow->newest;
        flow->mark_at = now;
    }
    return flow->newest - base(flow, now) < window;
}

void rs_flow_reported(rs_flow *flow, rs_time now, uint32_t address, uint64_t sn) {
    uint32_t i = 0, oldest = 0;
    if (sn > flow->newest)
        return;
    for (; i < flow->reporter_count && flow->reporters[i].address != address; i++)
        if (flow->reporters[i].at < flow->reporters[oldest].at)
            oldest = i;
    if (i == flow->reporter_count) {
        if (i < sizeof flow->reporters / sizeof flow->reporters[0])
            flow->reporter_count++;
        else
            i = oldest;
        flow->reporters[i].address = address;
        flow->reporters[i].sn = 0;
    }
    flow->reporters[i].at = now;
    if (sn > flow->reporters[i].sn)
        flow->reporters[i].sn = sn;
}

static uint32_t hash(uint32_t address, uint32_t group) {
    uint32_t h = (address ^ group * UINT32_C(0x9e3779b1)) * UINT32_C(0x85ebca6b);
    return (h ^ h >> 15) * UINT32_C(0xc2b2ae35);
}

bool rs_flow_chosen(uint32_t self, uint32_t group, const uint32_t *members, uint32_t count) {
    uint32_t own = hash(self, group), lower = 0;
    for (uint32_t i = 0; i < count && lower < RS_FLOW_REPORTERS; i++) {
        uint32_t other = hash(members[i], group);
        lower += other < own || (other == own && members[i] < self);
    }
    return lower < RS_FLOW_REPORTERS;
}

rs_flow_heard *rs_flow_hear(rs_flow_heard *table, const uint8_t *packet, size_t length, uint32_t window) {
    if (length < RS_GM_DATA_LEAST || rs_gm_get_kind(packet, length) != RS_GM_KIND_DATA)
        return NULL;
    rs_gm_id id;
    rs_gm_get_id(packet + RS_GM_HEADER - RS_GM_ID, &id);
    rs_flow_heard *h = &table[hash(id.sender, id.group) % RS_FLOW_HEARD];
    if (h->sender != id.sender || h->group != id.group || h->incarnation != id.incarnation || id.sn < h->told) {
        *h = (rs_flow_heard){.sender = id.sender, .group = id.group, .incarnation = id.incarnation};
        h->newest = h->told = id.sn > 0 ? id.sn - 1 : 0;
    }
    if (id.sn > h->newest)
        h->newest = id.sn;
    return h->newest - h->told >= window / RS_FLOW_STEPS ? h : NULL;
}

bool rs_flow_too_far(const rs_flow_heard *heard, uint64_t missing, uint32_t window) {
    return missing > 0 && heard->newest > missing && heard->newest - missing > RS_FLOW_MISSING * (uint64_t)window;
}

static void put32(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get32(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

void rs_flow_encode(uint8_t out[RS_FLOW_BYTES], const rs_flow_report *report) {
    put32(out, RS_FLOW_MAGIC | UINT32_C(1) << 16);
    put32(out + 4, report->from);
    put32(out + 8, report->incarnation);
    put32(out + 12, report->group);
    put32(out + 16, (uint32_t)report->sn);
    put32(out + 20, (uint32_t)(report->sn >> 32));
}

bool rs_flow_decode(const uint8_t *bytes, size_t length, rs_flow_report *out) {
    if (length != RS_FLOW_BYTES || get32(bytes) != (RS_FLOW_MAGIC | UINT32_C(1) << 16))
        return false;
    *out = (rs_flow_report){.from = get32(bytes + 4),
                            .incarnation = get32(bytes + 8),
                            .group = get32(bytes + 12),
                            .sn = get32(bytes + 16) | (uint64_t)get32(bytes + 20) << 32};
    return true;
}
