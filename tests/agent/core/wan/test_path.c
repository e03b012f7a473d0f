/* The rate of one path in virtual time, by what statuses tell of it. */
#include "check.h"

#include <stdio.h>

#include "core/wan/congestion.h"
#include "core/wan/pulses.h"

#define MS INT64_C(1000000)
#define MBIT 125.0    /* bytes in a millisecond */
#define PACKET 1500.0 /* bytes */

/* Bytes in a millisecond, as agent/core/wan/sender.c. */
static double sends(const rs_wan_path *path, rs_wan_pulse *pulse, int now, double sent) {
    if (path->found)
        return (double)path->rate_bps / 8e3;
    bool seen = rs_wan_pulse_ends(pulse, now * MS, (uint64_t)(sent / PACKET) + 1) && path->pulse_end == pulse->end;
    if (rs_wan_pulse_is_due(pulse, now * MS, seen, path->pulse_after))
        rs_wan_pulse_begin(pulse, now * MS, path->trip.least ? path->trip.least : 50 * MS, path->rate_bps,
                           path->pulse_most, path->careful);
    return (double)rs_wan_pulse_rate(pulse, now * MS, path->rate_bps) / 8e3;
}

/* A relay sends what has come to it, in bursts at its full rate, and is held back between them: its rate stayed at the
 * first one, a fifth of what its link carries. */
static void bursts__tell_of_the_path_as_a_steady_stream_does(void **state) {
    rs_wan_path path;
    rs_wan_path_start(&path, RS_WAN_OWN, (uint32_t)PACKET, 40000000, INT64_C(1000000000));
    rs_wan_pulse pulse = {0};
    double sent = 0, first = (double)path.rate_bps, sent_at[1100] = {0};
    for (int now = 50; now < 1100; now++) {
        sent += now / 50 % 2 ? sends(&path, &pulse, now, sent) : 0;
        sent_at[now] = sent;
        if (now % 10 != 0 || now < 100)
            continue;
        uint64_t next = (uint64_t)(sent_at[now - 50] / PACKET);
        const rs_wan_sample s = {.now = now * MS,
                                 .rtt = 50 * MS,
                                 .at = (now - 25) * MS,
                                 .stamp = (now - 50) * MS,
                                 .next = next,
                                 .received = next,
                                 .pulse_end = pulse.end,
                                 .sent = (uint64_t)(sent / PACKET),
                                 .part = 1,
                                 .limited = true,
                                 .sent_bps = path.rate_bps / 2};
        rs_wan_path_heard(&path, &s);
    }
    printf("from %.0f to %.0f Mbit/s\n", first / 1e6, (double)path.rate_bps / 1e6);
    assert_true((double)path.rate_bps >= 2 * first);
    (void)state;
}

enum { HALF_MOST = 75, END_MOST = 40000 }; /* ms */

/* A path that carries LINK, on which a sender follows what statuses tell. By the millisecond. */
#define LINK (50 * MBIT)
typedef struct {
    int half; /* of the least round trip */
    rs_wan_path path;
    rs_wan_pulse pulse;
    double sent;
    double under_way[HALF_MOST + 1], there, queue; /* bytes */
    double came[END_MOST];
    int stamp[END_MOST];
} line;

static void begin(line *l, int half) {
    *l = (line){.half = half};
    rs_wan_path_start(&l->path, RS_WAN_OWN, (uint32_t)PACKET, 40000000, INT64_C(1000000000));
}

/* What a status tells that was made then, when `missing` bytes had been dropped at the receiver. */
static void hears(line *l, int now, int made, double missing) {
    if (made <= l->half || l->came[made] <= 0)
        return;
    const rs_wan_sample s = {.now = now * MS,
                             .rtt = (now - l->stamp[made]) * MS,
                             .at = made * MS,
                             .stamp = l->stamp[made] * MS,
                             .next = (uint64_t)(l->came[made] / PACKET),
                             .received = (uint64_t)((l->came[made] - missing) / PACKET),
                             .dropped = (uint64_t)(missing / PACKET),
                             .pulse_end = l->pulse.end,
                             .sent = (uint64_t)(l->sent / PACKET),
                             .part = 1,
                             .sent_bps = l->path.rate_bps};
    rs_wan_path_heard(&l->path, &s);
}

/* Bytes that come out. */
static double passes(line *l, int now) {
    double more = sends(&l->path, &l->pulse, now, l->sent);
    l->sent += more;
    l->under_way[now % (l->half + 1)] = more;
    l->queue += l->under_way[(now + 1) % (l->half + 1)];
    double out = l->queue < LINK ? l->queue : LINK;
    l->queue -= out;
    l->there += out;
    l->came[now] = l->there;
    l->stamp[now] = now - l->half - (int)(l->queue / LINK);
    return out;
}

/* A relay's statuses wait behind what it passes on itself: that is no queue on the way to it. Every 3 s the way back is
 * empty for a moment, so the least round trip is known. */
static void statuses_that_wait_on_their_way_back__do_not_slow_what_they_are_of(void **state) {
    enum { HALF = 75, END = 40000, WARM_UP = 4000 }; /* ms */
    static line l;
    double passed = 0, queues = 0;
    begin(&l, HALF);
    for (int now = 0; now < END; now++) {
        if (now % 19 == 0)
            hears(&l, now, now - HALF - (now % 3000 < 200 ? 0 : 30), 0);
        double out = passes(&l, now);
        passed += now >= WARM_UP ? out : 0;
        queues += now >= WARM_UP ? l.queue / LINK : 0;
    }
    double share = passed / LINK / (END - WARM_UP);
    printf("%.3f of the link, behind a queue of %.1f ms\n", share, queues / (END - WARM_UP));
    assert_true(share >= 0.97);
    assert_true(queues / (END - WARM_UP) < 60);
    (void)state;
}

/* A receiver's socket drops some, once: that does not tell that the queue of the narrowest place is short. A third of
 * the queue was wanted from then on. */
static void dropped_at_a_socket__the_queue_is_as_before(void **state) {
    enum { HALF = 20, END = 30000, DROP = 12000, AGAIN = 8000 }; /* ms */
    static line l;
    double before = 0, after = 0;
    begin(&l, HALF);
    for (int now = 0; now < END; now++) {
        if (now % 10 == 0)
            hears(&l, now, now - HALF, now - HALF > DROP ? 40 * PACKET : 0);
        passes(&l, now);
        before += now >= DROP - AGAIN && now < DROP ? l.queue / LINK / AGAIN : 0;
        after += now >= END - AGAIN ? l.queue / LINK / AGAIN : 0;
    }
    printf("a queue of %.1f ms before, of %.1f ms after, at %.0f Mbit/s\n", before, after,
           (double)l.path.rate_bps / 1e6);
    assert_true(after > before * 0.9);
    assert_true((double)l.path.rate_bps > 45e6);
    (void)state;
}

/* It is a burden to whoever is there already: a queue gets no more of it than of the rate between in a round trip. */
static void a_pulse__is_more_than_its_base_by_a_round_trip_of_that_at_most(void **state) {
    for (rs_time trip = MS / 10; trip < 2000 * MS; trip += trip / 3) {
        for (int careful = 0; careful < 2; careful++) {
            rs_wan_pulse pulse;
            double more = 0, most = 1;
            rs_time now = 5 * MS;
            rs_wan_pulse_begin(&pulse, now, trip, 1000, 0, careful);
            while (rs_wan_pulse_on(&pulse, now)) {
                double times = (double)rs_wan_pulse_rate(&pulse, now, 1000) / 1000;
                rs_time change = rs_wan_pulse_change(&pulse, now);
                assert_true(change > now && times > most);
                more += (times - 1) * (double)(change - now);
                most = times;
                now = change;
            }
            assert_true(more > 0 && more <= (double)trip);
            assert_true(careful ? most == 2 : most == (trip >= 44 * MS ? 8 : trip >= 8 * MS ? 4 : 2));
            assert_int_equal(rs_wan_pulse_rate(&pulse, now, 1234), 1234);
            assert_false(rs_wan_pulse_ends(&pulse, now - 1, 7));
            assert_true(rs_wan_pulse_ends(&pulse, now, 7) && rs_wan_pulse_ends(&pulse, now + 1, 8));
            assert_int_equal(pulse.end, 7);
        }
    }
    (void)state;
}

/* One packet that is late makes a pulse look too fast; so does none, after it. */
static void a_pulse_that_seems_too_fast_once__does_not_end_start_up(void **state) {
    rs_wan_path path;
    rs_wan_pulse pulse = {0};
    double sent = 0, sent_at[1000] = {0};
    rs_wan_path_start(&path, RS_WAN_OWN, (uint32_t)PACKET, 10000000, INT64_C(1000000000));
    for (int now = 100; now < 1000; now++) {
        sent_at[now] = sent += sends(&path, &pulse, now, sent);
        if (now < 200 || now % 4 != 0)
            continue;
        int late = now > 204 && now < 216 ? 6 : 0;
        uint64_t next = (uint64_t)(sent_at[now - 100 - late] / PACKET);
        const rs_wan_sample s = {.now = now * MS,
                                 .rtt = (100 + late) * MS,
                                 .at = (now - 50) * MS,
                                 .stamp = (now - 100 - late) * MS,
                                 .next = next,
                                 .received = next,
                                 .pulse_end = pulse.end,
                                 .sent = (uint64_t)(sent / PACKET),
                                 .part = 1};
        rs_wan_path_heard(&path, &s);
    }
    printf("%.0f Mbit/s\n", (double)path.rate_bps / 1e6);
    assert_true((double)path.rate_bps > 900e6);
    (void)state;
}

/* A receiver's host was busy, and its start-up over at a small rate: that held all others back, until it was left to
 * itself, where a switch marked. By the pulses that go on for others it sees as much as they. */
static void start_up_that_was_over_too_soon__sees_the_place_by_pulses_for_others(void **state) {
    enum { PLACE = 200, OTHERS = 150, WINDOW = 4, QUEUE = 10 }; /* Mbit/s, ms */
    rs_wan_path path;
    rs_wan_path_start(&path, RS_WAN_FRIENDLY, (uint32_t)PACKET, 20000000, INT64_C(100000000000));
    path.found = true;
    rs_wan_sample s = {.now = 200 * MS, .rtt = 100 * MS, .at = 150 * MS, .stamp = 100 * MS, .part = 1};
    rs_wan_path_heard(&path, &s);
    s.at += QUEUE * MS;
    for (int i = 0; i < 40; i++) {
        int rate = 20 << i % 4; /* Mbit/s */
        s.now += WINDOW * MS;
        s.stamp += WINDOW * MS;
        s.at += WINDOW * MS * (rate + OTHERS) / PLACE;
        s.next += (uint64_t)(rate * MBIT * WINDOW / PACKET);
        s.received = s.sent = s.next;
        rs_wan_path_offered(&path, &s);
    }
    assert_true(path.share_bps == 0);
    rs_wan_path_heard(&path, &s);
    printf("a place of %.0f Mbit/s, others have %.2f of it\n", path.place_bps / 1e6, path.others);
    assert_true(path.share_bps > 0 && path.others_until > s.now);
    assert_true(path.place_bps > 0.9e6 * PLACE && path.place_bps < 1.1e6 * PLACE);
    (void)state;
}

/* Statuses of start-up each 5 ms at a trip of 100 ms, from the first one on until `ms` later. Of each 100 ms a queue of
 * 10 ms stands in `stood`; one of `of` packets comes. */
static void looks_at(rs_wan_path *path, int ms, int stood, int of) {
    enum { STATUS = 5, TRIP = 100, SENT = 20, QUEUE = 10 };
    rs_wan_path_start(path, RS_WAN_FRIENDLY, (uint32_t)PACKET, SENT * 1000000, INT64_C(100000000000));
    for (int i = 0; i <= ms / STATUS; i++) {
        rs_time sent = i * STATUS * MS, late = i * STATUS % TRIP < stood ? QUEUE * MS : 0;
        uint64_t next = (uint64_t)(1 + i * SENT * STATUS * MBIT / PACKET);
        const rs_wan_sample s = {.now = sent + TRIP * MS + late,
                                 .rtt = TRIP * MS + late,
                                 .at = sent * of + TRIP / 2 * MS + late,
                                 .stamp = sent,
                                 .next = next,
                                 .received = next,
                                 .sent = next + 100,
                                 .part = 1};
        rs_wan_path_heard(path, &s);
    }
}

static void friendly__looks_for_a_round_trip_before_the_first_pulse(void **state) {
    static const struct {
        int ms, stood, of;
        bool looks, met, found;
    } cases[] = {
        {80, 0, 1, true, false, false},     /* not a round trip yet */
        {150, 0, 1, false, false, false},   /* nobody is there */
        {150, 30, 1, false, true, false},   /* bursts of another */
        {150, 100, 1, false, false, false}, /* a queue that stands is one in which pulses are seen */
        {400, 100, 3, false, false, true},  /* a third comes: the place is narrow, and no pulse is needed */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_wan_path path;
        looks_at(&path, cases[i].ms, cases[i].stood, cases[i].of);
        printf("%zu: looks %d, met %d, found %d, %.1f Mbit/s\n", i, rs_wan_path_looks(&path), path.met, path.found,
               (double)path.rate_bps / 1e6);
        assert_int_equal(rs_wan_path_looks(&path), cases[i].looks);
        assert_int_equal(path.met, cases[i].met);
        assert_int_equal(path.found, cases[i].found);
        assert_true(!path.found || path.rate_bps < 8000000);
    }
    rs_wan_path lied;
    rs_wan_sample nothing = {.now = MS, .part = 1};
    rs_wan_path_start(&lied, RS_WAN_FRIENDLY, (uint32_t)PACKET, 20000000, INT64_C(100000000000));
    for (int i = 0; i < 9; i++, nothing.at += 3 * MS, nothing.now += MS)
        rs_wan_path_heard(&lied, &nothing);
    assert_false(lied.found); /* by a receiver whose statuses tell of no time, and of no packet */
    rs_wan_path own;
    rs_wan_path_start(&own, RS_WAN_OWN, (uint32_t)PACKET, 20000000, INT64_C(100000000000));
    assert_false(rs_wan_path_looks(&own));
    (void)state;
}

static void a_pulse__is_due_a_while_after_the_one_before_was_seen(void **state) {
    rs_wan_pulse pulse;
    rs_wan_pulse_begin(&pulse, MS, 100 * MS, 1000, 0, false);
    assert_false(rs_wan_pulse_is_due(&pulse, 200 * MS, false, 30 * MS));
    assert_false(rs_wan_pulse_is_due(&pulse, 210 * MS, true, 30 * MS));
    assert_false(rs_wan_pulse_is_due(&pulse, 239 * MS, true, 30 * MS));
    assert_true(rs_wan_pulse_is_due(&pulse, 240 * MS, true, 30 * MS));
    rs_wan_pulse_begin(&pulse, 240 * MS, 100 * MS, 1000, 0, false);
    assert_false(rs_wan_pulse_is_due(&pulse, 300 * MS, false, 0));
    assert_true(rs_wan_pulse_is_due(&pulse, 400 * MS, true, 0));
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(friendly__looks_for_a_round_trip_before_the_first_pulse),
        cmocka_unit_test(a_pulse__is_due_a_while_after_the_one_before_was_seen),
        cmocka_unit_test(a_pulse__is_more_than_its_base_by_a_round_trip_of_that_at_most),
        cmocka_unit_test(a_pulse_that_seems_too_fast_once__does_not_end_start_up),
        cmocka_unit_test(dropped_at_a_socket__the_queue_is_as_before),
        cmocka_unit_test(bursts__tell_of_the_path_as_a_steady_stream_does),
        cmocka_unit_test(statuses_that_wait_on_their_way_back__do_not_slow_what_they_are_of),
        cmocka_unit_test(start_up_that_was_over_too_soon__sees_the_place_by_pulses_for_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
