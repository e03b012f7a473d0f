#include "check.h"

#include "core/base/ranges.h"

static void add__joins_what_touches(void **state) {
    (void)state;
    rs_ranges set = {0};
    rs_ranges_add(&set, 10, 12);
    rs_ranges_add(&set, 20, 22);
    rs_ranges_add(&set, 5, 5);
    assert_int_equal(set.count, 2);
    rs_ranges_add(&set, 12, 20);
    assert_int_equal(set.count, 1);
    assert_int_equal(set.range[0].from, 10);
    assert_int_equal(set.range[0].to, 22);
    uint64_t sn;
    for (uint64_t expected = 10; expected < 22; expected++) {
        assert_true(rs_ranges_pop_sn(&set, &sn));
        assert_int_equal(sn, expected);
    }
    assert_false(rs_ranges_pop_sn(&set, &sn));
}

/* Whatever is put in is in it, in order and disjoint, within the cap; under the cap, nothing else is. */
static void add__never_loses_any(void **state) {
    (void)state;
    srandom(2);
    for (int round = 0; round < 300; round++) {
        rs_ranges set = {0};
        uint8_t in[2000] = {0};
        bool merged = false;
        long spread = round % 2 ? 300 : 1990;
        for (int i = 0; i < 100; i++) {
            uint64_t from = (uint64_t)(random() % spread), to = from + (uint64_t)(random() % 10);
            merged |= set.count == RS_RANGES_CAP;
            rs_ranges_add(&set, from, to);
            for (uint64_t sn = from; sn < to; sn++)
                in[sn] = 1;
        }
        assert_true(set.count <= RS_RANGES_CAP);
        for (uint32_t i = 0; i < set.count; i++) {
            assert_true(set.range[i].from < set.range[i].to);
            assert_true(i == 0 || set.range[i - 1].to < set.range[i].from);
            for (uint64_t sn = set.range[i].from; sn < set.range[i].to; sn++) {
                assert_true(merged || in[sn]);
                in[sn] = 0;
            }
        }
        for (size_t sn = 0; sn < sizeof in; sn++)
            assert_int_equal(in[sn], 0);
    }
}

static bool is_in(const rs_ranges *set, uint64_t sn) {
    for (uint32_t i = 0; i < set->count; i++)
        if (set->range[i].from <= sn && sn < set->range[i].to)
            return true;
    return false;
}

/* One is taken out and nothing else; a hole that would need one interval too many is not made. */
static void remove__takes_out_one(void **state) {
    (void)state;
    srandom(3);
    rs_ranges set = {0};
    for (uint64_t from = 0; from < RS_RANGES_CAP / 2; from++)
        rs_ranges_add(&set, 20 * from, 20 * from + 10);
    for (int i = 0; i < 3000; i++) {
        uint64_t sn = (uint64_t)(random() % 700);
        const rs_ranges before = set;
        assert_int_equal(rs_ranges_remove(&set, sn), is_in(&before, sn));
        assert_true(set.count <= RS_RANGES_CAP);
        bool kept = is_in(&set, sn);
        assert_true(!kept || before.count == RS_RANGES_CAP);
        for (uint64_t other = 0; other < 700; other++)
            assert_true(other == sn || is_in(&set, other) == is_in(&before, other));
    }
    assert_false(rs_ranges_remove(&set, 5000));
    set.count = 0;
    assert_false(rs_ranges_remove(&set, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add__joins_what_touches),
        cmocka_unit_test(add__never_loses_any),
        cmocka_unit_test(remove__takes_out_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
