/* Fig. 4 and what we add to it. */
#include "check.h"

#include "core/repair/loss_cases.h"

static rs_ring lit_at(uint64_t initial, uint64_t prior) {
    rs_ring r;
    rs_ring_start(&r, 0, 100);
    rs_ring_packet(&r, initial, 1);
    for (uint64_t sn = initial; sn != prior;)
        rs_ring_packet(&r, sn = rs_ring_next(&r, sn), 1);
    return r;
}

static void case1__the_next_sn_lost_nothing(void **state) {
    (void)state;
    rs_ring r = lit_at(60, 73);
    assert_int_equal(rs_ring_packet(&r, 74, 1).what, RS_CASE_NEXT);
    r = lit_at(60, 99);
    assert_int_equal(rs_ring_packet(&r, 0, 1).what, RS_CASE_NEXT); /* around the ring's end */
}

static void case2__a_gap_in_the_expected_range(void **state) {
    (void)state;
    rs_ring r = lit_at(60, 73);
    rs_loss loss = rs_ring_packet(&r, 76, 1);
    assert_int_equal(loss.what, RS_CASE_GAP);
    assert_int_equal(loss.lost_after, 73);
    assert_int_equal(loss.lost_before, 76);
    r = lit_at(60, 98);
    loss = rs_ring_packet(&r, 3, 1);
    assert_int_equal(loss.what, RS_CASE_GAP);
    assert_int_equal(loss.lost_after, 98);
    assert_int_equal(loss.lost_before, 3);
}

static void case3__the_sent_range_means_the_next_round(void **state) {
    (void)state;
    rs_ring r = lit_at(60, 40);
    rs_loss loss = rs_ring_packet(&r, 65, 1);
    assert_int_equal(loss.what, RS_CASE_ROUND);
    assert_int_equal(loss.lost_after, 40);
    assert_int_equal(loss.lost_before, 60);
    assert_true(r.round_done);
    assert_int_equal(rs_ring_packet(&r, 66, 1).what, RS_CASE_LATE); /* takes no more */
}

static void whole_round__is_noticed_without_case_3(void **state) {
    (void)state;
    rs_ring r = lit_at(60, 58);
    assert_false(r.round_done);
    assert_int_equal(rs_ring_packet(&r, 59, 1).what, RS_CASE_NEXT);
    assert_true(r.round_done);
}

static void light__is_a_run_of_consecutive_packets(void **state) {
    (void)state;
    rs_ring r;
    rs_ring_start(&r, 0, 100);
    assert_int_equal(rs_ring_packet(&r, 10, 3).what, RS_CASE_DARK);
    assert_int_equal(rs_ring_packet(&r, 11, 3).what, RS_CASE_DARK);
    assert_int_equal(rs_ring_packet(&r, 13, 3).what, RS_CASE_DARK); /* 12 was lost in the ringing */
    assert_int_equal(rs_ring_packet(&r, 14, 3).what, RS_CASE_DARK);
    assert_int_equal(rs_ring_packet(&r, 15, 3).what, RS_CASE_LIGHT);
    assert_int_equal(r.initial, 13);
    assert_int_equal(r.prior, 15);
}

static void ring_of_one__is_light_and_round_at_once(void **state) {
    (void)state;
    rs_ring r;
    rs_ring_start(&r, 5, 6);
    assert_int_equal(rs_ring_packet(&r, 5, 2).what, RS_CASE_DARK);
    assert_int_equal(rs_ring_packet(&r, 5, 2).what, RS_CASE_LIGHT);
    assert_true(r.round_done);
}

static void straggler__is_no_second_round(void **state) {
    (void)state;
    rs_ring r = lit_at(60, 80);
    assert_int_equal(rs_ring_packet(&r, 82, 1).what, RS_CASE_GAP);
    assert_int_equal(rs_ring_packet(&r, 81, 1).what, RS_CASE_LATE); /* had been overtaken */
    assert_int_equal(rs_ring_packet(&r, 82, 1).what, RS_CASE_LATE); /* doubled */
    assert_int_equal(rs_ring_packet(&r, 83, 1).what, RS_CASE_NEXT);
    assert_false(r.round_done);
}

/* Packets on their way through one processor of a host while the next ones go through another. */
static void many_stragglers_in_a_row__are_no_second_round(void **state) {
    (void)state;
    rs_ring r;
    rs_ring_start(&r, 0, 100000);
    for (uint64_t sn = 18; sn < 25857; sn++)
        rs_ring_packet(&r, sn, 1);
    assert_int_equal(rs_ring_packet(&r, 25957, 1).what, RS_CASE_GAP);
    for (uint64_t sn = 25857; sn < 25957; sn++)
        assert_int_equal(rs_ring_packet(&r, sn, 1).what, RS_CASE_LATE);
    assert_int_equal(rs_ring_packet(&r, 25958, 1).what, RS_CASE_NEXT);
    assert_false(r.round_done);
}

static void straggler_from_before_light__is_no_lost_ring(void **state) {
    (void)state;
    rs_ring r = lit_at(60, 61);
    assert_int_equal(rs_ring_packet(&r, 59, 1).what, RS_CASE_LATE);
    assert_int_equal(rs_ring_packet(&r, 62, 1).what, RS_CASE_NEXT);
}

/* The second round begins right behind the prior sn: several in a row settle it. */
static void near_second_round__is_noticed_by_a_run(void **state) {
    (void)state;
    rs_ring r = lit_at(60, 66); /* all after it is lost */
    assert_int_equal(rs_ring_packet(&r, 60, 1).what, RS_CASE_LATE);
    assert_int_equal(rs_ring_packet(&r, 61, 1).what, RS_CASE_LATE);
    rs_loss loss = rs_ring_packet(&r, 62, 1);
    assert_int_equal(loss.what, RS_CASE_ROUND);
    assert_int_equal(loss.lost_after, 66);
    assert_int_equal(loss.lost_before, 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case1__the_next_sn_lost_nothing),
        cmocka_unit_test(case2__a_gap_in_the_expected_range),
        cmocka_unit_test(case3__the_sent_range_means_the_next_round),
        cmocka_unit_test(whole_round__is_noticed_without_case_3),
        cmocka_unit_test(light__is_a_run_of_consecutive_packets),
        cmocka_unit_test(ring_of_one__is_light_and_round_at_once),
        cmocka_unit_test(straggler__is_no_second_round),
        cmocka_unit_test(many_stragglers_in_a_row__are_no_second_round),
        cmocka_unit_test(straggler_from_before_light__is_no_lost_ring),
        cmocka_unit_test(near_second_round__is_noticed_by_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
