#include "core/qsm/wire.h"

#include <string.h>

#include "core/base/bytes.h"

void rs_qsm_put_head(uint8_t *out, uint8_t kind, const rs_qsm_head *head) {
    memset(out, 0, RS_QSM_HEAD);
    rs_gm_put_kind(out, kind);
    rs_le_put(out + 4, head->who, 4);
    rs_le_put(out + 8, head->incarnation, 4);
    rs_le_put(out + 16, head->region, 4);
    rs_le_put(out + 20, head->version, 8);
}

bool rs_qsm_get_head(const uint8_t *bytes, size_t length, rs_qsm_head *out) {
    if (length < RS_QSM_HEAD || rs_le_get(bytes + 28, 4) != 0)
        return false;
    *out = (rs_qsm_head){(rs_peer)rs_le_get(bytes + 4, 4), (uint32_t)rs_le_get(bytes + 8, 4),
                         (uint32_t)rs_le_get(bytes + 16, 4), rs_le_get(bytes + 20, 8)};
    return out->version > 0;
}

void rs_qsm_put_sn(uint8_t *datagram, uint64_t sn) {
    rs_le_put(datagram + RS_QSM_HEAD, sn, 8);
}

uint64_t rs_qsm_get_sn(const uint8_t *datagram) {
    return rs_le_get(datagram + RS_QSM_HEAD, 8);
}

/* ----------------------------------------------------------------------------------------------------- messages */

void rs_qsm_put_inner(uint8_t *out, const rs_qsm_inner *inner) {
    rs_le_put(out, inner->length, 2);
    rs_le_put(out + 2, inner->group, 4);
    rs_le_put(out + 6, inner->sn, 8);
    memcpy(out + RS_QSM_INNER, inner->body, inner->length);
}

bool rs_qsm_get_inner(const uint8_t *bytes, size_t length, size_t *at, rs_qsm_inner *out, bool *well) {
    *well = true;
    if (*at == length)
        return false;
    *well = length - *at >= RS_QSM_INNER + RS_GM_BODY;
    if (!*well)
        return false;
    const uint8_t *from = bytes + *at;
    *out = (rs_qsm_inner){(rs_message_group)rs_le_get(from + 2, 4), rs_le_get(from + 6, 8), from + RS_QSM_INNER,
                          (uint32_t)rs_le_get(from, 2)};
    *well = out->length >= RS_GM_BODY && length - *at - RS_QSM_INNER >= out->length;
    *at += *well ? RS_QSM_INNER + out->length : 0;
    return *well;
}

/* ------------------------------------------------------------------------------------------------------- ranges */

size_t rs_qsm_ranges_length(const rs_qsm_ranges *ranges) {
    return 9 + (size_t)ranges->count * RS_QSM_RANGE;
}

size_t rs_qsm_put_ranges(uint8_t *out, const rs_qsm_ranges *ranges) {
    out[0] = (uint8_t)ranges->count;
    rs_le_put(out + 1, ranges->end, 8);
    for (uint32_t i = 0; i < ranges->count; i++) {
        rs_le_put(out + 9 + (size_t)i * RS_QSM_RANGE, ranges->range[i].first, 8);
        rs_le_put(out + 17 + (size_t)i * RS_QSM_RANGE, ranges->range[i].count, 2);
    }
    return rs_qsm_ranges_length(ranges);
}

size_t rs_qsm_get_ranges(const uint8_t *bytes, size_t length, rs_qsm_ranges *out) {
    uint64_t behind = 0;
    if (length < 9 || bytes[0] > RS_QSM_RANGES || length < 9 + (size_t)bytes[0] * RS_QSM_RANGE)
        return 0;
    out->count = bytes[0];
    out->end = rs_le_get(bytes + 1, 8);
    if (out->end > RS_QSM_SN_MOST)
        return 0;
    for (uint32_t i = 0; i < out->count; i++) {
        out->range[i].first = rs_le_get(bytes + 9 + (size_t)i * RS_QSM_RANGE, 8);
        out->range[i].count = (uint32_t)rs_le_get(bytes + 17 + (size_t)i * RS_QSM_RANGE, 2);
        if (out->range[i].count == 0 || out->range[i].first < behind || out->range[i].first >= out->end ||
            out->range[i].count > out->end - out->range[i].first)
            return 0;
        behind = out->range[i].first + out->range[i].count;
    }
    return rs_qsm_ranges_length(out);
}

/* ------------------------------------------------------------------------------------------------------- tokens */

#define INCOMPLETE 1u
#define COPY 2u

void rs_qsm_put_token(uint8_t *datagram, const rs_qsm_token *token) {
    uint8_t *out = datagram + RS_QSM_HEAD;
    rs_le_put(out, token->leader, 4);
    rs_le_put(out + 4, token->round, 4);
    rs_le_put(out + 8, token->rate, 4);
    out[12] = token->part;
    out[13] = token->parts;
    out[14] = token->phase;
    out[15] = (uint8_t)((token->incomplete ? INCOMPLETE : 0) | (token->copy ? COPY : 0));
    rs_le_put(out + 16, token->count, 4);
}

bool rs_qsm_get_token(const uint8_t *datagram, size_t length, rs_qsm_token *out) {
    rs_qsm_entry entry;
    if (length < RS_QSM_TOKEN_HEAD)
        return false;
    const uint8_t *from = datagram + RS_QSM_HEAD;
    *out = (rs_qsm_token){.from = (rs_peer)rs_le_get(datagram + 4, 4),
                          .leader = (rs_peer)rs_le_get(from, 4),
                          .round = (uint32_t)rs_le_get(from + 4, 4),
                          .rate = (uint32_t)rs_le_get(from + 8, 4),
                          .part = from[12],
                          .parts = from[13],
                          .phase = from[14],
                          .incomplete = (from[15] & INCOMPLETE) != 0,
                          .copy = (from[15] & COPY) != 0,
                          .count = (uint32_t)rs_le_get(from + 16, 4)};
    if (out->part >= out->parts || out->phase > 2 || from[15] > (INCOMPLETE | COPY))
        return false;
    size_t at = RS_QSM_TOKEN_HEAD;
    for (uint32_t i = 0; i < out->count; i++) {
        size_t used = rs_qsm_get_entry(datagram + at, length - at, &entry);
        if (used == 0)
            return false;
        at += used;
    }
    return at == length;
}

size_t rs_qsm_put_entry(uint8_t *out, const rs_qsm_entry *e) {
    rs_le_put(out, e->sender, 4);
    rs_le_put(out + 4, e->incarnation, 4);
    const uint64_t numbers[] = {e->cutoff, e->newest, e->stable, e->cached, e->now_stable, e->now_cached, e->behind};
    memcpy(out + 8, numbers, sizeof numbers);
    rs_le_put(out + 64, e->rate, 4);
    rs_le_put(out + 68, e->missing, 2);
    size_t at = 70;
    at += rs_qsm_put_ranges(out + at, &e->naks);
    return at + rs_qsm_put_ranges(out + at, &e->all);
}

size_t rs_qsm_get_entry(const uint8_t *bytes, size_t length, rs_qsm_entry *out) {
    uint64_t numbers[7];
    if (length < 70)
        return 0;
    memcpy(numbers, bytes + 8, sizeof numbers);
    for (size_t i = 0; i < 7; i++)
        if (numbers[i] > RS_QSM_SN_MOST)
            return 0;
    *out = (rs_qsm_entry){.sender = (rs_peer)rs_le_get(bytes, 4),
                          .incarnation = (uint32_t)rs_le_get(bytes + 4, 4),
                          .cutoff = numbers[0],
                          .newest = numbers[1],
                          .stable = numbers[2],
                          .cached = numbers[3],
                          .now_stable = numbers[4],
                          .now_cached = numbers[5],
                          .behind = numbers[6],
                          .rate = (uint32_t)rs_le_get(bytes + 64, 4),
                          .missing = (uint16_t)rs_le_get(bytes + 68, 2)};
    size_t naks = rs_qsm_get_ranges(bytes + 70, length - 70, &out->naks);
    size_t all = naks ? rs_qsm_get_ranges(bytes + 70 + naks, length - 70 - naks, &out->all) : 0;
    return all ? 70 + naks + all : 0;
}

/* --------------------------------------------------------------------------------------------------------- ACKs */

void rs_qsm_put_ack(uint8_t *datagram, const rs_qsm_ack *ack) {
    uint8_t *out = datagram + RS_QSM_HEAD;
    const uint32_t numbers[] = {ack->round, ack->senders, ack->rate, ack->share, ack->missing, ack->interval_us};
    rs_le_put(out, ack->stable, 8);
    rs_le_put(out + 8, ack->cached, 8);
    rs_le_put(out + 16, ack->behind, 8);
    memcpy(out + 24, numbers, sizeof numbers);
}

bool rs_qsm_get_ack(const uint8_t *datagram, size_t length, rs_qsm_ack *out) {
    uint32_t numbers[6];
    if (length != RS_QSM_ACK_LENGTH)
        return false;
    const uint8_t *from = datagram + RS_QSM_HEAD;
    memcpy(numbers, from + 24, sizeof numbers);
    *out = (rs_qsm_ack){rs_le_get(from, 8),
                        rs_le_get(from + 8, 8),
                        rs_le_get(from + 16, 8),
                        numbers[0],
                        numbers[1],
                        numbers[2],
                        numbers[3],
                        numbers[4],
                        numbers[5]};
    return out->stable <= RS_QSM_SN_MOST && out->cached <= RS_QSM_SN_MOST && out->behind <= RS_QSM_SN_MOST;
}

/* -------------------------------------------------------------------------------------------- lists and positions */

size_t rs_qsm_put_list(uint8_t *datagram, rs_peer sender, uint32_t incarnation, uint32_t partition,
                       const rs_qsm_ranges *ranges) {
    rs_le_put(datagram + RS_QSM_HEAD, sender, 4);
    rs_le_put(datagram + RS_QSM_HEAD + 4, incarnation, 4);
    rs_le_put(datagram + RS_QSM_HEAD + 8, partition, 4);
    return RS_QSM_LIST_HEAD + rs_qsm_put_ranges(datagram + RS_QSM_LIST_HEAD, ranges);
}

bool rs_qsm_get_list(const uint8_t *datagram, size_t length, rs_peer *sender, uint32_t *incarnation,
                     uint32_t *partition, rs_qsm_ranges *out) {
    if (length < RS_QSM_LIST_HEAD)
        return false;
    *sender = (rs_peer)rs_le_get(datagram + RS_QSM_HEAD, 4);
    *incarnation = (uint32_t)rs_le_get(datagram + RS_QSM_HEAD + 4, 4);
    *partition = (uint32_t)rs_le_get(datagram + RS_QSM_HEAD + 8, 4);
    size_t used = rs_qsm_get_ranges(datagram + RS_QSM_LIST_HEAD, length - RS_QSM_LIST_HEAD, out);
    return used > 0 && used == length - RS_QSM_LIST_HEAD;
}

void rs_qsm_put_position(uint8_t *datagram, rs_peer sender, uint32_t incarnation, uint64_t sn) {
    rs_le_put(datagram + RS_QSM_HEAD, sender, 4);
    rs_le_put(datagram + RS_QSM_HEAD + 4, incarnation, 4);
    rs_le_put(datagram + RS_QSM_HEAD + 8, sn, 8);
}

bool rs_qsm_get_position(const uint8_t *datagram, size_t length, rs_peer *sender, uint32_t *incarnation, uint64_t *sn) {
    if (length != RS_QSM_POSITION_LENGTH)
        return false;
    *sender = (rs_peer)rs_le_get(datagram + RS_QSM_HEAD, 4);
    *incarnation = (uint32_t)rs_le_get(datagram + RS_QSM_HEAD + 4, 4);
    *sn = rs_le_get(datagram + RS_QSM_HEAD + 8, 8);
    return *sn <= RS_QSM_SN_MOST;
}
