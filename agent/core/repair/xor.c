#include "core/repair/xor.h"

#include <string.h>

typedef uint64_t rs_gm_vector __attribute__((vector_size(32), aligned(1), may_alias));

/* Compiled for each kind of processor. */
static inline __attribute__((always_inline)) void xor_steps(uint8_t *into, const uint8_t *from, size_t length) {
    size_t at = 0;
    for (; at + 128 <= length; at += 128) {
        rs_gm_vector *a = (rs_gm_vector *)(void *)(into + at);
        const rs_gm_vector *b = (const rs_gm_vector *)(const void *)(from + at);
        a[0] ^= b[0];
        a[1] ^= b[1];
        a[2] ^= b[2];
        a[3] ^= b[3];
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

static void xor_plain(uint8_t *into, const uint8_t *from, size_t length) {
    xor_steps(into, from, length);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void xor_avx2(uint8_t *into, const uint8_t *from, size_t length) {
    xor_steps(into, from, length);
}
#endif

void rs_gm_xor(uint8_t *into, const uint8_t *from, size_t length) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        xor_avx2(into, from, length);
        return;
    }
#endif
    xor_plain(into, from, length);
}

void rs_gm_xor_grow(uint8_t *into, uint32_t *into_length, const uint8_t *from, uint32_t length) {
    uint32_t common = *into_length < length ? *into_length : length;
    rs_gm_xor(into, from, common);
    if (length > common) {
        memcpy(into + common, from + common, length - common);
        *into_length = length;
    }
}
