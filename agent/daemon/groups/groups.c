/* Message groups: who here uses them, what the manager is told, and the turns of the engine. */
#include "daemon/groups/groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/heap.h"
#include "daemon/data/nic.h"
#include "daemon/data/overlay.h"
#include "daemon/groups/kept.h"
#include "daemon/groups/ordered.h"
#include "daemon/groups/sockets.h"
#include "daemon/groups/stream.h"
#include "daemon/groups/views.h"
#include "daemon/secure.h"
#include "daemon/units.h"

#define JOIN_BOUND (10 * RS_SECOND)        /* for the answer of a manager that is there */
#define JOIN_BUSY (600 * RS_SECOND)        /* in all, of one that answers others meanwhile */
#define JOIN_WAIT (60 * RS_SECOND)         /* in all, when it is away: as a send waits without a bound of its own */
#define UNUSED_LINGER (2 * RS_SECOND)      /* a group nobody here uses any more: its last messages may be asked for */
#define VIEWS_BOUND (100 * RS_MILLISECOND) /* a manager that hears of this agent again tells it its groups by then, */
#define VIEWS_PUT_OUT (2 * RS_SECOND) /* or if the pause was as long, for which it may have been put out, by then: */
#define VIEWS_BOUND_PUT_OUT (1200 * RS_MILLISECOND) /* the manager waits a second for switches */
#define MESSAGE_BYTES (1u << 20)
#define EVENTS_TURN 4096u
#define WORK_TURN 256u
#define PREPARE_LOOK 64u  /* steps */
#define PREPARE_SHARE 64u /* of the memory that is left; else a ring is not made ahead */
#define PREPARE_SHORT (10 * RS_SECOND)
#define PREPARE_PAUSE (20 * RS_MICROSECOND) /* a step of pages takes some 50 */

/* Pages are made together. Where that cannot be (before Linux 5.14) each is made when it is touched. */
static void make_pages(void *context, void *memory, size_t size) {
    (void)context;
#ifdef MADV_POPULATE_WRITE
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
    const uintptr_t from = (at + page - 1) / page * page, upto = (at + size) / page * page;
    if (from < upto)
        (void)madvise((void *)from, upto - from, MADV_POPULATE_WRITE);
#else
    (void)memory;
    (void)size;
#endif
}

static const rs_allocator MEMORY = {.alloc = rs_heap_take, .release = rs_heap_give, .soon = make_pages};

/* ----------------------------------------------------------------------------------------------------- finding */

rs_local_group *rs_groups_by_id(const rs_groups *g, uint32_t id) {
    rs_local_group *group = g->by_id[id % RS_GROUP_BUCKETS];
    while (group && group->id != id)
        group = group->next_by_id;
    return group;
}

static uint32_t bucket_of(const char *name) {
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * UINT32_C(16777619);
    return hash % RS_GROUP_BUCKETS;
}

rs_local_group *rs_groups_by_name(const rs_groups *g, const char *name) {
    rs_local_group *group = g->by_name[bucket_of(name)];
    while (group && strcmp(group->name, name) != 0)
        group = group->next_by_name;
    return group;
}

static void unlink_id(rs_groups *g, const rs_local_group *group) {
    for (rs_local_group **at = &g->by_id[group->id % RS_GROUP_BUCKETS]; *at; at = &(*at)->next_by_id)
        if (*at == group) {
            *at = group->next_by_id;
            return;
        }
}

/* ---------------------------------------------------------------------------------------------- to the manager */

/* Without a manager: with what it is to be if it is new. */
static void tell_lan(rs_groups *g, const rs_local_group *group, rs_manager_group_call call,
                     const rs_manager_group_options *given) {
    char options[RS_GROUP_OPTIONS_TEXT] = "";
    rs_manager_group_options facts = {rs_group_engines_known[0]->name, "none", ""};
    if (given)
        facts = *given;
    (void)rs_messages_check_options(g->node, facts.protocol, NULL, facts.options, options);
    facts.options = options;
    rs_lan_group(g->agent->lan, call, group->name, &facts, given && !rs_group_is_viewed(group));
}

void rs_group_tell(rs_groups *g, rs_local_group *group, rs_manager_group_call call, bool held) {
    rs_manager_client *link = g->agent->link;
    rs_manager_group_options options = {group->protocol, group->order, group->options};
    const rs_manager_group_options *given = rs_group_is_viewed(group) ? &options : NULL;
    for (const rs_group_stream *s = group->streams; s && !given; s = rs_stream_next(s))
        if (rs_stream_options(s)->protocol[0])
            given = rs_stream_options(s);
    rs_manager_group_view view = {.id = group->id, .version = group->version};
    if (rs_group_is_viewed(group) && group->place_count > 0) {
        view.addresses = &g->channels[group->places[0].channel].address;
        view.address_count = 1;
    }
    if (g->agent->lan)
        tell_lan(g, group, call, given);
    else if (link && rs_manager_up(link))
        rs_manager_group(link, rs_agent_now(g->agent), call, group->name, given,
                         rs_group_is_viewed(group) && held ? &view : NULL);
}

/* Who publishes to a group with guarantees is a member. */
static bool is_guaranteed(const rs_local_group *group) {
    rs_group_delivery asked;
    if (rs_group_is_viewed(group))
        return group->delivery.guaranteed;
    for (const rs_group_stream *s = group->streams; s; s = rs_stream_next(s))
        if (rs_stream_options(s)->protocol[0] && rs_group_delivery_parse(rs_stream_options(s)->order, &asked))
            return asked.guaranteed;
    return false;
}

/* Tells what is not told yet: it is received here, or only published to. */
static void tell_role(rs_groups *g, rs_local_group *group, bool held) {
    bool join = group->receiver_count > 0 || (group->stream_count > 0 && is_guaranteed(group));
    rs_group_told told = group->told;
    if (join && !(told & RS_TOLD_JOIN))
        rs_group_tell(g, group, RS_MANAGER_GROUP_JOIN, held);
    if (!join && !(told & RS_TOLD_USE))
        rs_group_tell(g, group, RS_MANAGER_GROUP_USE, held);
    if (!join && (told & RS_TOLD_JOIN))
        rs_group_tell(g, group, RS_MANAGER_GROUP_LEAVE, false);
    group->told = join ? told | RS_TOLD_JOIN : RS_TOLD_USE;
}

void rs_group_tell_role(rs_groups *g, rs_local_group *group) {
    if (group->stream_count > 0 && group->delivery.guaranteed)
        tell_role(g, group, false);
}

void rs_groups_link_answers(rs_groups *g) {
    g->link_up_at = rs_agent_now(g->agent);
    if (g->link_up_at + JOIN_BOUND < g->join_deadline)
        g->join_deadline = g->link_up_at + JOIN_BOUND;
}

void rs_groups_link_up(rs_groups *g) {
    rs_groups_link_answers(g);
    for (rs_local_group *group = g->groups; group; group = group->next) {
        group->told = RS_TOLD_NOTHING;
        if (group->stream_count > 0)
            tell_role(g, group, true);
    }
}

void rs_groups_hold(rs_groups *g, rs_time until, rs_time pause) {
    g->held_until = until;
    g->held_long = pause >= VIEWS_PUT_OUT;
    g->held_checked = false;
}

void rs_groups_checked(rs_groups *g) {
    const rs_time views = rs_agent_now(g->agent) + (g->held_long ? VIEWS_BOUND_PUT_OUT : VIEWS_BOUND);
    g->held_until = views < g->held_until ? views : g->held_until;
    g->held_checked = true;
}

/* ------------------------------------------------------------------------------------------------------- going */

void rs_group_forget(rs_groups *g, rs_local_group *group) {
    if (!rs_group_is_viewed(group))
        return;
    rs_ordered_forget(g, group);
    rs_kept_end(g, group, false);
    rs_messages_forget(g->node, rs_agent_now(g->agent), group->id);
    rs_group_leave_channels(g, group, false);
    unlink_id(g, group);
    group->standing = RS_GROUP_UNKNOWN;
    group->member_count = group->sender_count = 0;
    rs_flow_end(rs_group_sum(g, group), &group->flow);
}

static void remove_group(rs_groups *g, rs_local_group *group) {
    rs_group_forget(g, group);
    *(group->before ? &group->before->next : &g->groups) = group->next;
    if (group->next)
        group->next->before = group->before;
    rs_local_group **named = &g->by_name[bucket_of(group->name)];
    while (*named != group)
        named = &(*named)->next_by_name;
    *named = group->next_by_name;
    g->group_count--;
    free(group->members);
    free(group->senders);
    free(group->regions);
    free(group);
}

void rs_group_refuse(rs_local_group *group, bool waiting_only, rostrum_code code, const char *text) {
    group->held++; /* the last stream must not take the group with it */
    for (rs_group_stream *s = group->streams, *next; s; s = next) {
        next = rs_stream_next(s);
        if (!waiting_only || rs_stream_waits(s))
            rs_stream_refuse(s, code, text);
    }
    group->held--;
}

void rs_groups_policy_changed(rs_groups *g) {
    for (rs_local_group *group = g->groups, *after; group; group = after) {
        after = group->next;
        for (rs_group_stream *s = group->streams, *next; s; s = next) {
            next = rs_stream_next(s);
            if (!rs_stream_may(s))
                rs_stream_refuse(s, ROSTRUM_ERR_DENIED,
                                 "the policy of this server's agent changed, and does not allow this user the group");
        }
    }
}

/* ----------------------------------------------------------------------------------------------- from programs */

static rs_local_group *make_group(rs_groups *g, const char *name) {
    rs_local_group *group = g->group_count < RS_GROUPS_MOST ? aligned_alloc(RS_MEMORY_LINE, sizeof *group) : NULL;
    if (!group)
        return NULL;
    memset(group, 0, sizeof *group);
    snprintf(group->name, sizeof group->name, "%s", name);
    group->unused_at = RS_NEVER;
    rs_flow_reset(&group->flow);
    group->next = g->groups;
    if (group->next)
        group->next->before = group;
    g->groups = group;
    group->next_by_name = g->by_name[bucket_of(name)];
    g->by_name[bucket_of(name)] = group;
    g->group_count++;
    return group;
}

/* What of `join` is other than the group is, as text; false: nothing. */
static bool differs(rs_groups *g, const rs_local_group *group, const rs_api_join *join, char *text, size_t size) {
    char has[RS_GROUP_OPTIONS_TEXT], wanted[RS_GROUP_OPTIONS_TEXT];
    if (!rs_group_is_viewed(group) || !join->protocol[0])
        return false;
    if (strcmp(group->protocol, join->protocol) == 0 && strcmp(group->order, join->order) == 0 &&
        rs_messages_check_options(g->node, group->protocol, NULL, group->options, has) == RS_OK &&
        rs_messages_check_options(g->node, group->protocol, has, join->options, wanted) == RS_OK &&
        strcmp(has, wanted) == 0)
        return false;
    snprintf(text, size, "%.64s runs %s with order %.40s%s%.32s, other than was asked for; leave the options out",
             group->name, group->protocol, group->order, group->options[0] ? " and " : "", group->options);
    return true;
}

/* What an engine that is here says against the options; false: nothing, or there is no such engine. */
static bool is_wrong(rs_groups *g, const rs_api_join *join) {
    char complete[RS_GROUP_OPTIONS_TEXT];
    return rs_messages_check_options(g->node, join->protocol, NULL, join->options, complete) == RS_ERR_INVALID;
}

/* A manager has to form them. */
static bool has_regions(const rs_groups *g, const char *protocol) {
    const rs_group_engine *engine;
    for (uint32_t i = 0; (engine = rs_messages_engine(g->node, i)); i++)
        if (strcmp(engine->name, protocol) == 0)
            return engine->region != NULL;
    return false;
}

void rs_groups_api(void *context, const rs_api_join *join) {
    rs_agent *agent = context;
    rs_groups *g = agent->groups;
    char text[ROSTRUM_TEXT_MAX + 1];
    rs_local_group *group = rs_groups_by_name(g, join->group);
    bool ready = group && rs_group_is_viewed(group) && (!join->subscribe || rs_group_is_member(group));
    if (!ready && !agent->link && !agent->lan) {
        rs_stream_refuse_join(g, join, ROSTRUM_ERR_UNAVAILABLE,
                              "this agent has no manager (rostrumd --manager), and is not told to do without one "
                              "(--standalone true)");
        return;
    }
    if (join->protocol[0] && is_wrong(g, join)) {
        rs_stream_refuse_join(g, join, ROSTRUM_ERR_INVALID, rs_messages_refusal(g->node));
        return;
    }
    if (agent->lan && has_regions(g, join->protocol)) {
        snprintf(text, sizeof text,
                 "%.64s needs a manager, which says what travels together; without one: plain, ricochet",
                 join->protocol);
        rs_stream_refuse_join(g, join, ROSTRUM_ERR_UNAVAILABLE, text);
        return;
    }
    rs_group_delivery delivery = {0};
    if (agent->lan && join->protocol[0] && rs_group_delivery_parse(join->order, &delivery) && delivery.guaranteed) {
        snprintf(text, sizeof text,
                 "order %.48s needs a manager, which says who is in the group; without one: none, fifo", join->order);
        rs_stream_refuse_join(g, join, ROSTRUM_ERR_UNAVAILABLE, text);
        return;
    }
    if (group && differs(g, group, join, text, sizeof text)) {
        rs_stream_refuse_join(g, join, ROSTRUM_ERR_DENIED, text);
        return;
    }
    if (!group && g->stream_count < RS_GROUP_STREAMS_MOST)
        group = make_group(g, join->group);
    rs_time now = rs_agent_now(agent);
    rs_group_stream *stream =
        group && g->stream_count < RS_GROUP_STREAMS_MOST ? rs_stream_new(g, group, join, now + JOIN_WAIT) : NULL;
    if (!stream) {
        snprintf(text, sizeof text, "this agent serves %u groups and %u programs in them, or is out of memory",
                 g->group_count, g->stream_count);
        rs_stream_refuse_join(g, join, ROSTRUM_ERR_LIMIT, text);
        return;
    }
    group->unused_at = RS_NEVER;
    if (ready) {
        rs_stream_open(stream);
        return;
    }
    if (now + JOIN_BOUND < g->join_deadline)
        g->join_deadline = now + JOIN_BOUND;
    group->asked = true; /* a manager that is away is told when it is there: rs_groups_link_up */
    tell_role(g, group, false);
}

void rs_groups_channels(void *context, const rs_api_join *join) {
    rs_agent *agent = context;
    rs_streams_channels(agent->groups, join);
}

void rs_groups_stream_gone(rs_groups *g, rs_local_group *group, bool received) {
    if (group->held == 0 && received && group->receiver_count == 0 && group->stream_count > 0)
        tell_role(g, group, false);
    if (group->stream_count == 0) {
        group->unused_at = rs_agent_now(g->agent) + (rs_group_is_viewed(group) ? UNUSED_LINGER : 0);
        if (group->unused_at < g->join_deadline)
            g->join_deadline = group->unused_at;
    }
}

/* ------------------------------------------------------------------------------------------------------- turns */

static void deliver(rs_groups *g, const rs_messages_event *event) {
    rs_local_group *group = rs_groups_by_id(g, event->group);
    if (event->kind == RS_MESSAGES_LOG) {
        rs_log(RS_LOG_INFO, "groups", "group=%s %s", group ? group->name : "-", event->text);
        return;
    }
    if (!group)
        return;
    if (event->kind == RS_MESSAGES_COMPLETE) {
        for (rs_group_stream *s = group->streams; s; s = rs_stream_next(s))
            if (rs_stream_wants_completion(s))
                rs_stream_complete(s, event->sn, event->count);
        return;
    }
    bool lost = event->kind == RS_MESSAGES_LOST;
    if (group->in_regions && event->part == 0)
        rs_groups_given(g, event);
    if (group->ordered) { /* it brings what is lost itself */
        if (!lost)
            rs_ordered_take(g, group, event->sender, event->bytes, event->length);
        return;
    }
    group->lost += lost ? event->count : 0;
    group->delivered += !lost;
    group->by_repair += !lost && event->via == RS_VIA_REPAIR;
    group->by_request += !lost && event->via == RS_VIA_RETRANSMIT;
    for (rs_group_stream *s = group->streams; s; s = rs_stream_next(s)) {
        if (rs_stream_waits(s) || !rs_stream_receives(s))
            continue;
        if (lost)
            rs_stream_lost(s, event);
        else
            rs_stream_message(s, event);
    }
}

void rs_groups_soon(const rs_groups *g, uint32_t id, rs_groups_soon_what what) {
    rs_local_group *const *bucket = &g->by_id[id % RS_GROUP_BUCKETS];
    if (what == RS_GROUPS_SOON_PLACE)
        __builtin_prefetch(bucket);
    else if (what == RS_GROUPS_SOON_GROUP && *bucket)
        __builtin_prefetch(*bucket, 1);
    else if (*bucket && (*bucket)->streams)
        __builtin_prefetch((*bucket)->streams, 1);
}

/* Those of the next messages, while this one is copied. */
static void soon(const rs_groups *g) {
    rs_groups_soon(g, rs_messages_event_ahead(g->node, 1), RS_GROUPS_SOON_GROUP);
    rs_groups_soon(g, rs_messages_event_ahead(g->node, 0), RS_GROUPS_SOON_PROGRAMS);
}

bool rs_groups_pump(rs_groups *g) {
    rs_messages_event event;
    uint32_t count = 0;
    rs_streams_resume(g);
    uint32_t worked = rs_messages_work(g->node, rs_agent_now(g->agent), WORK_TURN);
    while (count < EVENTS_TURN && rs_messages_poll_event(g->node, &event)) {
        soon(g);
        deliver(g, &event);
        count++;
    }
    bool more = rs_groups_send_ordered(g);
    more |= rs_streams_take_ordered(g);
    rs_streams_flush(g);
    rs_groups_report_held_back(g);
    bool sent = rs_groups_send_packets(g);
    rs_overlay_flush(g->agent->overlay); /* what guarantees and flow control have to say to members, too */
    g->more = worked == WORK_TURN || count == EVENTS_TURN || sent || more;
    return g->more;
}

rs_time rs_groups_deadline(const rs_groups *g) {
    if (g->more)
        return 0; /* the pump ended before all was said */
    rs_time deadline = rs_messages_deadline(g->node), sockets = rs_groups_sockets_deadline(g);
    rs_time ordered = rs_ordered_deadline(g);
    deadline = ordered < deadline ? ordered : deadline;
    deadline = sockets < deadline ? sockets : deadline;
    if (!rs_messages_is_prepared(g->node) && g->prepare_at < deadline)
        deadline = g->prepare_at;
    if (!rs_list_empty(&g->paused) && rs_agent_now(g->agent) + RS_MILLISECOND < deadline)
        deadline = rs_agent_now(g->agent) + RS_MILLISECOND;
    if (g->any_held && rs_agent_now(g->agent) + RS_FLOW_AGAIN < deadline)
        deadline = rs_agent_now(g->agent) + RS_FLOW_AGAIN;
    return g->join_deadline < deadline ? g->join_deadline : deadline;
}

/* The manager has not answered a join in time. */
static void refuse_late(rs_groups *g, rs_group_stream *s, rs_time now) {
    char text[ROSTRUM_TEXT_MAX + 1];
    const rs_manager_client *link = g->agent->link;
    if (!link || rs_manager_answers(link)) {
        rs_stream_refuse(s, ROSTRUM_ERR_TIMEOUT,
                         link ? "the manager has not answered within 10 s" : "there is no memory for it");
        return;
    }
    rs_manager_describe(link, now, text, sizeof text);
    rs_stream_refuse(s, ROSTRUM_ERR_UNAVAILABLE, text);
}

/* When a join fails that has no answer. Only while the manager is there does it owe one; one that went away before it
 * answered is waited for. While it answers others it comes to this one: they are in the order in which they were told,
 * and of ten thousand the last waits for long. */
static rs_time join_deadline(const rs_groups *g, const rs_group_stream *s) {
    rs_time last = rs_stream_deadline(s), began = last - JOIN_WAIT;
    rs_time asked = g->link_up_at > began ? g->link_up_at : began, busy = g->answered_at + JOIN_BOUND;
    if (g->agent->link && rs_manager_answers(g->agent->link) && asked + JOIN_BOUND < last)
        last = asked + JOIN_BOUND;
    busy = busy < began + JOIN_BUSY ? busy : began + JOIN_BUSY;
    return busy > last ? busy : last;
}

/* Nobody here uses it any more. */
static void end_unused(rs_groups *g, rs_local_group *group) {
    if (group->told & RS_TOLD_JOIN)
        rs_group_tell(g, group, RS_MANAGER_GROUP_LEAVE, false);
    if (group->told & RS_TOLD_USE)
        rs_group_tell(g, group, RS_MANAGER_GROUP_UNUSE, false);
    remove_group(g, group);
}

bool rs_group_end_unused(rs_groups *g, const rs_local_group *but) {
    rs_local_group *first = NULL;
    for (rs_local_group *group = g->groups; group && !g->agent->lan; group = group->next)
        if (group != but && group->place_count > 0 && group->stream_count == 0 && group->held == 0 &&
            (!first || group->unused_at < first->unused_at))
            first = group;
    if (first)
        end_unused(g, first);
    return first != NULL;
}

static void expire_joins(rs_groups *g, rs_time now) {
    g->join_deadline = RS_NEVER;
    for (rs_local_group *group = g->groups, *after; group; group = after) {
        after = group->next;
        group->held++;
        for (rs_group_stream *s = group->streams, *next; s; s = next) {
            next = rs_stream_next(s);
            if (!rs_stream_waits(s))
                continue;
            rs_time deadline = join_deadline(g, s);
            if (deadline <= now)
                refuse_late(g, s, now);
            else if (deadline < g->join_deadline)
                g->join_deadline = deadline;
        }
        group->held--;
        if (group->stream_count > 0)
            continue;
        if (group->unused_at > now) {
            g->join_deadline = group->unused_at < g->join_deadline ? group->unused_at : g->join_deadline;
            continue;
        }
        end_unused(g, group);
    }
}

/* The machine's memory that is free or can be; 0: that is not known. */
static uint64_t available_bytes(void) {
    unsigned long long kb = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && kb == 0 && fgets(line, sizeof line, file))
        (void)sscanf(line, "MemAvailable: %llu kB", &kb);
    if (file)
        fclose(file);
    return kb << 10;
}

/* Where memory is short, as with hundreds of agents on a machine, messages make their pages as they come. */
static void prepare(rs_groups *g, rs_time now) {
    if (g->prepare_steps % PREPARE_LOOK == 0 && available_bytes() / PREPARE_SHARE < RS_FLOW_KEPT) {
        g->prepare_at = now + PREPARE_SHORT;
        return;
    }
    g->prepare_steps++;
    rs_messages_prepare(g->node);
    g->prepare_at = now + PREPARE_PAUSE;
}

void rs_groups_timeout(rs_groups *g) {
    rs_time now = rs_agent_now(g->agent);
    if (rs_drain_may_run(&g->drain, now)) {
        if (now >= rs_messages_deadline(g->node))
            rs_messages_timeout(g->node, now);
        rs_ordered_timeout(g);
    }
    if (now >= g->join_deadline)
        expire_joins(g, now);
    if (now >= g->prepare_at && !rs_messages_is_prepared(g->node))
        prepare(g, now);
    rs_groups_sockets_timeout(g);
}

uint32_t rs_groups_count(const rs_groups *g) {
    return g->group_count;
}

uint32_t rs_groups_status(const rs_groups *g, rostrum_group_status *rows, uint32_t most) {
    uint32_t count = 0;
    for (const rs_local_group *group = g->groups; group && count < most; group = group->next) {
        rostrum_group_status *row = &rows[count++];
        *row = (rostrum_group_status){.id = group->id,
                                      .version = group->version,
                                      .joined = rs_group_is_member(group),
                                      .members = group->member_count,
                                      .subscribers = group->receiver_count,
                                      .publishers = group->stream_count - group->receiver_count,
                                      .published = group->published,
                                      .delivered = group->delivered,
                                      .lost = group->lost,
                                      .lost_slow = group->lost_slow,
                                      .by_repair = group->by_repair,
                                      .by_request = group->by_request};
        snprintf(row->name, sizeof row->name, "%s", group->name);
        snprintf(row->protocol, sizeof row->protocol, "%s", group->protocol);
        snprintf(row->order, sizeof row->order, "%.*s", (int)strcspn(group->order, ","), group->order);
        if (group->place_count > 0) /* none before a view, nor where regions have the addresses */
            rs_address_text(g->channels[group->places[0].channel].address, row->address);
    }
    return count;
}

void rs_groups_stats(const rs_groups *g, rs_messages_stats *out) {
    rs_messages_stats_get(g->node, out);
}

uint32_t rs_groups_engine_stats(const rs_groups *g, uint32_t engine, rs_group_stat *out) {
    return rs_messages_engine_stats(g->node, engine, out);
}

/* ------------------------------------------------------------------------------------------------------- birth */

static void log_io(void *context, rs_io_log_level level, const char *text) {
    (void)context;
    rs_log(level == RS_IO_LOG_WARNING ? RS_LOG_WARNING : RS_LOG_DEBUG, "io", "%s", text);
}

/* On sockets, whatever carries objects: these give whole datagrams, and others may listen at the same addresses. */
static rs_io *open_io(const rs_agent *agent, uint64_t seed) {
    const rs_options *o = &agent->options;
    char error[RS_IO_ERROR_MAX];
    const rs_io_options options = rs_options_io(o, log_io);
    rs_io *io = rs_io_open(strcmp(o->io, "udp") == 0 ? "udp" : "udp-gso", &options, error);
    if (io && o->loss)
        io = rs_io_lossy(io, o->loss, seed, error);
    io = rs_secure_io(agent, io, RS_SEAL_MESSAGES, true, error);
    if (!io)
        rs_log(RS_LOG_ERROR, "groups", "%s", error);
    return io;
}

void rs_groups_link_callbacks(rs_manager_callbacks *callbacks) {
    callbacks->on_group_peer = rs_groups_peer;
    callbacks->on_group_region = rs_groups_region;
    callbacks->on_group_view = rs_groups_view;
    callbacks->on_group_refused = rs_groups_refused;
}

void rs_groups_link_options(rs_manager_options *options) {
    options->group_engines = rs_group_engines_known;
    options->group_engine_count = rs_group_engine_count;
}

void rs_groups_copies(void *context, const char *name, const uint32_t *addresses, uint32_t count) {
    const rs_agent *agent = context;
    const rs_local_group *group = rs_groups_by_name(agent->groups, name);
    if (group && rs_group_is_viewed(group) && group->place_count > 0)
        rs_channel_copies(agent->groups, group->places[0].channel, addresses, count);
}

/* ---------------------------------------------------------------------------------------------------- signatures */

_Static_assert(RS_MESSAGES_STAMP == RS_SIGN_STAMP && RS_MESSAGES_STAMPED == RS_SIGN_BATCH, "a stamp is a signature");

static rs_signed signed_of(const rs_messages_stamped *packet) {
    rs_signed one = {.head = packet->head,
                     .head_length = packet->head_length,
                     .rest = packet->rest,
                     .rest_length = packet->rest_length,
                     .stamp = packet->stamp};
    memcpy(one.context, packet->id, sizeof one.context);
    return one;
}

static void make_stamps(void *context, const rs_messages_stamped *packets, uint32_t count) {
    rs_signed batch[RS_MESSAGES_STAMPED];
    for (uint32_t i = 0; i < count; i++)
        batch[i] = signed_of(&packets[i]);
    (void)rs_secure_sign(context, RS_SIGNS_MESSAGE, batch, count);
}

/* By the key that the manager tells of the server that the packet names. */
static bool stamp_is_right(void *context, rs_peer sender, const rs_messages_stamped *packet) {
    rs_agent *agent = context;
    const rs_group_peer *peer = rs_group_peer_by_address(agent->groups, sender);
    const uint8_t *signer = peer ? rs_secure_signer(agent, RS_KEYS_PEER, rs_keyring_name(peer->name)) : NULL;
    const rs_signed one = signed_of(packet);
    return signer && rs_secure_is_signed(agent, signer, RS_SIGNS_MESSAGE, &one);
}

/* --------------------------------------------------------------------------------------------------------- birth */

rs_groups *rs_groups_new(rs_agent *agent, uint64_t seed) {
    rs_groups *g = calloc(1, sizeof *g);
    if (!g) {
        rs_log(RS_LOG_ERROR, "groups", "out of memory");
        return NULL;
    }
    g->io = open_io(agent, seed);
    uint32_t mtu = agent->options.mtu ? agent->options.mtu : rs_nic_mtu(agent->options.interface);
    g->agent = agent;
    rs_list_init(&g->sockets);
    rs_list_init(&g->paused);
    rs_flow_sum_init(&g->flows, false);
    rs_flow_sum_init(&g->region_flows, true);
    g->join_deadline = RS_NEVER;
    const uint32_t room = mtu - 28 - (agent->keys ? rs_secure_bytes(agent) + RS_SEAL_SHOWN : 0);
    g->packet_bytes = room < RS_MESSAGES_PACKET_MOST ? room : RS_MESSAGES_PACKET_MOST;
    g->message_bytes = MESSAGE_BYTES;
    g->window = rs_flow_window(g->packet_bytes);
    g->incarnation = rs_messages_incarnation(agent->boot); /* as others know it by what views tell of this server */
    const rs_messages_config config = {
        .self = agent->options.address,
        .incarnation = g->incarnation,
        .seed = seed,
        .packet_bytes = g->packet_bytes,
        .lone_heartbeats = agent->keys != NULL,
        .sealed = agent->keys != NULL,
        .stamps = {.context = agent, .make = rs_secure_signs(agent) ? make_stamps : NULL, .is_right = stamp_is_right},
        .receive_bytes = RS_FLOW_KEPT,
        .send_bytes = RS_FLOW_KEPT,
        .message_bytes = g->message_bytes + RS_ORDER_HEAD};
    g->ears = calloc(1, sizeof *g->ears);
    g->node = rs_messages_new(&config, &MEMORY);
    if (g->io && g->ears && g->node && rs_groups_sockets_start(g))
        return g;
    rs_log(RS_LOG_ERROR, "groups", "cannot start group messages (MTU %u, memory)", mtu);
    rs_groups_free(g);
    return NULL;
}

bool rs_groups_knows(const rs_groups *g, uint32_t number, bool region) {
    const rs_local_group *group = region ? NULL : rs_groups_by_id(g, number);
    bool known = group && rs_group_is_viewed(group);
    for (uint32_t i = 0; region && !known && i < g->region_count; i++)
        known = g->regions[i].region == number;
    return known;
}

void rs_groups_free(rs_groups *g) {
    if (!g)
        return;
    while (g->groups) {
        rs_group_refuse(g->groups, false, ROSTRUM_ERR_UNAVAILABLE, "the agent is ending");
        remove_group(g, g->groups);
    }
    rs_streams_end(g);
    rs_groups_sockets_stop(g);
    rs_group_regions_free(g);
    rs_group_peers_free(g);
    rs_messages_free(g->node);
    free(g->ears);
    free(g);
}
