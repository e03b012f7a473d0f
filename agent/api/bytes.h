/* Bounded little-endian writing and reading, for the messages of the application socket. A writer that runs out of room
 * and a reader that runs out of bytes say so once, at the end. */
#ifndef RS_API_BYTES_H
#define RS_API_BYTES_H

#include "api/wire.h"

#include <string.h>

static inline void rs_put(rs_api_message *out, const void *bytes, size_t length) {
    if (out->overflow || length > sizeof out->data - out->length) {
        out->overflow = true;
        return;
    }
    if (length)
        memcpy(out->data + out->length, bytes, length);
    out->length += length;
}

static inline void rs_put_uint(rs_api_message *out, uint64_t value, size_t width) {
    uint8_t bytes[8];
    for (size_t i = 0; i < width; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    rs_put(out, bytes, width);
}

static inline void rs_put_u8(rs_api_message *out, uint8_t value) {
    rs_put_uint(out, value, 1);
}

static inline void rs_put_u16(rs_api_message *out, uint16_t value) {
    rs_put_uint(out, value, 2);
}

static inline void rs_put_u32(rs_api_message *out, uint32_t value) {
    rs_put_uint(out, value, 4);
}

static inline void rs_put_u64(rs_api_message *out, uint64_t value) {
    rs_put_uint(out, value, 8);
}

static inline void rs_put_i64(rs_api_message *out, int64_t value) {
    rs_put_uint(out, (uint64_t)value, 8);
}

/* At most 255 bytes of it. */
static inline void rs_put_text(rs_api_message *out, const char *text) {
    size_t length = text ? strlen(text) : 0;
    length = length < 255 ? length : 255;
    rs_put_u8(out, (uint8_t)length);
    rs_put(out, text, length);
}

typedef struct {
    const uint8_t *at, *end;
    bool bad;
} rs_reader;

static inline void rs_get(rs_reader *in, void *to, size_t length) {
    if (in->bad || length > (size_t)(in->end - in->at)) {
        in->bad = true;
        memset(to, 0, length);
        return;
    }
    memcpy(to, in->at, length);
    in->at += length;
}

static inline uint64_t rs_get_uint(rs_reader *in, size_t width) {
    uint8_t bytes[8] = {0};
    rs_get(in, bytes, width);
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

static inline uint8_t rs_get_u8(rs_reader *in) {
    return (uint8_t)rs_get_uint(in, 1);
}

static inline uint16_t rs_get_u16(rs_reader *in) {
    return (uint16_t)rs_get_uint(in, 2);
}

static inline uint32_t rs_get_u32(rs_reader *in) {
    return (uint32_t)rs_get_uint(in, 4);
}

static inline uint64_t rs_get_u64(rs_reader *in) {
    return rs_get_uint(in, 8);
}

static inline int64_t rs_get_i64(rs_reader *in) {
    return (int64_t)rs_get_uint(in, 8);
}

/* Into `to` of `size` bytes with a NUL; text that is too long for it is bad. */
static inline void rs_get_text(rs_reader *in, char *to, size_t size) {
    size_t length = rs_get_u8(in);
    to[0] = 0;
    if (length >= size) {
        in->bad = true;
        return;
    }
    rs_get(in, to, length);
    to[in->bad ? 0 : length] = 0;
}

#endif
