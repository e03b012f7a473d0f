/* A data packet's way through the node, whether it came by multicast, out of a repair or because it was asked for. */
#include <string.h>

#include "core/messages/state.h"

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
        rs_gm_ask_came(node, now, missing, via);
        rs_gm_kept_found(node, missing, datagram + RS_GM_HEADER, length - RS_GM_HEADER);
        rs_gm_missing_found(node, missing);
    }
    *slot = at | RS_GM_RECORD;
    rs_gm_deliver(node, now, stream, id->sn);
}

/* Whether the packet is wanted: it is in none of the states but missing, or newer than all that is known. */
static bool wanted(rs_messages *node, const rs_gm_stream *stream, uint64_t sn) {
    if (sn > stream->high)
        return true;
    const rs_gm_slot *slot = rs_gm_slot_of(stream, sn);
    if (slot && rs_gm_slot_is(*slot, RS_GM_MISSING))
        return true;
    if (slot && rs_gm_slot_is(*slot, RS_GM_RECORD))
        node->stats.duplicates++;
    else
        node->stats.refused++;
    return false;
}

bool rs_gm_receive_data(rs_messages *node, rs_time now, const uint8_t *bytes, size_t length) {
    rs_gm_id id;
    rs_gm_body body;
    bool fresh = false;
    if (length > node->config.packet_bytes || !rs_gm_get_data(bytes, length, &id, &body))
        return false;
    rs_gm_stream *stream = rs_gm_stream_find(node, id.sender, id.group);
    rs_gm_group *group = stream ? stream->group : rs_gm_group_find(node, id.group);
    if (!group || !group->member) {
        node->stats.foreign++;
        return true;
    }
    if (id.sender == node->config.self)
        return true;
    bool multicast = rs_gm_get_kind(bytes, length) == RS_GM_KIND_DATA;
    node->stats.data_received += multicast;
    if (!stream || stream->incarnation != id.incarnation)
        stream = rs_gm_stream_get(node, group, &id, &fresh);
    if (!stream) {
        node->stats.refused++;
        return true;
    }
    if (fresh)
        rs_gm_stream_start(stream, id.sn);
    if (!wanted(node, stream, id.sn))
        return true;
    rs_gm_arrive(node, now, stream, &id, bytes, (uint32_t)length, multicast ? RS_VIA_DATA : RS_VIA_RETRANSMIT);
    const rs_gm_engine *engine = rs_gm_engine_of(node, group->protocol);
    if (multicast && engine->received)
        engine->received(node, now, group, bytes, (uint32_t)length);
    rs_gm_kept_work(node, now);
    return true;
}
