/* How far the data channel runs ahead of its receivers (republic/window.c), and what a receiver asks for when control
 * overtake packets that still queue (republic/receiver.c). */
#include "check.h"

#include "net.h"

#define GIGABIT INT64_C(1000000000)
#define PACKET (72 * US)            /* a fragment on the wire at 1 Gb/s */
#define AHEAD (30 * MS / PACKET)    /* packets of window */
#define SILENT (100 * MS)           /* nobody is waited for longer */
#define OBJECT (UINT64_C(64) << 20) /* 0.56 s */

static const rs_config usual = {.fragment_size = 8896, .nic_rate_bps = GIGABIT};

static uint64_t sent_by(net *n, rs_time at) {
    net_at(n, at);
    return net_knob(n)->data_packets;
}

static void silent_receiver__the_sender_stops_within_the_window(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 1);
    net_send_all(n, 1, OBJECT);
    uint64_t before = sent_by(n, 200 * MS);
    net_freeze(n, 2);
    uint64_t later = sent_by(n, 245 * MS);
    assert_in_range(later - before, 1, AHEAD);
    assert_in_range(sent_by(n, 290 * MS) - later, 0, 16); /* but for some that ask whether it is there */
    net_free(n);
}

static void silent_receiver__holds_nobody_up_for_long(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 2);
    net_send_all(n, 1, OBJECT);
    net_at(n, 200 * MS);
    net_freeze(n, 2);
    uint64_t after = sent_by(n, 200 * MS + SILENT + 10 * MS);
    assert_true(sent_by(n, 400 * MS) - after > (uint64_t)(90 * MS / PACKET * 9 / 10));
    net_at(n, 800 * MS);
    assert_true(net_has(n, 1, 1)); /* 0.56 s, and the 0.1 s it stood still */
    net_at(n, 20 * SEC);
    const net_told *failed = net_event(n, 0, RS_EV_PEER_FAILED, 2);
    assert_non_null(failed);
    assert_non_null(strstr(failed->event.cause, "said nothing"));
    net_free(n);
}

/* Its reports stop for less than the bound, then come again: the sender goes on, nothing is lost. */
static void cut_connection__sending_goes_on(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 3);
    net_knob(n)->connect_delay = 50 * MS;
    net_send_all(n, 1, OBJECT);
    net_at(n, 200 * MS);
    net_cut(n, 0, 2);
    net_at(n, 3 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_stats(n, 2, net_receiving(n, 2)).lost, 0);
    net_free(n);
}

/* A port of half the rate whose queue holds more than the window: the queue is never full, so nothing is lost, and the
 * sender still keeps it busy. */
static void slow_port_with_a_queue__nothing_is_lost(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 4);
    net_bottleneck(n, 2, GIGABIT / 2, 2 * AHEAD, false);
    net_send_all(n, 1, OBJECT);
    net_at(n, 5 * SEC);
    const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    assert_true(done->event.ok);
    assert_int_equal(net_stats(n, 2, net_receiving(n, 2)).lost, 0);
    assert_true(done->at - NET_START < 1250 * MS); /* 1.09 s on its wire */
    net_free(n);
}

/* Packets queue for 20 ms while control takes 0.1 ms: DATA_FNSD comes long before the last packets. */
static void control_overtakes_packets__nothing_is_asked_for_that_still_comes(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 5);
    net_knob(n)->data_delay = 20 * MS;
    net_send_all(n, 1, OBJECT);
    net_at(n, 3 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    for (rs_peer receiver = 1; receiver < 3; receiver++) {
        const net_said *finished = net_message(n, 0, receiver, RS_MSG_DATA_FNSD, 0);
        const net_said *all_there = net_message(n, receiver, 0, RS_MSG_DATA_RCVD, 0);
        assert_true(all_there->at > finished->at + 10 * MS); /* it did overtake */
        assert_int_equal(net_messages(n, receiver, 0, RS_MSG_PTCH_REQ), 0);
        assert_int_equal(net_stats(n, receiver, net_receiving(n, receiver)).lost, 0);
    }
    net_free(n);
}

/* The rate of a circuit is known: what takes longer on the way waits in busy hosts and no queue, however it varies. */
static void circuit__busy_hosts_do_not_slow_it_down(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 8);
    net_knob(n)->path.kind = RS_PATH_CIRCUIT;
    net_knob(n)->look = 15 * MS;
    net_send_all(n, 1, OBJECT);
    net_at(n, 20 * MS); /* the first packets have shown the light; nothing has to be found out */
    assert_true(sent_by(n, 38 * MS) > (uint64_t)(15 * MS / PACKET));
    net_at(n, 3 * SEC);
    rs_xfer_stats stats = net_stats(n, 1, net_receiving(n, 1));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(stats.bytes_present, OBJECT);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 640 * MS); /* 0.55 s on its wire */
    net_free(n);
}

static bool drops_a_burst(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)h;
    (void)context;
    return to == 1 && net_now(n) > 10 * MS && net_now(n) < 40 * MS;
}

/* All that the window holds is lost on its way to one receiver, with every packet that asked for a report. */
static void lost_window__the_sender_asks_again_soon(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 7);
    net_knob(n)->drop = drops_a_burst;
    net_send_all(n, 1, OBJECT);
    uint64_t before = sent_by(n, 40 * MS);
    assert_true(sent_by(n, 70 * MS) - before > 60); /* slower, after such a loss, but not shut */
    net_at(n, 3 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

static bool drops_the_end(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)n;
    (void)context;
    return to == 1 && h->sn >= OBJECT / 8896 - 10;
}

static void lost_tail__is_asked_for_once_it_is_quiet(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 6);
    net_knob(n)->data_delay = 20 * MS;
    net_knob(n)->drop = drops_the_end;
    net_send_all(n, 1, OBJECT);
    net_at(n, 3 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_messages(n, 1, 0, RS_MSG_PTCH_REQ), 1);
    const net_said *asked = net_message(n, 1, 0, RS_MSG_PTCH_REQ, 0);
    const net_said *finished = net_message(n, 0, 1, RS_MSG_DATA_FNSD, 0);
    assert_in_range(asked->at - finished->at, 15 * MS, 40 * MS); /* the queue's 20 ms and a few of quiet */
    net_free(n);
}

typedef struct {
    uint64_t from, to; /* Lost on their way to receiver 1, */
    uint32_t times;    /* each so many times. */
    uint32_t lost[64];
} losses;

static bool drops_some(net *n, rs_peer to, const rs_data_header *h, void *context) {
    losses *l = context;
    (void)n;
    return to == 1 && h->sn >= l->from && h->sn < l->to && l->lost[h->sn]++ < l->times;
}

/* How long an object of so many fragments takes to some, the last of whose packets are lost to one of them. */
static rs_time takes(uint32_t receivers, uint64_t fragments, uint64_t lost) {
    net *n = net_new(receivers + 1, &usual, 8);
    losses l = {.from = fragments - lost, .to = fragments, .times = 1};
    net_knob(n)->drop = drops_some;
    net_knob(n)->drop_context = &l;
    net_send_all(n, 1, fragments * 8896);
    net_at(n, 3 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    rs_time took = net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START;
    assert_in_range(net_stats(n, 1, net_receiving(n, 1)).patches_received, 0, lost);
    net_free(n);
    return took;
}

/* What its last packets cost is no multiple of what the object takes (it was 5 ms of silence, 20 where no round trip
 * was known). */
static void lost_tail__of_a_small_object_is_asked_for_soon(void **state) {
    (void)state;
    for (uint32_t receivers = 1; receivers <= 8; receivers++)
        for (uint64_t fragments = 2; fragments <= 32; fragments *= 2)
            for (uint64_t lost = 1; lost <= 2; lost++) {
                rs_time without = takes(receivers, fragments, 0), with = takes(receivers, fragments, lost);
                if (with > without + 4 * MS)
                    fail_msg("%u receivers, %u fragments: %lld us, the last %u lost %lld", receivers,
                             (unsigned)fragments, (long long)without / 1000, (unsigned)lost, (long long)with / 1000);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_receiver__the_sender_stops_within_the_window),
        cmocka_unit_test(silent_receiver__holds_nobody_up_for_long),
        cmocka_unit_test(cut_connection__sending_goes_on),
        cmocka_unit_test(slow_port_with_a_queue__nothing_is_lost),
        cmocka_unit_test(circuit__busy_hosts_do_not_slow_it_down),
        cmocka_unit_test(lost_window__the_sender_asks_again_soon),
        cmocka_unit_test(control_overtakes_packets__nothing_is_asked_for_that_still_comes),
        cmocka_unit_test(lost_tail__is_asked_for_once_it_is_quiet),
        cmocka_unit_test(lost_tail__of_a_small_object_is_asked_for_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
