/* Receivers that hold the others back, and the policies for them. */
#include "check.h"

#include "net.h"

#define GIGABIT INT64_C(1000000000)
#define OBJECT (UINT64_C(128) << 20) /* 1.09 s at 1 Gb/s */

static const rs_config usual = {.fragment_size = 8896, .nic_rate_bps = GIGABIT};

static net *one_slow(rs_straggler_policy policy, int64_t slow_bps, bool at_socket) {
    net *n = net_new(4, &usual, 1);
    net_knob(n)->path.rate_bps = 0;
    net_bottleneck(n, 3, slow_bps, 200, at_socket);
    net_room(n, 3, 200 * 8944);
    net_stragglers(n, policy);
    net_send_all(n, 1, OBJECT);
    return n;
}

static rs_time done_at(net *n, rs_peer peer) {
    const net_told *done = net_event(n, 0, RS_EV_PEER_DONE, peer);
    assert_non_null(done);
    return done->at - NET_START;
}

static const char *logged(net *n, const char *text) {
    (void)text;
    const net_told *log = net_event(n, 0, RS_EV_LOG, 3);
    return log ? log->event.cause : "";
}

static void wait__all_go_at_its_pace(void **state) {
    (void)state;
    net *n = one_slow(RS_STRAGGLERS_DEFAULT, GIGABIT / 10, false);
    net_at(n, 30 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(done_at(n, 1) > 10 * SEC); /* 10.9 s of wire */
    assert_int_equal(net_stats(n, 3, net_receiving(n, 3)).patches_received, 0);
    net_free(n);
}

static void demote__the_others_go_on_at_their_own_speed(void **state) {
    (void)state;
    for (int at_socket = 0; at_socket < 2; at_socket++) {
        net *n = one_slow(RS_STRAGGLERS_DEMOTE, GIGABIT / 10, at_socket);
        net_at(n, 60 * SEC);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_true(done_at(n, 1) < 1900 * MS && done_at(n, 2) < 1900 * MS); /* 1.09 s, and 0.3 s until it is noticed */
        assert_true(net_has(n, 3, 1));
        assert_non_null(strstr(logged(n, "too slow"), "demoted"));
        net_free(n);
    }
}

static void evict__it_fails_with_the_figures(void **state) {
    (void)state;
    net *n = one_slow(RS_STRAGGLERS_EVICT, GIGABIT / 10, false);
    net_at(n, 60 * SEC);
    assert_false(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(done_at(n, 1) < 1900 * MS && done_at(n, 2) < 1900 * MS);
    const net_told *failed = net_event(n, 0, RS_EV_PEER_FAILED, 3);
    assert_non_null(failed);
    assert_non_null(strstr(failed->event.cause, "too slow: it took "));
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 1);
    net_free(n);
}

/* Three quarters of what the others take are no straggling: a trial shows it, and nobody is sent away. */
static void somewhat_slower__stays(void **state) {
    (void)state;
    net *n = one_slow(RS_STRAGGLERS_EVICT, GIGABIT * 3 / 4, false);
    net_at(n, 60 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(done_at(n, 3) < 2200 * MS); /* 1.45 s of its wire */
    net_free(n);
}

/* Slow for less than the policy's time. */
static void hiccup__is_forgiven(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 1);
    net_knob(n)->path.rate_bps = 0;
    net_stragglers(n, RS_STRAGGLERS_EVICT);
    net_send_all(n, 1, OBJECT);
    for (rs_time at = 200 * MS; at < 900 * MS; at += 300 * MS) {
        net_at(n, at);
        net_bottleneck(n, 3, GIGABIT / 20, 100, false);
        net_at(n, at + 150 * MS);
        net_bottleneck(n, 3, 0, 0, false);
    }
    net_at(n, 60 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

/* Only one receiver, or most of them slow: there is nobody to compare with. */
static void most_are_slow__they_are_waited_for(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 1);
    net_knob(n)->path.rate_bps = 0;
    net_bottleneck(n, 2, GIGABIT / 10, 200, false);
    net_bottleneck(n, 3, GIGABIT / 10, 200, false);
    net_stragglers(n, RS_STRAGGLERS_EVICT);
    net_send_all(n, 1, OBJECT / 4);
    net_at(n, 60 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

/* Its connection breaks after it left the data channel: it gets the rest all the same. */
static void demoted_and_cut_off__is_finished(void **state) {
    (void)state;
    net *n = one_slow(RS_STRAGGLERS_DEMOTE, GIGABIT / 10, false);
    net_knob(n)->control_rate_bps = GIGABIT / 10;
    net_at(n, 1000 * MS);
    assert_non_null(strstr(logged(n, "too slow"), "demoted"));
    for (int i = 0; i < 3; i++) {
        net_cut(n, 0, 3);
        net_at(n, net_now(n) + 700 * MS);
    }
    net_at(n, 60 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_has(n, 3, 1));
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait__all_go_at_its_pace),
        cmocka_unit_test(demote__the_others_go_on_at_their_own_speed),
        cmocka_unit_test(evict__it_fails_with_the_figures),
        cmocka_unit_test(somewhat_slower__stays),
        cmocka_unit_test(hiccup__is_forgiven),
        cmocka_unit_test(most_are_slow__they_are_waited_for),
        cmocka_unit_test(demoted_and_cut_off__is_finished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
