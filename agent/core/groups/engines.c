/* The engines that groups can run on. All share packets, streams, order and loss; an engine says what is done with a
 * packet received and what a change of views means to it. */
#include <string.h>

#include "core/groups/state.h"

/* The view makes repairs here: somebody else subscribes with this node. */
static bool repairs(const rs_gm_group *group) {
    return group->protocol == RS_MESSAGES_RICOCHET && group->member && group->member_count > 1 && group->c_milli > 0;
}

static bool same_plane(const rs_gm_group *group, const rs_gm_group *next) {
    return group->lec && group->lec->plane->r == next->r && group->lec->plane->stagger == next->stagger;
}

static rs_status ricochet_prepare(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next) {
    if (next->r > RS_MESSAGES_R_MAX || next->stagger > RS_MESSAGES_STAGGER_MAX ||
        next->c_milli > 1000u * RS_MESSAGES_C_MAX)
        return RS_ERR_INVALID;
    if (rs_gm_body_most(node, next) < RS_GM_BODY + RS_GM_PAYLOAD_LEAST)
        return RS_ERR_INVALID;
    if (!repairs(next))
        return RS_OK;
    bool any = false;
    rs_lec_plane *plane = rs_lec_plane_get(node, next->r, next->stagger, &any);
    if (!plane)
        return any ? RS_ERR_MEMORY : RS_ERR_LIMIT;
    bool room = true;
    for (uint32_t i = 0; i < next->member_count && room; i++)
        room = next->members[i] == node->config.self || rs_lec_reserve(node, plane, next->members[i]);
    if (room && !same_plane(group, next)) {
        node->lec.prepared = rs_lec_group_new(node, plane, next->id);
        room = node->lec.prepared != NULL;
    }
    if (!room)
        rs_lec_plane_put(node, plane);
    return room ? RS_OK : RS_ERR_MEMORY;
}

/* Members of `a` that are not in `b` (both sorted) join or leave. */
static void join_or_leave(rs_messages *node, rs_lec_group *lec, bool join, const rs_gm_group *a, const rs_gm_group *b) {
    for (uint32_t i = 0, k = 0; i < a->member_count; i++) {
        while (k < b->member_count && b->members[k] < a->members[i])
            k++;
        if (a->members[i] == node->config.self || (k < b->member_count && b->members[k] == a->members[i]))
            continue;
        (join ? rs_lec_join : rs_lec_leave)(lec, a->members[i]);
    }
}

static void ricochet_change(rs_messages *node, rs_gm_group *group, const rs_gm_group *next) {
    const rs_gm_group nobody = {0};
    bool stays = repairs(next) && same_plane(group, next);
    if (group->lec && !stays) {
        join_or_leave(node, group->lec, false, group, &nobody);
        rs_lec_group_free(node, group->lec);
        group->lec = NULL;
    }
    if (!repairs(next))
        return;
    if (stays)
        join_or_leave(node, group->lec, false, group, next);
    else
        group->lec = node->lec.prepared;
    node->lec.prepared = NULL;
    join_or_leave(node, group->lec, true, next, stays ? group : &nobody);
    rs_lec_tune(group->lec, next->c_milli, next->members, next->member_count, node->config.self);
}

void rs_gm_engines_init(rs_gm_engine engines[RS_GM_ENGINES]) {
    engines[0] = (rs_gm_engine){.protocol = RS_MESSAGES_PLAIN, .name = "plain"};
    engines[1] = (rs_gm_engine){.protocol = RS_MESSAGES_RICOCHET,
                                .name = "ricochet",
                                .naks = true,
                                .prepare = ricochet_prepare,
                                .change = ricochet_change,
                                .received = rs_gm_bins_received};
}

const rs_gm_engine *rs_gm_engine_of(const rs_messages *node, rs_messages_protocol protocol) {
    for (uint32_t i = 0; i < RS_GM_ENGINES; i++) {
        if (node->engines[i].protocol == protocol)
            return &node->engines[i];
    }
    return NULL;
}

const char *rs_messages_protocol_name(rs_messages_protocol protocol) {
    rs_gm_engine engines[RS_GM_ENGINES];
    rs_gm_engines_init(engines);
    for (uint32_t i = 0; i < RS_GM_ENGINES; i++) {
        if (engines[i].protocol == protocol)
            return engines[i].name;
    }
    return NULL;
}

rs_status rs_messages_protocol_named(const char *name, rs_messages_protocol *out) {
    rs_gm_engine engines[RS_GM_ENGINES];
    rs_gm_engines_init(engines);
    for (uint32_t i = 0; i < RS_GM_ENGINES; i++) {
        if (strcmp(engines[i].name, name) == 0) {
            *out = engines[i].protocol;
            return RS_OK;
        }
    }
    return RS_ERR_PROTOCOL;
}
