/* When a message is given out, by agreed and by safe delivery, and what members tell of it, in virtual time. */
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
#define WINDOW 16

typedef struct {
    rs_order *member[MEMBERS];
    bool mute[MEMBERS];   /* what it says to one member is lost: acknowledgements */
    bool unread[MEMBERS]; /* its program takes nothing */
    uint64_t given[MEMBERS], last[MEMBERS], said[MEMBERS];
    rs_time now;
} net;

static void pass(net *n, uint32_t from, const rs_order_out *out) {
    n->said[from] += out->peer != RS_NO_PEER;
    for (uint32_t to = 0; to < MEMBERS; to++)
        if (to != from && (out->peer == RS_NO_PEER || (out->peer == to + 1 && !n->mute[from])))
            assert_true(rs_order_receive(n->member[to], n->now, from + 1, out->bytes, out->length));
}

/* All that can happen at this moment. */
static void settle(net *n) {
    rs_order_event event;
    rs_order_out out;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            while (!n->unread[i] && rs_order_poll_event(n->member[i], n->now, &event))
                if (event.kind == RS_ORDER_MESSAGE) {
                    assert_int_equal(event.number, n->last[i] + 1);
                    n->last[i] = event.number;
                    n->given[i]++;
                    more = true;
                }
            while (rs_order_poll_out(n->member[i], n->now, &out)) {
                pass(n, i, &out);
                more = true;
            }
        }
    }
}

static void run(net *n, rs_time how_long) {
    for (rs_time end = n->now + how_long; n->now < end; n->now += MILLISECOND) {
        for (uint32_t i = 0; i < MEMBERS; i++)
            rs_order_timeout(n->member[i], n->now);
        settle(n);
    }
}

static net *begin(bool agreed) {
    const rs_peer peers[MEMBERS] = {1, 2, 3};
    net *n = calloc(1, sizeof *n);
    n->now = SECOND;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const rs_order_config config = {
            .group = 7, .self = i + 1, .instance = 100 + i, .total = true, .agreed = agreed, .window_messages = WINDOW};
        n->member[i] = rs_order_new(&config, &rs_heap);
        assert_int_equal(rs_order_view(n->member[i], n->now, 1, peers, MEMBERS), RS_OK);
    }
    run(n, SECOND);
    return n;
}

static void end(net *n) {
    for (uint32_t i = 0; i < MEMBERS; i++)
        rs_order_free(n->member[i]);
    free(n);
}

static int begin_agreed(void **state) {
    *state = begin(true);
    return 0;
}

static int begin_safe(void **state) {
    *state = begin(false);
    return 0;
}

static int over(void **state) {
    end(*state);
    return 0;
}

/* How many of them were taken. */
static uint32_t publish(net *n, uint32_t from, uint32_t count) {
    const uint8_t bytes[100] = {1};
    uint32_t taken = 0;
    while (taken < count && rs_order_publish(n->member[from], n->now, bytes, sizeof bytes) == RS_OK)
        taken++;
    return taken;
}

static void agreed__nobody_s_acknowledgement_is_waited_for(void **state) {
    net *n = *state;
    n->mute[2] = true;
    assert_int_equal(publish(n, 1, 3), 3);
    settle(n);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(n->given[i], 3);
}

static void safe__all_wait_until_all_have_it(void **state) {
    net *n = *state;
    n->mute[2] = true;
    assert_int_equal(publish(n, 1, 3), 3);
    settle(n);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(n->given[i], 0);
    n->mute[2] = false;
    run(n, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(n->given[i], 3);
}

/* One a millisecond: a third of 30 ms goes between acknowledgements. */
static void agreed__acknowledgements_are_few(void **state) {
    net *n = *state;
    uint64_t before = n->said[2];
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(publish(n, 1, 1), 1);
        run(n, MILLISECOND);
    }
    run(n, SECOND);
    assert_int_equal(n->given[2], 100);
    assert_in_range(n->said[2] - before, 4, 25);
}

/* What waits at it is bounded, and so is what others may publish. */
static void agreed__a_program_that_takes_nothing_holds_others_back(void **state) {
    net *n = *state;
    uint32_t taken = 0;
    n->unread[2] = true;
    for (uint32_t i = 0; i < 20; i++) {
        taken += publish(n, 1, 2 * WINDOW);
        run(n, 100 * MILLISECOND);
    }
    assert_in_range(taken, WINDOW, 3 * WINDOW);
    rs_order_stats stats;
    rs_order_stats_get(n->member[2], &stats);
    assert_in_range(stats.waiting, 1, WINDOW);
    n->unread[2] = false;
    run(n, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(n->given[i], taken);
    assert_int_equal(publish(n, 1, WINDOW), WINDOW);
}

/* A view without a member: who is left has the same, and nothing twice. */
static void agreed__the_coordinator_is_gone__the_others_go_on_alike(void **state) {
    net *n = *state;
    const rs_peer left[] = {2, 3};
    n->mute[1] = n->mute[2] = true;
    assert_int_equal(publish(n, 1, 5), 5);
    settle(n);
    rs_order_free(n->member[0]);
    const rs_order_config config = {.group = 8, .self = 9, .instance = 1};
    n->member[0] = rs_order_new(&config, &rs_heap); /* it takes part in nothing */
    rs_order_event event;
    rs_order_out out;
    for (uint32_t i = 1; i < MEMBERS; i++)
        assert_int_equal(rs_order_view(n->member[i], n->now, 2, left, 2), RS_OK);
    for (uint32_t step = 0; step < 1000; step++, n->now += MILLISECOND)
        for (uint32_t i = 1; i < MEMBERS; i++) {
            rs_order_timeout(n->member[i], n->now);
            while (rs_order_poll_event(n->member[i], n->now, &event))
                if (event.kind == RS_ORDER_MESSAGE) {
                    assert_int_equal(event.number, ++n->last[i]);
                    n->given[i]++;
                }
            while (rs_order_poll_out(n->member[i], n->now, &out))
                assert_true(rs_order_receive(n->member[3 - i], n->now, i + 1, out.bytes, out.length));
            if (step == 500)
                assert_int_equal(publish(n, i, 1), 1);
        }
    assert_int_equal(n->given[1], 7);
    assert_int_equal(n->given[2], 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(agreed__nobody_s_acknowledgement_is_waited_for, begin_agreed, over),
        cmocka_unit_test_setup_teardown(safe__all_wait_until_all_have_it, begin_safe, over),
        cmocka_unit_test_setup_teardown(agreed__acknowledgements_are_few, begin_agreed, over),
        cmocka_unit_test_setup_teardown(agreed__a_program_that_takes_nothing_holds_others_back, begin_agreed, over),
        cmocka_unit_test_setup_teardown(agreed__the_coordinator_is_gone__the_others_go_on_alike, begin_agreed, over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
