/* Sockets are drained before timers run (agent/daemon/groups/drain.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/groups/drain.h"

#define TURN 256u

static void timers__of_who_is_in_time_run_at_once(void **state) {
    rs_drain drain = {0};
    (void)state;
    assert_true(rs_drain_may_run(&drain));
    rs_drain_looked(&drain, RS_DRAIN_MULTICAST, 12, true);
    rs_drain_looked(&drain, RS_DRAIN_PEERS, 1, true);
    assert_true(rs_drain_may_run(&drain));
}

static void timers__of_who_is_late_wait_for_both_sockets(void **state) {
    const uint32_t waited[RS_DRAIN_SOCKETS] = {5000, 900};
    (void)state;
    for (unsigned first = 0; first < RS_DRAIN_SOCKETS; first++) {
        uint32_t left[RS_DRAIN_SOCKETS] = {waited[0], waited[1]};
        rs_drain drain = {0};
        while (left[0] + left[1] > 0) { /* one of them after the other, as peers' datagrams wait for multicast */
            unsigned socket = left[first] ? first : 1 - first;
            uint32_t taken = left[socket] < TURN ? left[socket] : TURN;
            left[socket] -= taken;
            rs_drain_looked(&drain, (rs_drain_socket)socket, taken, left[socket] == 0);
            if (socket == first)
                rs_drain_looked(&drain, (rs_drain_socket)(1 - first), 0, false);
            assert_int_equal(rs_drain_may_run(&drain), left[0] + left[1] == 0);
        }
        assert_true(rs_drain_may_run(&drain)); /* nothing is ready: nothing is looked at */
    }
}

static void flood__delays_timers_by_so_many_datagrams_each_time(void **state) {
    rs_drain drain = {0};
    (void)state;
    for (unsigned times = 0; times < 10; times++) {
        uint32_t looks = 0;
        rs_drain_looked(&drain, RS_DRAIN_MULTICAST, TURN, false);
        for (; !rs_drain_may_run(&drain); looks++)
            rs_drain_looked(&drain, looks % 2 ? RS_DRAIN_PEERS : RS_DRAIN_MULTICAST, TURN, false);
        assert_int_equal(looks, RS_DRAIN_MOST / TURN);
    }
    rs_drain_looked(&drain, RS_DRAIN_MULTICAST, 3, true);
    rs_drain_looked(&drain, RS_DRAIN_PEERS, 0, true);
    assert_true(rs_drain_may_run(&drain)); /* it ended */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers__of_who_is_in_time_run_at_once),
        cmocka_unit_test(timers__of_who_is_late_wait_for_both_sockets),
        cmocka_unit_test(flood__delays_timers_by_so_many_datagrams_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
