#include "check.h"

#include "core/base/seqset.h"

static void add_and_remove__count(void **state) {
    (void)state;
    uint64_t words[4] = {0};
    rs_seqset set;
    assert_int_equal(rs_seqset_words(200), 4);
    rs_seqset_init(&set, 200, words);
    assert_true(rs_seqset_add(&set, 0) && rs_seqset_add(&set, 63) && rs_seqset_add(&set, 64) &&
                rs_seqset_add(&set, 199));
    assert_false(rs_seqset_add(&set, 63));
    assert_false(rs_seqset_add(&set, 200));
    assert_false(rs_seqset_has(&set, UINT64_MAX));
    assert_int_equal(set.count, 4);
    assert_true(rs_seqset_remove(&set, 64));
    assert_false(rs_seqset_remove(&set, 64));
    assert_int_equal(set.count, 3);
    rs_seqset_clear(&set);
    assert_false(rs_seqset_has(&set, 0));
}

static void add_range__agrees_with_a_plain_loop(void **state) {
    (void)state;
    srandom(2);
    for (int round = 0; round < 1000; round++) {
        uint64_t a[5] = {0}, b[5] = {0}, size = 1 + (uint64_t)random() % 320, fresh = 0;
        rs_seqset one, two;
        rs_seqset_init(&one, size, a);
        rs_seqset_init(&two, size, b);
        for (uint64_t sn = 0; sn < size; sn += 1 + (uint64_t)random() % 5) {
            rs_seqset_add(&one, sn);
            rs_seqset_add(&two, sn);
        }
        uint64_t from = (uint64_t)random() % size, end = from + (uint64_t)random() % (size + 10 - from);
        for (uint64_t sn = from; sn < end; sn++)
            fresh += rs_seqset_add(&one, sn);
        assert_int_equal(rs_seqset_add_range(&two, from, end), fresh);
        assert_int_equal(two.count, one.count);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* Against a loop over every sn, for random sets. */
static void next__agrees_with_a_plain_loop(void **state) {
    (void)state;
    srandom(1);
    for (int round = 0; round < 300; round++) {
        uint64_t a[5] = {0}, b[5] = {0}, size = 1 + (uint64_t)random() % 300;
        rs_seqset one, two;
        rs_seqset_init(&one, size, a);
        rs_seqset_init(&two, size, b);
        long density = random() % 100;
        for (uint64_t sn = 0; sn < size; sn++) {
            if (random() % 100 < density)
                rs_seqset_add(&one, sn);
            if (random() % 100 < density / 4)
                rs_seqset_add(&two, sn);
        }
        uint64_t from = (uint64_t)random() % size, end = from + (uint64_t)random() % (size - from + 1);
        uint64_t absent = from, present = from;
        while (absent < end && (rs_seqset_has(&one, absent) || rs_seqset_has(&two, absent)))
            absent++;
        while (present < end && !rs_seqset_has(&one, present) && !rs_seqset_has(&two, present))
            present++;
        assert_int_equal(rs_seqset_next_absent(&one, &two, from, end), absent);
        assert_int_equal(rs_seqset_next_present(&one, &two, from, end), present);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_and_remove__count),
        cmocka_unit_test(add_range__agrees_with_a_plain_loop),
        cmocka_unit_test(next__agrees_with_a_plain_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
