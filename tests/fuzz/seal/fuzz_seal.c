/* Anything that comes where sealed datagrams are expected: nothing that was not made with the key is taken, nothing is
 * taken twice, reads and writes stay within what there is. The input is a script: a byte says what comes, changed where
 * and how the bytes behind it say. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/seal/seal.h"

#define MADE 64u
#define TEXT 100u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static rs_seal_verdict look(rs_seal *seal, size_t clear, const uint8_t *bytes, size_t length) {
    uint8_t *packet = malloc(length ? length : 1); /* exactly as many bytes as there are: a read beyond is seen */
    size_t text = length > RS_SEAL_MORE ? length - RS_SEAL_MORE : 0, room = text > 32 ? text - 32 : 0;
    uint8_t head[32], *rest = malloc(room ? room : 1);
    must(packet && rest);
    if (length > 0)
        memcpy(packet, bytes, length);
    rs_seal_verdict verdict = rs_seal_open(seal, (rs_seal_place){9, 9}, clear, packet, length, head, sizeof head, rest);
    free(packet);
    free(rest);
    return verdict;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t made[MADE][TEXT + RS_SEAL_MORE];
    static const uint8_t key[32] = {1}, text[TEXT] = {2};
    bool taken[MADE] = {false};
    rs_seal *from = rs_seal_new(rs_cipher_here()), *to = rs_seal_new(rs_cipher_here());
    must(from && to && rs_seal_learn(from, 1, key, 256, 0) && rs_seal_learn(to, 1, key, 512, 0));
    size_t clear = size > 0 ? data[0] % 33u : 0;
    for (unsigned i = 0; i < MADE; i++)
        must(rs_seal_close(from, (rs_seal_place){9, 9}, clear, text, TEXT, NULL, 0, made[i]));
    for (size_t at = 1; at + 3 <= size;) {
        unsigned what = data[at] % 4, which = data[at + 1] % MADE, length = data[at + 2];
        at += 3;
        if (what == 0) { /* as it was made */
            rs_seal_verdict verdict = look(to, clear, made[which], sizeof made[which]);
            must(verdict == (taken[which] ? RS_SEAL_REPLAYED : RS_SEAL_RIGHT));
            taken[which] = true;
        } else if (what == 1) { /* a byte is another */
            uint8_t wrong[TEXT + RS_SEAL_MORE];
            memcpy(wrong, made[which], sizeof wrong);
            wrong[length % sizeof wrong] ^= 1u << which % 8;
            must(look(to, clear, wrong, sizeof wrong) != RS_SEAL_RIGHT);
        } else if (what == 2) { /* cut */
            must(look(to, clear, made[which], length % sizeof made[which]) != RS_SEAL_RIGHT);
        } else { /* whatever it likes */
            size_t rest = size - at < length ? size - at : length;
            (void)look(to, clear, data + at, rest);
            at += rest;
        }
    }
    rs_seal_stats stats;
    rs_seal_stats_get(to, &stats);
    must(stats.streams <= 1);
    rs_seal_free(from);
    rs_seal_free(to);
    return 0;
}
