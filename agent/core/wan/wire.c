#include "core/wan/wire.h"

#include "core/base/bytes.h"

#define LARGEST (UINT64_MAX / 4) /* of numbers that are added to (a bound) */

static size_t map_bytes(uint16_t bits) {
    return ((size_t)bits + 7) / 8;
}

size_t rs_wan_encode_status(const rs_wan_status *s, uint8_t out[RS_HEADER_MAX]) {
    uint8_t *to = rs_le_put(out, RS_WAN_STATUS_MAGIC, 2);
    to = rs_le_put(to, RS_WIRE_VERSION, 1);
    to = rs_le_put(to, s->nack_count, 1);
    to = rs_le_put(to, RS_PROTOCOL_WAN, 1);
    to = rs_le_put(to, 0, 3);
    to = rs_le_put(to, s->nonce, 8);
    to = rs_le_put(to, s->session, 4);
    to = rs_le_put(to, s->receivers, 4);
    const uint64_t numbers[] = {s->next, s->cum, s->received, s->repairs, s->marked, s->dropped, s->stamp_us, s->at};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        to = rs_le_put(to, numbers[i], 8);
    to = rs_le_put(to, s->waited_us, 4);
    to = rs_le_put(to, 0, 4);
    for (uint32_t i = 0; i < s->nack_count; i++) {
        const rs_wan_nack *n = &s->nacks[i];
        to = rs_le_put(to, n->base, 8);
        to = rs_le_put(to, n->bits, 2);
        for (size_t b = 0; b < map_bytes(n->bits); b++)
            *to++ = n->map[b];
    }
    return (size_t)(to - out);
}

static bool decode_nack(const uint8_t **from, size_t *left, rs_wan_nack *n) {
    if (*left < RS_WAN_NACK_HEADER)
        return false;
    n->base = rs_le_take(from, 8);
    n->bits = (uint16_t)rs_le_take(from, 2);
    *left -= RS_WAN_NACK_HEADER;
    size_t bytes = map_bytes(n->bits);
    if (n->base > LARGEST || n->bits == 0 || n->bits > RS_WAN_SECTION - n->base % RS_WAN_SECTION || *left < bytes)
        return false;
    for (size_t b = 0; b < bytes; b++)
        n->map[b] = (uint8_t)rs_le_take(from, 1);
    *left -= bytes;
    uint32_t last = n->bits - 1u; /* the ends are missing, and what is behind the last bit is zero */
    return (n->map[0] & 1) && n->map[last / 8] >> last % 8 == 1;
}

bool rs_wan_decode_status(const uint8_t *bytes, size_t length, rs_wan_status *s) {
    const uint8_t *from = bytes;
    if (length < RS_WAN_STATUS_HEADER || rs_le_take(&from, 2) != RS_WAN_STATUS_MAGIC ||
        rs_le_take(&from, 1) != RS_WIRE_VERSION)
        return false;
    s->nack_count = (uint32_t)rs_le_take(&from, 1);
    if (s->nack_count > RS_WAN_NACKS || rs_le_take(&from, 4) != RS_PROTOCOL_WAN)
        return false;
    s->nonce = rs_le_take(&from, 8);
    s->session = (uint32_t)rs_le_take(&from, 4);
    s->receivers = (uint32_t)rs_le_take(&from, 4);
    uint64_t *numbers[] = {&s->next, &s->cum, &s->received, &s->repairs, &s->marked, &s->dropped, &s->stamp_us, &s->at};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if ((*numbers[i] = rs_le_take(&from, 8)) > LARGEST)
            return false;
    s->waited_us = (uint32_t)rs_le_take(&from, 4);
    if (rs_le_take(&from, 4) != 0 || s->receivers == 0 || s->stamp_us >> RS_WAN_STAMP_BITS)
        return false;
    size_t left = length - RS_WAN_STATUS_HEADER;
    for (uint32_t i = 0; i < s->nack_count; i++)
        if (!decode_nack(&from, &left, &s->nacks[i]))
            return false;
    return left == 0;
}

/* Three bits of mantissa, five of exponent, in units of 16 us: to 16 s and more. */
static uint64_t pack_time(rs_time time) {
    uint64_t units = time > 0 ? (uint64_t)(time + 15999) / 16000 : 0, exponent = 0;
    while (units >= 16 && exponent < 31) {
        units = (units + 1) / 2;
        exponent++;
    }
    if (exponent == 0)
        return units;
    units = units < 15 ? units : 15;
    return (exponent << 3 | (units - 8)) + 8;
}

static rs_time unpack_time(uint64_t packed) {
    if (packed < 16)
        return (rs_time)packed * 16000;
    return (rs_time)((8 + (packed & 7)) << ((packed >> 3) - 1)) * 16000;
}

uint64_t rs_wan_pack(const rs_wan_word *word) {
    uint64_t group = 0, time = pack_time(word->grtt);
    while (group < 31 && UINT64_C(1) << group < word->group)
        group++;
    return (word->stamp_us & ((UINT64_C(1) << RS_WAN_STAMP_BITS) - 1)) | (time < 255 ? time : 255) << 40 | group << 48 |
           (uint64_t)word->repair << 56;
}

rs_wan_word rs_wan_unpack(uint64_t aux) {
    return (rs_wan_word){.stamp_us = aux & ((UINT64_C(1) << RS_WAN_STAMP_BITS) - 1),
                         .grtt = unpack_time(aux >> 40 & 255),
                         .group = (uint32_t)1 << (aux >> 48 & 31),
                         .repair = aux >> 56 & 1};
}
