/* Repair bins (Ricochet, Sec. 4.2.1): each takes the packets of its groups into repairs of r packets. Who is to get a
 * repair is drawn before its first packet (Sec. 4.2.5), so a round for nobody costs a count and no XOR; staggered
 * (Sec. 4.2.2), packets go round the bin's instances. */
#include "core/ricochet/bins.h"

#include <string.h>

#include "core/repair/xor.h"
#include "core/ricochet/state.h"

#define CHUNK 64u     /* repairs allocated at a time */
#define WAITING 8192u /* repairs may wait to be sent */

_Static_assert(RS_RICOCHET_HEAD_MOST <= RS_GROUP_HEAD_MOST, "heads of repairs fit");

struct rs_lec_repair {
    rs_list order; /* open, waiting to be sent, given out, or free */
    rs_time first;
    rs_lec_bin *bin; /* while it is open */
    rs_lec_instance *instance;
    uint32_t count, length;
    rs_peer *targets;
    uint32_t target_count, target_room, target_next;
    uint8_t *bytes;
    uint8_t header[RS_RICOCHET_HEAD_MOST];
};

rs_status rs_ricochet_bins_init(rs_ricochet *own) {
    rs_list *lists[] = {&own->free, &own->repairs, &own->handed};
    for (uint32_t i = 0; i < sizeof lists / sizeof *lists; i++)
        rs_list_init(lists[i]);
    if (own->config.repair_buffers < CHUNK || own->config.flush < 0)
        return RS_ERR_INVALID;
    own->chunks = rs_memory_take(&own->node->allocator, (own->config.repair_buffers / CHUNK + 1) * sizeof(void *));
    return own->chunks ? RS_OK : RS_ERR_MEMORY;
}

void rs_ricochet_bins_free(rs_ricochet *own) {
    for (uint32_t i = 0; i < own->chunk_count; i++) {
        rs_lec_repair *repairs = own->chunks[i];
        for (uint32_t k = 0; k < CHUNK; k++)
            rs_memory_give(&own->node->allocator, repairs[k].targets);
        rs_memory_give(&own->node->allocator, repairs);
    }
    rs_memory_give(&own->node->allocator, own->chunks);
}

/* Another CHUNK repairs, with room for their bytes behind them. */
static void more_repairs(rs_ricochet *own) {
    if ((own->chunk_count + 1) * CHUNK > own->config.repair_buffers)
        return;
    size_t room = (own->node->config.packet_bytes - RS_GM_HEADER + 63u) / 64 * 64;
    size_t head = (CHUNK * sizeof(rs_lec_repair) + 63) / 64 * 64;
    uint8_t *memory = rs_memory_take(&own->node->allocator, head + CHUNK * room);
    if (!memory)
        return;
    own->chunks[own->chunk_count++] = memory;
    rs_lec_repair *repairs = (rs_lec_repair *)(void *)memory;
    for (uint32_t i = 0; i < CHUNK; i++) {
        repairs[i].bytes = memory + head + i * room;
        rs_list_init(&repairs[i].order);
        rs_list_append(&own->free, &repairs[i].order);
    }
}

static rs_lec_repair *new_repair(rs_ricochet *own) {
    if (rs_list_empty(&own->free))
        more_repairs(own);
    if (rs_list_empty(&own->free)) {
        own->stats.dropped++;
        return NULL;
    }
    /* The one that was in use last: its bytes may still be in a cache. */
    rs_lec_repair *repair = RS_HOLDER(rs_lec_repair, order, own->free.prev);
    rs_list_remove(&repair->order);
    repair->count = repair->length = repair->target_count = repair->target_next = 0;
    return repair;
}

static void free_repair(rs_ricochet *own, rs_lec_repair *repair) {
    rs_list_append(&own->free, &repair->order);
}

void rs_ricochet_bins_take_back(rs_ricochet *own) {
    while (!rs_list_empty(&own->handed))
        free_repair(own, RS_HOLDER(rs_lec_repair, order, own->handed.next));
}

static bool add_target(rs_ricochet *own, rs_lec_repair *repair, rs_peer peer) {
    if (repair->target_count == repair->target_room) {
        uint32_t room = repair->target_room ? repair->target_room * 2 : 8;
        rs_peer *targets = rs_memory_take(&own->node->allocator, room * sizeof *targets);
        if (!targets)
            return false;
        if (repair->target_count)
            memcpy(targets, repair->targets, repair->target_count * sizeof *targets);
        rs_memory_give(&own->node->allocator, repair->targets);
        repair->targets = targets;
        repair->target_room = room;
    }
    repair->targets[repair->target_count++] = peer;
    return true;
}

/* `count` different peers of the region, any with the same probability. */
static void choose(rs_ricochet *own, rs_lec_repair *repair, rs_lec_region *region, uint32_t count) {
    for (uint32_t i = 0; i < count && i < region->peer_count; i++) {
        uint32_t at = i + rs_gm_random_below(own->node, region->peer_count - i);
        rs_lec_peer *chosen = region->peers[at], *other = region->peers[i];
        region->peers[i] = chosen;
        region->peers[at] = other;
        chosen->position = i;
        other->position = at;
        if (!add_target(own, repair, chosen->id))
            own->stats.dropped++;
    }
}

void rs_ricochet_bin_arm(rs_ricochet *own, rs_lec_bin *bin, rs_lec_instance *instance) {
    instance->repair = NULL;
    instance->count = 0;
    instance->limit = (uint16_t)bin->plane->r;
    for (uint32_t i = 0; i < bin->use_count; i++) {
        rs_lec_region *region = bin->uses[i].region;
        uint64_t wanted = bin->uses[i].rate * region->peer_count;
        /* Floor or ceiling, at random, so that the mean is what is wanted (Sec. 4.2.1). */
        uint32_t count = (uint32_t)(wanted / RS_LEC_ONE);
        count += (rs_gm_random(own->node) >> 32) < wanted % RS_LEC_ONE;
        if (count == 0)
            continue;
        if (!instance->repair)
            instance->repair = new_repair(own);
        if (!instance->repair)
            return;
        instance->repair->bin = bin;
        instance->repair->instance = instance;
        choose(own, instance->repair, region, count);
    }
    if (instance->repair && instance->repair->target_count == 0) {
        free_repair(own, instance->repair);
        instance->repair = NULL;
    }
}

/* The repair goes to be sent; its instance has none. */
static void finish(rs_ricochet *own, rs_lec_repair *repair) {
    repair->instance->repair = NULL;
    rs_ricochet_put_repair(repair->header, own->node->config.self, repair->count, repair->length);
    rs_gm_seal(repair->header, rs_ricochet_head_length(repair->count));
    rs_list_append(&own->repairs, &repair->order);
    own->stats.made++;
    if (++own->repairs_waiting <= WAITING)
        return;
    rs_lec_repair *oldest = RS_HOLDER(rs_lec_repair, order, own->repairs.next);
    own->stats.dropped += oldest->target_count - oldest->target_next;
    own->repairs_waiting--;
    free_repair(own, oldest);
}

static void put(rs_ricochet *own, rs_time now, rs_lec_repair *repair, const uint8_t *datagram, uint32_t length) {
    const uint8_t *body = datagram + RS_GM_HEADER;
    uint32_t body_length = length - RS_GM_HEADER;
    memcpy(repair->header + RS_RICOCHET_REPAIR + repair->count * RS_GM_ID, datagram + 4, RS_GM_ID);
    if (repair->count++ == 0) {
        memcpy(repair->bytes, body, body_length);
        repair->length = body_length;
        repair->first = now;
        rs_list_append(&repair->bin->plane->open, &repair->order);
    } else
        rs_gm_xor_grow(repair->bytes, &repair->length, body, body_length);
    own->stats.xors++;
}

/* The instance whose turn it is: each takes one packet a round, in an order drawn again for every round (ours). So two
 * packets that are lost one after the other share a repair at one node, but not at all of them, as they would if all
 * dealt their packets out in the same order. */
static rs_lec_instance *next_instance(rs_ricochet *own, rs_lec_bin *bin) {
    rs_lec_instance *next = &bin->instances[bin->turn];
    rs_lec_instance *drawn = next + rs_gm_random_below(own->node, bin->stagger - bin->turn), kept = *next;
    *next = *drawn;
    *drawn = kept;
    if (next->repair)
        next->repair->instance = next;
    if (drawn->repair)
        drawn->repair->instance = drawn;
    if (++bin->turn == bin->stagger)
        bin->turn = 0;
    return next;
}

/* Those that began that long before `now` go as they are. */
static void flush(rs_ricochet *own, const rs_lec_plane *plane, rs_time now, rs_time after) {
    while (!rs_list_empty(&plane->open)) {
        rs_lec_repair *repair = RS_HOLDER(rs_lec_repair, order, plane->open.next);
        rs_lec_instance *instance = repair->instance;
        rs_lec_bin *bin = repair->bin;
        if (now - repair->first < after)
            return;
        finish(own, repair);
        rs_ricochet_bin_arm(own, bin, instance);
    }
}

void rs_ricochet_bins_received(rs_ricochet *own, rs_time now, rs_gm_group *group, const uint8_t *datagram,
                               uint32_t length) {
    rs_lec_group *lec = group->own;
    if (!lec || length - RS_GM_HEADER > rs_gm_body_most(own->node, group)) /* no repair of that would fit a datagram */
        return;
    if (!rs_lec_settled(lec->plane))
        rs_lec_settle(own, lec->plane);
    for (uint32_t i = 0; i < lec->bin_count; i++) {
        rs_lec_bin *bin = lec->bins[i];
        rs_lec_instance *instance = bin->stagger == 1 ? bin->instances : next_instance(own, bin);
        rs_lec_repair *repair = instance->repair;
        if (repair) {
            put(own, now, repair, datagram, length);
            if (repair->count < instance->limit)
                continue;
            finish(own, repair);
        } else if (++instance->count < instance->limit)
            continue;
        rs_ricochet_bin_arm(own, bin, instance);
    }
    if (lec->plane->flush > 0)
        flush(own, lec->plane, now, lec->plane->flush);
}

void rs_ricochet_bin_empty(rs_ricochet *own, rs_lec_bin *bin) {
    for (uint32_t i = 0; i < bin->stagger; i++) {
        rs_lec_repair *repair = bin->instances[i].repair;
        if (!repair)
            continue;
        if (repair->count > 0)
            finish(own, repair);
        else
            free_repair(own, repair);
        bin->instances[i].repair = NULL;
    }
}

static rs_time plane_deadline(const rs_lec_plane *plane) {
    if (plane->flush == 0 || rs_list_empty(&plane->open))
        return RS_NEVER;
    return RS_HOLDER(rs_lec_repair, order, plane->open.next)->first + plane->flush_last;
}

rs_time rs_ricochet_bins_deadline(const rs_ricochet *own) {
    rs_time deadline = RS_NEVER;
    for (uint32_t i = 0; i < RS_LEC_PLANES; i++) {
        rs_time one = own->planes[i].peers ? plane_deadline(&own->planes[i]) : RS_NEVER;
        deadline = one < deadline ? one : deadline;
    }
    return deadline;
}

void rs_ricochet_bins_timeout(rs_ricochet *own, rs_time now) {
    for (uint32_t i = 0; i < RS_LEC_PLANES; i++) {
        const rs_lec_plane *plane = &own->planes[i];
        if (plane->peers && plane_deadline(plane) <= now)
            flush(own, plane, now, plane->flush);
    }
}

bool rs_ricochet_poll_repair(rs_ricochet *own, rs_messages_out *out) {
    if (rs_list_empty(&own->repairs))
        return false;
    rs_lec_repair *repair = RS_HOLDER(rs_lec_repair, order, own->repairs.next);
    *out = (rs_messages_out){.channel = RS_CH_PEER_DATAGRAM,
                             .peer = repair->targets[repair->target_next++],
                             .group = RS_NO_GROUP,
                             .piece_count = 2};
    out->piece[0].bytes = repair->header;
    out->piece[0].length = rs_ricochet_head_length(repair->count);
    out->piece[1].bytes = repair->bytes;
    out->piece[1].length = repair->length;
    own->stats.sent++;
    if (repair->target_next == repair->target_count) {
        own->repairs_waiting--;
        rs_list_append(&own->handed, &repair->order);
    }
    return true;
}
