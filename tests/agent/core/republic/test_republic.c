/* The protocol of the paper's Sec. III-A as timelines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net.h"

#define FRAGMENT 1000
#define SENDER 0
#define RECEIVER1 1
#define RECEIVER2 2

static const rs_config paper = {.fragment_size = FRAGMENT, .attempt_interval = 1 * MS, .light_confirm = 1};

/* Receiver 1 misses sns 74 and 75 of the first round. */
static bool loses_74_75(net *n, rs_peer to, const rs_data_header *h, void *context) {
    uint32_t *left = context;
    (void)n;
    if (to != RECEIVER1 || (h->sn != 74 && h->sn != 75) || *left == 0)
        return false;
    (*left)--;
    return true;
}

static void fig3__as_in_the_paper(void **state) {
    (void)state;
    net *n = net_new(3, &paper, 1);
    uint32_t left = 2;
    net_knob(n)->drop = loses_74_75;
    net_knob(n)->drop_context = &left;
    net_knob(n)->path.reconfiguration = 70 * MS;
    net_knob(n)->path.kind = RS_PATH_CIRCUIT;
    /* The grant comes at 1 ms; sn k is sent at (1 + k) ms. Receiver 2 has light for sn 58, receiver 1 for sn 60. */
    net_dark_until(n, RECEIVER2, 58 * MS + 500 * US);
    net_dark_until(n, RECEIVER1, 60 * MS + 500 * US);
    rs_xfer xfer = net_send_all(n, 5, 100 * FRAGMENT);

    net_at(n, 60 * MS);
    assert_int_equal(net_message(n, RECEIVER2, SENDER, RS_MSG_INTL_SEQ, 0)->message.intl_seq.sn, 58);
    assert_null(net_message(n, RECEIVER1, SENDER, RS_MSG_INTL_SEQ, 0));
    assert_int_equal(net_stats(n, SENDER, xfer).phase, RS_PHASE_ATTEMPT);

    net_at(n, 62 * MS);
    assert_int_equal(net_message(n, RECEIVER1, SENDER, RS_MSG_INTL_SEQ, 0)->message.intl_seq.sn, 60);
    assert_int_equal(net_event(n, SENDER, RS_EV_FIRST_LIGHT, RECEIVER1)->event.sn, 60);
    assert_int_equal(net_stats(n, SENDER, xfer).packets_attempt, 61);

    net_at(n, 100 * MS);
    /* One request, (73, 76), and nothing else was missed. */
    assert_int_equal(net_messages(n, RECEIVER1, SENDER, RS_MSG_PTCH_REQ), 1);
    assert_int_equal(net_message(n, RECEIVER1, SENDER, RS_MSG_PTCH_REQ, 0)->message.ptch_req.start, 73);
    assert_int_equal(net_message(n, RECEIVER1, SENDER, RS_MSG_PTCH_REQ, 0)->message.ptch_req.end, 76);
    assert_int_equal(net_messages(n, RECEIVER2, SENDER, RS_MSG_PTCH_REQ), 0);
    assert_int_equal(net_message(n, SENDER, RECEIVER1, RS_MSG_PTCH_DATA, 0)->message.ptch_data.sn, 74);
    assert_int_equal(net_message(n, SENDER, RECEIVER1, RS_MSG_PTCH_DATA, 1)->message.ptch_data.sn, 75);
    assert_int_equal(net_messages(n, SENDER, RECEIVER1, RS_MSG_PTCH_DATA), 2);
    /* The sender loops back to sn 0 and stops after sn 59 of the next round: 160 packets. */
    assert_int_equal(net_last_sn(n), 59);
    assert_int_equal(net_knob(n)->data_packets, 160);
    assert_true(net_has(n, RECEIVER1, 5) && net_has(n, RECEIVER2, 5));
    assert_int_equal(net_event(n, SENDER, RS_EV_PEER_DONE, RECEIVER1)->event.bytes, 2);
    assert_int_equal(net_event(n, SENDER, RS_EV_PEER_DONE, RECEIVER2)->event.bytes, 0);
    assert_true(net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

static bool loses_everything_after_80(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)n;
    (void)context;
    return to == RECEIVER1 && h->sn >= 80;
}

/* Case 2 to the end of the object, then DATA_FNSD: the tail (prior, initial) is asked for. */
static void lost_tail__is_asked_for_after_data_fnsd(void **state) {
    (void)state;
    net *n = net_new(3, &paper, 2);
    net_knob(n)->drop = loses_everything_after_80;
    net_send_all(n, 6, 100 * FRAGMENT);
    rs_time end = net_run(n, 1 * SEC);
    assert_non_null(net_message(n, SENDER, RECEIVER1, RS_MSG_DATA_FNSD, 0));
    const net_said *request = net_message(n, RECEIVER1, SENDER, RS_MSG_PTCH_REQ, 0);
    assert_int_equal(request->message.ptch_req.start, 79);
    assert_int_equal(request->message.ptch_req.end, 0); /* initial sn 0 */
    assert_int_equal(net_messages(n, RECEIVER1, SENDER, RS_MSG_PTCH_REQ), 1);
    assert_int_equal(net_messages(n, SENDER, RECEIVER1, RS_MSG_PTCH_DATA), 20);
    /* The path was free before the last patches. */
    assert_true(net_event(n, SENDER, RS_EV_PATH_DONE, ANYONE)->at <
                net_message(n, SENDER, RECEIVER1, RS_MSG_PTCH_DATA, 19)->at);
    assert_true(net_has(n, RECEIVER1, 6) && net_has(n, RECEIVER2, 6));
    assert_true(end < 100 * MS || net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 100 * MS);
    net_free(n);
}

/* Receiver 2 has light at sn 0, receiver 1 much later: receiver 2 sees the second round and, having lost the end of
 * the first, asks at once (case 3). */
static bool loses_the_end_once(net *n, rs_peer to, const rs_data_header *h, void *context) {
    uint32_t *left = context;
    (void)n;
    if (to != RECEIVER2 || h->sn < 90 || *left == 0)
        return false;
    (*left)--;
    return true;
}

static void case3__the_next_round_shows_the_lost_end(void **state) {
    (void)state;
    net *n = net_new(3, &paper, 3);
    uint32_t left = 10;
    net_knob(n)->drop = loses_the_end_once;
    net_knob(n)->drop_context = &left;
    net_dark_until(n, RECEIVER1, 50 * MS);
    net_send_all(n, 7, 100 * FRAGMENT);
    net_at(n, 200 * MS);
    const net_said *request = net_message(n, RECEIVER2, SENDER, RS_MSG_PTCH_REQ, 0);
    assert_int_equal(request->message.ptch_req.start, 89);
    assert_int_equal(request->message.ptch_req.end, 0);
    assert_int_equal(net_messages(n, RECEIVER2, SENDER, RS_MSG_PTCH_REQ), 1);
    assert_true(net_has(n, RECEIVER1, 7) && net_has(n, RECEIVER2, 7));
    net_free(n);
}

static void quiet_network__costs_one_round_and_no_patches(void **state) {
    (void)state;
    rs_config config = {.fragment_size = 8896, .nic_rate_bps = 1000000000};
    net *n = net_new(7, &config, 4);
    uint64_t size = 64 << 20;
    rs_xfer xfer = net_send_all(n, 8, size);
    net_at(n, 5 * SEC);
    const net_told *done = net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE);
    assert_true(done && done->event.ok);
    rs_time ideal = (rs_time)((double)size * 8 * (8896 + RS_DATA_HEADER + RS_WIRE_OVERHEAD) / 8896 / 0.97);
    rs_time extra = done->at - NET_START - ideal;
    assert_true(extra < 3 * MS); /* with 1 ms of manager and drain */
    for (rs_peer to = 1; to < 7; to++) {
        assert_true(net_has(n, to, 8));
        assert_int_equal(net_messages(n, to, SENDER, RS_MSG_PTCH_REQ), 0);
    }
    assert_int_equal(net_messages(n, SENDER, 1, RS_MSG_PTCH_DATA), 0);
    (void)xfer;
    net_free(n);
}

static void light__needs_consecutive_packets_under_ringing(void **state) {
    (void)state;
    rs_config config = {.fragment_size = FRAGMENT, .attempt_interval = 1 * MS}; /* default: 3 under reconfiguration */
    net *n = net_new(2, &config, 5);
    net_knob(n)->path.reconfiguration = 70 * MS;
    net_dark_until(n, 1, 30 * MS);
    net_ringing_until(n, 1, 50 * MS, 0.6);
    net_send_all(n, 9, 1000 * FRAGMENT);
    net_at(n, 2 * SEC);
    uint64_t initial = net_event(n, SENDER, RS_EV_FIRST_LIGHT, 1)->event.sn;
    /* Nothing between the initial sn and the present one was missed, so nothing had to be patched. */
    assert_true(initial >= 29);
    assert_true(net_has(n, 1, 9));
    net_free(n);
}

static void start_on_first__sends_at_high_rate_before_the_last_has_light(void **state) {
    (void)state;
    rs_config config = paper;
    config.start_policy = RS_START_ON_FIRST;
    net *n = net_new(3, &config, 6);
    net_dark_until(n, RECEIVER1, 60 * MS);
    rs_xfer xfer = net_send_all(n, 10, 100 * FRAGMENT);
    net_at(n, 20 * MS);
    rs_xfer_stats stats = net_stats(n, SENDER, xfer);
    assert_true(stats.high_rate_at != 0);
    assert_int_equal(stats.phase, RS_PHASE_ATTEMPT); /* receiver 2 had its round; for receiver 1 attempts are enough */
    assert_true(stats.packets_sent < 140);
    net_at(n, 200 * MS);
    assert_true(net_has(n, RECEIVER1, 10) && net_has(n, RECEIVER2, 10));
    net_free(n);
}

/* The switches see light at 20 ms; the receivers' reports of it take 30 ms more. */
static net *lit_by_switches(rs_start_policy policy, rs_xfer *xfer) {
    rs_config config = paper;
    config.start_policy = policy;
    net *n = net_new(3, &config, 6);
    net_knob(n)->control_delay = 30 * MS;
    net_dark_until(n, RECEIVER1, 20 * MS);
    net_dark_until(n, RECEIVER2, 20 * MS);
    *xfer = net_send_all(n, 10, 2000 * FRAGMENT);
    net_at(n, 20 * MS);
    net_call(n, SENDER, rs_path_light(net_node(n, SENDER), NET_START + 20 * MS, *xfer));
    return n;
}

static void start_on_switches__sends_at_high_rate_before_any_receiver_has_said_so(void **state) {
    (void)state;
    rs_xfer xfer;
    net *n = lit_by_switches(RS_START_ON_SWITCHES, &xfer);
    net_at(n, 21 * MS);
    assert_int_equal(net_stats(n, SENDER, xfer).high_rate_at, NET_START + 20 * MS);
    assert_null(net_event(n, SENDER, RS_EV_FIRST_LIGHT, ANYONE));
    net_at(n, 2 * SEC);
    assert_true(net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_has(n, RECEIVER1, 10) && net_has(n, RECEIVER2, 10));
    assert_int_equal(net_messages(n, SENDER, RECEIVER1, RS_MSG_PTCH_DATA), 0);
    net_free(n);
}

static void start_on_last__takes_no_hints(void **state) {
    (void)state;
    rs_xfer xfer;
    net *n = lit_by_switches(RS_START_ON_LAST, &xfer);
    net_at(n, 49 * MS);
    assert_int_equal(net_stats(n, SENDER, xfer).high_rate_at, 0);
    net_at(n, 2 * SEC);
    assert_true(net_has(n, RECEIVER1, 10) && net_has(n, RECEIVER2, 10));
    net_free(n);
}

/* The rest of a slow link is for what opens the transfer, which would wait behind attempts otherwise. */
static void slow_link__attempts_take_half_of_it(void **state) {
    (void)state;
    const uint64_t rate = 5000000, packet = 8896 + RS_DATA_HEADER + RS_WIRE_OVERHEAD;
    rs_config config = {.fragment_size = 8896, .nic_rate_bps = (int64_t)rate};
    net *n = net_new(3, &config, 22);
    net_dark_until(n, RECEIVER1, 2 * SEC);
    net_dark_until(n, RECEIVER2, 2 * SEC);
    net_send_all(n, 5, 1000 * 8896);
    net_at(n, 1 * SEC);
    assert_in_range(net_knob(n)->data_packets, 2, rate / 2 / (packet * 8) + 2);
    net_free(n);
}

/* A receiver that stays dark although its switch has light gets one round, then attempts, as ever. */
static void start_on_switches__a_wrong_hint_costs_one_round(void **state) {
    (void)state;
    rs_config config = paper;
    config.start_policy = RS_START_ON_SWITCHES;
    net *n = net_new(3, &config, 6);
    net_dark_until(n, RECEIVER1, 90 * MS);
    rs_xfer xfer = net_send_all(n, 10, 100 * FRAGMENT);
    net_at(n, 5 * MS);
    net_call(n, SENDER, rs_path_light(net_node(n, SENDER), NET_START + 5 * MS, xfer));
    net_at(n, 60 * MS);
    rs_xfer_stats stats = net_stats(n, SENDER, xfer);
    assert_true(stats.high_rate_at != 0);
    assert_int_equal(stats.phase, RS_PHASE_ATTEMPT);
    assert_true(stats.packets_sent < 100 + 100);
    net_at(n, 300 * MS);
    assert_true(net_has(n, RECEIVER1, 10) && net_has(n, RECEIVER2, 10));
    assert_int_equal(rs_path_light(net_node(n, SENDER), NET_START + 300 * MS, xfer), RS_ERR_UNKNOWN);
    net_free(n);
}

static void small_objects__of_any_size(void **state) {
    (void)state;
    const uint64_t sizes[] = {0, 1, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 2 * FRAGMENT, 3 * FRAGMENT + 7};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int reconfigures = 0; reconfigures < 2; reconfigures++) {
            rs_config config = {.fragment_size = FRAGMENT};
            net *n = net_new(4, &config, 7);
            net_knob(n)->path.reconfiguration = reconfigures ? 20 * MS : 0;
            net_dark_until(n, 2, reconfigures ? 25 * MS : 0);
            net_send_all(n, 11, sizes[i]);
            net_at(n, 1 * SEC);
            assert_true(net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->event.ok);
            assert_true(net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 60 * MS);
            for (rs_peer to = 1; to < 4; to++)
                assert_true(net_has(n, to, 11));
            assert_int_equal(net_events(n, SENDER, RS_EV_PATH_DONE, ANYONE), 1);
            net_free(n);
        }
    }
}

static void a_thousand_receivers(void **state) {
    (void)state;
    rs_config config = {.fragment_size = FRAGMENT, .nic_rate_bps = 10000000000};
    net *n = net_new(1025, &config, 8);
    net_knob(n)->loss = 0.001;
    net_knob(n)->quiet = true;
    net_send_all(n, 12, 200 * FRAGMENT);
    net_at(n, 2 * SEC);
    assert_true(net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->event.bytes, 1024);
    net_free(n);
}

static void ten_gigabytes(void **state) {
    (void)state;
    rs_config config = {.nic_rate_bps = 100000000000};
    net *n = net_new(2, &config, 9);
    net_knob(n)->quiet = true;
    net_knob(n)->path.rate_bps = 0;
    net_knob(n)->loss = 0.0001;
    rs_xfer xfer = net_send_all(n, 13, UINT64_C(10000000000));
    net_at(n, 10 * SEC);
    assert_true(net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_event(n, SENDER, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 1200 * MS); /* 0.8 s of wire */
    assert_true(net_has(n, 1, 13));
    (void)xfer;
    net_free(n);
}

/* What I/O that scatters payloads asks before each batch. */
static void predict__names_the_next_fragments(void **state) {
    (void)state;
    net *n = net_new(2, &paper, 10);
    rs_xfer xfer = 0;
    uint64_t offset = 0;
    uint32_t length = 0;
    assert_false(rs_predict(net_node(n, 1), 7, 0, &xfer, &offset, &length));
    net_dark_until(n, 1, 10 * MS + 500 * US); /* light from sn 10 on */
    net_send_all(n, 14, 100 * FRAGMENT - 1);
    net_at(n, 5 * MS);
    assert_true(
        rs_predict(net_node(n, 1), 7, 0, &xfer, &offset, &length)); /* nothing came yet: the first of the ring */
    assert_int_equal(offset, 0);
    net_at(n, 11 * MS + 55 * US); /* sn 10 is here */
    assert_true(rs_predict(net_node(n, 1), 7, 0, &xfer, &offset, &length));
    assert_int_equal(xfer, net_receiving(n, 1));
    assert_int_equal(offset, 11 * FRAGMENT);
    assert_int_equal(length, FRAGMENT);
    assert_true(rs_predict(net_node(n, 1), 7, 88, &xfer, &offset, &length)); /* sn 99, one byte short */
    assert_int_equal(length, FRAGMENT - 1);
    assert_true(rs_predict(net_node(n, 1), 7, 89, &xfer, &offset, &length)); /* around the end */
    assert_int_equal(offset, 0);
    assert_false(rs_predict(net_node(n, 1), 7, 99, &xfer, &offset, &length)); /* sn 10 is present */
    assert_false(rs_predict(net_node(n, 1), 8, 0, &xfer, &offset, &length));  /* no such group here */
    for (uint32_t ahead = 100; ahead < 250; ahead++)                          /* never a place twice in a batch */
        assert_false(rs_predict(net_node(n, 1), 7, ahead, &xfer, &offset, &length));
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fig3__as_in_the_paper),
        cmocka_unit_test(lost_tail__is_asked_for_after_data_fnsd),
        cmocka_unit_test(case3__the_next_round_shows_the_lost_end),
        cmocka_unit_test(quiet_network__costs_one_round_and_no_patches),
        cmocka_unit_test(light__needs_consecutive_packets_under_ringing),
        cmocka_unit_test(start_on_first__sends_at_high_rate_before_the_last_has_light),
        cmocka_unit_test(start_on_switches__sends_at_high_rate_before_any_receiver_has_said_so),
        cmocka_unit_test(start_on_switches__a_wrong_hint_costs_one_round),
        cmocka_unit_test(start_on_last__takes_no_hints),
        cmocka_unit_test(small_objects__of_any_size),
        cmocka_unit_test(predict__names_the_next_fragments),
        cmocka_unit_test(a_thousand_receivers),
        cmocka_unit_test(ten_gigabytes),
        cmocka_unit_test(slow_link__attempts_take_half_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
