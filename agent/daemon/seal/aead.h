/* Authenticated encryption with associated data, and keys from keys: OpenSSL's or libipsec-mb's, never our own. */
#ifndef RS_DAEMON_SEAL_AEAD_H
#define RS_DAEMON_SEAL_AEAD_H

#include "core/base/types.h"

#define RS_AEAD_KEY 32u
#define RS_AEAD_NONCE 12u
#define RS_AEAD_TAG 16u

typedef enum {
    RS_AES_256_GCM = 1,       /* NIST SP 800-38D */
    RS_CHACHA20_POLY1305 = 2, /* RFC 8439 */
} rs_cipher;

/* What is fast on this processor: AES where it has instructions for it. */
rs_cipher rs_cipher_here(void);
const char *rs_cipher_name(rs_cipher cipher);

typedef struct rs_aead rs_aead; /* one key, for one direction */

/* NULL: no such cipher, or out of memory. */
rs_aead *rs_aead_new(rs_cipher cipher, const uint8_t key[RS_AEAD_KEY], bool seals);
/* Another key of the same cipher and direction. */
bool rs_aead_rekey(rs_aead *aead, const uint8_t key[RS_AEAD_KEY]);
void rs_aead_free(rs_aead *aead); /* its key is wiped */

/* A piece of what is sealed or opened: `length` bytes from `in` to `out`, which may be the same place. */
typedef struct {
    const uint8_t *in;
    uint8_t *out;
    size_t length;
} rs_aead_piece;

/* The pieces, in order, are one text. A nonce is used once with a key. False: the library failed. */
bool rs_aead_seal(rs_aead *aead, const uint8_t nonce[RS_AEAD_NONCE], const uint8_t *beside, size_t beside_length,
                  const rs_aead_piece *pieces, unsigned count, uint8_t tag[RS_AEAD_TAG]);
/* False: the tag is wrong, and what is in the pieces' places is of no use. */
bool rs_aead_open(rs_aead *aead, const uint8_t nonce[RS_AEAD_NONCE], const uint8_t *beside, size_t beside_length,
                  const rs_aead_piece *pieces, unsigned count, const uint8_t tag[RS_AEAD_TAG]);

/* HKDF with SHA-256 (RFC 5869). */
bool rs_hkdf(const uint8_t *secret, size_t secret_length, const uint8_t *salt, size_t salt_length, const uint8_t *info,
             size_t info_length, uint8_t *out, size_t out_length);
bool rs_random_key(uint8_t key[RS_AEAD_KEY]); /* of the system; false: it has none */
void rs_wipe(void *secret, size_t length);

#endif
