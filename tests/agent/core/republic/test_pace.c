/* The pace of the data channel as a whole (path_model.c, rate.c, window.c, feedback_sender.c) over links of many kinds:
 * how soon it is found, how well the link is used after that, and that queues do not overflow. PACE=<n> runs one,
 * PACE_SEED=<n> with other losses, PACE_SHOW=1 shows what came of each. */
#include <stdlib.h>

#include "check.h"

#include "net.h"

typedef struct {
    const char *name;
    int64_t rate_bps; /* of the sender's port; its NIC claims 25 Gb/s */
    uint64_t queue;   /* bytes in front of it */
    rs_time rtt;      /* round trip */
    rs_time look;     /* how often receivers look at their sockets */
    double loss, burst;
    uint32_t receivers, fragment;
    uint64_t room; /* bytes at each receiver */
    /* bounds */
    rs_time found; /* start-up is over by then */
    double taken;  /* the link's second of data takes at most so many seconds, start-up aside */
    double late;   /* share of packets lost to the queue after start-up */
} path;

#define ROOM (UINT64_C(8) << 20)
#define CONTROL_PART 50       /* of each port, in the lab and on P4 switches, */
#define CONTROL_LEAST 2000000 /* or so much */

/* Losses at receivers cost repairs on the same link. */
static const path paths[] = {
    {"20M, 48 receivers", 20000000, 1024 << 10, 100 * US, 0, 0, 0, 48, 1408, ROOM, 200 * MS, 1.5, 0.1},
    {"50M, 48 receivers", 50000000, 1024 << 10, 100 * US, 0, 0, 0, 48, 1408, ROOM, 200 * MS, 1.5, 0.1},
    {"20M, 1500", 20000000, 64 << 10, 100 * US, 0, 0, 0, 3, 1408, ROOM, 100 * MS, 1.05, 0.1},
    {"20M, 12 receivers", 20000000, 64 << 10, 100 * US, 0, 0, 0, 12, 1408, ROOM, 200 * MS, 1.45, 0.3},
    {"20M, 12 receivers, 1 %", 20000000, 64 << 10, 100 * US, 0, 0.01, 0, 12, 1408, ROOM, 200 * MS, 1.45, 0.3},
    {"100M, 1500", 100000000, 128 << 10, 100 * US, 0, 0, 0, 3, 1408, ROOM, 20 * MS, 1.03, 0.002},
    {"100M, 9000", 100000000, 256 << 10, 100 * US, 0, 0, 0, 3, 8896, ROOM, 30 * MS, 1.03, 0.02},
    {"300M, 1500", 300000000, 256 << 10, 100 * US, 400 * US, 0, 0, 3, 1408, ROOM, 10 * MS, 1.02, 0.002},
    {"1G", 1000000000, 384 << 10, 100 * US, 0, 0, 0, 3, 8896, ROOM, 10 * MS, 1.02, 0.002},
    {"1G, late looks", 1000000000, 384 << 10, 100 * US, 400 * US, 0, 0, 3, 8896, ROOM, 10 * MS, 1.02, 0.002},
    {"1G, 1 %", 1000000000, 384 << 10, 100 * US, 400 * US, 0.01, 0, 3, 8896, ROOM, 10 * MS, 1.05, 0.004},
    {"1G, 5 % in bursts", 1000000000, 384 << 10, 100 * US, 400 * US, 0.05, 10, 3, 8896, ROOM, 10 * MS, 1.25, 0.01},
    {"1G, 20 ms", 1000000000, 2560 << 10, 20 * MS, 400 * US, 0, 0, 3, 8896, ROOM, 240 * MS, 1.05, 0.002},
    {"1G, 20 ms, 1 %", 1000000000, 2560 << 10, 20 * MS, 400 * US, 0.01, 5, 3, 8896, ROOM, 240 * MS, 1.07, 0.002},
    {"1G, 14 packets of queue", 1000000000, 128 << 10, 100 * US, 400 * US, 0, 0, 3, 8896, ROOM, 10 * MS, 1.03, 0.01},
    {"10G, shallow", 10000000000, 1 << 20, 50 * US, 400 * US, 0, 0, 3, 8896, ROOM, 10 * MS, 1.05, 0.008},
    {"20G, 0.3 ms of queue", 19500000000, 727 << 10, 50 * US, 62 * US, 0, 0, 2, 8896, ROOM, 10 * MS, 1.02, 0.01},
    {"4G, 0.5 ms of queue", 4000000000, 238 << 10, 250 * US, 400 * US, 0, 0, 3, 8896, ROOM, 10 * MS, 1.05, 0.01},
    {"10G, 5 % in bursts", 10000000000, 2 << 20, 50 * US, 400 * US, 0.05, 5, 3, 8896, ROOM, 10 * MS, 1.15, 0.005},
    {"25G", 24000000000, 4 << 20, 50 * US, 100 * US, 0, 0, 3, 8896, ROOM, 10 * MS, 1.01, 0.001},
    {"10G, small sockets", 10000000000, 2 << 20, 50 * US, 100 * US, 0, 0, 3, 8896, 400 << 10, 10 * MS, 2.2, 0.001},
    {"1G, 12 receivers", 1000000000, 1 << 20, 100 * US, 400 * US, 0, 0, 12, 8896, ROOM, 10 * MS, 1.03, 0.002},
    {"10G, 12 receivers, 1 %", 10000000000, 2 << 20, 50 * US, 400 * US, 0.01, 0, 12, 8896, ROOM, 10 * MS, 1.06, 0.01},
    {"1G, 64 receivers", 1000000000, 2 << 20, 100 * US, 400 * US, 0, 0, 64, 8896, ROOM, 80 * MS, 1.1, 0.002},
};

static void check(const path *r, rs_time found, rs_time done, rs_time whole, uint64_t late, uint64_t packets) {
    if (getenv("PACE_SHOW"))
        print_message("%-24s found in %6.2f ms, data done in %8.2f ms, all in %8.2f ms, %llu of %llu lost late\n",
                      r->name, (double)found / 1e6, (double)done / 1e6, (double)whole / 1e6, (unsigned long long)late,
                      (unsigned long long)packets);
    if (found > r->found)
        fail_msg("%s: the rate was found after %.2f ms", r->name, (double)found / 1e6);
    if ((double)(done - found) > r->taken * 1e9)
        fail_msg("%s: data took %.2f ms", r->name, (double)done / 1e6);
    if ((double)(whole - found) > r->taken * 1e9)
        fail_msg("%s: all was there after %.2f ms", r->name, (double)whole / 1e6);
    if ((double)late > r->late * (double)packets)
        fail_msg("%s: %llu of %llu packets were lost to the queue", r->name, (unsigned long long)late,
                 (unsigned long long)packets);
}

/* An object of one second of the link. */
static void run(const path *r, uint64_t seed) {
    const rs_config config = {.fragment_size = r->fragment, .nic_rate_bps = 25000000000};
    net *n = net_new(r->receivers + 1, &config, seed);
    net_knobs *k = net_knob(n);
    k->path.rate_bps = 0;
    k->uplink_bps = r->rate_bps;
    k->uplink_bytes = r->queue;
    k->data_delay = k->control_delay = k->connect_delay = r->rtt / 2;
    k->look = r->look;
    k->loss = r->loss;
    k->burst = r->burst;
    k->quiet = true;
    k->control_rate_bps = 10000000000;
    k->control_port_bps = r->rate_bps / CONTROL_PART > CONTROL_LEAST ? r->rate_bps / CONTROL_PART : CONTROL_LEAST;
    for (uint32_t i = 1; i <= r->receivers; i++)
        net_room(n, i, r->room);
    uint64_t packets = (uint64_t)r->rate_bps / 8 / (r->fragment + RS_DATA_HEADER + RS_WIRE_OVERHEAD);
    rs_xfer xfer = net_send_all(n, 1, packets * r->fragment);
    while (net_stats(n, 0, xfer).high_rate_at == 0)
        net_at(n, net_now(n) + 10 * US);
    rs_time began = net_now(n), found = 0;
    rs_time step = r->rtt > 2 * MS ? r->rtt : 2 * MS;
    uint64_t early = 0, sent = 0, fast = (uint64_t)((double)r->rate_bps * 0.9 * (double)step / 1e9); /* bits */
    for (rs_time t = step; net_stats(n, 0, xfer).phase == RS_PHASE_HIGH_RATE; t += step) {
        net_at(n, began + t);
        uint64_t now = k->data_packets - k->uplink_drops;
        if (!found && (now - sent) * (r->fragment + RS_DATA_HEADER + RS_WIRE_OVERHEAD) * 8 >= fast)
            found = t;
        sent = now;
        if (!found || t < found + 30 * MS + 5 * r->rtt)
            early = k->uplink_drops;
        assert_true(t < 10 * SEC);
    }
    rs_time done = net_now(n) - began;
    net_at(n, 60 * SEC);
    const net_told *end = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    assert_true(end->event.ok);
    check(r, found, done, end->at - NET_START - began, k->uplink_drops - early, packets);
    net_free(n);
}

static void pace__is_found_and_held(void **state) {
    (void)state;
    const char *one = getenv("PACE"), *seed = getenv("PACE_SEED");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (!one || strtoul(one, NULL, 10) == i)
            run(&paths[i], seed ? strtoul(seed, NULL, 10) : 1 + i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pace__is_found_and_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
