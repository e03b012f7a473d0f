/* Sockets are drained before timers run (agent/daemon/groups/drain.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/groups/drain.h"

#define TURN 256u

static void timers__of_who_is_in_time_run_at_once(void **state) {
    rs_drain drain = {0};
    const rs_time now = 1000;
    (void)state;
    assert_true(rs_drain_may_run(&drain, now));
    rs_drain_looked(&drain, RS_DRAIN_MULTICAST, 12, true, 0);
    rs_drain_looked(&drain, RS_DRAIN_PEERS, 1, true, 0);
    assert_true(rs_drain_may_run(&drain, now));
}

static void timers__of_who_is_late_wait_for_both_sockets(void **state) {
    const uint32_t waited[RS_DRAIN_SOCKETS] = {5000, 900};
    (void)state;
    for (unsigned first = 0; first < RS_DRAIN_SOCKETS; first++) {
        uint32_t left[RS_DRAIN_SOCKETS] = {waited[0], waited[1]};
        rs_drain drain = {0};
        const rs_time now = 1000;
        while (left[0] + left[1] > 0) { /* one of them after the other, as peers' datagrams wait for multicast */
            unsigned socket = left[first] ? first : 1 - first;
            uint32_t taken = left[socket] < TURN ? left[socket] : TURN;
            left[socket] -= taken;
            rs_drain_looked(&drain, (rs_drain_socket)socket, taken, left[socket] == 0, 0);
            if (socket == first)
                rs_drain_looked(&drain, (rs_drain_socket)(1 - first), 0, false, 0);
            assert_int_equal(rs_drain_may_run(&drain, now), left[0] + left[1] == 0);
        }
        assert_true(rs_drain_may_run(&drain, now)); /* nothing is ready: nothing is looked at */
    }
}

/* Nobody can say when datagrams came. */
static void flood__delays_timers_by_so_many_datagrams_each_time(void **state) {
    rs_drain drain = {0};
    rs_time now = 1000;
    (void)state;
    for (unsigned times = 0; times < 10; times++) {
        uint32_t turns = 0;
        do {
            now++;
            turns++;
            rs_drain_looked(&drain, RS_DRAIN_MULTICAST, TURN / 2, false, 0);
            rs_drain_looked(&drain, RS_DRAIN_PEERS, TURN / 2, false, 0);
        } while (!rs_drain_may_run(&drain, now));
        assert_int_equal(turns, RS_DRAIN_MOST / TURN + 1);
    }
    rs_drain_looked(&drain, RS_DRAIN_MULTICAST, 3, true, 0);
    rs_drain_looked(&drain, RS_DRAIN_PEERS, 0, true, 0);
    assert_true(rs_drain_may_run(&drain, now)); /* it ended */
}

/* What is read waited for 30 in one socket, for 7 in the other: nothing that came before is left after so long. */
static void flood__delays_timers_by_what_waits(void **state) {
    rs_drain drain = {0};
    rs_time now = 1000;
    (void)state;
    for (unsigned times = 0; times < 10; times++) {
        rs_time began = now + 1;
        do {
            now++;
            rs_drain_looked(&drain, RS_DRAIN_MULTICAST, TURN, false, now - 30);
            rs_drain_looked(&drain, RS_DRAIN_PEERS, TURN, false, now % 5 ? 0 : now - 7); /* put off now and then */
        } while (!rs_drain_may_run(&drain, now));
        assert_in_range(now - began, 30, 30);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers__of_who_is_in_time_run_at_once),
        cmocka_unit_test(timers__of_who_is_late_wait_for_both_sockets),
        cmocka_unit_test(flood__delays_timers_by_so_many_datagrams_each_time),
        cmocka_unit_test(flood__delays_timers_by_what_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
