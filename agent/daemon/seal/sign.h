/* Signed batches: who holds a group's or transfer's key can seal as any other holder; what is signed only its sender
 * has made. Up to RS_SIGN_BATCH packets share one signature: Ed25519 (RFC 8032) of the root of a Merkle tree whose
 * leaves are the packets' digests, and each packet carries its way to the root, so that it is judged alone, whatever
 * else of its batch was lost. A stamp:
 *
 *     depth u8, place u8   the batch has 2^depth leaves, at most 64; this is the one at `place`
 *     salt, 16 bytes       random, of the batch: nobody can prepare two texts of one digest before it is drawn
 *     signature, 64 bytes
 *     way, 6 * 16 bytes    digests of the siblings from the leaf upwards; zero beyond `depth`
 *
 * leaf = SHA-256(0 | salt | context | text), node = SHA-256(1 | salt | left | right), 16 bytes of each; leaves and
 * nodes differ in their first byte (RFC 6962, 2.1). Signed: "rostrum batch 1", what u8, depth u8, salt, root. */
#ifndef RS_DAEMON_SEAL_SIGN_H
#define RS_DAEMON_SEAL_SIGN_H

#include "core/base/types.h"

#define RS_SIGN_PUBLIC 32u
#define RS_SIGN_BATCH 64u
#define RS_SIGN_CONTEXT 20u /* bytes that say which packet it is; unique for all time of a signer's key */
#define RS_SIGN_STAMP 178u

/* What is signed: a text for one is none for another. */
typedef enum { RS_SIGNS_STREAM = 1, RS_SIGNS_MESSAGE } rs_sign_what;

/* A packet: its text in two pieces, and where its stamp is or goes. */
typedef struct {
    uint8_t context[RS_SIGN_CONTEXT]; /* Which packet it is. */
    const uint8_t *head, *rest;       /* Its text. */
    size_t head_length, rest_length;  /* Bytes of each. */
    uint8_t *stamp;                   /* RS_SIGN_STAMP bytes; only read where it is verified. */
} rs_signed;

typedef struct rs_signer rs_signer;

/* Draws a key of its own, which never leaves it. NULL: out of memory, or there are no random numbers. */
rs_signer *rs_signer_new(void);
void rs_signer_free(rs_signer *signer); /* the key is wiped */
const uint8_t *rs_signer_public(const rs_signer *signer);
/* Signs 1 to RS_SIGN_BATCH packets by one signature. False: OpenSSL failed, and no stamp is right. */
bool rs_sign(rs_signer *signer, rs_sign_what what, const rs_signed *packets, unsigned count);

typedef struct rs_verifier rs_verifier; /* remembers roots whose signature it has verified: one costs some 0.1 ms */

rs_verifier *rs_verifier_new(void);
void rs_verifier_free(rs_verifier *verifier);
/* The packet is as the holder of that public key has signed it. */
bool rs_verify(rs_verifier *verifier, const uint8_t key[RS_SIGN_PUBLIC], rs_sign_what what, const rs_signed *packet);
/* Signatures that were computed, and those that were wrong. */
void rs_verifier_count(const rs_verifier *verifier, uint64_t *computed, uint64_t *wrong);

#endif
