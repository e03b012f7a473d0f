/* Life of a node, and the order in which it does things. */
#include "core/groups/state.h"

#include <string.h>

void *rs_gm_alloc(rs_messages *node, size_t size) {
    return node->allocator.alloc(node->allocator.context, size);
}

void rs_gm_release(rs_messages *node, void *memory) {
    if (memory)
        node->allocator.release(node->allocator.context, memory);
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) */
uint64_t rs_gm_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t rs_gm_random(rs_messages *node) {
    node->random += UINT64_C(0x9e3779b97f4a7c15);
    return rs_gm_mix(node->random);
}

uint32_t rs_gm_random_below(rs_messages *node, uint32_t bound) {
    return (uint32_t)(((rs_gm_random(node) >> 32) * bound) >> 32);
}

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
    default_to(&c->intake_packets, 1024);
    default_to(&c->max_groups, 16384);
    default_to(&c->max_streams, 262144);
    default_size(&c->window_bytes, UINT64_C(16) << 20);
    default_to(&c->max_missing, 65536);
    default_to(&c->window_packets, 65536);
    default_to(&c->kept_repairs, 1024);
    default_to(&c->repair_buffers, 16384);
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
           c->window_packets >= RS_GM_LEAST_WINDOW && c->max_streams >= RS_GM_CHUNK &&
           c->repair_buffers >= RS_GM_CHUNK && c->max_groups <= 1u << 24 && c->max_streams <= 1u << 28 &&
           c->max_missing <= 1u << 28 && c->deliveries <= 1u << 28 && c->window_packets <= 1u << 28 &&
           c->heartbeats <= 16 && c->nak_delay > 0 && c->nak_retry > 0 && c->give_up > 0 && c->give_up_plain > 0 &&
           c->assembly_bound > 0 && c->heartbeat > 0 && c->flush >= 0 && c->self != RS_NO_PEER;
}

static void init_lists(rs_messages *node) {
    rs_list *lists[] = {&node->doom,
                        &node->doom_plain,
                        &node->kept_order,
                        &node->kept_ready,
                        &node->kept_free,
                        &node->assemblies,
                        &node->beating,
                        &node->smalls,
                        &node->smalls_free,
                        &node->repairs,
                        &node->handed_smalls,
                        &node->handed_repairs,
                        &node->handed_assemblies,
                        &node->wide,
                        &node->departed};
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
    node->group_table = rs_gm_alloc(node, size * sizeof *node->group_table);
    node->groups = rs_gm_alloc(node, c->max_groups * sizeof *node->groups);
    node->missing = rs_gm_alloc(node, c->max_missing * sizeof *node->missing);
    node->kept = rs_gm_alloc(node, c->kept_repairs * sizeof *node->kept);
    node->events = rs_gm_alloc(node, node->event_room * sizeof *node->events);
    node->retransmits = rs_gm_alloc(node, RS_GM_RETRANSMITS * sizeof *node->retransmits);
    node->answered = rs_gm_alloc(node, RS_GM_ANSWERED * sizeof *node->answered);
    node->scratch = rs_gm_alloc(node, c->packet_bytes);
    node->intake = rs_gm_alloc(node, (size_t)c->intake_packets * c->packet_bytes);
    node->intake_order = rs_gm_alloc(node, 4 * (size_t)c->intake_packets * sizeof(uint32_t));
    if (!node->group_table || !node->groups || !node->missing || !node->kept || !node->events || !node->retransmits ||
        !node->answered || !node->scratch || !node->intake || !node->intake_order || !rs_gm_streams_init(node) ||
        !rs_gm_ask_init(node) || rs_gm_log_init(&node->in, c->receive_bytes, &node->allocator) != RS_OK ||
        rs_gm_log_init(&node->out, c->send_bytes, &node->allocator) != RS_OK ||
        rs_timers_reserve(&node->timers, &node->allocator, c->max_groups) != RS_OK ||
        rs_timers_reserve(&node->queries, &node->allocator, c->max_groups) != RS_OK)
        return false;
    node->intake_length = node->intake_order + c->intake_packets;
    node->intake_free = node->intake_length + c->intake_packets;
    node->intake_from = node->intake_free + c->intake_packets;
    for (uint32_t i = 0; i < c->intake_packets; i++)
        node->intake_order[i] = i;
    return true;
}

rs_messages *rs_messages_new(const rs_messages_config *config, const rs_allocator *allocator) {
    rs_messages_config complete = *config;
    if (!configure(&complete))
        return NULL;
    rs_messages *node = allocator->alloc(allocator->context, sizeof *node);
    if (!node)
        return NULL;
    node->config = complete;
    node->sweep_at = RS_NEVER;
    node->allocator = *allocator;
    node->random = rs_gm_mix(complete.seed + 1) ^ rs_gm_mix(~(uint64_t)complete.self);
    init_lists(node);
    rs_gm_engines_init(node->engines);
    if (rs_gm_bins_init(node) == RS_OK && init_tables(node))
        return node;
    rs_messages_free(node);
    return NULL;
}

static void free_smalls(rs_messages *node, rs_list *list) {
    while (!rs_list_empty(list)) {
        rs_gm_small *small = RS_HOLDER(rs_gm_small, order, list->next);
        rs_list_remove(&small->order);
        rs_gm_release(node, small);
    }
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
    rs_gm_bins_free(node);
    free_smalls(node, &node->smalls);
    free_smalls(node, &node->smalls_free);
    for (uint32_t i = 0; i < node->kept_used; i++)
        rs_gm_release(node, node->kept[i].bytes);
    for (uint32_t i = 0; i < node->chunk_count; i++)
        rs_gm_release(node, node->chunks[i]);
    void *tables[] = {node->chunks,   node->places,       node->group_table, node->groups,    node->missing,
                      node->kept,     node->events,       node->retransmits, node->scratch,   node->intake,
                      node->answered, node->intake_order, node->in.bytes,    node->out.bytes, node->numbers};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        rs_gm_release(node, tables[i]);
    rs_timers_free(&node->timers, &node->allocator);
    rs_timers_free(&node->queries, &node->allocator);
    rs_timers_free(&node->asking, &node->allocator);
    rs_gm_release(node, node);
}

rs_gm_small *rs_gm_small_new(rs_messages *node) {
    rs_gm_small *small;
    if (!rs_list_empty(&node->smalls_free))
        small = RS_HOLDER(rs_gm_small, order, node->smalls_free.next);
    else {
        small = node->smalls_made < RS_GM_SMALLS ? rs_gm_alloc(node, sizeof *small) : NULL;
        if (!small)
            return NULL;
        node->smalls_made++;
        rs_list_init(&small->order);
    }
    small->peer = RS_NO_PEER;
    small->group = RS_NO_GROUP;
    rs_list_append(&node->smalls, &small->order);
    return small;
}

void rs_gm_take_back(rs_messages *node) {
    while (!rs_list_empty(&node->handed_smalls))
        rs_list_append(&node->smalls_free, node->handed_smalls.next);
    while (!rs_list_empty(&node->handed_assemblies))
        rs_gm_assembly_free(node, RS_HOLDER(rs_gm_assembly, by_age, node->handed_assemblies.next));
    rs_gm_bins_take_back(node);
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
    case RS_GM_KIND_REPAIR:
        good = rs_gm_receive_repair(node, now, from, bytes, length);
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
        break;
    }
    node->stats.bad += !good;
    return good;
}

void rs_messages_timeout(rs_messages *node, rs_time now) {
    rs_gm_take_back(node);
    rs_gm_missing_timeout(node, now);
    rs_gm_deliver_timeout(node, now);
    rs_gm_bins_timeout(node, now);
    rs_gm_streams_timeout(node, now);
    rs_gm_query_timeout(node, now);
    for (rs_timer *timer; (timer = rs_timers_first(&node->timers)) && timer->due <= now;)
        rs_gm_heartbeat(node, now, timer->owner);
}

rs_time rs_messages_deadline(const rs_messages *node) {
    const rs_timer *timer = rs_timers_first(&node->timers), *query = rs_timers_first(&node->queries);
    rs_time all[] = {timer ? timer->due : RS_NEVER,
                     rs_gm_missing_deadline(node),
                     rs_gm_deliver_deadline(node),
                     rs_gm_bins_deadline(node),
                     node->sweep_at,
                     query ? query->due : RS_NEVER};
    rs_time first = all[0];
    for (size_t i = 1; i < sizeof all / sizeof *all; i++)
        first = all[i] < first ? all[i] : first;
    return first;
}

static bool poll_small(rs_messages *node, rs_messages_out *out) {
    if (rs_list_empty(&node->smalls))
        return false;
    rs_gm_small *small = RS_HOLDER(rs_gm_small, order, node->smalls.next);
    *out = (rs_messages_out){.channel = small->channel, .peer = small->peer, .group = small->group, .piece_count = 1};
    out->piece[0].bytes = small->bytes;
    out->piece[0].length = small->length;
    rs_list_append(&node->handed_smalls, &small->order);
    return true;
}

bool rs_messages_poll_tx(rs_messages *node, rs_time now, rs_messages_out *out) {
    (void)now;
    return poll_small(node, out) || rs_gm_poll_retransmit(node, out) || rs_gm_poll_repair(node, out) ||
           rs_gm_poll_data(node, out);
}

void rs_messages_stats_get(const rs_messages *node, rs_messages_stats *out) {
    *out = node->stats;
    out->groups = node->group_count;
    out->window_bytes += node->own_windows;
    out->streams = node->place_count;
    out->regions = node->lec.regions;
    out->bins = node->lec.bins;
}
