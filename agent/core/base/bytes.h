/* Numbers of 1 to 8 bytes in datagrams, little endian like all our wire formats. Callers have checked the bounds. */
#ifndef RS_CORE_BYTES_H
#define RS_CORE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Returns the place behind it. */
static inline uint8_t *rs_le_put(uint8_t *to, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        *to++ = (uint8_t)(value >> (8 * i));
    return to;
}

static inline uint64_t rs_le_get(const uint8_t *from, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

/* The same, and moves on behind it. */
static inline uint64_t rs_le_take(const uint8_t **from, size_t bytes) {
    uint64_t value = rs_le_get(*from, bytes);
    *from += bytes;
    return value;
}

#endif
