#include "core/groups/views.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/groups/arrive.h"
#include "core/groups/deliver.h"
#include "core/groups/early.h"
#include "core/groups/members.h"
#include "core/groups/missing.h"
#include "core/groups/options.h"
#include "core/groups/outbox.h"
#include "core/groups/positions.h"
#include "core/groups/publish.h"
#include "core/groups/streams.h"

void rs_gm_refuse(rs_messages *node, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(node->refusal, sizeof node->refusal, format, arguments);
    va_end(arguments);
}

const char *rs_messages_refusal(const rs_messages *node) {
    return node->refusal;
}

static const rs_group_engine *engine_named(rs_messages *node, const char *name) {
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (!name || strcmp(node->engines[i]->name, name) == 0)
            return node->engines[i];
    int used = snprintf(node->refusal, sizeof node->refusal, "there is no group protocol '%.40s' here; there is", name);
    for (uint32_t i = 0; i < node->engine_count && used > 0 && (size_t)used < sizeof node->refusal; i++)
        used += snprintf(node->refusal + used, sizeof node->refusal - (size_t)used, "%s %s", i ? "," : "",
                         node->engines[i]->name);
    return NULL;
}

rs_status rs_messages_check_options(rs_messages *node, const char *protocol, const char *has, const char *options,
                                    char *complete) {
    uint32_t milli[RS_GROUP_OPTIONS_MOST];
    const rs_group_engine *engine = engine_named(node, protocol);
    if (!engine)
        return RS_ERR_PROTOCOL;
    rs_group_options_usual(engine, milli);
    if (!rs_group_options_read(engine, has, milli, node->refusal, sizeof node->refusal) ||
        !rs_group_options_read(engine, options, milli, node->refusal, sizeof node->refusal))
        return RS_ERR_INVALID;
    rs_group_options_write(engine, milli, complete);
    return RS_OK;
}

const rs_group_engine *rs_messages_engine(const rs_messages *node, uint32_t number) {
    return number < node->engine_count ? node->engines[number] : NULL;
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
    rs_gm_group *group = rs_memory_take_lines(&node->allocator, sizeof *group);
    if (!group)
        return NULL;
    *group = (rs_gm_group){.id = id};
    rs_list_init(&group->streams);
    rs_list_init(&group->beating);
    group->heartbeat.owner = group->query.owner = group;
    return group;
}

/* Nobody is in both sorted lists. */
static bool has_only_publishers_outside(const rs_gm_group *group) {
    for (uint32_t i = 0; i < group->publisher_count; i++)
        if (rs_gm_is_member(group, group->publishers[i]))
            return false;
    return true;
}

static void release_lists(rs_messages *node, const rs_gm_group *group) {
    rs_memory_give(&node->allocator, group->members);
    rs_memory_give(&node->allocator, group->publishers);
    rs_memory_give(&node->allocator, group->more_channels);
    rs_memory_give(&node->allocator, group->regions);
}

/* The group goes to another engine: nothing waits for its packets at the one before. */
static void leave_engine(rs_messages *node, rs_gm_group *group, const rs_gm_group *next) {
    void *own = rs_gm_engine_own(node, group->engine);
    for (rs_list *at = node->missing_order.next; group->engine->lost && at != &node->missing_order; at = at->next) {
        rs_gm_missing *missing = RS_HOLDER(rs_gm_missing, order, at);
        if (missing->stream->group == group)
            group->engine->lost(own, missing);
    }
    if (group->engine->change)
        group->engine->change(own, group, next);
}

/* What the view says becomes the group's, and `next` what the group was. */
static void swap(rs_gm_group *group, rs_gm_group *next) {
    rs_gm_group was = *group;
    group->version = next->version;
    group->channel = next->channel;
    group->more_channels = next->more_channels;
    group->more_count = next->more_count;
    group->regions = next->regions;
    group->region_count = next->region_count;
    group->engine = next->engine;
    memcpy(group->option, next->option, sizeof group->option);
    group->policy = next->policy;
    group->order = next->order;
    group->open = next->open;
    group->members = next->members;
    group->member_count = next->member_count;
    group->publishers = next->publishers;
    group->publisher_count = next->publisher_count;
    group->member = next->member;
    *next = was;
}

/* From here on `next` is what the group was. */
static void apply(rs_messages *node, rs_time now, rs_gm_group *group, rs_gm_group *next) {
    if (group->engine && group->engine != next->engine)
        leave_engine(node, group, next);
    if (next->engine->change)
        next->engine->change(rs_gm_engine_own(node, next->engine), group, next);
    const bool rejoins = next->rejoined && next->member && group->member && (!next->policy.naks || next->policy.alone);
    if (!next->member || !group->member || rejoins)
        group->joined = group->begins_from = next->member ? next->version : 0;
    swap(group, next);
    rs_gm_publish_view(group);
    if (next->member && !group->member) { /* what others sent is no more of this node's business */
        for (rs_list *at = group->streams.next, *after; at != &group->streams; at = after) {
            after = at->next;
            rs_gm_stream *stream = RS_HOLDER(rs_gm_stream, in_group, at);
            if (!stream->own)
                rs_gm_stream_free(node, stream);
        }
    }
    if (rejoins || (!next->member && group->member))
        group->member_since = now;
    rs_gm_streams_view(node, now, group, next);
    for (rs_list *at = group->streams.next; rejoins && at != &group->streams; at = at->next) {
        rs_gm_stream *stream = RS_HOLDER(rs_gm_stream, in_group, at);
        if (!stream->own)
            rs_gm_stream_rejoin(node, now, stream);
    }
    rs_gm_query_view(node, now, group);
    rs_gm_peers_let_go(node, next, group);
    release_lists(node, next);
}

static rs_status check(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next) {
    if (next->version == 0 || !distinct(next->members, next->member_count) ||
        !distinct(next->publishers, next->publisher_count) || !has_only_publishers_outside(next) ||
        (next->order != RS_ORDER_NONE && next->order != RS_ORDER_FIFO)) {
        rs_gm_refuse(node, "the view has no version, names somebody twice, or has another order than none and fifo");
        return RS_ERR_INVALID;
    }
    if (group && next->version <= group->version) {
        rs_gm_refuse(node, "version %llu of the view is not newer than the one here, %llu",
                     (unsigned long long)next->version, (unsigned long long)group->version);
        return RS_ERR_STATE;
    }
    if (!group && node->group_count == node->config.max_groups) {
        rs_gm_refuse(node, "%u groups are here already, as many as can be", node->group_count);
        return RS_ERR_LIMIT;
    }
    return RS_OK;
}

/* `next` owns its lists from here on: they are the group's, or released. */
static rs_status install(rs_messages *node, rs_time now, rs_gm_group *group, rs_gm_group *next) {
    const rs_group_engine *engine = next->engine;
    bool fresh = !group;
    rs_status status = check(node, group, next);
    if (status == RS_OK && fresh && !(group = new_group(node, next->id)))
        status = RS_ERR_MEMORY;
    if (status == RS_OK && !rs_gm_peers_hold(node, group, next))
        status = RS_ERR_MEMORY;
    else if (status == RS_OK && engine->prepare) {
        status = engine->prepare(rs_gm_engine_own(node, engine), group, next);
        if (status != RS_OK)
            rs_gm_peers_let_go(node, next, group);
    }
    if (status == RS_ERR_MEMORY)
        rs_gm_refuse(node, "out of memory");
    if (status != RS_OK) {
        release_lists(node, next);
        if (fresh)
            rs_memory_give_lines(&node->allocator, group);
        return status;
    }
    if (fresh)
        rs_gm_group_add(node, group);
    apply(node, now, group, next);
    return RS_OK;
}

static rs_peer *sorted_copy(rs_messages *node, const rs_peer *peers, uint32_t count) {
    rs_peer *copy = rs_memory_take(&node->allocator, (count + 1u) * sizeof *copy);
    if (copy && count) {
        memcpy(copy, peers, count * sizeof *copy);
        qsort(copy, count, sizeof *copy, rs_gm_by_number);
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

static void *copy(rs_messages *node, const void *from, size_t size) {
    void *made = rs_memory_take(&node->allocator, size + 1);
    if (made && size)
        memcpy(made, from, size);
    return made;
}

rs_status rs_messages_set_view(rs_messages *node, rs_time now, const rs_messages_view *view) {
    rs_gm_take_back(node);
    const rs_group_engine *engine = engine_named(node, view->protocol);
    rs_gm_group next = {.id = view->group,
                        .version = view->version,
                        .channel = view->channel,
                        .more_count = view->more_count,
                        .region_count = view->region_count,
                        .engine = engine,
                        .order = view->order,
                        .open = view->open,
                        .rejoined = view->rejoined,
                        .whole = view->whole,
                        .member_count = view->member_count,
                        .publisher_count = view->publisher_count};
    if (!engine)
        return RS_ERR_PROTOCOL;
    rs_group_options_usual(engine, next.option);
    if (!rs_group_options_read(engine, view->options, next.option, node->refusal, sizeof node->refusal))
        return RS_ERR_INVALID;
    if (view->member_count > RS_GM_MEMBERS_MOST || view->publisher_count > RS_GM_MEMBERS_MOST ||
        view->more_count > RS_MESSAGES_CHANNELS_MOST || view->region_count > RS_MESSAGES_CHANNELS_MOST) {
        rs_gm_refuse(node, "the view has more than %u members or publishers, or more than %u channels or regions",
                     RS_GM_MEMBERS_MOST, RS_MESSAGES_CHANNELS_MOST + 1);
        return RS_ERR_INVALID;
    }
    next.members = sorted_copy(node, view->members, view->member_count);
    next.publishers = sorted_copy(node, view->publishers, view->publisher_count);
    next.more_channels = view->more_count ? copy(node, view->more_channels, view->more_count * sizeof(rs_group)) : NULL;
    next.regions = view->region_count ? copy(node, view->regions, view->region_count * sizeof(uint32_t)) : NULL;
    if (!next.members || !next.publishers || (view->more_count && !next.more_channels) ||
        (view->region_count && !next.regions)) {
        release_lists(node, &next);
        return RS_ERR_MEMORY;
    }
    const bool member = rs_gm_is_member(&next, node->config.self);
    next.member = member;
    next.policy = engine->policy(node, &next);
    rs_status status = install(node, now, rs_gm_group_find(node, view->group), &next);
    if (status != RS_OK)
        return status;
    rs_gm_log *log = member ? &node->in : &node->out;
    log->wanted = true;
    take_incarnations(node, view);
    rs_gm_early_expect(node, now);
    rs_gm_early_look(node, now, rs_gm_group_find(node, view->group));
    return RS_OK;
}

rs_status rs_messages_set_region(rs_messages *node, rs_time now, const rs_messages_region *view) {
    rs_gm_take_back(node);
    const rs_group_engine *engine = engine_named(node, view->protocol);
    if (!engine)
        return RS_ERR_PROTOCOL;
    if (!engine->region || view->node_count > RS_GM_MEMBERS_MOST) {
        rs_gm_refuse(node, "%s has no regions, or the view of one has more than %u nodes", engine->name,
                     RS_GM_MEMBERS_MOST);
        return RS_ERR_INVALID;
    }
    rs_gm_early_expect(node, now);
    return engine->region(rs_gm_engine_own(node, engine), now, view);
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
    next.members = rs_memory_take(&node->allocator, (group->member_count + joined_count + 1u) * sizeof(rs_peer));
    next.publishers = rs_memory_take(&node->allocator, (group->publisher_count + 1u) * sizeof(rs_peer));
    next.more_channels =
        group->more_count ? copy(node, group->more_channels, group->more_count * sizeof(rs_group)) : NULL;
    next.regions = group->region_count ? copy(node, group->regions, group->region_count * sizeof(uint32_t)) : NULL;
    rs_gm_group gone = {.members = sorted_copy(node, left, left_count), .member_count = left_count};
    if (!next.members || !next.publishers || !gone.members || (group->more_count && !next.more_channels) ||
        (group->region_count && !next.regions)) {
        release_lists(node, &next);
        rs_memory_give(&node->allocator, gone.members);
        return RS_ERR_MEMORY;
    }
    for (uint32_t i = 0; i < group->member_count; i++) {
        if (!rs_gm_is_member(&gone, group->members[i]))
            next.members[next.member_count++] = group->members[i];
    }
    bool named_well = distinct(gone.members, left_count) && group->member_count - next.member_count == left_count;
    rs_memory_give(&node->allocator, gone.members);
    if (!named_well) {
        release_lists(node, &next);
        return RS_ERR_INVALID;
    }
    if (joined_count)
        memcpy(next.members + next.member_count, joined, joined_count * sizeof(rs_peer));
    next.member_count += joined_count;
    qsort(next.members, next.member_count, sizeof(rs_peer), rs_gm_by_number);
    next.publisher_count = 0;
    for (uint32_t i = 0; i < group->publisher_count; i++) {
        if (!rs_gm_is_member(&next, group->publishers[i]))
            next.publishers[next.publisher_count++] = group->publishers[i];
    }
    next.member = rs_gm_is_member(&next, node->config.self);
    rs_status status = install(node, now, group, &next);
    if (status != RS_OK)
        return status;
    rs_gm_early_expect(node, now);
    rs_gm_early_look(node, now, group);
    return RS_OK;
}

void rs_gm_group_free(rs_messages *node, rs_gm_group *group) {
    const rs_gm_group nothing = {.id = group->id, .engine = group->engine};
    if (group->engine->change)
        group->engine->change(rs_gm_engine_own(node, group->engine), group, &nothing);
    while (!rs_list_empty(&group->streams))
        rs_gm_stream_free(node, RS_HOLDER(rs_gm_stream, in_group, group->streams.next));
    rs_gm_positions_end(node, group);
    rs_gm_peers_let_go(node, group, &nothing);
    release_lists(node, group);
    rs_memory_give_lines(&node->allocator, group);
}

rs_status rs_messages_forget(rs_messages *node, rs_time now, rs_message_group id) {
    (void)now;
    rs_gm_take_back(node);
    rs_gm_group *group = rs_gm_group_find(node, id);
    if (!group)
        return RS_ERR_UNKNOWN;
    rs_gm_events_forget(node, id);
    rs_gm_publish_end(node, group);
    rs_gm_group_remove(node, group);
    rs_gm_group_free(node, group);
    return RS_OK;
}
