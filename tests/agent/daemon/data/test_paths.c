/* How long an agent waits for a path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/data/paths.h"

static void wait__of_the_program_counts(void **state) {
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        assert_in_range(rs_paths_wait(250, queued), 250 * RS_MILLISECOND, 3 * RS_SECOND);
        assert_in_range(rs_paths_wait(600000, queued), 600 * RS_SECOND, 603 * RS_SECOND);
    }
}

/* A manager that was started with --wait 10min answers after ten minutes. */
static void wait__else_the_managers_counts_from_when_it_said_so(void **state) {
    (void)state;
    assert_in_range(rs_paths_wait(0, false), 60 * RS_SECOND, 63 * RS_SECOND);
    assert_in_range(rs_paths_wait(0, true), 3600 * RS_SECOND, 3603 * RS_SECOND); /* the most it can be told */
}

/* It came back in the last moment, and has not heard of its switches yet. */
static void wait__of_a_manager_that_came_back_is_no_shorter_than_a_joins(void **state) {
    (void)state;
    const rs_time at = 100 * RS_SECOND;
    assert_int_equal(rs_paths_bound_back(at + RS_SECOND, at, 0), at + 10 * RS_SECOND);
    assert_int_equal(rs_paths_bound_back(at + RS_SECOND, at, 60000), at + 10 * RS_SECOND);
    assert_in_range(rs_paths_bound_back(at + RS_MILLISECOND, at, 250), at + 250 * RS_MILLISECOND, at + 3 * RS_SECOND);
    assert_int_equal(rs_paths_bound_back(at + 40 * RS_SECOND, at, 60000), at + 40 * RS_SECOND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait__of_the_program_counts),
        cmocka_unit_test(wait__else_the_managers_counts_from_when_it_said_so),
        cmocka_unit_test(wait__of_a_manager_that_came_back_is_no_shorter_than_a_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
