#include "core/base/loss_pattern.h"

#include <math.h>

#include "core/base/wire.h"

uint64_t rs_server_seed(uint64_t seed, const char *server) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *server; server++)
        hash = (hash ^ (uint8_t)*server) * UINT64_C(0x100000001b3);
    return seed ^ hash;
}

rs_loss_pattern rs_loss_pattern_of(uint64_t seed, double share, uint32_t run) {
    /* A fragment is kept if none of `run` fragments, itself the last, starts a run. */
    return (rs_loss_pattern){.seed = seed, .start = 1 - pow(1 - share, 1.0 / run), .run = run};
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) */
static double fraction(uint64_t seed, uint64_t sn) {
    uint64_t z = seed + (sn + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

bool rs_loss_pattern_has(const rs_loss_pattern *pattern, uint64_t sn) {
    for (uint32_t i = 0; i < pattern->run && i <= sn; i++)
        if (fraction(pattern->seed, sn - i) < pattern->start)
            return true;
    return false;
}

bool rs_loss_pattern_loses(rs_loss_pattern *pattern, const uint8_t *header, size_t length) {
    rs_data_header data;
    if (length != RS_DATA_HEADER || !rs_wire_decode_data(header, length, &data))
        return false;
    if (!pattern->begun || pattern->nonce != data.nonce) {
        pattern->begun = true;
        pattern->nonce = data.nonce;
        pattern->next = 0;
    }
    if (data.sn < pattern->next)
        return false;
    pattern->next = data.sn + 1;
    bool lose = rs_loss_pattern_has(pattern, data.sn);
    pattern->lost += lose;
    return lose;
}
