/* Packets that others ask for: members of its group alone are answered, at the address that they asked from, and in all
 * with no more than twice what was published and heard here since they are known. A packet is not given to the same
 * asker twice within the time that it waits before it asks again: requests that piled up somewhere, or were doubled on
 * the way, are answered once. */
#include "core/groups/state.h"

static bool answered_just_now(rs_messages *node, rs_time now, const rs_gm_retransmit *again) {
    uint64_t mixed = rs_gm_mix(again->at << 1 | again->own) ^ rs_gm_mix(again->peer);
    rs_gm_answered *last = &node->answered[mixed & (RS_GM_ANSWERED - 1)];
    if (last->used && last->at == again->at && last->own == again->own && last->peer == again->peer &&
        now - last->when < RS_GM_ASK_LEAST)
        return true;
    *last = (rs_gm_answered){again->at, now, again->peer, again->own, true};
    return false;
}

/* Members alone may have a group's data. */
static void send_again(rs_messages *node, rs_time now, const rs_gm_id *id, rs_peer peer) {
    const rs_gm_stream *stream = rs_gm_stream_find(node, id->sender, id->group);
    if (!stream || stream->incarnation != id->incarnation)
        return;
    if (!rs_gm_is_member(stream->group, peer)) {
        node->stats.naks_refused++;
        return;
    }
    const rs_gm_slot *slot = rs_gm_slot_of(stream, id->sn);
    bool unsent = slot && stream->own && rs_gm_slot_at(*slot) >= node->sent; /* it comes, and has no check yet */
    if (!slot || unsent || !rs_gm_slot_kept(node, stream, *slot) ||
        node->retransmit_tail - node->retransmit_head == RS_GM_RETRANSMITS)
        return;
    rs_gm_retransmit again = {.at = rs_gm_slot_at(*slot), .own = stream->own, .peer = peer};
    if (answered_just_now(node, now, &again)) {
        node->stats.naks_repeated++;
        return;
    }
    const uint8_t *body = rs_gm_log_datagram(rs_gm_log_of(node, stream), again.at) + RS_GM_HEADER;
    again.length = RS_GM_BODY + rs_gm_body_length(body);
    if (!rs_gm_peer_gets(node, peer, RS_GM_HEADER + again.length)) {
        node->stats.naks_over++;
        return;
    }
    node->asked_here += stream->own;
    rs_gm_put_header(again.header, RS_GM_KIND_AGAIN, id);
    node->retransmits[node->retransmit_tail++ & (RS_GM_RETRANSMITS - 1)] = again;
}

bool rs_gm_receive_nak(rs_messages *node, rs_time now, rs_peer source, const uint8_t *bytes, size_t length) {
    rs_peer from;
    uint32_t count = rs_gm_get_nak(bytes, length, &from);
    if (count == 0)
        return false;
    if (!rs_gm_is_from(node, source, from) || !rs_gm_intact(node, bytes, length))
        return true;
    node->stats.naks_received++;
    for (uint32_t i = 0; i < count; i++) {
        rs_gm_nak_item item;
        rs_gm_get_nak_item(bytes, i, &item);
        send_again(node, now, &item.id, from);
        for (; item.mask; item.mask &= item.mask - 1) {
            rs_gm_id id = item.id;
            id.sn += 1 + (uint64_t)__builtin_ctz(item.mask);
            send_again(node, now, &id, from);
        }
    }
    return true;
}

bool rs_gm_poll_retransmit(rs_messages *node, rs_messages_out *out) {
    while (node->retransmit_head != node->retransmit_tail) {
        rs_gm_retransmit *again = &node->retransmits[node->retransmit_head++ & (RS_GM_RETRANSMITS - 1)];
        const rs_gm_log *log = again->own ? &node->out : &node->in;
        if (!rs_gm_log_has(log, again->at))
            continue;
        *out = (rs_messages_out){
            .channel = RS_CH_PEER_DATAGRAM, .peer = again->peer, .group = RS_NO_GROUP, .piece_count = 2};
        out->piece[0].bytes = again->header;
        out->piece[0].length = RS_GM_HEADER;
        out->piece[1].bytes = rs_gm_log_datagram(log, again->at) + RS_GM_HEADER;
        out->piece[1].length = again->length;
        node->stats.retransmits_sent++;
        return true;
    }
    return false;
}
