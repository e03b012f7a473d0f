/* Planes, a node's groups in them, and its neighbours: which of the groups each shares with this node; the regions they
 * fall into, and the bins that serve them. A change of views only marks the neighbours it is about; what follows from
 * it is computed once, before the next packet. */
#include "core/ricochet/regions.h"

#include <stdlib.h>
#include <string.h>

#include "core/ricochet/bins.h"
#include "core/ricochet/state.h"

rs_lec_plane *rs_lec_plane_get(rs_ricochet *own, uint32_t r, uint32_t stagger, uint32_t flush_us, bool *any) {
    rs_lec_plane *unused = NULL;
    for (uint32_t i = 0; i < RS_LEC_PLANES; i++) {
        rs_lec_plane *plane = &own->planes[i];
        if (plane->peers && plane->r == r && plane->stagger == stagger && plane->flush_us == flush_us)
            return plane;
        if (!plane->peers)
            unused = plane;
    }
    *any = unused != NULL;
    if (!unused)
        return NULL;
    rs_list *tables = rs_memory_take(&own->node->allocator, 3 * RS_LEC_BUCKETS * sizeof *tables);
    if (!tables)
        return NULL;
    for (uint32_t i = 0; i < 3 * RS_LEC_BUCKETS; i++)
        rs_list_init(&tables[i]);
    *unused = (rs_lec_plane){.r = r, .stagger = stagger, .flush_us = flush_us, .peers = tables};
    unused->flush = flush_us > 0 ? (rs_time)flush_us * 1000 : own->config.flush;
    unused->flush_last = flush_us > 0 ? 2 * unused->flush : unused->flush;
    rs_list_init(&unused->open);
    unused->regions = tables + RS_LEC_BUCKETS;
    unused->bins = tables + 2 * RS_LEC_BUCKETS;
    rs_list_init(&unused->dirty_peers);
    rs_list_init(&unused->dirty_regions);
    return unused;
}

static void peer_free(rs_ricochet *own, rs_lec_peer *peer) {
    rs_list_remove(&peer->hashed);
    rs_list_remove(&peer->dirty);
    rs_memory_give(&own->node->allocator, peer->groups);
    rs_memory_give(&own->node->allocator, peer);
}

void rs_lec_plane_put(rs_ricochet *own, rs_lec_plane *plane) {
    if (plane->group_count > 0 || !plane->peers)
        return;
    rs_lec_settle(own, plane);
    /* Peers that room was made for but that joined nothing. */
    for (uint32_t i = 0; i < RS_LEC_BUCKETS; i++) {
        while (!rs_list_empty(&plane->peers[i]))
            peer_free(own, RS_HOLDER(rs_lec_peer, hashed, plane->peers[i].next));
    }
    rs_memory_give(&own->node->allocator, plane->peers);
    *plane = (rs_lec_plane){0};
}

rs_lec_group *rs_lec_group_new(rs_ricochet *own, rs_lec_plane *plane, rs_message_group id) {
    rs_lec_group *group = rs_memory_take(&own->node->allocator, sizeof *group);
    if (!group)
        return NULL;
    *group = (rs_lec_group){.plane = plane, .id = id};
    group->key = (rs_lec_key){rs_mix(id + RS_RANDOM_STEP), rs_mix(~(uint64_t)id)};
    plane->group_count++;
    return group;
}

void rs_lec_group_free(rs_ricochet *own, rs_lec_group *group) {
    rs_lec_plane *plane = group->plane;
    rs_lec_settle(own, plane);
    rs_memory_give(&own->node->allocator, group->bins);
    rs_memory_give(&own->node->allocator, group->places);
    rs_memory_give(&own->node->allocator, group);
    plane->group_count--;
    rs_lec_plane_put(own, plane);
}

static rs_list *peer_bucket(const rs_lec_plane *plane, rs_peer id) {
    return &plane->peers[rs_mix(id) & (RS_LEC_BUCKETS - 1)];
}

static rs_lec_peer *find_peer(const rs_lec_plane *plane, rs_peer id) {
    rs_list *bucket = peer_bucket(plane, id);
    for (rs_list *at = bucket->next; at != bucket; at = at->next) {
        rs_lec_peer *peer = RS_HOLDER(rs_lec_peer, hashed, at);
        if (peer->id == id)
            return peer;
    }
    return NULL;
}

bool rs_lec_reserve(rs_ricochet *own, rs_lec_plane *plane, rs_peer id) {
    rs_lec_peer *peer = find_peer(plane, id);
    if (!peer) {
        peer = rs_memory_take(&own->node->allocator, sizeof *peer);
        if (!peer)
            return false;
        *peer = (rs_lec_peer){.id = id};
        rs_list_init(&peer->hashed);
        rs_list_init(&peer->dirty);
        rs_list_append(peer_bucket(plane, id), &peer->hashed);
    }
    if (peer->group_count < peer->group_room)
        return true;
    uint32_t room = peer->group_room ? peer->group_room * 2 : 4;
    rs_lec_group **groups = rs_memory_take(&own->node->allocator, room * sizeof *groups);
    if (!groups)
        return false;
    if (peer->group_count)
        memcpy(groups, peer->groups, peer->group_count * sizeof(rs_lec_group *));
    rs_memory_give(&own->node->allocator, peer->groups);
    peer->groups = groups;
    peer->group_room = room;
    return true;
}

/* Where the group is, or belongs. */
static uint32_t group_place(const rs_lec_peer *peer, rs_message_group id) {
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
    uint32_t at = group_place(peer, group->id);
    memmove(peer->groups + at + 1, peer->groups + at, (peer->group_count - at) * sizeof(rs_lec_group *));
    peer->groups[at] = group;
    peer->group_count++;
    flip(peer, group);
}

void rs_lec_leave(rs_lec_group *group, rs_peer id) {
    rs_lec_peer *peer = find_peer(group->plane, id);
    uint32_t at = group_place(peer, group->id);
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

/* ------------------------------------------------------------------------------------------------------ regions */

static int by_rate(const void *a, const void *b) {
    const rs_lec_group *x = *(rs_lec_group *const *)a, *y = *(rs_lec_group *const *)b;
    if (x->rate != y->rate)
        return x->rate < y->rate ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

uint32_t rs_lec_algorithm(rs_lec_group **groups, uint32_t count, uint32_t *level, uint64_t *rate) {
    qsort(groups, count, sizeof(rs_lec_group *), by_rate);
    uint32_t bins = 0;
    uint64_t given = 0; /* what the bins so far give to each group that is left */
    for (uint32_t i = 0; i < count; i++) {
        if (groups[i]->rate == given)
            continue;
        level[bins] = i;
        rate[bins++] = groups[i]->rate - given;
        given = groups[i]->rate;
    }
    return bins;
}

static bool same(rs_lec_key a, rs_lec_key b) {
    return a.a == b.a && a.b == b.b;
}

static rs_list *bucket_of(rs_list *table, rs_lec_key key) {
    return &table[key.a & (RS_LEC_BUCKETS - 1)];
}

static rs_lec_region *find_region(rs_lec_plane *plane, rs_lec_key key) {
    rs_list *bucket = bucket_of(plane->regions, key);
    for (rs_list *at = bucket->next; at != bucket; at = at->next) {
        rs_lec_region *region = RS_HOLDER(rs_lec_region, hashed, at);
        if (same(region->key, key))
            return region;
    }
    return NULL;
}

static rs_lec_bin *find_bin(rs_lec_plane *plane, rs_lec_key key) {
    rs_list *bucket = bucket_of(plane->bins, key);
    for (rs_list *at = bucket->next; at != bucket; at = at->next) {
        rs_lec_bin *bin = RS_HOLDER(rs_lec_bin, hashed, at);
        if (same(bin->key, key))
            return bin;
    }
    return NULL;
}

static rs_lec_region *make_region(rs_ricochet *own, rs_lec_plane *plane, rs_lec_key key) {
    rs_lec_region *region = rs_memory_take(&own->node->allocator, sizeof *region);
    if (!region)
        return NULL;
    *region = (rs_lec_region){.key = key};
    rs_list_init(&region->hashed);
    rs_list_init(&region->dirty);
    rs_list_append(bucket_of(plane->regions, key), &region->hashed);
    own->regions++;
    return region;
}

/* Room for one more in an array of `count` elements of `size` bytes. */
static bool grow(rs_ricochet *own, void **array, uint32_t count, uint32_t *room, size_t size) {
    if (count < *room)
        return true;
    uint32_t more = *room ? *room * 2 : 4;
    void *larger = rs_memory_take(&own->node->allocator, more * size);
    if (!larger)
        return false;
    if (count)
        memcpy(larger, *array, count * size);
    rs_memory_give(&own->node->allocator, *array);
    *array = larger;
    *room = more;
    return true;
}

/* New repairs start in different phases, else nodes that hear the same would make the same ones. */
static void start_bin(rs_ricochet *own, rs_lec_bin *bin) {
    bin->turn = 0;
    for (uint32_t i = 0; i < bin->stagger; i++) {
        rs_ricochet_bin_arm(own, bin, &bin->instances[i]);
        bin->instances[i].limit = (uint16_t)(1 + rs_gm_random_below(own->node, bin->plane->r));
    }
}

/* A bin whose repairs go to several targets each stands for several bins of the paper, which would put different
 * packets together: it deals its packets out to two repairs at least (ours). Else two losses near each other would be
 * in the same repair for all its targets, and where overlaps are few and large, at all neighbours. */
static void deal(rs_ricochet *own, rs_lec_bin *bin) {
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < bin->use_count; i++)
        wanted += bin->uses[i].rate * bin->uses[i].region->peer_count;
    uint32_t stagger = bin->plane->stagger, least = wanted >= RS_LEC_DEAL * RS_LEC_ONE ? RS_LEC_DEALT : 1;
    stagger = stagger < least ? least : stagger;
    if (bin->stagger == stagger)
        return;
    rs_ricochet_bin_empty(own, bin);
    bin->stagger = stagger;
    start_bin(own, bin);
}

static void release_bin(rs_ricochet *own, rs_lec_bin *bin) {
    rs_ricochet_bin_empty(own, bin);
    for (uint32_t i = 0; i < bin->group_count; i++) {
        rs_lec_group *group = bin->groups[i];
        rs_lec_bin *last = group->bins[--group->bin_count];
        uint32_t at = bin->positions[i];
        uint32_t place = group->places[group->bin_count];
        group->bins[at] = last;
        group->places[at] = place;
        last->positions[place] = at;
    }
    rs_list_remove(&bin->hashed);
    rs_memory_give(&own->node->allocator, bin->groups);
    rs_memory_give(&own->node->allocator, bin->positions);
    rs_memory_give(&own->node->allocator, bin->uses);
    rs_memory_give(&own->node->allocator, bin->instances);
    rs_memory_give(&own->node->allocator, bin);
    own->bins--;
}

static void drop_share(rs_ricochet *own, const rs_lec_region *region, rs_lec_bin *bin) {
    for (uint32_t i = 0; i < bin->use_count; i++) {
        if (bin->uses[i].region == region) {
            bin->uses[i] = bin->uses[--bin->use_count];
            break;
        }
    }
    if (bin->use_count == 0)
        release_bin(own, bin);
    else
        deal(own, bin);
}

static rs_lec_bin *make_bin(rs_ricochet *own, rs_lec_plane *plane, rs_lec_key key, rs_lec_group **groups,
                            uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        rs_lec_group *group = groups[i];
        void *bins = group->bins, *places = group->places;
        bool room = grow(own, &bins, group->bin_count, &group->bin_room, sizeof(rs_lec_bin *)) &&
                    grow(own, &places, group->bin_count, &group->place_room, sizeof(uint32_t));
        group->bins = bins;
        group->places = places;
        if (!room)
            return NULL;
    }
    rs_lec_bin *bin = rs_memory_take(&own->node->allocator, sizeof *bin);
    rs_lec_group **mine = rs_memory_take(&own->node->allocator, count * sizeof(rs_lec_group *));
    uint32_t *positions = rs_memory_take(&own->node->allocator, count * sizeof(uint32_t));
    uint32_t room = plane->stagger < RS_LEC_DEALT ? RS_LEC_DEALT : plane->stagger;
    rs_lec_instance *instances = rs_memory_take(&own->node->allocator, room * sizeof(rs_lec_instance));
    if (!bin || !mine || !positions || !instances) {
        rs_memory_give(&own->node->allocator, bin);
        rs_memory_give(&own->node->allocator, mine);
        rs_memory_give(&own->node->allocator, positions);
        rs_memory_give(&own->node->allocator, instances);
        return NULL;
    }
    *bin = (rs_lec_bin){.instances = instances,
                        .plane = plane,
                        .key = key,
                        .groups = mine,
                        .positions = positions,
                        .group_count = count};
    for (uint32_t i = 0; i < count; i++) {
        mine[i] = groups[i];
        positions[i] = groups[i]->bin_count;
        groups[i]->places[groups[i]->bin_count] = i;
        groups[i]->bins[groups[i]->bin_count++] = bin;
    }
    rs_list_init(&bin->hashed);
    rs_list_append(bucket_of(plane->bins, key), &bin->hashed);
    own->bins++;
    return bin;
}

/* The bin takes `rate` a member from the region. */
static bool use_bin(rs_ricochet *own, rs_lec_bin *bin, rs_lec_region *region, uint64_t rate) {
    for (uint32_t i = 0; i < bin->use_count; i++) {
        if (bin->uses[i].region == region) {
            bin->uses[i].rate = rate;
            return true;
        }
    }
    void *uses = bin->uses;
    if (!grow(own, &uses, bin->use_count, &bin->use_room, sizeof *bin->uses))
        return false;
    bin->uses = uses;
    bin->uses[bin->use_count].region = region;
    bin->uses[bin->use_count++].rate = rate;
    return true;
}

/* The bin of groups[from...], whose key is `key`, serves the region; NULL if out of memory. */
static rs_lec_bin *serve(rs_ricochet *own, rs_lec_plane *plane, rs_lec_region *region, rs_lec_key key,
                         rs_lec_group **groups, uint32_t count, uint64_t rate) {
    rs_lec_bin *bin = find_bin(plane, key);
    bool fresh = !bin;
    if (fresh)
        bin = make_bin(own, plane, key, groups, count);
    if (!bin)
        return NULL;
    if (!use_bin(own, bin, region, rate)) {
        if (fresh)
            release_bin(own, bin);
        return NULL;
    }
    deal(own, bin);
    return bin;
}

static void forget_shares(rs_ricochet *own, rs_lec_region *region, rs_lec_share *shares, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        bool still = false;
        for (uint32_t k = 0; k < region->share_count && !still; k++)
            still = region->shares[k].bin == shares[i].bin;
        if (!still)
            drop_share(own, region, shares[i].bin);
    }
    rs_memory_give(&own->node->allocator, shares);
}

/* Algorithm 1 (Sec. 4.1.3) for one region; bins that served it before and do so again stay as they are. */
static void reckon(rs_ricochet *own, rs_lec_plane *plane, rs_lec_region *region) {
    const rs_lec_peer *one = region->peers[0];
    uint32_t count = one->group_count, bins = 0;
    rs_lec_share *old = region->shares;
    uint32_t old_count = region->share_count;
    size_t each = sizeof(rs_lec_group *) + sizeof(uint32_t) + sizeof(uint64_t);
    uint64_t *rate = rs_memory_take(&own->node->allocator, count * each);
    rs_lec_share *shares = rs_memory_take(&own->node->allocator, count * sizeof *shares);
    if (!rate || !shares) { /* nothing is repaired for them until memory is there again: the NAK layer has it */
        rs_memory_give(&own->node->allocator, rate);
        rs_memory_give(&own->node->allocator, shares);
        return;
    }
    rs_lec_group **groups = (rs_lec_group **)(void *)(rate + count);
    uint32_t *level = (uint32_t *)(void *)(groups + count);
    memcpy(groups, one->groups, count * sizeof(rs_lec_group *));
    bins = rs_lec_algorithm(groups, count, level, rate);
    rs_lec_key key = region->key;
    region->shares = shares;
    region->share_count = 0;
    for (uint32_t i = 0, at = 0; i < bins; i++) {
        for (; at < level[i]; at++) {
            key.a ^= groups[at]->key.a;
            key.b ^= groups[at]->key.b;
        }
        rs_lec_bin *bin = serve(own, plane, region, key, groups + at, count - at, rate[i]);
        if (bin)
            shares[region->share_count++] = (rs_lec_share){bin, rate[i]};
    }
    forget_shares(own, region, old, old_count);
    rs_memory_give(&own->node->allocator, rate);
}

static void leave_region(rs_lec_plane *plane, rs_lec_peer *peer) {
    rs_lec_region *region = peer->region;
    if (!region)
        return;
    rs_lec_peer *last = region->peers[--region->peer_count];
    region->peers[peer->position] = last;
    last->position = peer->position;
    peer->region = NULL;
    rs_list_append(&plane->dirty_regions, &region->dirty);
}

/* A region's peers share exactly its groups: who shares others now moves. */
static void place(rs_ricochet *own, rs_lec_plane *plane, rs_lec_peer *peer) {
    rs_list_remove(&peer->dirty);
    if (peer->region && !same(peer->region->key, peer->key))
        leave_region(plane, peer);
    if (peer->group_count == 0) {
        leave_region(plane, peer);
        peer_free(own, peer);
        return;
    }
    rs_lec_region *region = find_region(plane, peer->key);
    if (!region)
        region = make_region(own, plane, peer->key);
    if (!region)
        return;
    rs_list_append(&plane->dirty_regions, &region->dirty);
    if (peer->region)
        return;
    void *peers = region->peers;
    if (!grow(own, &peers, region->peer_count, &region->peer_room, sizeof(rs_lec_peer *)))
        return;
    region->peers = peers;
    peer->position = region->peer_count;
    peer->region = region;
    region->peers[region->peer_count++] = peer;
}

static void release_region(rs_ricochet *own, rs_lec_region *region) {
    rs_lec_share *shares = region->shares;
    uint32_t count = region->share_count;
    region->shares = NULL;
    region->share_count = 0;
    forget_shares(own, region, shares, count);
    rs_list_remove(&region->hashed);
    rs_list_remove(&region->dirty);
    rs_memory_give(&own->node->allocator, region->peers);
    rs_memory_give(&own->node->allocator, region);
    own->regions--;
}

void rs_lec_settle(rs_ricochet *own, rs_lec_plane *plane) {
    while (!rs_list_empty(&plane->dirty_peers))
        place(own, plane, RS_HOLDER(rs_lec_peer, dirty, plane->dirty_peers.next));
    /* Those with peers first, so that bins which also serve others live on. */
    for (rs_list *at = plane->dirty_regions.next, *next; at != &plane->dirty_regions; at = next) {
        rs_lec_region *region = RS_HOLDER(rs_lec_region, dirty, at);
        next = at->next;
        if (region->peer_count == 0)
            continue;
        rs_list_remove(&region->dirty);
        reckon(own, plane, region);
    }
    while (!rs_list_empty(&plane->dirty_regions))
        release_region(own, RS_HOLDER(rs_lec_region, dirty, plane->dirty_regions.next));
}
