/* RATE and the pace: what receivers can take is found, shared, and found again; losses that are no congestion slow
 * nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net.h"

#define GIGABIT INT64_C(1000000000)

static const rs_config usual = {.fragment_size = 8896, .nic_rate_bps = GIGABIT};

static void slow_socket__its_capacity_is_found(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 1);
    net_bottleneck(n, 2, GIGABIT / 2, 40, true);
    rs_xfer xfer = net_send_all(n, 1, 128 << 20);
    /* Found within 100 ms, and held: what is lost after that is little. */
    net_at(n, 100 * MS);
    assert_in_range(net_stats(n, 0, xfer).rate_bps, GIGABIT * 40 / 100, GIGABIT * 60 / 100);
    uint64_t lost_early = net_stats(n, 2, net_receiving(n, 2)).lost;
    for (rs_time at = 200 * MS; at < 2 * SEC; at += 50 * MS) {
        net_at(n, at);
        assert_in_range(net_stats(n, 0, xfer).rate_bps, GIGABIT * 38 / 100, GIGABIT * 62 / 100);
    }
    rs_xfer_stats slow = net_stats(n, 2, net_receiving(n, 2));
    assert_true(slow.lost - lost_early < slow.fragments * 3 / 100);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    /* At capacity it takes 2.17 s on the wire. */
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START < 2600 * MS);
    net_free(n);
}

static void slow_port__its_capacity_is_found_without_drops_told(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 2);
    net_bottleneck(n, 2, GIGABIT * 3 / 10, 40, false);
    rs_xfer xfer = net_send_all(n, 1, 64 << 20);
    net_at(n, 150 * MS);
    for (rs_time at = 200 * MS; at < 1200 * MS; at += 50 * MS) {
        net_at(n, at);
        assert_in_range(net_stats(n, 0, xfer).rate_bps, GIGABIT * 20 / 100, GIGABIT * 40 / 100);
    }
    net_at(n, 8 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

static void hiccup__the_rate_recovers(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 3);
    rs_xfer xfer = net_send_all(n, 1, 256 << 20);
    net_at(n, 300 * MS);
    net_bottleneck(n, 1, GIGABIT / 4, 10, true);
    net_at(n, 350 * MS);
    assert_true(net_stats(n, 0, xfer).rate_bps < GIGABIT / 2);
    net_bottleneck(n, 1, 0, 0, false);
    net_at(n, 600 * MS);
    assert_true(net_stats(n, 0, xfer).rate_bps > GIGABIT * 90 / 100);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

/* Loss that does not depend on the rate, as of a dim circuit: not congestion, patches make up for it. */
static void random_loss__does_not_slow_the_send(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 4);
    net_knob(n)->loss = 0.05;
    rs_xfer xfer = net_send_all(n, 1, 128 << 20);
    net_at(n, 300 * MS);
    assert_true(net_stats(n, 0, xfer).rate_bps > GIGABIT * 80 / 100);
    net_at(n, 900 * MS);
    assert_true(net_stats(n, 0, xfer).rate_bps > GIGABIT * 80 / 100);
    net_at(n, 5 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

static void two_transfers_to_one_receiver__share_its_nic(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 5);
    const rs_peer to[] = {2};
    rs_xfer a, b;
    net_bottleneck(n, 2, GIGABIT, 100, false); /* its port */
    assert_int_equal(net_send(n, 0, 1, 64 << 20, 1, to, &a), RS_OK);
    net_at(n, 100 * MS);
    assert_true(net_stats(n, 0, a).rate_bps > GIGABIT * 90 / 100);
    assert_int_equal(net_send(n, 1, 2, 64 << 20, 1, to, &b), RS_OK);
    net_at(n, 130 * MS);
    assert_in_range(net_stats(n, 0, a).rate_bps, GIGABIT * 40 / 100, GIGABIT * 50 / 100);
    assert_in_range(net_stats(n, 1, b).rate_bps, GIGABIT * 40 / 100, GIGABIT * 50 / 100);
    net_at(n, 5 * SEC);
    assert_true(net_has(n, 2, 1) && net_has(n, 2, 2));
    /* When one is done the other has the NIC again: both together take 1.1 s of wire. */
    const net_told *done = net_event(n, 1, RS_EV_SEND_DONE, ANYONE);
    assert_true(done->at - NET_START < 1350 * MS);
    net_free(n);
}

static void feedback__is_bounded_in_number(void **state) {
    (void)state;
    for (uint32_t servers = 2; servers <= 65; servers += 21) {
        net *n = net_new(servers, &usual, 6);
        net_send_all(n, 1, 64 << 20);
        net_at(n, 3 * SEC);
        const net_told *began = net_event(n, 0, RS_EV_FIRST_LIGHT, ANYONE),
                       *over = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
        uint64_t reports = 0, bound = (uint64_t)((over->at - began->at) / (50 * US)); /* 20,000 a second */
        for (rs_peer from = 1; from < servers; from++)
            reports += net_messages(n, from, 0, RS_MSG_RATE);
        assert_in_range(reports, 100, bound);
        net_free(n);
    }
}

/* What reports cost the sender does not grow with its receivers, from three to a dozen. */
static void feedback__of_more_receivers_is_no_more(void **state) {
    (void)state;
    const uint32_t receivers[] = {3, 7, 12};
    uint64_t reports[3] = {0};
    for (int i = 0; i < 3; i++) {
        net *n = net_new(receivers[i] + 1, &usual, 6);
        net_send_all(n, 1, 64 << 20);
        net_at(n, 3 * SEC);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        for (rs_peer from = 1; from <= receivers[i]; from++)
            reports[i] += net_messages(n, from, 0, RS_MSG_RATE);
        net_free(n);
    }
    print_message("reports of 3, 7, 12 receivers: %llu, %llu, %llu\n", (unsigned long long)reports[0],
                  (unsigned long long)reports[1], (unsigned long long)reports[2]);
    assert_in_range(reports[1], reports[0] / 2, reports[0] * 5 / 4);
    assert_in_range(reports[2], reports[0] / 2, reports[0] * 5 / 4);
}

static void patches__do_not_stall_the_data_channel(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 7);
    net_ringing_until(n, 2, 10 * SEC, 0.3);
    net_knob(n)->control_rate_bps = GIGABIT / 5; /* its patches queue up */
    net_send_all(n, 1, 64 << 20);
    net_at(n, 10 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 1)->at - NET_START < 1000 * MS);
    net_free(n);
}

static uint64_t most_in(const rs_time *sent, size_t count, rs_time window) {
    uint64_t most = 0;
    for (size_t i = 0, from = 0; i < count; i++) {
        while (sent[i] - sent[from] >= window)
            from++;
        most = i - from + 1 > most ? i - from + 1 : most;
    }
    return most;
}

static rs_time sent_at[4096];
static size_t sent_count;

static bool notes_time(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)context;
    if (to == 1 && !(h->flags & RS_DATA_ATTEMPT) && sent_count < 4096)
        sent_at[sent_count++] = net_knob(n)->now;
    return false;
}

static void bursts__are_small_at_one_gigabit(void **state) {
    (void)state;
    net *n = net_new(2, &usual, 8);
    net_knob(n)->drop = notes_time;
    net_send_all(n, 1, 16 << 20);
    net_at(n, 2 * SEC);
    assert_true(sent_count > 1000);
    assert_true(most_in(sent_at, sent_count, 1) <= 8);       /* at once */
    assert_true(most_in(sent_at, sent_count, 1 * MS) <= 20); /* 13.6 at the rate */
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_socket__its_capacity_is_found),
        cmocka_unit_test(slow_port__its_capacity_is_found_without_drops_told),
        cmocka_unit_test(hiccup__the_rate_recovers),
        cmocka_unit_test(random_loss__does_not_slow_the_send),
        cmocka_unit_test(two_transfers_to_one_receiver__share_its_nic),
        cmocka_unit_test(feedback__is_bounded_in_number),
        cmocka_unit_test(feedback__of_more_receivers_is_no_more),
        cmocka_unit_test(patches__do_not_stall_the_data_channel),
        cmocka_unit_test(bursts__are_small_at_one_gigabit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
