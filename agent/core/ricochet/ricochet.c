#include "core/ricochet/ricochet.h"

#include "core/groups/views.h"
#include "core/ricochet/bins.h"
#include "core/ricochet/pending_repairs.h"
#include "core/ricochet/state.h"

#define MILLI 1000u
#define R_MOST (1000u * RS_RICOCHET_R_MAX)

static const rs_group_option OPTIONS[] = {
    [RS_RICOCHET_R] = {"r", MILLI, R_MOST, 8 * MILLI, false, "packets that a repair is the XOR of",
                       false}, /* (8, 5): the paper's, Sec. 5 */
    [RS_RICOCHET_C] = {"c", 0, 64 * MILLI, 5 * MILLI, true, "repairs that a member sends for each r packets; 0: none",
                       false},
    [RS_RICOCHET_STAGGER] = {"stagger", MILLI, 64 * MILLI, MILLI, false,
                             "repairs in the making at once: more mend longer bursts, later", false},
    [RS_RICOCHET_NAKS] = {"naks", 0, MILLI, MILLI, false, "1: what repairs do not bring is asked for; 0: it is lost",
                          false},
    [RS_RICOCHET_FLUSH] = {"flush", 0, 1000 * MILLI, 0, true,
                           "ms after which a repair goes with fewer than r packets; 0: never", true},
};
static const uint8_t KINDS[] = {RS_RICOCHET_KIND_REPAIR};

static rs_status start(rs_messages *node, void **out) {
    rs_ricochet *own = rs_memory_take(&node->allocator, sizeof *own);
    if (!own)
        return RS_ERR_MEMORY;
    const rs_ricochet_config *given = rs_gm_engine_config(node, rs_group_engine_ricochet.name);
    own->node = node;
    own->config = given ? *given : (rs_ricochet_config){0};
    own->config.kept_repairs += own->config.kept_repairs ? 0 : 1024;
    own->config.repair_buffers += own->config.repair_buffers ? 0 : 16384;
    rs_status status = rs_ricochet_bins_init(own);
    if (status == RS_OK)
        status = rs_ricochet_pending_init(own);
    if (status != RS_OK) {
        rs_ricochet_pending_free(own);
        rs_ricochet_bins_free(own);
        rs_memory_give(&node->allocator, own);
        return status;
    }
    *out = own;
    return RS_OK;
}

static void stop(void *of_node) {
    rs_ricochet *own = of_node;
    rs_messages *node = own->node;
    rs_ricochet_pending_free(own);
    rs_ricochet_bins_free(own);
    rs_memory_give(&node->allocator, own);
}

/* ------------------------------------------------------------------------------------------------------- views */

static rs_group_policy policy(const rs_messages *node, const rs_gm_group *next) {
    bool naks = rs_ricochet_option(next, RS_RICOCHET_NAKS) != 0;
    return (rs_group_policy){
        .recovers = naks, .naks = naks, .give_up = naks ? node->config.give_up : node->config.give_up_plain};
}

/* The view makes repairs here: somebody else subscribes with this node. */
static bool repairs(const rs_gm_group *next) {
    return next->engine == &rs_group_engine_ricochet && next->member && next->member_count > 1 &&
           next->option[RS_RICOCHET_C] > 0;
}

static bool same_plane(const rs_gm_group *group, const rs_gm_group *next) {
    const rs_lec_group *lec = group->own;
    return lec && lec->plane->r == rs_ricochet_option(next, RS_RICOCHET_R) &&
           lec->plane->stagger == rs_ricochet_option(next, RS_RICOCHET_STAGGER) &&
           lec->plane->flush_us == next->option[RS_RICOCHET_FLUSH];
}

static rs_status prepare(void *of_node, const rs_gm_group *group, const rs_gm_group *next) {
    rs_ricochet *own = of_node;
    rs_messages *node = own->node;
    uint32_t r = rs_ricochet_option(next, RS_RICOCHET_R), stagger = rs_ricochet_option(next, RS_RICOCHET_STAGGER);
    uint32_t flush_us = next->option[RS_RICOCHET_FLUSH]; /* thousandths of ms */
    if (rs_gm_body_most(node, next) < RS_GM_BODY + RS_GM_PAYLOAD_LEAST) {
        rs_gm_refuse(node, "repairs of r %u packets do not fit datagrams of %u bytes: use a smaller r", r,
                     node->config.packet_bytes);
        return RS_ERR_INVALID;
    }
    if (!repairs(next))
        return RS_OK;
    bool any = false;
    rs_lec_plane *plane = rs_lec_plane_get(own, r, stagger, flush_us, &any);
    if (!plane) {
        rs_gm_refuse(node,
                     "ricochet repairs with r %u, stagger %u and flush %u us, and this server is in groups with %u "
                     "other such settings already: use one of theirs",
                     r, stagger, flush_us, RS_LEC_PLANES);
        return any ? RS_ERR_MEMORY : RS_ERR_LIMIT;
    }
    bool room = true;
    for (uint32_t i = 0; i < next->member_count && room; i++)
        room = next->members[i] == node->config.self || rs_lec_reserve(own, plane, next->members[i]);
    if (room && !same_plane(group, next)) {
        own->prepared = rs_lec_group_new(own, plane, next->id);
        room = own->prepared != NULL;
    }
    if (!room)
        rs_lec_plane_put(own, plane);
    return room ? RS_OK : RS_ERR_MEMORY;
}

/* Members of `a` that are not in `b` (both sorted) join or leave. */
static void join_or_leave(const rs_messages *node, rs_lec_group *lec, bool join, const rs_gm_group *a,
                          const rs_gm_group *b) {
    for (uint32_t i = 0, k = 0; i < a->member_count; i++) {
        while (k < b->member_count && b->members[k] < a->members[i])
            k++;
        if (a->members[i] == node->config.self || (k < b->member_count && b->members[k] == a->members[i]))
            continue;
        (join ? rs_lec_join : rs_lec_leave)(lec, a->members[i]);
    }
}

static void change(void *of_node, rs_gm_group *group, const rs_gm_group *next) {
    const rs_gm_group nobody = {0};
    rs_ricochet *own = of_node;
    const rs_messages *node = own->node;
    bool stays = repairs(next) && same_plane(group, next);
    if (group->own && !stays) {
        join_or_leave(node, group->own, false, group, &nobody);
        rs_lec_group_free(own, group->own);
        group->own = NULL;
    }
    if (!repairs(next))
        return;
    if (stays)
        join_or_leave(node, group->own, false, group, next);
    else
        group->own = own->prepared;
    own->prepared = NULL;
    join_or_leave(node, group->own, true, next, stays ? group : &nobody);
    rs_lec_tune(group->own, next->option[RS_RICOCHET_C], next->members, next->member_count, node->config.self);
}

/* -------------------------------------------------------------------------------------------------------- data */

static uint32_t head(const rs_gm_group *group) {
    return rs_ricochet_head_length(rs_ricochet_option(group, RS_RICOCHET_R));
}

static void received(void *own, rs_time now, rs_gm_group *group, const uint8_t *datagram, uint32_t length) {
    rs_ricochet_bins_received(own, now, group, datagram, length);
}

static void arrived(void *own, rs_time now) {
    rs_ricochet_pending_work(own, now);
}

static bool datagram(void *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    return rs_ricochet_receive_repair(own, now, from, bytes, length);
}

static void found(void *own, rs_gm_missing *missing, const uint8_t *body, uint32_t length) {
    rs_ricochet_pending_found(own, missing, body, length);
}

static void lost(void *own, rs_gm_missing *missing) {
    rs_ricochet_pending_lost(own, missing);
}

static bool comes_with_another(const void *own, const rs_gm_missing *missing) {
    return rs_ricochet_comes_with_another(own, missing);
}

/* A bin takes r * stagger packets of the group, or fewer, for all its repairs in the making, or what comes until
 * they are flushed: when twice as many have come after a packet, repairs of it come no more. */
static uint32_t hope_packets(const rs_gm_group *group) {
    const rs_lec_group *lec = group->own;
    if (!lec)
        return 0;
    uint32_t packets = 2 * rs_ricochet_option(group, RS_RICOCHET_R) * rs_ricochet_option(group, RS_RICOCHET_STAGGER);
    if (lec->plane->flush_last <= 0 || group->pace.each <= 0)
        return packets;
    rs_time flushed = 2 * lec->plane->flush_last / group->pace.each + 1;
    return flushed < packets ? (uint32_t)flushed : packets;
}

/* ---------------------------------------------------------------------------------------------- timers, output */

static void timeout(void *own, rs_time now) {
    rs_ricochet_bins_timeout(own, now);
}

static rs_time deadline(const void *own) {
    return rs_ricochet_bins_deadline(own);
}

static bool poll(void *own, rs_time now, rs_messages_out *out) {
    (void)now;
    return rs_ricochet_poll_repair(own, out);
}

static void take_back(void *own) {
    rs_ricochet_bins_take_back(own);
}

static uint32_t stats(const void *of_node, rs_group_stat *out) {
    const rs_ricochet *own = of_node;
    const rs_group_stat all[] = {
        {"repairs", "made", own->stats.made, false},
        {"repairs", "sent", own->stats.sent, false},
        {"repairs", "dropped", own->stats.dropped, false},
        {"repairs", "received", own->stats.received, false},
        {"repairs", "used", own->stats.used, false},
        {"repairs", "useless", own->stats.useless, false},
        {"repairs", "kept", own->stats.kept, false},
        {"repairs", "combined", own->stats.combined, false},
        {"xors", NULL, own->stats.xors, false},
        {"regions", NULL, own->regions, true},
        {"bins", NULL, own->bins, true},
    };
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        out[i] = all[i];
    return sizeof all / sizeof *all;
}

const rs_group_engine rs_group_engine_ricochet = {.name = "ricochet",
                                                  .meaning = "members mend each other's losses within milliseconds",
                                                  .options = OPTIONS,
                                                  .option_count = sizeof OPTIONS / sizeof *OPTIONS,
                                                  .kinds = KINDS,
                                                  .kind_count = sizeof KINDS,
                                                  .start = start,
                                                  .stop = stop,
                                                  .policy = policy,
                                                  .prepare = prepare,
                                                  .change = change,
                                                  .head = head,
                                                  .received = received,
                                                  .arrived = arrived,
                                                  .datagram = datagram,
                                                  .found = found,
                                                  .lost = lost,
                                                  .comes_with_another = comes_with_another,
                                                  .hope_packets = hope_packets,
                                                  .timeout = timeout,
                                                  .deadline = deadline,
                                                  .poll = poll,
                                                  .take_back = take_back,
                                                  .stats = stats};
