#include "check.h"

#include "core/rate/pacer.h"

/* Sends whatever it may for `time`, waking at its deadlines plus `late`; returns bytes, and the largest batch. */
static uint64_t send_for(rs_pacer *p, rs_time time, rs_time late, uint32_t bytes, uint32_t *batch_most) {
    uint64_t sent = 0;
    *batch_most = 0;
    for (rs_time now = 0; now < time; now = rs_pacer_due(p) + late) {
        uint32_t batch = 0;
        for (; rs_pacer_ready(p, now); batch++, sent += bytes)
            rs_pacer_sent(p, now, bytes);
        *batch_most = batch > *batch_most ? batch : *batch_most;
        assert_true(rs_pacer_due(p) > now);
    }
    return sent;
}

static void rate__is_kept_from_slow_to_fast(void **state) {
    (void)state;
    for (int64_t rate = 1000000; rate <= 100000000000; rate *= 10) {
        for (uint32_t bytes = 100; bytes <= 9000; bytes *= 3) {
            rs_pacer p;
            uint32_t batch;
            rs_time time = rate < 100000000 ? INT64_C(20000000000) : 200000000;
            rs_pacer_start(&p, 0, rate);
            double expected = (double)rate / 8 * (double)time / 1e9;
            double sent = (double)send_for(&p, time, 0, bytes, &batch);
            assert_true(sent > expected * 0.95 - 2 * bytes && sent < expected * 1.05 + 2 * bytes);
        }
    }
}

static void caller_that_oversleeps__catches_up_in_small_bursts(void **state) {
    (void)state;
    rs_pacer p;
    uint32_t batch;
    rs_pacer_start(&p, 0, 1000000000);
    uint64_t sent = send_for(&p, 1000000000, 150000, 9000, &batch);
    assert_true(sent > 118750000); /* 95 % */
    assert_true(batch <= 8);
}

static void pause__is_made_up_for_by_what_a_queue_holds(void **state) {
    (void)state;
    rs_pacer p;
    rs_pacer_start(&p, 0, 1000000000);
    rs_pacer_sent(&p, 0, 9000);
    uint32_t batch = 0;
    for (rs_time now = 3600 * INT64_C(1000000000); rs_pacer_ready(&p, now); batch++)
        rs_pacer_sent(&p, now, 9000);
    assert_in_range(batch, 1, 29); /* of 72 us each */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate__is_kept_from_slow_to_fast),
        cmocka_unit_test(caller_that_oversleeps__catches_up_in_small_bursts),
        cmocka_unit_test(pause__is_made_up_for_by_what_a_queue_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
