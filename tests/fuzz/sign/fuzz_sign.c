/* Signed packets with bytes changed: what is not as it was signed is refused, whatever its stamp says of the tree, and
 * reads stay within what there is. The input is pairs: a place in the packet, and what is changed there. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/seal/sign.h"

#define TEXT 60u
#define NODE 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static rs_signed packet_of(uint8_t *text, uint8_t *stamp) {
    return (rs_signed){
        .context = {9}, .head = text, .head_length = 4, .rest = text + 4, .rest_length = TEXT - 4, .stamp = stamp};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static rs_signer *signer;
    static rs_verifier *verifier;
    static uint8_t text[3][TEXT] = {{1}, {2}, {3}}, stamps[3][RS_SIGN_STAMP];
    if (!signer) {
        signer = rs_signer_new();
        verifier = rs_verifier_new();
        must(signer && verifier);
        rs_signed batch[3];
        for (unsigned i = 0; i < 3; i++)
            batch[i] = packet_of(text[i], stamps[i]);
        must(rs_sign(signer, RS_SIGNS_MESSAGE, batch, 3));
    }
    uint8_t *changed = malloc(TEXT), *stamp = malloc(RS_SIGN_STAMP); /* exactly: a read beyond is seen */
    must(changed && stamp);
    memcpy(changed, text[1], TEXT);
    memcpy(stamp, stamps[1], RS_SIGN_STAMP);
    for (size_t i = 0; i + 1 < size; i += 2) {
        size_t at = data[i] % (TEXT + RS_SIGN_STAMP);
        *(at < TEXT ? changed + at : stamp + (at - TEXT)) ^= data[i + 1];
    }
    const size_t used = RS_SIGN_STAMP - 4 * NODE; /* the way is of two digests */
    const bool same = memcmp(changed, text[1], TEXT) == 0 && memcmp(stamp, stamps[1], used) == 0;
    const rs_signed packet = packet_of(changed, stamp);
    must(rs_verify(verifier, rs_signer_public(signer), RS_SIGNS_MESSAGE, &packet) == same);
    must(!rs_verify(verifier, rs_signer_public(signer), RS_SIGNS_STREAM, &packet));
    free(changed);
    free(stamp);
    return 0;
}
