#include "check.h"

#include "core/rate/rtt.h"

static void late__follows_samples(void **state) {
    (void)state;
    rs_rtt rtt = {0};
    assert_int_equal(rs_rtt_late(&rtt, 777), 777);
    rs_rtt_sample(&rtt, -5); /* a clock that went back: not a sample */
    assert_int_equal(rs_rtt_late(&rtt, 777), 777);
    for (int i = 0; i < 200; i++)
        rs_rtt_sample(&rtt, 100000);
    assert_in_range(rs_rtt_late(&rtt, 777), 100000, 110000);
    for (int i = 0; i < 50; i++)
        rs_rtt_sample(&rtt, i % 2 ? 100000 : 300000);
    assert_true(rs_rtt_late(&rtt, 777) > 400000); /* it varies: late is later */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(late__follows_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
