/* Who is judged slow, and leaves the data channel (docs/wan.md, "No crying baby"), of those that meet others on their
 * way. */
#include "check.h"
#include "net.h"
#include "net_state.h"

#include <stdio.h>
#include <string.h>

#include "core/wan/options.h"

#define FRAGMENT 1400
#define SERVERS 4u
#define TRIP (200 * MS)
#define LINK 100e6
#define QUEUE 1000000
#define FAST 1000000000
#define SIZE (UINT64_C(100) << 20)

/* A TCP in front of the link that all go by: it goes back to 0.7 when the queue is full, and is back some s later. */
typedef struct {
    double most, rate; /* bits in a second */
    rs_time back_at;   /* it gives way no more than once in a round trip */
} other;

static void other_sends(net *n, other *o) {
    net_server *s = &n->servers[0];
    rs_time now = n->knobs.now;
    if (o->rate == 0)
        return;
    s->uplink_free = s->uplink_free > now ? s->uplink_free : now;
    if ((double)(s->uplink_free - now) * LINK / 8e9 < QUEUE) {
        s->uplink_free += (rs_time)(o->rate / LINK * (double)MS);
        o->rate += o->rate < o->most ? LINK / 8000 : 0;
    } else if (now >= o->back_at) {
        o->rate *= 0.7;
        o->back_at = now + TRIP;
    }
}

static net *begin(uint64_t seed, rs_xfer *xfer) {
    static const rs_wan_config friendly = {.congestion = RS_WAN_FRIENDLY};
    rs_config config = {.fragment_size = FRAGMENT, .nic_rate_bps = FAST};
    config.options[RS_PROTOCOL_WAN] = &friendly;
    net *n = net_new(SERVERS, &config, seed);
    net_knobs *k = net_knob(n);
    printf("seed %llu\n", (unsigned long long)seed);
    k->path.protocol = RS_PROTOCOL_WAN;
    k->data_delay = k->control_delay = k->connect_delay = TRIP / 2;
    k->uplink_bps = (int64_t)LINK;
    k->uplink_bytes = QUEUE;
    k->quiet = true;
    *xfer = net_send_all(n, 1, SIZE);
    return n;
}

static void stands_still(net *n, rs_time time) {
    rs_time *host = &n->servers[1].port_free;
    *host = (*host > n->knobs.now ? *host : n->knobs.now) + time;
}

static bool demoted(net *n, rs_peer peer) {
    const net_told *log = net_event(n, 0, RS_EV_LOG, peer);
    return log && strstr(log->event.cause, "goes to it by unicast");
}

/* A receiver whose host stands still for up to so long, once in `every` ms, and one that is slow. */
typedef struct {
    uint64_t seed;
    int every, pause; /* ms */
    int64_t slow_bps; /* 0: none is */
} how;

/* Until one is demoted, or all is there. When that is; 0: never. */
static rs_time demotes(const how *h, rs_peer *who) {
    rs_xfer xfer;
    net *n = begin(h->seed, &xfer);
    other o = {.most = LINK, .rate = LINK};
    rs_time at = 0;
    *who = ANYONE;
    net_bottleneck(n, 1, FAST, 4000, false);
    net_bottleneck(n, 2, h->slow_bps ? h->slow_bps : FAST, 200, false);
    for (; at < 40 * SEC && !net_event(n, 0, RS_EV_SEND_DONE, ANYONE) && *who == ANYONE; at += MS) {
        other_sends(n, &o);
        if (h->every && net_random(n) * h->every < 1)
            stands_still(n, (rs_time)(net_random(n) * h->pause * (double)MS));
        net_at(n, at);
        for (rs_peer i = 1; i < SERVERS && *who == ANYONE; i++)
            *who = demoted(n, i) ? i : ANYONE;
    }
    if (*who != ANYONE)
        printf("receiver %u is demoted after %.3f s: %s\n", *who, (double)at / 1e9,
               net_event(n, 0, RS_EV_LOG, *who)->event.cause);
    net_free(n);
    return *who == ANYONE ? 0 : at;
}

/* Three behind one place have what a TCP leaves them there, whatever the clock of one shows. Two were demoted: what
 * went to each by itself went by that place again. */
static void three_that_meet_the_same_tcp__stay_together(void **state) {
    static const how noisy[] = {{1, 10, 10, 0}, {7, 10, 10, 0}, {2, 30, 10, 0},
                                {3, 30, 25, 0}, {5, 30, 25, 0}, {1, 0, 0, 0}};
    for (uint32_t i = 0; i < sizeof noisy / sizeof *noisy; i++) {
        rs_peer who;
        demotes(&noisy[i], &who);
        assert_true(who == ANYONE);
    }
    (void)state;
}

/* In a second and ten round trips, and a few in which that is seen. */
static void who_takes_less_than_half_beside_a_tcp__is_demoted(void **state) {
    static const int64_t slow[] = {2000000, 3000000, 5000000, 7000000};
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (uint32_t i = 0; i < sizeof slow / sizeof *slow; i++) {
            rs_peer who;
            rs_time at = demotes(&(how){seed, 0, 0, slow[i]}, &who);
            assert_true(who == 2);
            assert_true(at < SEC + 18 * TRIP);
        }
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_that_meet_the_same_tcp__stay_together),
        cmocka_unit_test(who_takes_less_than_half_beside_a_tcp__is_demoted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
