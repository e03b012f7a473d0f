/* Messages become packets in a log that is both the queue of what is to be sent and the buffer of what may be asked for
 * again (naks.c). */
#include "core/groups/publish.h"

#include <string.h>

#include "core/groups/members.h"
#include "core/groups/outbox.h"
#include "core/groups/positions.h"
#include "core/groups/streams.h"

/* Bytes in front of each payload that say who made it. */
static uint32_t stamp_of(const rs_messages *node) {
    return node->config.stamps.make ? RS_GM_STAMP : 0;
}

/* Payload bytes in one packet. */
static uint32_t capacity(const rs_messages *node, const rs_gm_group *group) {
    return rs_gm_body_most(node, group) - RS_GM_BODY - stamp_of(node);
}

/* What comes first is forgotten for what is newer. */
static void add_view(rs_gm_past *past, uint64_t version, uint64_t first) {
    if (past->count > 0 && past->view[past->count - 1].first == first)
        past->count--; /* nothing was published under that one */
    else if (past->count == RS_GM_VIEWS)
        memmove(past->view, past->view + 1, --past->count * sizeof *past->view);
    past->view[past->count].version = version;
    past->view[past->count++].first = first;
}

void rs_gm_publish_view(rs_gm_group *group) {
    add_view(&group->past, group->version, group->published ? group->published->high + 1 : 1);
}

/* Where it is wanted at once: a copy would be read in other pieces than it was written in, and processors wait then
 * until all that was written before has left for the caches. */
static void put_views_at(const rs_gm_past *past, uint64_t sn, rs_gm_views *out) {
    out->count = 0;
    for (uint32_t i = past->count; i-- > 0;) {
        uint64_t back = sn - past->view[i].first, version = past->view[i].version;
        if (past->view[i].first > sn)
            continue;
        if (out->count > 0 &&
            ((uint32_t)version == out->view[0].version || out->view[0].version - (uint32_t)version > UINT16_MAX))
            break;
        out->view[out->count].version = (uint32_t)version;
        out->view[out->count++].back = back < RS_GM_BACK_MOST ? (uint8_t)back : RS_GM_BACK_MOST;
    }
    if (out->count == 0) { /* of a time before all that is remembered */
        out->view[0].version = (uint32_t)past->view[0].version - 1;
        out->view[out->count++].back = RS_GM_BACK_MOST;
    }
}

static rs_gm_views views_at(const rs_gm_past *past, uint64_t sn) {
    rs_gm_views views;
    put_views_at(past, sn, &views);
    return views;
}

rs_gm_views rs_gm_publish_views(const rs_gm_group *group, uint64_t sn) {
    return views_at(&group->past, sn);
}

/* A packet of `length` payload bytes at the log's end; returns where they belong. */
static uint8_t *new_packet(rs_messages *node, rs_time now, rs_gm_group *group, rs_gm_form form, uint32_t length) {
    rs_gm_stream *own = group->published;
    uint64_t sn = own->high + 1;
    const uint32_t stamp = stamp_of(node);
    rs_gm_stream_reach(node, now, own, sn, true);
    uint64_t at = rs_gm_log_append(&node->out, RS_GM_DATA_LEAST + stamp + length);
    *rs_gm_slot_of(own, sn) = at | RS_GM_RECORD;
    rs_gm_record *record = rs_gm_log_record(&node->out, at);
    record->stream = own->number;
    record->sn = sn;
    node->last_published = at;
    uint8_t *datagram = rs_gm_log_datagram(&node->out, at);
    rs_gm_id id = {own->sender, own->incarnation, group->id, sn};
    rs_gm_body body;
    body.length = (uint16_t)(stamp + length);
    body.form = (uint8_t)form;
    body.stamped = stamp > 0;
    put_views_at(&group->past, sn, &body.views);
    rs_gm_put_header(datagram, RS_GM_KIND_DATA, &id);
    rs_gm_put_body(datagram + RS_GM_HEADER, &body);
    return datagram + RS_GM_DATA_LEAST + stamp; /* which is made when it is sent */
}

/* The small message shares the datagram that was made last, if that is of the same group and still waits. */
static bool share(rs_messages *node, const rs_gm_group *group, const void *bytes, uint32_t length) {
    uint64_t at = node->last_published;
    if (at < node->sent || at < node->stamped || node->sent == node->out.head || (at == node->sent && node->turn > 0))
        return false;
    rs_gm_record *record = rs_gm_log_record(&node->out, at);
    uint8_t *body = rs_gm_log_datagram(&node->out, at) + RS_GM_HEADER;
    uint32_t old = rs_gm_body_length(body), longer = old + RS_GM_PACK_LENGTH + length;
    uint64_t after = at + rs_gm_log_span(RS_GM_DATA_LEAST + longer);
    if (record->stream != group->published->number || record->sn != group->published->high ||
        rs_gm_body_form(body) != RS_GM_PACK || longer > capacity(node, group) + stamp_of(node) ||
        group->past.view[group->past.count - 1].first > record->sn ||
        (at & (node->out.size - 1)) + (after - at) > node->out.size || after - node->sent > node->out.size)
        return false;
    uint8_t *place = body + RS_GM_BODY + old;
    rs_gm_put_pack_length(place, length);
    if (length)
        memcpy(place + RS_GM_PACK_LENGTH, bytes, length);
    rs_gm_put_body_length(body, longer);
    record->span = (uint32_t)(after - at);
    node->out.head = after;
    return true;
}

/* What waits to be sent must stay in the window. */
static bool has_room(const rs_messages *node, const rs_gm_stream *own, uint32_t packets) {
    uint64_t last = own->high + packets, window = RS_GM_LEAST_WINDOW;
    while (2 * window <= node->config.window_packets)
        window *= 2;
    if (last < own->base + window)
        return true;
    const rs_gm_slot *slot = packets <= window ? rs_gm_slot_of(own, last - window) : NULL;
    if (packets > window)
        return false;
    return !slot || !rs_gm_slot_is(*slot, RS_GM_RECORD) || rs_gm_slot_at(*slot) < node->sent;
}

static rs_status publish_small(rs_messages *node, rs_time now, rs_gm_group *group, const void *bytes, uint32_t length) {
    bool pack = length <= capacity(node, group) / 2 - RS_GM_PACK_LENGTH;
    if (pack && share(node, group, bytes, length))
        return RS_OK;
    uint32_t payload_length = length + (pack ? RS_GM_PACK_LENGTH : 0);
    if (rs_gm_log_after(&node->out, RS_GM_DATA_LEAST + stamp_of(node) + payload_length) - node->sent > node->out.size)
        return RS_ERR_LIMIT;
    if (!has_room(node, group->published, 1))
        return RS_ERR_LIMIT;
    uint8_t *payload = new_packet(node, now, group, pack ? RS_GM_PACK : RS_GM_SINGLE, payload_length);
    if (pack) {
        rs_gm_put_pack_length(payload, length);
        payload += RS_GM_PACK_LENGTH;
    }
    if (length)
        memcpy(payload, bytes, length);
    return RS_OK;
}

static rs_status publish_large(rs_messages *node, rs_time now, rs_gm_group *group, const uint8_t *bytes,
                               uint32_t length) {
    uint32_t each = capacity(node, group) - RS_GM_PART, count = (length - 1) / each + 1;
    each = (length - 1) / count + 1; /* packets of one length go out joined */
    uint64_t needed = (uint64_t)(count + 1) * rs_gm_log_span(node->config.packet_bytes);
    if (count > UINT16_MAX || needed > node->out.size)
        return RS_ERR_INVALID;
    if (node->out.head + needed - node->sent > node->out.size || !has_room(node, group->published, count))
        return RS_ERR_LIMIT;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t offset = i * each, part_length = length - offset < each ? length - offset : each;
        rs_gm_part part = {length, offset, (uint16_t)i, (uint16_t)count};
        uint8_t *payload = new_packet(node, now, group, RS_GM_PARTS, RS_GM_PART + part_length);
        rs_gm_put_part(payload, &part);
        memcpy(payload + RS_GM_PART, bytes + offset, part_length);
    }
    return RS_OK;
}

static rs_gm_forgotten *find_forgotten(const rs_messages *node, rs_message_group group) {
    for (uint32_t i = 0; i < node->number_count; i++)
        if (node->numbers[i].group == group)
            return &node->numbers[i];
    return NULL;
}

static uint32_t member_bit(rs_peer peer) {
    return (uint32_t)rs_mix(peer) % 256;
}

uint64_t rs_gm_publish_forgotten(const rs_messages *node, rs_message_group group, rs_peer asker, rs_gm_views *views) {
    const rs_gm_forgotten *forgotten = find_forgotten(node, group);
    uint32_t bit = member_bit(asker);
    if (!forgotten || !(forgotten->members[bit / 64] >> bit % 64 & 1))
        return 0;
    *views = views_at(&forgotten->past, forgotten->high);
    return forgotten->high;
}

void rs_gm_publish_end(rs_messages *node, const rs_gm_group *group) {
    if (!group->published || group->published->high == 0)
        return;
    uint64_t high = group->published->high;
    rs_gm_forgotten *place = find_forgotten(node, group->id);
    if (!place && node->number_count < RS_GM_NUMBERS) {
        if (!node->numbers)
            node->numbers = rs_memory_take(&node->allocator, RS_GM_NUMBERS * sizeof *node->numbers);
        if (!node->numbers) {
            node->number_least = high > node->number_least ? high : node->number_least;
            return;
        }
        place = &node->numbers[node->number_count++];
    } else if (!place) { /* the one that was put there first gives way */
        place = &node->numbers[node->number_next++ % RS_GM_NUMBERS];
        node->number_least = place->high > node->number_least ? place->high : node->number_least;
    }
    *place = (rs_gm_forgotten){.group = group->id, .high = high, .past = group->past};
    for (uint32_t i = 0; i < group->member_count; i++) {
        uint32_t bit = member_bit(group->members[i]);
        place->members[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

/* The sender's own stream in a group, made with its first message. Numbers go on where they were, or beyond all that
 * were ever used; so does what is told of views. */
static bool have_stream(rs_messages *node, rs_gm_group *group) {
    if (group->published)
        return true;
    bool fresh;
    rs_gm_id id = {node->config.self, node->config.incarnation, group->id, 0};
    group->published = rs_gm_stream_get(node, group, &id, true, &fresh);
    if (!group->published)
        return false;
    const rs_gm_forgotten *before = find_forgotten(node, group->id);
    uint64_t first = (before ? before->high : node->number_least) + 1;
    rs_gm_past since = group->past, *past = &group->past;
    rs_gm_stream_start(group->published, first);
    past->count = 0;
    for (uint32_t i = 0; before && i < before->past.count; i++)
        if (before->past.view[i].version < since.view[0].version)
            add_view(past, before->past.view[i].version, before->past.view[i].first);
    add_view(past, since.view[since.count - 1].version, first);
    return true;
}

rs_status rs_messages_publish(rs_messages *node, rs_time now, rs_message_group id, const void *bytes, uint32_t length,
                              uint64_t *sn) {
    rs_gm_take_back(node);
    rs_gm_group *group = rs_gm_group_find(node, id);
    if (!group)
        return RS_ERR_UNKNOWN;
    if (length > node->config.message_bytes)
        return RS_ERR_INVALID;
    if (!have_stream(node, group))
        return RS_ERR_MEMORY;
    uint64_t next = group->published->high + 1;
    rs_status status = length > capacity(node, group) ? publish_large(node, now, group, bytes, length)
                                                      : publish_small(node, now, group, bytes, length);
    if (status != RS_OK)
        return status;
    node->stats.published++;
    if (sn)
        *sn = group->published->high < next ? group->published->high : next;
    if (!group->policy.silent && (group->policy.recovers || !group->open))
        rs_gm_heartbeats_begin(node, now, group);
    return RS_OK;
}

uint64_t rs_messages_last_published(const rs_messages *node, rs_message_group id) {
    const rs_gm_group *group = rs_gm_group_find(node, id);
    return group && group->published ? group->published->high : 0;
}

rs_status rs_messages_tell_completion(rs_messages *node, rs_message_group id, bool tell) {
    rs_gm_take_back(node);
    rs_gm_group *group = rs_gm_group_find(node, id);
    if (!group)
        return RS_ERR_UNKNOWN;
    if (!group->engine->complete)
        return RS_ERR_INVALID;
    return group->engine->complete(rs_gm_engine_own(node, group->engine), group, tell);
}

uint64_t rs_messages_unsent(const rs_messages *node) {
    return node->out.head - node->sent;
}

/* Where the packet goes this time; RS_NO_GROUP: it has gone everywhere. */
static rs_group channel_of(const rs_messages *node, const rs_gm_group *group, uint64_t sn) {
    if (group->engine->channel)
        return group->engine->channel(group, sn, node->turn);
    return node->turn == 0 ? group->channel : RS_NO_GROUP;
}

/* The datagram of an own packet that waits; NULL: there is none at that place of the log. */
static uint8_t *waits_at(rs_messages *node, uint64_t at) {
    const rs_gm_record *record = rs_gm_log_record(&node->out, at);
    rs_gm_stream *stream = record->stream == RS_GM_NO_STREAM ? NULL : rs_gm_stream_numbered(node, record->stream);
    const rs_gm_slot *slot = stream && stream->group && stream->own ? rs_gm_slot_of(stream, record->sn) : NULL;
    return slot && *slot == (at | RS_GM_RECORD) ? rs_gm_log_datagram(&node->out, at) : NULL;
}

/* What waits is stamped together, as much as one batch takes: nothing joins these packets any more. */
static void stamp(rs_messages *node) {
    rs_messages_stamped packets[RS_MESSAGES_STAMPED];
    uint32_t count = 0;
    uint64_t at = node->sent;
    for (; at < node->out.head && count < RS_MESSAGES_STAMPED; at += rs_gm_log_record(&node->out, at)->span) {
        uint8_t *datagram = waits_at(node, at);
        if (datagram)
            packets[count++] = rs_gm_stamped(datagram + RS_GM_HEADER - RS_GM_ID, datagram + RS_GM_HEADER);
    }
    node->stamped = at;
    if (count > 0)
        node->config.stamps.make(node->config.stamps.context, packets, count);
}

/* The datagram goes by its engine's own ones. False: not now. */
static bool carry(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, uint8_t *datagram) {
    const rs_group_engine *engine = stream->group->engine;
    uint32_t length = RS_GM_DATA_LEAST + rs_gm_body_length(datagram + RS_GM_HEADER);
    rs_gm_seal(datagram, length);
    if (!engine->carry(rs_gm_engine_own(node, engine), now, stream->group, datagram, length))
        return false;
    stream->seen = sn;
    node->stats.data_sent++;
    node->carried = true;
    return true;
}

bool rs_gm_poll_data(rs_messages *node, rs_time now, rs_messages_out *out) {
    while (node->sent < node->out.head) {
        uint64_t at = node->sent;
        if (node->config.stamps.make && node->stamped <= at)
            stamp(node);
        const rs_gm_record *record = rs_gm_log_record(&node->out, at);
        rs_gm_stream *stream = record->stream == RS_GM_NO_STREAM ? NULL : rs_gm_stream_numbered(node, record->stream);
        const rs_gm_slot *slot = stream && stream->group && stream->own ? rs_gm_slot_of(stream, record->sn) : NULL;
        bool waits = slot && *slot == (at | RS_GM_RECORD);
        if (waits && stream->group->engine->carry && node->turn == 0) {
            if (!carry(node, now, stream, record->sn, rs_gm_log_datagram(&node->out, at)))
                return false;
            node->sent += record->span;
            continue;
        }
        rs_group channel = waits ? channel_of(node, stream->group, record->sn) : RS_NO_GROUP;
        if (channel == RS_NO_GROUP) {
            node->sent += record->span;
            node->turn = 0;
            continue;
        }
        uint8_t *datagram = rs_gm_log_datagram(&node->out, at);
        *out = (rs_messages_out){.channel = RS_CH_GROUP, .peer = RS_NO_PEER, .group = channel, .piece_count = 1};
        out->piece[0].bytes = datagram;
        out->piece[0].length = RS_GM_DATA_LEAST + rs_gm_body_length(datagram + RS_GM_HEADER);
        rs_gm_seal(datagram, out->piece[0].length); /* until now messages could join it */
        stream->seen = record->sn;
        node->stats.data_sent += node->turn == 0;
        node->turn++;
        if (channel_of(node, stream->group, record->sn) == RS_NO_GROUP) {
            node->sent += record->span;
            node->turn = 0;
        }
        return true;
    }
    return false;
}
