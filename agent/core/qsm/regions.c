/* Region views, and what follows from them alone: partitions, rings, leaders. No election, no consensus (Sec. 2.3). */
#include "core/qsm/regions.h"

#include <stdlib.h>
#include <string.h>

#include "core/groups/members.h"
#include "core/qsm/send.h"
#include "core/qsm/streams.h"

static rs_qsm_view **bucket(rs_qsm *own, uint32_t region) {
    return &own->views[rs_mix(region) % RS_QSM_BUCKETS];
}

rs_qsm_view *rs_qsm_view_find(const rs_qsm *own, uint32_t region, uint64_t version) {
    for (rs_qsm_view *view = own->views[rs_mix(region) % RS_QSM_BUCKETS]; view; view = view->next)
        if (view->region == region && view->version == version)
            return view;
    return NULL;
}

rs_qsm_view *rs_qsm_view_current(const rs_qsm *own, uint32_t region) {
    for (rs_qsm_view *view = own->views[rs_mix(region) % RS_QSM_BUCKETS]; view; view = view->next)
        if (view->region == region && view->current)
            return view;
    return NULL;
}

/* Sec. 2.3.1: the k-th node is in partition k mod p; each has R nodes or more. */
rs_qsm_view *rs_qsm_view_new(rs_qsm *own, uint32_t region, uint64_t version, rs_group channel, const rs_peer *nodes,
                             uint32_t count, const uint32_t *option) {
    const rs_allocator *allocator = &own->node->allocator;
    rs_qsm_view *view = rs_memory_take(allocator, sizeof *view);
    rs_peer *copy = rs_memory_take(allocator, (count + 1u) * sizeof *copy);
    if (!view || !copy) {
        rs_memory_give(allocator, view);
        rs_memory_give(allocator, copy);
        return NULL;
    }
    uint32_t replicas = option[RS_QSM_OPTION_REPLICAS] / 1000;
    if (count)
        memcpy(copy, nodes, count * sizeof *copy);
    *view = (rs_qsm_view){.own = own,
                          .region = region,
                          .version = version,
                          .channel = channel,
                          .nodes = copy,
                          .count = count,
                          .partitions = count / replicas > 0 ? count / replicas : 1,
                          .interval = (rs_time)option[RS_QSM_OPTION_TOKEN] * 1000,
                          .wake_at = RS_NEVER,
                          .next_at = RS_NEVER};
    memcpy(view->option, option, sizeof view->option);
    view->meter.interval = option[RS_QSM_OPTION_RATE] ? INT64_C(1000000000) : INT64_C(4000000);
    view->self = rs_qsm_place_of(view, own->node->config.self);
    view->partition = view->self == RS_QSM_NOWHERE ? 0 : view->self % view->partitions;
    rs_list_init(&view->active);
    rs_list_init(&view->streams);
    rs_list_init(&view->passes);
    return view;
}

void rs_qsm_view_free(rs_qsm_view *view) {
    rs_qsm *own = view->own;
    const rs_allocator *allocator = &own->node->allocator;
    rs_qsm_forwards_forget(own, view);
    while (!rs_list_empty(&view->streams))
        rs_qsm_stream_free(RS_HOLDER(rs_qsm_stream, in_view, view->streams.next));
    while (!rs_list_empty(&view->passes)) {
        rs_qsm_pass *pass = RS_HOLDER(rs_qsm_pass, in_view, view->passes.next);
        rs_list_remove(&pass->in_view);
        rs_memory_give(allocator, pass);
    }
    rs_qsm_out_free(view);
    rs_list_remove(&view->active);
    void *parts[] = {view->nodes, view->by_place, view->seen, view->silent, view};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        rs_memory_give(allocator, parts[i]);
}

static bool is_like(const rs_qsm_view *one, const rs_qsm_view *other) {
    return one->count == other->count && memcmp(one->nodes, other->nodes, one->count * sizeof *one->nodes) == 0 &&
           memcmp(one->option, other->option, sizeof one->option) == 0;
}

void rs_qsm_view_install(rs_qsm_view *view) {
    rs_qsm *own = view->own;
    rs_qsm_view *same = rs_qsm_view_find(own, view->region, view->version);
    rs_qsm_view *before = rs_qsm_view_current(own, view->region), **at = bucket(own, view->region);
    if (before && before != same)
        rs_qsm_view_retire(before);
    if (same && is_like(same, view)) {
        same->channel = view->channel;
        same->open = view->open;
        own->old_count -= !same->current;
        same->current = true;
        same->made = ++own->views_made;
        same->retired_at = 0;
        rs_qsm_view_wake(same);
        rs_qsm_view_free(view);
        return;
    }
    view->current = true;
    view->made = ++view->own->views_made;
    view->next = *at;
    *at = view;
    own->view_count++;
    if (same)
        rs_qsm_view_remove(same); /* versions started over */
}

void rs_qsm_view_retire(rs_qsm_view *view) {
    view->own->old_count += view->current;
    view->current = false;
    rs_qsm_view_wake(view);
}

void rs_qsm_view_remove(rs_qsm_view *view) {
    rs_qsm_view **at = bucket(view->own, view->region);
    while (*at != view)
        at = &(*at)->next;
    *at = view->next;
    view->own->view_count--;
    view->own->old_count -= !view->current;
    rs_qsm_view_free(view);
}

void rs_qsm_view_wake(rs_qsm_view *view) {
    rs_list_keep(&view->own->active, &view->active, true);
}

uint32_t rs_qsm_place_of(const rs_qsm_view *view, rs_peer peer) {
    const rs_peer *found =
        view->count ? bsearch(&peer, view->nodes, view->count, sizeof *view->nodes, rs_gm_by_number) : NULL;
    return found ? (uint32_t)(found - view->nodes) : RS_QSM_NOWHERE;
}

/* Of a view that is no more the newest: a node is alive as long as any view names it. One that moved to other groups
 * gets what was sent to it before. */
bool rs_qsm_is_alive(const rs_qsm_view *view, uint32_t place) {
    return view->current || place == view->self || rs_gm_peer_find(view->own->node, view->nodes[place]) != NULL;
}

uint32_t rs_qsm_partition_leader(const rs_qsm_view *view, uint32_t partition) {
    for (uint32_t place = partition; place < view->count; place += view->partitions)
        if (rs_qsm_is_alive(view, place))
            return place;
    return RS_QSM_NOWHERE;
}

uint32_t rs_qsm_region_leader(const rs_qsm_view *view) {
    for (uint32_t partition = 0; partition < view->partitions; partition++) {
        uint32_t place = rs_qsm_partition_leader(view, partition);
        if (place != RS_QSM_NOWHERE)
            return place;
    }
    return RS_QSM_NOWHERE;
}

/* Where a token that `leader` made enters a partition. */
static uint32_t head_of(const rs_qsm_view *view, uint32_t leader, uint32_t partition) {
    return partition == leader % view->partitions ? leader : rs_qsm_partition_leader(view, partition);
}

rs_qsm_hop rs_qsm_next_hop(const rs_qsm_view *view, uint32_t leader, rs_qsm_hop at) {
    uint32_t p = view->partitions, partition = at.place % p, head = head_of(view, leader, partition);
    if (at.phase == 0) {
        uint32_t members = (view->count - partition + p - 1) / p, place = at.place;
        for (uint32_t i = 0; i < members; i++) {
            place = place + p < view->count ? place + p : partition;
            if (place == head)
                return (rs_qsm_hop){head, 1};
            if (rs_qsm_is_alive(view, place))
                return (rs_qsm_hop){place, 0};
        }
    }
    for (uint32_t i = 1; i < p; i++) {
        uint32_t other = (partition + i) % p;
        if (other == leader % p)
            break;
        uint32_t place = head_of(view, leader, other);
        if (place != RS_QSM_NOWHERE)
            return (rs_qsm_hop){place, 0};
    }
    return (rs_qsm_hop){leader, 2};
}
