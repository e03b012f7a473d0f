/* RDCM: what is sent again, and when. Late is not lost, and nobody waits at every hop of a ring. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "core/rdcm/options.h"
#include "core/rdcm/wire.h"
#include "rdcm/overlay.h"

#define FRAGMENT 1000
#define RECEIVERS 9

typedef struct {
    net *n;
    rs_xfer xfer;
    uint64_t fragments;
} world;

static world begin_with(uint32_t receivers, uint64_t fragments, uint64_t seed, const rs_config *c) {
    static overlay o;
    world w = {.n = net_new(receivers + 1, c, seed), .fragments = fragments};
    overlay_make(&o, receivers, seed, NULL);
    net_knob(w.n)->path.protocol = RS_PROTOCOL_RDCM;
    net_knob(w.n)->quiet = true;
    w.xfer = net_send_all(w.n, 1, fragments * FRAGMENT);
    net_at(w.n, 5 * MS);
    overlay_tell(w.n, &o, receivers, w.xfer, 1);
    return w;
}

static world begin(uint64_t fragments, uint64_t seed, const rs_rdcm_config *rdcm) {
    rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .options[RS_PROTOCOL_RDCM] = rdcm};
    return begin_with(RECEIVERS, fragments, seed, &c);
}

static rs_xfer_stats stats(const world *w, rs_peer receiver) {
    return net_stats(w->n, receiver, net_receiving(w->n, receiver));
}

/* A receiver whose data waits in its socket for longer and longer, behind what others have acknowledged long ago. */
static void a_receiver_is_late__it_is_not_repaired_in_bulk(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        rs_rdcm_config c = {.no_congestion_control = true, .ack_timeout = 2 * MS};
        world w = begin(4000, seed, &c);
        rs_peer late = 1 + (rs_peer)seed % RECEIVERS;
        net_bottleneck(w.n, late, 500000000, 100000, true);
        net_at(w.n, 2 * SEC);
        const net_told *first = net_event(w.n, late == 1 ? 2 : 1, RS_EV_COMPLETE, ANYONE);
        const net_told *done = net_event(w.n, late, RS_EV_COMPLETE, ANYONE);
        assert_non_null(first);
        assert_non_null(done);
        rs_xfer_stats s = stats(&w, late);
        printf("seed %d: %d repairs to one that was %d us late\n", (int)seed, (int)s.peer_repairs_received,
               (int)((done->at - first->at) / US));
        assert_in_range(done->at - first->at, 20 * MS, SEC);
        assert_in_range(s.peer_repairs_received, 0, w.fragments / 20);
        assert_int_equal(net_knob(w.n)->data_packets, w.fragments);
        net_free(w.n);
    }
}

/* Nothing comes after the last packets that would show their loss. */
static bool the_last_ones(net *n, rs_peer to, const rs_data_header *h, void *context) {
    const world *w = context;
    (void)n;
    return to != 1 && h->sn + 3 >= w->fragments;
}

static void the_last_packets_are_lost__nobody_waits_at_each_hop(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        const rs_time timeout = 10 * MS;
        rs_rdcm_config c = {.ack_timeout = timeout, .request_bound = 1000 * MS};
        world w = begin(500, seed, &c);
        net_knob(w.n)->drop = the_last_ones;
        net_knob(w.n)->drop_context = &w;
        net_at(w.n, 3 * SEC);
        rs_time first = 0, last = 0;
        for (rs_peer i = 1; i <= RECEIVERS; i++) {
            const net_told *done = net_event(w.n, i, RS_EV_COMPLETE, ANYONE);
            assert_non_null(done);
            first = i == 1 ? done->at : first;
            last = done->at > last ? done->at : last;
        }
        printf("seed %d: the last one has all %d us after the first\n", (int)seed, (int)((last - first) / US));
        assert_in_range(last - first, 0, 3 * timeout);
        net_free(w.n);
    }
}

#define MANY 24           /* receivers */
#define MANY_PACKETS 1024 /* of one object, at most */

/* Repairs that went to others than a successor, and all. */
typedef struct {
    const overlay *o;
    uint8_t sent[MANY + 1][MANY + 1][MANY_PACKETS]; /* from, to, fragment */
    uint32_t again;                                 /* of the former, of what had gone there from there */
    uint64_t parents, all;                          /* the former, and all */
    uint64_t seed;
} eyes;

static void see(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                size_t length, void *context) {
    eyes *e = context;
    rs_ack ack;
    rs_data_header h;
    (void)n;
    if (arrives || channel != RS_CH_PEER_DATAGRAM || rs_ack_decode(header, length, &ack) ||
        !rs_wire_decode_data(header, length, &h) || h.sn >= MANY_PACKETS)
        return;
    e->all++;
    const overlay_place *at = &e->o->at[from];
    if (to == at->leaf.successor || to == at->proxy.successor)
        return;
    e->parents++;
    e->again += e->sent[from][to][h.sn];
    e->sent[from][to][h.sn] = 1;
}

static uint64_t draw(uint64_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random >> 20;
}

/* One packet in 16 for each, one in 16 for all. */
static bool some_and_all(net *n, rs_peer to, const rs_data_header *h, void *context) {
    const eyes *e = context;
    (void)h;
    uint64_t all = (e->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + net_knob(n)->data_packets * 7919,
             one = all + to * 104729;
    for (int i = 0; i < 4; i++) {
        draw(&all);
        draw(&one);
    }
    return all >> 40 & 15 ? (one >> 40 & 15) == 0 : to != 1 + e->seed % MANY;
}

static rs_peer anybody(uint64_t *random, rs_peer but) {
    rs_peer peer = 1 + (rs_peer)(draw(random) % MANY);
    return peer == but ? RS_NO_PEER : peer;
}

/* Views at odds with each other: anybody is the neighbour, parent or child of anybody; or all are each other's parents
 * and children, in a circle. */
static void make_views(overlay *o, uint64_t seed) {
    uint64_t random = seed * UINT64_C(0xd1b54a32d192ed03) + 1;
    memset(o, 0, sizeof *o);
    for (rs_peer i = 1; i <= MANY; i++) {
        overlay_place *at = &o->at[i];
        rs_peer next = i % MANY + 1, before = (i + MANY - 2) % MANY + 1;
        if (seed % 2) {
            at->leaf = (rs_ring_place){before, next, before};
            at->proxy = (rs_ring_place){anybody(&random, i), anybody(&random, i), next};
        } else {
            rs_peer one = anybody(&random, i);
            at->leaf = (rs_ring_place){one == RS_NO_PEER ? next : one, anybody(&random, i), anybody(&random, i)};
            at->proxy = (rs_ring_place){anybody(&random, i), anybody(&random, i), anybody(&random, i)};
        }
        uint32_t step = seed % 2 ? 1 : 1 + (uint32_t)(draw(&random) % 7);
        for (rs_peer k = step; k < MANY && at->child_count < OVERLAY_CHILDREN; k += step)
            at->children[at->child_count++] = (i + k - 1) % MANY + 1;
        if (seed % 4 == 1)
            at->child_count = at->child_count < 2 ? at->child_count : 2;
    }
    o->at[0].leaf = o->at[0].proxy = (rs_ring_place){RS_NO_PEER, RS_NO_PEER, RS_NO_PEER};
    for (rs_peer i = 1; i <= MANY; i += 1 + (rs_peer)(draw(&random) % 5))
        o->at[0].children[o->at[0].child_count++] = i;
}

/* Whatever views say, a node sends a packet on to its children once, when it came; so it ends. And all have all (with
 * congestion control a circle of expectations would hold the sender). */
static void views_are_at_odds__what_comes_goes_on_once(void **state) {
    (void)state;
    static eyes e;
    static overlay o;
    uint64_t parents = 0;
    print_message("seeds 1 to 16\n");
    for (uint64_t seed = 1; seed <= 16; seed++) {
        rs_rdcm_config options = {.no_congestion_control = true};
        rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .options[RS_PROTOCOL_RDCM] = &options};
        make_views(&o, seed);
        memset(&e, 0, sizeof e);
        e.o = &o;
        e.seed = seed;
        net *n = net_new(MANY + 1, &c, seed);
        net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
        net_knob(n)->quiet = true;
        net_knob(n)->drop = some_and_all;
        net_knob(n)->watch = see;
        net_knob(n)->drop_context = net_knob(n)->watch_context = &e;
        rs_xfer xfer = net_send_all(n, 1, 400 * FRAGMENT);
        net_at(n, 5 * MS);
        overlay_tell(n, &o, MANY, xfer, 1);
        net_at(n, 20 * SEC);
        uint64_t until_then = e.all;
        net_at(n, 25 * SEC);
        for (rs_peer i = 1; i <= MANY; i++)
            if (!net_has(n, i, 1)) {
                net_show(n);
                fail_msg("seed %d: %d has not all", (int)seed, (int)i);
            }
        if (e.again || e.all != until_then)
            fail_msg("seed %d: %d sent on twice, %d repairs after 20 s", (int)seed, (int)e.again,
                     (int)(e.all - until_then));
        parents += e.parents;
        net_free(n);
    }
    assert_true(parents > 0);
}

/* What each expects is what another of the circle does: nobody lets the sender go on, until it goes on by unicast. */
static void parents_in_a_circle__the_sender_is_held_for_a_time_only(void **state) {
    (void)state;
    static overlay o;
    print_message("seeds 1, 3, 5, 7\n");
    for (uint64_t seed = 1; seed <= 7; seed += 2) {
        rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .receiver_silence_bound = 1 * SEC};
        world w = {.n = net_new(MANY + 1, &c, seed)};
        make_views(&o, seed);
        net_knob(w.n)->path.protocol = RS_PROTOCOL_RDCM;
        net_knob(w.n)->quiet = true;
        net_knob(w.n)->loss = 0.01;
        w.xfer = net_send_all(w.n, 1, 400 * FRAGMENT);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &o, MANY, w.xfer, 1);
        net_at(w.n, 20 * SEC);
        for (rs_peer i = 1; i <= MANY; i++)
            if (!net_has(w.n, i, 1))
                fail_msg("seed %d: %d has not all", (int)seed, (int)i);
        net_free(w.n);
    }
}

/* Who has most children dies while it sends on: they get all from elsewhere, and within the bound for requests. */
static void a_parent_dies__its_children_get_all_elsewhere(void **state) {
    (void)state;
    static eyes e;
    static overlay o;
    print_message("seeds 1 to 8\n");
    for (uint64_t seed = 1; seed <= 8; seed++) {
        rs_rdcm_config options = {.no_congestion_control = true};
        rs_config c = {.fragment_size = FRAGMENT,
                       .nic_rate_bps = 1000000000,
                       .receiver_silence_bound = 1 * SEC,
                       .options[RS_PROTOCOL_RDCM] = &options};
        memset(&e, 0, sizeof e);
        world w = begin_with(MANY, 1000, seed, &c);
        overlay_make(&o, MANY, seed, NULL);
        e.o = &o;
        e.seed = seed;
        net_knob(w.n)->drop = some_and_all;
        net_knob(w.n)->watch = see;
        net_knob(w.n)->drop_context = net_knob(w.n)->watch_context = &e;
        rs_peer parent = 1;
        for (rs_peer i = 1; i <= MANY; i++)
            parent = o.at[i].child_count > o.at[parent].child_count ? i : parent;
        net_at(w.n, 9 * MS);
        net_kill(w.n, parent);
        net_at(w.n, 20 * SEC);
        for (rs_peer i = 1; i <= MANY; i++)
            if (i != parent && !net_has(w.n, i, 1))
                fail_msg("seed %d: %d has not all after its parent %d died", (int)seed, (int)i, (int)parent);
        net_free(w.n);
    }
}

/* Nobody hears the accusation, and the sender is patient: it is told again with growing pauses, a bounded number of
 * times, and no longer when the receiver is heard again. */
static void a_receiver_is_away__that_is_told_with_growing_pauses(void **state) {
    (void)state;
    const rs_rdcm_config options = {.no_congestion_control = true};
    rs_config c = {.fragment_size = FRAGMENT,
                   .nic_rate_bps = 3000000, /* more than 30 s */
                   .receiver_silence_bound = 60 * SEC,
                   .options[RS_PROTOCOL_RDCM] = &options};
    world w = begin_with(6, 12000, 3, &c);
    net_at(w.n, 40 * MS);
    net_freeze(w.n, 4);
    net_at(w.n, 45 * SEC);
    uint32_t tellers = 0;
    for (rs_peer i = 1; i <= 6; i++) {
        uint32_t times = net_events(w.n, i, RS_EV_RECEIVER_FAILED, 4);
        tellers += times > 0;
        assert_true(times == 0 || (times > 8 && times <= 32));
        for (uint32_t k = 3; k < times; k++) {
            const net_told *told = net_event_nth(w.n, i, RS_EV_RECEIVER_FAILED, k),
                           *before = net_event_nth(w.n, i, RS_EV_RECEIVER_FAILED, k - 1);
            assert_in_range(told->at - before->at, 740 * MS, 1000 * MS); /* a manager forgets it after a second */
        }
    }
    assert_true(tellers > 0);
    net_free(w.n);
}

/* The control messages of a receiver do not come through, its acknowledgements do: it is alive. */
static void a_receiver_whose_acknowledgements_alone_come__is_not_silent(void **state) {
    (void)state;
    rs_config c = {.fragment_size = FRAGMENT,
                   .nic_rate_bps = 20000000, /* more than 4 s */
                   .receiver_silence_bound = 1 * SEC};
    world w = begin_with(1, 12000, 3, &c);
    net_at(w.n, 40 * MS);
    rs_peer_writable(net_node(w.n, 1), net_knob(w.n)->now, 0, false);
    net_at(w.n, 3 * SEC);
    const net_told *failed = net_event(w.n, 0, RS_EV_PEER_FAILED, ANYONE);
    if (failed)
        print_error("failed at %lld ms: %s\n", (long long)(failed->at / MS), failed->event.cause);
    assert_null(failed);
    net_call(w.n, 1, rs_peer_writable(net_node(w.n, 1), net_knob(w.n)->now, 0, true));
    net_at(w.n, 60 * SEC);
    assert_true(net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE) && net_has(w.n, 1, 1));
    net_free(w.n);
}

static bool whole(const net *n, rs_peer but) {
    for (rs_peer i = 1; i <= RECEIVERS; i++)
        if (i != but && !net_event(n, i, RS_EV_COMPLETE, ANYONE))
            return false;
    return true;
}

/* One in the rings says that it, and all below it, have what was sent, and that the sender may go as far as it likes;
 * it repairs nothing. Others that rely on it ask the sender in the end: it costs time. */
static void a_receiver_acknowledges_what_it_lacks__all_others_get_it_elsewhere(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= RECEIVERS; seed++) {
        rs_rdcm_config c = {0};
        world w = begin(4000, seed, &c);
        const rs_peer liar = (rs_peer)seed;
        rs_ack lie = {
            .flags = RS_ACK_TO_PREDECESSOR | RS_ACK_TO_PARENT | RS_ACK_BY_TREE, .version = 1, .expected = w.fragments};
        assert_int_equal(rs_send_nonce(net_node(w.n, 0), w.xfer, &lie.nonce), RS_OK);
        net_knob(w.n)->loss = 0.02;
        net_mute(w.n, liar, true); /* its own words are made up here */
        rs_time at = 6 * MS;
        for (; at < 4 * SEC && !whole(w.n, liar); at += MS / 2) {
            uint8_t bytes[RS_ACK_HEADER + 8 * RS_ACK_WORDS];
            net_at(w.n, at);
            lie.cum = lie.settled = net_last_sn(w.n) + 1;
            lie.base = lie.cum / 64 * 64;
            const rs_packet_in packet = {.channel = RS_CH_PEER_DATAGRAM,
                                         .peer = liar,
                                         .group = RS_NO_GROUP,
                                         .header = bytes,
                                         .header_length = rs_ack_encode(&lie, bytes)};
            for (rs_peer i = 0; i <= RECEIVERS; i++)
                if (i != liar)
                    rs_receive(net_node(w.n, i), net_knob(w.n)->now, &packet);
        }
        printf("seed %d: the others have all after %d ms\n", (int)seed, (int)(at / MS));
        assert_true(whole(w.n, liar));
        net_mute(w.n, liar, false);
        net_at(w.n, 20 * SEC);
        assert_true(whole(w.n, 0)); /* and so has it */
        net_free(w.n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receiver_is_late__it_is_not_repaired_in_bulk),
        cmocka_unit_test(the_last_packets_are_lost__nobody_waits_at_each_hop),
        cmocka_unit_test(views_are_at_odds__what_comes_goes_on_once),
        cmocka_unit_test(parents_in_a_circle__the_sender_is_held_for_a_time_only),
        cmocka_unit_test(a_parent_dies__its_children_get_all_elsewhere),
        cmocka_unit_test(a_receiver_is_away__that_is_told_with_growing_pauses),
        cmocka_unit_test(a_receiver_acknowledges_what_it_lacks__all_others_get_it_elsewhere),
        cmocka_unit_test(a_receiver_whose_acknowledgements_alone_come__is_not_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
