#include "core/base/xxh64.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they are");

#define PRIME1 UINT64_C(0x9e3779b185ebca87)
#define PRIME2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define PRIME3 UINT64_C(0x165667b19e3779f9)
#define PRIME4 UINT64_C(0x85ebca77c2b2ae63)
#define PRIME5 UINT64_C(0x27d4eb2f165667c5)

static uint64_t read64(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, 8);
    return value;
}

static uint32_t read32(const uint8_t *bytes) {
    uint32_t value;
    memcpy(&value, bytes, 4);
    return value;
}

static uint64_t rotate(uint64_t value, unsigned bits) {
    return value << bits | value >> (64 - bits);
}

static uint64_t mix(uint64_t lane, uint64_t input) {
    return rotate(lane + input * PRIME2, 31) * PRIME1;
}

static uint64_t merge(uint64_t hash, uint64_t lane) {
    return (hash ^ mix(0, lane)) * PRIME1 + PRIME4;
}

uint64_t rs_gm_xxh64(const uint8_t *bytes, size_t length, uint64_t seed) {
    uint64_t hash = seed + PRIME5;
    size_t left = length;
    if (left >= 32) {
        uint64_t a = seed + PRIME1 + PRIME2, b = seed + PRIME2, c = seed, d = seed - PRIME1;
        for (; left >= 32; left -= 32, bytes += 32) {
            a = mix(a, read64(bytes));
            b = mix(b, read64(bytes + 8));
            c = mix(c, read64(bytes + 16));
            d = mix(d, read64(bytes + 24));
        }
        hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        hash = merge(merge(merge(merge(hash, a), b), c), d);
    }
    hash += length;
    for (; left >= 8; left -= 8, bytes += 8)
        hash = rotate(hash ^ mix(0, read64(bytes)), 27) * PRIME1 + PRIME4;
    for (; left >= 4; left -= 4, bytes += 4)
        hash = rotate(hash ^ read32(bytes) * PRIME1, 23) * PRIME2 + PRIME3;
    for (; left > 0; left--, bytes++)
        hash = rotate(hash ^ *bytes * PRIME5, 11) * PRIME1;
    hash = (hash ^ hash >> 33) * PRIME2;
    hash = (hash ^ hash >> 29) * PRIME3;
    return hash ^ hash >> 32;
}
