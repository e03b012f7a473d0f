/* Paths and sessions: partial grants, moved and failed paths, denials, concurrent transfers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net.h"

#define FRAGMENT 1000

static const rs_config usual = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};

static void partial_grants__become_sessions_that_continue(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 1);
    net_knob(n)->path.accepted_size = 300 * FRAGMENT - 5; /* rounded up to whole fragments */
    net_knob(n)->loss = 0.02;
    rs_xfer xfer = net_send_all(n, 1, 1000 * FRAGMENT);
    net_at(n, 3 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_WANTED, ANYONE), 4);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 4);
    assert_int_equal(net_events(n, 1, RS_EV_SESSION, ANYONE), 3);
    const uint64_t first[] = {0, 300, 600, 900}, end[] = {300, 600, 900, 1000};
    for (uint32_t s = 0; s < 4; s++) {
        const net_said *open = net_message(n, 0, 1, RS_MSG_OPEN, s);
        assert_int_equal(open->message.session, s);
        assert_int_equal(open->message.open.first, first[s]);
        assert_int_equal(open->message.open.end, end[s]);
    }
    for (rs_peer to = 1; to < 4; to++)
        assert_true(net_has(n, to, 1));
    (void)xfer;
    net_free(n);
}

static void rest__is_wanted_right_after_a_partial_grant(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 2);
    net_knob(n)->grant = false;
    rs_xfer xfer = net_send_all(n, 1, 1000 * FRAGMENT);
    net_at(n, 5 * MS);
    rs_path_grant grant = net_knob(n)->path;
    grant.accepted_size = 400 * FRAGMENT;
    net_grant(n, 0, xfer, &grant);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_WANTED, ANYONE), 2);
    /* Granted while the first session is still being sent: the second begins when it is over. */
    grant.accepted_size = UINT64_MAX;
    net_grant(n, 0, xfer, &grant);
    net_at(n, 1 * SEC);
    assert_true(net_has(n, 1, 1));
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 2);
    assert_int_equal(rs_path_granted(net_node(n, 0), net_knob(n)->now, xfer, &grant), RS_ERR_UNKNOWN);
    net_free(n);
}

static void denied__fails_with_the_cause(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 3);
    net_knob(n)->grant = false;
    rs_xfer xfer = net_send_all(n, 1, 10 * FRAGMENT);
    net_at(n, 5 * MS);
    net_call(n, 0, rs_path_denied(net_node(n, 0), net_knob(n)->now, xfer, "rack 9 does not exist"));
    net_at(n, 10 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 2);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 1)->event.cause, "rack 9 does not exist"));
    assert_false(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 0);
    net_free(n);
}

static void no_answer__ends_with_a_cause(void **state) {
    (void)state;
    rs_config config = usual;
    config.no_path_bound = 2 * SEC;
    net *n = net_new(2, &config, 4);
    net_knob(n)->grant = false;
    net_send_all(n, 1, 10 * FRAGMENT);
    net_at(n, 1999 * MS);
    assert_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
    net_at(n, 2001 * MS);
    assert_non_null(strstr(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.cause, "no answer to the path request"));
    net_free(n);
}

static void no_light__is_told_once_then_the_path_moves(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 5);
    net_knob(n)->path.reconfiguration = 70 * MS;
    net_knob(n)->path.light_bound = 200 * MS;
    net_knob(n)->path.kind = RS_PATH_CIRCUIT;
    for (rs_peer to = 1; to < 4; to++)
        net_dark_until(n, to, RS_NEVER);
    rs_xfer xfer = net_send_all(n, 1, 500 * FRAGMENT);
    net_at(n, 400 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, ANYONE), 3);
    const net_told *dark = net_event(n, 0, RS_EV_NO_LIGHT, 3);
    assert_in_range(dark->at - NET_START, 200 * MS, 205 * MS);
    assert_int_equal(net_stats(n, 0, xfer).phase, RS_PHASE_ATTEMPT);
    /* Moved to the packet network: the receivers see packets now. */
    for (rs_peer to = 1; to < 4; to++)
        net_dark_until(n, to, 0);
    net_call(n, 0, rs_path_moved(net_node(n, 0), net_knob(n)->now, xfer, RS_PATH_PACKET));
    net_at(n, 600 * MS);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    for (rs_peer to = 1; to < 4; to++)
        assert_true(net_has(n, to, 1));
    assert_int_equal(net_messages(n, 3, 0, RS_MSG_PTCH_REQ), 0);
    net_free(n);
}

static void no_light_ever__is_finished_by_patches(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 6);
    net_knob(n)->path.light_bound = 100 * MS;
    net_dark_until(n, 3, RS_NEVER);
    net_send_all(n, 1, 500 * FRAGMENT);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 3)->event.bytes, 500); /* all patched */
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 1)->event.bytes, 0);
    net_free(n);
}

/* One receiver's host filters multicast. The others wait for it a grace after the last of them had light, no longer,
 * and it gets everything by patches. */
static net *with_dark(uint64_t seed, rs_peer dark) {
    net *n = net_new(4, &usual, seed);
    net_knob(n)->path.reconfiguration = 70 * MS;
    net_knob(n)->path.light_bound = 410 * MS;
    net_knob(n)->path.kind = RS_PATH_CIRCUIT;
    for (rs_peer to = 1; to < 4; to++)
        net_dark_until(n, to, to == dark ? RS_NEVER : 70 * MS);
    return n;
}

static void dark_receiver__does_not_hold_the_others_and_is_finished_by_patches(void **state) {
    (void)state;
    net *n = with_dark(31, 3);
    net_send_all(n, 1, 500 * FRAGMENT);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    rs_time lit = net_event(n, 0, RS_EV_FIRST_LIGHT, 2)->at;
    for (rs_peer to = 1; to < 3; to++) {
        assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, to)->event.bytes, 0);
        assert_in_range(net_event(n, 0, RS_EV_PEER_DONE, to)->at - lit, 0, 70 * MS);
    }
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 3)->event.bytes, 500);
    assert_in_range(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - lit, 0, 150 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, ANYONE), 1);
    const net_told *dark = net_event(n, 0, RS_EV_NO_LIGHT, 3);
    assert_non_null(strstr(dark->event.cause, "2 others had light"));
    assert_true(dark->at <= net_event(n, 0, RS_EV_PATH_DONE, ANYONE)->at); /* while the path is still held */
    net_free(n);
}

/* Who is in the sender's rack has light at once, before the circuit can be made: that says nothing of the others. */
static void light_at_the_senders_rack__does_not_make_the_circuits_receivers_dark(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 35);
    net_knob(n)->path.reconfiguration = 70 * MS;
    net_knob(n)->path.light_bound = 410 * MS;
    net_knob(n)->path.kind = RS_PATH_CIRCUIT;
    net_dark_until(n, 2, 110 * MS);
    net_dark_until(n, 3, 110 * MS);
    net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_FIRST_LIGHT, 1)->at - NET_START < 20 * MS);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, ANYONE), 0);
    for (rs_peer to = 1; to < 4; to++)
        assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, to)->event.bytes, 0); /* nothing by patches */
    net_free(n);
}

static void dark_receiver__named_by_the_grant_is_not_waited_for_at_all(void **state) {
    (void)state;
    static const rs_peer dark = 3;
    net *n = with_dark(32, 3);
    net_knob(n)->path.dark = &dark;
    net_knob(n)->path.dark_count = 1;
    net_send_all(n, 1, 500 * FRAGMENT);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    rs_time lit = net_event(n, 0, RS_EV_FIRST_LIGHT, 2)->at;
    assert_in_range(net_event(n, 0, RS_EV_PEER_DONE, 1)->at - lit, 0, 10 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, 3), 1); /* again: so that it stays known */
    net_free(n);
}

static void dark_receiver__named_by_the_grant_takes_part_if_it_has_light(void **state) {
    (void)state;
    static const rs_peer dark = 3;
    net *n = with_dark(33, ANYONE);
    net_knob(n)->path.dark = &dark;
    net_knob(n)->path.dark_count = 1;
    net_send_all(n, 1, 5000 * FRAGMENT);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 3)->event.bytes, 0);
    assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, ANYONE), 0);
    net_free(n);
}

/* All that the path is for are known to be dark: a short trial, then unicast. */
static void dark_receiver__alone_and_named_by_the_grant_is_finished_soon(void **state) {
    (void)state;
    static const rs_peer dark[] = {3};
    net *n = with_dark(34, 3);
    net_knob(n)->path.reconfiguration = 0;
    net_knob(n)->path.kind = RS_PATH_PACKET;
    net_knob(n)->path.dark = dark;
    net_knob(n)->path.dark_count = 1;
    rs_xfer xfer;
    assert_int_equal(net_send(n, 0, 1, 500 * FRAGMENT, 1, dark, &xfer), RS_OK);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_in_range(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START, 0, 150 * MS);
    net_free(n);
}

/* Nobody knows yet that it is dark: a light bound of the circuit, a short trial on packets, then unicast. */
static void dark_receiver__alone_is_finished_soon_after_the_path_moved(void **state) {
    (void)state;
    static const rs_peer to[] = {3};
    for (int packet = 0; packet < 2; packet++) { /* at once, or after a circuit */
        net *n = with_dark(37, 3);
        if (packet) {
            net_knob(n)->path.reconfiguration = 0;
            net_knob(n)->path.kind = RS_PATH_PACKET;
        }
        rs_xfer xfer;
        assert_int_equal(net_send(n, 0, 1, 500 * FRAGMENT, 1, to, &xfer), RS_OK);
        rs_time path = 0;
        if (!packet) {
            net_at(n, 415 * MS);
            assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, 3), 1);
            net_call(n, 0, rs_path_moved(net_node(n, 0), net_knob(n)->now, xfer, RS_PATH_PACKET));
            path = 415 * MS;
        }
        net_at(n, 5 * SEC);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_in_range(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START - path, 200 * MS, 350 * MS);
        assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 3)->event.bytes, 500);
        assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, 3), packet ? 1 : 2); /* of each path */
        net_free(n);
    }
}

/* Its light comes late, but within the trial: no report of darkness, and nothing by unicast. */
static void light_of_one_alone_that_comes_late__is_waited_for(void **state) {
    (void)state;
    static const rs_peer to[] = {3};
    net *n = with_dark(38, ANYONE);
    net_knob(n)->path.reconfiguration = 0;
    net_knob(n)->path.kind = RS_PATH_PACKET;
    net_dark_until(n, 3, 200 * MS);
    rs_xfer xfer;
    assert_int_equal(net_send(n, 0, 1, 500 * FRAGMENT, 1, to, &xfer), RS_OK);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 3)->event.bytes, 0);
    assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, ANYONE), 0);
    net_free(n);
}

/* The same with many receivers: one look at all of them a grace, and all others are served in time. */
static void dark_receiver__one_of_hundreds_holds_nobody(void **state) {
    (void)state;
    enum { RECEIVERS = 300 };
    net *n = net_new(RECEIVERS + 1, &usual, 36);
    net_knob(n)->path.reconfiguration = 70 * MS;
    net_knob(n)->path.light_bound = 410 * MS;
    net_knob(n)->path.kind = RS_PATH_CIRCUIT;
    for (rs_peer to = 1; to <= RECEIVERS; to++)
        net_dark_until(n, to, to == RECEIVERS ? RS_NEVER : 70 * MS);
    net_send_all(n, 1, 50 * FRAGMENT);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, ANYONE), 1);
    for (rs_peer to = 1; to < RECEIVERS; to++)
        assert_true(net_event(n, 0, RS_EV_PEER_DONE, to)->at - NET_START < 70 * MS + 300 * MS);
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, RECEIVERS)->event.bytes, 50);
    net_free(n);
}

/* Its light comes after the grace, while the others are served: it gets its round. */
static void light_that_comes_late__is_taken_while_the_others_are_served(void **state) {
    (void)state;
    net *n = with_dark(35, ANYONE);
    net_dark_until(n, 3, 160 * MS);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 3)->event.bytes, 0);
    assert_int_equal(net_events(n, 0, RS_EV_NO_LIGHT, ANYONE), 0);
    net_free(n);
}

static void path_failed__the_rest_goes_by_patches(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 7);
    rs_xfer xfer = net_send_all(n, 1, 5000 * FRAGMENT);
    net_at(n, 20 * MS);
    assert_int_equal(net_stats(n, 0, xfer).phase, RS_PHASE_HIGH_RATE);
    net_call(n, 0, rs_path_failed(net_node(n, 0), net_knob(n)->now, xfer, "cross-connect 12->31 in FAULT"));
    uint64_t sent = net_knob(n)->data_packets;
    net_at(n, 5 * SEC);
    assert_int_equal(net_knob(n)->data_packets, sent); /* nothing more on the data channel */
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 0);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 1)->event.bytes > 2000);
    net_free(n);
}

static void path_failed__between_sessions(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 8);
    net_knob(n)->grant = false;
    rs_xfer xfer = net_send_all(n, 1, 1000 * FRAGMENT);
    net_at(n, 5 * MS);
    rs_path_grant grant = net_knob(n)->path;
    grant.accepted_size = 400 * FRAGMENT;
    net_grant(n, 0, xfer, &grant);
    net_at(n, 500 * MS);
    net_call(n, 0, rs_path_failed(net_node(n, 0), net_knob(n)->now, xfer, "the manager is gone"));
    net_at(n, 2 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 2)->event.bytes, 600);
    net_free(n);
}

static void path_failed__before_any_grant_fails_all(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 9);
    net_knob(n)->grant = false;
    rs_xfer xfer = net_send_all(n, 1, 1000 * FRAGMENT);
    net_at(n, 5 * MS);
    net_call(n, 0, rs_path_failed(net_node(n, 0), net_knob(n)->now, xfer, "the manager is gone"));
    net_at(n, 6 * MS);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 1)->event.cause, "the manager is gone"));
    assert_non_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
    net_free(n);
}

static void cancelled__receivers_hear_why(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 10);
    rs_xfer xfer = net_send_all(n, 1, 50000 * FRAGMENT);
    net_at(n, 50 * MS);
    net_call(n, 0, rs_send_cancel(net_node(n, 0), net_knob(n)->now, xfer, "the application deleted it"));
    net_at(n, 100 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 1);
    assert_false(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    for (rs_peer to = 1; to < 3; to++) {
        const net_told *done = net_event(n, to, RS_EV_RECEIVE_DONE, ANYONE);
        assert_false(done->event.ok);
        assert_non_null(strstr(done->event.cause, "the application deleted it"));
    }
    assert_int_equal(rs_send_cancel(net_node(n, 0), net_knob(n)->now, xfer, "again"), RS_ERR_UNKNOWN);
    /* The same object can be sent again. */
    net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 500 * MS);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    net_free(n);
}

static void concurrent_sends__share_the_nic_fairly(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 11);
    net_knob(n)->path.rate_bps = 0;
    const rs_peer one[] = {1}, two[] = {2};
    rs_xfer a, b;
    uint64_t size = 20000 * FRAGMENT; /* 0.18 s alone at 1 Gb/s */
    assert_int_equal(net_send(n, 0, 1, size, 1, one, &a), RS_OK);
    assert_int_equal(net_send(n, 0, 2, size, 1, two, &b), RS_OK);
    net_at(n, 150 * MS);
    rs_xfer_stats first = net_stats(n, 0, a), second = net_stats(n, 0, b);
    assert_in_range(first.packets_sent, second.packets_sent * 95 / 100, second.packets_sent * 105 / 100);
    net_at(n, 2 * SEC);
    rs_time end_a = net_event(n, 1, RS_EV_RECEIVE_DONE, ANYONE)->at - NET_START;
    rs_time end_b = net_event(n, 2, RS_EV_RECEIVE_DONE, ANYONE)->at - NET_START;
    assert_in_range(end_a, 340 * MS, 400 * MS);
    assert_in_range(end_b, 340 * MS, 400 * MS);
    net_free(n);
}

static void slow_path__leaves_the_nic_to_the_other(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 12);
    net_knob(n)->grant = false;
    const rs_peer one[] = {1}, two[] = {2};
    rs_xfer a, b;
    assert_int_equal(net_send(n, 0, 1, 20000 * FRAGMENT, 1, one, &a), RS_OK);
    assert_int_equal(net_send(n, 0, 2, 20000 * FRAGMENT, 1, two, &b), RS_OK);
    net_at(n, 1 * MS);
    rs_path_grant grant = net_knob(n)->path;
    grant.accepted_size = UINT64_MAX;
    grant.rate_bps = 100000000;
    net_grant(n, 0, a, &grant);
    grant.rate_bps = 0;
    net_grant(n, 0, b, &grant);
    net_at(n, 2 * SEC);
    assert_true(net_event(n, 2, RS_EV_RECEIVE_DONE, ANYONE)->at - NET_START < 215 * MS); /* about 0.9 of the NIC */
    net_free(n);
}

static void receivers__who_have_it_count_as_done(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 13);
    net_application(n, 2, APP_HAS_IT);
    rs_xfer xfer = net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 1 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 2)->event.had_it);
    assert_false(net_event(n, 0, RS_EV_PEER_DONE, 1)->event.had_it);
    assert_null(net_event(n, 2, RS_EV_RECEIVE_DONE, ANYONE));
    assert_true(net_has(n, 1, 1));
    (void)xfer;
    net_free(n);
}

static const rs_digest follows = {.algorithm = 1}, told = {.algorithm = 1, .length = 16, .value = "0123456789abcde"};

/* By Republic and by RDCM: the object is sent while its digest is being taken, and checked when that is told. */
static void the_digest_follows__all_is_sent_and_then_checked(void **state) {
    (void)state;
    const rs_protocol protocols[] = {RS_PROTOCOL_REPUBLIC, RS_PROTOCOL_RDCM};
    for (int i = 0; i < 2; i++) {
        rs_config config = usual;
        config.no_path_bound = config.sender_silence_bound = config.receiver_silence_bound = 1 * SEC;
        net *n = net_new(4, &config, 14);
        rs_incoming info;
        net_knob(n)->path.protocol = protocols[i];
        net_knob(n)->loss = 0.01;
        net_digest(n, follows);
        rs_xfer xfer = net_send_all(n, 1, 500 * FRAGMENT);
        net_at(n, 4 * SEC); /* far beyond all bounds */
        for (rs_peer to = 1; to < 4; to++) {
            assert_int_equal(net_events(n, to, RS_EV_COMPLETE, ANYONE), 1);
            assert_int_equal(net_events(n, to, RS_EV_RECEIVE_DONE, ANYONE), 0);
        }
        assert_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
        net_cut(n, 0, 2); /* said again when it is up */
        net_call(n, 0, rs_send_digest(net_node(n, 0), net_knob(n)->now, xfer, &told));
        assert_int_equal(rs_send_digest(net_node(n, 0), net_knob(n)->now, xfer, &told), RS_ERR_STATE);
        net_at(n, 4 * SEC + 1 * MS);
        assert_int_equal(net_events(n, 1, RS_EV_DIGEST, ANYONE), 1);
        assert_int_equal(rs_incoming_info(net_node(n, 1), net_receiving(n, 1), &info) == RS_OK &&
                             memcmp(&info.digest, &told, sizeof told) != 0,
                         false);
        net_at(n, 6 * SEC);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        for (rs_peer to = 1; to < 4; to++) {
            assert_true(net_has(n, to, 1));
            assert_int_equal(net_events(n, to, RS_EV_DIGEST, ANYONE), 1);
        }
        net_free(n);
    }
}

/* Who may have the object already cannot know before the digest is told; the others are not kept waiting. */
static void the_digest_follows__who_has_it_waits_for_it(void **state) {
    (void)state;
    rs_config config = usual;
    config.sender_silence_bound = 1 * SEC;
    net *n = net_new(3, &config, 15);
    net_application(n, 2, APP_SLEEPS);
    net_digest(n, follows);
    rs_xfer xfer = net_send_all(n, 1, 500 * FRAGMENT);
    net_at(n, 3 * SEC);
    assert_int_equal(net_events(n, 1, RS_EV_COMPLETE, ANYONE), 1);
    assert_int_equal(net_events(n, 2, RS_EV_RECEIVE_DONE, ANYONE), 0);
    rs_digest other = told;
    other.algorithm = 2;
    assert_int_equal(rs_send_digest(net_node(n, 0), net_knob(n)->now, xfer, &other), RS_ERR_INVALID);
    net_call(n, 0, rs_send_digest(net_node(n, 0), net_knob(n)->now, xfer, &told));
    net_at(n, 3 * SEC + 10 * MS);
    assert_int_equal(net_events(n, 2, RS_EV_DIGEST, ANYONE), 1);
    net_call(n, 2, rs_incoming_have(net_node(n, 2), net_knob(n)->now, net_receiving(n, 2)));
    net_at(n, 4 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

/* The sender dies before it has told the digest: what is here cannot be checked, and is given up. */
static void the_digest_never_comes__it_is_given_up(void **state) {
    (void)state;
    rs_config config = usual;
    config.no_path_bound = config.sender_silence_bound = 1 * SEC;
    net *n = net_new(2, &config, 16);
    net_digest(n, follows);
    net_send_all(n, 1, 500 * FRAGMENT);
    net_at(n, 2 * SEC);
    assert_int_equal(net_events(n, 1, RS_EV_COMPLETE, ANYONE), 1);
    net_kill(n, 0);
    net_at(n, 8 * SEC);
    const net_told *over = net_event(n, 1, RS_EV_RECEIVE_DONE, ANYONE);
    assert_non_null(over);
    assert_false(over->event.ok);
    assert_non_null(strstr(over->event.cause, "told no digest"));
    net_free(n);
}

/* The peer connected while the caller was about to: it hears PEER_WANTED, finds it up, and says so again. */
static void the_connection_is_up_again__nobody_is_to_connect(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 17);
    net_send_all(n, 1, 500 * FRAGMENT);
    net_at(n, 2 * MS);
    uint32_t wanted = net_events(n, 0, RS_EV_PEER_WANTED, 1);
    for (int i = 0; i < 3; i++)
        net_call(n, 0, rs_peer_up(net_node(n, 0), net_knob(n)->now, 1));
    assert_int_equal(net_events(n, 0, RS_EV_PEER_WANTED, 1), wanted);
    net_at(n, 1 * SEC);
    assert_true(net_has(n, 1, 1));
    net_free(n);
}

static void bad_calls__change_nothing(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 14);
    const rs_peer twice[] = {1, 2, 1}, one[] = {1};
    rs_xfer xfer = 0, again = 0;
    rs_path_grant grant = net_knob(n)->path;
    assert_int_equal(net_send(n, 0, 1, 10, 3, twice, &xfer), RS_ERR_INVALID);
    assert_int_equal(net_send(n, 0, 1, 10, 0, twice, &xfer), RS_ERR_INVALID);
    assert_int_equal(net_send(n, 0, 1, UINT64_MAX - 1, 1, one, &xfer), RS_ERR_LIMIT);
    assert_int_equal(net_send(n, 0, 1, RS_STREAM, 1, one, &xfer), RS_ERR_INVALID); /* by Republic */
    assert_int_equal(net_send(n, 0, 1, 10, 1, one, &xfer), RS_OK);
    assert_int_equal(net_send(n, 0, 1, 10, 1, one, &again), RS_ERR_EXISTS);
    assert_int_equal(rs_path_granted(net_node(n, 0), net_knob(n)->now, xfer + 99, &grant), RS_ERR_UNKNOWN);
    assert_int_equal(rs_path_granted(net_node(n, 0), net_knob(n)->now, xfer, &grant), RS_ERR_INVALID); /* of 0 bytes */
    assert_int_equal(rs_path_moved(net_node(n, 0), net_knob(n)->now, xfer, RS_PATH_PACKET), RS_ERR_STATE);
    assert_int_equal(rs_verified(net_node(n, 0), net_knob(n)->now, xfer, true, ""), RS_ERR_UNKNOWN);
    assert_int_equal(rs_peer_down(net_node(n, 0), net_knob(n)->now, 77, "?"), RS_ERR_UNKNOWN);
    net_at(n, 1 * SEC);
    assert_true(net_has(n, 1, 1));
    net_free(n);
}

/* Who has pieces from before fetches the rest otherwise: nothing is sent for it, nobody waits, and it is asked until it
 * has the object. */
static void what_was_kept__is_not_sent_again(void **state) {
    (void)state;
    for (int alone = 0; alone < 4; alone++) { /* with another receiver, or not; by both engines */
        rs_xfer xfer;
        net *n = net_new(alone & 1 ? 2 : 4, &usual, 40 + (uint64_t)alone);
        net_knob(n)->path.protocol = alone & 2 ? RS_PROTOCOL_RDCM : RS_PROTOCOL_REPUBLIC;
        net_application(n, 1, APP_KEEPS);
        xfer = net_send_all(n, 1, 2000 * usual.fragment_size);
        net_at(n, 3 * SEC);
        assert_int_equal(net_events(n, 0, RS_EV_PEER_KEPT, 1), 1);
        assert_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
        assert_int_equal(net_messages(n, 0, 1, RS_MSG_PTCH_DATA), 0);
        assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 1); /* nobody needs it any more */
        if (alone & 1)
            assert_true(net_stats(n, 0, xfer).packets_sent < 100);
        else
            assert_true(net_has(n, 2, 1) && net_has(n, 3, 1));
        net_at(n, 60 * SEC); /* it may take long, and is alive */
        assert_null(net_event(n, 0, RS_EV_PEER_FAILED, 1));
        net_application(n, 1, APP_HAS_IT);
        net_at(n, 61 * SEC);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_false(net_event(n, 0, RS_EV_PEER_DONE, 1)->event.had_it);
        net_free(n);
    }
}

static void what_was_kept__and_came_to_nothing_is_sent(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 44);
    net_application(n, 1, APP_KEEPS);
    net_send_all(n, 1, 2000 * usual.fragment_size);
    net_at(n, 3 * SEC);
    net_application(n, 1, APP_ACCEPTS);
    net_at(n, 10 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

static void who_keeps_and_falls_silent__fails_alone(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 45);
    net_application(n, 1, APP_KEEPS);
    net_send_all(n, 1, 2000 * usual.fragment_size);
    net_at(n, 3 * SEC);
    net_freeze(n, 1);
    net_at(n, 20 * SEC);
    assert_non_null(net_event(n, 0, RS_EV_PEER_FAILED, 1));
    assert_true(net_has(n, 2, 1));
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partial_grants__become_sessions_that_continue),
        cmocka_unit_test(rest__is_wanted_right_after_a_partial_grant),
        cmocka_unit_test(denied__fails_with_the_cause),
        cmocka_unit_test(no_answer__ends_with_a_cause),
        cmocka_unit_test(no_light__is_told_once_then_the_path_moves),
        cmocka_unit_test(no_light_ever__is_finished_by_patches),
        cmocka_unit_test(dark_receiver__does_not_hold_the_others_and_is_finished_by_patches),
        cmocka_unit_test(light_at_the_senders_rack__does_not_make_the_circuits_receivers_dark),
        cmocka_unit_test(dark_receiver__named_by_the_grant_is_not_waited_for_at_all),
        cmocka_unit_test(dark_receiver__named_by_the_grant_takes_part_if_it_has_light),
        cmocka_unit_test(dark_receiver__alone_and_named_by_the_grant_is_finished_soon),
        cmocka_unit_test(dark_receiver__alone_is_finished_soon_after_the_path_moved),
        cmocka_unit_test(light_of_one_alone_that_comes_late__is_waited_for),
        cmocka_unit_test(dark_receiver__one_of_hundreds_holds_nobody),
        cmocka_unit_test(light_that_comes_late__is_taken_while_the_others_are_served),
        cmocka_unit_test(path_failed__the_rest_goes_by_patches),
        cmocka_unit_test(path_failed__between_sessions),
        cmocka_unit_test(path_failed__before_any_grant_fails_all),
        cmocka_unit_test(cancelled__receivers_hear_why),
        cmocka_unit_test(concurrent_sends__share_the_nic_fairly),
        cmocka_unit_test(slow_path__leaves_the_nic_to_the_other),
        cmocka_unit_test(receivers__who_have_it_count_as_done),
        cmocka_unit_test(the_digest_follows__all_is_sent_and_then_checked),
        cmocka_unit_test(the_digest_follows__who_has_it_waits_for_it),
        cmocka_unit_test(the_digest_never_comes__it_is_given_up),
        cmocka_unit_test(the_connection_is_up_again__nobody_is_to_connect),
        cmocka_unit_test(what_was_kept__is_not_sent_again),
        cmocka_unit_test(what_was_kept__and_came_to_nothing_is_sent),
        cmocka_unit_test(who_keeps_and_falls_silent__fails_alone),
        cmocka_unit_test(bad_calls__change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
