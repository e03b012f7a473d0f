#include "core/rdcm/wire.h"

#include "core/base/bytes.h"
#include "core/base/wire.h"

size_t rs_ack_encode(const rs_ack *ack, uint8_t *out) {
    uint8_t *to = rs_le_put(out, RS_ACK_MAGIC, 2);
    to = rs_le_put(to, RS_WIRE_VERSION, 1);
    to = rs_le_put(to, ack->flags, 1);
    to = rs_le_put(to, ack->words, 2);
    uint64_t settled = ack->settled > ack->cum ? ack->settled - ack->cum : 0;
    to = rs_le_put(to, settled < RS_ACK_SETTLED ? settled : RS_ACK_SETTLED, 2);
    to = rs_le_put(to, ack->nonce, 8);
    to = rs_le_put(to, ack->version, 8);
    to = rs_le_put(to, ack->cum, 8);
    to = rs_le_put(to, ack->expected, 8);
    to = rs_le_put(to, ack->base, 8);
    to = rs_le_put(to, 1, 4); /* receivers it speaks for: room for aggregated ones */
    to = rs_le_put(to, RS_PROTOCOL_RDCM, 1);
    to = rs_le_put(to, 0, 3);
    for (uint32_t i = 0; i < ack->words; i++)
        to = rs_le_put(to, ack->map[i], 8);
    return (size_t)(to - out);
}

/* Bounds that spare those behind it every overflow. */
static bool is_sane(const rs_ack *ack) {
    const unsigned kinds = RS_ACK_TO_PREDECESSOR | RS_ACK_TO_PARENT | RS_ACK_WANTS_READY | RS_ACK_READY | RS_ACK_LEFT;
    const unsigned known = kinds | RS_ACK_BY_TREE | RS_ACK_STARVED | RS_ACK_GOES;
    return (ack->flags & kinds) && (ack->flags & ~known) == 0 && ack->cum < INT64_MAX / 2 &&
           ack->base < INT64_MAX / 2 && ack->base % 64 == 0;
}

bool rs_ack_decode(const uint8_t *bytes, size_t length, rs_ack *ack) {
    if (length < RS_ACK_HEADER || rs_le_get(bytes, 2) != RS_ACK_MAGIC || bytes[2] != RS_WIRE_VERSION)
        return false;
    ack->flags = bytes[3];
    ack->words = (uint32_t)rs_le_get(bytes + 4, 2);
    if (ack->words > RS_ACK_WORDS || length != RS_ACK_HEADER + 8 * (size_t)ack->words)
        return false;
    ack->nonce = rs_le_get(bytes + 8, 8);
    ack->version = rs_le_get(bytes + 16, 8);
    ack->cum = rs_le_get(bytes + 24, 8);
    ack->settled = ack->cum + rs_le_get(bytes + 6, 2);
    ack->expected = rs_le_get(bytes + 32, 8);
    ack->base = rs_le_get(bytes + 40, 8);
    if (rs_le_get(bytes + 48, 4) != 1 || rs_le_get(bytes + 52, 4) != RS_PROTOCOL_RDCM)
        return false;
    for (uint32_t i = 0; i < ack->words; i++)
        ack->map[i] = rs_le_get(bytes + RS_ACK_HEADER + 8 * i, 8);
    return is_sane(ack);
}
