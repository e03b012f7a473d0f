/* Application ids as people write them (RFC 4122), for programs and for files that name them. */
#ifndef RS_API_UUID_H
#define RS_API_UUID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* False: `text` is not one whole id, and `out` is of no use. */
static inline bool rs_uuid_parse(const char *text, uint8_t out[16]) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    for (int i = 0, nibble = 0; i < 36; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i] != '-')
                return false;
            continue;
        }
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        uint8_t value = (uint8_t)((digit - digits) % 16);
        out[nibble / 2] = (uint8_t)(nibble % 2 ? out[nibble / 2] | value : value << 4);
        nibble++;
    }
    return text[36] == 0;
}

#endif
