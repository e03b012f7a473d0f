#include "daemon/seal/sign.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 6u
#define SALT 16u
#define NODE 16u
#define SIGNATURE 64u
#define SALT_AT 2u
#define SIGNATURE_AT (SALT_AT + SALT)
#define WAY_AT (SIGNATURE_AT + SIGNATURE)
#define REMEMBERED 256u /* roots, by their bytes: a sender's packets come in few batches at a time */

_Static_assert(RS_SIGN_BATCH == 1u << DEPTH_MOST, "the deepest tree");
_Static_assert(RS_SIGN_STAMP == WAY_AT + DEPTH_MOST * NODE, "docs/protocol.md");

static const char title[] = "rostrum batch 1";
#define SIGNED_TEXT (sizeof title - 1 + 2 + SALT + NODE)

struct rs_signer {
    EVP_PKEY *key;
    EVP_MD_CTX *sha, *signs;
    uint8_t public[RS_SIGN_PUBLIC];
};

/* A root that was verified. */
typedef struct {
    bool used;
    uint8_t key[RS_SIGN_PUBLIC];
    uint8_t text[SIGNED_TEXT];
    uint8_t signature[SIGNATURE];
} known_root;

struct rs_verifier {
    EVP_MD_CTX *sha, *verifies;
    uint64_t computed, wrong;
    known_root known[REMEMBERED];
};

/* ---------------------------------------------------------------------------------------------------------- tree */

typedef struct {
    const uint8_t *bytes;
    size_t length;
} part;

/* SHA-256 is looked up once: that takes longer than the digest of a node. */
static EVP_MD_CTX *new_digest(void) {
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    EVP_MD *found = sha ? EVP_MD_fetch(NULL, "SHA256", NULL) : NULL;
    const bool ready = found && EVP_DigestInit_ex(sha, found, NULL) == 1;
    EVP_MD_free(found); /* which the context holds */
    if (ready)
        return sha;
    EVP_MD_CTX_free(sha);
    return NULL;
}

static bool digest(EVP_MD_CTX *sha, const part *parts, unsigned count, uint8_t out[NODE]) {
    uint8_t whole[EVP_MAX_MD_SIZE];
    bool done = EVP_DigestInit_ex(sha, NULL, NULL) == 1;
    for (unsigned i = 0; i < count && done; i++)
        done = parts[i].length == 0 || EVP_DigestUpdate(sha, parts[i].bytes, parts[i].length) == 1;
    if (!done || EVP_DigestFinal_ex(sha, whole, NULL) != 1)
        return false;
    memcpy(out, whole, NODE);
    return true;
}

static bool leaf_of(EVP_MD_CTX *sha, const uint8_t salt[SALT], const rs_signed *packet, uint8_t out[NODE]) {
    uint8_t front[1 + SALT + RS_SIGN_CONTEXT] = {0};
    memcpy(front + 1, salt, SALT);
    memcpy(front + 1 + SALT, packet->context, RS_SIGN_CONTEXT);
    const part parts[] = {
        {front, sizeof front}, {packet->head, packet->head_length}, {packet->rest, packet->rest_length}};
    return digest(sha, parts, 3, out);
}

static bool node_of(EVP_MD_CTX *sha, const uint8_t salt[SALT], const uint8_t *left, const uint8_t *right,
                    uint8_t out[NODE]) {
    uint8_t text[1 + SALT + 2 * NODE] = {1};
    memcpy(text + 1, salt, SALT);
    memcpy(text + 1 + SALT, left, NODE);
    memcpy(text + 1 + SALT + NODE, right, NODE);
    const part whole = {text, sizeof text};
    return digest(sha, &whole, 1, out);
}

static void signed_text(rs_sign_what what, uint8_t depth, const uint8_t salt[SALT], const uint8_t root[NODE],
                        uint8_t out[SIGNED_TEXT]) {
    memcpy(out, title, sizeof title - 1);
    out += sizeof title - 1;
    *out++ = (uint8_t)what;
    *out++ = depth;
    memcpy(out, salt, SALT);
    memcpy(out + SALT, root, NODE);
}

/* ------------------------------------------------------------------------------------------------------- signing */

rs_signer *rs_signer_new(void) {
    rs_signer *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    size_t length = sizeof s->public;
    s->key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    s->sha = new_digest();
    s->signs = EVP_MD_CTX_new();
    if (s->key && s->sha && s->signs && EVP_PKEY_get_raw_public_key(s->key, s->public, &length) == 1 &&
        length == sizeof s->public)
        return s;
    rs_signer_free(s);
    ERR_clear_error();
    return NULL;
}

void rs_signer_free(rs_signer *signer) {
    if (!signer)
        return;
    EVP_PKEY_free(signer->key); /* wipes it */
    EVP_MD_CTX_free(signer->sha);
    EVP_MD_CTX_free(signer->signs);
    free(signer);
}

const uint8_t *rs_signer_public(const rs_signer *signer) {
    return signer->public;
}

/* Writes each leaf's way into its stamp while the tree is folded, level by level. */
static bool fold(rs_signer *s, const uint8_t salt[SALT], uint8_t depth, const rs_signed *packets, unsigned count,
                 uint8_t level[RS_SIGN_BATCH][NODE]) {
    for (unsigned up = 0; up < depth; up++) {
        for (unsigned i = 0; i < count; i++)
            memcpy(packets[i].stamp + WAY_AT + up * NODE, level[(i >> up) ^ 1], NODE);
        for (unsigned i = 0; i < (1u << depth) >> (up + 1); i++)
            if (!node_of(s->sha, salt, level[2 * i], level[2 * i + 1], level[i]))
                return false;
    }
    return true;
}

bool rs_sign(rs_signer *s, rs_sign_what what, const rs_signed *packets, unsigned count) {
    uint8_t level[RS_SIGN_BATCH][NODE] = {{0}}, salt[SALT], text[SIGNED_TEXT], signature[SIGNATURE], depth = 0;
    size_t length = sizeof signature;
    if (count == 0 || count > RS_SIGN_BATCH || RAND_bytes(salt, sizeof salt) != 1)
        return false;
    while (1u << depth < count)
        depth++;
    for (unsigned i = 0; i < count; i++) {
        memset(packets[i].stamp, 0, RS_SIGN_STAMP);
        if (!leaf_of(s->sha, salt, &packets[i], level[i]))
            return false;
    }
    if (!fold(s, salt, depth, packets, count, level))
        return false;
    signed_text(what, depth, salt, level[0], text);
    EVP_MD_CTX_reset(s->signs);
    if (EVP_DigestSignInit(s->signs, NULL, NULL, NULL, s->key) != 1 ||
        EVP_DigestSign(s->signs, signature, &length, text, sizeof text) != 1 || length != sizeof signature) {
        ERR_clear_error();
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        packets[i].stamp[0] = depth;
        packets[i].stamp[1] = (uint8_t)i;
        memcpy(packets[i].stamp + SALT_AT, salt, SALT);
        memcpy(packets[i].stamp + SIGNATURE_AT, signature, SIGNATURE);
    }
    return true;
}

/* ----------------------------------------------------------------------------------------------------- verifying */

rs_verifier *rs_verifier_new(void) {
    rs_verifier *v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->sha = new_digest();
    v->verifies = EVP_MD_CTX_new();
    if (v->sha && v->verifies)
        return v;
    rs_verifier_free(v);
    return NULL;
}

void rs_verifier_free(rs_verifier *verifier) {
    if (!verifier)
        return;
    EVP_MD_CTX_free(verifier->sha);
    EVP_MD_CTX_free(verifier->verifies);
    free(verifier);
}

void rs_verifier_count(const rs_verifier *verifier, uint64_t *computed, uint64_t *wrong) {
    *computed = verifier->computed;
    *wrong = verifier->wrong;
}

static bool is_signed(rs_verifier *v, const uint8_t key[RS_SIGN_PUBLIC], const uint8_t text[SIGNED_TEXT],
                      const uint8_t signature[SIGNATURE]) {
    v->computed++;
    EVP_PKEY *public = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, RS_SIGN_PUBLIC);
    EVP_MD_CTX_reset(v->verifies);
    bool right = public && EVP_DigestVerifyInit(v->verifies, NULL, NULL, NULL, public) == 1 &&
                 EVP_DigestVerify(v->verifies, signature, SIGNATURE, text, SIGNED_TEXT) == 1;
    EVP_PKEY_free(public);
    v->wrong += !right;
    if (!right)
        ERR_clear_error();
    return right;
}

bool rs_verify(rs_verifier *v, const uint8_t key[RS_SIGN_PUBLIC], rs_sign_what what, const rs_signed *packet) {
    const uint8_t *stamp = packet->stamp, *salt = stamp + SALT_AT, *signature = stamp + SIGNATURE_AT;
    uint8_t depth = stamp[0], place = stamp[1], at[NODE], text[SIGNED_TEXT];
    if (depth > DEPTH_MOST || place >> depth != 0 || !leaf_of(v->sha, salt, packet, at))
        return false;
    for (unsigned up = 0; up < depth; up++) {
        const uint8_t *beside = stamp + WAY_AT + up * NODE;
        bool right = place >> up & 1;
        if (!node_of(v->sha, salt, right ? beside : at, right ? at : beside, at))
            return false;
    }
    signed_text(what, depth, salt, at, text);
    known_root *known = &v->known[at[0] % REMEMBERED];
    if (known->used && memcmp(known->key, key, RS_SIGN_PUBLIC) == 0 && memcmp(known->text, text, sizeof text) == 0 &&
        memcmp(known->signature, signature, SIGNATURE) == 0)
        return true;
    if (!is_signed(v, key, text, signature))
        return false;
    known->used = true;
    memcpy(known->key, key, RS_SIGN_PUBLIC);
    memcpy(known->text, text, sizeof text);
    memcpy(known->signature, signature, SIGNATURE);
    return true;
}
