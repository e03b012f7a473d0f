/* Sealed datagrams: the primitives give what their standards say; what was changed, cut, repeated, sent elsewhere or
 * made with another key is told from what is right, and nothing is used twice. */
#include "daemon/seal/keyring.h"

#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/random.h"

#define S INT64_C(1000000000)
#define MOST 9100u

static const rs_seal_place group = {0xefff0001, 7070}, other = {0xefff0002, 7070};
static const uint8_t key_a[32] = {1, 2, 3}, key_b[32] = {4, 5, 6};

static size_t bytes_of(const char *hex, uint8_t *out) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned value = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        out[i] = (uint8_t)value;
    }
    return n;
}

static void fill(uint8_t *at, size_t length, uint64_t *random) {
    for (size_t i = 0; i < length; i++)
        at[i] = (uint8_t)rs_random_next(random);
}

static uint64_t seed_of_run(void) {
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* ------------------------------------------------------------------------------------------------------ primitives */

static void hkdf__gives_what_rfc_5869_says(void **state) {
    (void)state;
    uint8_t secret[80], salt[80], info[80], expected[82], out[82];
    memset(secret, 0x0b, 22); /* A.1 */
    bytes_of("000102030405060708090a0b0c", salt);
    bytes_of("f0f1f2f3f4f5f6f7f8f9", info);
    size_t n =
        bytes_of("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865", expected);
    assert_true(rs_hkdf(secret, 22, salt, 13, info, 10, out, n));
    assert_memory_equal(out, expected, n);
    /* A.3: neither salt nor info */
    n = bytes_of("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8", expected);
    assert_true(rs_hkdf(secret, 22, NULL, 0, NULL, 0, out, n));
    assert_memory_equal(out, expected, n);
}

static void check_vector(rs_cipher cipher, const char *key, const char *nonce, const char *beside, const char *text,
                         const char *sealed, const char *tag) {
    uint8_t k[32], v[12], a[64], t[256], c[256], g[16], out[256], made[16];
    bytes_of(key, k);
    bytes_of(nonce, v);
    bytes_of(tag, g);
    size_t a_length = bytes_of(beside, a), length = bytes_of(text, t);
    bytes_of(sealed, c);
    rs_aead *seals = rs_aead_new(cipher, k, true), *opens = rs_aead_new(cipher, k, false);
    for (size_t cut = 0; cut <= length; cut += 1 + length / 3) { /* in one piece or in two */
        const rs_aead_piece pieces[2] = {{t, out, cut}, {t + cut, out + cut, length - cut}};
        assert_true(rs_aead_seal(seals, v, a, a_length, pieces, 2, made));
        assert_memory_equal(out, c, length);
        assert_memory_equal(made, g, 16);
        const rs_aead_piece back[2] = {{out, out, cut}, {out + cut, out + cut, length - cut}}; /* in place */
        assert_true(rs_aead_open(opens, v, a, a_length, back, 2, g));
        assert_memory_equal(out, t, length);
    }
    g[15] ^= 1;
    const rs_aead_piece all = {c, out, length};
    assert_false(rs_aead_open(opens, v, a, a_length, &all, 1, g));
    rs_aead_free(seals);
    rs_aead_free(opens);
}

static void ciphers__give_what_their_standards_say(void **state) {
    (void)state;
    /* McGrew and Viega, The Galois/Counter Mode of Operation, test case 16 */
    check_vector(RS_AES_256_GCM, "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
                 "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
                 "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
                 "b16aedf5aa0de657ba637b39",
                 "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
                 "c5f61e6393ba7a0abcc9f662",
                 "76fc6ece0f4e1768cddf8853bb2d551b");
    /* RFC 8439, 2.8.2 */
    check_vector(RS_CHACHA20_POLY1305, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
                 "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
                 "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a20496620492063"
                 "6f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73"
                 "637265656e20776f756c642062652069742e",
                 "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
                 "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
                 "3ff4def08e4b7a9de576d26586cec64b6116",
                 "1ae10b594f09e26a7e902ecbd0600691");
}

/* Wide instructions take many blocks at a time: every length around theirs, cut anywhere, against OpenSSL's. */
static void aes_gcm__is_openssls_at_every_length(void **state) {
    (void)state;
    uint64_t random = seed_of_run();
    uint8_t k[32], v[12], beside[48], text[1600], mine[1600], theirs[1600], tag[16], wanted[16];
    fill(k, sizeof k, &random);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    assert_int_equal(EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, k, NULL), 1);
    rs_aead *seals = rs_aead_new(RS_AES_256_GCM, k, true), *opens = rs_aead_new(RS_AES_256_GCM, k, false);
    for (size_t length = 0; length <= sizeof text; length++) {
        const size_t more = rs_random_next(&random) % sizeof beside, cut = rs_random_next(&random) % (length + 1);
        int done, all = 0;
        fill(v, sizeof v, &random);
        fill(beside, more, &random);
        fill(text, length, &random);
        assert_int_equal(EVP_EncryptInit_ex(c, NULL, NULL, NULL, v), 1);
        assert_int_equal(EVP_EncryptUpdate(c, NULL, &done, beside, (int)more), 1);
        assert_int_equal(EVP_EncryptUpdate(c, theirs, &all, text, (int)length), 1);
        assert_int_equal(EVP_EncryptFinal_ex(c, theirs + all, &done), 1);
        assert_int_equal(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, sizeof wanted, wanted), 1);
        const rs_aead_piece out[2] = {{text, mine, cut}, {text + cut, mine + cut, length - cut}};
        const rs_aead_piece whole = {text, mine, length}, back = {theirs, mine, length};
        const bool one = length % 2;
        assert_true(rs_aead_seal(seals, v, beside, more, one ? &whole : out, one ? 1 : 2, tag));
        assert_memory_equal(mine, theirs, length);
        assert_memory_equal(tag, wanted, sizeof tag);
        assert_true(rs_aead_open(opens, v, beside, more, &back, 1, wanted));
        assert_memory_equal(mine, text, length);
        wanted[rs_random_next(&random) % 16] ^= 0x40;
        assert_false(rs_aead_open(opens, v, beside, more, &back, 1, wanted));
    }
    EVP_CIPHER_CTX_free(c);
    rs_aead_free(seals);
    rs_aead_free(opens);
}

/* ---------------------------------------------------------------------------------------------------------- packets */

typedef struct {
    rs_seal *from, *to;
    uint8_t plain[MOST], sealed[MOST + RS_SEAL_MORE], head[32], rest[MOST];
} pair;

static void start(pair *p, rs_cipher cipher) {
    p->from = rs_seal_new(cipher);
    p->to = rs_seal_new(RS_AES_256_GCM);
    assert_true(rs_seal_learn(p->from, 7, key_a, 0x100, 0));
    assert_true(rs_seal_learn(p->to, 7, key_a, 0x200, 0));
}

static void stop(pair *p) {
    rs_seal_free(p->from);
    rs_seal_free(p->to);
}

static size_t make(pair *p, rs_seal_place to, size_t clear, size_t head, size_t rest) {
    assert_true(rs_seal_close(p->from, to, clear, p->plain, head, p->plain + head, rest, p->sealed));
    return head + rest + RS_SEAL_MORE;
}

static rs_seal_verdict look(pair *p, rs_seal_place at, size_t clear, size_t length) {
    return rs_seal_open(p->to, at, clear, p->sealed, length, p->head, sizeof p->head, p->rest);
}

static void packets__of_any_size_come_back_as_they_were(void **state) {
    (void)state;
    uint64_t random = seed_of_run();
    static pair p;
    for (rs_cipher cipher = RS_AES_256_GCM; cipher <= RS_CHACHA20_POLY1305; cipher++) {
        start(&p, cipher);
        for (unsigned i = 0; i < 2000; i++) {
            size_t clear = rs_random_next(&random) % 33, head = clear + rs_random_next(&random) % (49 - clear);
            size_t rest = rs_random_next(&random) % (i % 2 ? 40 : MOST - 48), all = head + rest;
            size_t first = all < 32 ? all : 32;
            fill(p.plain, all, &random);
            size_t length = make(&p, group, clear, head, rest);
            assert_memory_equal(p.sealed, p.plain, clear);
            if (i % 3 == 0) { /* in place */
                assert_int_equal(rs_seal_open(p.to, group, clear, p.sealed, length, p.sealed + RS_SEAL_HEAD, 32,
                                              p.sealed + RS_SEAL_HEAD + 32),
                                 RS_SEAL_RIGHT);
                assert_memory_equal(p.sealed + RS_SEAL_HEAD, p.plain, all);
            } else {
                assert_int_equal(look(&p, group, clear, length), RS_SEAL_RIGHT);
                assert_memory_equal(p.head, p.plain, first);
                assert_memory_equal(p.rest, p.plain + first, all - first);
            }
        }
        rs_seal_stats stats;
        rs_seal_stats_get(p.to, &stats);
        assert_int_equal(stats.streams, 1);
        stop(&p);
    }
}

static void packets__that_were_changed_anywhere_are_refused(void **state) {
    (void)state;
    uint64_t random = seed_of_run();
    static pair p;
    start(&p, rs_cipher_here());
    fill(p.plain, 200, &random);
    size_t length = make(&p, group, 16, 48, 100);
    for (size_t bit = 0; bit < length * 8; bit++) {
        p.sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(look(&p, group, 16, length), RS_SEAL_RIGHT);
        p.sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < length; cut++)
        assert_int_not_equal(look(&p, group, 16, cut), RS_SEAL_RIGHT);
    assert_int_equal(look(&p, other, 16, length), RS_SEAL_FORGED); /* sent on to somebody else */
    rs_seal_stats stats;
    rs_seal_stats_get(p.to, &stats);
    assert_int_equal(stats.streams, 0);                           /* nothing is kept for forgers */
    assert_int_equal(look(&p, group, 16, length), RS_SEAL_RIGHT); /* and they spoil nothing */
    assert_int_equal(look(&p, other, 16, length), RS_SEAL_FORGED);
    stop(&p);
}

static void garbage__is_refused_and_leaves_nothing(void **state) {
    (void)state;
    uint64_t random = seed_of_run();
    static pair p;
    start(&p, rs_cipher_here());
    for (unsigned i = 0; i < 20000; i++) {
        size_t length = rs_random_next(&random) % 120, clear = i % 2 ? 32 : 0;
        fill(p.sealed, length, &random);
        if (length > clear + 8 && i % 4) { /* nearly right */
            p.sealed[clear] = (uint8_t)(0xe0 | (1 + i % 2));
            p.sealed[clear + 6] = 7;
            p.sealed[clear + 7] = 0;
        }
        assert_int_not_equal(look(&p, group, clear, length), RS_SEAL_RIGHT);
    }
    rs_seal_stats stats;
    rs_seal_stats_get(p.to, &stats);
    assert_int_equal(stats.streams, 0);
    assert_true(stats.opened[RS_SEAL_FORGED] > 0 && stats.opened[RS_SEAL_PLAIN] > 0 && stats.opened[RS_SEAL_SHORT] > 0);
    stop(&p);
}

/* Against a plain list of what was taken: packets in any order, with repetitions and leaps. */
static void counters__are_taken_once_whatever_their_order(void **state) {
    (void)state;
    enum { PACKETS = 3 * RS_SEAL_WINDOW, SIZE = 8 + RS_SEAL_MORE };
    uint64_t random = seed_of_run(), newest = 0;
    static pair p;
    static uint8_t kept[PACKETS + 1][SIZE];
    static bool taken[PACKETS + 1];
    memset(taken, 0, sizeof taken);
    start(&p, rs_cipher_here());
    for (uint64_t i = 1; i <= PACKETS; i++) {
        make(&p, group, 0, 8, 0);
        memcpy(kept[i], p.sealed, SIZE);
    }
    for (unsigned i = 0; i < 60000; i++) {
        uint64_t near = newest > 2 * RS_SEAL_WINDOW ? newest - 2 * RS_SEAL_WINDOW : 0;
        uint64_t span = newest - near + (i % 500 == 0 ? RS_SEAL_WINDOW / 2 : 30);
        uint64_t counter = near + 1 + rs_random_next(&random) % span;
        counter = counter > PACKETS ? PACKETS : counter;
        bool right = !taken[counter] && (counter > newest || newest - counter < RS_SEAL_WINDOW);
        memcpy(p.sealed, kept[counter], SIZE);
        assert_int_equal(look(&p, group, 0, SIZE), right ? RS_SEAL_RIGHT : RS_SEAL_REPLAYED);
        taken[counter] |= right;
        newest = counter > newest ? counter : newest;
    }
    stop(&p);
}

/* Another holder of the key sends packets as that transmitter: with the counters that it is to use next, with counters
 * far ahead. */
static void counters__of_another_holder_of_the_key_silence_nobody(void **state) {
    (void)state;
    enum { SIZE = 8 + RS_SEAL_MORE };
    static pair p;
    for (unsigned shared = 0; shared < 2; shared++) {
        rs_seal_stats stats;
        uint8_t early[SIZE];
        start(&p, rs_cipher_here());
        if (shared)
            rs_seal_shared(p.to);
        for (unsigned i = 0; i < 10; i++) {
            make(&p, group, 0, 8, 0);
            assert_int_equal(look(&p, group, 0, SIZE), RS_SEAL_RIGHT);
        }
        memcpy(early, p.sealed, SIZE);
        rs_seal *liar = rs_seal_new(rs_cipher_here());
        assert_true(rs_seal_learn(liar, 7, key_a, 0x100, 0));
        rs_seal_skip(liar, 11);
        for (unsigned i = 0; i < 10; i++) {
            uint8_t lie[SIZE];
            assert_true(rs_seal_close(liar, group, 0, p.plain, 8, NULL, 0, lie));
            assert_int_equal(rs_seal_open(p.to, group, 0, lie, SIZE, p.head, sizeof p.head, p.rest), RS_SEAL_RIGHT);
            make(&p, group, 0, 8, 0);
            assert_int_equal(look(&p, group, 0, SIZE), shared ? RS_SEAL_LATE : RS_SEAL_REPLAYED);
        }
        for (uint64_t ahead = 1 << 20; ahead <= UINT64_C(1) << 30; ahead <<= 5) {
            uint8_t lie[SIZE];
            rs_seal_skip(liar, ahead);
            assert_true(rs_seal_close(liar, group, 0, p.plain, 8, NULL, 0, lie));
            assert_int_equal(rs_seal_open(p.to, group, 0, lie, SIZE, p.head, sizeof p.head, p.rest), RS_SEAL_RIGHT);
            for (unsigned i = 0; i < 100; i++) {
                make(&p, group, 0, 8, 0);
                assert_int_equal(look(&p, group, 0, SIZE), shared ? RS_SEAL_LATE : RS_SEAL_REPLAYED);
            }
        }
        memcpy(p.sealed, early, SIZE);
        p.sealed[SIZE - 1] ^= 1; /* late or not, its tag must be right */
        assert_int_equal(look(&p, group, 0, SIZE), shared ? RS_SEAL_FORGED : RS_SEAL_REPLAYED);
        rs_seal_stats_get(p.to, &stats);
        assert_int_equal(stats.late, shared ? 310 : 0);
        rs_seal_free(liar);
        stop(&p);
    }
}

/* No transmitter goes beyond RS_SEAL_PACKETS with a key: nobody may in its name. */
static void counters__beyond_the_bound_are_refused(void **state) {
    (void)state;
    static pair p;
    start(&p, rs_cipher_here());
    size_t n = make(&p, group, 0, 8, 0);
    p.sealed[4] = 0x80; /* the counter's byte of 2^24 to 2^31: 2^31 + 1 */
    assert_int_equal(look(&p, group, 0, n), RS_SEAL_FORGED);
    p.sealed[4] = 0;
    assert_int_equal(look(&p, group, 0, n), RS_SEAL_RIGHT);
    stop(&p);
}

/* -------------------------------------------------------------------------------------------------------- epochs */

static void epochs__older_ones_are_taken_for_a_while(void **state) {
    (void)state;
    static pair p;
    start(&p, rs_cipher_here());
    static uint8_t old[2][8 + RS_SEAL_MORE];
    for (unsigned i = 0; i < 2; i++) {
        size_t n = make(&p, group, 0, 8, 0);
        memcpy(old[i], p.sealed, n);
    }
    rs_seal *both[2] = {p.from, p.to};
    for (unsigned i = 0; i < 2; i++) {
        assert_true(rs_seal_learn(both[i], 8, key_b, 0x300, 10 * S));
        assert_int_equal(rs_seal_tick(both[i], 9 * S), 10 * S);
        assert_int_equal(rs_seal_epoch(both[i]), 7);
    }
    (void)rs_seal_tick(p.from, 10 * S);
    assert_int_equal(rs_seal_epoch(p.from), 8);
    size_t n = make(&p, group, 0, 8, 0);
    assert_int_equal(look(&p, group, 0, n), RS_SEAL_RIGHT); /* taken before it is sealed with here */
    assert_int_equal(rs_seal_tick(p.to, 10 * S), 10 * S + RS_SEAL_RETIRE);
    memcpy(p.sealed, old[0], n);
    assert_int_equal(look(&p, group, 0, n), RS_SEAL_RIGHT);
    assert_int_equal(look(&p, group, 0, n), RS_SEAL_REPLAYED);
    assert_int_equal(rs_seal_tick(p.to, 10 * S + RS_SEAL_RETIRE), RS_NEVER);
    memcpy(p.sealed, old[1], n);
    assert_int_equal(look(&p, group, 0, n), RS_SEAL_EPOCH);
    assert_int_equal(look(&p, group, 0, n), RS_SEAL_EPOCH);
    rs_seal_stats stats;
    rs_seal_stats_get(p.to, &stats);
    assert_int_equal(stats.streams, 1);
    stop(&p);
}

/* Of a key that is used again no nonce is: the next number of the transmitter's makes another key of it. */
static void keys__end_at_their_bound(void **state) {
    (void)state;
    static pair p;
    start(&p, rs_cipher_here());
    size_t n = make(&p, group, 0, 8, 0);
    assert_int_equal(p.sealed[8], 0);
    assert_int_equal(look(&p, group, 0, n), RS_SEAL_RIGHT);
    for (unsigned i = 1; i < RS_SEAL_NUMBERS; i++) {
        rs_seal_skip(p.from, RS_SEAL_PACKETS + 1);
        make(&p, group, 0, 8, 0);
        assert_int_equal(p.sealed[8], i);
        assert_int_equal(look(&p, group, 0, n), RS_SEAL_RIGHT);
    }
    rs_seal_skip(p.from, RS_SEAL_PACKETS + 1);
    assert_false(rs_seal_close(p.from, group, 0, p.plain, 8, NULL, 0, p.sealed)); /* all used up: not one more */
    assert_true(rs_seal_learn(p.from, 9, key_b, 0x500, 0));
    assert_true(rs_seal_ready(p.from));
    stop(&p);
}

/* Hours of a transfer: its sender draws another key as soon as the newest one is an hour old. */
static void keys__of_an_hour_are_named(void **state) {
    (void)state;
    enum { TRANSFERS = 40, HOURS = 5 };
    const rs_time hour = 3600 * S;
    rs_keyring *ring = rs_keyring_new(rs_cipher_here());
    uint64_t ids[TRANSFERS + 1];
    unsigned drawn[TRANSFERS + 1] = {0};
    assert_non_null(rs_keyring_take(ring, RS_KEYS_TRANSFER_OUT, TRANSFERS, 0)); /* it has none yet */
    assert_non_null(rs_keyring_take(ring, RS_KEYS_TRANSFER_IN, 1, 0));
    assert_true(rs_seal_learn(rs_keyring_find(ring, RS_KEYS_TRANSFER_IN, 1), 1, key_a, 0, 0));
    for (uint64_t i = 0; i < TRANSFERS; i++) {
        rs_seal *seal = rs_keyring_take(ring, RS_KEYS_TRANSFER_OUT, i, 0);
        assert_true(rs_seal_learn(seal, 1, key_a, 0, (rs_time)i * S)); /* begun one after the other */
    }
    for (rs_time now = 0; now < HOURS * hour; now += S) {
        uint32_t count = rs_keyring_old(ring, RS_KEYS_TRANSFER_OUT, now, hour, ids, TRANSFERS + 1);
        for (uint32_t i = 0; i < count; i++) {
            rs_seal *seal = rs_keyring_find(ring, RS_KEYS_TRANSFER_OUT, ids[i]);
            assert_true(ids[i] < TRANSFERS && rs_seal_since(seal) + hour == now);
            drawn[ids[i]]++;
            assert_true(rs_seal_learn(seal, (uint16_t)(1 + drawn[ids[i]]), key_b, 0, now));
            (void)rs_seal_tick(seal, now);
            assert_int_equal(rs_seal_epoch(seal), 1 + drawn[ids[i]]);
        }
    }
    for (uint32_t i = 0; i < TRANSFERS; i++)
        assert_int_equal(drawn[i], HOURS - 1);
    assert_int_equal(drawn[TRANSFERS], 0);
    assert_int_equal(rs_keyring_old(ring, RS_KEYS_TRANSFER_OUT, (HOURS + 9) * hour, hour, ids, 3), 3);
    rs_keyring_free(ring);
}

static void keys__without_any_nothing_is_sealed_or_opened(void **state) {
    (void)state;
    static pair p;
    start(&p, rs_cipher_here());
    rs_seal *nobody = rs_seal_new(rs_cipher_here());
    assert_false(rs_seal_ready(nobody));
    assert_false(rs_seal_close(nobody, group, 0, p.plain, 8, NULL, 0, p.sealed));
    size_t n = make(&p, group, 0, 8, 0);
    assert_int_equal(rs_seal_open(nobody, group, 0, p.sealed, n, p.head, 32, p.rest), RS_SEAL_EPOCH);
    assert_true(rs_seal_learn(nobody, 7, key_b, 0x300, 0)); /* of another network, by chance by the same number */
    assert_int_equal(rs_seal_open(nobody, group, 0, p.sealed, n, p.head, 32, p.rest), RS_SEAL_FORGED);
    assert_true(rs_seal_learn(nobody, 7, key_a, 0x300, 0));
    assert_int_equal(rs_seal_open(nobody, group, 0, p.sealed, n, p.head, 32, p.rest), RS_SEAL_RIGHT);
    for (uint16_t i = 20; i < 40; i++) /* as many as one likes: the oldest give way */
        assert_true(rs_seal_learn(nobody, i, key_b, 0x300, i * S));
    (void)rs_seal_tick(nobody, 100 * S);
    assert_int_equal(rs_seal_epoch(nobody), 39);
    rs_seal_free(nobody);
    stop(&p);
}

/* Many transmitters, of which each is its own: what one sent is not taken as another's. */
static void transmitters__are_told_apart(void **state) {
    (void)state;
    enum { MANY = 300 };
    static pair p;
    start(&p, rs_cipher_here());
    rs_seal *many[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        many[i] = rs_seal_new(i % 2 ? RS_AES_256_GCM : RS_CHACHA20_POLY1305);
        assert_true(rs_seal_learn(many[i], 7, key_a, (i + 3) * RS_SEAL_NUMBERS, 0));
    }
    for (unsigned round = 0; round < 3; round++)
        for (uint32_t i = 0; i < MANY; i++) {
            assert_true(rs_seal_close(many[i], group, 0, p.plain, 20, NULL, 0, p.sealed));
            assert_int_equal(look(&p, group, 0, 20 + RS_SEAL_MORE), RS_SEAL_RIGHT);
            assert_int_equal(look(&p, group, 0, 20 + RS_SEAL_MORE), RS_SEAL_REPLAYED);
        }
    rs_seal_stats stats;
    rs_seal_stats_get(p.to, &stats);
    assert_int_equal(stats.streams, MANY);
    for (uint32_t i = 0; i < MANY; i++)
        rs_seal_free(many[i]);
    stop(&p);
}

/* Whoever is given a transmitter's key can seal as it, to the one who has the epoch's, and do nothing else. */
static void transmitters__are_given_keys_of_their_own(void **state) {
    (void)state;
    uint8_t own[32], expected[32], all[32], text[20] = {1}, sealed[20 + RS_SEAL_SHOWN + RS_SEAL_MORE], out[64];
    const rs_seal_place anywhere = {0, 0};
    for (unsigned i = 0; i < 32; i++)
        all[i] = (uint8_t)i;
    assert_true(rs_seal_transmitter_key(all, 0x0a000001, 7, own));
    bytes_of("22cc486b748f07b63791e5affc48669ce40d4266f11e5e9a32fba289d9c93bcd",
             expected); /* as the manager makes it */
    assert_memory_equal(own, expected, 32);
    rs_seal *from = rs_seal_new(rs_cipher_here()), *to = rs_seal_new_named();
    assert_true(rs_seal_learn_own(from, 3, own, 7) && rs_seal_learn(to, 3, all, 0, 0));
    assert_true(rs_seal_close_shown(from, anywhere, 0x0a000001, text, 20, NULL, 0, sealed));
    assert_int_equal(rs_seal_shown(sealed), 0x0a000001);
    assert_int_equal(rs_seal_open(to, anywhere, 4, sealed, sizeof sealed, out, sizeof out, NULL), RS_SEAL_RIGHT);
    assert_memory_equal(out + 4, text, 20);
    assert_int_equal(rs_seal_open(to, anywhere, 4, sealed, sizeof sealed, out, sizeof out, NULL), RS_SEAL_REPLAYED);
    assert_int_equal(rs_seal_open(from, anywhere, 4, sealed, sizeof sealed, out, sizeof out, NULL), RS_SEAL_EPOCH);
    /* it cannot speak as another, nor as another of its own starts */
    assert_true(rs_seal_close_shown(from, anywhere, 0x0a000002, text, 20, NULL, 0, sealed));
    assert_int_equal(rs_seal_open(to, anywhere, 4, sealed, sizeof sealed, out, sizeof out, NULL), RS_SEAL_FORGED);
    assert_false(rs_seal_close_shown(to, anywhere, 0x0a000001, text, 20, NULL, 0, sealed));
    /* the same key told twice: its counter goes on; one that is used up is not used again */
    uint64_t counter = rs_seal_counter(from);
    assert_true(rs_seal_learn_own(from, 3, own, 7));
    assert_true(rs_seal_close_shown(from, anywhere, 0x0a000001, text, 20, NULL, 0, sealed));
    assert_int_equal(rs_seal_counter(from), counter + 1);
    assert_int_equal(sealed[RS_SEAL_SHOWN + 1], 3);
    rs_seal_skip(from, RS_SEAL_PACKETS + 1);
    assert_false(rs_seal_close_shown(from, anywhere, 0x0a000001, text, 20, NULL, 0, sealed));
    assert_false(rs_seal_ready(from));
    rs_seal_free(from);
    rs_seal_free(to);
}

static bool none_needed(void *context, rs_keys_kind kind, uint64_t id) {
    (void)kind;
    return context && id == *(uint64_t *)context;
}

/* Scopes go when nothing needs them; what they counted stays. */
static void scopes__are_kept_while_they_are_needed(void **state) {
    (void)state;
    uint64_t kept = 40;
    rs_keyring *ring = rs_keyring_new(rs_cipher_here());
    uint8_t text[8] = {0}, sealed[8 + RS_SEAL_MORE];
    for (uint64_t id = 0; id < 5000; id++) {
        rs_seal *seal = rs_keyring_take(ring, RS_KEYS_TRANSFER_OUT, id, S);
        assert_true(seal && rs_seal_learn(seal, 1, key_a, 0, 0));
        assert_true(rs_seal_close(seal, group, 0, text, 8, NULL, 0, sealed));
    }
    assert_null(rs_keyring_find(ring, RS_KEYS_TRANSFER_IN, 7));
    assert_non_null(rs_keyring_find(ring, RS_KEYS_TRANSFER_OUT, 7));
    (void)rs_keyring_tick(ring, S, none_needed, &kept);
    assert_int_equal(rs_keyring_scopes(ring, RS_KEYS_TRANSFER_OUT), 5000);
    (void)rs_keyring_tick(ring, S + RS_KEYRING_LINGER, none_needed, &kept);
    assert_int_equal(rs_keyring_scopes(ring, RS_KEYS_TRANSFER_OUT), 1);
    assert_non_null(rs_keyring_find(ring, RS_KEYS_TRANSFER_OUT, kept));
    assert_null(rs_keyring_find(ring, RS_KEYS_TRANSFER_OUT, 7));
    rs_seal_stats stats;
    rs_keyring_stats(ring, &stats);
    assert_int_equal(stats.sealed, 5000);
    for (rs_peer peer = 0; peer < 100; peer++)
        assert_true(rs_keyring_told(ring, RS_KEYS_TRANSFER_OUT, kept, peer % 50));
    uint32_t count;
    const rs_peer *told = rs_keyring_all_told(ring, RS_KEYS_TRANSFER_OUT, kept, &count);
    assert_int_equal(count, 50);
    assert_true(rs_keyring_untold(ring, RS_KEYS_TRANSFER_OUT, kept, 3));
    assert_false(rs_keyring_untold(ring, RS_KEYS_TRANSFER_OUT, kept, 3));
    for (uint32_t i = 0; i < count; i++)
        assert_int_not_equal(told[i], 3);
    rs_keyring_drop(ring, RS_KEYS_TRANSFER_OUT, kept);
    assert_null(rs_keyring_find(ring, RS_KEYS_TRANSFER_OUT, kept));
    rs_keyring_free(ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hkdf__gives_what_rfc_5869_says),
        cmocka_unit_test(ciphers__give_what_their_standards_say),
        cmocka_unit_test(aes_gcm__is_openssls_at_every_length),
        cmocka_unit_test(packets__of_any_size_come_back_as_they_were),
        cmocka_unit_test(packets__that_were_changed_anywhere_are_refused),
        cmocka_unit_test(garbage__is_refused_and_leaves_nothing),
        cmocka_unit_test(counters__are_taken_once_whatever_their_order),
        cmocka_unit_test(counters__of_another_holder_of_the_key_silence_nobody),
        cmocka_unit_test(counters__beyond_the_bound_are_refused),
        cmocka_unit_test(epochs__older_ones_are_taken_for_a_while),
        cmocka_unit_test(keys__end_at_their_bound),
        cmocka_unit_test(keys__of_an_hour_are_named),
        cmocka_unit_test(keys__without_any_nothing_is_sealed_or_opened),
        cmocka_unit_test(transmitters__are_told_apart),
        cmocka_unit_test(transmitters__are_given_keys_of_their_own),
        cmocka_unit_test(scopes__are_kept_while_they_are_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
