/* The rate of one path in virtual time, by what statuses tell of it. */
#include "check.h"

#include <stdio.h>

#include "core/wan/congestion.h"

#define MS INT64_C(1000000)
#define MBIT 125.0    /* bytes in a millisecond */
#define PACKET 1500.0 /* bytes */

/* A relay sends what has come to it, in bursts at its full rate, and is held back between them: its rate stayed at the
 * first one, a fifth of what its link carries. */
static void bursts__tell_of_the_path_as_a_steady_stream_does(void **state) {
    rs_wan_path path;
    rs_wan_path_start(&path, RS_WAN_OWN, (uint32_t)PACKET, 40000000, INT64_C(1000000000));
    double sent = 0, first = (double)path.rate_bps;
    for (int now = 100; now < 1100; now += 10) {
        bool burst = now / 50 % 2;
        sent += burst ? (double)path.rate_bps / 8e2 / PACKET : 0;
        const rs_wan_sample s = {.now = now * MS,
                                 .rtt = 50 * MS,
                                 .at = (now - 25) * MS,
                                 .stamp = (now - 50) * MS,
                                 .next = (uint64_t)sent,
                                 .received = (uint64_t)sent,
                                 .sent = (uint64_t)sent,
                                 .part = 1,
                                 .limited = true,
                                 .sent_bps = path.rate_bps / 2};
        rs_wan_path_heard(&path, &s);
    }
    printf("from %.0f to %.0f Mbit/s\n", first / 1e6, (double)path.rate_bps / 1e6);
    assert_true((double)path.rate_bps >= 2 * first);
    (void)state;
}

/* A relay's statuses wait behind what it passes on itself: that is no queue on the way to it. Every 3 s the way back is
 * empty for a moment, so the least round trip is known. */
static void statuses_that_wait_on_their_way_back__do_not_slow_what_they_are_of(void **state) {
    enum { HALF = 75, END = 40000, WARM_UP = 4000 }; /* ms */
    static const double link = 50 * MBIT;
    static double came[END];
    static int stamp[END];
    double under_way[HALF + 1] = {0}, there = 0, queue = 0, passed = 0, queues = 0;
    rs_wan_path path;
    rs_wan_path_start(&path, RS_WAN_OWN, (uint32_t)PACKET, 40000000, INT64_C(1000000000));
    for (int now = 0; now < END; now++) {
        int made = now - HALF - (now % 3000 < 200 ? 0 : 30);
        if (now % 19 == 0 && made > HALF && came[made] > 0) {
            const rs_wan_sample s = {.now = now * MS,
                                     .rtt = (now - stamp[made]) * MS,
                                     .at = made * MS,
                                     .stamp = stamp[made] * MS,
                                     .next = (uint64_t)(came[made] / PACKET),
                                     .received = (uint64_t)(came[made] / PACKET),
                                     .sent = (uint64_t)(came[made] / PACKET) + 10000,
                                     .part = 1,
                                     .sent_bps = path.rate_bps};
            rs_wan_path_heard(&path, &s);
        }
        under_way[now % (HALF + 1)] = (double)path.rate_bps / 8e3;
        queue += under_way[(now + 1) % (HALF + 1)];
        double out = queue < link ? queue : link;
        queue -= out;
        there += out;
        came[now] = there;
        stamp[now] = now - HALF - (int)(queue / link);
        passed += now >= WARM_UP ? out : 0;
        queues += now >= WARM_UP ? queue / link : 0;
    }
    double share = passed / link / (END - WARM_UP);
    printf("%.3f of the link, behind a queue of %.1f ms\n", share, queues / (END - WARM_UP));
    assert_true(share >= 0.97);
    assert_true(queues / (END - WARM_UP) < 60);
    (void)state;
}

/* A receiver's socket drops some, once: that does not tell that the queue of the narrowest place is short, of which
 * less is wanted from then on. */
static void dropped_at_a_socket__nothing_is_learned_of_queues(void **state) {
    enum { HALF = 20, END = 20000, DROP = 12000 }; /* ms */
    static const double link = 50 * MBIT;
    static double came[END];
    static int stamp[END];
    double under_way[HALF + 1] = {0}, there = 0, queue = 0, passed = 0, missing = 0;
    rs_wan_path path;
    rs_wan_path_start(&path, RS_WAN_OWN, (uint32_t)PACKET, 40000000, INT64_C(1000000000));
    for (int now = 0; now < END; now++) {
        int made = now - HALF;
        if (now % 10 == 0 && made > HALF && came[made] > 0) {
            double lost = made > DROP ? missing : 0;
            const rs_wan_sample s = {.now = now * MS,
                                     .rtt = (now - stamp[made]) * MS,
                                     .at = made * MS,
                                     .stamp = stamp[made] * MS,
                                     .next = (uint64_t)(came[made] / PACKET),
                                     .received = (uint64_t)((came[made] - lost) / PACKET),
                                     .dropped = made > DROP,
                                     .sent = (uint64_t)(came[made] / PACKET) + 10000,
                                     .part = 1,
                                     .sent_bps = path.rate_bps};
            rs_wan_path_heard(&path, &s);
        }
        under_way[now % (HALF + 1)] = (double)path.rate_bps / 8e3;
        queue += under_way[(now + 1) % (HALF + 1)];
        passed = queue < link ? queue : link;
        queue -= passed;
        there += passed;
        came[now] = there;
        stamp[now] = now - HALF - (int)(queue / link);
        if (now == DROP)
            missing = 40 * PACKET;
    }
    printf("queue wanted: room %.1f ms, rate %.0f Mbit/s\n", (double)path.room / (double)MS,
           (double)path.rate_bps / 1e6);
    assert_int_equal(path.room, 0);
    assert_true((double)path.rate_bps > 45e6);
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropped_at_a_socket__nothing_is_learned_of_queues),
        cmocka_unit_test(bursts__tell_of_the_path_as_a_steady_stream_does),
        cmocka_unit_test(statuses_that_wait_on_their_way_back__do_not_slow_what_they_are_of)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
