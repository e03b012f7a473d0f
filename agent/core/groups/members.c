#include "core/groups/members.h"

#include <stdlib.h>

#define GIVEN_FIRST 8u /* packets that a server may ask for before anything was heard or published */
#define GIVEN_TIMES 2u /* ... and then so many times the bytes that were */

/* splitmix64 of the boot id, its upper half; 0 means that none is known. */
uint32_t rs_messages_incarnation(uint64_t boot_id) {
    uint32_t mixed = (uint32_t)(rs_mix(boot_id + RS_RANDOM_STEP) >> 32);
    return mixed ? mixed : 1;
}

/* ------------------------------------------------------------------------------------------------------ groups */

static uint32_t group_bucket(const rs_messages *node, rs_message_group id) {
    return (uint32_t)rs_mix(id ^ node->config.seed) & node->group_mask;
}

rs_gm_group *rs_gm_group_find(const rs_messages *node, rs_message_group id) {
    for (uint32_t at = group_bucket(node, id); node->group_table[at]; at = (at + 1) & node->group_mask) {
        if (node->group_table[at]->id == id)
            return node->group_table[at];
    }
    return NULL;
}

static void put(rs_messages *node, rs_gm_group *group) {
    uint32_t at = group_bucket(node, group->id);
    while (node->group_table[at])
        at = (at + 1) & node->group_mask;
    node->group_table[at] = group;
}

void rs_gm_group_add(rs_messages *node, rs_gm_group *group) {
    group->position = node->group_count;
    node->groups[node->group_count++] = group;
    put(node, group);
}

/* Linear probing without tombstones: what was pushed on by the one that goes moves back. */
void rs_gm_group_remove(rs_messages *node, rs_gm_group *group) {
    uint32_t at = group_bucket(node, group->id);
    while (node->group_table[at] != group)
        at = (at + 1) & node->group_mask;
    node->group_table[at] = NULL;
    for (at = (at + 1) & node->group_mask; node->group_table[at]; at = (at + 1) & node->group_mask) {
        rs_gm_group *other = node->group_table[at];
        node->group_table[at] = NULL;
        put(node, other);
    }
    rs_gm_group *last = node->groups[--node->group_count];
    node->groups[group->position] = last;
    last->position = group->position;
}

/* ------------------------------------------------------------------------------------------------------- peers */

static rs_gm_peer **bucket_of(const rs_messages *node, rs_peer peer) {
    return &node->peers[(uint32_t)rs_mix(peer ^ node->config.seed) & node->peer_mask];
}

rs_gm_peer *rs_gm_peer_find(const rs_messages *node, rs_peer peer) {
    rs_gm_peer *p = node->peers ? *bucket_of(node, peer) : NULL;
    while (p && p->peer != peer)
        p = p->next;
    return p;
}

/* About as many buckets as peers. False: no memory. */
static bool make_room(rs_messages *node) {
    uint32_t size = node->peers ? node->peer_mask + 1 : 0;
    if (node->stats.peers < size)
        return true;
    rs_gm_peer **old = node->peers,
               **larger = rs_memory_take(&node->allocator, (size ? 2 * size : 64) * sizeof(rs_gm_peer *));
    if (!larger)
        return false;
    node->peers = larger;
    node->peer_mask = (size ? 2 * size : 64) - 1;
    for (uint32_t i = 0; i < size; i++)
        for (rs_gm_peer *p = old[i], *next; p; p = next) {
            next = p->next;
            p->next = *bucket_of(node, p->peer);
            *bucket_of(node, p->peer) = p;
        }
    rs_memory_give(&node->allocator, old);
    return true;
}

static uint64_t written(const rs_messages *node) {
    return node->in.head + node->out.head;
}

static rs_gm_peer *hold(rs_messages *node, rs_peer peer) {
    rs_gm_peer *p = rs_gm_peer_find(node, peer);
    if (!p) {
        p = make_room(node) ? rs_memory_take(&node->allocator, sizeof *p) : NULL;
        if (!p)
            return NULL;
        *p = (rs_gm_peer){.peer = peer,
                          .next = *bucket_of(node, peer),
                          .allowance = (uint64_t)GIVEN_FIRST * node->config.packet_bytes,
                          .written = written(node)};
        *bucket_of(node, peer) = p;
        node->stats.peers++;
    }
    p->groups++;
    return p;
}

static void let_go(rs_messages *node, rs_peer peer) {
    rs_gm_peer *p = rs_gm_peer_find(node, peer);
    if (!p || --p->groups > 0)
        return;
    rs_gm_peer **at = bucket_of(node, peer);
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    rs_memory_give(&node->allocator, p);
    node->stats.peers--;
}

/* Each of the sorted `a` that is not in the sorted `b`; false if `each` fails, `*done` tells how many it did. */
static bool only_in(rs_messages *node, const rs_peer *a, uint32_t a_count, const rs_peer *b, uint32_t b_count,
                    bool holds, uint32_t most) {
    uint32_t done = 0;
    for (uint32_t i = 0, k = 0; i < a_count && done < most; i++) {
        while (k < b_count && b[k] < a[i])
            k++;
        if (k < b_count && b[k] == a[i])
            continue;
        if (!holds)
            let_go(node, a[i]);
        else if (!hold(node, a[i])) {
            only_in(node, a, a_count, b, b_count, false, done);
            return false;
        }
        done++;
    }
    return true;
}

bool rs_gm_peers_hold(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next) {
    if (!only_in(node, next->members, next->member_count, group->members, group->member_count, true, UINT32_MAX))
        return false;
    if (only_in(node, next->publishers, next->publisher_count, group->publishers, group->publisher_count, true,
                UINT32_MAX))
        return true;
    only_in(node, next->members, next->member_count, group->members, group->member_count, false, UINT32_MAX);
    return false;
}

void rs_gm_peers_let_go(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next) {
    only_in(node, group->members, group->member_count, next->members, next->member_count, false, UINT32_MAX);
    only_in(node, group->publishers, group->publisher_count, next->publishers, next->publisher_count, false,
            UINT32_MAX);
}

void rs_gm_peers_free(rs_messages *node) {
    for (uint32_t i = 0; node->peers && i <= node->peer_mask; i++)
        while (node->peers[i]) {
            rs_gm_peer *gone = node->peers[i];
            node->peers[i] = gone->next;
            rs_memory_give(&node->allocator, gone);
        }
    rs_memory_give(&node->allocator, node->peers);
}

/* ------------------------------------------------------------------------------------------------------ members */

int rs_gm_by_number(const void *a, const void *b) {
    rs_peer x = *(const rs_peer *)a, y = *(const rs_peer *)b;
    return x < y ? -1 : x > y;
}

static bool among(const rs_peer *sorted, uint32_t count, rs_peer peer) {
    return count > 0 && bsearch(&peer, sorted, count, sizeof *sorted, rs_gm_by_number) != NULL;
}

bool rs_gm_is_member(const rs_gm_group *group, rs_peer peer) {
    return among(group->members, group->member_count, peer);
}

bool rs_gm_may_publish(const rs_gm_group *group, rs_peer peer) {
    return group->open || rs_gm_is_member(group, peer) || among(group->publishers, group->publisher_count, peer);
}

bool rs_gm_believes(const rs_messages *node, const rs_gm_group *group, rs_peer sender, uint32_t incarnation) {
    const rs_gm_peer *peer = rs_gm_peer_find(node, sender);
    return rs_gm_may_publish(group, sender) && (!peer || peer->incarnation == 0 || peer->incarnation == incarnation);
}

bool rs_gm_is_before(const rs_messages *node, const rs_gm_group *group, const rs_gm_views *views) {
    return node->config.sealed && node->came != RS_CAME_ALONE &&
           (int32_t)(views->view[0].version - (uint32_t)group->begins_from) < 0;
}

/* ------------------------------------------------------------------------------------------------------ answers */

bool rs_gm_peer_gets(rs_messages *node, rs_peer peer, uint32_t bytes) {
    rs_gm_peer *p = rs_gm_peer_find(node, peer);
    if (!p)
        return false;
    uint64_t more = GIVEN_TIMES * (written(node) - p->written), most = node->in.size + node->out.size;
    p->written = written(node);
    p->allowance = more < most - (p->allowance < most ? p->allowance : most) ? p->allowance + more : most;
    if (p->allowance < bytes)
        return false;
    p->allowance -= bytes;
    return true;
}
