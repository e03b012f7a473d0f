#include "check.h"

#include "core/rate/sent_times.h"

#define MS INT64_C(1000000)

static void reports__are_asked_for_by_the_clock(void **state) {
    (void)state;
    rs_sent_times m;
    int asked = 0;
    rs_sent_times_start(&m, 5 * MS, 0, MS);
    for (uint64_t pos = 100; pos < 1100; pos++) /* 10 ms of packets */
        asked += rs_sent_times_add(&m, 5 * MS + (rs_time)(pos - 100) * MS / 100, pos, false);
    assert_int_equal(asked, 10);
}

static void last_packet__asks_unless_one_just_did(void **state) {
    (void)state;
    rs_sent_times m;
    rs_sent_times_start(&m, 0, MS / 10, MS);
    assert_true(rs_sent_times_add(&m, 0, 0, false));
    assert_false(rs_sent_times_add(&m, MS / 20, 1, true));
    assert_true(rs_sent_times_add(&m, MS / 2, 2, true));
    assert_false(rs_sent_times_add(&m, MS, 3, false)); /* counted from the last one that asked */
}

static void time__is_known_between_marks_and_forgotten_later(void **state) {
    (void)state;
    rs_sent_times m;
    rs_sent_times_start(&m, 0, 0, 1);
    assert_null(rs_sent_times_at(&m, 7));
    assert_true(rs_sent_times_time(&m, 7) == RS_NEVER);
    for (uint64_t pos = 0; pos < 200; pos += 10)
        assert_true(rs_sent_times_add(&m, (rs_time)pos * 100, pos, false));
    assert_int_equal(rs_sent_times_at(&m, 39)->pos, 30);
    assert_int_equal(rs_sent_times_time(&m, 35), 3500);
    assert_int_equal(rs_sent_times_time(&m, 500), 19000); /* the newest */
    for (uint64_t pos = 200; pos < 10 * (RS_SENT_TIMES + 20); pos += 10)
        assert_true(rs_sent_times_add(&m, (rs_time)pos * 100, pos, false));
    assert_null(rs_sent_times_at(&m, 195));
    for (uint64_t pos = 205; pos < 10 * (RS_SENT_TIMES + 19); pos += 10)
        assert_int_equal(rs_sent_times_time(&m, pos), pos * 100);
}

/* Two of three answered at once, the third only after 50 ms: meanwhile one more is asked for, and then none. */
static void answers__that_are_late_are_not_added_to(void **state) {
    (void)state;
    rs_sent_times m;
    int asked = 0;
    rs_sent_times_start(&m, 0, 0, MS);
    m.timeout = 3 * MS;
    m.answered = 0;
    for (uint64_t ms = 1; ms < 50; ms++)
        asked += rs_sent_times_add(&m, (rs_time)ms * MS, ms, false);
    assert_in_range(asked, 3, 4);
    m.answered = 4;
    assert_true(rs_sent_times_add(&m, 50 * MS, 50, false));
    m.answered = 5;
    assert_true(rs_sent_times_add(&m, 60 * MS + RS_SENT_TIMES_MOST, 60, false)); /* the answer itself may be lost */
}

/* Reports are a share of what is sent, whatever the rate. */
static void reports__are_an_interval_of_packets(void **state) {
    (void)state;
    rs_sent_times m;
    int asked = 0;
    rs_sent_times_start(&m, 0, 0, MS);
    m.interval = 40;
    for (uint64_t pos = 0; pos < 400; pos++)
        asked += rs_sent_times_add(&m, (rs_time)pos * MS, pos, false);
    assert_int_equal(asked, 10);
    assert_int_equal(rs_sent_times_interval(&m, MS / 100), MS);
    assert_int_equal(rs_sent_times_interval(&m, MS), 40 * MS);
    assert_int_equal(rs_sent_times_interval(&m, 10 * MS), RS_SENT_TIMES_MOST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports__are_asked_for_by_the_clock),
        cmocka_unit_test(last_packet__asks_unless_one_just_did),
        cmocka_unit_test(answers__that_are_late_are_not_added_to),
        cmocka_unit_test(reports__are_an_interval_of_packets),
        cmocka_unit_test(time__is_known_between_marks_and_forgotten_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
