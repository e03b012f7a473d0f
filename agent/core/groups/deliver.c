#include "core/groups/deliver.h"

#include <string.h>

static uint64_t waiting(const rs_messages *node) {
    return node->event_tail - node->event_head;
}

static rs_gm_event *event_at(const rs_messages *node, uint64_t number) {
    return &node->events[number & (node->event_room - 1)];
}

static rs_gm_event *push(rs_messages *node, const rs_gm_stream *stream, rs_messages_event_kind kind, uint64_t sn) {
    rs_gm_event *event = event_at(node, node->event_tail++);
    *event = (rs_gm_event){.kind = (uint8_t)kind,
                           .group = stream->group->id,
                           .sender = stream->sender,
                           .incarnation = stream->incarnation,
                           .sn = sn};
    return event;
}

void rs_gm_lost(rs_messages *node, const rs_gm_stream *stream, uint64_t sn, uint64_t count, rs_messages_reason reason) {
    node->stats.lost += count;
    if (waiting(node) > 0 && count > 0) {
        rs_gm_event *last = event_at(node, node->event_tail - 1);
        if (last->kind == RS_MESSAGES_LOST && last->reason == reason && last->group == stream->group->id &&
            last->sender == stream->sender && last->incarnation == stream->incarnation && last->count > 0 &&
            last->sn + last->count == sn) {
            last->count += count;
            return;
        }
    }
    if (waiting(node) >= (uint64_t)node->config.deliveries + RS_GM_LOST_RESERVE) {
        node->losses_unreported++;
        return;
    }
    rs_gm_event *event = push(node, stream, RS_MESSAGES_LOST, sn);
    event->count = count;
    event->reason = (uint8_t)reason;
}

/* An event for a message; NULL, and the loss told, if too many wait. */
static rs_gm_event *deliver(rs_messages *node, const rs_gm_stream *stream, uint64_t sn, const rs_gm_record *record) {
    if (waiting(node) >= node->config.deliveries) {
        rs_gm_lost(node, stream, sn, 1, RS_LOST_SLOW);
        return NULL;
    }
    rs_gm_event *event = push(node, stream, RS_MESSAGES_DELIVER, sn);
    event->via = (uint8_t)record->via;
    event->late = (rs_time)record->late_us * 1000;
    return event;
}

void rs_gm_assembly_free(rs_messages *node, rs_gm_assembly *assembly) {
    rs_list_remove(&assembly->in_stream);
    rs_list_remove(&assembly->by_age);
    node->assembly_bytes -= assembly->total;
    rs_memory_give(&node->allocator, assembly->bytes);
    rs_memory_give(&node->allocator, assembly);
}

static void drop_assembly(rs_messages *node, rs_gm_assembly *assembly) {
    rs_gm_stream *stream = assembly->stream;
    stream->dropped = assembly->first;
    rs_gm_lost(node, stream, assembly->first, assembly->got, RS_LOST_ASSEMBLY);
    rs_gm_assembly_free(node, assembly);
}

static rs_gm_assembly *find_assembly(const rs_gm_stream *stream, uint64_t sn) {
    for (const rs_list *at = stream->assemblies.next; at != &stream->assemblies; at = at->next) {
        rs_gm_assembly *assembly = RS_HOLDER(rs_gm_assembly, in_stream, at);
        if (sn >= assembly->first && sn - assembly->first < assembly->count)
            return assembly;
    }
    return NULL;
}

void rs_gm_assembly_broken(rs_messages *node, rs_gm_stream *stream, uint64_t sn) {
    rs_gm_assembly *assembly = find_assembly(stream, sn);
    if (assembly)
        drop_assembly(node, assembly);
}

/* Room for one more message of that size: the oldest ones give way. */
static rs_gm_assembly *new_assembly(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t first,
                                    const rs_gm_part *part) {
    if (part->total > node->config.message_bytes)
        return NULL;
    while (node->assembly_bytes + part->total > node->config.assembly_bytes && !rs_list_empty(&node->assemblies))
        drop_assembly(node, RS_HOLDER(rs_gm_assembly, by_age, node->assemblies.next));
    rs_gm_assembly *assembly = rs_memory_take(&node->allocator, sizeof *assembly);
    uint8_t *bytes = rs_memory_take(&node->allocator, part->total);
    if (!assembly || !bytes) {
        rs_memory_give(&node->allocator, assembly);
        rs_memory_give(&node->allocator, bytes);
        return NULL;
    }
    *assembly = (rs_gm_assembly){.stream = stream,
                                 .first = first,
                                 .total = part->total,
                                 .count = part->count,
                                 .began = now,
                                 .started = now,
                                 .bytes = bytes};
    rs_list_init(&assembly->in_stream);
    rs_list_init(&assembly->by_age);
    rs_list_append(&stream->assemblies, &assembly->in_stream);
    rs_list_append(&node->assemblies, &assembly->by_age);
    node->assembly_bytes += part->total;
    return assembly;
}

static void take_part(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, const rs_gm_record *record,
                      const uint8_t *payload, uint32_t length) {
    rs_gm_part part = rs_gm_get_part(payload);
    uint64_t first = sn - part.index;
    if (part.index < sn && first < stream->base)
        return; /* it began before this node joined */
    if (part.index >= sn || first == stream->dropped) {
        rs_gm_lost(node, stream, sn, 1, RS_LOST_ASSEMBLY);
        return;
    }
    rs_gm_assembly *assembly = find_assembly(stream, sn);
    if (assembly && (assembly->first != first || assembly->total != part.total || assembly->count != part.count)) {
        node->stats.bad++;
        rs_gm_lost(node, stream, sn, 1, RS_LOST_ASSEMBLY);
        return;
    }
    if (!assembly && !(assembly = new_assembly(node, now, stream, first, &part))) {
        stream->dropped = first;
        rs_gm_lost(node, stream, sn, 1, RS_LOST_ASSEMBLY);
        return;
    }
    memcpy(assembly->bytes + part.offset, payload + RS_GM_PART, length - RS_GM_PART);
    assembly->have += length - RS_GM_PART;
    if (++assembly->got < assembly->count)
        return;
    rs_gm_event *event = assembly->have == assembly->total ? deliver(node, stream, first, record) : NULL;
    if (!event) {
        rs_gm_assembly_free(node, assembly);
        return;
    }
    event->assembly = assembly;
    event->length = assembly->total;
    rs_list_remove(&assembly->in_stream);
    rs_list_remove(&assembly->by_age);
}

static void take_pack(rs_messages *node, rs_gm_stream *stream, uint64_t sn, uint64_t at, const rs_gm_record *record,
                      uint32_t begin, uint32_t length) {
    const uint8_t *payload = rs_gm_log_datagram(&node->in, at) + begin;
    for (uint32_t place = 0, part = 0; place < length; part++) {
        uint32_t bytes = rs_gm_get_pack_length(payload + place);
        rs_gm_event *event = deliver(node, stream, sn, record);
        if (!event)
            return;
        event->at = at;
        event->part = part;
        event->offset = begin + place + RS_GM_PACK_LENGTH;
        event->length = bytes;
        place += RS_GM_PACK_LENGTH + bytes;
    }
}

/* A packet's turn has come. */
static void take(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, uint64_t at) {
    const rs_gm_record *record = rs_gm_log_record(&node->in, at);
    const uint8_t *body = rs_gm_log_datagram(&node->in, at) + RS_GM_HEADER;
    rs_gm_form form = rs_gm_body_form(body);
    const uint32_t stamp = rs_gm_body_stamp(body), begin = RS_GM_DATA_LEAST + stamp;
    const uint32_t length = rs_gm_body_length(body) - stamp;
    stream->delivered = true;
    if (form == RS_GM_PARTS)
        take_part(node, now, stream, sn, record, body + RS_GM_BODY + stamp, length);
    else if (form == RS_GM_PACK)
        take_pack(node, stream, sn, at, record, begin, length);
    else {
        rs_gm_event *event = deliver(node, stream, sn, record);
        if (!event)
            return;
        event->at = at;
        event->offset = begin;
        event->length = length;
    }
}

void rs_gm_deliver_run(rs_messages *node, rs_time now, rs_gm_stream *stream) {
    for (; stream->next <= stream->high; stream->next++) {
        const rs_gm_slot *slot = rs_gm_slot_of(stream, stream->next);
        if (!slot)
            continue;
        if (rs_gm_slot_is(*slot, RS_GM_MISSING))
            return;
        if (!rs_gm_slot_is(*slot, RS_GM_RECORD))
            continue;
        if (rs_gm_log_has(&node->in, rs_gm_slot_at(*slot)))
            take(node, now, stream, stream->next, rs_gm_slot_at(*slot));
        else {
            rs_gm_lost(node, stream, stream->next, 1, RS_LOST_WINDOW);
            rs_gm_assembly_broken(node, stream, stream->next);
        }
    }
}

void rs_gm_deliver(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn) {
    /* Before `next`: it was told as lost for a claim that it was, and is the newest that came (rs_gm_stream.seen). */
    if (stream->group->order == RS_ORDER_FIFO && sn >= stream->next)
        rs_gm_deliver_run(node, now, stream);
    else
        take(node, now, stream, sn, rs_gm_slot_at(*rs_gm_slot_of(stream, sn)));
}

void rs_gm_deliver_timeout(rs_messages *node, rs_time now) {
    while (rs_gm_deliver_deadline(node) <= now) {
        rs_gm_assembly *assembly = RS_HOLDER(rs_gm_assembly, by_age, node->assemblies.next);
        rs_time give_up = assembly->stream->group->policy.give_up;
        if (give_up == RS_NEVER || now - assembly->began >= give_up) {
            drop_assembly(node, assembly);
            continue;
        }
        assembly->started = now; /* its engine may bring the rest yet, of which nothing here may know */
        rs_list_append(&node->assemblies, &assembly->by_age);
    }
}

rs_time rs_gm_deliver_deadline(const rs_messages *node) {
    if (rs_list_empty(&node->assemblies))
        return RS_NEVER;
    return RS_HOLDER(rs_gm_assembly, by_age, node->assemblies.next)->started + node->config.assembly_bound;
}

void rs_gm_events_forget(rs_messages *node, rs_message_group group) {
    uint64_t kept = node->event_head;
    for (uint64_t i = node->event_head; i < node->event_tail; i++) {
        rs_gm_event *event = event_at(node, i);
        if (event->group != group)
            *event_at(node, kept++) = *event;
        else if (event->assembly)
            rs_gm_assembly_free(node, event->assembly);
    }
    node->event_tail = kept;
}

static void fill(rs_messages *node, const rs_gm_event *event, rs_messages_event *out) {
    out->kind = (rs_messages_event_kind)event->kind;
    out->group = event->group;
    out->sender = event->sender;
    out->incarnation = event->incarnation;
    out->sn = event->sn;
    out->part = event->part;
    out->length = event->length;
    out->via = (rs_messages_via)event->via;
    out->late = event->late;
    out->count = event->count;
    out->reason = (rs_messages_reason)event->reason;
    out->bytes = NULL;
    if (event->kind != RS_MESSAGES_DELIVER)
        return;
    if (event->assembly) {
        out->bytes = event->assembly->bytes;
        rs_list_append(&node->handed_assemblies, &event->assembly->by_age);
    } else if (rs_gm_log_has(&node->in, event->at)) {
        out->bytes = rs_gm_log_datagram(&node->in, event->at) + event->offset;
    } else { /* overwritten while it waited */
        out->kind = RS_MESSAGES_LOST;
        out->reason = RS_LOST_SLOW;
        out->count = event->part == 0; /* small messages that shared a packet: told once */
        out->length = 0;
        node->stats.lost += out->count;
        return;
    }
    node->stats.delivered++;
    node->stats.delivered_bytes += event->length;
}

rs_message_group rs_messages_event_ahead(const rs_messages *node, uint32_t ahead) {
    return waiting(node) > ahead ? event_at(node, node->event_head + ahead)->group : 0;
}

bool rs_messages_poll_event(rs_messages *node, rs_messages_event *out) {
    while (waiting(node) > 0) {
        const rs_gm_event *event = event_at(node, node->event_head++);
        fill(node, event, out);
        if (out->kind == RS_MESSAGES_LOST && out->count == 0 && out->reason == RS_LOST_SLOW)
            continue;
        return true;
    }
    node->event_head = node->event_tail = 0; /* what is in use stays in the caches */
    for (uint32_t i = 0; i < node->engine_count; i++)
        if (node->engines[i]->completed && node->engines[i]->completed(node->engine_own[i], out))
            return true;
    return false;
}
