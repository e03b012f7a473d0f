#include "core/rdcm/wire.h"

#include "core/base/wire.h"
#include "core/feedback/report.h"

static uint8_t *put(uint8_t *to, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        *to++ = (uint8_t)(value >> (8 * i));
    return to;
}

static uint64_t get(const uint8_t *from, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

size_t rs_ack_encode(const rs_ack *ack, uint8_t *out) {
    uint8_t *to = put(out, RS_ACK_MAGIC, 2);
    to = put(to, RS_WIRE_VERSION, 1);
    to = put(to, ack->flags, 1);
    to = put(to, ack->words, 2);
    uint64_t settled = ack->settled > ack->cum ? ack->settled - ack->cum : 0;
    to = put(to, settled < RS_ACK_SETTLED ? settled : RS_ACK_SETTLED, 2);
    to = put(to, ack->nonce, 8);
    to = put(to, ack->version, 8);
    to = put(to, ack->cum, 8);
    to = put(to, ack->expected, 8);
    to = put(to, ack->base, 8);
    to = put(to, 1, 4); /* receivers it speaks for: room for aggregated ones */
    to = put(to, RS_PROTOCOL_RDCM, 1);
    to = put(to, 0, 3);
    for (uint32_t i = 0; i < ack->words; i++)
        to = put(to, ack->map[i], 8);
    return (size_t)(to - out);
}

/* Bounds that spare those behind it every overflow. */
static bool is_sane(const rs_ack *ack) {
    const unsigned kinds = RS_ACK_TO_PREDECESSOR | RS_ACK_TO_PARENT | RS_ACK_WANTS_READY | RS_ACK_READY | RS_ACK_LEFT;
    const unsigned known = kinds | RS_ACK_BY_TREE | RS_ACK_STARVED;
    return (ack->flags & kinds) && (ack->flags & ~known) == 0 && ack->cum < INT64_MAX / 2 &&
           ack->base < INT64_MAX / 2 && ack->base % 64 == 0;
}

bool rs_ack_decode(const uint8_t *bytes, size_t length, rs_ack *ack) {
    if (length < RS_ACK_HEADER || get(bytes, 2) != RS_ACK_MAGIC || bytes[2] != RS_WIRE_VERSION)
        return false;
    ack->flags = bytes[3];
    ack->words = (uint32_t)get(bytes + 4, 2);
    if (ack->words > RS_ACK_WORDS || length != RS_ACK_HEADER + 8 * (size_t)ack->words)
        return false;
    ack->nonce = get(bytes + 8, 8);
    ack->version = get(bytes + 16, 8);
    ack->cum = get(bytes + 24, 8);
    ack->settled = ack->cum + get(bytes + 6, 2);
    ack->expected = get(bytes + 32, 8);
    ack->base = get(bytes + 40, 8);
    if (get(bytes + 48, 4) != 1 || get(bytes + 52, 4) != RS_PROTOCOL_RDCM)
        return false;
    for (uint32_t i = 0; i < ack->words; i++)
        ack->map[i] = get(bytes + RS_ACK_HEADER + 8 * i, 8);
    return is_sane(ack);
}

int rs_wire_datagram(const uint8_t *bytes, size_t length, size_t *header_length) {
    if (length < 4)
        return -1;
    uint64_t magic = get(bytes, 2);
    bool known = magic == RS_ACK_MAGIC || magic == RS_REPORT_MAGIC || magic == RS_WAN_STATUS_MAGIC;
    if (known && length <= RS_HEADER_MAX)
        *header_length = length;
    else if (magic == RS_DATA_MAGIC && !(bytes[3] & RS_DATA_REPAIR) && length >= RS_DATA_HEADER)
        *header_length = RS_DATA_HEADER;
    else
        return -1;
    return 1;
}
