/* How soon a view of a group with guarantees begins where its members hear of it one after another, in virtual time. */
#include "order/members.h"

typedef struct {
    net of;
    uint64_t view[MEMBERS];
    uint32_t reports; /* sent to the first member */
} joining;

static void said(net *n, uint32_t from, const rs_order_out *out) {
    (void)from;
    ((joining *)n)->reports += out->peer == 1 && out->bytes[3] == 6;
}

static void give(net *n, uint32_t to, const rs_order_event *event) {
    if (event->kind == RS_ORDER_VIEW)
        ((joining *)n)->view[to] = event->view >> 8;
}

static void make(joining *j, uint32_t i) {
    net_member(&j->of, i, (rs_order_config){.total = true});
}

static void tell(joining *j, uint32_t i, uint64_t version, uint32_t members) {
    net_tell(&j->of, i, version, members);
    net_settle(&j->of);
}

static int begin(void **state) {
    joining *j = calloc(1, sizeof *j);
    j->of = (net){.now = SECOND, .said = said, .give = give};
    for (uint32_t i = 0; i < 2; i++) {
        make(j, i);
        tell(j, i, 1, 2);
    }
    net_run(&j->of, SECOND);
    *state = j;
    return 0;
}

static void assert_all_in(const joining *j, uint64_t version) {
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(j->view[i], version);
}

/* The one that joins, and the one that was there. */
static void coordinator__asks_before_others_are_told__they_answer_when_they_are(void **state) {
    joining *j = *state;
    tell(j, 0, 2, 3);
    net_run(&j->of, MILLISECOND);
    tell(j, 1, 2, 3);
    net_run(&j->of, MILLISECOND);
    make(j, 2);
    tell(j, 2, 2, 3);
    assert_all_in(j, 2);
}

static void coordinator__is_told_last__the_view_begins_at_once(void **state) {
    joining *j = *state;
    make(j, 2);
    tell(j, 2, 2, 3);
    tell(j, 1, 2, 3);
    net_run(&j->of, MILLISECOND);
    tell(j, 0, 2, 3);
    assert_all_in(j, 2);
}

/* Who comes back at its old place, by another instance, while the coordinator is told of neither. */
static void member__returns_before_the_coordinator_knows__joins_again(void **state) {
    joining *j = *state;
    rs_order_free(j->of.member[1]);
    net_member(&j->of, 1, (rs_order_config){.instance = 900, .total = true});
    make(j, 2);
    tell(j, 1, 3, 3);
    tell(j, 2, 3, 3);
    net_run(&j->of, MILLISECOND);
    tell(j, 0, 3, 3);
    net_run(&j->of, 100 * MILLISECOND);
    assert_all_in(j, 3);
}

/* An older request, or one of somebody who does not lead, is not answered when the view comes. */
static void request__is_of_somebody_else__is_not_answered(void **state) {
    joining *j = *state;
    tell(j, 0, 2, 3);
    net_run(&j->of, MILLISECOND);
    const rs_peer without[] = {2, 3};
    make(j, 2);
    j->reports = 0;
    assert_int_equal(rs_order_view(j->of.member[1], j->of.now, 3, without, 2), RS_OK);
    assert_int_equal(rs_order_view(j->of.member[2], j->of.now, 3, without, 2), RS_OK);
    net_settle(&j->of);
    assert_int_equal(j->reports, 0);
    assert_int_equal(j->view[1], 3);
    assert_int_equal(j->view[2], 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(coordinator__asks_before_others_are_told__they_answer_when_they_are, begin,
                                        net_over),
        cmocka_unit_test_setup_teardown(coordinator__is_told_last__the_view_begins_at_once, begin, net_over),
        cmocka_unit_test_setup_teardown(member__returns_before_the_coordinator_knows__joins_again, begin, net_over),
        cmocka_unit_test_setup_teardown(request__is_of_somebody_else__is_not_answered, begin, net_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
