/* The loop's clock: it stands still while the process does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/loop.h"

static rs_time machine; /* what the machine's clock says */
static rs_time step;    /* each reading of it takes so long */

static rs_time read_machine(void) {
    return machine += step;
}

static rs_loop *begin(void) {
    machine = 1000 * RS_SECOND;
    step = 0;
    rs_loop *loop = rs_loop_new();
    assert_non_null(loop);
    rs_loop_clock_set(loop, read_machine);
    return loop;
}

static void clock__stands_still_while_the_process_does(void **state) {
    (void)state;
    rs_loop *loop = begin();
    const rs_time lengths[] = {1, 4, 10, 60};
    rs_time lost = 0;
    for (unsigned i = 0; i < 4; i++) {
        rs_time before = rs_loop_refresh(loop);
        machine += 200 * RS_MILLISECOND; /* as any program is late now and then */
        assert_int_equal(rs_loop_refresh(loop), before + 200 * RS_MILLISECOND);
        machine += lengths[i] * RS_SECOND;
        lost += lengths[i] * RS_SECOND;
        assert_int_equal(rs_loop_refresh(loop), before + 200 * RS_MILLISECOND);
        assert_int_equal(rs_loop_now(loop), before + 200 * RS_MILLISECOND);
        assert_int_equal(rs_loop_paused(loop).count, i + 1);
        assert_int_equal(rs_loop_paused(loop).time, lost);
    }
    rs_loop_free(loop);
}

static void begin__a_long_start_is_no_pause(void **state) {
    (void)state;
    rs_loop *loop = begin();
    rs_time before = rs_loop_now(loop);
    machine += 2 * RS_SECOND;
    rs_loop_refresh(loop);
    machine += 1 * RS_SECOND;
    rs_loop_begin(loop);
    assert_int_equal(rs_loop_now(loop), before + 3 * RS_SECOND);
    assert_int_equal(rs_loop_paused(loop).count, 0);
    machine += 3 * RS_SECOND;
    rs_loop_refresh(loop);
    assert_int_equal(rs_loop_paused(loop).count, 1);
    rs_loop_free(loop);
}

static void turn__is_no_longer_than_what_a_pause_is_seen_by(void **state) {
    (void)state;
    rs_loop *loop = rs_loop_new();
    assert_non_null(loop);
    rs_time before = rs_loop_now(loop);
    assert_true(rs_loop_turn(loop, RS_NEVER)); /* nothing is watched: it would wait for ever */
    assert_true(rs_loop_turn(loop, before + 3600 * RS_SECOND));
    assert_true(rs_loop_now(loop) > before);
    rs_loop_free(loop);
}

static void turn__a_deadline_in_a_pause_is_not_over_when_it_ends(void **state) {
    (void)state;
    rs_loop *loop = begin();
    rs_time deadline = rs_loop_now(loop) + 5 * RS_SECOND;
    step = 10 * RS_SECOND; /* the process is stopped between each two readings */
    assert_true(rs_loop_turn(loop, deadline));
    assert_true(rs_loop_now(loop) < deadline);
    rs_loop_free(loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock__stands_still_while_the_process_does),
        cmocka_unit_test(begin__a_long_start_is_no_pause),
        cmocka_unit_test(turn__is_no_longer_than_what_a_pause_is_seen_by),
        cmocka_unit_test(turn__a_deadline_in_a_pause_is_not_over_when_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
