#include "core/groups/streams.h"

#include <string.h>

#include "core/groups/deliver.h"
#include "core/groups/members.h"
#include "core/groups/missing.h"

#define JOIN_BOUND (1000 * INT64_C(1000000)) /* a member that joined so long ago hears what is published */
#define REJOIN_BACK \
    4096u             /* packets before the first one that comes after a return, and may come yet: a second of many */
#define SWEEP_TIMES 2 /* give_up: in that time nobody asks any more for what was missing before */

static uint32_t bucket_of(const rs_messages *node, rs_peer sender, rs_message_group group) {
    return (uint32_t)rs_mix(((uint64_t)sender << 32 | group) ^ node->config.seed) & node->place_mask;
}

static rs_gm_stream *stream_at(const rs_messages *node, uint32_t number) {
    return &node->chunks[number / RS_GM_CHUNK][number % RS_GM_CHUNK];
}

rs_gm_stream *rs_gm_stream_numbered(const rs_messages *node, uint32_t number) {
    return number < node->chunk_count * RS_GM_CHUNK ? stream_at(node, number) : NULL;
}

static rs_gm_place *place_of(const rs_messages *node, rs_peer sender, rs_message_group group) {
    uint32_t at = bucket_of(node, sender, group);
    while (node->places[at].number && (node->places[at].sender != sender || node->places[at].group != group))
        at = (at + 1) & node->place_mask;
    return &node->places[at];
}

rs_gm_stream *rs_gm_stream_find(const rs_messages *node, rs_peer sender, rs_message_group group) {
    const rs_gm_place *place = place_of(node, sender, group);
    return place->number ? stream_at(node, place->number - 1) : NULL;
}

void rs_gm_stream_soon(const rs_messages *node, rs_peer sender, rs_message_group group, rs_gm_soon what) {
    if (what == RS_GM_SOON_PLACE) {
        __builtin_prefetch(&node->places[bucket_of(node, sender, group)]);
        return;
    }
    const rs_gm_stream *stream = rs_gm_stream_find(node, sender, group);
    if (stream && what == RS_GM_SOON_STREAM) {
        __builtin_prefetch(stream, 1);
        __builtin_prefetch(&stream->peer, 1);
    } else if (stream) {
        __builtin_prefetch(stream->group, 1);
        __builtin_prefetch(&stream->slots[(stream->high + 1) & (stream->capacity - 1)], 1);
    }
}

/* At most half of the table is in use. */
static bool make_room(rs_messages *node) {
    if (node->places && node->place_count < (node->place_mask + 1) / 2)
        return true;
    rs_gm_place *old = node->places;
    uint32_t old_size = old ? node->place_mask + 1 : 0, size = old ? old_size * 2 : 256;
    rs_gm_place *places = rs_memory_take(&node->allocator, size * sizeof *places);
    if (!places)
        return false;
    node->places = places;
    node->place_mask = size - 1;
    for (uint32_t i = 0; i < old_size; i++) {
        if (old[i].number)
            *place_of(node, old[i].sender, old[i].group) = old[i];
    }
    rs_memory_give(&node->allocator, old);
    return true;
}

bool rs_gm_streams_init(rs_messages *node) {
    node->chunks =
        rs_memory_take(&node->allocator, (node->config.max_streams / RS_GM_CHUNK + 1) * sizeof(rs_gm_stream *));
    return node->chunks && make_room(node);
}

static void forget_place(rs_messages *node, const rs_gm_stream *stream) {
    rs_gm_place *place = place_of(node, stream->sender, stream->group->id);
    uint32_t at = (uint32_t)(place - node->places);
    *place = (rs_gm_place){0};
    node->place_count--;
    for (at = (at + 1) & node->place_mask; node->places[at].number; at = (at + 1) & node->place_mask) {
        rs_gm_place moved = node->places[at];
        node->places[at] = (rs_gm_place){0};
        *place_of(node, moved.sender, moved.group) = moved;
    }
}

static rs_gm_stream *unused_stream(rs_messages *node) {
    if (!node->stream_free) {
        if (node->chunk_count == node->config.max_streams / RS_GM_CHUNK)
            return NULL;
        rs_gm_stream *chunk = rs_memory_take_lines(&node->allocator, RS_GM_CHUNK * sizeof *chunk);
        if (!chunk)
            return NULL;
        uint32_t first = node->chunk_count * RS_GM_CHUNK;
        node->chunks[node->chunk_count++] = chunk;
        for (uint32_t i = RS_GM_CHUNK; i-- > 0;) {
            chunk[i].number = first + i;
            chunk[i].next_free = node->stream_free;
            node->stream_free = first + i + 1;
        }
    }
    return stream_at(node, node->stream_free - 1);
}

/* The stream has another window, with the newest of what it knows. */
static void take_window(rs_messages *node, rs_gm_stream *stream, rs_gm_slot *slots, uint32_t capacity) {
    for (uint64_t sn = stream->high; sn >= stream->base && stream->high - sn < capacity; sn--) {
        const rs_gm_slot *slot = rs_gm_slot_of(stream, sn);
        if (!slot)
            break;
        slots[sn & (capacity - 1)] = *slot;
    }
    rs_memory_give(&node->allocator, stream->slots);
    uint64_t *counted = stream->own ? &node->own_windows : &node->stats.window_bytes;
    *counted += capacity * sizeof *slots;
    *counted -= stream->capacity * sizeof *slots;
    stream->slots = slots;
    stream->capacity = capacity;
    rs_list_remove(&stream->wide);
    if (capacity > RS_GM_LEAST_WINDOW)
        rs_list_append(&node->wide, &stream->wide);
}

static rs_gm_stream *new_stream(rs_messages *node, rs_gm_group *group, const rs_gm_id *id) {
    rs_gm_stream *stream = make_room(node) ? unused_stream(node) : NULL;
    rs_gm_slot *slots = stream ? rs_memory_take(&node->allocator, RS_GM_LEAST_WINDOW * sizeof *slots) : NULL;
    if (!slots)
        return NULL;
    uint32_t number = stream->number;
    node->stream_free = stream->next_free;
    *stream = (rs_gm_stream){.sender = id->sender,
                             .incarnation = id->incarnation,
                             .group = group,
                             .number = number,
                             .peer = rs_gm_peer_find(node, id->sender)};
    rs_list_init(&stream->wide);
    rs_list_init(&stream->departed);
    rs_list_init(&stream->in_group);
    rs_list_init(&stream->assemblies);
    rs_list_append(&group->streams, &stream->in_group);
    stream->own = id->sender == node->config.self;
    rs_gm_stream_start(stream, 1);
    take_window(node, stream, slots, RS_GM_LEAST_WINDOW);
    *place_of(node, id->sender, group->id) = (rs_gm_place){id->sender, group->id, number + 1};
    node->place_count++;
    return stream;
}

void rs_gm_stream_start(rs_gm_stream *stream, uint64_t sn) {
    stream->base = stream->next = sn;
    stream->high = sn - 1;
}

/* What is missing or half here of it is forgotten. */
static void drop_contents(rs_messages *node, rs_gm_stream *stream) {
    for (uint64_t sn = stream->high; sn >= stream->base; sn--) {
        const rs_gm_slot *slot = rs_gm_slot_of(stream, sn);
        if (!slot)
            break;
        if (rs_gm_slot_is(*slot, RS_GM_MISSING))
            rs_gm_missing_drop(node, rs_gm_missing_at(node, *slot));
    }
    while (!rs_list_empty(&stream->assemblies))
        rs_gm_assembly_free(node, RS_HOLDER(rs_gm_assembly, in_stream, stream->assemblies.next));
}

static void set_departed(rs_messages *node, rs_gm_stream *stream, bool departed) {
    bool was = !rs_list_empty(&stream->departed);
    if (departed == was)
        return;
    if (departed)
        rs_list_append(&node->departed, &stream->departed);
    else
        rs_list_remove(&stream->departed);
    node->departed_count += departed ? 1u : (uint32_t)-1;
}

void rs_gm_stream_free(rs_messages *node, rs_gm_stream *stream) {
    drop_contents(node, stream);
    forget_place(node, stream);
    set_departed(node, stream, false);
    rs_list_remove(&stream->wide);
    rs_list_remove(&stream->in_group);
    if (stream->own)
        stream->group->published = NULL;
    *(stream->own ? &node->own_windows : &node->stats.window_bytes) -= stream->capacity * sizeof *stream->slots;
    rs_memory_give(&node->allocator, stream->slots);
    stream->slots = NULL;
    stream->group = NULL;
    stream->next_free = node->stream_free;
    node->stream_free = stream->number + 1;
}

/* The sender's agent was restarted: what was on the way of the old one will not come. */
static void restart_stream(rs_messages *node, rs_gm_stream *stream, uint32_t incarnation) {
    rs_gm_lost(node, stream, stream->high + 1, 0, RS_LOST_RESTART);
    drop_contents(node, stream);
    memset(stream->slots, 0, stream->capacity * sizeof *stream->slots);
    stream->incarnation = incarnation;
    stream->settled_base = stream->delivered = stream->unheard = stream->rejoined = stream->placed = false;
    stream->returned = 0;
    stream->dropped = stream->seen = stream->outside = stream->floor = 0;
    rs_gm_stream_start(stream, 1);
}

rs_gm_stream *rs_gm_stream_get(rs_messages *node, rs_gm_group *group, const rs_gm_id *id, bool own_report,
                               bool *fresh) {
    rs_gm_stream *stream = rs_gm_stream_find(node, id->sender, id->group);
    *fresh = false;
    if (stream && stream->incarnation == id->incarnation) {
        *fresh = stream->unheard;
        stream->unheard = false;
        return stream;
    }
    *fresh = true;
    if (id->sender == node->config.self)
        return stream ? NULL : new_stream(node, group, id);
    rs_gm_peer *peer = rs_gm_peer_find(node, id->sender);
    bool known = peer ? peer->incarnation == id->incarnation : group->open;
    if (!known && own_report && !stream && peer && peer->incarnation == 0)
        known = true;
    if (!known || !rs_gm_may_publish(group, id->sender))
        return NULL;
    if (stream)
        restart_stream(node, stream, id->incarnation);
    else
        stream = new_stream(node, group, id);
    if (stream && peer)
        peer->incarnation = id->incarnation;
    return stream;
}

void rs_gm_stream_restart(rs_messages *node, rs_gm_stream *stream, uint64_t sn) {
    drop_contents(node, stream);
    memset(stream->slots, 0, stream->capacity * sizeof *stream->slots);
    rs_gm_stream_start(stream, sn);
}

/* Who left, and was never heard, is remembered as well, if its incarnation is known: what it published may have missed
 * this node, and it is asked. They leave room for those that were heard. */
static void remember_left(rs_messages *node, rs_time now, rs_gm_group *group, const rs_peer *peers, uint32_t count) {
    for (uint32_t i = 0; i < count && node->departed_count < RS_GM_DEPARTED / 2; i++) {
        const rs_gm_peer *peer = rs_gm_peer_find(node, peers[i]);
        if (peers[i] == node->config.self || rs_gm_may_publish(group, peers[i]) || !peer || peer->incarnation == 0 ||
            rs_gm_stream_find(node, peers[i], group->id))
            continue;
        rs_gm_stream *stream = new_stream(node, group, &(rs_gm_id){peers[i], peer->incarnation, group->id, 0});
        if (!stream)
            return;
        stream->unheard = true;
        stream->peer = NULL;
        stream->departed_at = now;
        set_departed(node, stream, true);
    }
}

void rs_gm_streams_view(rs_messages *node, rs_time now, rs_gm_group *group, const rs_gm_group *was) {
    if (group->member && was->member && !group->open) {
        remember_left(node, now, group, was->publishers, was->publisher_count);
        remember_left(node, now, group, was->members, was->member_count);
    }
    for (rs_list *at = group->streams.next; at != &group->streams; at = at->next) {
        rs_gm_stream *stream = RS_HOLDER(rs_gm_stream, in_group, at);
        if (stream->own)
            continue;
        bool here = rs_gm_may_publish(group, stream->sender);
        stream->peer = here ? rs_gm_peer_find(node, stream->sender) : NULL;
        if (stream->peer && stream->peer->incarnation == 0)
            stream->peer->incarnation = stream->incarnation;
        if (!here && rs_list_empty(&stream->departed))
            stream->departed_at = now;
        if (here && !rs_list_empty(&stream->departed))
            stream->returned = group->policy.give_up_behind ? group->version : 0;
        set_departed(node, stream, !here);
    }
    while (node->departed_count > RS_GM_DEPARTED) {
        rs_gm_stream *oldest = RS_HOLDER(rs_gm_stream, departed, node->departed.next);
        oldest->group->evicted = true;
        oldest->group->begins_from = oldest->group->version; /* its sender comes back with a later one */
        rs_gm_stream_free(node, oldest);
    }
}

static rs_time sweep_each(const rs_messages *node) {
    return SWEEP_TIMES * node->config.give_up;
}

/* One stream takes no more of what all may have than it leaves. Own ones are bounded by the ring of own packets. */
static bool affordable(const rs_messages *node, const rs_gm_stream *stream, uint32_t capacity) {
    uint64_t more = (capacity - stream->capacity) * sizeof *stream->slots;
    uint64_t all = node->stats.window_bytes + more;
    return stream->own ||
           (all <= node->config.window_bytes && capacity * sizeof *stream->slots <= node->config.window_bytes - all);
}

static bool grow(rs_messages *node, rs_time now, rs_gm_stream *stream) {
    uint32_t capacity = stream->capacity * 2;
    if (capacity > node->config.window_packets || !affordable(node, stream, capacity))
        return false;
    rs_gm_slot *slots = rs_memory_take(&node->allocator, capacity * sizeof *slots);
    if (!slots)
        return false;
    take_window(node, stream, slots, capacity);
    if (node->sweep_at == RS_NEVER)
        node->sweep_at = now + sweep_each(node);
    return true;
}

/* Twice what came between two looks is enough, and what is missing or waits to be sent. */
static void shrink(rs_messages *node, rs_gm_stream *stream) {
    uint64_t came = stream->high >= stream->mark ? stream->high - stream->mark : stream->high;
    uint64_t needed = came > stream->recent ? came : stream->recent;
    uint32_t capacity = RS_GM_LEAST_WINDOW;
    stream->mark = stream->high;
    stream->recent = came;
    while (capacity < stream->capacity && capacity < 2 * needed)
        capacity *= 2;
    if (capacity == stream->capacity)
        return;
    for (uint64_t back = capacity; back < stream->capacity && back <= stream->high; back++) {
        const rs_gm_slot *slot = rs_gm_slot_of(stream, stream->high - back);
        if (slot && (rs_gm_slot_is(*slot, RS_GM_MISSING) ||
                     (stream->own && rs_gm_slot_is(*slot, RS_GM_RECORD) && rs_gm_slot_at(*slot) >= node->sent)))
            return;
    }
    rs_gm_slot *slots = rs_memory_take(&node->allocator, capacity * sizeof *slots);
    if (slots)
        take_window(node, stream, slots, capacity);
}

void rs_gm_streams_timeout(rs_messages *node, rs_time now) {
    if (now < node->sweep_at)
        return;
    rs_list all; /* those that stay wide are appended to node->wide again */
    rs_list_init(&all);
    while (!rs_list_empty(&node->wide))
        rs_list_append(&all, node->wide.next);
    while (!rs_list_empty(&all)) {
        rs_gm_stream *stream = RS_HOLDER(rs_gm_stream, wide, all.next);
        rs_list_append(&node->wide, &stream->wide);
        shrink(node, stream);
    }
    node->sweep_at = rs_list_empty(&node->wide) ? RS_NEVER : now + sweep_each(node);
}

static bool useful(const rs_messages *node, const rs_gm_stream *stream, rs_gm_slot slot) {
    return rs_gm_slot_is(slot, RS_GM_MISSING) || rs_gm_slot_kept(node, stream, slot);
}

/* The slot of high + 1: what was in it is out of the window, unless that can grow. */
static rs_gm_slot *next_slot(rs_messages *node, rs_time now, rs_gm_stream *stream) {
    uint64_t sn = stream->high + 1;
    while (sn - stream->base >= stream->capacity) {
        rs_gm_slot old = stream->slots[sn & (stream->capacity - 1)];
        if (useful(node, stream, old) && grow(node, now, stream))
            continue;
        if (rs_gm_slot_is(old, RS_GM_MISSING))
            rs_gm_missing_lost(node, now, rs_gm_missing_at(node, old), RS_LOST_WINDOW);
        if (!stream->own && stream->group->order == RS_ORDER_FIFO && stream->next <= sn - stream->capacity)
            rs_gm_deliver_run(node, now, stream);
        break;
    }
    stream->high = sn;
    rs_gm_slot *slot = &stream->slots[sn & (stream->capacity - 1)];
    *slot = RS_GM_GONE;
    return slot;
}

void rs_gm_stream_jump(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn) {
    for (uint64_t at = stream->base; at <= stream->high; at++) {
        if (stream->high - at >= stream->capacity)
            at = stream->high - stream->capacity + 1;
        rs_gm_slot slot = *rs_gm_slot_of(stream, at);
        if (rs_gm_slot_is(slot, RS_GM_MISSING))
            rs_gm_missing_lost(node, now, rs_gm_missing_at(node, slot), RS_LOST_WINDOW);
    }
    if (stream->group->order == RS_ORDER_FIFO)
        rs_gm_deliver_run(node, now, stream);
    if (sn > stream->high + 1)
        rs_gm_lost(node, stream, stream->high + 1, sn - stream->high - 1, RS_LOST_WINDOW);
    stream->floor = stream->high;
    memset(stream->slots, 0, stream->capacity * sizeof *stream->slots);
    rs_gm_stream_start(stream, sn);
}

void rs_gm_stream_reach(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, bool here) {
    if (sn <= stream->high)
        return;
    stream->group->passed += sn - stream->high;
    while (stream->high < sn) {
        next_slot(node, now, stream);
        if (stream->high < sn || !here)
            rs_gm_missing_new(node, now, stream, stream->high);
    }
}

/* A view's version may go round: 32 bits of it are on the wire. */
static bool from_version(uint64_t joined, uint32_t view) {
    return (int32_t)(view - (uint32_t)joined) >= 0;
}

void rs_gm_stream_settle_base(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn,
                              const rs_gm_views *views) {
    uint64_t joined = stream->group->joined, old = stream->base, first = sn;
    if (stream->settled_base || stream->own || !from_version(joined, views->view[0].version))
        return;
    stream->settled_base = true;
    /* What comes first long after the join is the rest of something that was lost, else of what was under way then. */
    bool late = !stream->group->open && now - stream->group->member_since >= JOIN_BOUND;
    uint32_t most = late ? RS_GM_BACK_MOST : RS_GM_LATE_JOIN;
    uint32_t count = stream->group->evicted ? 1 : views->count; /* else what came before may be taken for lost */
    for (uint32_t i = 0; i < count && from_version(joined, views->view[i].version); i++) {
        uint8_t back = views->view[i].back;
        first = back < most && back < sn ? sn - back : first;
        if (late && back == RS_GM_BACK_MOST && sn > RS_GM_BACK_MOST) {
            first = sn - RS_GM_BACK_MOST + 1;
            rs_gm_lost(node, stream, first, 0, RS_LOST_WINDOW); /* how many before it is not known */
        }
    }
    if (first >= old || (stream->delivered && stream->group->order == RS_ORDER_FIFO))
        return;
    while (stream->high + 1 - first > stream->capacity) {
        if (!grow(node, now, stream))
            return;
    }
    stream->base = stream->next = first;
    for (uint64_t at = first; at < old; at++) {
        *rs_gm_slot_of(stream, at) = RS_GM_GONE;
        rs_gm_missing_new(node, now, stream, at);
    }
}

/* What is missing before `sn` does not come: what is here behind it goes on. */
static void pass_over(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn) {
    uint64_t at = stream->base;
    if (stream->high >= at && stream->high - at >= stream->capacity)
        at = stream->high - stream->capacity + 1;
    for (; at < sn && at <= stream->high; at++) {
        const rs_gm_slot *slot = rs_gm_slot_of(stream, at);
        if (!rs_gm_slot_is(*slot, RS_GM_MISSING))
            continue;
        rs_gm_missing_lost(node, now, rs_gm_missing_at(node, *slot), RS_LOST_NETWORK);
        if (stream->group->order == RS_ORDER_FIFO)
            rs_gm_deliver_run(node, now, stream);
    }
}

/* The first packet that was published under the version with which this node joined, or a later one, as far as views of
 * packet `sn` tell; 0: they do not tell. A sender that published before tells of an earlier view behind those. */
static uint64_t first_since(uint64_t joined, uint64_t sn, const rs_gm_views *views) {
    uint32_t since = 0;
    while (since < views->count && from_version(joined, views->view[since].version))
        since++;
    if (since == 0 || since == RS_GM_VIEWS)
        return 0;
    uint8_t back = views->view[since - 1].back;
    return back < RS_GM_BACK_MOST && back < sn ? sn - back : 0;
}

void rs_gm_stream_go_on(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, const rs_gm_views *views) {
    uint64_t joined = stream->group->joined, first = first_since(joined, sn, views);
    if (!stream->rejoined || !from_version(joined, views->view[0].version))
        return;
    stream->rejoined = first == 0;
    if (first == 0 && sn > REJOIN_BACK)
        first = sn - REJOIN_BACK;
    if (first > stream->high + 1)
        rs_gm_stream_jump(node, now, stream, first);
    else if (!stream->rejoined)
        pass_over(node, now, stream, first);
}

void rs_gm_stream_place(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, const rs_gm_views *views) {
    stream->placed = true;
    if (from_version(stream->group->joined, views->view[0].version))
        rs_gm_stream_go_on(node, now, stream, sn, views);
    else if (sn > stream->high)
        rs_gm_stream_jump(node, now, stream, sn + 1);
    else
        pass_over(node, now, stream, sn + 1);
}

void rs_gm_stream_rejoin(rs_messages *node, rs_time now, rs_gm_stream *stream) {
    stream->rejoined = true;
    stream->placed = false;
    for (uint64_t sn = stream->high; sn >= stream->base && stream->rejoined; sn--) {
        const rs_gm_slot *slot = rs_gm_slot_of(stream, sn);
        if (!slot)
            return;
        if (!rs_gm_slot_kept(node, stream, *slot))
            continue;
        rs_gm_views views = rs_gm_body_views(rs_gm_log_datagram(&node->in, rs_gm_slot_at(*slot)) + RS_GM_HEADER);
        if (!from_version(stream->group->joined, views.view[0].version)) {
            pass_over(node, now, stream, sn);
            return;
        }
        rs_gm_stream_go_on(node, now, stream, sn, &views);
    }
}

void rs_gm_stream_hurry(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, const rs_gm_views *views) {
    const rs_time until = now + stream->group->policy.give_up_behind;
    uint64_t first = first_since(stream->returned, sn, views), at = stream->base;
    if (first == 0)
        return;
    stream->returned = 0;
    if (stream->high >= at && stream->high - at >= stream->capacity)
        at = stream->high - stream->capacity + 1;
    for (; at < first && at <= stream->high && stream->missing > 0; at++) {
        const rs_gm_slot *slot = rs_gm_slot_of(stream, at);
        rs_gm_missing *missing = rs_gm_slot_is(*slot, RS_GM_MISSING) ? rs_gm_missing_at(node, *slot) : NULL;
        if (missing && missing->give_up.due > until)
            rs_timer_set(&node->give_up_timers, &missing->give_up, until);
    }
}
