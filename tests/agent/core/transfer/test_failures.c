/* What fails, and that it ends: servers that die, fall silent, come back, refuse; connections that are cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net.h"

#define FRAGMENT 1000

static const rs_config usual = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};

static void receiver_dies__the_others_finish(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 1);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 50 * MS);
    net_kill(n, 2);
    net_at(n, 10 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 3, 1));
    /* The others were not slowed: 20,000 packets take about 0.2 s. */
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 1)->at - NET_START < 250 * MS);
    const net_told *failed = net_event(n, 0, RS_EV_PEER_FAILED, 2);
    assert_in_range(failed->at - NET_START, 5 * SEC, 6 * SEC);
    assert_non_null(strstr(failed->event.cause, "cannot be reached"));
    assert_non_null(strstr(failed->event.cause, "connection refused"));
    const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    assert_false(done->event.ok);
    assert_int_equal(done->event.bytes, 2);
    assert_non_null(strstr(done->event.cause, "1 of 3 receivers failed"));
    assert_true(net_event(n, 0, RS_EV_PATH_DONE, ANYONE)->at - NET_START < 250 * MS);
    net_free(n);
}

static void receiver_dead_from_the_start__does_not_hold_the_others(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 2);
    net_kill(n, 2);
    net_send_all(n, 1, 2000 * FRAGMENT);
    net_at(n, 10 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 3, 1));
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 1)->at - NET_START < 400 * MS);
    assert_non_null(net_event(n, 0, RS_EV_PEER_FAILED, 2));
    net_free(n);
}

static void receiver_freezes__silence_is_found_though_its_connection_stays(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 3);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 50 * MS);
    net_freeze(n, 2);
    net_at(n, 10 * SEC);
    assert_true(net_has(n, 1, 1));
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "said nothing for 5."));
    assert_non_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
    net_free(n);
}

static void everyone_dies__the_send_is_done_and_failed(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 4);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 50 * MS);
    net_kill(n, 1);
    net_kill(n, 2);
    net_at(n, 10 * SEC);
    assert_false(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.bytes, 0);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 1);
    net_free(n);
}

static void sender_dies__receivers_give_up_and_say_why(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 5);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 50 * MS);
    net_kill(n, 0);
    net_at(n, 20 * SEC);
    for (rs_peer to = 1; to < 3; to++) {
        const net_told *done = net_event(n, to, RS_EV_RECEIVE_DONE, ANYONE);
        assert_false(done->event.ok);
        assert_in_range(done->at - NET_START, 5 * SEC, 7 * SEC);
        assert_non_null(strstr(done->event.cause, "the sender cannot be reached"));
    }
    net_free(n);
}

static void sender_restarts__receivers_start_over(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 6);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 50 * MS);
    net_restart(n, 0);
    net_send_all(n, 1, 20000 * FRAGMENT); /* the same object */
    net_at(n, 2 * SEC);
    for (rs_peer to = 1; to < 3; to++) {
        assert_non_null(
            strstr(net_event(n, to, RS_EV_RECEIVE_DONE, ANYONE)->event.cause, "this agent may have been restarted"));
        assert_int_equal(net_events(n, to, RS_EV_INCOMING, ANYONE), 2);
        assert_true(net_has(n, to, 1));
    }
    net_free(n);
}

static void receiver_restarts__it_gets_all_of_it_again(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 7);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 50 * MS);
    net_restart(n, 2);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 2)->event.bytes > 1000); /* what it had lost came by patches */
    net_free(n);
}

/* The control connection is cut every few ms, at every stage of a transfer with losses. */
static void connection_cut_again_and_again__nothing_is_lost_for_good(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        net *n = net_new(3, &usual, seed);
        net_knob(n)->loss = 0.05;
        net_knob(n)->data_delay = 300 * US;
        net_knob(n)->control_delay = 300 * US;
        net_send_all(n, 1, 2000 * FRAGMENT);
        rs_time at = 0;
        for (int cuts = 0; cuts < 12; cuts++) {
            at += (rs_time)(net_random(n) * 5 * (double)MS);
            net_at(n, at);
            net_cut(n, 0, 1 + (rs_peer)(cuts % 2));
        }
        net_at(n, 5 * SEC);
        if (!net_event(n, 0, RS_EV_SEND_DONE, ANYONE)) {
            net_show(n);
            fail_msg("seed %llu: not done", (unsigned long long)seed);
        }
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
        net_free(n);
    }
}

/* DATA_RCVD is lost with its connection: the receiver has closed the transfer, and answers the repeated OPEN with it.
 */
static bool cut_when_complete(net *n, rs_peer to) {
    return net_event(n, to, RS_EV_RECEIVE_DONE, ANYONE) != NULL;
}

static void final_control_lost__is_sent_again(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 8);
    net_send_all(n, 1, 100 * FRAGMENT);
    for (rs_time at = 1 * MS; !cut_when_complete(n, 1); at += 10 * US)
        net_at(n, at);
    net_cut(n, 0, 1); /* DATA_RCVD is on its way */
    assert_null(net_event(n, 0, RS_EV_PEER_DONE, 1));
    net_at(n, 1 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_messages(n, 1, 0, RS_MSG_DATA_RCVD) >= 2);
    assert_int_equal(net_events(n, 1, RS_EV_INCOMING, ANYONE), 1);
    net_free(n);
}

static void unreachable_for_a_while__is_not_failed(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 9);
    net_send_all(n, 1, 5000 * FRAGMENT);
    net_at(n, 20 * MS);
    net_unreachable(n, 2, true);
    net_cut(n, 0, 2);
    net_at(n, 4 * SEC);
    net_unreachable(n, 2, false);
    net_at(n, 6 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    /* Attempts to connect back off: not hundreds of them. */
    assert_in_range(net_events(n, 0, RS_EV_PEER_WANTED, 2), 3, 40);
    net_free(n);
}

static void refused__only_that_one_fails(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 10);
    net_application(n, 3, APP_REFUSES);
    net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 1 * SEC);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 3)->event.cause, "quota of 1 GB is used up"));
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    assert_int_equal(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.bytes, 2);
    net_free(n);
}

static void agent_does_not_make_room__is_refused_in_time(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 11);
    net_application(n, 2, APP_SLEEPS);
    net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 10 * SEC);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "did not make room in time"));
    assert_false(net_event(n, 2, RS_EV_RECEIVE_DONE, ANYONE)->event.ok);
    assert_true(net_has(n, 1, 1));
    net_free(n);
}

static void digest_mismatch__is_told_to_the_sender(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 12);
    net_bad_digest(n, 2);
    net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 1 * SEC);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "digest of chunk 0"));
    assert_false(net_event(n, 2, RS_EV_RECEIVE_DONE, ANYONE)->event.ok);
    assert_true(net_has(n, 1, 1));
    assert_false(net_has(n, 2, 1));
    net_free(n);
}

static const rs_digest known = {.algorithm = 1, .length = 16, .value = {1}};

static net *mending(uint64_t seed, rs_protocol protocol, uint64_t offset, uint64_t length, uint32_t times) {
    net *n = net_new(4, &usual, seed);
    net_digest(n, known);
    if (protocol == RS_PROTOCOL_RDCM) {
        net_knob(n)->path.kind = RS_PATH_PACKET;
        net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
    }
    net_wrong_piece(n, 2, offset, length, times);
    return n;
}

/* Bytes were changed on the way: their piece is fetched again, whichever engine brought them. */
static void wrong_piece__is_fetched_again(void **state) {
    (void)state;
    static const struct {
        uint64_t size, offset, length;
        uint32_t times;
    } cases[] = {
        {3000 * FRAGMENT - 1, 1 << 20, 1 << 20, 1},       /* in the middle */
        {3000 * FRAGMENT - 1, 2900 * FRAGMENT, 99999, 3}, /* the end */
        {100 * FRAGMENT, 0, 100 * FRAGMENT, 2},           /* all of it: no single request names that */
        {FRAGMENT / 2, 0, FRAGMENT / 2, 2},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        net *n = mending(21 + i, i % 2 ? RS_PROTOCOL_RDCM : RS_PROTOCOL_REPUBLIC, cases[i / 2].offset,
                         cases[i / 2].length, cases[i / 2].times);
        net_send_all(n, 1, cases[i / 2].size);
        rs_time end = net_run(n, 20 * SEC);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        for (rs_peer to = 1; to < 4; to++)
            assert_true(net_has(n, to, 1));
        assert_int_equal(net_fetches(n, 2), cases[i / 2].times);
        assert_int_equal(net_retaken(n, 0), cases[i / 2].times - 1);
        assert_true(end < 20 * SEC);
        net_free(n);
    }
}

/* The connection is lost at any time of it; the sender is silent for ever. */
static void wrong_piece__its_connection_is_cut(void **state) {
    (void)state;
    for (uint64_t seed = 40; seed < 60; seed++) {
        net *n = mending(seed, seed % 2 ? RS_PROTOCOL_RDCM : RS_PROTOCOL_REPUBLIC, 1 << 20, 1 << 20, 2);
        net_knob(n)->control_rate_bps = 500000000;
        net_send_all(n, 1, 3000 * FRAGMENT);
        for (rs_time at = 20 * MS; at < 200 * MS; at += 3 * MS) {
            net_at(n, at);
            if (net_fetches(n, 2) && net_random(n) < 0.3)
                net_cut(n, 0, 2);
        }
        net_run(n, 20 * SEC);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_true(net_has(n, 2, 1));
        net_free(n);
    }
}

static void wrong_piece__the_sender_dies(void **state) {
    (void)state;
    net *n = mending(61, RS_PROTOCOL_REPUBLIC, 1 << 20, 1 << 20, 1);
    net_knob(n)->control_rate_bps = 1000000;
    net_send_all(n, 1, 3000 * FRAGMENT);
    while (net_fetches(n, 2) == 0)
        net_at(n, net_now(n) + MS);
    net_kill(n, 0);
    net_run(n, 60 * SEC);
    const net_told *done = net_event(n, 2, RS_EV_RECEIVE_DONE, ANYONE);
    assert_false(done->event.ok);
    assert_non_null(strstr(done->event.cause, "cannot be reached"));
    assert_true(done->at - NET_START < 10 * SEC);
    net_free(n);
}

/* A program writes to the object while it is sent: who had it before has it, who did not is told why. */
static void wrong_piece__the_senders_bytes_changed(void **state) {
    (void)state;
    net *n = mending(62, RS_PROTOCOL_REPUBLIC, 1 << 20, 1 << 20, 100);
    net_bytes_change(n, 0);
    net_send_all(n, 1, 3000 * FRAGMENT);
    net_run(n, 20 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 3, 1));
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "changed at the sender"));
    assert_non_null(strstr(net_event(n, 2, RS_EV_RECEIVE_DONE, ANYONE)->event.cause, "changed at the sender"));
    assert_int_equal(net_fetches(n, 2), 1);
    net_free(n);
}

/* A receiver that never has enough. */
static void wrong_piece__asking_has_an_end(void **state) {
    (void)state;
    net *n = mending(63, RS_PROTOCOL_REPUBLIC, 1 << 20, 1 << 20, UINT32_MAX);
    net_send_all(n, 1, 3000 * FRAGMENT);
    net_run(n, 60 * SEC);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "over and over"));
    assert_true(net_has(n, 1, 1) && net_has(n, 3, 1));
    net_free(n);
}

static void slow_digest__is_waited_for(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 13);
    net_verify_takes(n, 1, 20 * SEC);
    net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 30 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

static void digest_never_checked__ends_all_the_same(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 14);
    net_verify_takes(n, 1, 500 * SEC);
    net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 100 * SEC);
    assert_false(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_false(net_event(n, 1, RS_EV_RECEIVE_DONE, ANYONE)->event.ok);
    net_free(n);
}

static void receiver_cancels__the_sender_hears_why(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 15);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 50 * MS);
    net_call(n, 2,
             rs_receive_cancel(net_node(n, 2), net_knob(n)->now, net_receiving(n, 2), "the store needs the room"));
    net_at(n, 1 * SEC);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "the store needs the room"));
    assert_true(net_has(n, 1, 1));
    net_free(n);
}

/* At each phase, with losses: before a path, while light is awaited, at high rate, while it is patched and verified. */
static void receiver_leaves__the_others_finish_as_soon(void **state) {
    (void)state;
    static const rs_time when[] = {0, 3 * MS, 12 * MS, 50 * MS, 100 * MS, 170 * MS, 215 * MS};
    for (int protocol = RS_PROTOCOL_REPUBLIC; protocol <= RS_PROTOCOL_RDCM; protocol++) {
        rs_time all = 0;
        for (size_t i = 0; i < sizeof when / sizeof *when; i++) {
            net *n = net_new(4, &usual, 50);
            net_knob(n)->path.protocol = (rs_protocol)protocol;
            net_knob(n)->loss = 0.01;
            net_verify_takes(n, 2, SEC);
            net_send_all(n, 1, 20000 * FRAGMENT);
            net_at(n, when[i]);
            for (rs_time at = when[i]; i > 0 && !net_event(n, 2, RS_EV_INCOMING, ANYONE); at += MS)
                net_at(n, at);
            if (i > 0)
                net_call(n, 2, rs_receive_leave(net_node(n, 2), net_knob(n)->now, net_receiving(n, 2)));
            net_at(n, 10 * SEC);
            const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
            assert_true(done->event.ok && net_has(n, 1, 1) && net_has(n, 3, 1));
            assert_int_equal(net_has(n, 2, 1), i == 0);
            assert_int_equal(net_events(n, 0, RS_EV_PEER_LEFT, 2), i > 0);
            assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 0);
            rs_time one = net_event(n, 0, RS_EV_PEER_DONE, 1)->at, other = net_event(n, 0, RS_EV_PEER_DONE, 3)->at;
            rs_time took = one > other ? one : other;
            all = i ? all : took;
            if (took > all + 20 * MS)
                fail_msg("protocol %d: left after %lld ms, the others take %lld ms, with it %lld", protocol,
                         (long long)(when[i] / MS), (long long)((took - NET_START) / MS),
                         (long long)((all - NET_START) / MS));
            net_free(n);
        }
    }
}

static void all_receivers_leave__the_send_is_done_and_says_so(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 51);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 50 * MS);
    for (rs_peer i = 1; i <= 2; i++)
        net_call(n, i, rs_receive_leave(net_node(n, i), net_knob(n)->now, net_receiving(n, i)));
    net_at(n, SEC);
    const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    assert_false(done->event.ok);
    assert_string_equal(done->event.cause, "all receivers left");
    assert_true(done->at - NET_START < 60 * MS);
    net_free(n);
}

/* Whoever speaks, speaks for itself: by its connection, whatever transfer it names. */
static void a_leave_for_another__is_nobodys(void **state) {
    (void)state;
    static const rs_peer to[] = {1, 2};
    net *n = net_new(4, &usual, 52);
    rs_xfer xfer;
    net_send(n, 0, 1, 20000 * FRAGMENT, 2, to, &xfer);
    net_at(n, 50 * MS);
    rs_message m = {.type = RS_MSG_DATA_RCVD, .nonce = net_message(n, 0, 1, RS_MSG_OPEN, 0)->message.nonce};
    m.data_rcvd.status = RS_RCVD_LEFT;
    uint8_t bytes[RS_HEADER_MAX];
    size_t length = rs_wire_encode(&m, 0, bytes, sizeof bytes);
    const rs_packet_in in = {
        .channel = RS_CH_PEER_RELIABLE, .peer = 3, .group = RS_NO_GROUP, .header = bytes, .header_length = length};
    rs_receive(net_node(n, 0), net_knob(n)->now, &in);
    net_at(n, 10 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok && net_has(n, 1, 1) && net_has(n, 2, 1));
    assert_int_equal(net_events(n, 0, RS_EV_PEER_LEFT, ANYONE), 0);
    net_free(n);
}

static void two_senders_of_one_object__the_second_waits_and_one_of_another_is_refused(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 16);
    const rs_peer to[] = {2};
    rs_xfer a, b, c;
    assert_int_equal(net_send(n, 0, 1, 20000 * FRAGMENT, 1, to, &a), RS_OK);
    net_at(n, 20 * MS);
    assert_int_equal(net_send(n, 1, 1, 20000 * FRAGMENT, 1, to, &b), RS_OK);
    assert_int_equal(net_send(n, 3, 1, 20001 * FRAGMENT, 1, to, &c), RS_OK);
    rs_time at = 20 * MS;
    while (at < SEC && !net_has(n, 2, 1))
        net_at(n, at += MS);
    net_application(n, 2, APP_HAS_IT);
    net_at(n, 2 * SEC);
    assert_true(net_has(n, 2, 1));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_events(n, 1, RS_EV_PEER_KEPT, 2), 1);
    assert_true(net_event(n, 1, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_non_null(strstr(net_event(n, 3, RS_EV_PEER_FAILED, 2)->event.cause, "another object by that id"));
    net_free(n);
}

/* The second takes over, by unicast, for its path is given back; the first, once it goes on, learns that it is there.
 * By RDCM nothing went any more, for ever. */
static void two_senders_of_one_object__where_one_stands_still_the_other_brings_it(void **state) {
    (void)state;
    for (rs_protocol by = RS_PROTOCOL_REPUBLIC; by <= RS_PROTOCOL_RDCM; by++) {
        net *n = net_new(4, &usual, 16 + by);
        const rs_peer to[] = {2, 3};
        rs_xfer a, b;
        net_knob(n)->path.protocol = by;
        net_knob(n)->path.no_overlay = net_knob(n)->resumes = true;
        assert_int_equal(net_send(n, 0, 1, 20000 * FRAGMENT, 2, to, &a), RS_OK);
        net_at(n, 20 * MS);
        assert_int_equal(net_send(n, 1, 1, 20000 * FRAGMENT, 2, to, &b), RS_OK);
        net_at(n, 40 * MS);
        net_pause(n, 0, 6 * SEC);
        rs_time at = 40 * MS;
        while (at < 6 * SEC && !(net_has(n, 2, 1) && net_has(n, 3, 1)))
            net_at(n, at += MS);
        assert_true(net_has(n, 2, 1) && net_has(n, 3, 1));
        net_application(n, 2, APP_HAS_IT);
        net_application(n, 3, APP_HAS_IT);
        net_at(n, 10 * SEC);
        assert_int_equal(net_events(n, 1, RS_EV_PEER_KEPT, ANYONE), 2);
        assert_true(net_event(n, 1, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_non_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        net_free(n);
    }
}

static void says(net *n, rs_peer from, rs_peer to, const rs_message *m) {
    uint8_t bytes[RS_HEADER_MAX];
    size_t length = rs_wire_encode(m, 0, bytes, sizeof bytes);
    const rs_packet_in in = {
        .channel = RS_CH_PEER_RELIABLE, .peer = from, .group = RS_NO_GROUP, .header = bytes, .header_length = length};
    net_call(n, to, rs_receive(net_node(n, to), net_knob(n)->now, &in).verdict == RS_RX_BAD ? RS_ERR_INVALID : RS_OK);
}

/* A liar's announcement holds nobody up for good. */
static void a_sender_that_announces_an_object_and_sends_none_of_it__gives_way_to_another(void **state) {
    (void)state;
    const rs_peer to[] = {2};
    rs_xfer xfer;
    net *n = net_new(4, &usual, 17);
    net_send(n, 1, 1, 20000 * FRAGMENT, 1, to, &xfer);
    net_at(n, 50 * MS);
    rs_message open = net_message(n, 1, 2, RS_MSG_OPEN, 0)->message;
    net_free(n);

    n = net_new(4, &usual, 17);
    open.nonce ^= 99;
    says(n, 3, 2, &open);
    net_at(n, 10 * MS);
    net_send(n, 1, 1, 20000 * FRAGMENT, 1, to, &xfer);
    const rs_message ping = {.type = RS_MSG_PING, .nonce = open.nonce};
    rs_time at = 10 * MS;
    while (at < 60 * SEC && !net_has(n, 2, 1)) {
        net_at(n, at += 200 * MS);
        if (!net_has(n, 2, 1))
            says(n, 3, 2, &ping);
    }
    assert_true(net_has(n, 2, 1) && net_event(n, 1, RS_EV_PEER_KEPT, 2));
    net_at(n, at + SEC);
    assert_true(net_event(n, 1, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

#define MANY 20

typedef struct {
    uint8_t bytes[MANY][RS_HEADER_MAX];
    size_t lengths[MANY];
    uint32_t count;
} many_opens;

/* Keeps what the second sender opens, and whatever else it says does not come. */
static bool gather_opens(net *n, rs_peer from, rs_peer to, rs_packet_in *in, void *context) {
    (void)n;
    many_opens *opens = context;
    rs_message m;
    if (from != 1 || to != 2)
        return false;
    assert_true(rs_wire_decode(in->header, in->header_length, 0, &m));
    if (m.type == RS_MSG_OPEN && opens->count < MANY) {
        memcpy(opens->bytes[opens->count], in->header, in->header_length);
        opens->lengths[opens->count++] = in->header_length;
    }
    return true;
}

static bool lose_answers(net *n, rs_peer from, rs_peer to, rs_packet_in *in, void *context) {
    (void)n, (void)in;
    uint32_t *lost = context;
    *lost += from == 2 && to == 1;
    return from == 2 && to == 1;
}

static void all_come_by_the_first(net *n) {
    rs_time at = net_now(n);
    uint32_t here = 0;
    while (at < 60 * SEC && here < MANY) {
        net_at(n, at += 10 * MS);
        for (here = 0; here < MANY && net_has(n, 2, here + 1);)
            here++;
    }
    assert_int_equal(here, MANY);
    net_application(n, 2, APP_HAS_IT);
    net_at(n, at + 2 * SEC);
    for (rs_peer i = 0; i < 2; i++) {
        assert_int_equal(net_events(n, i, RS_EV_PEER_FAILED, ANYONE), 0);
        assert_int_equal(net_events(n, i, RS_EV_SEND_DONE, ANYONE), MANY);
    }
    assert_int_equal(net_events(n, 1, RS_EV_PEER_KEPT, 2), MANY);
}

static void send_many(net *n, rs_peer from) {
    static const rs_peer to[] = {2};
    rs_xfer xfer;
    for (uint64_t i = 1; i <= MANY; i++)
        assert_int_equal(net_send(n, from, i, 2000 * FRAGMENT, 1, to, &xfer), RS_OK);
}

/* What came of a peer in one turn is answered after it: of twenty, eight were, and the others failed. */
static void two_senders_of_many_objects__all_that_ask_in_one_turn_are_answered(void **state) {
    (void)state;
    const rs_config slow = {.fragment_size = FRAGMENT, .nic_rate_bps = 100000000};
    many_opens opens = {.count = 0};
    net *n = net_new(3, &slow, 16);
    send_many(n, 0);
    net_at(n, 20 * MS);
    net_knob(n)->tamper = gather_opens;
    net_knob(n)->tamper_context = &opens;
    send_many(n, 1);
    net_at(n, 60 * MS);
    net_knob(n)->tamper = NULL;
    assert_int_equal(opens.count, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        const rs_packet_in in = {.channel = RS_CH_PEER_RELIABLE,
                                 .peer = 1,
                                 .group = RS_NO_GROUP,
                                 .header = opens.bytes[i],
                                 .header_length = opens.lengths[i]};
        rs_receive(net_node(n, 2), net_knob(n)->now, &in);
    }
    net_call(n, 2, RS_OK);
    all_come_by_the_first(n);
    net_free(n);
}

/* There was no room for the answer: it is asked for again before the receiver is asked for a sign. */
static void two_senders_of_many_objects__an_answer_that_never_came_is_asked_for_again(void **state) {
    (void)state;
    const rs_config slow = {.fragment_size = FRAGMENT, .nic_rate_bps = 100000000};
    uint32_t lost = 0;
    net *n = net_new(3, &slow, 17);
    send_many(n, 0);
    net_at(n, 20 * MS);
    net_knob(n)->tamper = lose_answers;
    net_knob(n)->tamper_context = &lost;
    send_many(n, 1);
    net_at(n, 100 * MS);
    net_knob(n)->tamper = NULL;
    assert_true(lost >= MANY);
    all_come_by_the_first(n);
    net_free(n);
}

/* It sends by patches, which took a healthy sender for one that stood still: the two took turns every 14 s, and what
 * lay behind the first gap was lost each time. */
static void a_sender_by_unicast_that_does_well__is_not_replaced(void **state) {
    (void)state;
    const rs_config slow = {.fragment_size = FRAGMENT, .nic_rate_bps = 4000000};
    static const rs_peer to[] = {2};
    net *n = net_new(3, &slow, 18);
    rs_xfer a, b;
    net_knob(n)->path.no_overlay = net_knob(n)->resumes = true;
    assert_int_equal(net_send(n, 0, 1, 20000 * FRAGMENT, 1, to, &a), RS_OK);
    net_at(n, 20 * MS);
    assert_int_equal(net_send(n, 1, 1, 20000 * FRAGMENT, 1, to, &b), RS_OK);
    net_at(n, 40 * MS);
    net_pause(n, 0, 6 * SEC);
    rs_time at = 40 * MS;
    while (at < 100 * SEC && !net_has(n, 2, 1))
        net_at(n, at += 10 * MS);
    assert_true(at > 30 * SEC && net_has(n, 2, 1));
    net_application(n, 2, APP_HAS_IT);
    net_at(n, at + 2 * SEC);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_KEPT, 2), 1);
    assert_int_equal(net_events(n, 1, RS_EV_PEER_KEPT, 2), 1);
    for (rs_peer i = 0; i < 2; i++)
        assert_true(net_event(n, i, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

static void keep_last_data(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                           size_t length, void *context) {
    (void)n, (void)from, (void)to;
    if (!arrives && channel == RS_CH_GROUP && length == RS_DATA_HEADER)
        memcpy(context, header, length);
}

static rs_rx_verdict deliver_fragment(net *n, rs_peer to, rs_data_header h, uint64_t sn) {
    uint8_t bytes[RS_DATA_HEADER];
    h.sn = sn;
    h.flags = 0;
    h.aux = 0;
    rs_wire_encode_data(&h, bytes);
    rs_packet_in in = {.channel = RS_CH_GROUP,
                       .peer = RS_NO_PEER,
                       .group = NET_GROUP,
                       .header = bytes,
                       .header_length = sizeof bytes,
                       .payload_length = FRAGMENT};
    return rs_receive(net_node(n, to), net_knob(n)->now, &in).verdict;
}

/* An object is cancelled, and one of the same name and size but other bytes is sent: what is still on its way of the
 * first must not become content of the second. */
static void object_replaced__a_straggler_of_the_earlier_opening_is_no_content(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 18);
    uint8_t bytes[RS_DATA_HEADER] = {0};
    rs_data_header old, fresh;
    net_knob(n)->watch = keep_last_data;
    net_knob(n)->watch_context = bytes;
    rs_xfer first = net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 20 * MS);
    assert_true(rs_wire_decode_data(bytes, sizeof bytes, &old));
    net_call(n, 0, rs_send_cancel(net_node(n, 0), net_knob(n)->now, first, "replaced"));
    net_at(n, 3 * SEC);
    net_send_all(n, 1, 20000 * FRAGMENT);
    net_at(n, 3 * SEC + 20 * MS);
    assert_true(rs_wire_decode_data(bytes, sizeof bytes, &fresh));
    assert_true(fresh.nonce != old.nonce);
    assert_int_equal(deliver_fragment(n, 1, old, 19998), RS_RX_UNKNOWN);
    assert_int_equal(deliver_fragment(n, 1, fresh, 19999), RS_RX_STORE);
    net_free(n);
}

static void one_open(net *n, rs_message m, const char *text) {
    rs_node *node = net_node(n, 1);
    uint8_t bytes[RS_HEADER_MAX];
    rs_packet_out out;
    rs_packet_in in = {.channel = RS_CH_PEER_RELIABLE, .peer = 9, .header = bytes};
    in.header_length = rs_wire_encode(&m, 0, bytes, sizeof bytes);
    assert_true(in.header_length > 0);
    assert_int_equal(rs_receive(node, NET_START, &in).verdict, RS_RX_NONE);
    assert_true(rs_poll_tx(node, NET_START, &out));
    rs_message answer;
    assert_true(rs_wire_decode(out.header, out.header_length, 0, &answer));
    assert_int_equal(answer.type, RS_MSG_OPEN_ACK);
    assert_int_equal(answer.open_ack.status, RS_ACK_REFUSED);
    assert_true(answer.nonce == m.nonce);
    assert_non_null(strstr(answer.open_ack.cause.text, text));
    assert_true(rs_deadline(node) == RS_NEVER); /* nothing is kept of it */
}

static void open__of_what_is_not_known_is_refused_with_a_reason(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 19);
    const rs_message good = {.type = RS_MSG_OPEN,
                             .nonce = 5,
                             .open = {.size = 1000,
                                      .fragment_size = 1000,
                                      .end = 1,
                                      .group_address = 0xefff0001,
                                      .data_port = 7070,
                                      .path_kind = RS_PATH_PACKET,
                                      .light_confirm = 1}};
    assert_int_equal(rs_peer_up(net_node(n, 1), NET_START, 9), RS_OK);
    rs_message m = good;
    m.open.engine = 9;
    one_open(n, m, "engine that this agent does not know");
    m = good;
    m.open.path_kind = 3;
    one_open(n, m, "kind of path that this agent does not know");
    m = good;
    m.open.fragment_size = 1; /* 256 MiB of them would be 2^28 bits to walk for 80 bytes */
    m.open.size = m.open.end = 1 << 28;
    one_open(n, m, "too small");
    m = good;
    m.open.engine = RS_PROTOCOL_RDCM;
    m.open.path_kind = RS_PATH_CIRCUIT;
    one_open(n, m, "does not go by that kind of path");
    m = good;
    m.open.size = RS_STREAM;
    m.open.end = RS_STREAM_FRAGMENTS;
    one_open(n, m, "carries no streams");
    m = good;
    m.open.group_address = m.open.data_port = 0;
    one_open(n, m, "not without a group");
    m = good;
    m.open.epoch = 1;
    one_open(n, m, "sealed");
    net_free(n);
}

static rs_message open_of(uint8_t app, uint64_t number, uint64_t nonce) {
    return (rs_message){.type = RS_MSG_OPEN,
                        .nonce = nonce,
                        .open = {.object = {.app = {app}, .data = number},
                                 .size = 1000,
                                 .fragment_size = 1000,
                                 .end = 1,
                                 .group_address = 0xefff0001,
                                 .data_port = 7070,
                                 .path_kind = RS_PATH_PACKET,
                                 .light_confirm = 1}};
}

/* Whether an OPEN of that sender is taken, which comes from `by`. What was ended for it is counted. */
static bool taken(rs_node *node, rs_peer by, rs_peer sender, const rs_message *m, uint32_t *ended) {
    uint8_t bytes[RS_HEADER_MAX];
    rs_event event;
    bool incoming = false;
    rs_packet_in in = {.channel = RS_CH_PEER_RELIABLE,
                       .peer = by,
                       .header = bytes,
                       .header_length = rs_wire_encode(m, 0, bytes, sizeof bytes)};
    assert_int_not_equal(rs_receive(node, NET_START, &in).verdict, RS_RX_BAD);
    while (rs_poll_event(node, &event)) {
        incoming |= event.kind == RS_EV_INCOMING && event.peer == sender;
        *ended += event.kind == RS_EV_RECEIVE_DONE && !event.ok;
    }
    return incoming;
}

static bool announced(rs_node *node, rs_peer peer, uint64_t number, uint32_t *ended) {
    const rs_message m = open_of((uint8_t)peer, number, 1000 * (peer + 1) + number);
    return taken(node, peer, peer, &m, ended);
}

static void one_peer_announces_more_than_there_are_places__others_have_theirs(void **state) {
    (void)state;
    rs_config config = usual;
    config.max_transfers = 8;
    net *n = net_new(2, &config, 23);
    rs_node *node = net_node(n, 1);
    uint32_t ended = 0;
    for (rs_peer p = 7; p <= 9; p++)
        assert_int_equal(rs_peer_up(node, NET_START, p), RS_OK);
    for (uint64_t i = 0; i < 8; i++)
        assert_true(announced(node, 9, i, &ended));
    assert_false(announced(node, 9, 8, &ended)); /* its own do not give way to its own */
    assert_int_equal(ended, 0);
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(announced(node, 8, i, &ended));
        assert_int_equal(ended, i + 1);
    }
    const rs_peer to[] = {0};
    rs_xfer xfer;
    const rs_send_params own = {.object = {.data = 77}, .size = 10, .receivers = to, .receiver_count = 1};
    assert_int_equal(rs_send_open(node, NET_START, &own, &xfer), RS_OK); /* and this agent's own are not kept out */
    for (uint64_t i = 0; i < 100; i++)
        announced(node, 9, 100 + i, &ended);
    assert_true(announced(node, 7, 0, &ended));  /* 3 of one peer, 4 of the other before */
    assert_false(announced(node, 8, 9, &ended)); /* who has as many as any other takes from nobody */
    net_free(n);
}

static rs_peer peer_at(void *context, uint32_t address, uint16_t port) {
    (void)context, (void)port;
    return address - 1;
}

/* In the name of a sender that only `by` tells of. */
static bool carried_announcement(rs_node *node, rs_peer by, rs_peer sender, uint32_t *ended) {
    const rs_message said = open_of(1, sender, 1000 + sender);
    rs_message m = {.type = RS_MSG_CARRIED, .nonce = said.nonce, .carried.sender = {sender + 1, 7071}};
    assert_true(rs_wire_inner_set(&m.carried.inner, &said));
    return taken(node, by, sender, &m, ended);
}

static void one_peer_announces_in_the_names_of_many__others_have_their_places(void **state) {
    (void)state;
    rs_config config = usual;
    config.max_transfers = 8;
    config.carries = true;
    config.directory.peer_at = peer_at;
    net *n = net_new(2, &config, 24);
    rs_node *node = net_node(n, 1);
    uint32_t ended = 0;
    for (rs_peer p = 7; p <= 9; p++)
        assert_int_equal(rs_peer_up(node, NET_START, p), RS_OK);
    for (uint64_t i = 0; i < 2; i++)
        assert_true(announced(node, 8, i, &ended));
    for (rs_peer sender = 100; sender < 106; sender++)
        assert_true(carried_announcement(node, 9, sender, &ended));
    for (rs_peer sender = 106; sender < 120; sender++)
        assert_false(carried_announcement(node, 9, sender, &ended));
    assert_int_equal(ended, 0);
    assert_true(announced(node, 8, 2, &ended)); /* in the place of one of the six */
    assert_true(announced(node, 7, 0, &ended));
    assert_int_equal(ended, 2);
    net_free(n);
}

static void strangers__get_an_answer_or_nothing(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 17);
    rs_node *node = net_node(n, 1);
    uint8_t bytes[RS_HEADER_MAX];
    assert_int_equal(rs_peer_up(node, NET_START, 9), RS_OK);
    for (int type = RS_MSG_OPEN_ACK; type <= RS_MSG_PONG; type++) {
        rs_message m = {.type = (rs_message_type)type, .nonce = 42};
        uint32_t payload = type == RS_MSG_PTCH_DATA ? 10 : 0;
        size_t length = rs_wire_encode(&m, payload, bytes, sizeof bytes);
        assert_true(length > 0);
        rs_packet_in in = {.channel = RS_CH_PEER_RELIABLE,
                           .peer = 9,
                           .header = bytes,
                           .header_length = length,
                           .payload_length = payload};
        rs_rx_result r = rs_receive(node, NET_START, &in);
        assert_int_not_equal(r.verdict, RS_RX_STORE);
        rs_packet_out out;
        bool waits = type == RS_MSG_PING || type == RS_MSG_DATA_FNSD || type == RS_MSG_PTCH_DATA ||
                     type == RS_MSG_INTL_SEQ || type == RS_MSG_PTCH_REQ;
        assert_int_equal(rs_poll_tx(node, NET_START, &out), waits);
        if (waits) {
            assert_true(rs_wire_decode(out.header, out.header_length, 0, &m));
            assert_int_equal(m.type, RS_MSG_ABORT);
            assert_int_equal(out.peer, 9);
        }
    }
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receiver_dies__the_others_finish),
        cmocka_unit_test(receiver_dead_from_the_start__does_not_hold_the_others),
        cmocka_unit_test(receiver_freezes__silence_is_found_though_its_connection_stays),
        cmocka_unit_test(everyone_dies__the_send_is_done_and_failed),
        cmocka_unit_test(sender_dies__receivers_give_up_and_say_why),
        cmocka_unit_test(sender_restarts__receivers_start_over),
        cmocka_unit_test(receiver_restarts__it_gets_all_of_it_again),
        cmocka_unit_test(connection_cut_again_and_again__nothing_is_lost_for_good),
        cmocka_unit_test(final_control_lost__is_sent_again),
        cmocka_unit_test(unreachable_for_a_while__is_not_failed),
        cmocka_unit_test(refused__only_that_one_fails),
        cmocka_unit_test(agent_does_not_make_room__is_refused_in_time),
        cmocka_unit_test(digest_mismatch__is_told_to_the_sender),
        cmocka_unit_test(wrong_piece__is_fetched_again),
        cmocka_unit_test(wrong_piece__its_connection_is_cut),
        cmocka_unit_test(wrong_piece__the_sender_dies),
        cmocka_unit_test(wrong_piece__the_senders_bytes_changed),
        cmocka_unit_test(wrong_piece__asking_has_an_end),
        cmocka_unit_test(slow_digest__is_waited_for),
        cmocka_unit_test(digest_never_checked__ends_all_the_same),
        cmocka_unit_test(receiver_cancels__the_sender_hears_why),
        cmocka_unit_test(receiver_leaves__the_others_finish_as_soon),
        cmocka_unit_test(all_receivers_leave__the_send_is_done_and_says_so),
        cmocka_unit_test(a_leave_for_another__is_nobodys),
        cmocka_unit_test(a_sender_that_announces_an_object_and_sends_none_of_it__gives_way_to_another),
        cmocka_unit_test(two_senders_of_one_object__where_one_stands_still_the_other_brings_it),
        cmocka_unit_test(two_senders_of_one_object__the_second_waits_and_one_of_another_is_refused),
        cmocka_unit_test(strangers__get_an_answer_or_nothing),
        cmocka_unit_test(two_senders_of_many_objects__all_that_ask_in_one_turn_are_answered),
        cmocka_unit_test(two_senders_of_many_objects__an_answer_that_never_came_is_asked_for_again),
        cmocka_unit_test(a_sender_by_unicast_that_does_well__is_not_replaced),
        cmocka_unit_test(object_replaced__a_straggler_of_the_earlier_opening_is_no_content),
        cmocka_unit_test(open__of_what_is_not_known_is_refused_with_a_reason),
        cmocka_unit_test(one_peer_announces_more_than_there_are_places__others_have_theirs),
        cmocka_unit_test(one_peer_announces_in_the_names_of_many__others_have_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
