#include "core/wan/collector.h"

/* Where no other source is named: docs/wan.md. */
#define WAIT_LEAST INT64_C(1000000)    /* for the NACKs of those below (a bound), */
#define WAIT_MOST INT64_C(100000000)   /* as for late packets */
#define WAIT_PART 2                    /* of a round trip, for each level below */
#define AFTER INT64_C(2000000)         /* a NACK that comes later than that waits so long for others (a bound) */
#define SILENT_MOST 3u                 /* then the parent is given up for... */
#define ALONE_TRIPS 16                 /* ...so many round trips, */
#define ALONE_MORE INT64_C(1000000000) /* and this (a bound) */
#define LATE_FADES 64
#define ANSWER_MOST 4 /* round trips: what takes longer is lost */

bool rs_wan_collects_from(const rs_wan_collector *c, rs_peer peer) {
    for (uint32_t i = 0; i < c->child_count; i++)
        if (c->children[i] == peer)
            return true;
    return false;
}

bool rs_wan_has_parent(const rs_wan_collector *c, rs_time now) {
    return c->parent != RS_NO_PEER && now >= c->alone_until;
}

void rs_wan_parent_was(rs_wan_collector *c, rs_time now, bool useful, rs_time grtt) {
    c->silent = useful ? 0 : c->silent + 1;
    if (c->silent < SILENT_MOST)
        return;
    c->silent = 0;
    c->alone_until = now + ALONE_TRIPS * grtt + ALONE_MORE;
}

void rs_wan_parent_answered(rs_wan_collector *c, rs_time after, rs_time grtt) {
    after = after < ANSWER_MOST * grtt ? after : ANSWER_MOST * grtt;
    c->answer = after > c->answer ? after : c->answer;
}

static rs_time wait_most(const rs_wan_collector *c, rs_time grtt) {
    rs_time most = grtt / WAIT_PART * c->height;
    return most < WAIT_LEAST ? WAIT_LEAST : most < WAIT_MOST ? most : WAIT_MOST;
}

rs_time rs_wan_collect_time(const rs_wan_collector *c, rs_time grtt) {
    rs_time wait = c->late + c->late / 4, most = wait_most(c, grtt);
    if (c->child_count == 0)
        return 0;
    return wait < WAIT_LEAST ? WAIT_LEAST : wait < most ? wait : most;
}

void rs_wan_collect_over(rs_wan_collector *c, rs_time now, uint64_t section, rs_time grtt) {
    c->ended = section + 1;
    c->ended_at[section % RS_WAN_COLLECTED] = now;
    c->late -= c->late / LATE_FADES;
    c->answer -= c->answer / LATE_FADES;
    rs_wan_collected *kept = rs_wan_collected_of(c, section);
    if (kept && kept->due == RS_NEVER)
        kept->due = now + rs_wan_collect_time(c, grtt);
}

/* Where nothing is kept, else what waits for its section's end here: whoever said that can ask the sender. */
static rs_wan_collected *room(rs_wan_collector *c) {
    rs_wan_collected *waits = NULL;
    for (uint32_t i = 0; i < RS_WAN_COLLECTED; i++) {
        if (c->sections[i].receivers == 0)
            return &c->sections[i];
        if (c->sections[i].due == RS_NEVER && (!waits || c->sections[i].section > waits->section))
            waits = &c->sections[i];
    }
    return waits;
}

void rs_wan_collect(rs_wan_collector *c, rs_time now, const rs_wan_nack *nack, uint32_t receivers, rs_time grtt) {
    uint64_t section = nack->base / RS_WAN_SECTION;
    bool over = section < c->ended;
    rs_time since = 0;
    if (over && c->ended - section <= RS_WAN_COLLECTED) {
        since = now - c->ended_at[section % RS_WAN_COLLECTED];
        rs_time late = since < WAIT_MOST ? since : WAIT_MOST;
        c->late = late > c->late ? late : c->late;
    }
    rs_wan_collected *kept = rs_wan_collected_of(c, section);
    if (!kept) {
        kept = room(c);
        if (!kept)
            return;
        rs_time wait = rs_wan_collect_time(c, grtt) - since;
        *kept = (rs_wan_collected){.section = section, .due = now + (wait > AFTER ? wait : AFTER)};
        if (!over)
            kept->due = RS_NEVER;
    }
    kept->receivers += receivers < UINT32_MAX - kept->receivers ? receivers : 0;
    for (uint32_t i = 0, at = (uint32_t)(nack->base % RS_WAN_SECTION); i < nack->bits; i++, at++)
        if (nack->map[i / 8] >> i % 8 & 1)
            kept->map[at / 8] |= (uint8_t)(1u << at % 8);
}

rs_time rs_wan_collect_due(const rs_wan_collector *c) {
    rs_time due = RS_NEVER;
    for (uint32_t i = 0; i < RS_WAN_COLLECTED; i++)
        if (c->sections[i].receivers && c->sections[i].due < due)
            due = c->sections[i].due;
    return due;
}

rs_wan_collected *rs_wan_collected_of(rs_wan_collector *c, uint64_t section) {
    for (uint32_t i = 0; i < RS_WAN_COLLECTED; i++)
        if (c->sections[i].receivers && c->sections[i].section == section)
            return &c->sections[i];
    return NULL;
}

rs_wan_collected *rs_wan_collected_due(rs_wan_collector *c, rs_time now) {
    for (uint32_t i = 0; i < RS_WAN_COLLECTED; i++)
        if (c->sections[i].receivers && c->sections[i].due <= now)
            return &c->sections[i];
    return NULL;
}

void rs_wan_nack_of(uint64_t section, const uint8_t map[RS_WAN_SECTION / 8], rs_wan_nack *out) {
    uint32_t first = 0, last = RS_WAN_SECTION;
    while (first < RS_WAN_SECTION && !(map[first / 8] >> first % 8 & 1))
        first++;
    *out = (rs_wan_nack){.base = section * RS_WAN_SECTION + first};
    if (first == RS_WAN_SECTION)
        return;
    while (!(map[(last - 1) / 8] >> (last - 1) % 8 & 1))
        last--;
    out->bits = (uint16_t)(last - first);
    for (uint32_t i = 0; i < out->bits; i++)
        if (map[(first + i) / 8] >> (first + i) % 8 & 1)
            out->map[i / 8] |= (uint8_t)(1u << i % 8);
}
