#include "check.h"

#include "core/base/heap.h"
#include "core/base/timers.h"

#define TIMERS 50

static void first__is_the_earliest_whatever_was_set_and_unset(void **state) {
    (void)state;
    rs_timers timers = {0};
    rs_timer timer[TIMERS] = {0};
    rs_time due[TIMERS];
    assert_int_equal(rs_timers_reserve(&timers, &rs_heap, TIMERS), RS_OK);
    for (int i = 0; i < TIMERS; i++)
        due[i] = RS_NEVER;
    srandom(3);
    for (int round = 0; round < 5000; round++) {
        long i = random() % TIMERS;
        due[i] = random() % 4 ? random() % 1000 : RS_NEVER;
        rs_timer_set(&timers, &timer[i], due[i]);
        rs_time earliest = RS_NEVER;
        for (int k = 0; k < TIMERS; k++)
            earliest = due[k] < earliest ? due[k] : earliest;
        const rs_timer *first = rs_timers_first(&timers);
        assert_int_equal(first ? first->due : RS_NEVER, earliest);
    }
    rs_timers_free(&timers, &rs_heap);
}

static void equal_deadlines__fire_in_the_order_set(void **state) {
    (void)state;
    rs_timers timers = {0};
    rs_timer timer[TIMERS] = {0};
    assert_int_equal(rs_timers_reserve(&timers, &rs_heap, TIMERS), RS_OK);
    for (int i = 0; i < TIMERS; i++)
        rs_timer_set(&timers, &timer[i], 7);
    for (int i = 0; i < TIMERS; i++) {
        assert_ptr_equal(rs_timers_first(&timers), &timer[i]);
        rs_timer_set(&timers, &timer[i], RS_NEVER);
    }
    assert_null(rs_timers_first(&timers));
    rs_timers_free(&timers, &rs_heap);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first__is_the_earliest_whatever_was_set_and_unset),
        cmocka_unit_test(equal_deadlines__fire_in_the_order_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
