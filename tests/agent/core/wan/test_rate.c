/* The rate towards one receiver where its way changes, or where the sender stood still. */
#include "check.h"
#include "net.h"
#include "net_state.h"

#include <stdio.h>

#define SIZE (UINT64_C(12) << 20)
#define FRAGMENT 1400
#define FRAGMENTS ((SIZE - 1) / FRAGMENT + 1)
#define RATE INT64_C(20000000)
#define WHOLE ((rs_time)(SIZE * 8 * 1000 / (RATE / 1000000))) /* ns that it takes at that rate */
#define TRIP (50 * MS)

static const rs_config config = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};

/* A quarter has been sent. */
static net *begin(uint64_t seed, rs_time *at) {
    net *n = net_new(2, &config, seed);
    net_knobs *k = net_knob(n);
    printf("seed %llu\n", (unsigned long long)seed);
    k->path.protocol = RS_PROTOCOL_WAN;
    k->data_delay = k->control_delay = k->connect_delay = TRIP / 2;
    k->uplink_bps = RATE;
    k->uplink_bytes = 4 << 20;
    net_send_all(n, 1, SIZE);
    for (*at = 0; k->data_packets < FRAGMENTS / 4; *at += MS)
        net_at(n, *at);
    return n;
}

static void until_it_has_it(net *n, rs_time *at, rs_time bound) {
    while (!net_has(n, 1, 1) && *at < bound)
        net_at(n, *at += 10 * MS);
}

/* Statuses of before that waited in its sockets were read as of a path without length: all of the true one was a queue
 * after that, and the rate fell to a megabit, for ten seconds and more. */
static void a_sender_that_stood_still__goes_on_at_its_rate(void **state) {
    static const rs_time lengths[] = {700 * MS, 2 * SEC, 4 * SEC};
    for (uint32_t i = 0; i < 12; i++) {
        rs_time at, length = lengths[i % 3];
        net *n = begin(i, &at);
        net_at(n, at += i * MS);
        net_pause(n, 0, length);
        until_it_has_it(n, &at, 2 * WHOLE + length);
        printf("%lld ms beside a pause of %lld\n", (long long)((at - length) / MS), (long long)(length / MS));
        assert_true(at - length < WHOLE / 4 * 5);
        net_free(n);
    }
    (void)state;
}

/* Another way was taken, by 100 to 300 ms longer: all of that was a queue, which no rate made shorter, and of 12 MB the
 * last came after 27 s. */
static void a_way_that_becomes_longer__is_no_queue(void **state) {
    for (uint32_t i = 0; i < 4; i++) {
        rs_time at, more = 50 * (rs_time)i * MS;
        net *n = begin(i, &at);
        net_knob(n)->data_delay += more;
        until_it_has_it(n, &at, 2 * WHOLE);
        printf("%lld ms more each way: %lld ms\n", (long long)(more / MS), (long long)(at / MS));
        assert_true(at < WHOLE / 4 * 5);
        net_free(n);
    }
    (void)state;
}

/* A queue of its own is one: where less is carried than before it does not stay. */
static void a_place_that_becomes_narrower__has_a_short_queue(void **state) {
    static const int64_t bps[] = {16000000, 12000000, 10000000};
    for (uint32_t i = 0; i < 9; i++) {
        rs_time at, longest = 0;
        net *n = begin(i, &at);
        net_knob(n)->uplink_bps = bps[i / 3];
        net_at(n, at += 2 * SEC);
        uint64_t before = n->knobs.data_packets;
        for (rs_time end = at + 2 * SEC; at < end;) {
            net_at(n, at += 2 * MS);
            rs_time queue = n->servers[0].uplink_free - n->knobs.now;
            longest = queue > longest ? queue : longest;
        }
        double rate = (double)((n->knobs.data_packets - before) * FRAGMENT * 8) / 2;
        printf("%.0f Mbit/s: %.2f, and a queue of %lld ms\n", (double)bps[i / 3] / 1e6, rate / 1e6,
               (long long)(longest / MS));
        assert_true(longest < 50 * MS);
        assert_true(rate > 0.85 * (double)bps[i / 3]);
        net_free(n);
    }
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sender_that_stood_still__goes_on_at_its_rate),
        cmocka_unit_test(a_way_that_becomes_longer__is_no_queue),
        cmocka_unit_test(a_place_that_becomes_narrower__has_a_short_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
