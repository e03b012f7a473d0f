/* RDCM on small networks: the paper's rules, one by one. */
#include "check.h"

#include <stdio.h>

#include "core/rdcm_wire.h"
#include "overlay.h"

#define FRAGMENT 1000

static rs_config config(void) {
    return (rs_config){.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};
}

typedef struct {
    net *n;
    overlay o;
    uint32_t receivers;
    rs_xfer xfer;
} world;

/* A transfer whose receivers have accepted and whose views are there. */
static void begin(world *w, uint32_t receivers, uint64_t fragments, uint64_t seed, const rs_config *c) {
    *w = (world){.n = net_new(receivers + 1, c, seed), .receivers = receivers};
    overlay_make(&w->o, receivers, seed, NULL);
    net_knob(w->n)->path.protocol = RS_PROTOCOL_RDCM;
    w->xfer = net_send_all(w->n, 1, fragments * FRAGMENT);
    net_at(w->n, 5 * MS);
    overlay_tell(w->n, &w->o, receivers, w->xfer, 1);
}

static void all_have_it(world *w) {
    const net_told *done = net_event(w->n, 0, RS_EV_SEND_DONE, ANYONE);
    if (!done || !done->event.ok)
        net_show(w->n);
    assert_non_null(done);
    assert_true(done->event.ok);
    for (rs_peer i = 1; i <= w->receivers; i++)
        assert_true(net_has(w->n, i, 1));
}

static void no_loss__nothing_is_sent_twice(void **state) {
    (void)state;
    world w;
    rs_config c = config();
    begin(&w, 9, 2000, 3, &c);
    net_at(w.n, 500 * MS);
    all_have_it(&w);
    rs_xfer_stats s = net_stats(w.n, 0, w.xfer);
    assert_int_equal(s.protocol, RS_PROTOCOL_RDCM);
    assert_int_equal(s.packets_redundant, 0);
    for (rs_peer i = 1; i <= w.receivers; i++) {
        rs_xfer_stats r = net_stats(w.n, i, net_receiving(w.n, i));
        assert_int_equal(r.peer_repairs_sent, 0);
        assert_int_equal(r.packets_old, 0);
        assert_int_equal(net_events(w.n, i, RS_EV_VIEW_USED, ANYONE), 1);
    }
    net_free(w.n);
}

/* ------------------------------------------------------------------------------------------------------- properties */

/* What the network saw of one run. */
typedef struct {
    overlay *o;
    uint64_t seed;
    double link_loss;
    uint32_t sent[4096];  /* multicasts of a fragment */
    bool known[4096];     /* some ACK of it had come to the sender when... */
    uint32_t again_known; /* ...it was multicast again */
    uint32_t strangers;   /* repairs to others than successors */
    uint64_t acks, repairs;
    uint64_t acks_of[OVERLAY_SERVERS];
    uint32_t lost_links;
} eyes;

static double dice(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xd1b54a32d192ed03) + c * UINT64_C(0x8cb92ba72f3d8dd7);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) / (double)(UINT64_C(1) << 53);
}

/* A packet is lost on a link of the tree: for all below it. */
static bool on_the_tree(net *n, rs_peer to, const rs_data_header *h, void *context) {
    eyes *e = context;
    (void)h;
    for (uint32_t at = e->o->node_of[to]; at; at = e->o->parent[at])
        if (dice(e->seed, net_knob(n)->data_packets, at) < e->link_loss)
            return true;
    return false;
}

static void see(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                size_t length, void *context) {
    eyes *e = context;
    rs_data_header h;
    rs_ack ack;
    (void)n;
    if (channel == RS_CH_GROUP) {
        if (arrives || !rs_wire_decode_data(header, length, &h) || h.sn >= 4096)
            return;
        if (e->sent[h.sn]++ && e->known[h.sn])
            e->again_known++;
    } else if (rs_ack_decode(header, length, &ack)) {
        e->acks += !arrives;
        e->acks_of[from] += !arrives;
        for (uint64_t sn = 0; arrives && to == 0 && sn < ack.cum && sn < 4096; sn++)
            e->known[sn] = true;
        for (uint32_t i = 0; arrives && to == 0 && i < ack.words * 64; i++)
            if (ack.base + i < 4096 && (ack.map[i / 64] >> (i % 64) & 1))
                e->known[ack.base + i] = true;
    } else if (!arrives) {
        e->repairs++;
        e->strangers += to != e->o->at[from].leaf.successor && to != e->o->at[from].proxy.successor;
    }
}

static void random_run(uint64_t seed) {
    static eyes e;
    world w;
    rs_config c = config();
    memset(&e, 0, sizeof e);
    uint32_t receivers = 1 + (uint32_t)(dice(seed, 1, 1) * 40);
    uint64_t fragments = 1 + (uint64_t)(dice(seed, 1, 2) * 1500);
    c.rdcm.ack_every = dice(seed, 1, 3) < 0.3 ? 1 : 0;
    c.rdcm.no_congestion_control = dice(seed, 1, 4) < 0.3;
    begin(&w, receivers, fragments, seed, &c);
    e.o = &w.o;
    e.seed = seed;
    e.link_loss = dice(seed, 1, 5) < 0.2 ? 0.1 * dice(seed, 1, 6) : 0.02 * dice(seed, 1, 6);
    net_knobs *k = net_knob(w.n);
    k->quiet = true;
    k->drop = on_the_tree;
    k->watch = see;
    k->drop_context = k->watch_context = &e;
    k->data_delay = (rs_time)(10 + 300 * dice(seed, 1, 7)) * US;
    bool rough = dice(seed, 1, 8) < 0.4;
    k->data_jitter = rough ? (rs_time)(200 * dice(seed, 1, 9)) * US : 0;
    k->peer_loss = rough ? 0.1 * dice(seed, 1, 10) : 0;
    k->duplicate = rough ? 0.05 * dice(seed, 1, 11) : 0;
    net_at(w.n, 20 * SEC);
    const net_told *done = net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE);
    bool right = done && done->event.ok && e.strangers == 0 && (rough || e.again_known == 0);
    for (rs_peer i = 1; i <= receivers; i++)
        right &= net_has(w.n, i, 1);
    if (!right) {
        net_show(w.n);
        fail_msg("seed %llu: %u receivers, %llu fragments, %u repairs to strangers, %u multicast though acknowledged",
                 (unsigned long long)seed, receivers, (unsigned long long)fragments, e.strangers, e.again_known);
    }
    for (rs_peer i = 1; i <= receivers; i++) {
        const net_told *t = net_event(w.n, i, RS_EV_RECEIVER_FAILED, ANYONE);
        if (t)
            fail_msg("seed %llu: %lld us: %u tells that %u failed", (unsigned long long)seed,
                     (long long)((t->at - NET_START) / US), i, t->event.peer);
    }
    if (getenv("RDCM_SHOW"))
        printf("seed %llu: %u receivers %llu fragments loss %.4f rough %d: done %lld us, %llu repairs %llu acks\n",
               (unsigned long long)seed, receivers, (unsigned long long)fragments, e.link_loss, rough,
               (long long)((done->at - NET_START) / US), (unsigned long long)e.repairs, (unsigned long long)e.acks);
    net_free(w.n);
}

/* Random trees, overlays, losses on their links, lost and late packets between peers: all complete; repairs go to
 * successors only; the sender multicasts nothing again that some child has acknowledged; nobody is told failed. */
static void random_trees__all_complete_by_the_rules(void **state) {
    (void)state;
    const char *one = getenv("RDCM_SEED"), *many = getenv("RDCM_RUNS");
    uint64_t runs = many ? strtoull(many, NULL, 10) : 60;
    if (one) {
        random_run(strtoull(one, NULL, 10));
        return;
    }
    print_message("seeds 1 to %llu\n", (unsigned long long)runs);
    for (uint64_t seed = 1; seed <= runs; seed++)
        random_run(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_loss__nothing_is_sent_twice),
        cmocka_unit_test(random_trees__all_complete_by_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
