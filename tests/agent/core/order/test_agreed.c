/* When a message is given out, by agreed and by safe delivery, and what members tell of it, in virtual time. */
#include "order/members.h"

#define WINDOW 16

typedef struct {
    net of;
    bool mute[MEMBERS]; /* what it says to one member is lost: acknowledgements */
    uint64_t given[MEMBERS], last[MEMBERS], said[MEMBERS];
} agreeing;

static bool is_lost(net *n, uint32_t from, uint32_t to, const rs_order_out *out) {
    (void)to;
    return out->peer != RS_NO_PEER && ((agreeing *)n)->mute[from];
}

static void said(net *n, uint32_t from, const rs_order_out *out) {
    ((agreeing *)n)->said[from] += out->peer != RS_NO_PEER;
}

static void give(net *n, uint32_t to, const rs_order_event *event) {
    agreeing *a = (agreeing *)n;
    if (event->kind != RS_ORDER_MESSAGE)
        return;
    assert_int_equal(event->number, a->last[to] + 1);
    a->last[to] = event->number;
    a->given[to]++;
}

static agreeing *begin(bool agreed) {
    agreeing *a = calloc(1, sizeof *a);
    a->of = (net){.is_lost = is_lost, .said = said, .give = give};
    net_begin(&a->of, (rs_order_config){.total = true, .agreed = agreed, .window_messages = WINDOW});
    return a;
}

static int begin_agreed(void **state) {
    *state = begin(true);
    return 0;
}

static int begin_safe(void **state) {
    *state = begin(false);
    return 0;
}

/* How many of them were taken. */
static uint32_t publish(agreeing *a, uint32_t from, uint32_t count) {
    const uint8_t bytes[100] = {1};
    uint32_t taken = 0;
    while (taken < count && rs_order_publish(a->of.member[from], a->of.now, bytes, sizeof bytes) == RS_OK)
        taken++;
    return taken;
}

static void agreed__nobody_s_acknowledgement_is_waited_for(void **state) {
    agreeing *a = *state;
    a->mute[2] = true;
    assert_int_equal(publish(a, 1, 3), 3);
    net_settle(&a->of);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(a->given[i], 3);
}

static void safe__all_wait_until_all_have_it(void **state) {
    agreeing *a = *state;
    a->mute[2] = true;
    assert_int_equal(publish(a, 1, 3), 3);
    net_settle(&a->of);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(a->given[i], 0);
    a->mute[2] = false;
    net_run(&a->of, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(a->given[i], 3);
}

/* One a millisecond: a third of 30 ms goes between acknowledgements. */
static void agreed__acknowledgements_are_few(void **state) {
    agreeing *a = *state;
    uint64_t before = a->said[2];
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(publish(a, 1, 1), 1);
        net_run(&a->of, MILLISECOND);
    }
    net_run(&a->of, SECOND);
    assert_int_equal(a->given[2], 100);
    assert_in_range(a->said[2] - before, 4, 25);
}

/* What waits at it is bounded, and so is what others may publish. */
static void agreed__a_program_that_takes_nothing_holds_others_back(void **state) {
    agreeing *a = *state;
    uint32_t taken = 0;
    a->of.unread[2] = true;
    for (uint32_t i = 0; i < 20; i++) {
        taken += publish(a, 1, 2 * WINDOW);
        net_run(&a->of, 100 * MILLISECOND);
    }
    assert_in_range(taken, WINDOW, 3 * WINDOW);
    rs_order_stats stats;
    rs_order_stats_get(a->of.member[2], &stats);
    assert_in_range(stats.waiting, 1, WINDOW);
    a->of.unread[2] = false;
    net_run(&a->of, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(a->given[i], taken);
    assert_int_equal(publish(a, 1, WINDOW), WINDOW);
}

/* A view without a member: who is left has the same, and nothing twice. */
static void agreed__the_coordinator_is_gone__the_others_go_on_alike(void **state) {
    agreeing *a = *state;
    const rs_peer left[] = {2, 3};
    a->mute[1] = a->mute[2] = true;
    assert_int_equal(publish(a, 1, 5), 5);
    net_settle(&a->of);
    rs_order_free(a->of.member[0]);
    a->of.member[0] = NULL;
    for (uint32_t i = 1; i < MEMBERS; i++)
        assert_int_equal(rs_order_view(a->of.member[i], a->of.now, 2, left, 2), RS_OK);
    a->mute[1] = a->mute[2] = false;
    net_run(&a->of, SECOND / 2);
    for (uint32_t i = 1; i < MEMBERS; i++)
        assert_int_equal(publish(a, i, 1), 1);
    net_run(&a->of, SECOND / 2);
    assert_int_equal(a->given[1], 7);
    assert_int_equal(a->given[2], 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(agreed__nobody_s_acknowledgement_is_waited_for, begin_agreed, net_over),
        cmocka_unit_test_setup_teardown(safe__all_wait_until_all_have_it, begin_safe, net_over),
        cmocka_unit_test_setup_teardown(agreed__acknowledgements_are_few, begin_agreed, net_over),
        cmocka_unit_test_setup_teardown(agreed__a_program_that_takes_nothing_holds_others_back, begin_agreed, net_over),
        cmocka_unit_test_setup_teardown(agreed__the_coordinator_is_gone__the_others_go_on_alike, begin_agreed,
                                        net_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
