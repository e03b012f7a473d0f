#include "core/groups/arrive.h"

#include <string.h>

#include "core/groups/deliver.h"
#include "core/groups/early.h"
#include "core/groups/members.h"
#include "core/groups/missing.h"
#include "core/groups/naks.h"
#include "core/groups/positions.h"
#include "core/groups/streams.h"

/* The packet goes into the log, where repairs find it. */
static uint64_t keep(rs_messages *node, const rs_gm_stream *stream, uint64_t sn, const uint8_t *datagram,
                     uint32_t length) {
    uint64_t at = rs_gm_log_append(&node->in, length);
    rs_gm_record *record = rs_gm_log_record(&node->in, at);
    record->stream = stream->number;
    record->sn = sn;
    record->late_us = 0;
    memcpy(rs_gm_log_datagram(&node->in, at), datagram, length);
    return at;
}

static void count_recovery(rs_messages *node, rs_messages_via via) {
    if (via == RS_VIA_REPAIR)
        node->stats.recovered_repair++;
    else if (via == RS_VIA_RETRANSMIT)
        node->stats.recovered_retransmit++;
    else
        node->stats.recovered_data++;
}

void rs_gm_arrive(rs_messages *node, rs_time now, rs_gm_stream *stream, const rs_gm_id *id, const uint8_t *datagram,
                  uint32_t length, rs_messages_via via) {
    rs_gm_stream_reach(node, now, stream, id->sn, true);
    if (node->stats.missing > 0 && stream->group->policy.naks)
        rs_gm_nak_pace(node, now, stream->group);
    stream->seen = id->sn > stream->seen ? id->sn : stream->seen;
    if (!stream->settled_base) {
        rs_gm_views views = rs_gm_body_views(datagram + RS_GM_HEADER);
        rs_gm_stream_settle_base(node, now, stream, id->sn, &views);
    }
    rs_gm_slot *slot = rs_gm_slot_of(stream, id->sn);
    uint64_t at = keep(node, stream, id->sn, datagram, length);
    rs_gm_record *record = rs_gm_log_record(&node->in, at);
    record->via = via;
    if (rs_gm_slot_is(*slot, RS_GM_MISSING)) {
        rs_gm_missing *missing = rs_gm_missing_at(node, *slot);
        rs_time late_us = (now - missing->discovered) / 1000;
        record->late_us = late_us < UINT32_MAX ? (uint32_t)late_us : UINT32_MAX;
        count_recovery(node, via);
        rs_gm_nak_answered(node, now, missing, via);
        const rs_group_engine *engine = stream->group->engine;
        if (engine->found)
            engine->found(rs_gm_engine_own(node, engine), missing, datagram + RS_GM_HEADER, length - RS_GM_HEADER);
        rs_gm_missing_free(node, missing);
    }
    *slot = at | RS_GM_RECORD;
    rs_gm_deliver(node, now, stream, id->sn);
}

/* A packet far from all others of its stream is believed once the next one follows it (as in RFC 3550, A.1): then the
 * stream goes on there. */
static bool confirmed(rs_messages *node, rs_gm_stream *stream, uint64_t sn) {
    bool follows = stream->outside > 0 && sn == stream->outside + 1;
    node->stats.claims += !follows;
    if (!follows)
        stream->outside = sn;
    return follows;
}

static bool is_late(const rs_messages *node) {
    return node->came == RS_CAME_LATE;
}

/* It is not taken; where packets are sealed its sender is asked what is true. */
static bool refused(rs_messages *node, rs_time now, const rs_gm_group *group, rs_gm_stream *stream, rs_peer sender) {
    node->stats.refused++;
    if (node->config.sealed)
        rs_gm_doubt(node, now, group, sender, stream);
    return false;
}

/* Whether the packet is wanted: it is missing, or newer than all that is known; or what made it look old were but
 * claims that it shows to be wrong, unless it may be one that was delivered, and comes once more. */
static bool wanted(rs_messages *node, rs_time now, rs_gm_stream *stream, const rs_gm_id *id, const rs_gm_body *body) {
    uint64_t sn = id->sn;
    if (sn > stream->high && sn - stream->high <= node->config.window_packets)
        return true;
    if (sn > stream->high) {
        if (is_late(node))
            return refused(node, now, stream->group, stream, id->sender);
        if (!confirmed(node, stream, sn))
            return false;
        rs_gm_stream_jump(node, now, stream, stream->outside);
        return true;
    }
    const rs_gm_slot *slot = rs_gm_slot_of(stream, sn);
    if (slot && rs_gm_slot_is(*slot, RS_GM_MISSING))
        return true;
    if (slot && rs_gm_slot_is(*slot, RS_GM_RECORD)) {
        node->stats.duplicates++;
        return false;
    }
    bool owed = (int32_t)(body->views.view[0].version - (uint32_t)stream->group->joined) >= 0;
    if (stream->seen == 0 && !slot && owed && !is_late(node)) {
        uint64_t claimed = stream->high;
        rs_gm_stream_restart(node, stream, sn);
        if (claimed - sn <= node->config.window_packets)
            rs_gm_stream_reach(node, now, stream, claimed, false);
        return true;
    }
    if (stream->seen > 0 && sn > stream->seen && (owed || !stream->placed)) {
        if (!slot)
            rs_gm_stream_restart(node, stream, stream->seen + 1);
        return true;
    }
    /* Far behind where a packet once led, perhaps a forged one: nothing after `floor` was delivered before that. */
    bool far_behind =
        sn < stream->base && stream->base - sn > node->config.window_packets && sn > stream->floor && owed;
    if (far_behind && !node->config.sealed && confirmed(node, stream, sn)) {
        rs_gm_stream_restart(node, stream, stream->outside);
        stream->seen = stream->outside - 1;
        return true;
    }
    return refused(node, now, stream->group, stream, id->sender);
}

/* What came makes more possible, perhaps. */
static void arrived(rs_messages *node, rs_time now, const rs_gm_group *group) {
    if (group->engine->arrived)
        group->engine->arrived(rs_gm_engine_own(node, group->engine), now);
}

/* A packet that was asked for comes from its sender, or from a member: nothing else is news. */
static bool receive_again(rs_messages *node, rs_time now, rs_peer from, rs_gm_stream *stream, const rs_gm_id *id,
                          const uint8_t *bytes, size_t length) {
    const rs_gm_slot *slot = stream && stream->incarnation == id->incarnation ? rs_gm_slot_of(stream, id->sn) : NULL;
    if (from != RS_NO_PEER && from != id->sender && stream && !rs_gm_is_member(stream->group, from)) {
        node->stats.strangers++;
    } else if (!slot || !rs_gm_slot_is(*slot, RS_GM_MISSING)) {
        node->stats.duplicates += slot && rs_gm_slot_is(*slot, RS_GM_RECORD);
        node->stats.refused += !slot || !rs_gm_slot_is(*slot, RS_GM_RECORD);
    } else if (rs_gm_is_genuine(node, id, bytes + RS_GM_HEADER)) {
        rs_gm_arrive(node, now, stream, id, bytes, (uint32_t)length, RS_VIA_RETRANSMIT);
        arrived(node, now, stream->group);
    }
    return true;
}

/* What a sender that has left had on its way is taken still. */
static bool is_believed(const rs_messages *node, rs_time now, const rs_gm_group *group, const rs_gm_stream *stream,
                        const rs_gm_id *id) {
    if (!stream || stream->incarnation != id->incarnation || stream->unheard)
        return rs_gm_believes(node, group, id->sender, id->incarnation);
    if (stream->peer)
        return stream->peer->incarnation == id->incarnation;
    return group->open || now - stream->departed_at < node->config.give_up;
}

static bool receive(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length,
                    rs_messages_via via, bool carried) {
    rs_gm_id id;
    rs_gm_body body;
    bool fresh = false;
    if (length > node->config.packet_bytes || !rs_gm_get_data(bytes, length, &id, &body))
        return false;
    rs_gm_stream *stream = rs_gm_stream_find(node, id.sender, id.group);
    rs_gm_group *group = stream ? stream->group : rs_gm_group_find(node, id.group);
    if (!group || !group->member) {
        node->stats.foreign += !rs_gm_early_keep(node, now, id.sender, bytes, length, via, carried, false);
        return true;
    }
    if (id.sender == node->config.self || !rs_gm_intact(node, bytes, length))
        return true;
    if (rs_gm_get_kind(bytes, length) == RS_GM_KIND_AGAIN)
        return receive_again(node, now, from, stream, &id, bytes, length);
    if (!rs_gm_is_from(node, from, id.sender))
        return true;
    if (!is_believed(node, now, group, stream, &id)) {
        if (!is_late(node))
            node->stats.strangers += !rs_gm_early_keep(node, now, id.sender, bytes, length, via, carried, true);
        return true;
    }
    if (!rs_gm_is_genuine(node, &id, bytes + RS_GM_HEADER))
        return true;
    node->stats.data_received++;
    const bool strange = !stream || stream->incarnation != id.incarnation || stream->unheard;
    if (strange && (is_late(node) || rs_gm_is_before(node, group, &body.views))) {
        (void)refused(node, now, group, NULL, id.sender);
        return true;
    }
    if (strange)
        stream = rs_gm_stream_get(node, group, &id, true, &fresh);
    if (!stream) {
        node->stats.refused++;
        return true;
    }
    stream->heard_at = now;
    if (fresh)
        rs_gm_stream_start(stream, id.sn);
    else if (stream->rejoined && !is_late(node))
        rs_gm_stream_go_on(node, now, stream, id.sn, &body.views);
    if (!wanted(node, now, stream, &id, &body))
        return true;
    rs_gm_arrive(node, now, stream, &id, bytes, (uint32_t)length, via);
    if (stream->returned)
        rs_gm_stream_hurry(node, now, stream, id.sn, &body.views);
    if (group->engine->received)
        group->engine->received(rs_gm_engine_own(node, group->engine), now, group, bytes, (uint32_t)length);
    arrived(node, now, group);
    return true;
}

bool rs_gm_receive_data(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    return receive(node, now, from, bytes, length, RS_VIA_DATA, false);
}

bool rs_gm_receive_carried(rs_messages *node, rs_time now, rs_peer sender, const uint8_t *bytes, size_t length,
                           rs_messages_via via) {
    return rs_gm_get_kind(bytes, length) == RS_GM_KIND_DATA && receive(node, now, sender, bytes, length, via, true);
}

static void take_early(rs_messages *node, rs_time now, const rs_gm_early *packet) {
    if (packet->carried)
        rs_gm_receive_carried(node, now, packet->sender, packet->bytes, packet->length, packet->via);
    else
        rs_gm_receive_data(node, now, packet->sender, packet->bytes, packet->length);
}

void rs_gm_early_look(rs_messages *node, rs_time now, const rs_gm_group *group) {
    rs_gm_early_give(node, now, group, take_early);
}
