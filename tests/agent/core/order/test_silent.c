/* Whom a member of a group with guarantees hears nothing of, in virtual time. */
#include "order/members.h"

#define BOUND (3 * SECOND)

typedef struct {
    net of;
    bool cut[MEMBERS]; /* nothing goes from or to it */
} cutting;

static bool is_lost(net *n, uint32_t from, uint32_t to, const rs_order_out *out) {
    const cutting *c = (cutting *)n;
    (void)out;
    return c->cut[from] || c->cut[to];
}

static void view(cutting *c, uint64_t version) {
    for (uint32_t i = 0; i < MEMBERS; i++)
        net_tell(&c->of, i, version, MEMBERS);
}

static int begin(void **state) {
    cutting *c = calloc(1, sizeof *c);
    c->of = (net){.now = SECOND, .is_lost = is_lost};
    for (uint32_t i = 0; i < MEMBERS; i++)
        net_member(&c->of, i, (rs_order_config){.total = true});
    *state = c;
    return 0;
}

static uint32_t silent(cutting *c, uint32_t member, rs_peer out[4]) {
    return rs_order_silent(c->of.member[member], c->of.now, BOUND, out, 4);
}

static void a_quiet_group__nobody_is_silent(void **state) {
    cutting *c = *state;
    rs_peer out[4];
    view(c, 1);
    net_run(&c->of, 10 * BOUND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(silent(c, i, out), 0);
}

static void one_is_cut_off__it_and_the_coordinator_are_silent_to_each_other(void **state) {
    cutting *c = *state;
    rs_peer out[4];
    view(c, 1);
    net_run(&c->of, SECOND);
    c->cut[2] = true;
    net_run(&c->of, BOUND / 2);
    assert_int_equal(silent(c, 0, out) + silent(c, 2, out), 0);
    net_run(&c->of, BOUND);
    assert_int_equal(silent(c, 0, out), 1);
    assert_int_equal(out[0], 3);
    assert_int_equal(silent(c, 1, out), 0);
    assert_int_equal(silent(c, 2, out), 1);
    assert_int_equal(out[0], 1);
    c->cut[2] = false;
    net_run(&c->of, SECOND);
    assert_int_equal(silent(c, 0, out) + silent(c, 2, out), 0);
}

static void one_does_not_answer_when_a_view_begins__it_is_silent(void **state) {
    cutting *c = *state;
    rs_peer out[4];
    c->cut[1] = true;
    view(c, 1);
    net_run(&c->of, 2 * BOUND);
    assert_int_equal(silent(c, 0, out), 1);
    assert_int_equal(out[0], 2);
    assert_int_equal(silent(c, 2, out), 0);
    c->cut[1] = false;
    net_run(&c->of, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(silent(c, i, out), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_quiet_group__nobody_is_silent, begin, net_over),
        cmocka_unit_test_setup_teardown(one_is_cut_off__it_and_the_coordinator_are_silent_to_each_other, begin,
                                        net_over),
        cmocka_unit_test_setup_teardown(one_does_not_answer_when_a_view_begins__it_is_silent, begin, net_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
