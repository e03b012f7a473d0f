/* RDCM on small networks: the paper's rules, one by one. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "core/rdcm/options.h"
#include "core/rdcm/wire.h"
#include "rdcm/overlay.h"

#define FRAGMENT 1000

static rs_rdcm_config options; /* of the present test's nodes */

static rs_config config(void) {
    options = (rs_rdcm_config){0};
    return (rs_config){.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .options[RS_PROTOCOL_RDCM] = &options};
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
    uint32_t strangers;   /* repairs to others than successors and children */
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
        const overlay_place *of = &e->o->at[from];
        bool child = false;
        for (uint32_t i = 0; i < of->child_count; i++)
            child |= of->children[i] == to;
        e->strangers += to != of->leaf.successor && to != of->proxy.successor && !child;
    }
}

static void random_run(uint64_t seed) {
    static eyes e;
    world w;
    rs_config c = config();
    memset(&e, 0, sizeof e);
    uint32_t receivers = 1 + (uint32_t)(dice(seed, 1, 1) * 40);
    uint64_t fragments = 1 + (uint64_t)(dice(seed, 1, 2) * 1500);
    options.ack_every = dice(seed, 1, 3) < 0.3 ? 1 : 0;
    options.no_congestion_control = dice(seed, 1, 4) < 0.3;
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

/* RDCM_SEED=N: that seed alone; RDCM_RUNS=N: so many instead of `usual`. */
static void each_seed(void (*run)(uint64_t seed), uint64_t usual) {
    const char *one = getenv("RDCM_SEED"), *many = getenv("RDCM_RUNS");
    uint64_t runs = many ? strtoull(many, NULL, 10) : usual;
    if (one) {
        run(strtoull(one, NULL, 10));
        return;
    }
    print_message("seeds 1 to %llu\n", (unsigned long long)runs);
    for (uint64_t seed = 1; seed <= runs; seed++)
        run(seed);
}

/* Random trees, overlays, losses on their links, lost and late packets between peers: all complete; repairs go to
 * successors and children only; the sender multicasts nothing again that some child has acknowledged; nobody is told
 * failed. */
static void random_trees__all_complete_by_the_rules(void **state) {
    (void)state;
    each_seed(random_run, 60);
}

/* ------------------------------------------------------------------------------------------------------- failures */

/* One link of the tree is down. */
typedef struct {
    overlay *o;
    uint32_t link;
    rs_time from;
} cut;

static bool below_the_cut(net *n, rs_peer to, const rs_data_header *h, void *context) {
    const cut *c = context;
    (void)h;
    return c->link && net_now(n) >= c->from && overlay_is_below(c->o, to, c->link);
}

/* Sec. 3.4: whatever link fails, one receiver and no other reports it, naming a successor below the link; all get
 * everything meanwhile, and the sender sends nothing again while a child has it. */
static void a_link_fails__one_report_and_no_pause(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        world w;
        rs_config c = config();
        options.no_congestion_control = true;
        options.ack_timeout =
            seed % 2 ? 50 * MS : 0; /* busy hosts: few repairs, from which alone it took long to tell */
        begin(&w, 12, 12000, seed, &c);
        cut broken = {&w.o, 1 + (uint32_t)(dice(seed, 2, 1) * (double)(w.o.nodes - 1)), 30 * MS};
        while (overlay_is_below(&w.o, 1, broken.link) && overlay_is_below(&w.o, 12, broken.link) && broken.link > 1)
            broken.link = w.o.node_of[1 + seed % 12]; /* one above all is nobody's to repair */
        uint32_t below = 0;
        for (rs_peer i = 1; i <= 12; i++)
            below += overlay_is_below(&w.o, i, broken.link);
        if (below == 12)
            broken.link = w.o.node_of[5];
        net_knob(w.n)->quiet = true;
        net_knob(w.n)->path.rate_bps = 500000000;
        net_knob(w.n)->drop = below_the_cut;
        net_knob(w.n)->drop_context = &broken;
        net_at(w.n, (seed % 2 ? 900 : 240) * MS);
        all_have_it(&w);
        uint32_t reports = 0;
        for (rs_peer i = 1; i <= 12; i++) {
            const net_told *t = net_event(w.n, i, RS_EV_LINK_SUSPECTED, ANYONE);
            reports += net_events(w.n, i, RS_EV_LINK_SUSPECTED, ANYONE);
            if (t) {
                assert_false(overlay_is_below(&w.o, i, broken.link));
                assert_true(overlay_is_below(&w.o, t->event.peer, broken.link));
                assert_true(t->at < SEC + broken.from + 70 * MS); /* clocks begin at 1 s */
            }
            assert_int_equal(net_events(w.n, i, RS_EV_RECEIVER_FAILED, ANYONE), 0);
        }
        if (reports != 1)
            fail_msg("seed %llu: %u reports", (unsigned long long)seed, reports);
        assert_int_equal(net_stats(w.n, 0, w.xfer).packets_redundant, 0);
        net_free(w.n);
    }
}

/* The manager may be away when it is told: who reported a link goes on, ever more rarely, until packets come by the
 * tree again, which is told too; or until there is another view. */
static void a_link_stays_down__it_is_told_again_until_it_works(void **state) {
    (void)state;
    world w;
    rs_config c = config();
    options.no_congestion_control = true;
    c.nic_rate_bps = 50000000; /* 5 s */
    begin(&w, 6, 30000, 3, &c);
    cut broken = {&w.o, w.o.node_of[4], 30 * MS};
    net_knob(w.n)->quiet = true;
    net_knob(w.n)->drop = below_the_cut;
    net_knob(w.n)->drop_context = &broken;
    net_at(w.n, 3 * SEC);
    rs_peer by = 0;
    for (rs_peer i = 1; i <= 6; i++)
        by = net_events(w.n, i, RS_EV_LINK_SUSPECTED, 4) ? i : by;
    assert_true(by > 0);
    uint32_t times = net_events(w.n, by, RS_EV_LINK_SUSPECTED, 4);
    assert_in_range(times, 2, 4); /* at 0.1, 0.6, 1.6 s */
    for (uint32_t i = 2; i < times; i++) {
        rs_time last = net_event_nth(w.n, by, RS_EV_LINK_SUSPECTED, i)->at,
                middle = net_event_nth(w.n, by, RS_EV_LINK_SUSPECTED, i - 1)->at,
                first = net_event_nth(w.n, by, RS_EV_LINK_SUSPECTED, i - 2)->at;
        assert_true(last - middle >= 2 * (middle - first) - 100 * MS);
    }
    assert_int_equal(net_events(w.n, by, RS_EV_LINK_WORKS, 4), 0);
    broken.link = 0;
    net_at(w.n, 3500 * MS);
    assert_int_equal(net_events(w.n, by, RS_EV_LINK_WORKS, 4), 1);
    assert_int_equal(net_events(w.n, by, RS_EV_LINK_SUSPECTED, 4), times);
    net_at(w.n, 20 * SEC);
    all_have_it(&w);
    net_free(w.n);
}

/* A receiver dies in the middle: its predecessors tell so, and only of it; the others end as if nothing had been. */
static void a_receiver_dies__its_predecessors_tell(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world w;
        rs_config c = config();
        options.no_congestion_control = true;
        c.receiver_silence_bound = 1 * SEC;
        rs_peer victim = 1 + (rs_peer)(seed % 9);
        begin(&w, 9, 12000, seed, &c);
        net_knob(w.n)->path.rate_bps = 500000000;
        net_at(w.n, 40 * MS);
        net_kill(w.n, victim);
        net_at(w.n, 250 * MS);
        for (rs_peer i = 1; i <= 9; i++) {
            bool behind = w.o.at[i].leaf.successor == victim || w.o.at[i].proxy.successor == victim;
            assert_int_equal(net_events(w.n, i, RS_EV_RECEIVER_FAILED, ANYONE), i != victim && behind);
            if (i != victim && behind)
                assert_int_equal(net_event(w.n, i, RS_EV_RECEIVER_FAILED, ANYONE)->event.peer, victim);
            if (i != victim) /* 12 MB at 500 Mb/s take 213 ms */
                assert_true(net_event(w.n, i, RS_EV_COMPLETE, ANYONE) != NULL);
        }
        net_at(w.n, 5 * SEC);
        assert_non_null(net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE));
        assert_int_equal(net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE)->event.bytes, 8);
        net_free(w.n);
    }
}

typedef enum { LEAVES_BY_CRASH, LEAVES_BY_CANCEL, HAD_IT, LEAVES_WELL } leaving;

static rs_time others_take(uint64_t seed, rs_peer leaver, leaving how) {
    world w;
    rs_config c = config();
    rs_time last = 0;
    w = (world){.n = net_new(10, &c, seed), .receivers = 9};
    overlay_make(&w.o, 9, seed, NULL);
    net_knob(w.n)->path.protocol = RS_PROTOCOL_RDCM;
    net_knob(w.n)->path.rate_bps = 500000000;
    net_knob(w.n)->quiet = true;
    if (leaver && how == HAD_IT)
        net_application(w.n, leaver, APP_HAS_IT);
    w.xfer = net_send_all(w.n, 1, 6000 * FRAGMENT);
    net_at(w.n, 5 * MS);
    overlay_tell(w.n, &w.o, 9, w.xfer, 1);
    net_at(w.n, 40 * MS);
    if (leaver && how == LEAVES_BY_CRASH)
        net_kill(w.n, leaver);
    if (leaver && how == LEAVES_BY_CANCEL)
        net_call(w.n, leaver,
                 rs_receive_cancel(net_node(w.n, leaver), net_knob(w.n)->now, net_receiving(w.n, leaver), "no room"));
    if (leaver && how == LEAVES_WELL)
        net_call(w.n, leaver, rs_receive_leave(net_node(w.n, leaver), net_knob(w.n)->now, net_receiving(w.n, leaver)));
    net_at(w.n, 20 * SEC);
    if (leaver && how == LEAVES_WELL) {
        assert_true(net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_int_equal(net_events(w.n, 0, RS_EV_PEER_LEFT, ANYONE), 1);
        for (rs_peer i = 1; i <= 9; i++) { /* nobody takes it for dead, or its links for cut */
            assert_int_equal(net_events(w.n, i, RS_EV_RECEIVER_FAILED, ANYONE), 0);
            assert_int_equal(net_events(w.n, i, RS_EV_LINK_SUSPECTED, ANYONE), 0);
        }
    }
    for (rs_peer i = 1; i <= 9; i++) {
        const net_told *complete = net_event(w.n, i, RS_EV_COMPLETE, ANYONE);
        if (i == leaver)
            continue;
        rs_time at = complete ? complete->at : RS_NEVER;
        last = at > last ? at : last;
    }
    net_free(w.n);
    return last - NET_START;
}

/* With congestion control, whoever is silent has no say in how far the sender may go: not even as the only child of a
 * proxy, which every second member of a ring of two is. */
static void a_receiver_leaves__nobody_waits_for_its_report(void **state) {
    (void)state;
    uint32_t step = getenv("RDCM_RUNS") ? 1 : 3; /* by default each of the nine leaves one of three trees */
    for (uint64_t seed = 1; seed <= 3; seed++) {
        rs_time all = others_take(seed, 0, LEAVES_BY_CRASH);
        for (rs_peer leaver = step == 1 ? 1 : (rs_peer)seed; leaver <= 9; leaver += step)
            for (leaving how = LEAVES_BY_CRASH; how <= LEAVES_WELL; how++) {
                rs_time took = others_take(seed, leaver, how);
                if (took > all + (how == LEAVES_WELL ? 2 * MS : 150 * MS))
                    fail_msg("seed %llu: %u leaves (%d): the others take %lld ms, with it %lld",
                             (unsigned long long)seed, leaver, how, (long long)(took / MS), (long long)(all / MS));
            }
    }
}

typedef struct {
    uint8_t header[RS_HEADER_MAX];
    size_t length;
} heard_packet;

/* A data packet that nobody has. */
static void hear_data(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                      size_t length, void *context) {
    heard_packet *p = context;
    (void)n, (void)from, (void)to;
    if (channel != RS_CH_GROUP || arrives || p->length > 0)
        return;
    memcpy(p->header, header, length);
    p->length = length;
}

/* Of all servers that the agent knows, only a predecessor or a parent repairs: what another sends as a repair is not
 * stored, and the only answer is one acknowledgement, which says that no repairs are needed from there. */
static void a_stranger_to_the_ring_repairs__nothing_is_stored(void **state) {
    (void)state;
    world w;
    rs_config c = config();
    heard_packet data = {.length = 0};
    uint32_t strangers = 0;
    begin(&w, 7, 200, 3, &c);
    for (rs_peer i = 1; i <= 7; i++)
        net_dark_until(w.n, i, RS_NEVER);
    net_knob(w.n)->watch = hear_data;
    net_knob(w.n)->watch_context = &data;
    for (rs_time at = 5 * MS; data.length == 0 && at < SEC; at += MS)
        net_at(w.n, at);
    assert_true(data.length > 0);
    for (rs_peer i = 0; i <= 7; i++) {
        const overlay_place *at = &w.o.at[1];
        bool predecessor = i == at->leaf.predecessor || i == at->proxy.predecessor;
        bool parent = i != 0 && (i == at->leaf.parent || i == at->proxy.parent);
        rs_packet_in in = {.channel = RS_CH_PEER_DATAGRAM,
                           .peer = i,
                           .header = data.header,
                           .header_length = data.length,
                           .payload_length = FRAGMENT};
        if (predecessor || parent || i == 1)
            continue;
        rs_rx_result r = rs_receive(net_node(w.n, 1), net_knob(w.n)->now, &in);
        assert_int_not_equal(r.verdict, RS_RX_STORE);
        strangers++;
    }
    assert_true(strangers >= 3);
    net_free(w.n);
}

/* A new overlay while packets are lost: nothing is lost for good, everybody says that it uses it, and an old ring is
 * left only then. */
static void the_overlay_changes__without_loss(void **state) {
    (void)state;
    static eyes e;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        world w;
        rs_config c = config();
        overlay other;
        memset(&e, 0, sizeof e);
        begin(&w, 14, 4000, seed, &c);
        e.o = &w.o;
        e.seed = seed;
        e.link_loss = 0.01;
        net_knob(w.n)->path.rate_bps = 300000000;
        net_knob(w.n)->drop = on_the_tree;
        net_knob(w.n)->drop_context = &e;
        net_knob(w.n)->quiet = true;
        net_knob(w.n)->peer_loss = seed % 2 ? 0.05 : 0;
        for (uint64_t version = 2; version <= 6; version++) {
            net_at(w.n, (rs_time)(4 + 9 * version) * MS);
            overlay_make(&other, 14, seed * 100 + version, NULL);
            overlay_tell(w.n, &other, 14, w.xfer, version);
        }
        net_at(w.n, 20 * SEC);
        all_have_it(&w);
        for (rs_peer i = 1; i <= 14; i++) {
            uint32_t used = net_events(w.n, i, RS_EV_VIEW_USED, ANYONE);
            assert_in_range(used, 1, 6);
        }
        net_free(w.n);
    }
}

/* Without any view the sender is everybody's parent and mends by unicast what is asked of it. */
static void no_overlay__still_all_arrives(void **state) {
    (void)state;
    static eyes e;
    rs_config c = config();
    net *n = net_new(8, &c, 5);
    memset(&e, 0, sizeof e);
    overlay o;
    overlay_make(&o, 7, 5, NULL);
    e.o = &o;
    e.link_loss = 0.02;
    net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
    net_knob(n)->drop = on_the_tree;
    net_knob(n)->drop_context = &e;
    net_send_all(n, 1, 2000 * FRAGMENT + 17);
    net_at(n, 20 * SEC);
    const net_told *log = net_event(n, 0, RS_EV_LOG, ANYONE);
    assert_non_null(log);
    assert_non_null(strstr(log->event.cause, "no backup overlay"));
    for (rs_peer i = 1; i <= 7; i++)
        assert_true(net_has(n, i, 1));
    net_free(n);
}

/* Acknowledgements do not get through at all: the transfer ends by unicast, and says why. */
static void peers_are_mute__it_ends_by_unicast(void **state) {
    (void)state;
    world w;
    rs_config c = config();
    begin(&w, 5, 1000, 1, &c);
    for (rs_peer i = 1; i <= 5; i++)
        net_mute(w.n, i, true);
    net_at(w.n, 20 * SEC);
    all_have_it(&w);
    assert_non_null(strstr(net_event(w.n, 0, RS_EV_LOG, ANYONE)->event.cause, "by unicast"));
    net_free(w.n);
}

/* Acknowledgements stall, the sender goes on by unicast with the path still held, and then the manager tells views:
 * of other children, or (it was restarted) the same again. The sender has no overlay any more. */
static void acks_stall_then_the_view_changes__it_ends_by_unicast(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        world w;
        rs_config c = config();
        overlay other;
        begin(&w, 5, 20000, seed, &c);
        for (rs_peer i = 1; i <= 5; i++)
            net_mute(w.n, i, true);
        rs_time at = 5 * MS;
        while (at < 10 * SEC && net_events(w.n, 0, RS_EV_LOG, ANYONE) == 0)
            net_at(w.n, at += 10 * MS);
        assert_non_null(strstr(net_event(w.n, 0, RS_EV_LOG, ANYONE)->event.cause, "by unicast"));
        assert_null(net_event(w.n, 0, RS_EV_PATH_DONE, ANYONE));
        assert_null(net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE));
        overlay_make(&other, 5, seed + 10, NULL);
        overlay_tell(w.n, seed % 2 ? &other : &w.o, 5, w.xfer, 2);
        overlay_tell(w.n, &w.o, 5, w.xfer, 3);
        assert_int_equal(net_events(w.n, 0, RS_EV_VIEW_USED, ANYONE), 1);
        net_at(w.n, 60 * SEC);
        all_have_it(&w);
        assert_int_equal(net_events(w.n, 0, RS_EV_PATH_DONE, ANYONE), 1);
        net_free(w.n);
    }
}

/* One whose packets to and from peers are lost gets what it misses from the sender, and the others do not wait. */
static void one_is_mute__it_asks_the_sender(void **state) {
    (void)state;
    static eyes e;
    world w;
    rs_config c = config();
    memset(&e, 0, sizeof e);
    begin(&w, 8, 2000, 3, &c);
    e.o = &w.o;
    e.link_loss = 0.01;
    net_knob(w.n)->drop = on_the_tree;
    net_knob(w.n)->drop_context = &e;
    net_mute(w.n, 4, true);
    net_at(w.n, 20 * SEC);
    all_have_it(&w);
    net_free(w.n);
}

static void the_sender_dies__all_give_up_in_time(void **state) {
    (void)state;
    world w;
    rs_config c = config();
    c.sender_silence_bound = 1 * SEC;
    begin(&w, 6, 20000, 2, &c);
    net_at(w.n, 30 * MS);
    net_kill(w.n, 0);
    net_at(w.n, 6 * SEC);
    for (rs_peer i = 1; i <= 6; i++) {
        const net_told *done = net_event(w.n, i, RS_EV_RECEIVE_DONE, ANYONE);
        assert_non_null(done);
        assert_false(done->event.ok);
    }
    net_free(w.n);
}

/* Whatever allocation fails, nothing leaks, and the transfer ends with all or with causes. */
static void memory_is_short__it_ends_all_the_same(void **state) {
    (void)state;
    for (int64_t fail_at = 0; fail_at < 60; fail_at++) {
        rs_config c = config();
        c.receiver_silence_bound = c.sender_silence_bound = 1 * SEC;
        net *n = net_new(5, &c, 7);
        overlay o;
        rs_xfer xfer = 0;
        const rs_peer to[] = {1, 2, 3, 4};
        overlay_make(&o, 4, 7, NULL);
        net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
        net_knob(n)->loss = 0.01;
        net_allocations(n, fail_at);
        if (net_send(n, 0, 1, 300 * FRAGMENT, 4, to, &xfer) == RS_OK) {
            net_at(n, 5 * MS);
            overlay_tell(n, &o, 4, xfer, 1);
            net_at(n, 30 * SEC);
            assert_int_equal(net_events(n, 0, RS_EV_SEND_DONE, ANYONE), 1);
        }
        net_free(n);
    }
}

/* ---------------------------------------------------------------------------------------------------------- chaos */

/* What the manager does meanwhile: overlays of whoever is not gone, told late, in pieces, of wrong members, again. */
static void some_views(world *w, uint64_t seed, uint64_t step, uint64_t version, const bool *gone) {
    overlay o;
    bool without[OVERLAY_SERVERS];
    uint32_t left = 0;
    for (rs_peer i = 1; i <= w->receivers; i++) { /* the manager may know of a failure, or not */
        without[i] = gone[i] && dice(seed, step, 20 + i) < 0.7;
        left += !without[i];
    }
    if (left == 0)
        return;
    overlay_make(&o, w->receivers, dice(seed, step, 2) < 0.5 ? seed : seed * 100 + step, without);
    double how = dice(seed, step, 3);
    if (how < 0.5) {
        overlay_tell(w->n, &o, w->receivers, w->xfer, version);
        return;
    }
    for (rs_peer i = 0; i <= w->receivers; i++) /* not everybody hears of it */
        if (!gone[i] && dice(seed, step, 200 + i) < how)
            overlay_tell_one(w->n, &o, i, i == 0 ? w->xfer : net_receiving(w->n, i), version);
}

static void something_happens(world *w, uint64_t seed, uint64_t step, bool *gone, uint64_t *version) {
    net *n = w->n;
    rs_peer who = 1 + (rs_peer)(dice(seed, step, 5) * w->receivers);
    double what = dice(seed, step, 6);
    if (gone[0])
        return;
    if (what < 0.35) {
        some_views(w, seed, step, *version += dice(seed, step, 7) < 0.9, gone);
    } else if (what < 0.45) {
        net_mute(n, who, dice(seed, step, 8) < 0.6); /* its ACKs and repairs stall, or come again */
    } else if (what < 0.5) {
        for (rs_peer i = 1; i <= w->receivers; i++)
            net_mute(n, i, dice(seed, step, 8) < 0.5);
    } else if (what < 0.58 && !gone[who]) {
        gone[who] = true;
        net_kill(n, who);
    } else if (what < 0.62 && gone[who]) {
        net_restart(n, who);
        gone[who] = false;
    } else if (what < 0.68 && !gone[who]) {
        rs_receive_cancel(net_node(n, who), net_knob(n)->now, net_receiving(n, who), "no room");
        net_call(n, who, RS_OK);
    } else if (what < 0.76) {
        net_cut(n, 0, who);
    } else if (what < 0.86) {
        net_dark_until(n, who, net_knob(n)->now + (rs_time)(dice(seed, step, 9) * 400) * MS);
    } else if (what < 0.88) {
        rs_path_failed(net_node(n, 0), net_knob(n)->now, w->xfer, "the manager says so");
        net_call(n, 0, RS_OK);
    } else if (what < 0.9) {
        rs_path_moved(net_node(n, 0), net_knob(n)->now, w->xfer, RS_PATH_PACKET);
        net_call(n, 0, RS_OK);
    } else if (what < 0.91) {
        rs_send_cancel(net_node(n, 0), net_knob(n)->now, w->xfer, "enough");
        net_call(n, 0, RS_OK);
    } else if (what < 0.95) {
        net_knob(n)->peer_loss = 0.5 * dice(seed, step, 9);
    } else {
        net_knob(n)->loss = 0.2 * dice(seed, step, 9);
    }
}

static void chaotic_run(uint64_t seed) {
    bool gone[OVERLAY_SERVERS] = {false};
    rs_config c = config();
    c.receiver_silence_bound = c.sender_silence_bound = 1 * SEC;
    c.no_path_bound = 4 * SEC;
    options.no_congestion_control = dice(seed, 1, 1) < 0.2;
    options.window_packets = dice(seed, 1, 2) < 0.3 ? 512 : 0;
    world w = {.receivers = 1 + (uint32_t)(dice(seed, 1, 3) * (dice(seed, 1, 4) < 0.2 ? 100 : 12))};
    bool stream = dice(seed, 1, 5) < 0.25;
    uint64_t fragments = 1 + (uint64_t)(dice(seed, 1, 6) * 4000), version = 1, given = 0;
    w.n = net_new(w.receivers + 1, &c, seed);
    net_knob(w.n)->path.protocol = RS_PROTOCOL_RDCM;
    net_knob(w.n)->path.rate_bps = 100000000;
    net_knob(w.n)->quiet = true;
    net_knob(w.n)->duplicate = 0.02 * dice(seed, 1, 7);
    net_knob(w.n)->data_jitter = (rs_time)(300 * dice(seed, 1, 8)) * US;
    w.xfer = stream ? net_stream_all(w.n, 1, fragments) : net_send_all(w.n, 1, fragments * FRAGMENT);
    rs_time at = (rs_time)(dice(seed, 1, 9) * 8 * MS); /* views before the path, before OPEN, later */
    for (uint64_t step = 100; at < 3 * SEC; step++) {
        net_at(w.n, at);
        uint64_t first, here, end;
        if (stream && rs_stream_window(net_node(w.n, 0), w.xfer, &first, &here, &end) == RS_OK && given < fragments) {
            uint64_t next = given + 200 < end / FRAGMENT ? given + 200 : end / FRAGMENT;
            given = next > given ? next : given;
            given = given < fragments ? given : fragments;
            if (rs_stream_extend(net_node(w.n, 0), net_knob(w.n)->now, w.xfer, given * FRAGMENT, given == fragments))
                given = 0; /* it is over */
            net_call(w.n, 0, RS_OK);
        }
        if (step % 4 == 0)
            something_happens(&w, seed, step, gone, &version);
        if (step == 100 && dice(seed, 1, 10) < 0.8)
            overlay_make(&w.o, w.receivers, seed, NULL), overlay_tell(w.n, &w.o, w.receivers, w.xfer, version);
        at += (rs_time)(dice(seed, step, 10) * 24 * MS);
    }
    for (rs_peer i = 1; i <= w.receivers; i++)
        net_mute(w.n, i, false);
    net_knob(w.n)->loss = net_knob(w.n)->peer_loss = 0;
    net_at(w.n, 60 * SEC);
    uint32_t ends = net_events(w.n, 0, RS_EV_SEND_DONE, ANYONE);
    if (ends != 1 && !(stream && given < fragments))
        fail_msg("seed %llu: the send ended %u times", (unsigned long long)seed, ends);
    net_free(w.n);
}

/* Views, crashes, joins, cuts, stalled ACKs, cancelled ends at any time of a transfer: nothing reads what is gone
 * (with sanitizers), nothing leaks, and the send ends once, with all or with causes. */
static void anything_at_any_time__it_ends_once(void **state) {
    (void)state;
    each_seed(chaotic_run, 40);
}

/* -------------------------------------------------------------------------------------------------------- streams */

static void extend(world *w, uint64_t fragments, bool last) {
    rs_node *node = net_node(w->n, 0);
    uint64_t first, here, end, bytes = fragments * FRAGMENT - (last ? 400 : 0);
    assert_int_equal(rs_stream_window(node, w->xfer, &first, &here, &end), RS_OK);
    assert_true(bytes <= end);
    net_call(w->n, 0, rs_stream_extend(node, net_knob(w->n)->now, w->xfer, bytes, last));
}

/* A stream of many windows through lossy trees: all of it arrives in order, nobody keeps more than the window, and it
 * ends when it is told to. */
static void a_stream__all_arrives_within_its_window(void **state) {
    (void)state;
    static eyes e;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        world w = {.receivers = 10};
        rs_config c = config();
        options.window_packets = 256;
        c.max_transfers = 4;
        options.no_congestion_control = seed % 2;
        memset(&e, 0, sizeof e);
        w.n = net_new(11, &c, seed);
        overlay_make(&w.o, 10, seed, NULL);
        e.o = &w.o;
        e.seed = seed;
        e.link_loss = 0.005;
        net_knobs *k = net_knob(w.n);
        k->path.protocol = RS_PROTOCOL_RDCM;
        k->quiet = true;
        k->drop = on_the_tree;
        k->drop_context = &e;
        w.xfer = net_stream_all(w.n, 1, 5000);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &w.o, 10, w.xfer, 1);
        uint64_t given = 0;
        for (rs_time at = 5 * MS; given < 5000 && at < 20 * SEC; at += MS / 2) {
            uint64_t first, here, end;
            assert_int_equal(rs_stream_window(net_node(w.n, 0), w.xfer, &first, &here, &end), RS_OK);
            assert_true(end - first <= 256 * FRAGMENT);
            uint64_t next = given + 40 < end / FRAGMENT ? given + 40 : end / FRAGMENT;
            given = next < 5000 ? next : 5000;
            extend(&w, given, given == 5000);
            for (rs_peer i = 1; i <= 10; i++) {
                assert_int_equal(rs_stream_window(net_node(w.n, i), net_receiving(w.n, i), &first, &here, &end), RS_OK);
                assert_true(first <= here && here <= end && end - first <= 256 * FRAGMENT);
            }
            net_at(w.n, at);
        }
        assert_int_equal(given, 5000);
        net_at(w.n, 30 * SEC);
        all_have_it(&w);
        assert_true(net_memory_most(w.n, 1) < 48 * 1024);
        net_free(w.n);
    }
}

/* There are no streams by Republic: who is granted a circuit is told so, and nothing is sent. */
static void a_stream_cannot_go_by_rdcm__it_fails_with_the_cause(void **state) {
    (void)state;
    rs_config c = config();
    net *n = net_new(4, &c, 1);
    net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
    net_knob(n)->path.kind = RS_PATH_CIRCUIT;
    net_stream_all(n, 1, 100);
    net_at(n, 100 * MS);
    const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    assert_non_null(done);
    assert_false(done->event.ok);
    assert_non_null(strstr(done->event.cause, "a stream needs RDCM"));
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 1);
    assert_int_equal(net_knob(n)->data_packets, 0);
    net_free(n);
}

/* Nothing is sent for a while, then something: the last packet arrives without a next one to show its loss. */
static void a_stream_pauses__its_last_packet_arrives(void **state) {
    (void)state;
    world w = {.receivers = 3};
    rs_config c = config();
    w.n = net_new(4, &c, 1);
    overlay_make(&w.o, 3, 1, NULL);
    net_knob(w.n)->path.protocol = RS_PROTOCOL_RDCM;
    w.xfer = net_stream_all(w.n, 1, 100);
    net_at(w.n, 5 * MS);
    overlay_tell(w.n, &w.o, 3, w.xfer, 1);
    extend(&w, 10, false);
    net_at(w.n, 3 * SEC);
    net_knob(w.n)->loss = 1; /* to everybody: only the sender can mend that */
    extend(&w, 11, false);
    net_at(w.n, 3 * SEC + 2 * MS);
    net_knob(w.n)->loss = 0;
    net_at(w.n, 4 * SEC);
    for (rs_peer i = 1; i <= 3; i++) {
        uint64_t first, here, end;
        assert_int_equal(rs_stream_window(net_node(w.n, i), net_receiving(w.n, i), &first, &here, &end), RS_OK);
        assert_int_equal(here, 11 * FRAGMENT);
    }
    rs_node *node = net_node(w.n, 0);
    assert_int_equal(rs_stream_extend(node, net_knob(w.n)->now, w.xfer, 10600, true),
                     RS_ERR_INVALID); /* sent already */
    extend(&w, 12, true);
    net_at(w.n, 5 * SEC);
    all_have_it(&w);
    net_free(w.n);
}

/* A short stream is over before one of its receivers, which was stopped, has heard of it: it gets all of it, too. */
static void a_stream_ends_before_one_has_accepted__it_gets_all(void **state) {
    (void)state;
    for (rs_time length = SEC; length <= 4 * SEC; length += 3 * SEC) {
        world w = {.receivers = 3};
        rs_config c = config();
        c.sender_away_bound = 120 * SEC;
        c.receiver_silence_bound = 5 * SEC;
        w.n = net_new(4, &c, 1);
        overlay_make(&w.o, 3, 1, NULL);
        net_knob(w.n)->path.protocol = RS_PROTOCOL_RDCM;
        net_pause(w.n, 2, length);
        w.xfer = net_stream_all(w.n, 1, 100);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &w.o, 3, w.xfer, 1);
        extend(&w, 10, false);
        net_at(w.n, 500 * MS);
        extend(&w, 12, true);
        net_at(w.n, length - MS);
        assert_null(net_event(w.n, 2, RS_EV_INCOMING, ANYONE));
        net_at(w.n, length + 10 * SEC);
        all_have_it(&w);
        assert_int_equal(net_event(w.n, 2, RS_EV_INCOMING, ANYONE)->event.bytes, RS_STREAM);
        net_free(w.n);
    }
}

/* One cancelled a stream, and the sender, which has not heard of it, tells the end: the answer is the final answer
 * again, and the connection, which carries other transfers too, stays (the test network takes no malformed message). */
static void a_stream_ends_that_one_has_cancelled__it_says_so_again(void **state) {
    (void)state;
    world w = {.receivers = 3};
    rs_config c = config();
    w.n = net_new(4, &c, 1);
    overlay_make(&w.o, 3, 1, NULL);
    net_knob(w.n)->path.protocol = RS_PROTOCOL_RDCM;
    w.xfer = net_stream_all(w.n, 1, 100);
    net_at(w.n, 5 * MS);
    overlay_tell(w.n, &w.o, 3, w.xfer, 1);
    extend(&w, 10, false);
    net_at(w.n, 20 * MS);
    net_call(w.n, 2, rs_receive_cancel(net_node(w.n, 2), net_knob(w.n)->now, net_receiving(w.n, 2), "enough"));
    net_cut(w.n, 0, 2); /* with the report of it on the way */
    extend(&w, 12, true);
    net_at(w.n, 2 * SEC);
    const net_told *done = net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE);
    assert_non_null(done);
    assert_int_equal(done->event.bytes, 2);
    assert_true(net_messages(w.n, 0, 2, RS_MSG_OPEN) >= 2);
    net_free(w.n);
}

/* The program of one receiver takes nothing for ten seconds: the sender is held back, nobody keeps more than its window
 * or is taken for dead; then all goes on. */
static void a_stream_is_not_taken__the_sender_waits(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        world w = {.receivers = 6};
        rs_config c = config();
        options.stream_bytes = 512 * FRAGMENT + 1;
        w.n = net_new(7, &c, seed);
        overlay_make(&w.o, 6, seed, NULL);
        net_knob(w.n)->path.protocol = RS_PROTOCOL_RDCM;
        net_knob(w.n)->quiet = true;
        w.xfer = net_stream_all(w.n, 1, 4000);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &w.o, 6, w.xfer, 1);
        uint64_t given = 0, first, here, end, most = 0;
        rs_peer slow = 1 + (rs_peer)seed % 6;
        assert_int_equal(rs_stream_taken(net_node(w.n, slow), net_knob(w.n)->now, net_receiving(w.n, slow), FRAGMENT),
                         RS_ERR_INVALID);
        net_call(w.n, slow, rs_stream_taken(net_node(w.n, slow), 5 * MS, net_receiving(w.n, slow), 0));
        for (rs_time at = 5 * MS; given < 4000 && at < 30 * SEC; at += at < 10 * SEC ? 5 * MS : MS) {
            net_at(w.n, at);
            assert_int_equal(rs_stream_window(net_node(w.n, 0), w.xfer, &first, &here, &end), RS_OK);
            uint64_t next = given + 40 < end / FRAGMENT ? given + 40 : end / FRAGMENT;
            given = next < 4000 ? next : 4000;
            extend(&w, given, given == 4000);
            rs_xfer in = net_receiving(w.n, slow);
            if (rs_stream_window(net_node(w.n, slow), in, &first, &here, &end) != RS_OK)
                break;
            assert_true(end - first <= 512 * FRAGMENT && here <= end);
            if (at < 10 * SEC) {
                assert_int_equal(first, 0);
                most = here;
            } else {
                net_call(w.n, slow, rs_stream_taken(net_node(w.n, slow), net_knob(w.n)->now, in, here));
            }
        }
        assert_int_equal(given, 4000);
        assert_true(most >= 180 * FRAGMENT && most <= 512 * FRAGMENT);
        net_at(w.n, 31 * SEC);
        all_have_it(&w);
        net_free(w.n);
    }
}

/* Those whom it would have repaired, or spoken for, while there is no new overlay, and then while it is taken up. */
static void a_receiver_of_a_stream_dies__nobody_is_left_behind(void **state) {
    (void)state;
    static eyes e;
    static const uint64_t seeds[] = {1, 2, 3, 4, 5, 6, 7, 8, 84, 122}; /* then: a proxy's last neighbour, in need */
    for (unsigned i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        uint64_t seed = seeds[i], tree = seed < 9 ? seed : seed / 7;
        world w = {.receivers = 7};
        rs_config c = config();
        options.stream_bytes = 1024 * FRAGMENT;
        c.receiver_silence_bound = 2 * SEC;
        memset(&e, 0, sizeof e);
        w.n = net_new(8, &c, seed);
        overlay_make(&w.o, 7, tree, NULL);
        e.o = &w.o;
        e.seed = seed;
        e.link_loss = seed < 9 ? 0.01 : 0.03;
        net_knobs *k = net_knob(w.n);
        k->path.protocol = RS_PROTOCOL_RDCM;
        k->path.rate_bps = 200000000;
        k->quiet = true;
        k->drop = on_the_tree;
        k->drop_context = &e;
        w.xfer = net_stream_all(w.n, 1, 20000);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &w.o, 7, w.xfer, 1);
        rs_peer victim = 1 + (rs_peer)(seed % 7);
        bool gone[OVERLAY_SERVERS] = {0};
        overlay without;
        gone[victim] = true;
        overlay_make(&without, 7, tree, gone);
        uint64_t given = 0, first, here, end;
        for (rs_time at = 5 * MS; given < 20000 && at < 60 * SEC; at += MS) {
            net_at(w.n, at);
            if (at == 105 * MS)
                net_kill(w.n, victim);
            if (at == (seed < 9 ? 705 : 175) * MS)
                overlay_tell(w.n, &without, 7, w.xfer, 2);
            if (rs_stream_window(net_node(w.n, 0), w.xfer, &first, &here, &end) != RS_OK)
                break;
            uint64_t next = given + 40 < end / FRAGMENT ? given + 40 : end / FRAGMENT;
            given = next < 20000 ? next : 20000;
            extend(&w, given, given == 20000);
        }
        net_at(w.n, 70 * SEC);
        assert_int_equal(net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE)->event.bytes, 6);
        net_free(w.n);
    }
}

/* `rules` or `random`: only these. */
int main(int count, char **arguments) {
    const struct CMUnitTest random[] = {
        cmocka_unit_test(random_trees__all_complete_by_the_rules),
        cmocka_unit_test(anything_at_any_time__it_ends_once),
    };
    const struct CMUnitTest rules[] = {
        cmocka_unit_test(no_loss__nothing_is_sent_twice),
        cmocka_unit_test(a_link_fails__one_report_and_no_pause),
        cmocka_unit_test(a_link_stays_down__it_is_told_again_until_it_works),
        cmocka_unit_test(a_receiver_dies__its_predecessors_tell),
        cmocka_unit_test(a_receiver_leaves__nobody_waits_for_its_report),
        cmocka_unit_test(a_stranger_to_the_ring_repairs__nothing_is_stored),
        cmocka_unit_test(the_overlay_changes__without_loss),
        cmocka_unit_test(no_overlay__still_all_arrives),
        cmocka_unit_test(peers_are_mute__it_ends_by_unicast),
        cmocka_unit_test(acks_stall_then_the_view_changes__it_ends_by_unicast),
        cmocka_unit_test(one_is_mute__it_asks_the_sender),
        cmocka_unit_test(the_sender_dies__all_give_up_in_time),
        cmocka_unit_test(memory_is_short__it_ends_all_the_same),
        cmocka_unit_test(a_stream__all_arrives_within_its_window),
        cmocka_unit_test(a_stream_cannot_go_by_rdcm__it_fails_with_the_cause),
        cmocka_unit_test(a_stream_pauses__its_last_packet_arrives),
        cmocka_unit_test(a_stream_ends_before_one_has_accepted__it_gets_all),
        cmocka_unit_test(a_stream_ends_that_one_has_cancelled__it_says_so_again),
        cmocka_unit_test(a_stream_is_not_taken__the_sender_waits),
        cmocka_unit_test(a_receiver_of_a_stream_dies__nobody_is_left_behind),
    };
    cmocka_set_test_filter(getenv("RDCM_TEST")); /* one of them, by its name; * and ? match */
    int failed = 0;
    if (count < 2 || strcmp(arguments[1], "rules") == 0)
        failed += cmocka_run_group_tests(rules, NULL, NULL);
    if (count < 2 || strcmp(arguments[1], "random") == 0)
        failed += cmocka_run_group_tests(random, NULL, NULL);
    return failed;
}
