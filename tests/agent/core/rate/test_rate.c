#include "check.h"

#include "core/rate/rate.h"

#define MS INT64_C(1000000)
#define CEILING INT64_C(1000000000)

static void cut__goes_to_what_got_through(void **state) {
    (void)state;
    rs_rate r;
    rs_loss_watch w = {0};
    rs_rate_start(&r, 0, CEILING, 10 * MS);
    assert_int_equal(rs_rate_bps(&r), CEILING);
    assert_int_equal(rs_rate_feedback(&r, 1 * MS, &w, 1000, 400, false), RS_LOSS_CUT);
    assert_in_range(rs_rate_bps(&r), CEILING * 57 / 100, CEILING * 60 / 100);
}

static void few_losses__cut_nothing_unless_a_socket_dropped_them(void **state) {
    (void)state;
    rs_rate r;
    rs_loss_watch w = {0};
    rs_rate_start(&r, 0, CEILING, 10 * MS);
    assert_int_equal(rs_rate_feedback(&r, 1 * MS, &w, 63, 60, false), RS_LOSS_UNSURE);  /* too few packets */
    assert_int_equal(rs_rate_feedback(&r, 1 * MS, &w, 100, 10, false), RS_LOSS_UNSURE); /* one burst */
    assert_int_equal(rs_rate_feedback(&r, 1 * MS, &w, 20000, 200, false), RS_LOSS_FINE);
    assert_int_equal(rs_rate_bps(&r), CEILING);
    assert_int_equal(rs_rate_feedback(&r, 2 * MS, &w, 100, 1, true), RS_LOSS_CUT);
    assert_true(rs_rate_bps(&r) < CEILING);
}

static void clean_epochs__raise_it_to_the_ceiling(void **state) {
    (void)state;
    rs_rate r;
    rs_loss_watch w = {0};
    rs_rate_start(&r, 0, CEILING, 10 * MS);
    rs_rate_feedback(&r, 0, &w, 100, 80, true);
    for (rs_time now = 0; now < 200 * MS; now += 5 * MS)
        rs_rate_tick(&r, now);
    assert_int_equal(rs_rate_bps(&r), CEILING);
}

static void loss_that_a_cut_does_not_lessen__is_taken_as_given(void **state) {
    (void)state;
    rs_rate r;
    rs_loss_watch w = {0}, other = {0};
    rs_rate_start(&r, 0, CEILING, 10 * MS);
    assert_int_equal(rs_rate_feedback(&r, 5 * MS, &w, 5000, 1000, false), RS_LOSS_CUT);
    assert_true(rs_rate_bps(&r) < CEILING);
    assert_int_equal(rs_rate_feedback(&r, 6 * MS, &other, 5000, 1000, false), RS_LOSS_FINE); /* one at a time */
    assert_int_equal(rs_rate_feedback(&r, 7 * MS, &w, 1000, 200, false), RS_LOSS_UNSURE);
    assert_int_equal(rs_rate_feedback(&r, 9 * MS, &w, 3000, 600, false), RS_LOSS_CUT);
    assert_int_equal(rs_rate_bps(&r), CEILING);
    assert_true(w.trial.usual > 0.18 && w.trial.usual < 0.22);
    for (int i = 4; i <= 50; i++)
        assert_int_equal(rs_rate_feedback(&r, i * 5 * MS, &w, 20000, 4000, false), RS_LOSS_FINE);
    /* Much more than the baseline: congestion after all. */
    assert_int_equal(rs_rate_feedback(&r, 300 * MS, &w, 1000, 600, false), RS_LOSS_CUT);
}

/* One cut tells of all that lose: each of them took its own trial, at a lower rate all the while. */
static void cut_for_one_is_in_vain__others_losses_are_usual_too(void **state) {
    (void)state;
    rs_rate r;
    rs_loss_watch w = {0}, same = {0}, worse = {0}, fewer = {0};
    rs_rate_start(&r, 0, CEILING, 10 * MS);
    assert_int_equal(rs_rate_feedback(&r, 5 * MS, &w, 5000, 200, false), RS_LOSS_CUT);
    rs_rate_changed(&r, &same, 4000, 150);
    rs_rate_changed(&r, &worse, 4000, 1600); /* that cut is too small to tell */
    rs_rate_changed(&r, &fewer, 500, 20);    /* it is not known what it loses usually */
    assert_int_equal(rs_rate_feedback(&r, 6 * MS, &same, 1000, 38, false), RS_LOSS_UNSURE);
    assert_int_equal(rs_rate_feedback(&r, 6 * MS, &worse, 1000, 400, false), RS_LOSS_FINE);
    assert_int_equal(rs_rate_feedback(&r, 6 * MS, &fewer, 1000, 40, false), RS_LOSS_FINE);
    assert_int_equal(rs_rate_feedback(&r, 9 * MS, &w, 3000, 120, false), RS_LOSS_CUT);
    assert_int_equal(rs_rate_bps(&r), CEILING);
    rs_rate_changed(&r, &same, 2000, 76);
    assert_int_equal(rs_rate_feedback(&r, 10 * MS, &same, 20000, 760, false), RS_LOSS_FINE);
    assert_int_equal(rs_rate_bps(&r), CEILING);
    assert_int_equal(rs_rate_feedback(&r, 11 * MS, &worse, 4000, 1600, false), RS_LOSS_CUT);
}

/* It stays so for one whose losses were as much all the same. */
static void cut_for_one_helps_another__its_losses_are_not_usual(void **state) {
    (void)state;
    rs_rate r;
    rs_loss_watch w = {0}, same = {0};
    rs_rate_start(&r, 0, CEILING, 10 * MS);
    assert_int_equal(rs_rate_feedback(&r, 5 * MS, &w, 5000, 200, false), RS_LOSS_CUT);
    rs_rate_changed(&r, &same, 4000, 150);
    assert_int_equal(rs_rate_feedback(&r, 9 * MS, &w, 3000, 120, false), RS_LOSS_CUT);
    rs_rate_changed(&r, &same, 3000, 0);
    assert_true(same.trial.usual == 0);
    assert_int_equal(rs_rate_feedback(&r, 11 * MS, &same, 5000, 200, false), RS_LOSS_CUT);
    assert_true(rs_rate_bps(&r) < CEILING);
}

static void loss_that_a_cut_lessens__was_congestion(void **state) {
    (void)state;
    rs_rate r;
    rs_loss_watch w = {0};
    rs_rate_start(&r, 0, CEILING, 10 * MS);
    assert_int_equal(rs_rate_feedback(&r, 5 * MS, &w, 5000, 1000, false), RS_LOSS_CUT);
    assert_int_equal(rs_rate_feedback(&r, 9 * MS, &w, 3000, 30, false), RS_LOSS_FINE);
    assert_in_range(rs_rate_bps(&r), CEILING * 75 / 100, CEILING * 80 / 100);
    assert_true(w.trial.usual == 0);
}

static void share_model_and_floor__bound_it(void **state) {
    (void)state;
    rs_rate r;
    rs_loss_watch w = {0};
    rs_rate_start(&r, 0, CEILING, 10 * MS);
    r.share_bps = CEILING / 3;
    assert_int_equal(rs_rate_bps(&r), CEILING / 3);
    r.model_bps = CEILING / 4;
    assert_int_equal(rs_rate_bps(&r), CEILING / 4);
    for (int i = 0; i < 20; i++) {
        rs_rate_feedback(&r, i * MS, &w, 100, 100, true);
        assert_true(rs_rate_bps(&r) >= RS_RATE_LEAST);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut__goes_to_what_got_through),
        cmocka_unit_test(few_losses__cut_nothing_unless_a_socket_dropped_them),
        cmocka_unit_test(clean_epochs__raise_it_to_the_ceiling),
        cmocka_unit_test(loss_that_a_cut_does_not_lessen__is_taken_as_given),
        cmocka_unit_test(cut_for_one_is_in_vain__others_losses_are_usual_too),
        cmocka_unit_test(cut_for_one_helps_another__its_losses_are_not_usual),
        cmocka_unit_test(loss_that_a_cut_lessens__was_congestion),
        cmocka_unit_test(share_model_and_floor__bound_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
