#include "daemon/data/combine.h"

#include <string.h>

#include "io/guard.h"

#define BLOCK 4096u /* stays in the first cache while piece after piece is added to it */

typedef uint8_t vector __attribute__((vector_size(32), aligned(1), may_alias));

static void xor_block(uint8_t *out, const uint8_t *in, uint32_t length) {
    uint32_t at = 0;
    for (; at + sizeof(vector) <= length; at += (uint32_t)sizeof(vector))
        *(vector *)(void *)(out + at) ^= *(const vector *)(const void *)(in + at);
    for (; at < length; at++)
        out[at] ^= in[at];
}

void rs_combine_xor(uint8_t *out, uint32_t length, const uint8_t *map, const rs_combine *pieces) {
    for (uint32_t from = 0; from < length; from += BLOCK) {
        for (uint32_t i = 0; i < pieces->count; i++) {
            if (pieces->length[i] <= from)
                continue;
            uint32_t left = pieces->length[i] - from;
            xor_block(out + from, map + pieces->offset[i] + from, left < BLOCK ? left : BLOCK);
        }
    }
}

typedef struct {
    uint8_t *out;
    uint32_t length;
    const uint8_t *map;
    const rs_combine *pieces;
} making;

static void make(void *context) {
    const making *m = context;
    memset(m->out, 0, m->length);
    rs_combine_xor(m->out, m->length, m->map, m->pieces);
}

bool rs_combine_make(uint8_t *out, uint32_t length, const uint8_t *map, const rs_combine *pieces) {
    making m = {.out = out, .length = length, .map = map, .pieces = pieces};
    return rs_guard_run(make, &m);
}
