/* Whom a member of a group with guarantees hears nothing of, in virtual time. */
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
#define BOUND (3 * SECOND)
#define STEP (10 * MILLISECOND)

typedef struct {
    rs_order *member[MEMBERS];
    bool cut[MEMBERS]; /* nothing goes from or to it */
    rs_time now;
} net;

static void pass(net *n, uint32_t from, const rs_order_out *out) {
    for (uint32_t to = 0; to < MEMBERS; to++)
        if (to != from && !n->cut[from] && !n->cut[to] && (out->peer == RS_NO_PEER || out->peer == to + 1))
            assert_true(rs_order_receive(n->member[to], n->now, from + 1, out->bytes, out->length));
}

static void run(net *n, rs_time how_long) {
    rs_order_event event;
    rs_order_out out;
    for (rs_time end = n->now + how_long; n->now < end; n->now += STEP)
        for (uint32_t i = 0; i < MEMBERS; i++) {
            rs_order_timeout(n->member[i], n->now);
            while (rs_order_poll_event(n->member[i], n->now, &event))
                ;
            while (rs_order_poll_out(n->member[i], n->now, &out))
                pass(n, i, &out);
        }
}

static void view(net *n, uint64_t version) {
    const rs_peer peers[MEMBERS] = {1, 2, 3};
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(rs_order_view(n->member[i], n->now, version, peers, MEMBERS), RS_OK);
}

static int begin(void **state) {
    net *n = calloc(1, sizeof *n);
    n->now = SECOND;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const rs_order_config config = {.group = 7, .self = i + 1, .instance = 100 + i, .total = true};
        n->member[i] = rs_order_new(&config, &rs_heap);
    }
    *state = n;
    return 0;
}

static int end(void **state) {
    net *n = *state;
    for (uint32_t i = 0; i < MEMBERS; i++)
        rs_order_free(n->member[i]);
    free(n);
    return 0;
}

static uint32_t silent(net *n, uint32_t member, rs_peer out[4]) {
    return rs_order_silent(n->member[member], n->now, BOUND, out, 4);
}

static void a_quiet_group__nobody_is_silent(void **state) {
    net *n = *state;
    rs_peer out[4];
    view(n, 1);
    run(n, 10 * BOUND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(silent(n, i, out), 0);
}

static void one_is_cut_off__it_and_the_coordinator_are_silent_to_each_other(void **state) {
    net *n = *state;
    rs_peer out[4];
    view(n, 1);
    run(n, SECOND);
    n->cut[2] = true;
    run(n, BOUND / 2);
    assert_int_equal(silent(n, 0, out) + silent(n, 2, out), 0);
    run(n, BOUND);
    assert_int_equal(silent(n, 0, out), 1);
    assert_int_equal(out[0], 3);
    assert_int_equal(silent(n, 1, out), 0);
    assert_int_equal(silent(n, 2, out), 1);
    assert_int_equal(out[0], 1);
    n->cut[2] = false;
    run(n, SECOND);
    assert_int_equal(silent(n, 0, out) + silent(n, 2, out), 0);
}

static void one_does_not_answer_when_a_view_begins__it_is_silent(void **state) {
    net *n = *state;
    rs_peer out[4];
    n->cut[1] = true;
    view(n, 1);
    run(n, 2 * BOUND);
    assert_int_equal(silent(n, 0, out), 1);
    assert_int_equal(out[0], 2);
    assert_int_equal(silent(n, 2, out), 0);
    n->cut[1] = false;
    run(n, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(silent(n, i, out), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_quiet_group__nobody_is_silent, begin, end),
        cmocka_unit_test_setup_teardown(one_is_cut_off__it_and_the_coordinator_are_silent_to_each_other, begin, end),
        cmocka_unit_test_setup_teardown(one_does_not_answer_when_a_view_begins__it_is_silent, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
