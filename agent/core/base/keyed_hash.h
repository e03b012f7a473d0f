/* A hash that nobody can tell, or find another text of, who does not know the key: SipHash-2-4 (Aumasson, Bernstein:
 * SipHash: a fast short-input PRF, INDOCRYPT 2012). */
#ifndef RS_CORE_KEYED_HASH_H
#define RS_CORE_KEYED_HASH_H

#include "core/base/bytes.h"

static inline uint64_t rs_rotate_left(uint64_t word, unsigned bits) {
    return word << bits | word >> (64 - bits);
}

static inline void rs_sip_rounds(uint64_t v[4], unsigned rounds) {
    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rs_rotate_left(v[1], 13) ^ v[0];
        v[3] = rs_rotate_left(v[3], 16) ^ v[2];
        v[0] = rs_rotate_left(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rs_rotate_left(v[1], 17) ^ v[2];
        v[3] = rs_rotate_left(v[3], 21) ^ v[0];
        v[2] = rs_rotate_left(v[2], 32);
    }
}

static inline uint64_t rs_keyed_hash(const uint64_t key[2], const uint8_t *bytes, size_t length) {
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    for (size_t at = 0; at <= length; at += 8) {
        size_t left = length - at < 8 ? length - at : 8;
        uint64_t word = rs_le_get(bytes + at, left);
        if (left < 8)
            word |= (uint64_t)length << 56;
        v[3] ^= word;
        rs_sip_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    rs_sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
