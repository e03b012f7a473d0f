/* Planes, a node's groups in them, and its neighbours: which of the groups each shares with this node. */
#include "core/ricochet/plane.h"

#include <string.h>

#include "core/groups/state.h"
#include "core/ricochet/regions.h"

rs_lec_plane *rs_lec_plane_get(rs_messages *node, uint32_t r, uint32_t stagger, bool *any) {
    rs_lec_plane *unused = NULL;
    for (uint32_t i = 0; i < RS_GM_PLANES; i++) {
        rs_lec_plane *plane = &node->lec.planes[i];
        if (plane->peers && plane->r == r && plane->stagger == stagger)
            return plane;
        if (!plane->peers)
            unused = plane;
    }
    *any = unused != NULL;
    if (!unused)
        return NULL;
    rs_list *tables = rs_gm_alloc(node, 3 * RS_LEC_BUCKETS * sizeof *tables);
    if (!tables)
        return NULL;
    for (uint32_t i = 0; i < 3 * RS_LEC_BUCKETS; i++)
        rs_list_init(&tables[i]);
    *unused = (rs_lec_plane){.r = r, .stagger = stagger, .peers = tables};
    unused->regions = tables + RS_LEC_BUCKETS;
    unused->bins = tables + 2 * RS_LEC_BUCKETS;
    rs_list_init(&unused->dirty_peers);
    rs_list_init(&unused->dirty_regions);
    return unused;
}

void rs_lec_plane_put(rs_messages *node, rs_lec_plane *plane) {
    if (plane->group_count > 0 || !plane->peers)
        return;
    rs_lec_settle(node, plane);
    /* Peers that room was made for but that joined nothing. */
    for (uint32_t i = 0; i < RS_LEC_BUCKETS; i++) {
        while (!rs_list_empty(&plane->peers[i]))
            rs_lec_peer_free(node, RS_HOLDER(rs_lec_peer, hashed, plane->peers[i].next));
    }
    rs_gm_release(node, plane->peers);
    *plane = (rs_lec_plane){0};
}

rs_lec_group *rs_lec_group_new(rs_messages *node, rs_lec_plane *plane, rs_message_group id) {
    rs_lec_group *group = rs_gm_alloc(node, sizeof *group);
    if (!group)
        return NULL;
    *group = (rs_lec_group){.plane = plane, .id = id};
    group->key = (rs_lec_key){rs_gm_mix(id + UINT64_C(0x9e3779b97f4a7c15)), rs_gm_mix(~(uint64_t)id)};
    plane->group_count++;
    return group;
}

void rs_lec_group_free(rs_messages *node, rs_lec_group *group) {
    rs_lec_plane *plane = group->plane;
    rs_lec_settle(node, plane);
    rs_gm_release(node, group->bins);
    rs_gm_release(node, group->places);
    rs_gm_release(node, group);
    plane->group_count--;
    rs_lec_plane_put(node, plane);
}

static rs_list *bucket_of(const rs_lec_plane *plane, rs_peer id) {
    return &plane->peers[rs_gm_mix(id) & (RS_LEC_BUCKETS - 1)];
}

static rs_lec_peer *find_peer(const rs_lec_plane *plane, rs_peer id) {
    rs_list *bucket = bucket_of(plane, id);
    for (rs_list *at = bucket->next; at != bucket; at = at->next) {
        rs_lec_peer *peer = RS_HOLDER(rs_lec_peer, hashed, at);
        if (peer->id == id)
            return peer;
    }
    return NULL;
}

void rs_lec_peer_free(rs_messages *node, rs_lec_peer *peer) {
    rs_list_remove(&peer->hashed);
    rs_list_remove(&peer->dirty);
    rs_gm_release(node, peer->groups);
    rs_gm_release(node, peer);
}

bool rs_lec_reserve(rs_messages *node, rs_lec_plane *plane, rs_peer id) {
    rs_lec_peer *peer = find_peer(plane, id);
    if (!peer) {
        peer = rs_gm_alloc(node, sizeof *peer);
        if (!peer)
            return false;
        *peer = (rs_lec_peer){.id = id};
        rs_list_init(&peer->hashed);
        rs_list_init(&peer->dirty);
        rs_list_append(bucket_of(plane, id), &peer->hashed);
    }
    if (peer->group_count < peer->group_room)
        return true;
    uint32_t room = peer->group_room ? peer->group_room * 2 : 4;
    rs_lec_group **groups = rs_gm_alloc(node, room * sizeof *groups);
    if (!groups)
        return false;
    if (peer->group_count)
        memcpy(groups, peer->groups, peer->group_count * sizeof(rs_lec_group *));
    rs_gm_release(node, peer->groups);
    peer->groups = groups;
    peer->group_room = room;
    return true;
}

/* Where the group is, or belongs. */
static uint32_t place_of(const rs_lec_peer *peer, rs_message_group id) {
    uint32_t low = 0, high = peer->group_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (peer->groups[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void flip(rs_lec_peer *peer, const rs_lec_group *group) {
    peer->key.a ^= group->key.a;
    peer->key.b ^= group->key.b;
    rs_list_append(&group->plane->dirty_peers, &peer->dirty);
}

void rs_lec_join(rs_lec_group *group, rs_peer id) {
    rs_lec_peer *peer = find_peer(group->plane, id);
    uint32_t at = place_of(peer, group->id);
    memmove(peer->groups + at + 1, peer->groups + at, (peer->group_count - at) * sizeof(rs_lec_group *));
    peer->groups[at] = group;
    peer->group_count++;
    flip(peer, group);
}

void rs_lec_leave(rs_lec_group *group, rs_peer id) {
    rs_lec_peer *peer = find_peer(group->plane, id);
    uint32_t at = place_of(peer, group->id);
    peer->group_count--;
    memmove(peer->groups + at, peer->groups + at + 1, (peer->group_count - at) * sizeof(rs_lec_group *));
    flip(peer, group);
}

void rs_lec_tune(rs_lec_group *group, uint32_t c_milli, const rs_peer *members, uint32_t count, rs_peer self) {
    uint32_t others = 0;
    for (uint32_t i = 0; i < count; i++)
        others += members[i] != self;
    uint64_t rate = others ? (uint64_t)c_milli * RS_LEC_ONE / ((uint64_t)others * 1000) : 0;
    rate = rate < RS_LEC_ONE ? rate : RS_LEC_ONE;
    if (rate == group->rate)
        return;
    group->rate = rate;
    for (uint32_t i = 0; i < count; i++) {
        if (members[i] != self)
            rs_list_append(&group->plane->dirty_peers, &find_peer(group->plane, members[i])->dirty);
    }
}
