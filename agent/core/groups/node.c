/* Life of a node, and the order in which it does things. */
#include <string.h>

#include "core/groups/arrive.h"
#include "core/groups/deliver.h"
#include "core/groups/early.h"
#include "core/groups/members.h"
#include "core/groups/missing.h"
#include "core/groups/naks.h"
#include "core/groups/outbox.h"
#include "core/groups/positions.h"
#include "core/groups/publish.h"
#include "core/groups/streams.h"
#include "core/groups/views.h"

static void default_to(uint32_t *field, uint32_t value) {
    if (*field == 0)
        *field = value;
}

static void default_size(uint64_t *field, uint64_t value) {
    if (*field == 0)
        *field = value;
}

static void default_time(rs_time *field, rs_time ms) {
    if (*field == 0)
        *field = ms * 1000000;
}

static bool configure(rs_messages_config *c) {
    default_to(&c->packet_bytes, 1472);
    default_to(&c->message_bytes, 1 << 20);
    default_size(&c->receive_bytes, UINT64_C(32) << 20);
    default_size(&c->send_bytes, UINT64_C(32) << 20);
    default_size(&c->assembly_bytes, UINT64_C(64) << 20);
    default_to(&c->deliveries, 65536);
    default_to(&c->rx_queue_packets, 1024);
    default_to(&c->max_groups, 16384);
    default_to(&c->max_streams, 262144);
    default_size(&c->window_bytes, UINT64_C(16) << 20);
    default_to(&c->max_missing, 65536);
    default_to(&c->window_packets, 65536);
    default_to(&c->heartbeats, 4);
    default_time(&c->nak_delay, 100);
    default_time(&c->nak_retry, 50);
    default_time(&c->give_up, 1000);
    default_time(&c->give_up_plain, 200);
    default_time(&c->assembly_bound, 2000);
    default_time(&c->heartbeat, 40);
    return c->packet_bytes >= RS_MESSAGES_PACKET_LEAST && c->packet_bytes <= RS_MESSAGES_PACKET_MOST &&
           c->receive_bytes >= 4u * c->packet_bytes && c->send_bytes >= 4u * c->packet_bytes &&
           c->receive_bytes <= UINT64_C(1) << 40 && c->send_bytes <= UINT64_C(1) << 40 &&
           c->window_packets >= RS_GM_LEAST_WINDOW && c->max_streams >= RS_GM_CHUNK && c->max_groups <= 1u << 24 &&
           c->max_streams <= 1u << 28 && c->max_missing <= 1u << 28 && c->deliveries <= 1u << 28 &&
           c->window_packets <= 1u << 28 && c->heartbeats <= 16 && c->nak_delay > 0 && c->nak_retry > 0 &&
           c->give_up > 0 && c->give_up_plain > 0 && c->assembly_bound > 0 && c->heartbeat > 0 && c->self != RS_NO_PEER;
}

static void init_lists(rs_messages *node) {
    rs_list *lists[] = {&node->missing_order, &node->assemblies,      &node->beating,           &node->smalls,
                        &node->smalls_free,   &node->handed_smalls,   &node->handed_assemblies, &node->wide,
                        &node->departed,      &node->early_by_age[0], &node->early_by_age[1]};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        rs_list_init(lists[i]);
}

static bool init_tables(rs_messages *node) {
    const rs_messages_config *c = &node->config;
    uint32_t size = 16;
    while (size < 2 * c->max_groups)
        size *= 2;
    node->group_mask = size - 1;
    node->event_room = 1;
    while (node->event_room < (uint64_t)c->deliveries + RS_GM_LOST_RESERVE)
        node->event_room *= 2;
    node->group_table = rs_memory_take(&node->allocator, size * sizeof *node->group_table);
    node->groups = rs_memory_take(&node->allocator, c->max_groups * sizeof *node->groups);
    node->missing = rs_memory_take(&node->allocator, c->max_missing * sizeof *node->missing);
    node->events = rs_memory_take(&node->allocator, node->event_room * sizeof *node->events);
    node->retransmits = rs_memory_take(&node->allocator, RS_GM_RETRANSMITS * sizeof *node->retransmits);
    node->answered = rs_memory_take(&node->allocator, RS_GM_ANSWERED * sizeof *node->answered);
    node->rx_queue = rs_memory_take(&node->allocator, (size_t)c->rx_queue_packets * c->packet_bytes);
    node->rx_queue_order = rs_memory_take(&node->allocator, 4 * (size_t)c->rx_queue_packets * sizeof(uint32_t));
    if (!node->group_table || !node->groups || !node->missing || !node->events || !node->retransmits ||
        !node->answered || !node->rx_queue || !node->rx_queue_order || !rs_gm_streams_init(node) ||
        !rs_gm_naks_init(node) || rs_gm_log_init(&node->in, c->receive_bytes, &node->allocator) != RS_OK ||
        rs_gm_log_init(&node->out, c->send_bytes, &node->allocator) != RS_OK ||
        rs_timers_reserve(&node->heartbeats, &node->allocator, c->max_groups) != RS_OK ||
        rs_timers_reserve(&node->give_up_timers, &node->allocator, c->max_missing) != RS_OK ||
        rs_timers_reserve(&node->queries, &node->allocator, c->max_groups) != RS_OK)
        return false;
    node->rx_queue_length = node->rx_queue_order + c->rx_queue_packets;
    node->rx_queue_free = node->rx_queue_length + c->rx_queue_packets;
    node->rx_queue_from = node->rx_queue_free + c->rx_queue_packets;
    for (uint32_t i = 0; i < c->rx_queue_packets; i++)
        node->rx_queue_order[i] = i;
    return true;
}

static bool is_shared_kind(uint8_t kind) {
    return kind == RS_GM_KIND_DATA || kind == RS_GM_KIND_AGAIN || kind == RS_GM_KIND_NAK || kind == RS_GM_KIND_STATE ||
           kind == RS_GM_KIND_QUERY;
}

const void *rs_gm_engine_config(const rs_messages *node, const char *engine) {
    for (uint32_t i = 0; i < node->config.engine_count; i++)
        if (strcmp(node->config.engines[i].engine, engine) == 0)
            return node->config.engines[i].config;
    return NULL;
}

/* False: there are too many, two of a name or of a kind of datagram, or out of memory. */
static bool start_engines(rs_messages *node) {
    const uint32_t known = rs_group_engine_count, count = known + node->config.more_engine_count;
    for (uint32_t i = 0; i < count && i < RS_GM_ENGINES; i++) {
        const rs_group_engine *engine = i < known ? rs_group_engines_known[i] : node->config.more_engines[i - known];
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(node->engines[k]->name, engine->name) == 0)
                return false;
        if (engine->option_count > RS_GROUP_OPTIONS_MOST)
            return false;
        node->engine_own[i] = node;
        if (engine->start && engine->start(node, &node->engine_own[i]) != RS_OK)
            return false;
        node->engines[i] = engine;
        node->engine_count++;
        for (uint32_t k = 0; k < engine->kind_count; k++) {
            if (is_shared_kind(engine->kinds[k]) || node->kind_engine[engine->kinds[k]])
                return false;
            node->kind_engine[engine->kinds[k]] = (uint8_t)(i + 1);
        }
    }
    node->config.engines = NULL; /* the caller's, until now */
    node->config.engine_count = 0;
    return count <= RS_GM_ENGINES;
}

rs_messages *rs_messages_new(const rs_messages_config *config, const rs_allocator *allocator) {
    rs_messages_config complete = *config;
    if (!configure(&complete))
        return NULL;
    rs_messages *node = rs_memory_take(allocator, sizeof *node);
    if (!node)
        return NULL;
    node->config = complete;
    node->sweep_at = RS_NEVER;
    node->allocator = *allocator;
    node->random = rs_mix(complete.seed + 1) ^ rs_mix(~(uint64_t)complete.self);
    init_lists(node);
    if (init_tables(node) && start_engines(node))
        return node;
    rs_messages_free(node);
    return NULL;
}

void rs_messages_free(rs_messages *node) {
    if (!node)
        return;
    rs_gm_take_back(node);
    for (uint32_t i = 0; i < node->group_count; i++) {
        rs_gm_events_forget(node, node->groups[i]->id);
        rs_gm_group_free(node, node->groups[i]);
    }
    rs_gm_peers_free(node);
    rs_gm_early_free(node);
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->stop)
            node->engines[i]->stop(node->engine_own[i]);
    rs_gm_smalls_free(node);
    for (uint32_t i = 0; i < node->chunk_count; i++)
        rs_memory_give_lines(&node->allocator, node->chunks[i]);
    void *tables[] = {node->chunks,   node->places,      node->group_table, node->groups,   node->missing,
                      node->events,   node->retransmits, node->rx_queue,    node->answered, node->rx_queue_order,
                      node->in.bytes, node->out.bytes,   node->numbers};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        rs_memory_give(&node->allocator, tables[i]);
    rs_timers_free(&node->heartbeats, &node->allocator);
    rs_timers_free(&node->give_up_timers, &node->allocator);
    rs_timers_free(&node->queries, &node->allocator);
    rs_timers_free(&node->nak_timers, &node->allocator);
    rs_memory_give(&node->allocator, node);
}

/* A datagram of a kind that an engine has, or nobody. */
static bool receive_other(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    unsigned kind = rs_gm_get_kind(bytes, length);
    uint32_t number = node->kind_engine[kind & UINT8_MAX];
    if (number > 0) {
        const rs_group_engine *engine = node->engines[number - 1];
        return length <= node->config.packet_bytes && engine->datagram &&
               engine->datagram(node->engine_own[number - 1], now, from, bytes, length);
    }
    if (kind != 0) {
        node->stats.kinds++;
        node->stats.other_kind = kind;
    }
    return false;
}

bool rs_messages_receive(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    bool good = false;
    rs_gm_take_back(node);
    unsigned version = rs_gm_get_version(bytes, length);
    if (version != 0 && version != RS_GM_VERSION) {
        node->stats.versions++;
        node->stats.other_version = version;
        return false;
    }
    switch (rs_gm_get_kind(bytes, length)) {
    case RS_GM_KIND_DATA:
    case RS_GM_KIND_AGAIN:
        good = rs_gm_receive_data(node, now, from, bytes, length);
        break;
    case RS_GM_KIND_NAK:
        good = rs_gm_receive_nak(node, now, from, bytes, length);
        break;
    case RS_GM_KIND_STATE:
        good = rs_gm_receive_state(node, now, from, bytes, length);
        break;
    case RS_GM_KIND_QUERY:
        good = rs_gm_receive_query(node, from, bytes, length);
        break;
    default:
        good = receive_other(node, now, from, bytes, length);
        break;
    }
    node->stats.bad += !good;
    return good;
}

bool rs_messages_receive_as(rs_messages *node, rs_time now, rs_peer from, rs_messages_came came, const uint8_t *bytes,
                            size_t length) {
    const unsigned kind = rs_gm_get_kind(bytes, length);
    if (came == RS_CAME_LATE && kind != RS_GM_KIND_DATA && kind != RS_GM_KIND_REGIONS) {
        node->stats.refused++;
        return true;
    }
    node->came = came;
    const bool good = rs_messages_receive(node, now, from, bytes, length);
    node->came = RS_CAME_TO_ALL;
    return good;
}

bool rs_messages_is_prepared(const rs_messages *node) {
    return rs_gm_log_is_prepared(&node->in) && rs_gm_log_is_prepared(&node->out);
}

void rs_messages_prepare(rs_messages *node) {
    rs_gm_log_prepare(rs_gm_log_is_prepared(&node->in) ? &node->out : &node->in);
}

rs_message_group rs_messages_soon(const rs_messages *node, uint32_t ahead, const uint8_t *bytes, size_t length) {
    uint32_t number = node->kind_engine[rs_gm_get_kind(bytes, length) & UINT8_MAX];
    if (number == 0 || !node->engines[number - 1]->soon)
        return 0;
    return node->engines[number - 1]->soon(node->engine_own[number - 1], ahead, bytes, length);
}

void rs_messages_timeout(rs_messages *node, rs_time now) {
    rs_gm_take_back(node);
    rs_gm_missing_timeout(node, now);
    rs_gm_deliver_timeout(node, now);
    rs_gm_early_timeout(node, now);
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->timeout)
            node->engines[i]->timeout(node->engine_own[i], now);
    rs_gm_streams_timeout(node, now);
    rs_gm_positions_timeout(node, now);
}

static rs_time earlier(rs_time a, rs_time b) {
    return a < b ? a : b;
}

rs_time rs_messages_deadline(const rs_messages *node) {
    rs_time first = earlier(rs_gm_missing_deadline(node), rs_gm_deliver_deadline(node));
    first = earlier(first, earlier(rs_gm_positions_deadline(node), node->sweep_at));
    first = earlier(first, rs_gm_early_deadline(node));
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->deadline)
            first = earlier(first, node->engines[i]->deadline(node->engine_own[i]));
    return first;
}

static bool poll_engines(rs_messages *node, rs_time now, rs_messages_out *out) {
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->poll && node->engines[i]->poll(node->engine_own[i], now, out))
            return true;
    return false;
}

bool rs_messages_poll_tx(rs_messages *node, rs_time now, rs_messages_out *out) {
    if (rs_gm_poll_small(node, out) || rs_gm_poll_retransmit(node, out) || poll_engines(node, now, out))
        return true;
    node->carried = false;
    return rs_gm_poll_data(node, now, out) || (node->carried && poll_engines(node, now, out));
}

void rs_messages_stats_get(const rs_messages *node, rs_messages_stats *out) {
    *out = node->stats;
    out->groups = node->group_count;
    out->window_bytes += node->own_windows;
    out->streams = node->place_count;
}

uint32_t rs_messages_engine_stats(const rs_messages *node, uint32_t number, rs_group_stat *out) {
    bool any = number < node->engine_count && node->engines[number]->stats;
    return any ? node->engines[number]->stats(node->engine_own[number], out) : 0;
}

uint64_t rs_messages_count(const rs_messages *node, const char *name, const char *kind) {
    rs_group_stat stats[RS_GROUP_STATS_MOST];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < node->engine_count; i++) {
        uint32_t count = rs_messages_engine_stats(node, i, stats);
        for (uint32_t k = 0; k < count; k++)
            if (strcmp(stats[k].name, name) == 0 && (!kind || (stats[k].kind && strcmp(stats[k].kind, kind) == 0)))
                sum += stats[k].value;
    }
    return sum;
}

/* ----------------------------------------------------------------------------------------------------- receive queue:
 * the application's buffer in front of the protocol (Ricochet, Sec. 4.2.6) */

bool rs_messages_enqueue(rs_messages *node, rs_peer from, const uint8_t *bytes, size_t length) {
    if (length > node->config.packet_bytes) {
        node->stats.bad++;
        return true;
    }
    bool full = node->rx_queue_count == node->config.rx_queue_packets;
    uint32_t slot;
    if (full) {
        uint32_t victim = rs_gm_random_below(node, node->rx_queue_count);
        slot = node->rx_queue_order[victim];
        memmove(node->rx_queue_order + victim, node->rx_queue_order + victim + 1,
                (node->rx_queue_count - victim - 1) * sizeof *node->rx_queue_order);
        node->rx_queue_count--;
        node->stats.rx_queue_dropped++;
    } else
        slot =
            node->rx_queue_order[node->rx_queue_count]; /* the order is a permutation: behind the count are free ones */
    node->rx_queue_order[node->rx_queue_count++] = slot;
    node->rx_queue_length[slot] = (uint32_t)length;
    node->rx_queue_from[slot] = from;
    memcpy(node->rx_queue + (size_t)slot * node->config.packet_bytes, bytes, length);
    return !full;
}

uint32_t rs_messages_work(rs_messages *node, rs_time now, uint32_t most) {
    uint32_t done = 0;
    for (; done < most && done < node->rx_queue_count; done++) {
        uint32_t slot = node->rx_queue_order[done];
        rs_messages_receive(node, now, node->rx_queue_from[slot],
                            node->rx_queue + (size_t)slot * node->config.packet_bytes, node->rx_queue_length[slot]);
    }
    /* Those that were worked on are free: they go behind those that wait. */
    for (uint32_t i = 0; i < done; i++)
        node->rx_queue_free[i] = node->rx_queue_order[i];
    node->rx_queue_count -= done;
    memmove(node->rx_queue_order, node->rx_queue_order + done, node->rx_queue_count * sizeof *node->rx_queue_order);
    memcpy(node->rx_queue_order + node->rx_queue_count, node->rx_queue_free, done * sizeof *node->rx_queue_order);
    return done;
}
