/* Repair bins (Ricochet, Sec. 4.2.1): each takes the packets of its groups into repairs of r packets. Who is to get a
 * repair is drawn before its first packet (Sec. 4.2.5), so a round for nobody costs a count and no XOR; staggered
 * (Sec. 4.2.2), packets go round the bin's instances. */
#include <string.h>

#include "core/groups/state.h"
#include "core/repair/xor.h"

struct rs_gm_repair {
    rs_list order; /* open, waiting to be sent, given out, or free */
    rs_time first;
    rs_lec_bin *bin; /* while it is open */
    rs_lec_instance *instance;
    uint32_t count, length;
    rs_peer *targets;
    uint32_t target_count, target_room, target_next;
    uint8_t *bytes;
    uint8_t header[RS_GM_REPAIR_HEADER_MOST];
};

rs_status rs_gm_bins_init(rs_messages *node) {
    rs_list_init(&node->lec.open);
    rs_list_init(&node->lec.free);
    node->lec.chunks = rs_gm_alloc(node, (node->config.repair_buffers / RS_GM_CHUNK + 1) * sizeof(void *));
    return node->lec.chunks ? RS_OK : RS_ERR_MEMORY;
}

void rs_gm_bins_free(rs_messages *node) {
    for (uint32_t i = 0; i < node->lec.chunk_count; i++) {
        rs_gm_repair *repairs = node->lec.chunks[i];
        for (uint32_t k = 0; k < RS_GM_CHUNK; k++)
            rs_gm_release(node, repairs[k].targets);
        rs_gm_release(node, repairs);
    }
    rs_gm_release(node, node->lec.chunks);
}

/* Another RS_GM_CHUNK repairs, with room for their bytes behind them. */
static void more_repairs(rs_messages *node) {
    rs_lec *lec = &node->lec;
    if ((lec->chunk_count + 1) * RS_GM_CHUNK > node->config.repair_buffers)
        return;
    size_t room = (node->config.packet_bytes - RS_GM_HEADER + 63u) / 64 * 64;
    size_t head = (RS_GM_CHUNK * sizeof(rs_gm_repair) + 63) / 64 * 64;
    uint8_t *memory = rs_gm_alloc(node, head + RS_GM_CHUNK * room);
    if (!memory)
        return;
    lec->chunks[lec->chunk_count++] = memory;
    rs_gm_repair *repairs = (rs_gm_repair *)(void *)memory;
    for (uint32_t i = 0; i < RS_GM_CHUNK; i++) {
        repairs[i].bytes = memory + head + i * room;
        rs_list_init(&repairs[i].order);
        rs_list_append(&lec->free, &repairs[i].order);
    }
}

static rs_gm_repair *new_repair(rs_messages *node) {
    if (rs_list_empty(&node->lec.free))
        more_repairs(node);
    if (rs_list_empty(&node->lec.free)) {
        node->stats.repairs_dropped++;
        return NULL;
    }
    /* The one that was in use last: its bytes may still be in a cache. */
    rs_gm_repair *repair = RS_HOLDER(rs_gm_repair, order, node->lec.free.prev);
    rs_list_remove(&repair->order);
    repair->count = repair->length = repair->target_count = repair->target_next = 0;
    return repair;
}

static void free_repair(rs_messages *node, rs_gm_repair *repair) {
    rs_list_append(&node->lec.free, &repair->order);
}

void rs_gm_bins_take_back(rs_messages *node) {
    while (!rs_list_empty(&node->handed_repairs))
        free_repair(node, RS_HOLDER(rs_gm_repair, order, node->handed_repairs.next));
}

static bool add_target(rs_messages *node, rs_gm_repair *repair, rs_peer peer) {
    if (repair->target_count == repair->target_room) {
        uint32_t room = repair->target_room ? repair->target_room * 2 : 8;
        rs_peer *targets = rs_gm_alloc(node, room * sizeof *targets);
        if (!targets)
            return false;
        if (repair->target_count)
            memcpy(targets, repair->targets, repair->target_count * sizeof *targets);
        rs_gm_release(node, repair->targets);
        repair->targets = targets;
        repair->target_room = room;
    }
    repair->targets[repair->target_count++] = peer;
    return true;
}

/* `count` different peers of the region, any with the same probability. */
static void choose(rs_messages *node, rs_gm_repair *repair, rs_lec_region *region, uint32_t count) {
    for (uint32_t i = 0; i < count && i < region->peer_count; i++) {
        uint32_t at = i + rs_gm_random_below(node, region->peer_count - i);
        rs_lec_peer *chosen = region->peers[at], *other = region->peers[i];
        region->peers[i] = chosen;
        region->peers[at] = other;
        chosen->position = i;
        other->position = at;
        if (!add_target(node, repair, chosen->id))
            node->stats.repairs_dropped++;
    }
}

void rs_gm_bin_arm(rs_messages *node, rs_lec_bin *bin, rs_lec_instance *instance) {
    instance->repair = NULL;
    instance->count = 0;
    instance->limit = (uint16_t)bin->plane->r;
    for (uint32_t i = 0; i < bin->use_count; i++) {
        rs_lec_region *region = bin->uses[i].region;
        uint64_t wanted = bin->uses[i].rate * region->peer_count;
        /* Floor or ceiling, at random, so that the mean is what is wanted (Sec. 4.2.1). */
        uint32_t count = (uint32_t)(wanted / RS_LEC_ONE);
        count += (rs_gm_random(node) >> 32) < wanted % RS_LEC_ONE;
        if (count == 0)
            continue;
        if (!instance->repair)
            instance->repair = new_repair(node);
        if (!instance->repair)
            return;
        instance->repair->bin = bin;
        instance->repair->instance = instance;
        choose(node, instance->repair, region, count);
    }
    if (instance->repair && instance->repair->target_count == 0) {
        free_repair(node, instance->repair);
        instance->repair = NULL;
    }
}

/* The repair goes to be sent; its instance has none. */
static void finish(rs_messages *node, rs_gm_repair *repair) {
    repair->instance->repair = NULL;
    rs_gm_put_repair(repair->header, node->config.self, repair->count, repair->length);
    rs_gm_seal(repair->header, RS_GM_REPAIR + repair->count * RS_GM_ID);
    rs_list_append(&node->repairs, &repair->order);
    node->stats.repairs_made++;
    if (++node->repairs_waiting <= RS_GM_REPAIRS_WAITING)
        return;
    rs_gm_repair *oldest = RS_HOLDER(rs_gm_repair, order, node->repairs.next);
    node->stats.repairs_dropped += oldest->target_count - oldest->target_next;
    node->repairs_waiting--;
    free_repair(node, oldest);
}

static void put(rs_messages *node, rs_time now, rs_gm_repair *repair, const uint8_t *datagram, uint32_t length) {
    const uint8_t *body = datagram + RS_GM_HEADER;
    uint32_t body_length = length - RS_GM_HEADER;
    memcpy(repair->header + RS_GM_REPAIR + repair->count * RS_GM_ID, datagram + 4, RS_GM_ID);
    if (repair->count++ == 0) {
        memcpy(repair->bytes, body, body_length);
        repair->length = body_length;
        repair->first = now;
        rs_list_append(&node->lec.open, &repair->order);
    } else
        rs_gm_xor_grow(repair->bytes, &repair->length, body, body_length);
    node->stats.xors++;
}

/* The instance whose turn it is: each takes one packet a round, in an order drawn anew for every round (ours). So two
 * packets that are lost one after the other share a repair at one node, but not at all of them, as they would if all
 * dealt their packets out in the same order. */
static rs_lec_instance *next_instance(rs_messages *node, rs_lec_bin *bin) {
    rs_lec_instance *next = &bin->instances[bin->turn];
    rs_lec_instance *drawn = next + rs_gm_random_below(node, bin->stagger - bin->turn), kept = *next;
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

void rs_gm_bins_received(rs_messages *node, rs_time now, rs_gm_group *group, const uint8_t *datagram, uint32_t length) {
    rs_lec_group *lec = group->lec;
    if (!lec || length - RS_GM_HEADER > rs_gm_body_most(node, group)) /* no repair of that would fit a datagram */
        return;
    if (!rs_lec_settled(lec->plane))
        rs_lec_settle(node, lec->plane);
    for (uint32_t i = 0; i < lec->bin_count; i++) {
        rs_lec_bin *bin = lec->bins[i];
        rs_lec_instance *instance = bin->stagger == 1 ? bin->instances : next_instance(node, bin);
        rs_gm_repair *repair = instance->repair;
        if (repair) {
            put(node, now, repair, datagram, length);
            if (repair->count < instance->limit)
                continue;
            finish(node, repair);
        } else if (++instance->count < instance->limit)
            continue;
        rs_gm_bin_arm(node, bin, instance);
    }
}

void rs_gm_bin_empty(rs_messages *node, rs_lec_bin *bin) {
    for (uint32_t i = 0; i < bin->stagger; i++) {
        rs_gm_repair *repair = bin->instances[i].repair;
        if (!repair)
            continue;
        if (repair->count > 0)
            finish(node, repair);
        else
            free_repair(node, repair);
        bin->instances[i].repair = NULL;
    }
}

rs_time rs_gm_bins_deadline(const rs_messages *node) {
    if (node->config.flush == 0 || rs_list_empty(&node->lec.open))
        return RS_NEVER;
    return RS_HOLDER(rs_gm_repair, order, node->lec.open.next)->first + node->config.flush;
}

void rs_gm_bins_timeout(rs_messages *node, rs_time now) {
    while (rs_gm_bins_deadline(node) <= now) {
        rs_gm_repair *repair = RS_HOLDER(rs_gm_repair, order, node->lec.open.next);
        rs_lec_instance *instance = repair->instance;
        rs_lec_bin *bin = repair->bin;
        finish(node, repair);
        rs_gm_bin_arm(node, bin, instance);
    }
}

bool rs_gm_poll_repair(rs_messages *node, rs_messages_out *out) {
    if (rs_list_empty(&node->repairs))
        return false;
    rs_gm_repair *repair = RS_HOLDER(rs_gm_repair, order, node->repairs.next);
    *out = (rs_messages_out){.channel = RS_CH_PEER_DATAGRAM,
                             .peer = repair->targets[repair->target_next++],
                             .group = RS_NO_GROUP,
                             .piece_count = 2};
    out->piece[0].bytes = repair->header;
    out->piece[0].length = RS_GM_REPAIR + repair->count * RS_GM_ID;
    out->piece[1].bytes = repair->bytes;
    out->piece[1].length = repair->length;
    node->stats.repairs_sent++;
    if (repair->target_next == repair->target_count) {
        node->repairs_waiting--;
        rs_list_append(&node->handed_repairs, &repair->order);
    }
    return true;
}
