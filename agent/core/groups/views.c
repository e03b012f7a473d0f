/* Groups and their views. */
#include <stdlib.h>
#include <string.h>

#include "core/groups/state.h"

static uint32_t bucket_of(const rs_messages *node, rs_message_group id) {
    return (uint32_t)rs_gm_mix(id ^ node->config.seed) & node->group_mask;
}

rs_gm_group *rs_gm_group_find(const rs_messages *node, rs_message_group id) {
    for (uint32_t at = bucket_of(node, id); node->group_table[at]; at = (at + 1) & node->group_mask) {
        if (node->group_table[at]->id == id)
            return node->group_table[at];
    }
    return NULL;
}

static void table_add(rs_messages *node, rs_gm_group *group) {
    uint32_t at = bucket_of(node, group->id);
    while (node->group_table[at])
        at = (at + 1) & node->group_mask;
    node->group_table[at] = group;
}

/* Linear probing without tombstones: what was pushed on by the one that goes moves back. */
static void table_remove(rs_messages *node, const rs_gm_group *group) {
    uint32_t at = bucket_of(node, group->id);
    while (node->group_table[at] != group)
        at = (at + 1) & node->group_mask;
    node->group_table[at] = NULL;
    for (at = (at + 1) & node->group_mask; node->group_table[at]; at = (at + 1) & node->group_mask) {
        rs_gm_group *other = node->group_table[at];
        node->group_table[at] = NULL;
        table_add(node, other);
    }
}

static int by_number(const void *a, const void *b) {
    rs_peer x = *(const rs_peer *)a, y = *(const rs_peer *)b;
    return x < y ? -1 : x > y;
}

static bool distinct(const rs_peer *sorted, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        if (sorted[i] == sorted[i - 1])
            return false;
    }
    return true;
}

/* A group that nothing is known of yet; not in the tables. */
static rs_gm_group *new_group(rs_messages *node, rs_message_group id) {
    if (node->group_count == node->config.max_groups)
        return NULL;
    rs_gm_group *group = rs_gm_alloc(node, sizeof *group);
    if (!group)
        return NULL;
    *group = (rs_gm_group){.id = id};
    rs_list_init(&group->streams);
    rs_list_init(&group->beating);
    group->heartbeat.owner = group->query.owner = group;
    return group;
}

/* Nobody is in both sorted lists. */
static bool apart(const rs_gm_group *group) {
    for (uint32_t i = 0; i < group->publisher_count; i++)
        if (rs_gm_is_member(group, group->publishers[i]))
            return false;
    return true;
}

static void release_lists(rs_messages *node, const rs_gm_group *group) {
    rs_gm_release(node, group->members);
    rs_gm_release(node, group->publishers);
}

static void apply(rs_messages *node, rs_time now, rs_gm_group *group, const rs_gm_group *next) {
    const rs_gm_engine *before = rs_gm_engine_of(node, group->protocol), *after = rs_gm_engine_of(node, next->protocol);
    if (before != after && before->change)
        before->change(node, group, next);
    if (after->change)
        after->change(node, group, next);
    rs_gm_group before_it = *group;
    group->joined = next->member ? (group->member ? group->joined : next->version) : 0;
    group->version = next->version;
    group->channel = next->channel;
    group->protocol = next->protocol;
    group->order = next->order;
    group->r = next->r;
    group->c_milli = next->c_milli;
    group->stagger = next->stagger;
    group->naks = next->naks;
    group->open = next->open;
    group->members = next->members;
    group->member_count = next->member_count;
    group->publishers = next->publishers;
    group->publisher_count = next->publisher_count;
    rs_gm_publish_view(group);
    bool was = group->member;
    group->member = next->member;
    if (was && !group->member) { /* what others sent is no more of this node's business */
        for (rs_list *at = group->streams.next, *after_it; at != &group->streams; at = after_it) {
            after_it = at->next;
            rs_gm_stream *stream = RS_HOLDER(rs_gm_stream, in_group, at);
            if (!stream->own)
                rs_gm_stream_free(node, stream);
        }
    }
    if (!was && group->member)
        group->member_since = now;
    rs_gm_streams_view(node, now, group);
    rs_gm_query_view(node, now, group);
    rs_gm_peers_let_go(node, &before_it, next);
    release_lists(node, &before_it);
}

/* `next` owns its lists from here on: they are the group's, or released. */
static rs_status install(rs_messages *node, rs_time now, rs_gm_group *group, rs_gm_group *next) {
    bool fresh = !group;
    const rs_gm_engine *engine = rs_gm_engine_of(node, next->protocol);
    rs_status status = RS_OK;
    if (!engine)
        status = RS_ERR_PROTOCOL;
    else if (next->version == 0 || !distinct(next->members, next->member_count) ||
             !distinct(next->publishers, next->publisher_count) || !apart(next) ||
             (next->order != RS_ORDER_NONE && next->order != RS_ORDER_FIFO))
        status = RS_ERR_INVALID;
    else if (group && next->version <= group->version)
        status = RS_ERR_STATE;
    else if (fresh && node->group_count == node->config.max_groups)
        status = RS_ERR_LIMIT;
    if (status == RS_OK && fresh && !(group = new_group(node, next->id)))
        status = RS_ERR_MEMORY;
    if (status == RS_OK && !rs_gm_peers_hold(node, group, next))
        status = RS_ERR_MEMORY;
    else if (status == RS_OK && engine->prepare) {
        status = engine->prepare(node, group, next);
        if (status != RS_OK)
            rs_gm_peers_let_go(node, next, group);
    }
    if (status != RS_OK) {
        release_lists(node, next);
        if (fresh)
            rs_gm_release(node, group);
        return status;
    }
    if (fresh) {
        group->position = node->group_count;
        node->groups[node->group_count++] = group;
        table_add(node, group);
    }
    apply(node, now, group, next);
    return RS_OK;
}

static rs_peer *sorted_copy(rs_messages *node, const rs_peer *peers, uint32_t count) {
    rs_peer *copy = rs_gm_alloc(node, (count + 1u) * sizeof *copy);
    if (copy && count) {
        memcpy(copy, peers, count * sizeof *copy);
        qsort(copy, count, sizeof *copy, by_number);
    }
    return copy;
}

/* Nothing of an earlier one of theirs is believed any more. */
static void take_incarnations(rs_messages *node, const rs_messages_view *view) {
    for (uint32_t i = 0; view->incarnations && i < view->member_count + view->publisher_count; i++) {
        rs_peer who = i < view->member_count ? view->members[i] : view->publishers[i - view->member_count];
        rs_gm_peer *peer = rs_gm_peer_find(node, who);
        if (peer && view->incarnations[i])
            peer->incarnation = view->incarnations[i];
    }
}

rs_status rs_messages_set_view(rs_messages *node, rs_time now, const rs_messages_view *view) {
    rs_gm_take_back(node);
    const rs_gm_engine *engine = rs_gm_engine_of(node, view->protocol);
    rs_gm_group next = {.id = view->group,
                        .version = view->version,
                        .channel = view->channel,
                        .protocol = view->protocol,
                        .order = view->order,
                        .open = view->open,
                        .member_count = view->member_count,
                        .publisher_count = view->publisher_count};
    next.r = view->r ? view->r : 8;
    next.c_milli = view->c_milli == RS_MESSAGES_NO_REPAIRS ? 0 : view->c_milli ? view->c_milli : 5000;
    next.stagger = view->stagger ? view->stagger : 1;
    next.naks = engine && engine->naks && !view->without_naks;
    if (view->member_count > RS_GM_MEMBERS_MOST || view->publisher_count > RS_GM_MEMBERS_MOST)
        return RS_ERR_INVALID;
    next.members = sorted_copy(node, view->members, view->member_count);
    next.publishers = sorted_copy(node, view->publishers, view->publisher_count);
    if (!next.members || !next.publishers) {
        release_lists(node, &next);
        return RS_ERR_MEMORY;
    }
    next.member = rs_gm_is_member(&next, node->config.self);
    rs_status status = install(node, now, rs_gm_group_find(node, view->group), &next);
    if (status != RS_OK)
        return status;
    take_incarnations(node, view);
    rs_gm_early_look(node, now, rs_gm_group_find(node, view->group));
    return RS_OK;
}

rs_status rs_messages_change_view(rs_messages *node, rs_time now, rs_message_group id, uint64_t from, uint64_t to,
                                  const rs_peer *joined, uint32_t joined_count, const rs_peer *left,
                                  uint32_t left_count) {
    rs_gm_take_back(node);
    rs_gm_group *group = rs_gm_group_find(node, id);
    if (!group)
        return RS_ERR_UNKNOWN;
    if (group->version != from)
        return RS_ERR_STATE;
    if (joined_count > RS_GM_MEMBERS_MOST || group->member_count + joined_count > RS_GM_MEMBERS_MOST)
        return RS_ERR_INVALID;
    rs_gm_group next = *group;
    next.version = to;
    next.member_count = 0;
    next.members = rs_gm_alloc(node, (group->member_count + joined_count + 1u) * sizeof(rs_peer));
    next.publishers = rs_gm_alloc(node, (group->publisher_count + 1u) * sizeof(rs_peer));
    rs_gm_group gone = {.members = sorted_copy(node, left, left_count), .member_count = left_count};
    if (!next.members || !next.publishers || !gone.members) {
        release_lists(node, &next);
        rs_gm_release(node, gone.members);
        return RS_ERR_MEMORY;
    }
    for (uint32_t i = 0; i < group->member_count; i++) {
        if (!rs_gm_is_member(&gone, group->members[i]))
            next.members[next.member_count++] = group->members[i];
    }
    bool named_well = distinct(gone.members, left_count) && group->member_count - next.member_count == left_count;
    rs_gm_release(node, gone.members);
    if (!named_well) {
        release_lists(node, &next);
        return RS_ERR_INVALID;
    }
    if (joined_count)
        memcpy(next.members + next.member_count, joined, joined_count * sizeof(rs_peer));
    next.member_count += joined_count;
    qsort(next.members, next.member_count, sizeof(rs_peer), by_number);
    next.publisher_count = 0;
    for (uint32_t i = 0; i < group->publisher_count; i++) {
        if (!rs_gm_is_member(&next, group->publishers[i]))
            next.publishers[next.publisher_count++] = group->publishers[i];
    }
    next.member = rs_gm_is_member(&next, node->config.self);
    rs_status status = install(node, now, group, &next);
    if (status == RS_OK)
        rs_gm_early_look(node, now, group);
    return status;
}

void rs_gm_group_free(rs_messages *node, rs_gm_group *group) {
    const rs_gm_engine *engine = rs_gm_engine_of(node, group->protocol);
    const rs_gm_group nothing = {.id = group->id};
    if (engine->change)
        engine->change(node, group, &nothing);
    while (!rs_list_empty(&group->streams))
        rs_gm_stream_free(node, RS_HOLDER(rs_gm_stream, in_group, group->streams.next));
    rs_timer_set(&node->timers, &group->heartbeat, RS_NEVER);
    rs_timer_set(&node->queries, &group->query, RS_NEVER);
    rs_list_remove(&group->beating);
    rs_gm_peers_let_go(node, group, &nothing);
    release_lists(node, group);
    rs_gm_release(node, group);
}

rs_status rs_messages_forget(rs_messages *node, rs_time now, rs_message_group id) {
    (void)now;
    rs_gm_take_back(node);
    rs_gm_group *group = rs_gm_group_find(node, id);
    if (!group)
        return RS_ERR_UNKNOWN;
    rs_gm_events_forget(node, id);
    rs_gm_publish_end(node, group);
    table_remove(node, group);
    rs_gm_group *last = node->groups[--node->group_count];
    node->groups[group->position] = last;
    last->position = group->position;
    rs_gm_group_free(node, group);
    return RS_OK;
}
