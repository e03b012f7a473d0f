/* The engine's row: a message of a group becomes a request to each of its regions (Sec. 2.2), where packets are shared
 * with all other groups that have that region. */
#include "core/qsm/qsm.h"

#include <stdlib.h>
#include <string.h>

#include "core/groups/members.h"
#include "core/groups/options.h"
#include "core/groups/views.h"
#include "core/qsm/completion.h"
#include "core/qsm/regions.h"
#include "core/qsm/send.h"
#include "core/qsm/streams.h"
#include "core/qsm/token.h"

#define MILLI 1000u
#define ALONE (1u << 31) /* added to a group's number: the region of its members, if no others are told */
#define MS INT64_C(1000000)

static const rs_group_option OPTIONS[] = {
    [RS_QSM_OPTION_REPLICAS] = {"replicas", MILLI, 64 * MILLI, RS_QSM_REPLICAS *MILLI, false,
                                "nodes that keep a packet for others, at least (R)", false}, /* Sec. 2.2 */
    [RS_QSM_OPTION_TOKEN] = {"token", MILLI, 60000 * MILLI, 5 * MILLI, false, "ms between tokens; the paper's is 1000",
                             false},
    [RS_QSM_OPTION_RATE] = {"rate", 0, MILLI, 0, false, "1: the paper's rate control", false}, /* Sec. 2.4 */
    [RS_QSM_OPTION_LAMBDA] = {"lambda", 0, MILLI, 0, true, "growth of the rate; 0: as usual", false},
    [RS_QSM_OPTION_LEAST] = {"least", 0, 100000 * MILLI, 0, false, "packets/s that are sent at least; 0: as usual",
                             false}, /* mu_min */
};
static const uint8_t KINDS[] = {RS_QSM_KIND_DATA, RS_QSM_KIND_TOKEN, RS_QSM_KIND_TOKEN_ACK, RS_QSM_KIND_PULL,
                                RS_QSM_KIND_ACK,  RS_QSM_KIND_NAK,   RS_QSM_KIND_POSITION};

static void stop(void *of_node) {
    rs_qsm *own = of_node;
    const rs_allocator *allocator = &own->node->allocator;
    for (uint32_t i = 0; i < RS_QSM_BUCKETS; i++)
        while (own->views[i])
            rs_qsm_view_remove(own->views[i]);
    if (own->prepared)
        rs_qsm_view_free(own->prepared);
    while (!rs_list_empty(&own->smalls))
        rs_list_append(&own->handed, own->smalls.next);
    rs_qsm_take_back(own);
    rs_memory_give(allocator, own->forwards);
    rs_memory_give(allocator, own->forward_marks);
    rs_memory_give(allocator, own->entries);
    rs_memory_give(allocator, own->scratch);
    rs_memory_give(allocator, own->left);
    rs_memory_give(allocator, own);
}

static rs_status start(rs_messages *node, void **out) {
    rs_qsm *own = rs_memory_take(&node->allocator, sizeof *own);
    if (!own)
        return RS_ERR_MEMORY;
    own->node = node;
    rs_list_init(&own->active);
    rs_list_init(&own->sending);
    rs_list_init(&own->smalls);
    rs_list_init(&own->handed);
    rs_list_init(&own->completed);
    own->unmapped_left = RS_QSM_MAPPING_MOST;
    own->entries = rs_memory_take(&node->allocator, RS_QSM_ENTRIES * sizeof *own->entries);
    own->scratch = rs_memory_take(&node->allocator, node->config.packet_bytes);
    if (!own->entries || !own->scratch) {
        stop(own);
        return RS_ERR_MEMORY;
    }
    *out = own;
    return RS_OK;
}

/* ---------------------------------------------------------------------------------------------- groups and regions */

/* Losses come back by regions. A group's packet that a later one shows to be missing is waited for as long as its
 * region tries. */
static rs_group_policy policy(const rs_messages *node, const rs_gm_group *next) {
    (void)node;
    rs_time interval = (rs_time)next->option[RS_QSM_OPTION_TOKEN] * 1000;
    return (rs_group_policy){.silent = true,
                             .give_up = RS_QSM_GIVE_UP + 1000 * MS + 10 * interval,
                             .give_up_behind = RS_QSM_GIVE_UP_BEHIND + 10 * interval};
}

static bool is_alone(const rs_gm_group *next) {
    return next->engine == &rs_group_engine_qsm && next->version > 0 && next->region_count == 0;
}

static rs_status prepare(void *of_node, const rs_gm_group *group, const rs_gm_group *next) {
    rs_qsm *own = of_node;
    (void)group;
    if (rs_gm_body_most(own->node, next) < RS_GM_BODY + RS_GM_PAYLOAD_LEAST ||
        own->node->config.packet_bytes < RS_QSM_TOKEN_HEAD + 2 * RS_QSM_ENTRY) {
        rs_gm_refuse(own->node, "qsm's packets and tokens do not fit datagrams of %u bytes",
                     own->node->config.packet_bytes);
        return RS_ERR_INVALID;
    }
    if (!is_alone(next))
        return RS_OK;
    own->prepared = rs_qsm_view_new(own, next->id | ALONE, next->version, next->channel, next->members,
                                    next->member_count, next->option);
    if (!own->prepared)
        return RS_ERR_MEMORY;
    own->prepared->open = next->open;
    return RS_OK;
}

/* Waits have a bound together: a third of the time between them is there for the next ones. */
static bool may_wait(rs_qsm *own, rs_time now) {
    if (!own->unmapped) {
        rs_time more = own->unmapped_left + (now - own->unmapped_at) / 3;
        own->unmapped_left = more < RS_QSM_MAPPING_MOST ? more : RS_QSM_MAPPING_MOST;
        own->unmapped = true;
        own->unmapped_at = now;
    }
    return now - own->unmapped_at < own->unmapped_left;
}

static void end_wait(rs_qsm *own, rs_time now) {
    if (!own->unmapped)
        return;
    rs_time waited = now - own->unmapped_at;
    own->unmapped_left -= waited < own->unmapped_left ? waited : own->unmapped_left;
    own->unmapped = false;
    own->unmapped_at = now;
}

static void change(void *of_node, rs_gm_group *group, const rs_gm_group *next) {
    rs_qsm *own = of_node;
    rs_qsm_view *view = rs_qsm_view_current(own, group->id | ALONE);
    group->mapped = 0;
    end_wait(own, own->now); /* perhaps the group waited that ends */
    if (next->version == 0 || next->engine != &rs_group_engine_qsm)
        rs_qsm_completion_end(own, group);
    if (view && !is_alone(next))
        rs_qsm_view_retire(view);
    if (!is_alone(next))
        return;
    rs_qsm_view_install(own->prepared);
    own->prepared = NULL;
}

static rs_status region(void *of_node, rs_time now, const rs_messages_region *view) {
    rs_qsm *own = of_node;
    rs_messages *node = own->node;
    uint32_t option[RS_GROUP_OPTIONS_MOST] = {0};
    rs_qsm_view *before = rs_qsm_view_current(own, view->region);
    (void)now;
    if (view->region >= ALONE || view->version == 0 || (before && view->version <= before->version)) {
        rs_gm_refuse(node, "region %u has no version %llu that is newer than the one here", view->region,
                     (unsigned long long)view->version);
        return RS_ERR_STATE;
    }
    rs_group_options_usual(&rs_group_engine_qsm, option);
    if (!rs_group_options_read(&rs_group_engine_qsm, view->options, option, node->refusal, sizeof node->refusal))
        return RS_ERR_INVALID;
    if (view->node_count == 0) {
        if (before)
            rs_qsm_view_retire(before);
        return RS_OK;
    }
    rs_peer *nodes = rs_memory_take(&node->allocator, view->node_count * sizeof *nodes);
    if (!nodes)
        return RS_ERR_MEMORY;
    memcpy(nodes, view->nodes, view->node_count * sizeof *nodes);
    qsort(nodes, view->node_count, sizeof *nodes, rs_gm_by_number);
    for (uint32_t i = 1; i < view->node_count; i++)
        if (nodes[i] == nodes[i - 1]) {
            rs_memory_give(&node->allocator, nodes);
            rs_gm_refuse(node, "the view of region %u names a node twice", view->region);
            return RS_ERR_INVALID;
        }
    rs_qsm_view *made =
        rs_qsm_view_new(own, view->region, view->version, view->channel, nodes, view->node_count, option);
    rs_memory_give(&node->allocator, nodes);
    if (!made)
        return RS_ERR_MEMORY;
    made->open = view->open;
    rs_qsm_view_install(made);
    return RS_OK;
}

static uint32_t head(const rs_gm_group *group) {
    (void)group;
    return RS_QSM_CARRIED;
}

/* Whether each member is in one of these views; all lists ascend. */
static bool have_all_members(const rs_gm_group *group, rs_peer self, rs_qsm_view *const *views, uint32_t count) {
    uint32_t at[RS_MESSAGES_CHANNELS_MOST] = {0};
    if (count == 1 && views[0]->count == group->member_count &&
        memcmp(views[0]->nodes, group->members, group->member_count * sizeof *group->members) == 0)
        return true;
    for (uint32_t i = 0; i < group->member_count; i++) {
        bool there = group->members[i] == self;
        for (uint32_t k = 0; k < count && !there; k++) {
            while (at[k] < views[k]->count && views[k]->nodes[at[k]] < group->members[i])
                at[k]++;
            there = views[k]->open || (at[k] < views[k]->count && views[k]->nodes[at[k]] == group->members[i]);
        }
        if (!there)
            return false;
    }
    return true;
}

/* A group view has region views (Sec. 2.1), which are told one after the other: between the view of a region that some
 * nodes moved from and the group's, which names the region that they moved to, messages would miss these nodes. So they
 * wait, for a bounded time. Looked at once after each change of one of the group's regions. */
static bool is_mapped(rs_qsm *own, rs_time now, rs_gm_group *group) {
    rs_qsm_view *views[RS_MESSAGES_CHANNELS_MOST];
    uint32_t count = 0;
    uint64_t of_views = 1;
    for (uint32_t i = 0; i < group->region_count; i++) {
        views[count] = rs_qsm_view_current(own, group->regions[i]);
        if (views[count])
            of_views += rs_mix(views[count++]->made) << 1;
    }
    if (group->region_count == 0 || group->mapped == of_views)
        return true;
    if (!have_all_members(group, own->node->config.self, views, count) && may_wait(own, now))
        return false;
    end_wait(own, now);
    group->mapped = of_views;
    return true;
}

/* New requests go to the newest view of each region (Sec. 2.1); all take it, or none. */
static bool carry(void *of_node, rs_time now, rs_gm_group *group, const uint8_t *datagram, uint32_t length) {
    rs_qsm *own = of_node;
    const uint32_t alone = group->id | ALONE, *regions = group->region_count ? group->regions : &alone;
    uint32_t count = group->region_count ? group->region_count : 1;
    rs_gm_id id;
    rs_gm_get_id(datagram + RS_GM_HEADER - RS_GM_ID, &id);
    rs_qsm_inner inner = {group->id, id.sn, datagram + RS_GM_HEADER, length - RS_GM_HEADER};
    if (!is_mapped(own, now, group))
        return false;
    uint32_t packets = 0, requests = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rs_qsm_view *view = rs_qsm_view_current(own, regions[i]);
        if (view && !rs_qsm_out_has_room(view, inner.length, &packets))
            return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        rs_qsm_view *view = rs_qsm_view_current(own, regions[i]);
        if (!view || !rs_qsm_out_add(view, now, &inner))
            own->stats.refused++;
        else
            requests += rs_qsm_out_others(view) > 0;
    }
    rs_qsm_completion_begin(own, group, id.sn, requests);
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- receive */

static bool datagram(void *of_node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    static bool (*const RECEIVE[])(rs_qsm *, rs_time, rs_peer, const uint8_t *,
                                   size_t) = {[RS_QSM_KIND_DATA] = rs_qsm_receive_data,
                                              [RS_QSM_KIND_TOKEN] = rs_qsm_receive_token,
                                              [RS_QSM_KIND_TOKEN_ACK] = rs_qsm_receive_token_ack,
                                              [RS_QSM_KIND_PULL] = rs_qsm_receive_pull,
                                              [RS_QSM_KIND_ACK] = rs_qsm_receive_ack,
                                              [RS_QSM_KIND_NAK] = rs_qsm_receive_nak,
                                              [RS_QSM_KIND_POSITION] = rs_qsm_receive_position};
    return RECEIVE[rs_gm_get_kind(bytes, length)](of_node, now, from, bytes, length);
}

/* ---------------------------------------------------------------------------------------------------------- timers */

static bool is_settled(const rs_qsm_view *view) {
    if (view->out && (view->out->stable + 1 < view->out->next || view->out->naked_range < view->out->naked.count))
        return false;
    for (rs_list *at = view->streams.next; at != &view->streams; at = at->next)
        if (rs_qsm_is_unsettled(RS_HOLDER(rs_qsm_stream, in_view, at)))
            return false;
    return true;
}

static rs_time settled_after(const rs_qsm_view *view) {
    return 100 * view->interval > RS_QSM_LINGER_LEAST ? 100 * view->interval : RS_QSM_LINGER_LEAST;
}

/* An old view is kept until what was sent under it has come, or does not come any more. */
static bool has_ended(rs_qsm_view *view, rs_time now) {
    if (view->current)
        return false;
    view->retired_at = view->retired_at ? view->retired_at : now;
    rs_time age = now - view->retired_at, settled = settled_after(view);
    bool early = view->own->old_count > RS_QSM_OLD_MOST;
    return age >= RS_QSM_LINGER + settled || ((early || age >= settled) && is_settled(view));
}

static void timeout(void *of_node, rs_time now) {
    rs_qsm *own = of_node;
    own->now = now;
    for (rs_list *at = own->active.next, *after; at != &own->active; at = after) {
        rs_qsm_view *view = RS_HOLDER(rs_qsm_view, active, at);
        after = at->next;
        rs_qsm_token_timeout(view, now);
        rs_qsm_out_timeout(view, now);
        if (has_ended(view, now))
            rs_qsm_view_remove(view);
        else if (view->current && rs_qsm_token_idle(view) && rs_qsm_out_deadline(view) == RS_NEVER)
            rs_list_remove(at);
    }
}

static rs_time deadline(const void *of_node) {
    const rs_qsm *own = of_node;
    rs_time first = RS_NEVER;
    for (rs_list *at = own->active.next; at != &own->active; at = at->next) {
        const rs_qsm_view *view = RS_HOLDER(rs_qsm_view, active, at);
        first = rs_qsm_earlier(first, rs_qsm_earlier(rs_qsm_token_deadline(view), rs_qsm_out_deadline(view)));
        if (!view->current) {
            rs_time settled = view->retired_at + settled_after(view);
            rs_time ends = own->now < settled ? settled : own->now + 100 * view->interval;
            first = rs_qsm_earlier(first, view->retired_at ? ends : 1);
        }
    }
    if (own->unmapped && own->unmapped_at + own->unmapped_left > own->now)
        first = rs_qsm_earlier(first, own->unmapped_at + own->unmapped_left);
    return rs_qsm_earlier(first, rs_qsm_control_deadline(own));
}

/* Those that this node knows to take no tokens; of a node in several regions each counts. */
static uint64_t silent_nodes(const rs_qsm *own) {
    uint64_t count = 0;
    for (const rs_list *at = own->active.next; at != &own->active; at = at->next) {
        const rs_qsm_view *view = RS_HOLDER(rs_qsm_view, active, at);
        for (uint32_t i = 0; view->current && view->silent && i < view->count; i++)
            count += view->silent[i] > 0;
    }
    return count;
}

static uint32_t stats(const void *of_node, rs_group_stat *out) {
    const rs_qsm *own = of_node;
    const rs_qsm_stats *s = &own->stats;
    const rs_group_stat all[] = {{"qsm_packets", "sent", s->data_sent, false},
                                 {"qsm_packets", "received", s->data_received, false},
                                 {"qsm_packets", "duplicate", s->duplicates, false},
                                 {"qsm_packets", "multicast again", s->again_sent, false},
                                 {"qsm_packets", "forwarded", s->forwards_sent, false},
                                 {"qsm_packets", "recovered", s->forwards_received, false},
                                 {"qsm_packets", "lost", s->lost, false},
                                 {"qsm_packets", "refused", s->refused, false},
                                 {"qsm_packets", "foreign", s->foreign, false},
                                 {"qsm_packets", "acknowledged", s->acked, false},
                                 {"qsm_messages_packed", NULL, s->packed, false},
                                 {"qsm_tokens", "sent", s->tokens_sent, false},
                                 {"qsm_tokens", "again", s->tokens_again, false},
                                 {"qsm_tokens", "acknowledged", s->token_acks_sent, false},
                                 {"qsm_tokens", "passed over", s->tokens_skipped, false},
                                 {"qsm_rounds", "all", s->rounds, false},
                                 {"qsm_rounds", "incomplete", s->rounds_incomplete, false},
                                 {"qsm_control", "pulls", s->pulls_sent, false},
                                 {"qsm_control", "acks", s->acks_sent, false},
                                 {"qsm_control", "naks", s->naks_sent, false},
                                 {"qsm_control", "positions", s->positions_sent, false},
                                 {"qsm_ack_us", NULL, s->ack_us, false},
                                 {"qsm_region_views", NULL, own->view_count, true},
                                 {"qsm_silent_nodes", NULL, silent_nodes(own), true},
                                 {"qsm_cached_bytes", NULL, own->cache_bytes, true},
                                 {"qsm_kept_bytes", NULL, own->out_bytes, true}};
    _Static_assert(sizeof all / sizeof *all <= RS_GROUP_STATS_MOST, "the caller's room");
    memcpy(out, all, sizeof all);
    return sizeof all / sizeof *all;
}

const rs_group_engine rs_group_engine_qsm = {.name = "qsm",
                                             .meaning =
                                                 "many groups of the same servers share packets; losses are mended",
                                             .options = OPTIONS,
                                             .option_count = sizeof OPTIONS / sizeof *OPTIONS,
                                             .kinds = KINDS,
                                             .kind_count = sizeof KINDS,
                                             .start = start,
                                             .stop = stop,
                                             .policy = policy,
                                             .prepare = prepare,
                                             .change = change,
                                             .region = region,
                                             .head = head,
                                             .carry = carry,
                                             .soon = rs_qsm_data_soon,
                                             .datagram = datagram,
                                             .timeout = timeout,
                                             .deadline = deadline,
                                             .poll = rs_qsm_poll,
                                             .take_back = rs_qsm_take_back,
                                             .complete = rs_qsm_completion_tell,
                                             .completed = rs_qsm_completion_poll,
                                             .stats = stats};
