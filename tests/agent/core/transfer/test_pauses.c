/* Processes that are stopped and go on (SIGSTOP, a paused virtual machine): no transfer fails that can go on, whoever
 * was away, at any phase. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "net.h"

#define FRAGMENT 1000

static const rs_config usual = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .sender_away_bound = 120 * SEC};

/* From before the first packet to after the last; 20,000 packets take about 0.2 s. */
static const rs_time phases[] = {0, 1 * MS, 5 * MS, 60 * MS, 150 * MS, 199 * MS, 215 * MS, 240 * MS};
static const rs_time lengths[] = {1 * SEC, 4 * SEC, 10 * SEC, 60 * SEC};

static void finishes(const rs_config *config, rs_path_kind kind, rs_protocol protocol, rs_peer who, rs_time at,
                     rs_time length) {
    net *n = net_new(4, config, 11);
    net_knob(n)->path.kind = kind;
    net_knob(n)->path.reconfiguration = kind == RS_PATH_CIRCUIT ? 70 * MS : 0;
    net_knob(n)->path.protocol = protocol;
    net_knob(n)->loss = 0.01;
    if (kind == RS_PATH_CIRCUIT)
        for (rs_peer to = 1; to < 4; to++)
            net_dark_until(n, to, 40 * MS);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, at);
    net_pause(n, who, length);
    net_at(n, at + length + 20 * SEC);
    const net_told *failed = net_event(n, 0, RS_EV_PEER_FAILED, ANYONE);
    if (failed)
        print_error("server %u paused at %lld ms for %lld s: %s\n", who, (long long)(at / MS),
                    (long long)(length / SEC), failed->event.cause);
    assert_null(failed);
    for (rs_peer to = 1; to < 4; to++)
        assert_true(net_has(n, to, 1));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 1);
    net_free(n);
}

static void sender_is_stopped__nobody_fails(void **state) {
    (void)state;
    for (size_t p = 0; p < sizeof phases / sizeof *phases; p++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            finishes(&usual, RS_PATH_PACKET, RS_PROTOCOL_REPUBLIC, 0, phases[p], lengths[l]);
            finishes(&usual, RS_PATH_CIRCUIT, RS_PROTOCOL_REPUBLIC, 0, phases[p], lengths[l]);
        }
}

static void receiver_is_stopped__within_its_bound_nobody_fails(void **state) {
    (void)state;
    for (size_t p = 0; p < sizeof phases / sizeof *phases; p++)
        for (size_t l = 0; l < 2; l++) {
            finishes(&usual, RS_PATH_PACKET, RS_PROTOCOL_REPUBLIC, 2, phases[p], lengths[l]);
            finishes(&usual, RS_PATH_CIRCUIT, RS_PROTOCOL_REPUBLIC, 2, phases[p], lengths[l]);
        }
}

/* At `at`, for `length`: it fails, nobody else does, what goes to it afterwards comes, and nobody holds anything. */
static void fails_alone(rs_path_kind kind, rs_time at, rs_time length) {
    net *n = net_new(4, &usual, 12);
    net_knob(n)->path.kind = kind;
    net_knob(n)->path.reconfiguration = kind == RS_PATH_CIRCUIT ? 70 * MS : 0;
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, at);
    net_pause(n, 2, length);
    net_at(n, at + length + 20 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 3, 1));
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 1);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "said nothing for "));
    assert_int_equal(net_events(n, 0, RS_EV_SEND_DONE, ANYONE), 1); /* the send ends once, before it comes back */
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 1);
    net_send_all(n, 2, 2000 * FRAGMENT);
    net_at(n, at + length + 40 * SEC);
    for (rs_peer to = 1; to < 4; to++)
        assert_true(net_has(n, to, 2));
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 1);
    net_free(n);
}

static void receiver_is_stopped__beyond_its_bound_it_fails_alone(void **state) {
    (void)state;
    for (size_t p = 1; p < 5; p++) /* it misses at least the last */
        for (size_t l = 2; l < sizeof lengths / sizeof *lengths; l++) {
            fails_alone(RS_PATH_PACKET, phases[p], lengths[l]);
            fails_alone(RS_PATH_CIRCUIT, phases[p], lengths[l]);
        }
}

/* A connection that is full moves on now and then, and no PING gets through: its other end takes what comes. */
static void connection_is_choked__who_takes_from_it_is_not_silent(void **state) {
    (void)state;
    rs_config c = usual;
    c.sender_silence_bound = 100 * SEC; /* so it asks nothing itself for half of that */
    net *n = net_new(3, &c, 12);
    net_verify_takes(n, 2, 30 * SEC);
    net_send_all(n, 1, 2000 * FRAGMENT);
    net_at(n, 1 * SEC);
    rs_peer_writable(net_node(n, 0), net_knob(n)->now, 2, false);
    for (rs_time at = 3 * SEC; at <= 15 * SEC; at += 2 * SEC) {
        net_at(n, at);
        assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 0);
        rs_peer_writable(net_node(n, 0), net_knob(n)->now, 2, true);
        rs_peer_writable(net_node(n, 0), net_knob(n)->now, 2, false);
    }
    net_at(n, 22 * SEC); /* and one who takes nothing is */
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, 2), 1);
    net_call(n, 0, rs_peer_writable(net_node(n, 0), net_knob(n)->now, 2, true));
    net_at(n, 60 * SEC);
    assert_true(net_has(n, 1, 1));
    net_free(n);
}

static void sender_dies_while_it_is_stopped__its_receivers_give_up(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 13);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 60 * MS);
    net_pause(n, 0, 200 * SEC);
    net_at(n, 30 * SEC);
    assert_null(net_event(n, 1, RS_EV_RECEIVE_DONE, ANYONE));
    net_kill(n, 0);
    net_at(n, 36 * SEC);
    assert_non_null(strstr(net_event(n, 1, RS_EV_RECEIVE_DONE, ANYONE)->event.cause, "cannot be reached for"));
    net_free(n);
}

static void sender_never_goes_on__its_receivers_give_up(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 14);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 60 * MS);
    net_freeze(n, 0);
    net_at(n, 119 * SEC);
    assert_null(net_event(n, 1, RS_EV_RECEIVE_DONE, ANYONE));
    net_at(n, 122 * SEC);
    assert_non_null(strstr(net_event(n, 1, RS_EV_RECEIVE_DONE, ANYONE)->event.cause, "the sender said nothing for"));
    net_free(n);
}

static void sender_goes_on__at_no_higher_rate(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 15);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 100 * MS);
    net_pause(n, 0, 4 * SEC);
    net_at(n, 100 * MS + 4 * SEC - 1);
    uint64_t before = net_knob(n)->data_packets;
    net_at(n, 101 * MS + 4 * SEC);
    /* 1 Gb/s carries some 115 of these in a millisecond. */
    assert_in_range(net_knob(n)->data_packets - before, 1, 140);
    net_at(n, 20 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    net_free(n);
}

/* While the first session is being sent the second has its path already. */
static net *with_next(rs_xfer *xfer, uint32_t accepted) {
    net *n = net_new(2, &usual, 16);
    net_knob(n)->grant = false;
    *xfer = net_send_all(n, 1, 10000 * FRAGMENT);
    net_at(n, 5 * MS);
    rs_path_grant grant = net_knob(n)->path;
    grant.accepted_size = accepted * FRAGMENT;
    net_grant(n, 0, *xfer, &grant);
    net_at(n, 10 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_WANTED, ANYONE), 2);
    grant.accepted_size = UINT64_MAX;
    grant.kind = RS_PATH_CIRCUIT;
    grant.reconfiguration = 70 * MS;
    grant.rate_bps = 900000000;
    net_grant(n, 0, *xfer, &grant);
    return n;
}

static void next_path_moves__it_is_used_as_what_it_is(void **state) {
    (void)state;
    rs_xfer xfer;
    net *n = with_next(&xfer, 4000);
    assert_int_equal(rs_next_path_moved(net_node(n, 0), net_knob(n)->now, xfer, RS_PATH_PACKET), RS_OK);
    net_at(n, 20 * SEC);
    assert_true(net_has(n, 1, 1));
    /* Taken for a circuit that takes 70 ms it would wait for light in steps of 1.4 ms, three for each receiver. */
    const net_said *open = net_message(n, 0, 1, RS_MSG_OPEN, 1);
    assert_non_null(open);
    assert_int_equal(open->message.open.path_kind, RS_PATH_PACKET);
    assert_int_equal(rs_next_path_moved(net_node(n, 0), net_knob(n)->now, xfer, RS_PATH_PACKET), RS_ERR_UNKNOWN);
    net_free(n);
}

static void next_path_fails__another_one_is_wanted(void **state) {
    (void)state;
    rs_xfer xfer;
    net *n = with_next(&xfer, 4000);
    assert_int_equal(rs_next_path_failed(net_node(n, 0), net_knob(n)->now, xfer), RS_OK);
    net_call(n, 0, RS_OK);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_WANTED, ANYONE), 3);
    assert_int_equal(rs_next_path_failed(net_node(n, 0), net_knob(n)->now, xfer), RS_ERR_STATE);
    rs_path_grant grant = net_knob(n)->path;
    grant.accepted_size = UINT64_MAX;
    net_grant(n, 0, xfer, &grant);
    net_at(n, 20 * SEC);
    assert_true(net_has(n, 1, 1));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 2);
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sender_is_stopped__nobody_fails),
        cmocka_unit_test(receiver_is_stopped__within_its_bound_nobody_fails),
        cmocka_unit_test(receiver_is_stopped__beyond_its_bound_it_fails_alone),
        cmocka_unit_test(connection_is_choked__who_takes_from_it_is_not_silent),
        cmocka_unit_test(sender_dies_while_it_is_stopped__its_receivers_give_up),
        cmocka_unit_test(sender_never_goes_on__its_receivers_give_up),
        cmocka_unit_test(sender_goes_on__at_no_higher_rate),
        cmocka_unit_test(next_path_moves__it_is_used_as_what_it_is),
        cmocka_unit_test(next_path_fails__another_one_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
