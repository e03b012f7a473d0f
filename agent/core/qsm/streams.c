/* What is here of a sender's packets: which have come, those of the own partition for whoever missed them, and what is
 * missing as ranges. */
#include "core/qsm/streams.h"

#include <string.h>

#include "core/groups/arrive.h"
#include "core/groups/members.h"
#include "core/groups/streams.h"
#include "core/qsm/regions.h"
#include "core/qsm/token.h"

#define BITS_LEAST 256u
#define CACHE_LEAST 32u
#define NAKS_MOST 4096u /* packets of one partition that are looked for at a time */

/* ------------------------------------------------------------------------------------------------- which are here */

rs_qsm_stream *rs_qsm_stream_find(const rs_qsm_view *view, rs_peer sender) {
    uint32_t place = rs_qsm_place_of(view, sender);
    if (place != RS_QSM_NOWHERE)
        return view->by_place ? view->by_place[place] : NULL;
    for (rs_list *at = view->streams.next; at != &view->streams; at = at->next) {
        rs_qsm_stream *stream = RS_HOLDER(rs_qsm_stream, in_view, at);
        if (stream->sender == sender)
            return stream;
    }
    return NULL;
}

void rs_qsm_stream_free(rs_qsm_stream *stream) {
    rs_qsm_view *view = stream->view;
    const rs_allocator *allocator = &view->own->node->allocator;
    uint32_t place = rs_qsm_place_of(view, stream->sender);
    if (place != RS_QSM_NOWHERE && view->by_place)
        view->by_place[place] = NULL;
    rs_qsm_stream_stable(stream, UINT64_MAX);
    rs_list_remove(&stream->in_view);
    rs_memory_give(allocator, stream->bits);
    rs_memory_give(allocator, stream->cache);
    rs_memory_give(allocator, stream);
}

/* Whether it runs with that incarnation, as far as anybody knows. */
static bool is_known(const rs_qsm_view *view, rs_peer sender, uint32_t incarnation) {
    const rs_gm_peer *peer = rs_gm_peer_find(view->own->node, sender);
    bool listed = peer || view->open || rs_qsm_place_of(view, sender) != RS_QSM_NOWHERE;
    return listed && (!peer || peer->incarnation == 0 || peer->incarnation == incarnation);
}

rs_qsm_stream *rs_qsm_stream_get(rs_qsm_view *view, rs_peer sender, uint32_t incarnation) {
    const rs_allocator *allocator = &view->own->node->allocator;
    rs_qsm_stream *stream = rs_qsm_stream_find(view, sender);
    if (stream && stream->incarnation == incarnation)
        return stream;
    if (sender == view->own->node->config.self || !is_known(view, sender, incarnation))
        return NULL;
    const rs_gm_peer *peer = rs_gm_peer_find(view->own->node, sender);
    if (stream && (!peer || peer->incarnation == 0))
        return NULL; /* the first one that was heard holds */
    if (stream)
        rs_qsm_stream_free(stream);
    uint32_t place = rs_qsm_place_of(view, sender);
    if (place != RS_QSM_NOWHERE && !view->by_place)
        view->by_place = rs_memory_take(allocator, view->count * sizeof *view->by_place);
    stream = rs_memory_take(allocator, sizeof *stream);
    if (!stream || (place != RS_QSM_NOWHERE && !view->by_place)) {
        rs_memory_give(allocator, stream);
        return NULL;
    }
    *stream = (rs_qsm_stream){.view = view, .sender = sender, .incarnation = incarnation};
    stream->first_q = view->partition == 0 ? 1 : 0;
    stream->cache_q = stream->first_q;
    stream->meter.interval = view->meter.interval;
    rs_list_init(&stream->in_view);
    rs_list_append(&view->streams, &stream->in_view);
    if (place != RS_QSM_NOWHERE)
        view->by_place[place] = stream;
    return stream;
}

bool rs_qsm_stream_has(const rs_qsm_stream *stream, uint64_t sn) {
    if (sn <= stream->prefix)
        return true;
    if (sn - stream->prefix > stream->window)
        return false;
    uint64_t bit = sn & (stream->window - 1);
    return stream->bits[bit / 64] >> bit % 64 & 1;
}

static bool reserve_bits(rs_qsm_stream *stream, uint64_t sn) {
    const rs_allocator *allocator = &stream->view->own->node->allocator;
    uint32_t window = stream->window ? stream->window : BITS_LEAST;
    while (sn - stream->prefix > window)
        window *= 2;
    if (window == stream->window)
        return true;
    uint64_t *bits = rs_memory_take(allocator, window / 8);
    if (!bits)
        return false;
    for (uint64_t i = stream->prefix + 1; i <= stream->prefix + stream->window; i++)
        if (rs_qsm_stream_has(stream, i))
            bits[(i & (window - 1)) / 64] |= UINT64_C(1) << i % 64;
    rs_memory_give(allocator, stream->bits);
    stream->bits = bits;
    stream->window = window;
    return true;
}

/* The prefix goes on as far as packets are here. */
static void advance(rs_qsm_stream *stream) {
    while (stream->window && rs_qsm_stream_has(stream, stream->prefix + 1)) {
        uint64_t bit = ++stream->prefix & (stream->window - 1);
        stream->bits[bit / 64] &= ~(UINT64_C(1) << bit % 64);
    }
    const rs_qsm_view *view = stream->view;
    uint64_t q = (stream->prefix + view->partitions - view->partition) / view->partitions;
    stream->first_q = q > stream->first_q ? q : stream->first_q;
    while (rs_qsm_stream_has(stream, rs_qsm_sn_of(view, view->partition, stream->first_q)))
        stream->first_q++;
}

uint64_t rs_qsm_stream_cached(const rs_qsm_stream *stream) {
    return rs_qsm_sn_of(stream->view, stream->view->partition, stream->first_q) - 1;
}

uint32_t rs_qsm_stream_missing(const rs_qsm_stream *stream, uint64_t from, uint64_t to) {
    uint32_t count = 0;
    to = to < stream->prefix + RS_QSM_WINDOW ? to : stream->prefix + RS_QSM_WINDOW;
    for (uint64_t sn = (from > stream->prefix ? from : stream->prefix) + 1; sn <= to && count < UINT16_MAX; sn++)
        count += !rs_qsm_stream_has(stream, sn);
    return count;
}

bool rs_qsm_is_unsettled(const rs_qsm_stream *stream) {
    return stream->newest > stream->stable;
}

/* ------------------------------------------------------------------------------------------- caching (Sec. 2.2) */

static void drop_cached(rs_qsm_stream *stream, uint64_t q) {
    rs_qsm *own = stream->view->own;
    rs_qsm_packet *packet = &stream->cache[q & (stream->cache_room - 1)];
    own->cache_bytes -= packet->length;
    rs_memory_give(&own->node->allocator, packet->bytes);
    *packet = (rs_qsm_packet){0};
}

void rs_qsm_stream_stable(rs_qsm_stream *stream, uint64_t stable) {
    const rs_qsm_view *view = stream->view;
    uint64_t q = stream->cache_q;
    for (; q < stream->cache_q + stream->cache_room && rs_qsm_sn_of(view, view->partition, q) <= stable; q++)
        drop_cached(stream, q);
    if (stable != UINT64_MAX) {
        uint64_t first = (stable + view->partitions - view->partition) / view->partitions;
        stream->cache_q = first > stream->cache_q ? first : stream->cache_q;
    }
    if (stable > stream->stable && stable != UINT64_MAX)
        stream->stable = stable;
}

/* All that is cached at a node has a bound; what is beyond it, others of the partition have. */
static void keep(rs_qsm_stream *stream, uint64_t sn, const uint8_t *bytes, size_t length) {
    const rs_qsm_view *view = stream->view;
    rs_qsm *own = view->own;
    const rs_allocator *allocator = &own->node->allocator;
    uint64_t q = sn / view->partitions;
    if (view->self == RS_QSM_NOWHERE || sn % view->partitions != view->partition || q < stream->cache_q ||
        own->cache_bytes + length > own->node->config.receive_bytes || view->count < 2)
        return;
    if (q - stream->cache_q >= stream->cache_room) {
        uint32_t room = stream->cache_room ? stream->cache_room : CACHE_LEAST;
        while (q - stream->cache_q >= room)
            room *= 2;
        if (room > 2 * RS_QSM_WINDOW)
            return;
        rs_qsm_packet *cache = rs_memory_take(allocator, room * sizeof *cache);
        if (!cache)
            return;
        for (uint64_t i = stream->cache_q; i < stream->cache_q + stream->cache_room; i++)
            cache[i & (room - 1)] = stream->cache[i & (stream->cache_room - 1)];
        rs_memory_give(allocator, stream->cache);
        stream->cache = cache;
        stream->cache_room = room;
    }
    rs_qsm_packet *packet = &stream->cache[q & (stream->cache_room - 1)];
    packet->bytes = rs_memory_take(allocator, length);
    if (!packet->bytes)
        return;
    memcpy(packet->bytes, bytes, length);
    packet->length = (uint32_t)length;
    own->cache_bytes += length;
}

const rs_qsm_packet *rs_qsm_stream_packet(const rs_qsm_stream *stream, uint64_t sn) {
    const rs_qsm_view *view = stream->view;
    uint64_t q = sn / view->partitions;
    if (sn % view->partitions != view->partition || q < stream->cache_q || q - stream->cache_q >= stream->cache_room)
        return NULL;
    const rs_qsm_packet *packet = &stream->cache[q & (stream->cache_room - 1)];
    return packet->bytes ? packet : NULL;
}

/* --------------------------------------------------------------------------------------------------------- ranges */

void rs_qsm_stream_naks(const rs_qsm_stream *stream, rs_qsm_ranges *out) {
    const rs_qsm_view *view = stream->view;
    uint64_t most = stream->cutoff, q = stream->first_q, looked = 0;
    *out = (rs_qsm_ranges){0};
    most = most < stream->prefix + RS_QSM_WINDOW ? most : stream->prefix + RS_QSM_WINDOW;
    for (; rs_qsm_sn_of(view, view->partition, q) <= most && looked < NAKS_MOST; q++, looked++) {
        if (rs_qsm_stream_has(stream, rs_qsm_sn_of(view, view->partition, q)))
            continue;
        uint32_t last = out->count - 1;
        if (out->count && out->range[last].first + out->range[last].count == q && out->range[last].count < UINT16_MAX)
            out->range[last].count++;
        else if (out->count == RS_QSM_RANGES)
            break;
        else {
            out->range[out->count].first = q;
            out->range[out->count++].count = 1;
        }
    }
    out->end = q;
}

bool rs_qsm_ranges_has(const rs_qsm_ranges *ranges, uint64_t q) {
    for (uint32_t i = 0; i < ranges->count; i++)
        if (q >= ranges->range[i].first && q - ranges->range[i].first < ranges->range[i].count)
            return true;
    return false;
}

/* What is in both; nothing is known beyond where one of them ends. */
void rs_qsm_ranges_both(rs_qsm_ranges *into, const rs_qsm_ranges *other) {
    rs_qsm_ranges both = {.end = into->end < other->end ? into->end : other->end};
    for (uint32_t i = 0, k = 0; i < into->count && k < other->count;) {
        uint64_t a = into->range[i].first, b = other->range[k].first, first = a > b ? a : b;
        uint64_t a_end = a + into->range[i].count, b_end = b + other->range[k].count,
                 end = a_end < b_end ? a_end : b_end;
        end = end < both.end ? end : both.end;
        if (first < end) {
            if (both.count == RS_QSM_RANGES) {
                both.end = first;
                break;
            }
            both.range[both.count].first = first;
            both.range[both.count++].count = (uint32_t)(end - first);
        }
        if (a_end <= b_end)
            i++;
        else
            k++;
    }
    *into = both;
}

/* ------------------------------------------------------------------------------------------------------- what comes */

/* Its messages go to their groups. */
static void deliver(rs_qsm *own, rs_time now, const rs_qsm_head *head, const uint8_t *bytes, size_t length,
                    rs_messages_via via) {
    rs_qsm_inner inner;
    bool well;
    for (size_t at = RS_QSM_DATA_HEAD; rs_qsm_get_inner(bytes, length, &at, &inner, &well);) {
        rs_gm_id id = {head->who, head->incarnation, inner.group, inner.sn};
        if (RS_GM_HEADER + inner.length > own->node->config.packet_bytes)
            continue;
        rs_gm_put_header(own->scratch, RS_GM_KIND_DATA, &id);
        memcpy(own->scratch + RS_GM_HEADER, inner.body, inner.length);
        if (!rs_gm_receive_carried(own->node, now, head->who, own->scratch, RS_GM_HEADER + inner.length, via))
            own->stats.refused++;
    }
}

/* The message came before. */
static bool is_here(const rs_gm_stream *stream, const rs_gm_id *id) {
    const rs_gm_slot *slot = stream && stream->incarnation == id->incarnation ? rs_gm_slot_of(stream, id->sn) : NULL;
    if (slot)
        return rs_gm_slot_is(*slot, RS_GM_RECORD);
    return stream && stream->incarnation == id->incarnation && id->sn <= stream->seen;
}

/* Stamps are of messages, and do not speak for the region's number: a member could put one that is no message of the
 * sender's, or one that it heard, under the number that comes next, and what the sender sends by it would be dropped.
 * So a number is taken by packets alone whose messages are all the sender's, and all new. */
static bool takes_number(rs_qsm *own, const rs_qsm_head *head, const uint8_t *bytes, size_t length) {
    rs_messages *node = own->node;
    rs_qsm_inner inner;
    rs_gm_body body;
    bool well;
    if (!node->config.stamps.make)
        return true;
    for (size_t at = RS_QSM_DATA_HEAD; rs_qsm_get_inner(bytes, length, &at, &inner, &well);) {
        const rs_gm_id id = {head->who, head->incarnation, inner.group, inner.sn};
        if (!rs_gm_get_body(inner.body, inner.length, &body) || !rs_gm_is_genuine(node, &id, inner.body) ||
            is_here(rs_gm_stream_find(node, id.sender, id.group), &id))
            return false;
    }
    return true;
}

static bool is_well_formed(const uint8_t *bytes, size_t length) {
    rs_qsm_inner inner;
    bool well = true;
    for (size_t at = RS_QSM_DATA_HEAD; rs_qsm_get_inner(bytes, length, &at, &inner, &well);)
        if (inner.sn == 0 || inner.sn >= RS_GM_SN_MOST)
            return false;
    return well;
}

/* Of its first message. */
static rs_message_group soon(const rs_qsm *own, rs_peer who, const uint8_t *bytes, size_t length, rs_gm_soon what) {
    rs_qsm_inner inner;
    size_t at = RS_QSM_DATA_HEAD;
    bool well;
    if (!rs_qsm_get_inner(bytes, length, &at, &inner, &well))
        return 0;
    rs_gm_stream_soon(own->node, who, inner.group, what);
    return inner.group;
}

rs_message_group rs_qsm_data_soon(const void *of_node, uint32_t ahead, const uint8_t *bytes, size_t length) {
    rs_qsm_head head;
    rs_gm_soon what = ahead > 2 || ahead == 0 ? RS_GM_SOON_PLACE : ahead == 2 ? RS_GM_SOON_STREAM : RS_GM_SOON_GROUP;
    if (rs_gm_get_kind(bytes, length) != RS_QSM_KIND_DATA || length <= RS_QSM_DATA_HEAD ||
        !rs_qsm_get_head(bytes, length, &head))
        return 0;
    return soon(of_node, head.who, bytes, length, what);
}

bool rs_qsm_receive_data(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_qsm_head head;
    if (length <= RS_QSM_DATA_HEAD || !rs_qsm_get_head(bytes, length, &head) || !is_well_formed(bytes, length))
        return false;
    uint64_t sn = rs_qsm_get_sn(bytes);
    if (sn == 0 || sn > RS_QSM_SN_MOST)
        return false;
    rs_qsm_view *view = rs_qsm_view_find(own, head.region, head.version);
    if (!view || view->self == RS_QSM_NOWHERE || head.who == own->node->config.self) {
        own->stats.foreign++;
        return true;
    }
    bool forwarded = from != RS_NO_PEER && from != head.who;
    if (forwarded && rs_qsm_place_of(view, from) == RS_QSM_NOWHERE) {
        own->node->stats.strangers++;
        return true;
    }
    if (!rs_gm_intact(own->node, bytes, length))
        return true;
    soon(own, head.who, bytes, length, RS_GM_SOON_STREAM); /* again, if it was not shown before (rs_messages_soon) */
    rs_qsm_stream *stream = rs_qsm_stream_find(view, head.who);
    const bool known = stream && stream->incarnation == head.incarnation;
    if (!known) /* late: perhaps one that was taken before, by what is not known of any more */
        stream = own->node->came == RS_CAME_LATE ? NULL : rs_qsm_stream_get(view, head.who, head.incarnation);
    if (!stream) {
        own->stats.refused++;
        return true;
    }
    if (rs_qsm_stream_has(stream, sn)) {
        own->stats.duplicates++;
        if (own->node->config.stamps.make) /* if another member took its number, its messages are new all the same */
            deliver(own, now, &head, bytes, length, RS_VIA_RETRANSMIT);
        return true;
    }
    if (sn - stream->prefix > RS_QSM_WINDOW || !takes_number(own, &head, bytes, length) || !reserve_bits(stream, sn)) {
        own->stats.refused++;
        return true;
    }
    own->stats.data_received++;
    own->stats.forwards_received += forwarded;
    stream->began_at = stream->began_at ? stream->began_at : now;
    uint64_t bit = sn & (stream->window - 1);
    stream->bits[bit / 64] |= UINT64_C(1) << bit % 64;
    stream->newest = sn > stream->newest ? sn : stream->newest;
    if (!forwarded && sn > stream->came) {
        stream->came = sn;
        stream->came_at = now;
    }
    keep(stream, sn, bytes, length);
    soon(own, head.who, bytes, length, RS_GM_SOON_GROUP);
    advance(stream);
    rs_qsm_meter_add(&stream->meter, now, 1);
    rs_qsm_meter_add(&view->meter, now, 1);
    rs_qsm_token_wake(view, now);
    deliver(own, now, &head, bytes, length, sn <= stream->cutoff || forwarded ? RS_VIA_RETRANSMIT : RS_VIA_DATA);
    return true;
}

void rs_qsm_stream_tick(rs_qsm_stream *stream, rs_time elapsed) {
    rs_qsm_view *view = stream->view;
    uint32_t place = rs_qsm_place_of(view, stream->sender);
    bool alive =
        view->open || (place != RS_QSM_NOWHERE && view->current) || rs_gm_peer_find(view->own->node, stream->sender);
    if (stream->prefix != stream->stuck_at || stream->prefix >= stream->cutoff) {
        stream->stuck_at = stream->prefix;
        stream->stuck = 0;
        return;
    }
    stream->stuck += elapsed;
    if (stream->stuck < (alive ? RS_QSM_GIVE_UP : RS_QSM_GIVE_UP_DEAD) + 4 * view->interval)
        return;
    uint64_t to = stream->cutoff < stream->prefix + RS_QSM_WINDOW ? stream->cutoff : stream->prefix + RS_QSM_WINDOW;
    for (uint64_t sn = stream->prefix + 1; sn <= to; sn++) {
        view->own->stats.lost += !rs_qsm_stream_has(stream, sn);
        if (stream->window && sn - stream->prefix <= stream->window) {
            uint64_t bit = sn & (stream->window - 1);
            stream->bits[bit / 64] &= ~(UINT64_C(1) << bit % 64);
        }
    }
    stream->prefix = to;
    stream->stuck = 0;
    advance(stream);
}
