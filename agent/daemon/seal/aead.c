#include "daemon/seal/aead.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdlib.h>
#if RS_IPSEC_MB
#include <intel-ipsec-mb.h>
#endif
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

struct rs_aead {
    struct gcm_key_data *wide; /* NULL: `context` has the key */
    EVP_CIPHER_CTX *context;
    bool seals;
    OSSL_PARAM tag[2]; /* to ask for one, or to tell it: EVP_CIPHER_CTX_ctrl would make it for each packet */
};

rs_cipher rs_cipher_here(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") ? RS_AES_256_GCM : RS_CHACHA20_POLY1305;
#elif defined(__aarch64__)
    unsigned long has = getauxval(AT_HWCAP);
    return (has & HWCAP_AES) && (has & HWCAP_PMULL) ? RS_AES_256_GCM : RS_CHACHA20_POLY1305;
#else
    return RS_CHACHA20_POLY1305;
#endif
}

const char *rs_cipher_name(rs_cipher cipher) {
    return cipher == RS_AES_256_GCM ? "AES-256-GCM" : "ChaCha20-Poly1305";
}

/* --------------------------------------------------------------------------------- AES-256-GCM by wide instructions */

#if RS_IPSEC_MB
/* What libipsec-mb has for this processor; made at the first key. Its manager, which is for jobs, is not kept. */
static struct {
    bool tried, there;
    aes_gcm_pre_t expand;
    aes_gcm_enc_dec_t seal, open;
    aes_gcm_init_t begin;
    aes_gcm_enc_dec_update_t seal_more, open_more;
    aes_gcm_enc_dec_finalize_t seal_end, open_end;
} wide;

static bool wide_here(void) {
    if (wide.tried)
        return wide.there;
    wide.tried = true;
    IMB_MGR *m = rs_cipher_here() == RS_AES_256_GCM ? alloc_mb_mgr(0) : NULL;
    if (!m)
        return false;
    init_mb_mgr_auto(m, NULL);
    wide.there = imb_get_errno(m) == 0;
    wide.expand = m->gcm256_pre;
    wide.seal = m->gcm256_enc;
    wide.open = m->gcm256_dec;
    wide.begin = m->gcm256_init;
    wide.seal_more = m->gcm256_enc_update;
    wide.open_more = m->gcm256_dec_update;
    wide.seal_end = m->gcm256_enc_finalize;
    wide.open_end = m->gcm256_dec_finalize;
    free_mb_mgr(m);
    return wide.there;
}

static bool wide_new(rs_aead *a, const uint8_t key[RS_AEAD_KEY]) {
    a->wide = wide_here() ? aligned_alloc(64, (sizeof *a->wide + 63) / 64 * 64) : NULL;
    if (a->wide)
        wide.expand(key, a->wide);
    return a->wide != NULL;
}

static void wide_rekey(rs_aead *a, const uint8_t key[RS_AEAD_KEY]) {
    wide.expand(key, a->wide);
}

static void wide_free(rs_aead *a) {
    if (a->wide)
        OPENSSL_cleanse(a->wide, sizeof *a->wide);
    free(a->wide);
}

/* `tag`: where it goes. */
static void wide_run(const rs_aead *a, const uint8_t nonce[RS_AEAD_NONCE], const uint8_t *beside, size_t beside_length,
                     const rs_aead_piece *pieces, unsigned count, uint8_t tag[RS_AEAD_TAG]) {
    struct gcm_context_data c;
    if (count == 1) {
        (a->seals ? wide.seal : wide.open)(a->wide, &c, pieces->out, pieces->in, pieces->length, nonce, beside,
                                           beside_length, tag, RS_AEAD_TAG);
        return;
    }
    wide.begin(a->wide, &c, nonce, beside, beside_length);
    for (unsigned i = 0; i < count; i++)
        if (pieces[i].length > 0)
            (a->seals ? wide.seal_more : wide.open_more)(a->wide, &c, pieces[i].out, pieces[i].in, pieces[i].length);
    (a->seals ? wide.seal_end : wide.open_end)(a->wide, &c, tag, RS_AEAD_TAG);
}
#else
static bool wide_new(rs_aead *a, const uint8_t key[RS_AEAD_KEY]) {
    (void)key;
    a->wide = NULL;
    return false;
}

static void wide_rekey(rs_aead *a, const uint8_t key[RS_AEAD_KEY]) {
    (void)a;
    (void)key;
}

static void wide_free(rs_aead *a) {
    (void)a;
}

static void wide_run(const rs_aead *a, const uint8_t nonce[RS_AEAD_NONCE], const uint8_t *beside, size_t beside_length,
                     const rs_aead_piece *pieces, unsigned count, uint8_t tag[RS_AEAD_TAG]) {
    (void)a, (void)nonce, (void)beside, (void)beside_length, (void)pieces, (void)count, (void)tag;
}
#endif

/* ------------------------------------------------------------------------------------------------------------- keys */

rs_aead *rs_aead_new(rs_cipher cipher, const uint8_t key[RS_AEAD_KEY], bool seals) {
    const EVP_CIPHER *algorithm = cipher == RS_AES_256_GCM         ? EVP_aes_256_gcm()
                                  : cipher == RS_CHACHA20_POLY1305 ? EVP_chacha20_poly1305()
                                                                   : NULL;
    rs_aead *a = algorithm ? calloc(1, sizeof *a) : NULL;
    if (!a)
        return NULL;
    a->seals = seals;
    if (cipher == RS_AES_256_GCM && wide_new(a, key))
        return a;
    a->tag[0] = OSSL_PARAM_construct_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, NULL, RS_AEAD_TAG);
    a->tag[1] = OSSL_PARAM_construct_end();
    a->context = EVP_CIPHER_CTX_new();
    if (a->context && EVP_CipherInit_ex(a->context, algorithm, NULL, key, NULL, seals) == 1)
        return a;
    rs_aead_free(a);
    ERR_clear_error();
    return NULL;
}

bool rs_aead_rekey(rs_aead *aead, const uint8_t key[RS_AEAD_KEY]) {
    if (aead->wide) {
        wide_rekey(aead, key);
        return true;
    }
    return EVP_CipherInit_ex(aead->context, NULL, NULL, key, NULL, aead->seals) == 1;
}

void rs_aead_free(rs_aead *aead) {
    if (!aead)
        return;
    wide_free(aead);
    EVP_CIPHER_CTX_free(aead->context); /* which wipes what it knows */
    free(aead);
}

/* ---------------------------------------------------------------------------------------------------------- packets */

bool rs_aead_seal(rs_aead *aead, const uint8_t nonce[RS_AEAD_NONCE], const uint8_t *beside, size_t beside_length,
                  const rs_aead_piece *pieces, unsigned count, uint8_t tag[RS_AEAD_TAG]) {
    if (aead->wide) {
        wide_run(aead, nonce, beside, beside_length, pieces, count, tag);
        return true;
    }
    EVP_CIPHER_CTX *c = aead->context;
    int done;
    uint8_t none[16];
    bool right = EVP_EncryptInit_ex2(c, NULL, NULL, nonce, NULL) == 1 &&
                 (beside_length == 0 || EVP_EncryptUpdate(c, NULL, &done, beside, (int)beside_length) == 1);
    for (unsigned i = 0; i < count && right; i++)
        right = pieces[i].length == 0 ||
                EVP_EncryptUpdate(c, pieces[i].out, &done, pieces[i].in, (int)pieces[i].length) == 1;
    aead->tag[0].data = tag;
    if (right && EVP_EncryptFinal_ex(c, none, &done) == 1 && EVP_CIPHER_CTX_get_params(c, aead->tag) == 1)
        return true;
    ERR_clear_error();
    return false;
}

bool rs_aead_open(rs_aead *aead, const uint8_t nonce[RS_AEAD_NONCE], const uint8_t *beside, size_t beside_length,
                  const rs_aead_piece *pieces, unsigned count, const uint8_t tag[RS_AEAD_TAG]) {
    if (aead->wide) {
        uint8_t want[RS_AEAD_TAG];
        wide_run(aead, nonce, beside, beside_length, pieces, count, want);
        return CRYPTO_memcmp(want, tag, sizeof want) == 0;
    }
    EVP_CIPHER_CTX *c = aead->context;
    int done;
    uint8_t none[16];
    bool right = EVP_DecryptInit_ex2(c, NULL, NULL, nonce, NULL) == 1 &&
                 (beside_length == 0 || EVP_DecryptUpdate(c, NULL, &done, beside, (int)beside_length) == 1);
    for (unsigned i = 0; i < count && right; i++)
        right = pieces[i].length == 0 ||
                EVP_DecryptUpdate(c, pieces[i].out, &done, pieces[i].in, (int)pieces[i].length) == 1;
    aead->tag[0].data = (void *)(uintptr_t)tag;
    if (right && EVP_CIPHER_CTX_set_params(c, aead->tag) == 1 && EVP_DecryptFinal_ex(c, none, &done) == 1)
        return true;
    ERR_clear_error();
    return false;
}

bool rs_hkdf(const uint8_t *secret, size_t secret_length, const uint8_t *salt, size_t salt_length, const uint8_t *info,
             size_t info_length, uint8_t *out, size_t out_length) {
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret, secret_length),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)info, info_length),
        salt_length > 0 ? OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt, salt_length)
                        : OSSL_PARAM_construct_end(),
        OSSL_PARAM_construct_end()};
    bool done = context && EVP_KDF_derive(context, out, out_length, params) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    if (!done)
        ERR_clear_error();
    return done;
}

bool rs_random_key(uint8_t key[RS_AEAD_KEY]) {
    return RAND_priv_bytes(key, RS_AEAD_KEY) == 1;
}

void rs_wipe(void *secret, size_t length) {
    OPENSSL_cleanse(secret, length);
}
