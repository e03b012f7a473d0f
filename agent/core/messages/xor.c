#include "core/messages/xor.h"

#include <string.h>

typedef uint64_t rs_gm_vector __attribute__((vector_size(32), aligned(1), may_alias));

void rs_gm_xor(uint8_t *into, const uint8_t *from, size_t length) {
    size_t at = 0;
    for (; at + 64 <= length; at += 64) {
        rs_gm_vector *a = (rs_gm_vector *)(void *)(into + at);
        const rs_gm_vector *b = (const rs_gm_vector *)(const void *)(from + at);
        a[0] ^= b[0];
        a[1] ^= b[1];
    }
    for (; at + 8 <= length; at += 8) {
        uint64_t a, b;
        memcpy(&a, into + at, 8);
        memcpy(&b, from + at, 8);
        a ^= b;
        memcpy(into + at, &a, 8);
    }
    for (; at < length; at++)
        into[at] ^= from[at];
}

void rs_gm_xor_grow(uint8_t *into, uint32_t *into_length, const uint8_t *from, uint32_t length) {
    uint32_t common = *into_length < length ? *into_length : length;
    rs_gm_xor(into, from, common);
    if (length > common) {
        memcpy(into + common, from + common, length - common);
        *into_length = length;
    }
}
