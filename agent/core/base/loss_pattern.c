#include "core/base/loss_pattern.h"

#include <math.h>

#include "core/base/random.h"
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

bool rs_loss_pattern_has(const rs_loss_pattern *pattern, uint64_t sn) {
    for (uint32_t i = 0; i < pattern->run && i <= sn; i++)
        if (rs_random_part(rs_mix(pattern->seed + (sn - i + 1) * RS_RANDOM_STEP)) < pattern->start)
            return true;
    return false;
}

bool rs_loss_pattern_loses(rs_loss_pattern *pattern, const uint8_t *header, size_t length) {
    rs_data_header data;
    if (rs_wire_is_message_data(header, length)) {
        bool lose = rs_loss_pattern_has(pattern, pattern->heard++);
        pattern->lost += lose;
        return lose;
    }
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
