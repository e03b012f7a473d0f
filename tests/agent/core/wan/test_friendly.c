/* `congestion=friendly` beside a TCP, in virtual time: a fluid model of one narrow link with a queue, through which
 * ours and CUBIC (RFC 9438) or BBR (its first version, as Linux has it) send without an end. `rostrum lab run wan
 * --with-tcp` measures the same with Linux's own. */
#include "check.h"

#include <math.h>
#include <stdio.h>

#include "core/wan/congestion.h"

#define MS INT64_C(1000000)
#define MBIT 125.0    /* bytes in a millisecond */
#define PACKET 1500.0 /* bytes */
#define LONGEST 60000 /* ms */
#define SECONDS 40
#define WARM 3000         /* ms, for which the first is alone */
#define LATE 5000         /* ms */
#define BW_ROUNDS 10      /* over which BBR keeps the most that came out */
#define PROBE_RTT 10000   /* ms */
#define PROBE_RTT_FOR 200 /* ms */

/* A narrow link: round trip without a queue in ms, bytes in a millisecond, bytes of its queue. */
typedef struct {
    int rtt;
    double link, queue;
    int narrows; /* then (ms) its link becomes a tenth; 0: never */
} place;

/* What was sent in one millisecond, by ours [0] and by TCP [1]. */
typedef struct {
    double there[2], lost[2]; /* bytes that the queue took, or had no room for */
} slice;

/* What comes back to the senders in one millisecond. */
typedef struct {
    double acked[2], lost[2];
    double waited; /* ms in the queue; below 0: nothing came */
} word;

typedef struct {
    bool bbr;
    double window, inflight, pace; /* bytes, and bytes in a millisecond */
    double rtt, least;             /* ms; the least of BBR's spell */
    bool started;                  /* slow start is over */
    double acked, sent, event_end; /* bytes, from the beginning; losses before event_end are one event */
    double most, epoch, epoch_window, reno, prior; /* CUBIC */
    double history[LONGEST];                       /* acked, by the millisecond */
    double bw, flat_bw;
    double rounds_bw[BW_ROUNDS];
    int round, flat;
    double round_end, least_at, probe_until;
} tcp;

/* RFC 9438, 4: without its slow start (HyStart++), which ends earlier: it changes none of what is asserted here. */
static void cubic_heard(tcp *t, double now, double acked, double lost) {
    if (lost > 0 && t->acked > t->event_end) {
        t->prior = t->window;
        t->most = t->window < t->most ? t->window * 0.85 : t->window;
        t->window *= 0.7;
        t->epoch_window = t->reno = t->window;
        t->epoch = now;
        t->event_end = t->sent;
        t->started = true;
    } else if (!t->started) {
        t->window += acked;
    } else if (acked > 0) {
        double gap = t->most > t->epoch_window ? t->most - t->epoch_window : 0;
        double since = (now - t->epoch + t->rtt) / 1e3, k = cbrt(gap / PACKET / 0.4);
        double to = 0.4 * pow(since - k, 3) * PACKET + t->most;
        t->reno += (t->reno < t->prior ? 3 * 0.3 / 1.7 : 1) * acked / t->window * PACKET;
        to = to > t->reno ? to : t->reno;
        if (to > t->window)
            t->window += ((to < 1.5 * t->window ? to : 1.5 * t->window) - t->window) * acked / t->window;
    }
    t->pace = 1.2 * t->window / t->rtt;
}

static void bbr_heard(tcp *t, int now, double acked) {
    static const double gains[] = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
    int back = now - (int)t->rtt > 0 ? now - (int)t->rtt : 0;
    double came = (t->acked - t->history[back]) / (now - back > 0 ? now - back : 1);
    double *here = &t->rounds_bw[t->round % BW_ROUNDS];
    *here = came > *here ? came : *here;
    t->bw = 10 * PACKET / t->rtt;
    for (int i = 0; i < BW_ROUNDS; i++)
        t->bw = t->rounds_bw[i] > t->bw ? t->rounds_bw[i] : t->bw;
    if (acked > 0 && (t->rtt <= t->least || now - t->least_at > PROBE_RTT + 2 * PROBE_RTT_FOR)) {
        t->least = t->rtt;
        t->least_at = now;
    }
    if (now - t->least_at > PROBE_RTT && now > t->probe_until + PROBE_RTT) {
        t->probe_until = now + PROBE_RTT_FOR;
        t->least = 1e9;
    }
    if (now >= t->round_end) {
        t->round_end = now + t->rtt;
        t->rounds_bw[++t->round % BW_ROUNDS] = 0;
        t->flat = t->bw > 1.25 * t->flat_bw ? 0 : t->flat + 1;
        t->flat_bw = t->bw > t->flat_bw ? t->bw : t->flat_bw;
        t->started |= t->flat >= 3;
    }
    double least = t->least < 1e8 ? t->least : t->rtt, bdp = t->bw * least;
    double gain = t->started ? gains[(int)(now / least) % 8] : 2.89;
    t->pace = gain * t->bw;
    t->window = now < t->probe_until ? 4 * PACKET : (t->started ? 2 : 2.89) * bdp + 4 * PACKET;
}

/* What either carried from when the second of them begins to the end; and ours alone in the last LATE, in which it sent
 * late_sent (bytes). TCP's begins and ends at tcp_begins and tcp_ends, in ms. */
typedef struct {
    double ours, tcp, late, late_sent;
} carried;

static carried run(const place *where, bool bbr, int tcp_begins, int tcp_ends) {
    static slice queue[LONGEST];
    static word words[LONGEST];
    static tcp t;
    int end = WARM + SECONDS * 1000, head = 0, rtt = where->rtt, begins = tcp_begins ? 0 : WARM;
    carried sum = {0};
    double queued = 0, next = 0, received = 0, sent = 0;
    rs_wan_path path;
    memset(queue, 0, sizeof queue);
    memset(words, 0, sizeof words);
    t = (tcp){.bbr = bbr, .window = 10 * PACKET, .rtt = rtt, .least = 1e9, .pace = 10 * PACKET / rtt};
    rs_wan_path_start(&path, RS_WAN_FRIENDLY, (uint32_t)PACKET, rs_wan_first_rate(rtt * MS, 3, 0, 0),
                      INT64_C(100000000000));
    int report = rtt / 8 > 25 ? 25 : rtt / 8 < 2 ? 2 : rtt / 8;
    for (int now = 0; now < end; now++) {
        const word *w = &words[now];
        double rate[2] = {now < begins ? 0 : (double)path.rate_bps / 8e3, 0};
        /* what comes back */
        t.acked += w->acked[1];
        t.history[now] = t.acked;
        t.inflight -= w->acked[1] + w->lost[1];
        if (w->acked[1] > 0)
            t.rtt = rtt + w->waited;
        if (bbr)
            bbr_heard(&t, now, w->acked[1]);
        else
            cubic_heard(&t, now, w->acked[1], w->lost[1]);
        next += w->acked[0] + w->lost[0];
        received += w->acked[0];
        if (now > begins && now % report == 0 && w->acked[0] > 0) {
            const rs_wan_sample s = {.now = now * MS,
                                     .rtt = (rs_time)((rtt + w->waited) * 1e6),
                                     .at = now * MS,
                                     .stamp = (now - rtt - (int)w->waited) * MS,
                                     .next = (uint64_t)(next / PACKET),
                                     .received = (uint64_t)(next / PACKET) - (uint64_t)((next - received) / PACKET),
                                     .sent = (uint64_t)(sent / PACKET),
                                     .sent_bps = path.rate_bps,
                                     .part = 1};
            rs_wan_path_heard(&path, &s);
        }
        /* what is sent */
        double room = t.window - t.inflight;
        rate[1] = room <= 0 || now < tcp_begins || now >= tcp_ends ? 0 : room < t.pace ? room : t.pace;
        t.inflight += rate[1];
        t.sent += rate[1];
        sent += rate[0];
        double link = where->narrows && now >= where->narrows ? where->link / 10 : where->link;
        double all = rate[0] + rate[1], over = queued + all - link - where->queue;
        double lost = over > 0 && all > 0 ? (over < all ? over / all : 1) : 0;
        queue[now] = (slice){{rate[0] * (1 - lost), rate[1] * (1 - lost)}, {rate[0] * lost, rate[1] * lost}};
        queued += all * (1 - lost);
        /* what comes out, back at the senders after a round trip */
        word *out = &words[now + rtt < LONGEST ? now + rtt : LONGEST - 1];
        for (double left = link; head <= now; head++) {
            slice *s = &queue[head];
            double here = s->there[0] + s->there[1], part = here <= left ? 1 : left / here;
            for (int i = 0; i < 2; i++) {
                out->acked[i] += s->there[i] * part;
                out->lost[i] += s->lost[i];
                s->lost[i] = 0;
                s->there[i] *= 1 - part;
            }
            out->waited = now - head;
            queued -= here * part;
            left -= here * part;
            if (part < 1)
                break;
        }
        if (now > WARM) {
            sum.ours += w->acked[0];
            sum.tcp += w->acked[1];
        }
        if (now >= end - LATE) {
            sum.late += w->acked[0];
            sum.late_sent += rate[0];
        }
    }
    return sum;
}

/* Ours over TCP, in bytes. */
static double beside(const place *where, bool bbr, bool ours_first) {
    carried c = run(where, bbr, ours_first ? WARM : 0, LONGEST);
    return c.ours / c.tcp;
}

/* Whoever came first; queues of a tenth of what is on the way, and of sixteen times that. */
static void friendly__neither_it_nor_a_tcp_has_more_than_twice_the_other(void **state) {
    static const int trips[] = {10, 20, 50, 100};
    static const double queues[] = {5e5, 1e6, 4e6};
    for (int what = 0; what < 4; what++)
        for (size_t q = 0; q < sizeof queues / sizeof *queues; q++)
            for (size_t i = 0; i < sizeof trips / sizeof *trips; i++) {
                bool bbr = what & 1, ours_first = what & 2;
                double ratio = beside(&(place){trips[i], MBIT * 200, queues[q], 0}, bbr, ours_first);
                printf("%s, %d ms, queue %.1f MB, %s: ours over TCP %.2f\n", bbr ? "BBR" : "CUBIC", trips[i],
                       queues[q] / 1e6, ours_first ? "ours first" : "TCP first", ratio);
                assert_true(ratio >= 0.5 && ratio <= 2);
            }
    (void)state;
}

/* It leaves half of the place to no one who is gone, and nothing while it is alone. */
static void friendly__has_all_when_the_other_is_gone(void **state) {
    static const int trips[] = {10, 50, 100};
    for (int bbr = 0; bbr < 2; bbr++)
        for (size_t i = 0; i < sizeof trips / sizeof *trips; i++) {
            const place where = {trips[i], MBIT * 200, 1e6, 0};
            double share = run(&where, bbr, WARM, 15000).late / LATE / where.link;
            double alone = run(&where, bbr, LONGEST, LONGEST).late / LATE / where.link;
            printf("%s, %d ms: after it %.2f of the link, without it %.2f\n", bbr ? "BBR" : "CUBIC", trips[i], share,
                   alone);
            assert_true(share >= 0.9 && alone >= 0.9);
        }
    (void)state;
}

static void friendly__follows_a_place_that_narrows_while_it_is_shared(void **state) {
    static const int trips[] = {10, 50, 100};
    for (int bbr = 0; bbr < 2; bbr++)
        for (size_t i = 0; i < sizeof trips / sizeof *trips; i++) {
            carried c = run(&(place){trips[i], MBIT * 200, 1e6, 15000}, bbr, WARM, LONGEST);
            printf("%s, %d ms: %.2f of what it sends gets through\n", bbr ? "BBR" : "CUBIC", trips[i],
                   c.late / c.late_sent);
            assert_true(c.late >= 0.7 * c.late_sent);
        }
    (void)state;
}

/* A BBR that fills what ours leaves at each loss, and makes few losses itself: its queue is not so short that they come
 * one after the other. */
static void friendly__holds_its_own_where_its_window_shrinks_at_each_event(void **state) {
    static const struct {
        place where;
        bool ours_first;
    } cases[] = {
        {{20, MBIT * 200, 5e5, 0}, true},  {{50, MBIT * 200, 5e5, 0}, true},  {{50, MBIT * 200, 1e6, 0}, true},
        {{20, MBIT * 400, 1e6, 0}, true},  {{50, MBIT * 400, 1e6, 0}, true},  {{10, MBIT * 400, 5e5, 0}, true},
        {{10, MBIT * 400, 5e5, 0}, false}, {{20, MBIT * 400, 1e6, 0}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double ratio = beside(&cases[i].where, true, cases[i].ours_first);
        printf("BBR, case %zu: ours over TCP %.2f\n", i, ratio);
        assert_true(ratio >= 0.5 && ratio <= 2);
    }
    (void)state;
}

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(friendly__neither_it_nor_a_tcp_has_more_than_twice_the_other),
        cmocka_unit_test(bursts__tell_of_the_path_as_a_steady_stream_does),
        cmocka_unit_test(statuses_that_wait_on_their_way_back__do_not_slow_what_they_are_of),
        cmocka_unit_test(friendly__has_all_when_the_other_is_gone),
        cmocka_unit_test(friendly__follows_a_place_that_narrows_while_it_is_shared),
        cmocka_unit_test(friendly__holds_its_own_where_its_window_shrinks_at_each_event)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
