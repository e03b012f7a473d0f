#include "core/groups/early.h"

#include <string.h>

#include "core/groups/members.h"

#define EARLY_BYTES (4u << 20)                /* half a second of 6,000 packets a second, with what they take here */
#define EARLY_BOUND (3000 * INT64_C(1000000)) /* as long as QSM's messages wait for regions (core/qsm/state.h) */

static rs_list *bucket_of(rs_messages *node, rs_message_group group) {
    return &node->carried_buckets[rs_mix(group) % RS_GM_CARRIED_BUCKETS];
}

static uint32_t size_of(uint32_t length) {
    return (uint32_t)sizeof(rs_gm_carried) + length;
}

static void done(rs_messages *node, rs_gm_carried *packet) {
    rs_list_remove(&packet->by_age);
    rs_list_remove(&packet->in_bucket);
    node->carried_bytes -= size_of(packet->length);
    rs_memory_give(&node->allocator, packet);
}

static void drop_oldest(rs_messages *node) {
    node->stats.foreign++;
    done(node, RS_HOLDER(rs_gm_carried, by_age, node->carried_by_age.next));
}

void rs_gm_early_expect(rs_messages *node, rs_time now) {
    node->carried_until = now + EARLY_BOUND;
}

bool rs_gm_early_carried(rs_messages *node, rs_time now, rs_peer sender, const uint8_t *bytes, size_t length,
                         rs_messages_via via) {
    rs_gm_id id;
    if (now >= node->carried_until || node->came == RS_CAME_LATE)
        return false;
    if (!node->carried_buckets) {
        node->carried_buckets = rs_memory_take(&node->allocator, RS_GM_CARRIED_BUCKETS * sizeof(rs_list));
        for (uint32_t i = 0; node->carried_buckets && i < RS_GM_CARRIED_BUCKETS; i++)
            rs_list_init(&node->carried_buckets[i]);
    }
    rs_gm_carried *packet = node->carried_buckets ? rs_memory_take(&node->allocator, sizeof *packet + length) : NULL;
    if (!packet)
        return false;
    rs_gm_get_id(bytes + RS_GM_HEADER - RS_GM_ID, &id);
    packet->at = now;
    packet->sender = sender;
    packet->group = id.group;
    packet->incarnation = id.incarnation;
    packet->via = via;
    packet->length = (uint32_t)length;
    memcpy(packet->bytes, bytes, length);
    rs_list_init(&packet->by_age);
    rs_list_init(&packet->in_bucket);
    rs_list_append(&node->carried_by_age, &packet->by_age);
    rs_list_append(bucket_of(node, id.group), &packet->in_bucket);
    node->carried_bytes += size_of(packet->length);
    node->stats.early++;
    while (node->carried_bytes > EARLY_BYTES)
        drop_oldest(node);
    return true;
}

void rs_gm_early_give(rs_messages *node, rs_time now, const rs_gm_group *group,
                      void (*take)(rs_messages *node, rs_time now, const rs_gm_carried *packet)) {
    rs_gm_early_timeout(node, now);
    rs_list *bucket = node->carried_bytes > 0 && group->member ? bucket_of(node, group->id) : NULL;
    const rs_time until = node->carried_until;
    node->carried_until = 0;
    for (rs_list *at = bucket ? bucket->next : NULL, *next; at != bucket; at = next) {
        rs_gm_carried *packet = RS_HOLDER(rs_gm_carried, in_bucket, at);
        next = at->next;
        if (packet->group != group->id || !rs_gm_believes(node, group, packet->sender, packet->incarnation))
            continue;
        take(node, now, packet);
        done(node, packet);
    }
    node->carried_until = until;
}

void rs_gm_early_timeout(rs_messages *node, rs_time now) {
    while (rs_gm_early_deadline(node) <= now)
        drop_oldest(node);
}

rs_time rs_gm_early_deadline(const rs_messages *node) {
    if (node->carried_bytes == 0)
        return RS_NEVER;
    return RS_HOLDER(rs_gm_carried, by_age, node->carried_by_age.next)->at + EARLY_BOUND;
}

void rs_gm_early_free(rs_messages *node) {
    while (node->carried_bytes > 0)
        done(node, RS_HOLDER(rs_gm_carried, by_age, node->carried_by_age.next));
    rs_memory_give(&node->allocator, node->carried_buckets);
}
