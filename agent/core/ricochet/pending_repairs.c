/* Repairs received (Ricochet, Sec. 4.2.8): one that misses a single packet gives it; one that misses more is kept, each
 * of its packets that comes is taken out of it, and two that differ in one packet give that packet. A kept repair is
 * the XOR of the packets it still misses, nothing else. */
#include "core/ricochet/pending_repairs.h"

#include <string.h>

#include "core/groups/arrive.h"
#include "core/groups/members.h"
#include "core/groups/streams.h"
#include "core/repair/xor.h"

#define LOOKED_AT 8u      /* repairs in which a missing packet is, at most */
#define COMPARED_MOST 64u /* kept repairs that a new one is compared with */
#define COMBINED_MOST 8u  /* times that a repair is combined with another */

rs_status rs_ricochet_pending_init(rs_ricochet *own) {
    rs_list *lists[] = {&own->kept_order, &own->kept_ready, &own->kept_free};
    for (uint32_t i = 0; i < 3; i++)
        rs_list_init(lists[i]);
    own->kept = rs_memory_take(&own->node->allocator, own->config.kept_repairs * sizeof *own->kept);
    own->scratch = rs_memory_take(&own->node->allocator, own->node->config.packet_bytes);
    return own->kept && own->scratch ? RS_OK : RS_ERR_MEMORY;
}

void rs_ricochet_pending_free(rs_ricochet *own) {
    for (uint32_t i = 0; i < own->kept_used; i++)
        rs_memory_give(&own->node->allocator, own->kept[i].bytes);
    rs_memory_give(&own->node->allocator, own->kept);
    rs_memory_give(&own->node->allocator, own->scratch);
}

static void unlink_all(rs_ricochet_pending *kept) {
    for (uint32_t i = 0; i < kept->count; i++)
        rs_list_remove(&kept->link[i].in_missing);
    kept->count = 0;
}

static void discard(rs_ricochet *own, rs_ricochet_pending *kept) {
    unlink_all(kept);
    rs_list_append(&own->kept_free, &kept->order);
}

static void link_at(rs_ricochet *own, rs_ricochet_pending *kept, uint32_t at, uint32_t missing) {
    rs_ricochet_link *link = &kept->link[at];
    link->kept = kept;
    link->missing = missing;
    rs_list_init(&link->in_missing);
    rs_list_append(&own->node->missing[missing].waiting, &link->in_missing);
}

/* One that is free, or the oldest. */
static rs_ricochet_pending *new_kept(rs_ricochet *own) {
    rs_ricochet_pending *kept = NULL;
    if (!rs_list_empty(&own->kept_free))
        kept = RS_HOLDER(rs_ricochet_pending, order, own->kept_free.next);
    else if (own->kept_used < own->config.kept_repairs) {
        uint8_t *bytes = rs_memory_take(&own->node->allocator, own->node->config.packet_bytes);
        if (bytes) {
            kept = &own->kept[own->kept_used++];
            kept->bytes = bytes;
            rs_list_init(&kept->order);
        }
    }
    if (!kept && !rs_list_empty(&own->kept_order)) {
        kept = RS_HOLDER(rs_ricochet_pending, order, own->kept_order.next);
        unlink_all(kept);
    }
    if (kept)
        rs_list_remove(&kept->order);
    return kept;
}

/* With one packet left it can be decoded, with none it is of no more use. */
static void check_slot(rs_ricochet *own, rs_ricochet_pending *kept) {
    if (kept->count == 0)
        discard(own, kept);
    else
        rs_list_append(kept->count == 1 ? &own->kept_ready : &own->kept_order, &kept->order);
}

void rs_ricochet_pending_found(rs_ricochet *own, rs_gm_missing *missing, const uint8_t *body, uint32_t length) {
    uint32_t number = (uint32_t)(missing - own->node->missing);
    while (!rs_list_empty(&missing->waiting)) {
        rs_ricochet_pending *kept = RS_HOLDER(rs_ricochet_link, in_missing, missing->waiting.next)->kept;
        rs_gm_xor_grow(kept->bytes, &kept->length, body, length);
        uint32_t left[RS_RICOCHET_R_MAX], count = 0;
        for (uint32_t i = 0; i < kept->count; i++) {
            if (kept->link[i].missing != number)
                left[count++] = kept->link[i].missing;
        }
        unlink_all(kept);
        for (; kept->count < count; kept->count++)
            link_at(own, kept, kept->count, left[kept->count]);
        if (count < 2)
            check_slot(own, kept);
    }
}

void rs_ricochet_pending_lost(rs_ricochet *own, rs_gm_missing *missing) {
    while (!rs_list_empty(&missing->waiting))
        discard(own, RS_HOLDER(rs_ricochet_link, in_missing, missing->waiting.next)->kept);
}

/* The packets that only one of the two misses, by number; returns how many. */
static uint32_t difference(const rs_ricochet_pending *a, const rs_ricochet_pending *b,
                           uint32_t out[2 * RS_RICOCHET_R_MAX]) {
    uint32_t count = 0, i = 0, k = 0;
    while (i < a->count || k < b->count) {
        if (k == b->count || (i < a->count && a->link[i].missing < b->link[k].missing))
            out[count++] = a->link[i++].missing;
        else if (i == a->count || b->link[k].missing < a->link[i].missing)
            out[count++] = b->link[k++].missing;
        else {
            i++;
            k++;
        }
    }
    return count;
}

/* The kept repair with which this one has most in common: combined, the fewest packets are left. */
static rs_ricochet_pending *closest(const rs_ricochet *own, const rs_ricochet_pending *kept, uint32_t *fewest) {
    uint32_t left[2 * RS_RICOCHET_R_MAX], compared = 0;
    rs_ricochet_pending *best = NULL;
    for (uint32_t i = 0; i < kept->count; i++) {
        const rs_list *list = &own->node->missing[kept->link[i].missing].waiting;
        for (const rs_list *at = list->next; at != list && compared < COMPARED_MOST; at = at->next) {
            rs_ricochet_pending *other = RS_HOLDER(rs_ricochet_link, in_missing, at)->kept;
            if (other == kept)
                continue;
            compared++;
            uint32_t count = difference(kept, other, left);
            if (count < *fewest) {
                *fewest = count;
                best = other;
            }
        }
    }
    return best;
}

/* The new repair becomes what is left of it and another as long as that is less: nothing is lost by it, the other
 * stays. With one packet left it can be decoded. */
static void combine(rs_ricochet *own, rs_ricochet_pending *kept) {
    for (uint32_t i = 0; i < COMBINED_MOST && kept->count > 1; i++) {
        uint32_t fewest = kept->count, left[2 * RS_RICOCHET_R_MAX];
        rs_ricochet_pending *other = closest(own, kept, &fewest);
        if (!other)
            return;
        difference(kept, other, left);
        rs_gm_xor_grow(kept->bytes, &kept->length, other->bytes, other->length);
        unlink_all(kept);
        for (; kept->count < fewest; kept->count++)
            link_at(own, kept, kept->count, left[kept->count]);
        own->stats.combined++;
    }
}

/* What a repair's id stands for at this node. */
typedef struct {
    rs_gm_stream *stream;
    rs_gm_id id;
    rs_gm_slot slot;
} member;

/* Whoever of another engine's group is missing is nothing that repairs wait for. */
static bool is_ours(const rs_ricochet *own, const rs_gm_group *group) {
    return rs_gm_engine_own(own->node, group->engine) == own;
}

/* False if the packet is neither here nor missing: given up, or of no interest here; or `from` is no member of its
 * group, and can have heard nothing of it. */
static bool look_up(rs_ricochet *own, rs_time now, rs_peer from, const uint8_t *bytes, member *out) {
    bool fresh;
    rs_gm_get_id(bytes, &out->id);
    out->stream = rs_gm_stream_find(own->node, out->id.sender, out->id.group);
    if (!out->stream || out->stream->incarnation != out->id.incarnation || out->stream->unheard) {
        rs_gm_group *group = rs_gm_group_find(own->node, out->id.group);
        if (!group || !group->member || out->id.sender == own->node->config.self)
            return false;
        if (!rs_gm_is_member(group, from) || !is_ours(own, group))
            return false;
        out->stream = rs_gm_stream_get(own->node, group, &out->id, false, &fresh);
        if (!out->stream)
            return false;
        if (fresh)
            rs_gm_stream_start(out->stream, out->id.sn);
    }
    if (!rs_gm_is_member(out->stream->group, from) || !is_ours(own, out->stream->group))
        return false;
    if (out->id.sn > out->stream->high) {
        if (out->stream->own || out->id.sn - out->stream->high > own->node->config.window_packets)
            return false;
        rs_gm_stream_reach(own->node, now, out->stream, out->id.sn, false);
    }
    return true;
}

/* Looks at the slots once all ids are known of: finding one packet missing may push another out of its window. */
static bool look_again(const rs_ricochet *own, member *m) {
    const rs_gm_slot *slot = rs_gm_slot_of(m->stream, m->id.sn);
    if (!slot || m->stream->incarnation != m->id.incarnation)
        return false;
    m->slot = *slot;
    return rs_gm_slot_is(*slot, RS_GM_MISSING) || rs_gm_slot_kept(own->node, m->stream, *slot);
}

static const uint8_t *body_of(const rs_ricochet *own, const member *m, uint32_t *length) {
    const uint8_t *body = rs_gm_log_datagram(rs_gm_log_of(own->node, m->stream), rs_gm_slot_at(m->slot)) + RS_GM_HEADER;
    *length = RS_GM_BODY + rs_gm_body_length(body);
    return body;
}

/* The numbers of the missing ones into increasing order; false if one is named twice. */
static bool sort_missing(const member *members, uint32_t count, uint32_t *numbers) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!rs_gm_slot_is(members[i].slot, RS_GM_MISSING))
            continue;
        uint32_t number = (uint32_t)(members[i].slot >> 2), at = found++;
        for (; at > 0 && numbers[at - 1] >= number; at--) {
            if (numbers[at - 1] == number)
                return false;
            numbers[at] = numbers[at - 1];
        }
        numbers[at] = number;
    }
    return true;
}

/* A packet is decoded: it arrives like any other. False if the repair cannot have been what it said. */
static bool decode(rs_ricochet *own, rs_time now, uint32_t number, const uint8_t *bytes, uint32_t length) {
    rs_gm_missing *missing = &own->node->missing[number];
    rs_gm_stream *stream = missing->stream;
    rs_gm_id id = {stream->sender, stream->incarnation, stream->group->id, missing->sn};
    rs_gm_body body;
    uint32_t whole = length < RS_GM_BODY ? length : RS_GM_BODY + rs_gm_body_length(bytes);
    if (whole > length || whole + RS_GM_HEADER > own->node->config.packet_bytes ||
        !rs_gm_get_body(bytes, whole, &body) || !rs_gm_is_body_intact(&id, bytes, whole)) {
        own->node->stats.corrupt++;
        return false;
    }
    if (!rs_gm_is_genuine(own->node, &id, bytes))
        return false;
    rs_gm_put_header(own->scratch, RS_GM_KIND_DATA, &id);
    memcpy(own->scratch + RS_GM_HEADER, bytes, whole);
    rs_gm_arrive(own->node, now, stream, &id, own->scratch, RS_GM_HEADER + whole, RS_VIA_REPAIR);
    return true;
}

void rs_ricochet_pending_work(rs_ricochet *own, rs_time now) {
    while (!rs_list_empty(&own->kept_ready)) {
        rs_ricochet_pending *kept = RS_HOLDER(rs_ricochet_pending, order, own->kept_ready.next);
        uint32_t number = kept->link[0].missing;
        discard(own, kept); /* its bytes stay as they are: what arrives below does not keep repairs */
        decode(own, now, number, kept->bytes, kept->length);
    }
}

static void keep(rs_ricochet *own, const rs_ricochet_repair *repair, const member *members, const uint32_t *numbers,
                 uint32_t missing) {
    rs_ricochet_pending *kept = new_kept(own);
    if (!kept)
        return;
    memcpy(kept->bytes, repair->body, repair->length);
    kept->length = repair->length;
    for (uint32_t i = 0; i < repair->count; i++) {
        uint32_t length;
        if (rs_gm_slot_is(members[i].slot, RS_GM_MISSING))
            continue;
        const uint8_t *body = body_of(own, &members[i], &length);
        rs_gm_xor_grow(kept->bytes, &kept->length, body, length);
    }
    for (kept->count = 0; kept->count < missing; kept->count++)
        link_at(own, kept, kept->count, numbers[kept->count]);
    if (missing > 1) {
        own->stats.kept++;
        combine(own, kept);
    } else
        own->stats.used++;
    check_slot(own, kept);
}

bool rs_ricochet_receive_repair(rs_ricochet *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_ricochet_repair repair;
    member members[RS_RICOCHET_R_MAX];
    uint32_t numbers[RS_RICOCHET_R_MAX], missing = 0;
    if (length > own->node->config.packet_bytes || !rs_ricochet_get_repair(bytes, length, &repair))
        return false;
    if (!rs_gm_is_from(own->node, from, repair.from) ||
        !rs_gm_intact(own->node, bytes, rs_ricochet_head_length(repair.count)))
        return true;
    own->stats.received++;
    bool usable = true;
    for (uint32_t i = 0; i < repair.count; i++)
        usable &= look_up(own, now, repair.from, repair.ids + (size_t)i * RS_GM_ID, &members[i]);
    for (uint32_t i = 0; i < repair.count && usable; i++) {
        usable = look_again(own, &members[i]);
        missing += usable && rs_gm_slot_is(members[i].slot, RS_GM_MISSING);
    }
    if (!usable || missing == 0 || !sort_missing(members, repair.count, numbers))
        own->stats.useless++;
    else
        keep(own, &repair, members, numbers, missing);
    rs_ricochet_pending_work(own, now);
    return true;
}

bool rs_ricochet_comes_with_another(const rs_ricochet *own, const rs_gm_missing *missing) {
    const rs_gm_missing *all = own->node->missing;
    uint32_t looked_at = 0, number = (uint32_t)(missing - all);
    for (const rs_list *at = missing->waiting.next; at != &missing->waiting && looked_at < LOOKED_AT; at = at->next) {
        const rs_ricochet_pending *kept = RS_HOLDER(rs_ricochet_link, in_missing, at)->kept;
        looked_at++;
        if (kept->count == 2 && all[kept->link[kept->link[0].missing == number].missing].nak == RS_GM_ASKED)
            return true;
    }
    return false;
}
