/* The digest tree against a plain reference, with fragments in every order. */
#include "daemon/store/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#include "daemon/store/xxh3.h"

#define MIB ((size_t)1 << 20)

static uint64_t seed;

static uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint8_t *random_bytes(uint64_t *state, size_t size) {
    uint8_t *bytes = malloc(size ? size : 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_next(state);
    return bytes;
}

static size_t plain(uint8_t algorithm, const uint8_t *data, size_t length, uint8_t *out) {
    if (algorithm == RS_DIGEST_XXH3) {
        XXH128_hash_t hash = XXH3_128bits(data, length);
        for (int i = 0; i < 8; i++) {
            out[i] = (uint8_t)(hash.high64 >> (56 - 8 * i));
            out[8 + i] = (uint8_t)(hash.low64 >> (56 - 8 * i));
        }
        return 16;
    }
    unsigned int width = 0;
    assert_int_equal(EVP_Digest(data, length, out, &width, EVP_sha256(), NULL), 1);
    return width;
}

/* docs/protocol.md in its plainest form. */
static rs_digest reference(uint8_t algorithm, const uint8_t *data, size_t size) {
    rs_digest digest = {.algorithm = algorithm};
    uint8_t *leaves = malloc((size / MIB + 1) * 32);
    assert_non_null(leaves);
    size_t used = 0;
    for (size_t at = 0; at < size; at += MIB)
        used += plain(algorithm, data + at, size - at < MIB ? size - at : MIB, leaves + used);
    digest.length = (uint8_t)plain(algorithm, leaves, used, digest.value);
    free(leaves);
    return digest;
}

/* Fragments in random order, or in order but for some that come late. */
static size_t *make_order(size_t count, bool shuffled, uint64_t *state) {
    size_t *order = calloc(count + 1, sizeof *order), late = 0;
    assert_non_null(order);
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; shuffled && i > 1; i--) {
        size_t j = random_next(state) % i, keep = order[i - 1];
        order[i - 1] = order[j];
        order[j] = keep;
    }
    for (size_t i = 0; !shuffled && i + late < count; i++)
        if (random_next(state) % 100 == 0) {
            size_t keep = order[i];
            memmove(&order[i], &order[i + 1], (count - i - 1) * sizeof *order);
            order[count - 1] = keep;
            late++;
        }
    return order;
}

/* Bytes of fragments that did not come yet are wrong. */
static void check_order(uint8_t algorithm, size_t size, size_t fragment, uint64_t step, bool shuffled,
                        uint64_t *state) {
    uint8_t *data = random_bytes(state, size), *came = random_bytes(state, size);
    rs_digest expected = reference(algorithm, data, size), got;
    rs_digest_tree *tree = rs_digest_tree_new(algorithm, size);
    assert_non_null(tree);
    size_t count = (size + fragment - 1) / fragment, warm = random_next(state) % 3;
    size_t *order = make_order(count, shuffled, state);
    for (size_t i = 0; i < count; i++) {
        size_t at = order[i] * fragment, length = size - at < fragment ? size - at : fragment;
        assert_false(rs_digest_tree_final(tree, &got));
        memcpy(came + at, data + at, length);
        assert_true(rs_digest_tree_present(tree, at, length));
        if (warm == 2 || (warm == 1 && random_next(state) % 2))
            rs_digest_tree_warm(tree, came);
        if (step)
            (void)rs_digest_tree_step(tree, came, step);
    }
    while (rs_digest_tree_pending(tree))
        assert_true(rs_digest_tree_step(tree, came, 2) > 0);
    assert_true(rs_digest_tree_final(tree, &got));
    assert_true(rs_digest_equal(&expected, &got));
    rs_digest_tree_free(tree);
    free(order);
    free(came);
    free(data);
}

static void present__any_order_and_size_gives_the_reference(void **context) {
    (void)context;
    static const size_t sizes[] = {0, 1, 8895, 8896, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 12345};
    uint64_t state = seed;
    for (uint8_t algorithm = RS_DIGEST_XXH3; algorithm <= RS_DIGEST_SHA256; algorithm++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            check_order(algorithm, sizes[i], 8896, 1, true, &state);
            check_order(algorithm, sizes[i], 1408, 0, true, &state);
            check_order(algorithm, sizes[i], 3 * MIB, 1, true, &state);
            for (unsigned again = 0; again < 4; again++) {
                size_t fragment = 1 + random_next(&state) % (again == 0 ? 2 * MIB : 20000);
                check_order(algorithm, sizes[i], fragment, random_next(&state) % 3, false, &state);
            }
        }
}

static void warm__in_order_leaves_nothing_to_do(void **context) {
    (void)context;
    uint64_t state = seed;
    size_t size = 4 * MIB + 99;
    uint8_t *data = random_bytes(&state, size);
    for (uint8_t algorithm = RS_DIGEST_XXH3; algorithm <= RS_DIGEST_SHA256; algorithm++) {
        rs_digest expected = reference(algorithm, data, size), got;
        rs_digest_tree *tree = rs_digest_tree_new(algorithm, size);
        assert_non_null(tree);
        for (size_t at = 0, length = 8896; at < size; at += length) {
            length = size - at < length ? size - at : length;
            assert_true(rs_digest_tree_present(tree, at, length));
            rs_digest_tree_warm(tree, data);
            assert_int_equal(rs_digest_tree_pending(tree), 0);
        }
        assert_true(rs_digest_tree_final(tree, &got));
        assert_true(rs_digest_equal(&expected, &got));
        rs_digest_tree_free(tree);
    }
    free(data);
}

static void xxh3__every_way_gives_the_same(void **context) {
    (void)context;
    uint64_t state = seed;
    uint8_t *data = random_bytes(&state, MIB), plain_sum[RS_XXH3_BYTES], best_sum[RS_XXH3_BYTES];
    const rs_xxh3 *ways[] = {&rs_xxh3_plain, rs_xxh3_best()};
    for (unsigned again = 0; again < 100; again++) {
        size_t size = random_next(&state) % (again < 50 ? MIB : 600);
        rs_xxh3_plain.whole(data, size, plain_sum);
        for (unsigned w = 0; w < 2; w++) {
            ways[w]->whole(data, size, best_sum);
            assert_memory_equal(plain_sum, best_sum, RS_XXH3_BYTES);
            void *stream = ways[w]->create();
            ways[w]->begin(stream);
            for (size_t at = 0, part; at < size; at += part) {
                part = 1 + random_next(&state) % 5000;
                part = part < size - at ? part : size - at;
                ways[w]->add(stream, data + at, part);
            }
            ways[w]->end(stream, best_sum);
            ways[w]->release(stream);
            assert_memory_equal(plain_sum, best_sum, RS_XXH3_BYTES);
        }
    }
    free(data);
}

static void present__refuses_what_cannot_be_and_changes_nothing(void **context) {
    (void)context;
    uint64_t state = seed;
    size_t size = 2 * MIB + 100;
    uint8_t *data = random_bytes(&state, size);
    rs_digest expected = reference(RS_DIGEST_XXH3, data, size), got;
    rs_digest_tree *tree = rs_digest_tree_new(RS_DIGEST_XXH3, size);
    assert_non_null(tree);
    assert_false(rs_digest_tree_present(tree, size, 1));
    assert_false(rs_digest_tree_present(tree, UINT64_MAX, 2));
    assert_false(rs_digest_tree_present(tree, 1, UINT64_MAX));
    assert_true(rs_digest_tree_present(tree, 0, MIB));
    assert_false(
        rs_digest_tree_present(tree, MIB - 1, MIB)); /* its first byte is one too many: the second chunk stays empty */
    assert_true(rs_digest_tree_present(tree, MIB, MIB));
    assert_int_equal(rs_digest_tree_pending(tree), 2);
    assert_true(rs_digest_tree_present(tree, 2 * MIB, 100));
    assert_true(rs_digest_tree_present(tree, size, 0));
    assert_int_equal(rs_digest_tree_step(tree, data, 10), 3);
    assert_true(rs_digest_tree_final(tree, &got));
    assert_true(rs_digest_equal(&expected, &got));
    rs_digest_tree_free(tree);
    free(data);
}

static void step_shared__equals_memory_and_tells_a_short_file(void **context) {
    (void)context;
    uint64_t state = seed;
    size_t size = 3 * MIB + 77;
    uint8_t *data = random_bytes(&state, size);
    rs_digest expected = reference(RS_DIGEST_XXH3, data, size), got;
    int fd = memfd_create("digest", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), size);
    uint8_t *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    rs_digest_tree *tree = rs_digest_tree_new(RS_DIGEST_XXH3, size);
    assert_non_null(tree);
    rs_digest_tree_all_present(tree);
    assert_int_equal(rs_digest_tree_step_shared(tree, map, 1), 1);
    assert_int_equal(rs_digest_tree_step_shared(tree, map, 100), 3);
    assert_true(rs_digest_tree_final(tree, &got));
    assert_true(rs_digest_equal(&expected, &got));
    rs_digest_tree_free(tree);

    tree = rs_digest_tree_new(RS_DIGEST_XXH3, size);
    assert_non_null(tree);
    rs_digest_tree_all_present(tree);
    assert_int_equal(ftruncate(fd, (off_t)MIB + 5), 0);
    errno = 0;
    assert_int_equal(rs_digest_tree_follow_shared(tree, map, MIB + 5), 1);
    assert_int_equal(rs_digest_tree_follow_shared(tree, map, size), -1);
    assert_int_equal(errno, EIO);
    errno = 0;
    assert_int_equal(rs_digest_tree_step_shared(tree, map, 100), -1);
    assert_int_equal(errno, EIO);
    assert_false(rs_digest_tree_final(tree, &got));
    rs_digest_tree_free(tree);
    munmap(map, size);
    close(fd);
    free(data);
}

/* Bytes that were not reached yet are wrong; now and then whole chunks are stepped over. */
static void follow_shared__takes_no_more_than_it_may(void **context) {
    (void)context;
    uint64_t state = seed;
    const uint8_t algorithms[] = {RS_DIGEST_XXH3, RS_DIGEST_SHA256};
    for (int round = 0; round < 12; round++) {
        uint8_t algorithm = algorithms[round % 2];
        size_t size = 1 + random_next(&state) % (4 * MIB), there = 0, done = 0;
        uint8_t *data = random_bytes(&state, size), *came = random_bytes(&state, size);
        rs_digest expected = reference(algorithm, data, size), got;
        rs_digest_tree *tree = rs_digest_tree_new(algorithm, size);
        assert_non_null(tree);
        rs_digest_tree_all_present(tree);
        while (there < size) {
            size_t more = random_next(&state) % (round < 6 ? 100000 : 3 * MIB), at = there;
            there = more < size - there ? there + more : size;
            memcpy(came + at, data + at, there - at);
            bool step = random_next(&state) % 8 == 0 && there >= (done + 1) * MIB;
            int64_t did = step ? rs_digest_tree_step_shared(tree, came, 1)
                               : rs_digest_tree_follow_shared(tree, came, random_next(&state) % 4 ? there : at);
            assert_true(did >= 0);
            done += (size_t)did;
            assert_true(done <= there / MIB + (there == size));
        }
        assert_true(rs_digest_tree_follow_shared(tree, came, size) >= 0);
        assert_int_equal(rs_digest_tree_pending(tree), 0);
        assert_int_equal(rs_digest_tree_follow_shared(tree, came, size), 0);
        assert_true(rs_digest_tree_final(tree, &got));
        assert_true(rs_digest_equal(&expected, &got));
        rs_digest_tree_free(tree);
        free(data);
        free(came);
    }
}

static void one_wrong_byte_is_another_digest(void **context) {
    (void)context;
    uint64_t state = seed;
    size_t size = 2 * MIB + 1;
    uint8_t *data = random_bytes(&state, size);
    rs_digest before = reference(RS_DIGEST_XXH3, data, size), after;
    data[random_next(&state) % size] ^= 1;
    rs_digest_tree *tree = rs_digest_tree_new(RS_DIGEST_XXH3, size);
    assert_non_null(tree);
    rs_digest_tree_all_present(tree);
    assert_int_equal(rs_digest_tree_step(tree, data, 10), 3);
    assert_true(rs_digest_tree_final(tree, &after));
    assert_false(rs_digest_equal(&before, &after));
    rs_digest_tree_free(tree);
    free(data);
}

static void new__refuses_unknown_algorithms_and_absurd_sizes(void **context) {
    (void)context;
    assert_null(rs_digest_tree_new(RS_DIGEST_NONE, 1));
    assert_null(rs_digest_tree_new(77, 1));
    assert_null(rs_digest_tree_new(RS_DIGEST_XXH3, UINT64_MAX));
}

int main(void) {
    const char *given = getenv("ROSTRUM_TEST_SEED");
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    seed += seed == 0;
    printf("# ROSTRUM_TEST_SEED=%" PRIu64 "\n", seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(present__any_order_and_size_gives_the_reference),
        cmocka_unit_test(warm__in_order_leaves_nothing_to_do),
        cmocka_unit_test(xxh3__every_way_gives_the_same),
        cmocka_unit_test(present__refuses_what_cannot_be_and_changes_nothing),
        cmocka_unit_test(follow_shared__takes_no_more_than_it_may),
        cmocka_unit_test(step_shared__equals_memory_and_tells_a_short_file),
        cmocka_unit_test(one_wrong_byte_is_another_digest),
        cmocka_unit_test(new__refuses_unknown_algorithms_and_absurd_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
