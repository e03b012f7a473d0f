/* seals [SECONDS [MTU]]: ns of processor time that a packet of 1,500 and of 9,000 bytes takes to seal and to open, with
 * each cipher, out of place as the agent does; and to copy, for comparison; and a byte's SHA-256, by chunks as objects
 * have. Then what a packet's signature takes, alone and in a whole batch. With an MTU only packets of that one, by this
 * processor's cipher, and no signatures. JSON on standard output. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/seal/seal.h"
#include "daemon/seal/sign.h"
#include "daemon/store/digest.h"

#define PACKETS 126u /* a batch */
#define ROOM 9100u

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint8_t plain[PACKETS][ROOM], sealed[PACKETS][ROOM], out[PACKETS][ROOM];

typedef struct {
    double seal, open, copy;
} cost;

static cost measure(rs_cipher cipher, size_t payload, double seconds) {
    const rs_seal_place to = {0xef000001, 7070};
    const uint8_t key[32] = {1};
    uint8_t head[32];
    rs_seal *from = rs_seal_new(cipher), *at = rs_seal_new(cipher);
    cost c = {0};
    if (!from || !at || !rs_seal_learn(from, 1, key, 256, 0) || !rs_seal_learn(at, 1, key, 512, 0))
        exit(1);
    double packets = 0, bound = seconds * 1e9;
    do {
        double t0 = now_ns();
        for (unsigned i = 0; i < PACKETS; i++)
            if (!rs_seal_close(from, to, 32, plain[i], 32, plain[i] + 32, payload, sealed[i]))
                exit(1);
        double t1 = now_ns();
        for (unsigned i = 0; i < PACKETS; i++)
            if (rs_seal_open(at, to, 32, sealed[i], 32 + payload + RS_SEAL_MORE, head, 32, out[i]) != RS_SEAL_RIGHT)
                exit(1);
        double t2 = now_ns();
        for (unsigned i = 0; i < PACKETS; i++)
            memcpy(out[i], sealed[i], payload);
        c.seal += t1 - t0;
        c.open += t2 - t1;
        c.copy += now_ns() - t2;
        packets += PACKETS;
    } while (c.seal + c.open + c.copy < bound);
    rs_seal_free(from);
    rs_seal_free(at);
    return (cost){c.seal / packets, c.open / packets, c.copy / packets};
}

/* Each batch is of other packets, so that no signature is known already. */
static cost measure_signed(unsigned batch, size_t payload, double seconds) {
    static uint8_t stamps[RS_SIGN_BATCH][RS_SIGN_STAMP];
    rs_signed packets[RS_SIGN_BATCH];
    rs_signer *signer = rs_signer_new();
    rs_verifier *verifier = rs_verifier_new();
    cost c = {0};
    if (!signer || !verifier)
        exit(1);
    double count = 0;
    do {
        for (unsigned i = 0; i < batch; i++)
            packets[i] = (rs_signed){
                .head = plain[i], .head_length = 32, .rest = plain[i] + 32, .rest_length = payload, .stamp = stamps[i]};
        double t0 = now_ns();
        if (!rs_sign(signer, RS_SIGNS_MESSAGE, packets, batch))
            exit(1);
        double t1 = now_ns();
        for (unsigned i = 0; i < batch; i++)
            if (!rs_verify(verifier, rs_signer_public(signer), RS_SIGNS_MESSAGE, &packets[i]))
                exit(1);
        c.open += now_ns() - t1;
        c.seal += t1 - t0;
        count += batch;
    } while (c.seal + c.open < seconds * 1e9);
    rs_signer_free(signer);
    rs_verifier_free(verifier);
    return (cost){c.seal / count, c.open / count, 0};
}

/* ns a byte. */
static double measure_digest(double seconds) {
    static uint8_t chunk[RS_DIGEST_CHUNK];
    uint8_t leaf[32];
    double spent = 0, bytes = 0;
    memset(chunk, 3, sizeof chunk);
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    do {
        double t0 = now_ns();
        if (!sha || EVP_DigestInit_ex(sha, EVP_sha256(), NULL) != 1 ||
            EVP_DigestUpdate(sha, chunk, sizeof chunk) != 1 || EVP_DigestFinal_ex(sha, leaf, NULL) != 1)
            exit(1);
        spent += now_ns() - t0;
        bytes += sizeof chunk;
    } while (spent < seconds * 1e9);
    EVP_MD_CTX_free(sha);
    return spent / bytes;
}

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? atof(argv[1]) : 1;
    const unsigned only = argc > 2 ? (unsigned)atoi(argv[2]) : 0; /* that MTU */
    static const struct {
        unsigned mtu;
        size_t payload;
    } sizes[] = {{1500, 1392}, {9000, 8896}};
    memset(plain, 3, sizeof plain);
    memset(sealed, 3, sizeof sealed);
    memset(out, 3, sizeof out);
    printf("{\"here\": \"%s\", \"rows\": [", rs_cipher_name(rs_cipher_here()));
    bool more = false;
    for (unsigned i = 0; i < 4; i++) {
        rs_cipher cipher = i % 2 ? RS_CHACHA20_POLY1305 : RS_AES_256_GCM;
        if (only && (sizes[i / 2].mtu != only || cipher != rs_cipher_here()))
            continue;
        cost c = measure(cipher, sizes[i / 2].payload, seconds);
        printf("%s{\"cipher\": \"%s\", \"mtu\": %u, \"payload\": %zu, \"seal_ns\": %.1f, \"open_ns\": %.1f, "
               "\"copy_ns\": %.1f}",
               more ? ", " : "", rs_cipher_name(cipher), sizes[i / 2].mtu, sizes[i / 2].payload, c.seal, c.open,
               c.copy);
        more = true;
    }
    printf("], \"sha256_ns_per_byte\": %.4f, \"signs\": [", measure_digest(seconds));
    for (unsigned i = 0; i < 4 && !only; i++) {
        const unsigned batch = i % 2 ? RS_SIGN_BATCH : 1;
        cost c = measure_signed(batch, sizes[i / 2].payload, seconds / 2);
        printf("%s{\"batch\": %u, \"payload\": %zu, \"sign_ns\": %.1f, \"verify_ns\": %.1f}", i ? ", " : "", batch,
               sizes[i / 2].payload, c.seal, c.open);
    }
    printf("]}\n");
    return 0;
}
