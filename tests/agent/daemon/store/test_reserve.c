/* Memory kept ready for objects (store/reserve.c). What is populated is counted by the kernel (mincore). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/store/reserve.h"

#define MIB (UINT64_C(1) << 20)

/* Bytes of the reserve that are in memory. */
static uint64_t resident(const rs_reserve *reserve) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages = reserve->size / page, found = 0;
    unsigned char *there = calloc(1, (size_t)pages);
    assert_non_null(there);
    assert_int_equal(mincore(reserve->map, (size_t)reserve->size, there), 0);
    for (uint64_t i = 0; i < pages; i++)
        found += (there[i] & 1) ? page : 0;
    free(there);
    return found;
}

static void reserve__of_nothing_does_nothing(void **state) {
    (void)state;
    rs_reserve reserve;
    assert_true(rs_reserve_open(&reserve, 0));
    assert_false(rs_reserve_fill(&reserve, 100 * MIB));
    rs_reserve_give(&reserve, 100 * MIB);
    assert_int_equal(reserve.filled, 0);
    rs_reserve_close(&reserve);
}

static void reserve__sizes_are_whole_huge_pages(void **state) {
    (void)state;
    const struct {
        uint64_t asked, size;
    } cases[] = {{1, 2 * MIB}, {2 * MIB, 2 * MIB}, {2 * MIB + 1, 4 * MIB}, {7 * MIB, 8 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_reserve reserve;
        assert_true(rs_reserve_open(&reserve, cases[i].asked));
        assert_int_equal(reserve.size, cases[i].size);
        assert_int_equal(reserve.filled, 0); /* nothing is taken from the system yet */
        rs_reserve_close(&reserve);
    }
}

static void reserve__is_filled_step_by_step_and_no_further(void **state) {
    (void)state;
    rs_reserve reserve;
    assert_true(rs_reserve_open(&reserve, 6 * MIB));
    assert_true(rs_reserve_fill(&reserve, 2 * MIB));
    assert_int_equal(reserve.filled, 2 * MIB);
    assert_in_range(resident(&reserve), 2 * MIB, 6 * MIB);
    assert_true(rs_reserve_fill(&reserve, 1)); /* whole huge pages */
    assert_int_equal(reserve.filled, 4 * MIB);
    assert_false(rs_reserve_fill(&reserve, 100 * MIB));
    assert_int_equal(reserve.filled, 6 * MIB);
    assert_int_equal(resident(&reserve), 6 * MIB);
    assert_false(rs_reserve_fill(&reserve, 2 * MIB));
    assert_int_equal(reserve.filled, 6 * MIB);
    rs_reserve_close(&reserve);
}

static void reserve__gives_back_and_is_filled_again(void **state) {
    (void)state;
    rs_reserve reserve;
    assert_true(rs_reserve_open(&reserve, 8 * MIB));
    rs_reserve_fill(&reserve, 8 * MIB);
    rs_reserve_give(&reserve, 3 * MIB); /* two huge pages */
    assert_int_equal(reserve.filled, 4 * MIB);
    assert_int_equal(resident(&reserve), 4 * MIB);
    rs_reserve_give(&reserve, 100 * MIB); /* no more than there is */
    assert_int_equal(reserve.filled, 0);
    assert_int_equal(resident(&reserve), 0);
    rs_reserve_give(&reserve, 2 * MIB);
    assert_int_equal(reserve.filled, 0);
    assert_false(rs_reserve_fill(&reserve, 8 * MIB));
    assert_int_equal(resident(&reserve), 8 * MIB);
    rs_reserve_close(&reserve);
    assert_null(reserve.map);
    rs_reserve_close(&reserve); /* twice is once */
}

static void reserve__that_no_address_space_holds_is_refused(void **state) {
    (void)state;
    rs_reserve reserve;
    assert_false(rs_reserve_open(&reserve, UINT64_C(1) << 60));
    assert_false(rs_reserve_fill(&reserve, 2 * MIB));
    rs_reserve_close(&reserve);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserve__of_nothing_does_nothing),
        cmocka_unit_test(reserve__sizes_are_whole_huge_pages),
        cmocka_unit_test(reserve__is_filled_step_by_step_and_no_further),
        cmocka_unit_test(reserve__gives_back_and_is_filled_again),
        cmocka_unit_test(reserve__that_no_address_space_holds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
