#include "core/groups/early.h"

#include <string.h>

#include "core/groups/members.h"

#define EARLY_BYTES (4u << 20)     /* half a second of 6,000 packets a second, with what they take here */
#define STRANGE_BYTES (128u << 10) /* of packets of full size, */
#define STRANGE_LEAST 8u           /* ... and so many in any case, */
#define STRANGE_MOST 64u           /* ... or so many small ones. */
#define STRANGE_SHARE 4u           /* a sender has at most this part of them */

static const rs_time bounds[] = {
    1000 * INT64_C(1000000), /* as long as packets are asked for */
    3000 * INT64_C(1000000), /* as long as QSM's messages wait for regions (core/qsm/state.h) */
};

static rs_list *bucket_of(rs_messages *node, rs_message_group group) {
    return &node->early_buckets[rs_mix(group) % RS_GM_EARLY_BUCKETS];
}

static uint32_t size_of(uint32_t length) {
    return (uint32_t)sizeof(rs_gm_early) + length;
}

static rs_gm_early *oldest(const rs_messages *node, bool expected) {
    const rs_list *all = &node->early_by_age[expected];
    return rs_list_empty(all) ? NULL : RS_HOLDER(rs_gm_early, by_age, all->next);
}

static void done(rs_messages *node, rs_gm_early *packet) {
    rs_list_remove(&packet->by_age);
    rs_list_remove(&packet->in_bucket);
    node->early_bytes -= size_of(packet->length);
    node->early_strange -= !packet->expected;
    rs_memory_give(&node->allocator, packet);
}

static void drop_oldest(rs_messages *node, bool expected) {
    node->stats.foreign += expected;
    node->stats.strangers += !expected;
    done(node, oldest(node, expected));
}

void rs_gm_early_expect(rs_messages *node, rs_time now) {
    node->early_until = now + bounds[true];
}

/* Whether a packet that is not expected may wait: nobody fills the room of others. */
static bool has_room(rs_messages *node, rs_time now, rs_peer sender) {
    uint32_t room = STRANGE_BYTES / node->config.packet_bytes, of_sender = 0;
    room = room < STRANGE_LEAST ? STRANGE_LEAST : room < STRANGE_MOST ? room : STRANGE_MOST;
    rs_gm_early_timeout(node, now);
    const rs_list *all = &node->early_by_age[false];
    for (const rs_list *at = all->next; at != all; at = at->next)
        of_sender += RS_HOLDER(const rs_gm_early, by_age, at)->sender == sender;
    if (of_sender >= room / STRANGE_SHARE)
        return false;
    if (node->early_strange >= room)
        drop_oldest(node, false);
    return true;
}

bool rs_gm_early_keep(rs_messages *node, rs_time now, rs_peer sender, const uint8_t *bytes, size_t length,
                      rs_messages_via via, bool carried, bool known) {
    rs_gm_id id;
    const bool expected = carried && now < node->early_until;
    if (node->early_closed || node->came == RS_CAME_LATE || (!expected && (!known || !has_room(node, now, sender))))
        return false;
    if (!node->early_buckets) {
        node->early_buckets = rs_memory_take(&node->allocator, RS_GM_EARLY_BUCKETS * sizeof(rs_list));
        for (uint32_t i = 0; node->early_buckets && i < RS_GM_EARLY_BUCKETS; i++)
            rs_list_init(&node->early_buckets[i]);
    }
    rs_gm_early *packet = node->early_buckets ? rs_memory_take(&node->allocator, sizeof *packet + length) : NULL;
    if (!packet)
        return false;
    rs_gm_get_id(bytes + RS_GM_HEADER - RS_GM_ID, &id);
    packet->at = now;
    packet->sender = sender;
    packet->group = id.group;
    packet->incarnation = id.incarnation;
    packet->via = via;
    packet->carried = carried;
    packet->expected = expected;
    packet->length = (uint32_t)length;
    memcpy(packet->bytes, bytes, length);
    rs_list_init(&packet->by_age);
    rs_list_init(&packet->in_bucket);
    rs_list_append(&node->early_by_age[expected], &packet->by_age);
    rs_list_append(bucket_of(node, id.group), &packet->in_bucket);
    node->early_bytes += size_of(packet->length);
    node->early_strange += !expected;
    node->stats.early++;
    while (node->early_bytes > EARLY_BYTES)
        drop_oldest(node, oldest(node, true) != NULL);
    return true;
}

void rs_gm_early_give(rs_messages *node, rs_time now, const rs_gm_group *group,
                      void (*take)(rs_messages *node, rs_time now, const rs_gm_early *packet)) {
    rs_gm_early_timeout(node, now);
    rs_list *bucket = node->early_bytes > 0 && group->member ? bucket_of(node, group->id) : NULL;
    node->early_closed = true;
    for (rs_list *at = bucket ? bucket->next : NULL, *next; at != bucket; at = next) {
        rs_gm_early *packet = RS_HOLDER(rs_gm_early, in_bucket, at);
        next = at->next;
        if (packet->group != group->id || !rs_gm_believes(node, group, packet->sender, packet->incarnation))
            continue;
        take(node, now, packet);
        done(node, packet);
    }
    node->early_closed = false;
}

void rs_gm_early_timeout(rs_messages *node, rs_time now) {
    for (unsigned expected = 0; expected < 2; expected++)
        for (const rs_gm_early *first; (first = oldest(node, expected)) && first->at + bounds[expected] <= now;)
            drop_oldest(node, expected);
}

rs_time rs_gm_early_deadline(const rs_messages *node) {
    rs_time first = RS_NEVER;
    for (unsigned expected = 0; expected < 2; expected++) {
        const rs_gm_early *packet = oldest(node, expected);
        if (packet && packet->at + bounds[expected] < first)
            first = packet->at + bounds[expected];
    }
    return first;
}

void rs_gm_early_free(rs_messages *node) {
    for (unsigned expected = 0; expected < 2; expected++)
        while (oldest(node, expected))
            done(node, oldest(node, expected));
    rs_memory_give(&node->allocator, node->early_buckets);
}
