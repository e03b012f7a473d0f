/* How soon a view of a group with guarantees begins where its members hear of it one after another, in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/heap.h"
#include "core/order/order.h"

#define MILLISECOND ((rs_time)1000000)
#define SECOND (1000 * MILLISECOND)
#define MEMBERS 3

typedef struct {
    rs_order *member[MEMBERS]; /* NULL: its agent does not know the group yet */
    uint64_t view[MEMBERS];
    uint32_t reports; /* sent to the first member */
    rs_time now;
} net;

static void pass(net *n, uint32_t from, const rs_order_out *out) {
    for (uint32_t to = 0; to < MEMBERS; to++)
        if (to != from && n->member[to] && (out->peer == RS_NO_PEER || out->peer == to + 1))
            assert_true(rs_order_receive(n->member[to], n->now, from + 1, out->bytes, out->length));
    n->reports += out->peer == 1 && out->bytes[3] == 6;
}

static void settle(net *n) {
    rs_order_event event;
    rs_order_out out;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            while (n->member[i] && rs_order_poll_event(n->member[i], n->now, &event))
                n->view[i] = event.kind == RS_ORDER_VIEW ? event.view >> 8 : n->view[i];
            while (n->member[i] && rs_order_poll_out(n->member[i], n->now, &out)) {
                pass(n, i, &out);
                more = true;
            }
        }
    }
}

static void run(net *n, rs_time how_long) {
    for (rs_time end = n->now + how_long; n->now < end; n->now += MILLISECOND) {
        for (uint32_t i = 0; i < MEMBERS; i++)
            if (n->member[i])
                rs_order_timeout(n->member[i], n->now);
        settle(n);
    }
}

static void make(net *n, uint32_t i) {
    const rs_order_config config = {.group = 7, .self = i + 1, .instance = 100 + i, .total = true};
    n->member[i] = rs_order_new(&config, &rs_heap);
}

static void tell(net *n, uint32_t i, uint64_t version, uint32_t members) {
    const rs_peer peers[MEMBERS] = {1, 2, 3};
    assert_int_equal(rs_order_view(n->member[i], n->now, version, peers, members), RS_OK);
    settle(n);
}

static int begin(void **state) {
    net *n = calloc(1, sizeof *n);
    n->now = SECOND;
    for (uint32_t i = 0; i < 2; i++) {
        make(n, i);
        tell(n, i, 1, 2);
    }
    run(n, SECOND);
    *state = n;
    return 0;
}

static int over(void **state) {
    net *n = *state;
    for (uint32_t i = 0; i < MEMBERS; i++)
        rs_order_free(n->member[i]);
    free(n);
    return 0;
}

static void assert_all_in(const net *n, uint64_t version) {
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(n->view[i], version);
}

/* The one that joins, and the one that was there. */
static void coordinator__asks_before_others_are_told__they_answer_when_they_are(void **state) {
    net *n = *state;
    tell(n, 0, 2, 3);
    run(n, MILLISECOND);
    tell(n, 1, 2, 3);
    run(n, MILLISECOND);
    make(n, 2);
    tell(n, 2, 2, 3);
    assert_all_in(n, 2);
}

static void coordinator__is_told_last__the_view_begins_at_once(void **state) {
    net *n = *state;
    make(n, 2);
    tell(n, 2, 2, 3);
    tell(n, 1, 2, 3);
    run(n, MILLISECOND);
    tell(n, 0, 2, 3);
    assert_all_in(n, 2);
}

/* Who comes back at its old place, by another instance, while the coordinator is told of neither. */
static void member__returns_before_the_coordinator_knows__joins_again(void **state) {
    net *n = *state;
    rs_order_free(n->member[1]);
    const rs_order_config config = {.group = 7, .self = 2, .instance = 900, .total = true};
    n->member[1] = rs_order_new(&config, &rs_heap);
    make(n, 2);
    tell(n, 1, 3, 3);
    tell(n, 2, 3, 3);
    run(n, MILLISECOND);
    tell(n, 0, 3, 3);
    run(n, 100 * MILLISECOND);
    assert_all_in(n, 3);
}

/* An older request, or one of somebody who does not lead, is not answered when the view comes. */
static void request__is_of_somebody_else__is_not_answered(void **state) {
    net *n = *state;
    tell(n, 0, 2, 3);
    run(n, MILLISECOND);
    const rs_peer without[] = {2, 3};
    make(n, 2);
    n->reports = 0;
    assert_int_equal(rs_order_view(n->member[1], n->now, 3, without, 2), RS_OK);
    assert_int_equal(rs_order_view(n->member[2], n->now, 3, without, 2), RS_OK);
    settle(n);
    assert_int_equal(n->reports, 0);
    assert_int_equal(n->view[1], 3);
    assert_int_equal(n->view[2], 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(coordinator__asks_before_others_are_told__they_answer_when_they_are, begin,
                                        over),
        cmocka_unit_test_setup_teardown(coordinator__is_told_last__the_view_begins_at_once, begin, over),
        cmocka_unit_test_setup_teardown(member__returns_before_the_coordinator_knows__joins_again, begin, over),
        cmocka_unit_test_setup_teardown(request__is_of_somebody_else__is_not_answered, begin, over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
