/* Data go right behind OPEN where connections tell round trips (docs/wan.md, "Rate"). */
#include "check.h"
#include "net.h"

#include <stdio.h>

#include "core/base/wire.h"

#define FRAGMENT 1400
#define SERVERS 4u
#define TRIP (100 * MS)
#define RATE INT64_C(400000000)

typedef struct {
    rs_time first_data; /* goes */
    rs_time first_here; /* a packet is at a receiver */
} seen;

static void watch(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                  size_t length, void *context) {
    seen *s = context;
    rs_data_header h;
    (void)from, (void)to;
    if (channel != RS_CH_GROUP || !rs_wire_decode_data(header, length, &h))
        return;
    rs_time *first = arrives ? &s->first_here : &s->first_data;
    *first = *first ? *first : net_now(n);
}

static net *begin(uint64_t seed, double loss, bool measures, seen *s) {
    const rs_config config = {.fragment_size = FRAGMENT, .nic_rate_bps = RATE};
    net *n = net_new(SERVERS, &config, seed);
    net_knobs *k = net_knob(n);
    printf("seed %llu\n", (unsigned long long)seed);
    *s = (seen){0};
    k->path.protocol = RS_PROTOCOL_WAN;
    k->data_delay = k->control_delay = k->connect_delay = TRIP / 2;
    k->loss = k->peer_loss = loss;
    k->measures = measures;
    k->watch = watch;
    k->watch_context = s;
    return n;
}

static rs_time takes(uint64_t size, double loss, bool measures) {
    seen s;
    net *n = begin(3, loss, measures, &s);
    net_send_all(n, 1, size);
    net_run(n, 60 * SEC);
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_true(net_has(n, i, 1));
    rs_time took = net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START;
    rs_time accepted = net_message(n, 1, 0, RS_MSG_OPEN_ACK, 0)->at - NET_START;
    printf("%llu bytes: data after %.3f s, accepted at a receiver after %.3f s, done after %.3f s\n",
           (unsigned long long)size, (double)s.first_data / 1e9, (double)accepted / 1e9, (double)took / 1e9);
    assert_true(measures ? s.first_data < accepted : s.first_data > accepted);
    assert_true(!measures || s.first_here >= accepted);
    net_free(n);
    return took;
}

static void data_come_right_behind_open(void **state) {
    const uint64_t sizes[] = {100, 4 * FRAGMENT, 100000, 8 << 20};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_true(takes(sizes[i], 0, true) < takes(sizes[i], 0, false) - TRIP / 2);
    assert_true(takes(8 << 20, 0.02, true) < takes(8 << 20, 0.02, false));
    (void)state;
}

/* One accepts only when all that goes early has come by it. */
static void who_was_not_there__gets_it_all(void **state) {
    seen s;
    net *n = begin(5, 0.01, true, &s);
    net_dark_until(n, 2, NET_START + 400 * MS);
    net_send_all(n, 1, 4 << 20);
    net_run(n, 60 * SEC);
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_true(net_has(n, i, 1));
    net_free(n);
    (void)state;
}

static void who_refuses__is_sent_nothing_more(void **state) {
    const net_app apps[] = {APP_REFUSES, APP_HAS_IT};
    for (uint32_t i = 0; i < 2; i++) {
        seen s;
        net *n = begin(7, 0, true, &s);
        for (rs_peer to = 1; to < SERVERS; to++)
            net_application(n, to, apps[i]);
        net_send_all(n, 1, 64 << 20);
        net_run(n, 60 * SEC);
        printf("%llu packets\n", (unsigned long long)net_knob(n)->data_packets);
        assert_true(s.first_data > 0);
        assert_int_equal(net_events(n, 0, RS_EV_SEND_DONE, ANYONE), 1);
        assert_in_range(net_knob(n)->data_packets * FRAGMENT, 1, 2 << 20);
        net_free(n);
    }
    (void)state;
}

/* Nobody answers for two seconds. */
static void nobody_has_accepted__little_goes(void **state) {
    seen s;
    net *n = begin(9, 0, true, &s);
    for (rs_peer to = 1; to < SERVERS; to++)
        net_application(n, to, APP_SLEEPS);
    net_send_all(n, 1, 64 << 20);
    net_at(n, 2 * SEC);
    printf("%llu packets\n", (unsigned long long)net_knob(n)->data_packets);
    assert_in_range(net_knob(n)->data_packets * FRAGMENT, 1, 2 << 20);
    net_free(n);
    (void)state;
}

/* All stand still when data come, and accept seconds later: nobody counted for having been silent since then, and all
 * of a small object went to each by itself. */
static void all_accept_late__data_go_by_the_group(void **state) {
    const uint64_t size = 300 * FRAGMENT;
    seen s;
    net *n = begin(13, 0, true, &s);
    net_send_all(n, 1, size);
    for (rs_time at = 0; s.first_data == 0; at += MS)
        net_at(n, at);
    for (rs_peer to = 1; to < SERVERS; to++)
        net_pause(n, to, 3 * SEC);
    net_run(n, 60 * SEC);
    printf("%llu packets by the group\n", (unsigned long long)net_knob(n)->data_packets);
    assert_true(net_knob(n)->data_packets >= size / FRAGMENT);
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_true(net_has(n, i, 1));
    net_free(n);
    (void)state;
}

/* It is as if none told its round trip: those that are there are waited for. */
static void one_is_not_connected__nothing_goes_early(void **state) {
    seen s;
    net *n = begin(11, 0, true, &s);
    net_unreachable(n, 3, true);
    net_send_all(n, 1, 4 << 20);
    net_run(n, 60 * SEC);
    assert_true(s.first_data > net_message(n, 1, 0, RS_MSG_OPEN_ACK, 0)->at - NET_START + TRIP / 2);
    for (rs_peer i = 1; i < SERVERS - 1; i++)
        assert_true(net_has(n, i, 1));
    net_free(n);
    (void)state;
}

/* What may go to it before it has said what it knows: what such a send says, and nothing that others carry. */
static void only_sends_by_it__are_plain(void **state) {
    for (int wan = 0; wan < 2; wan++) {
        seen s;
        net *n = begin(15, 0, false, &s);
        net_knob(n)->path.protocol = wan ? RS_PROTOCOL_WAN : RS_PROTOCOL_REPUBLIC;
        assert_false(rs_peer_is_plain(net_node(n, 0), 1));
        net_send_all(n, 1, 1 << 20);
        assert_false(rs_peer_is_plain(net_node(n, 0), 1)); /* nobody knows by what yet */
        net_at(n, 40 * MS);
        assert_int_equal(rs_peer_is_plain(net_node(n, 0), 1), wan);
        net_at(n, 150 * MS);
        assert_false(rs_peer_is_plain(net_node(n, 1), 0));
        net_run(n, 60 * SEC);
        assert_false(rs_peer_is_plain(net_node(n, 0), 1));
        net_free(n);
    }
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_come_right_behind_open),
        cmocka_unit_test(who_was_not_there__gets_it_all),
        cmocka_unit_test(who_refuses__is_sent_nothing_more),
        cmocka_unit_test(nobody_has_accepted__little_goes),
        cmocka_unit_test(all_accept_late__data_go_by_the_group),
        cmocka_unit_test(one_is_not_connected__nothing_goes_early),
        cmocka_unit_test(only_sends_by_it__are_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
