/* Names that people give objects, as the numbers that they stand for: as every program of rostrum takes them. */
#include <string.h>

#include "client/connection.h"

/* BLAKE2b (RFC 7693) without a key. */

#define BLOCK 128u

static const uint64_t initial[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
static const uint8_t order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static uint64_t turned(uint64_t value, unsigned bits) {
    return value >> bits | value << (64 - bits);
}

static void mix(uint64_t v[16], unsigned a, unsigned b, unsigned c, unsigned d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 63);
}

static void compress(uint64_t h[8], const uint8_t block[BLOCK], uint64_t taken, bool last) {
    uint64_t v[16], text[16] = {0};
    for (unsigned i = 0; i < BLOCK; i++)
        text[i / 8] |= (uint64_t)block[i] << 8 * (i % 8);
    memcpy(v, h, 64);
    memcpy(v + 8, initial, 64);
    v[12] ^= taken;
    v[14] ^= last ? UINT64_MAX : 0;
    for (unsigned round = 0; round < 12; round++) {
        const uint8_t *s = order[round % 10];
        for (unsigned i = 0; i < 4; i++)
            mix(v, i, 4 + i, 8 + i, 12 + i, text[s[2 * i]], text[s[2 * i + 1]]);
        for (unsigned i = 0; i < 4; i++)
            mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, text[s[8 + 2 * i]], text[s[9 + 2 * i]]);
    }
    for (unsigned i = 0; i < 8; i++)
        h[i] ^= v[i] ^ v[8 + i];
}

static uint64_t blake2b_64(const char *text, size_t length) {
    uint64_t h[8];
    uint8_t block[BLOCK];
    memcpy(h, initial, sizeof h);
    h[0] ^= 0x01010000 ^ 8; /* no key, 8 bytes */
    for (size_t at = 0;; at += BLOCK) {
        size_t some = length - at < BLOCK ? length - at : BLOCK;
        bool last = length - at <= BLOCK;
        memset(block, 0, sizeof block);
        memcpy(block, text + at, some);
        compress(h, block, at + some, last);
        if (last)
            return h[0];
    }
}

/* ------------------------------------------------------------------------------------------------------- numbers */

static unsigned digit_of(char c) {
    unsigned value = (unsigned)(c - '0'), letter = (unsigned)((c | 0x20) - 'a');
    return value < 10 ? value : letter < 26 ? 10 + letter : 99;
}

/* "42", "1_000", "0x2a", "0o52", "0b101010", with a sign and spaces around. False: it is none, but a name. */
static bool is_number(const char *text, size_t length, uint64_t *out, bool *fits) {
    static const char spaces[] = " \t\n\v\f\r";
    while (length > 0 && strchr(spaces, text[length - 1]))
        length--;
    for (; length > 0 && strchr(spaces, *text); length--)
        text++;
    bool minus = length > 0 && *text == '-';
    if (length > 0 && (minus || *text == '+'))
        text++, length--;
    unsigned base = 10;
    if (length > 1 && *text == '0' && strchr("xXoObB", text[1])) {
        base = (text[1] | 0x20) == 'x' ? 16 : (text[1] | 0x20) == 'o' ? 8 : 2;
        text += 2, length -= 2;
        if (length > 0 && *text == '_')
            text++, length--;
    }
    bool zeros = base == 10 && length > 0 && *text == '0', digit = false;
    *out = 0;
    *fits = true;
    for (size_t i = 0; i < length; i++) {
        unsigned value = digit_of(text[i]);
        if (text[i] == '_' && digit) { /* one, between digits */
            digit = false;
            continue;
        }
        if (value >= base || (zeros && value > 0))
            return false;
        digit = true;
        *fits = *fits && *out <= (UINT64_MAX - value) / base;
        *out = *out * base + value;
    }
    *fits = *fits && !(minus && *out > 0);
    return digit;
}

rostrum_code rostrum_data_id(const char *name, uint64_t *data_id, rostrum_error *error) {
    bool fits;
    size_t length = strlen(name);
    if (length == 0)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "a data id is a number or a name, not nothing");
    if (!is_number(name, length, data_id, &fits))
        *data_id = blake2b_64(name, length);
    else if (!fits)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "that is not a data id: numbers go from 0 to 2^64 - 1");
    return ROSTRUM_OK;
}
