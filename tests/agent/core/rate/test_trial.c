#include "check.h"

#include "core/rate/trial.h"

/* Judges samples of so many packets of which `share` is lost, until one ends otherwise than MORE. */
static rs_trial_verdict judged(rs_loss_trial *t, double share) {
    for (uint64_t packets = 64;; packets += 64) {
        rs_trial_verdict v = rs_loss_trial_judge(t, packets, (uint64_t)((double)packets * share + 0.5), true);
        if (v != RS_TRIAL_MORE)
            return v;
        assert_true(packets < 100000); /* every sample ends */
    }
}

static void little_loss_or_one_run__begins_no_trial(void **state) {
    (void)state;
    rs_loss_trial t = {0};
    assert_int_equal(rs_loss_trial_judge(&t, 0, 0, true), RS_TRIAL_MORE);
    assert_int_equal(rs_loss_trial_judge(&t, 16, 16, true), RS_TRIAL_MORE); /* one run may take them all */
    assert_int_equal(rs_loss_trial_judge(&t, 200, 16, true), RS_TRIAL_MORE);
    assert_int_equal(judged(&t, 0.004), RS_TRIAL_FINE);
    assert_int_equal(rs_loss_trial_judge(&t, 1000, 500, false), RS_TRIAL_MORE); /* not now */
    assert_int_equal(rs_loss_trial_judge(&t, 1000, 500, true), RS_TRIAL_BEGINS);
}

static void loss_that_goes_away__was_congestion(void **state) {
    (void)state;
    rs_loss_trial t = {0};
    assert_int_equal(judged(&t, 0.1), RS_TRIAL_BEGINS);
    assert_int_equal(judged(&t, 0.04), RS_TRIAL_HELPED);
    assert_true(t.usual == 0);
    assert_int_equal(judged(&t, 0.1), RS_TRIAL_BEGINS); /* and again */
}

static void loss_that_stays__is_usual_until_it_goes_away(void **state) {
    (void)state;
    rs_loss_trial t = {0};
    assert_int_equal(judged(&t, 0.1), RS_TRIAL_BEGINS);
    assert_int_equal(judged(&t, 0.09), RS_TRIAL_FUTILE);
    for (int i = 0; i < 20; i++)
        assert_int_equal(judged(&t, 0.1), RS_TRIAL_FINE);
    assert_int_equal(judged(&t, 0.3), RS_TRIAL_BEGINS); /* much more than usual */
    assert_int_equal(judged(&t, 0.1), RS_TRIAL_HELPED);
    for (int i = 0; i < 64; i++)
        assert_int_equal(judged(&t, 0), RS_TRIAL_FINE);
    assert_int_equal(judged(&t, 0.05), RS_TRIAL_BEGINS); /* forgotten */
}

static void all_is_lost__is_no_usual_loss(void **state) {
    (void)state;
    rs_loss_trial t = {0};
    assert_int_equal(judged(&t, 1), RS_TRIAL_BEGINS);
    assert_int_equal(judged(&t, 1), RS_TRIAL_FUTILE);
    assert_true(t.usual <= 0.5);
    assert_int_equal(rs_loss_trial_judge(&t, 100000, UINT64_MAX, true), RS_TRIAL_BEGINS); /* a liar */
    rs_loss_trial_drop(&t);
    assert_true(t.before == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_loss_or_one_run__begins_no_trial),
        cmocka_unit_test(loss_that_goes_away__was_congestion),
        cmocka_unit_test(loss_that_stays__is_usual_until_it_goes_away),
        cmocka_unit_test(all_is_lost__is_no_usual_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
