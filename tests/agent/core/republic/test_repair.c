/* Losses of many receivers on a network in virtual time: every fragment arrives in its place (checked by the network),
 * and repairs by multicast cost about what the receiver needs that lost most. REPAIR_SEED=<n> runs with another
 * seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net.h"

#define FRAGMENT 8896u

/* Losses on the way to each receiver: two-state Markov chains, `share` of all in the mean in runs of `run` in the
 * mean. */
typedef struct {
    double share, run;
    uint32_t spared; /* receivers from this one on lose nothing; 0 = all do */
    bool bad[64];
    uint64_t lost[64];
    rs_time data_at, longest_gap; /* between two data packets sent at high rate */
} losses;

static bool lose(net *n, rs_peer to, const rs_data_header *header, void *context) {
    losses *l = context;
    if (to == 1 && !(header->flags & (RS_DATA_REPAIR | RS_DATA_ATTEMPT))) {
        rs_time gap = l->data_at ? net_now(n) - l->data_at : 0;
        l->longest_gap = gap > l->longest_gap ? gap : l->longest_gap;
        l->data_at = net_now(n);
    }
    if (l->spared && to >= l->spared)
        return false;
    double leave = 1 / l->run, enter = leave * l->share / (1 - l->share);
    l->bad[to] = l->bad[to] ? net_random(n) >= leave : net_random(n) < enter;
    if (header->flags & RS_DATA_ATTEMPT)
        return false;
    l->lost[to] += l->bad[to] && !(header->flags & RS_DATA_REPAIR);
    return l->bad[to];
}

static uint64_t seed(void) {
    const char *given = getenv("REPAIR_SEED");
    return given ? strtoull(given, NULL, 10) : 1;
}

typedef struct {
    rs_xfer_stats sent;
    uint64_t lost, most; /* data packets: at all receivers together, at the one that lost most */
} outcome;

static net *make(uint32_t receivers, losses *l) {
    rs_config config = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};
    net *n = net_new(receivers + 1, &config, seed());
    net_knob(n)->quiet = true;
    net_knob(n)->drop = lose;
    net_knob(n)->drop_context = l;
    return n;
}

static outcome finish(net *n, uint32_t receivers, rs_xfer xfer, const losses *l) {
    outcome out = {0};
    for (rs_time at = 0; !net_event(n, 0, RS_EV_SEND_DONE, ANYONE) && at < 60 * SEC; at += 20 * MS)
        net_at(n, at);
    const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    if (!done || !done->event.ok) {
        net_show(n);
        fail_msg("REPAIR_SEED=%llu: not every receiver has it", (unsigned long long)seed());
    }
    for (rs_peer to = 1; to <= receivers; to++) {
        assert_true(net_has(n, to, 1));
        out.lost += l->lost[to];
        out.most = l->lost[to] > out.most ? l->lost[to] : out.most;
    }
    assert_int_equal(net_knob(n)->contradictions, 0);
    out.sent = net_stats(n, 0, xfer);
    assert_int_equal(out.sent.repairs_sent, net_knob(n)->repair_packets);
    return out;
}

static outcome run(uint32_t receivers, uint64_t fragments, losses *l) {
    net *n = make(receivers, l);
    rs_xfer xfer = net_send_all(n, 1, fragments * FRAGMENT - 100);
    outcome out = finish(n, receivers, xfer, l);
    print_message(
        "seed %llu, %u receivers, loss %.3f in runs of %.0f: %llu lost, %llu at most; %llu repairs mended %llu, "
        "%llu patches\n",
        (unsigned long long)seed(), receivers, l->share, l->run, (unsigned long long)out.lost,
        (unsigned long long)out.most, (unsigned long long)out.sent.repairs_sent,
        (unsigned long long)out.sent.repairs_mended, (unsigned long long)out.sent.patches_sent);
    net_free(n);
    return out;
}

/* Whatever is lost, everything arrives. */
static void any_loss__everything_arrives(void **state) {
    (void)state;
    static const double shares[] = {0.001, 0.01, 0.05, 0.25};
    static const uint32_t counts[] = {1, 2, 3, 8, 32};
    for (size_t s = 0; s < sizeof shares / sizeof shares[0]; s++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (int length = 1; length <= 20; length += 19)
                run(counts[c], 3000, &(losses){.share = shares[s], .run = length});
}

/* Repairs and patches together, over the losses of the receiver that lost most. */
static void random_loss__costs_little_more_than_the_worst_receivers(void **state) {
    (void)state;
    static const struct {
        uint32_t receivers;
        double share, most; /* one by one it would be as many times as there are receivers */
    } cases[] = {{3, 0.01, 1.25}, {3, 0.05, 1.15}, {8, 0.01, 1.4}, {8, 0.05, 1.3}, {16, 0.05, 1.4}, {32, 0.05, 1.6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome out = run(cases[i].receivers, 14400, &(losses){.share = cases[i].share, .run = 1});
        double cost = (double)(out.sent.repairs_sent + out.sent.patches_sent) / (double)out.most;
        print_message("  %.3f of the least\n", cost);
        assert_true(cost <= cases[i].most);
    }
}

/* The paper's way: point to point. */
static void rare_or_one_receivers_loss__patched(void **state) {
    (void)state;
    outcome rare = run(3, 14400, &(losses){.share = 0.001, .run = 1});
    assert_true(rare.lost > 10);
    assert_int_equal(rare.sent.repairs_sent, 0);
    assert_true(rare.sent.patches_sent >= rare.lost);
    outcome one = run(1, 5000, &(losses){.share = 0.05, .run = 1});
    assert_int_equal(one.sent.repairs_sent, 0);
    outcome one_of_three = run(3, 5000, &(losses){.share = 0.05, .run = 1, .spared = 2});
    assert_int_equal(one_of_three.sent.repairs_sent, 0);
}

/* The data channel goes on between repairs, however many there are. */
static void repairs__do_not_stall_the_data_channel(void **state) {
    (void)state;
    losses l = {.share = 0.25, .run = 1};
    outcome out = run(8, 6000, &l);
    assert_true(out.sent.repairs_sent > 1500);
    assert_true(l.longest_gap > 0);
    assert_true(l.longest_gap < 5 * MS);
}

/* A packet path is kept for the tail's repairs, for a bounded time; a circuit is given back at once. */
static void tail__on_a_packet_path_only(void **state) {
    (void)state;
    for (int circuit = 0; circuit < 2; circuit++) {
        losses l = {.share = 0.05, .run = 1};
        net *n = make(3, &l);
        net_knob(n)->quiet = false;
        net_knob(n)->path.kind = circuit ? RS_PATH_CIRCUIT : RS_PATH_PACKET;
        rs_xfer xfer = net_send_all(n, 1, 4000 * FRAGMENT);
        outcome out = finish(n, 3, xfer, &l);
        rs_time released = net_event(n, 0, RS_EV_PATH_DONE, ANYONE)->at;
        uint32_t finished = 0;
        for (rs_peer to = 1; to <= 3; to++)
            finished += net_messages(n, 0, to, RS_MSG_DATA_FNSD);
        print_message("%s: released %.2f ms after the last data packet, %llu patches\n",
                      circuit ? "circuit" : "packet path", (double)(released - out.sent.data_done_at) / 1e6,
                      (unsigned long long)out.sent.patches_sent);
        assert_true(out.sent.repairs_sent > 0);
        if (circuit) {
            assert_true(released - out.sent.data_done_at <= 2 * MS);
            assert_true(finished >= 1); /* patches for the rest */
        } else {
            assert_int_equal(finished, 0); /* nothing was left */
            assert_true(released - out.sent.data_done_at <= 50 * MS);
        }
        net_free(n);
    }
}

/* The path fails in the tail: nothing more goes by it, and who misses something is patched at once. */
static void tail__its_path_fails(void **state) {
    (void)state;
    uint32_t tails = 0;
    for (rs_time after = 100; after < 12 * MS; after = after * 3 / 2) {
        losses l = {.share = 0.25, .run = 3};
        net *n = make(3, &l);
        net_knob(n)->quiet = false;
        rs_xfer xfer = net_send_all(n, 1, 4000 * FRAGMENT);
        rs_time at = 0;
        while (net_stats(n, 0, xfer).phase != RS_PHASE_PATCHING)
            net_at(n, at += MS / 10);
        net_at(n, at += after);
        if (net_event(n, 0, RS_EV_PATH_DONE, ANYONE)) { /* the tail was over */
            net_free(n);
            break;
        }
        tails++;
        net_call(n, 0, rs_path_failed(net_node(n, 0), net_knob(n)->now, xfer, "a test"));
        uint64_t before = net_knob(n)->data_packets;
        net_at(n, at + 20 * MS);
        for (rs_peer to = 1; to <= 3; to++) /* an answer to it is a request for what is missing */
            assert_true(net_has(n, to, 1) || net_messages(n, 0, to, RS_MSG_DATA_FNSD) == 1);
        finish(n, 3, xfer, &l);
        assert_int_equal(net_knob(n)->data_packets, before);
        net_free(n);
    }
    assert_true(tails >= 3);
}

/* A receiver whose connection breaks, and one that dies, in the middle and in the tail of it. */
static void connections_and_receivers_that_go__hold_nobody(void **state) {
    (void)state;
    for (rs_time at = 5 * MS; at < 300 * MS; at += 23 * MS) {
        losses l = {.share = 0.05, .run = 3};
        net *n = make(4, &l);
        rs_peer all[] = {1, 2, 3, 4};
        rs_xfer xfer;
        assert_int_equal(net_send(n, 0, 1, 3600 * FRAGMENT, 4, all, &xfer), RS_OK);
        net_at(n, at);
        net_cut(n, 0, 2);
        net_kill(n, 3);
        for (rs_time t = at; !net_event(n, 0, RS_EV_SEND_DONE, ANYONE) && t < 60 * SEC; t += 20 * MS)
            net_at(n, t);
        assert_non_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
        for (rs_peer to = 1; to <= 4; to++)
            assert_true(to == 3 || net_has(n, to, 1));
        assert_true(net_event(n, 0, RS_EV_PEER_DONE, 1)->at < NET_START + 1500 * MS);
        net_free(n);
    }
}

typedef struct {
    uint32_t number; /* of the newest repair with something in it */
    uint32_t marks, told;
} heard;

static void hear(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                 size_t length, void *context) {
    heard *h = context;
    rs_repair_header repair;
    (void)n, (void)from, (void)to;
    if (arrives || channel != RS_CH_GROUP || rs_wire_data_header_length(header, length) != RS_REPAIR_HEADER ||
        !rs_wire_decode_repair(header, length, &repair))
        return;
    h->number = repair.count ? repair.number : h->number;
    h->marks += repair.mark && repair.count == 0;
}

/* Whatever mark comes, it has seen the repair before it, and misses what that mended. */
static void answers_no_mark__the_tail_ends(void **state) {
    (void)state;
    enum { LIAR = 3 };
    losses l = {.share = 0.05, .run = 1};
    heard h = {0};
    net *n = make(3, &l);
    net_knob(n)->quiet = false;
    net_knob(n)->watch = hear;
    net_knob(n)->watch_context = &h;
    rs_xfer xfer = net_send_all(n, 1, 16000 * FRAGMENT);
    rs_time at = 0;
    while (net_stats(n, 0, xfer).phase != RS_PHASE_PATCHING)
        net_at(n, at += MS / 10);
    net_freeze(n, LIAR);
    while (!net_event(n, 0, RS_EV_PATH_DONE, ANYONE)) {
        net_at(n, at += MS / 20);
        if (h.marks == h.told)
            continue;
        h.told = h.marks;
        rs_message m = {.type = RS_MSG_PTCH_MAP,
                        .nonce = net_message(n, 0, LIAR, RS_MSG_OPEN, 0)->message.nonce,
                        .ptch_map = {.number = h.number, .last = true, .bits = 8, .map = {0xff}}};
        uint8_t bytes[RS_HEADER_MAX];
        size_t length = rs_wire_encode(&m, 0, bytes, sizeof bytes);
        const rs_packet_in packet = {.channel = RS_CH_PEER_RELIABLE,
                                     .peer = LIAR,
                                     .group = RS_NO_GROUP,
                                     .header = bytes,
                                     .header_length = (uint16_t)length};
        assert_int_not_equal(rs_receive(net_node(n, 0), net_knob(n)->now, &packet).verdict, RS_RX_BAD);
    }
    rs_time tail = net_event(n, 0, RS_EV_PATH_DONE, ANYONE)->at - net_stats(n, 0, xfer).data_done_at;
    print_message("the tail took %.1f ms, %u marks\n", (double)tail / 1e6, h.marks);
    assert_true(tail < 250 * MS); /* a mark in 10 ms, 12 times, and some rounds; not half of 1.14 s */
    net_free(n);
}

/* First two lose, of which one much; then a third alone. */
static bool lose_in_turn(net *n, rs_peer to, const rs_data_header *header, void *context) {
    enum { CHANGES = 3000 };
    losses *l = context;
    if (header->flags & (RS_DATA_REPAIR | RS_DATA_ATTEMPT))
        return false;
    double share = header->sn >= CHANGES ? (to == 3) * 0.08 : to == 1 ? 0.3 : to == 2 ? 0.1 : 0;
    bool lost = share > 0 && net_random(n) < share;
    l->lost[to] += lost;
    return lost;
}

/* Who lost most before is not waited for: it may need nothing any more. */
static void one_falls_behind__mended_while_data_flow(void **state) {
    (void)state;
    losses l = {0};
    net *n = make(3, &l);
    net_knob(n)->drop = lose_in_turn;
    rs_xfer xfer = net_send_all(n, 1, 8000 * FRAGMENT);
    outcome out = finish(n, 3, xfer, &l);
    print_message("seed %llu: %llu, %llu, %llu lost; %llu repairs, %llu patches\n", (unsigned long long)seed(),
                  (unsigned long long)l.lost[1], (unsigned long long)l.lost[2], (unsigned long long)l.lost[3],
                  (unsigned long long)out.sent.repairs_sent, (unsigned long long)out.sent.patches_sent);
    assert_true(l.lost[3] > 300);
    assert_true(out.sent.patches_sent < l.lost[3] / 4);
    net_free(n);
}

/* To the first hardly a repair comes, so that what it misses goes back far. */
static bool lose_repairs(net *n, rs_peer to, const rs_data_header *header, void *context) {
    losses *l = context;
    bool repair = header->flags & RS_DATA_REPAIR;
    double share = to != 1 ? 0.02 : repair ? 0.995 : 0.004;
    bool lost = !(header->flags & RS_DATA_ATTEMPT) && net_random(n) < share;
    l->lost[to] += lost && !repair;
    return lost;
}

typedef struct {
    uint32_t maps, longest, reports, said; /* maps of this report, of the longest that told all; reports, maps */
} told_maps;

static bool count_maps(net *n, rs_peer from, rs_peer to, rs_packet_in *in, void *context) {
    told_maps *t = context;
    rs_message m;
    (void)n, (void)to;
    if (from != 1 || !rs_wire_decode(in->header, in->header_length, in->payload_length, &m) ||
        m.type != RS_MSG_PTCH_MAP)
        return false;
    t->maps = m.ptch_map.from == 0 ? 1 : t->maps + 1;
    t->longest = m.ptch_map.last && t->maps > t->longest ? t->maps : t->longest;
    t->reports += m.ptch_map.last;
    t->said++;
    return false;
}

/* What is not told spoils repairs for others' losses. */
static void misses_what_is_far_apart__a_report_tells_all(void **state) {
    (void)state;
    losses l = {0};
    told_maps t = {0};
    net *n = make(3, &l);
    net_knob(n)->drop = lose_repairs;
    net_knob(n)->tamper = count_maps;
    net_knob(n)->tamper_context = &t;
    rs_xfer xfer = net_send_all(n, 1, UINT64_C(10) * RS_MAP_BITS * FRAGMENT);
    finish(n, 3, xfer, &l);
    print_message("seed %llu: %u reports of %u maps, the longest of %u\n", (unsigned long long)seed(), t.reports,
                  t.said, t.longest);
    assert_true(t.longest > 6);
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_loss__everything_arrives),
        cmocka_unit_test(random_loss__costs_little_more_than_the_worst_receivers),
        cmocka_unit_test(rare_or_one_receivers_loss__patched),
        cmocka_unit_test(repairs__do_not_stall_the_data_channel),
        cmocka_unit_test(tail__on_a_packet_path_only),
        cmocka_unit_test(tail__its_path_fails),
        cmocka_unit_test(connections_and_receivers_that_go__hold_nobody),
        cmocka_unit_test(answers_no_mark__the_tail_ends),
        cmocka_unit_test(one_falls_behind__mended_while_data_flow),
        cmocka_unit_test(misses_what_is_far_apart__a_report_tells_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
