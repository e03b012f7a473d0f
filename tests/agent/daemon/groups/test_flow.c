/* Flow control of group messages: who is waited for, how long, and what a report may be. */
#include "daemon/groups/flow.h"

#include "core/groups/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS ((rs_time)1000000)
#define WINDOW 100u
#define GROUP 7u

static void window__follows_the_slowest_that_reports(void **state) {
    (void)state;
    rs_flow flow;
    rs_flow_reset(&flow);
    rs_flow_view(&flow, 9, GROUP, (const uint32_t[]){1, 2, 9}, 3);
    assert_true(rs_flow_open(NULL, &flow, 1000 * MS, WINDOW));
    flow.newest = WINDOW + 1;
    assert_false(rs_flow_open(NULL, &flow, 1001 * MS, WINDOW));
    rs_flow_reported(NULL, &flow, 1002 * MS, WINDOW, 1, 60);
    assert_true(rs_flow_open(NULL, &flow, 1002 * MS, WINDOW));
    rs_flow_reported(NULL, &flow, 1002 * MS, WINDOW, 2, 1);
    assert_false(rs_flow_open(NULL, &flow, 1002 * MS, WINDOW));
    rs_flow_reported(NULL, &flow, 1003 * MS, WINDOW, 2, 40);
    flow.newest = 139;
    assert_true(rs_flow_open(NULL, &flow, 1003 * MS, WINDOW));
    flow.newest = 140;
    assert_false(rs_flow_open(NULL, &flow, 1003 * MS, WINDOW));
    rs_flow_reported(NULL, &flow, 1004 * MS, WINDOW, 1, 1000); /* of what was never sent: nonsense */
    assert_false(rs_flow_open(NULL, &flow, 1004 * MS, WINDOW));
}

/* A dead receiver is not waited for longer than RS_FLOW_FRESH; without any, a window goes out every RS_FLOW_AGE. */
static void silence__stops_nobody_for_long(void **state) {
    (void)state;
    rs_flow flow;
    rs_flow_reset(&flow);
    (void)rs_flow_open(NULL, &flow, 1000 * MS, WINDOW);
    rs_flow_view(&flow, 9, GROUP, (const uint32_t[]){1, 9}, 2);
    flow.newest = WINDOW + 1;
    assert_true(rs_flow_reported(NULL, &flow, 1000 * MS, WINDOW, 1, 1));
    rs_time now = 1000 * MS;
    while (!rs_flow_open(NULL, &flow, now, WINDOW))
        now += MS;
    assert_true(now >= 1000 * MS + RS_FLOW_FRESH);
    assert_true(now <= 1000 * MS + RS_FLOW_FRESH + 2 * RS_FLOW_AGE);
    uint64_t before = flow.newest;
    for (rs_time end = now + 1000 * MS; now < end; now += MS)
        while (rs_flow_open(NULL, &flow, now, WINDOW))
            flow.newest++;
    assert_in_range(flow.newest - before, 10 * WINDOW, 21 * WINDOW);
}

/* A receiver that is alive but whose programs are behind says so: it is waited for, RS_FLOW_HOLD at most. */
static void receiver__that_holds_on_is_waited_for_a_second(void **state) {
    (void)state;
    rs_flow flow;
    rs_flow_reset(&flow);
    (void)rs_flow_open(NULL, &flow, 1000 * MS, WINDOW);
    rs_flow_view(&flow, 9, GROUP, (const uint32_t[]){1, 2, 9}, 3);
    flow.newest = WINDOW + 1;
    assert_true(rs_flow_reported(NULL, &flow, 1000 * MS, WINDOW, 1, 1));
    assert_true(rs_flow_reported(NULL, &flow, 1000 * MS, WINDOW, 2, 40));
    rs_time now = 1000 * MS;
    for (; !rs_flow_open(NULL, &flow, now, WINDOW); now += RS_FLOW_AGAIN)
        (void)rs_flow_reported(NULL, &flow, now, WINDOW, 1, 1);
    assert_in_range(now, 1000 * MS + RS_FLOW_HOLD, 1000 * MS + RS_FLOW_HOLD + RS_FLOW_FRESH + 2 * RS_FLOW_AGE);
    assert_false(rs_flow_reported(NULL, &flow, now, WINDOW, 1, 1)); /* it had its second */
    assert_true(rs_flow_reported(NULL, &flow, now, WINDOW, 1, 60)); /* and goes on */
    assert_true(rs_flow_reported(NULL, &flow, now + MS, WINDOW, 1, 60));
    flow.newest = 60 + WINDOW;
    assert_false(rs_flow_open(NULL, &flow, now + MS, WINDOW));
}

/* Packets that a publisher gets out in a second while somebody lies to it, every 5 ms. */
static uint64_t published_in_a_second(rs_flow *flow, rs_time now, uint32_t liar,
                                      uint64_t (*lie)(const rs_flow *flow, uint32_t nth)) {
    const uint64_t before = flow->newest;
    for (uint32_t i = 0; i < 200; i++, now += 5 * MS) {
        (void)rs_flow_reported(NULL, flow, now, WINDOW, liar, lie(flow, i));
        while (rs_flow_open(NULL, flow, now, WINDOW))
            rs_flow_published(NULL, flow, flow->newest + 1, flow->newest + 1, 1);
    }
    return flow->newest - before;
}

static uint64_t always_the_first(const rs_flow *flow, uint32_t nth) {
    (void)flow;
    (void)nth;
    return 1;
}

static uint64_t one_more(const rs_flow *flow, uint32_t nth) {
    (void)flow;
    return 1 + nth;
}

static uint64_t what_never_was(const rs_flow *flow, uint32_t nth) {
    return flow->newest + 1 + nth;
}

/* Nobody reports: some ten to twenty windows a second go out, whatever a stranger or a lying member says. */
static void liars__stop_no_publisher(void **state) {
    uint64_t (*const lies[])(const rs_flow *flow, uint32_t nth) = {always_the_first, one_more, what_never_was};
    (void)state;
    for (uint32_t liar = 1; liar <= 2; liar++)
        for (uint32_t i = 0; i < 3; i++) {
            rs_flow flow;
            rs_flow_reset(&flow);
            rs_flow_view(&flow, 9, GROUP, (const uint32_t[]){2, 9}, 2);
            rs_flow_published(NULL, &flow, 1, 1, 1);
            assert_true(published_in_a_second(&flow, 1000 * MS, liar, lies[i]) >=
                        (liar == 1 ? 10 * WINDOW : WINDOW / 2));
            /* A member may say that it holds on, for RS_FLOW_HOLD; once that is over it stops nobody. */
            assert_true(flow.refused >= (liar == 1 || i == 2 ? 199 : 0));
            (void)published_in_a_second(&flow, 2000 * MS, liar, always_the_first);
            assert_true(published_in_a_second(&flow, 3000 * MS, liar, always_the_first) >= 10 * WINDOW);
        }
}

/* A receiver that held on tells the last packet it has next, be it any one of a large message's. */
static void reports__name_any_packet_of_a_large_message(void **state) {
    rs_flow flow;
    (void)state;
    rs_flow_reset(&flow);
    rs_flow_view(&flow, 9, GROUP, (const uint32_t[]){1, 9}, 2);
    rs_flow_published(NULL, &flow, 5, 10, 1);
    assert_int_equal(flow.floor, 4);
    for (uint64_t first = 11; rs_flow_open(NULL, &flow, 1000 * MS, WINDOW); first += 7)
        rs_flow_published(NULL, &flow, first, first + 6, 1);
    assert_false(rs_flow_reported(NULL, &flow, 1000 * MS, WINDOW, 1, flow.newest + 1));
    assert_true(rs_flow_reported(NULL, &flow, 1000 * MS, WINDOW, 1, flow.newest));
    assert_true(rs_flow_open(NULL, &flow, 1000 * MS, WINDOW));
}

/* Whose report was heard before stays heard; who left is waited for no more. */
static void views__say_whose_reports_count(void **state) {
    rs_flow flow;
    (void)state;
    rs_flow_reset(&flow);
    rs_flow_view(&flow, 9, GROUP, (const uint32_t[]){1, 2, 9}, 3);
    rs_flow_published(NULL, &flow, 5000, 5000, 1);
    assert_int_equal(flow.floor, 4999); /* its numbers go on: nothing before is under way */
    assert_true(rs_flow_open(NULL, &flow, 1000 * MS, WINDOW));
    assert_true(rs_flow_reported(NULL, &flow, 1000 * MS, WINDOW, 1, 4990));
    assert_true(rs_flow_reported(NULL, &flow, 1000 * MS, WINDOW, 2, 4000));
    assert_false(rs_flow_open(NULL, &flow, 1000 * MS, WINDOW));
    rs_flow_view(&flow, 9, GROUP, (const uint32_t[]){1, 3, 9}, 3);
    assert_true(rs_flow_open(NULL, &flow, 1000 * MS, WINDOW));
    assert_false(rs_flow_reported(NULL, &flow, 1001 * MS, WINDOW, 2, 4500));
    assert_false(rs_flow_reported(NULL, &flow, 1001 * MS, WINDOW, 9, 4500)); /* the publisher itself */
    assert_false(rs_flow_reported(NULL, &flow, 1001 * MS, WINDOW, 1, 4989));
    assert_true(rs_flow_reported(NULL, &flow, 1001 * MS, WINDOW, 1, 5000));
}

/* The publisher counts those who think that they should report, whatever the order that members are named in. */
static void views__choose_the_reporters_that_choose_themselves(void **state) {
    uint32_t members[200];
    rs_flow flow;
    (void)state;
    for (uint32_t i = 0; i < 200; i++)
        members[i] = 0x0a000001 + i * 7919 % 200;
    rs_flow_reset(&flow);
    rs_flow_view(&flow, 1, GROUP, members, 200);
    assert_int_equal(flow.reporter_count, RS_FLOW_REPORTERS);
    rs_flow_published(NULL, &flow, 1, 1, 1);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(rs_flow_reported(NULL, &flow, 1000 * MS, WINDOW, members[i], 1),
                         rs_flow_chosen(members[i], GROUP, members, 200));
}

static void reporters__are_few_and_the_same_for_all(void **state) {
    (void)state;
    uint32_t members[1000], chosen = 0;
    for (uint32_t i = 0; i < 1000; i++)
        members[i] = 0x0a000001 + i;
    for (uint32_t i = 0; i < 1000; i++)
        chosen += rs_flow_chosen(members[i], 7, members, 1000);
    assert_int_equal(chosen, RS_FLOW_REPORTERS);
    assert_true(rs_flow_chosen(members[0], 7, members, RS_FLOW_REPORTERS));
}

static void packets__are_reported_a_step_at_a_time(void **state) {
    (void)state;
    rs_flow_ears *ears = calloc(1, sizeof *ears);
    uint32_t reports = 0;
    for (uint64_t sn = 5000; sn < 5000 + 10 * WINDOW; sn++) {
        uint8_t packet[RS_GM_DATA_LEAST] = {0};
        rs_gm_put_header(packet, RS_GM_KIND_DATA, &(rs_gm_id){.sender = 1, .incarnation = 2, .group = 3, .sn = sn});
        rs_gm_seal(packet, sizeof packet);
        rs_flow_heard *h = rs_flow_hear(ears, 1, packet, sizeof packet, WINDOW);
        if (!h)
            continue;
        assert_int_equal(h->newest, sn);
        h->told = h->newest;
        reports++;
    }
    assert_in_range(reports, 10 * RS_FLOW_STEPS - 4, 10 * RS_FLOW_STEPS + 4);
    free(ears);
}

/* A bit of a packet is another: the receiver does not say that it is where it is not. */
static void packets__that_were_changed_move_nothing(void **state) {
    (void)state;
    rs_flow_ears *ears = calloc(1, sizeof *ears);
    uint64_t told = 0;
    for (uint64_t sn = 5000; sn < 5000 + 10 * WINDOW; sn++)
        for (int changed = 1; changed >= 0; changed--) {
            uint8_t packet[RS_GM_DATA_LEAST] = {0};
            rs_gm_put_header(packet, RS_GM_KIND_DATA, &(rs_gm_id){.sender = 1, .incarnation = 2, .group = 3, .sn = sn});
            rs_gm_seal(packet, sizeof packet);
            if (changed) /* of its incarnation, its group or its number */
                packet[8 + sn % 16] ^= (uint8_t)(1u << sn / 16 % 8);
            rs_flow_heard *h = rs_flow_hear(ears, 1, packet, sizeof packet, WINDOW);
            if (!h)
                continue;
            assert_int_equal(h->incarnation, 2);
            assert_int_equal(h->group, 3);
            assert_in_range(h->newest, told, sn);
            told = h->told = h->newest;
        }
    assert_true(told > 5000 + 9 * WINDOW);
    free(ears);
}

/* Who hears of many groups reports each of them by less than a step: that counts, but holds nobody up for longer. */
static void small_steps__count_while_a_full_one_comes_in_time(void **state) {
    const uint32_t window = 3200, step = window / RS_FLOW_STEPS / 2;
    rs_flow flow;
    (void)state;
    rs_flow_reset(&flow);
    rs_flow_view(&flow, 9, GROUP, (const uint32_t[]){1, 9}, 2);
    rs_flow_published(NULL, &flow, 1, 1000, 1);
    rs_time now = 1000 * MS;
    assert_true(rs_flow_reported(NULL, &flow, now, window, 1, 100));
    for (uint64_t sn = 110; sn < 100 + step - 20; sn += 10, now += 50 * MS)
        assert_true(rs_flow_reported(NULL, &flow, now, window, 1, sn));
    assert_true(rs_flow_reported(NULL, &flow, now, window, 1, 100 + step));
    assert_false(rs_flow_reported(NULL, &flow, now, window, 1, 99 + step));
    now += RS_FLOW_HOLD;
    assert_false(rs_flow_reported(NULL, &flow, now, window, 1, 110 + step));
    assert_true(rs_flow_reported(NULL, &flow, now, window, 1, 1000 - step + 1)); /* it has almost all */
    assert_true(rs_flow_reported(NULL, &flow, now + 2 * RS_FLOW_HOLD, window, 1, 1000));
    assert_false(rs_flow_reported(NULL, &flow, now + 4 * RS_FLOW_HOLD, window, 1, 1000));
}

/* ----------------------------------------------------------------------------------------------------- many groups */

#define MANY 40u
#define LEAST 256u      /* window */
#define FULL (1u << 20) /* bytes of a packet */

typedef struct {
    rs_flow_sum sum;
    rs_flow flows[MANY];
    uint32_t bytes; /* of a packet */
} many;

/* Of each group 1 may report. */
static void begin(many *all) {
    rs_flow_sum_init(&all->sum, false);
    all->bytes = FULL;
    for (uint32_t i = 0; i < MANY; i++) {
        rs_flow_reset(&all->flows[i]);
        rs_flow_view(&all->flows[i], 9, i + 1, (const uint32_t[]){1, 9}, 2);
    }
}

/* So many packets, one at a time, as far as they may go out; how many did. */
static uint32_t flood(many *all, uint32_t group, rs_time now, uint32_t packets) {
    rs_flow *flow = &all->flows[group];
    uint32_t out = 0;
    for (; out < packets && rs_flow_open(&all->sum, flow, now, LEAST); out++)
        rs_flow_published(&all->sum, flow, flow->newest + 1, flow->newest + 1, all->bytes);
    return out;
}

static uint32_t flood_all(many *all, rs_time now) {
    uint32_t all_out = 0, out = 1;
    while (out > 0) {
        out = 0;
        for (uint32_t i = 0; i < MANY; i++)
            out += flood(all, i, now, 1);
        all_out += out;
    }
    return all_out;
}

static uint64_t counted(const many *all) {
    uint64_t under_way = 0;
    for (uint32_t i = 0; i < MANY; i++)
        under_way += all->flows[i].under_way;
    return under_way;
}

static void groups__have_one_window_under_way_together(void **state) {
    many all;
    rs_time now = 1000 * MS;
    (void)state;
    begin(&all);
    assert_int_equal(flood_all(&all, now), LEAST);
    assert_int_equal(all.sum.under_way, counted(&all));
    assert_int_equal(all.sum.busy_count, MANY);
    for (uint32_t round = 0; round < 100; round++) {
        now += MS;
        for (uint32_t i = 0; i < MANY; i++)
            (void)rs_flow_reported(&all.sum, &all.flows[i], now, LEAST, 1, all.flows[i].newest);
        assert_int_equal(all.sum.under_way, 0);
        assert_int_equal(all.sum.busy_count, 0);
        assert_int_equal(flood_all(&all, now), LEAST);
        assert_int_equal(all.sum.under_way, counted(&all));
    }
    /* small packets: as many as take the same room */
    for (uint32_t i = 0; i < MANY; i++)
        (void)rs_flow_reported(&all.sum, &all.flows[i], now, LEAST, 1, all.flows[i].newest);
    all.sum.packets = all.sum.bytes = 0;
    all.bytes = 10000;
    assert_int_equal(flood_all(&all, now), rs_flow_window(10000));
}

/* One group has all that may be under way: others have their shares, and it has not more than its window. */
static void groups__have_a_share_each_whatever_others_do(void **state) {
    many all;
    (void)state;
    begin(&all);
    assert_int_equal(flood(&all, 0, 1000 * MS, 1000), LEAST);
    assert_in_range(flood(&all, 1, 1000 * MS, 1000), LEAST / 4, LEAST / 2);
    for (uint32_t i = 2; i < MANY; i++)
        assert_true(flood(&all, i, 1000 * MS, 1000) >= RS_FLOW_SHARE);
}

/* Nobody takes what was published in some groups: it does not count for long, nor what stays of groups that end. */
static void groups__that_are_silent_do_not_count_for_long(void **state) {
    many all;
    rs_time now = 1000 * MS;
    (void)state;
    begin(&all);
    (void)flood_all(&all, now);
    for (rs_time end = now + 4 * RS_FLOW_AGE; now <= end; now += MS)
        (void)rs_flow_open(&all.sum, &all.flows[0], now, LEAST);
    assert_int_equal(all.sum.busy_count, 0);
    assert_int_equal(all.sum.under_way, 0);
    (void)flood_all(&all, now);
    for (uint32_t i = 1; i < MANY; i++)
        rs_flow_end(&all.sum, &all.flows[i]);
    assert_int_equal(all.sum.busy_count, 1);
    assert_int_equal(all.sum.under_way, all.flows[0].under_way);
    rs_flow_end(&all.sum, &all.flows[0]);
    assert_int_equal(all.sum.under_way, 0);
    assert_true(rs_list_empty(&all.sum.busy));
}

/* A program in all of them reads no more: what its agent says again and again ends them all, not only a window each. */
static void groups__that_somebody_holds_have_two_windows_ahead_together(void **state) {
    many all;
    rs_time now = 1000 * MS;
    uint64_t out = 0;
    (void)state;
    begin(&all);
    for (uint32_t i = 0; i < MANY; i++) {
        rs_flow_published(&all.sum, &all.flows[i], 1, 1, FULL);
        assert_true(rs_flow_reported(&all.sum, &all.flows[i], now, LEAST, 1, 1));
    }
    for (rs_time end = now + RS_FLOW_HOLD / 2; now < end; now += 5 * MS) {
        for (uint32_t i = 0; i < MANY && now % RS_FLOW_AGAIN == 0; i++)
            assert_true(rs_flow_reported(&all.sum, &all.flows[i], now, LEAST, 1, 1));
        out += flood_all(&all, now);
    }
    assert_in_range(out, LEAST, 3 * LEAST);
    for (uint32_t i = 0; i < MANY; i++) /* and goes on */
        (void)rs_flow_reported(&all.sum, &all.flows[i], now, LEAST, 1, all.flows[i].newest);
    assert_int_equal(flood_all(&all, now), LEAST);
}

/* In one group who should report is silent, or lies: another's publisher goes on as fast as it is taken. */
static void groups__are_not_stopped_by_liars_in_another(void **state) {
    uint64_t (*const lies[])(const rs_flow *flow, uint32_t nth) = {always_the_first, one_more, what_never_was, NULL};
    (void)state;
    for (uint32_t lie = 0; lie < 4; lie++) {
        many all;
        uint64_t stuck = 0, before = 0;
        begin(&all);
        for (uint32_t ms = 0; ms < 3000; ms++) {
            const rs_time now = (1000 + (rs_time)ms) * MS;
            if (ms % 5 == 0 && lies[lie])
                (void)rs_flow_reported(&all.sum, &all.flows[0], now, LEAST, 1, lies[lie](&all.flows[0], ms / 5));
            (void)rs_flow_reported(&all.sum, &all.flows[1], now, LEAST, 1, all.flows[1].newest);
            stuck += flood(&all, 0, now, UINT32_MAX);
            (void)flood(&all, 1, now, UINT32_MAX);
            if (ms % 1000 == 999) {
                assert_true(all.flows[1].newest - before >= 1000 * LEAST / 4);
                before = all.flows[1].newest;
            }
        }
        assert_true(stuck >= (lies[lie] == one_more ? LEAST : 10 * LEAST));
    }
}

/* With many groups a step is more than what may be ahead of who holds on: one more packet is none. */
static void groups__are_held_to_their_share_by_who_goes_on_by_one(void **state) {
    const uint32_t seconds = 20, share = 2 * LEAST / MANY;
    many all;
    uint64_t said = 1;
    (void)state;
    begin(&all);
    for (uint32_t ms = 0; ms < seconds * 1000; ms += 10) {
        const rs_time now = (1000 + (rs_time)ms) * MS;
        for (uint32_t i = 0; i < MANY; i++) {
            (void)flood(&all, i, now, 1);
            if (i > 0) /* one packet is always on its way */
                (void)rs_flow_reported(&all.sum, &all.flows[i], now, LEAST, 1, all.flows[i].newest - (ms > 0));
        }
        said += ms % 1000 == 990;
        if (ms % 20 == 0 || ms % 1000 == 990)
            (void)rs_flow_reported(&all.sum, &all.flows[0], now, LEAST, 1, said);
    }
    print_message("who goes on by one: %u packets in %u s\n", (uint32_t)all.flows[0].newest, seconds);
    assert_true(all.flows[0].newest >= seconds * share / 2);
    assert_int_equal(all.flows[1].newest, seconds * 100);
}

static uint64_t untold(const rs_flow_ears *ears) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < RS_FLOW_HEARD; i++)
        all += ears->streams[i].newest - ears->streams[i].told;
    return all;
}

static uint32_t tell(rs_flow_heard *h) {
    assert_true(h->newest > h->told);
    h->told = h->newest;
    return 1;
}

/* Packets of so many groups in turn, which take that room: how many reports there are, and how many packets are not
 * told of, at most. */
static uint32_t reports_of(uint32_t groups, uint32_t window, uint32_t room, uint32_t packets, bool lists,
                           uint64_t *most) {
    rs_flow_ears *ears = calloc(1, sizeof *ears);
    rs_flow_heard *due[RS_FLOW_LIST];
    uint32_t reports = 0;
    *most = 0;
    for (uint32_t n = 0; n < packets; n++) {
        uint8_t packet[RS_GM_DATA_LEAST] = {0};
        const rs_gm_id id = {.sender = 1, .incarnation = 2, .group = 1 + n % groups, .sn = 1 + n / groups};
        rs_gm_put_header(packet, RS_GM_KIND_DATA, &id);
        rs_gm_seal(packet, sizeof packet);
        rs_flow_heard *h = rs_flow_hear(ears, 1, packet, sizeof packet, window);
        reports += h ? tell(h) : 0;
        uint32_t count = rs_flow_due(ears, 1, room, window, lists, due);
        reports += lists ? count > 0 : count;
        for (; count > 0; count--)
            (void)tell(due[count - 1]);
        if (n % 1009 == 0 && untold(ears) > *most)
            *most = untold(ears);
    }
    free(ears);
    return reports;
}

static void packets__of_many_groups_are_reported_in_time_by_few_reports(void **state) {
    const uint32_t window = 3640, packets = 20 * window;
    uint64_t most;
    (void)state;
    for (uint32_t room = 100; room <= 10000; room *= 10)
        assert_int_equal(reports_of(1, window, room, packets, false, &most), packets / (window / RS_FLOW_STEPS));
    /* few groups of small packets in a window for large ones: as of each alone */
    assert_in_range(reports_of(4, 862, 100, packets, false, &most), packets / (862 / RS_FLOW_STEPS) - 4,
                    packets / (862 / RS_FLOW_STEPS));
    for (uint32_t groups = 2; groups <= 100; groups++) {
        assert_true(reports_of(groups, window, 1472, packets, false, &most) <= packets / RS_FLOW_EACH);
        assert_true(most <= window * 5 / 8);
    }
    assert_true(reports_of(3000, window, 1472, packets, false, &most) <= packets / RS_FLOW_EACH);
}

/* However many groups there are, no more than two steps of them all are not told of, by a datagram for 32 packets. */
static void packets__of_thousands_of_groups_are_reported_by_lists(void **state) {
    const uint32_t windows[] = {862, 3640};
    (void)state;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t groups = 2; groups <= 2000; groups = groups < 100 ? groups + 7 : groups * 3 / 2) {
            const uint32_t window = windows[i], packets = 20 * window;
            uint64_t most;
            const uint32_t reports = reports_of(groups, window, 1472, packets, true, &most);
            const uint32_t step = rs_flow_window(1472) / RS_FLOW_STEPS;
            if (most > 2 * step || reports > packets / RS_FLOW_EACH)
                print_message("window %u groups %u: %u reports, %u not told\n", window, groups, reports,
                              (uint32_t)most);
            assert_true(most <= 2 * step);
            assert_true(reports <= packets / RS_FLOW_EACH);
        }
}

/* By numbers alone; what comes late moves nothing, nor does it begin anew. */
static void what_is_given_out__is_reported_a_step_at_a_time(void **state) {
    (void)state;
    rs_flow_ears *ears = calloc(1, sizeof *ears);
    uint32_t reports = 0;
    for (uint64_t sn = 500; sn < 500 + 10 * (uint64_t)WINDOW; sn++) {
        rs_flow_heard *h = rs_flow_given(ears, 1, 5, GROUP, sn, WINDOW);
        if (h) {
            assert_int_equal(h->newest, sn);
            h->told = h->newest;
            reports++;
        }
        assert_null(rs_flow_given(ears, 1, 5, GROUP, sn - 50, WINDOW));
    }
    assert_int_equal(reports, 10 * WINDOW / (WINDOW / RS_FLOW_STEPS));
    assert_null(rs_flow_given(ears, 1, 6, GROUP, 1, WINDOW)); /* its agent was restarted */
    const rs_flow_heard *h = rs_flow_given(ears, 1, 6, GROUP, WINDOW, WINDOW);
    assert_non_null(h);
    assert_int_equal(h->told, 0);
    free(ears);
}

/* There are more streams than places: those that are not held back take turns. */
static void stream__that_is_held_back_keeps_its_place(void **state) {
    (void)state;
    rs_flow_ears *ears = calloc(1, sizeof *ears);
    const rs_flow_heard *h = rs_flow_given(ears, 1, 5, GROUP, WINDOW, WINDOW);
    (void)rs_flow_given(ears, 1, 5, GROUP, 2 * (uint64_t)WINDOW, WINDOW);
    uint32_t held = 0, at = 0;
    for (; at < RS_FLOW_HEARD && held == 0; at++)
        if (ears->streams[at].sender == 1) {
            ears->streams[at].held_back = true;
            h = &ears->streams[at];
            held++;
        }
    assert_int_equal(held, 1);
    for (uint32_t group = 1000; group < 1000 + 8 * RS_FLOW_HEARD; group++) {
        (void)rs_flow_given(ears, 2, 5, group, 1, WINDOW);
        (void)rs_flow_given(ears, 2, 5, group, 5, WINDOW);
        assert_int_equal(h->sender, 1);
        assert_true(h->held_back);
    }
    free(ears);
}

static void lists__are_what_was_told_or_nothing(void **state) {
    (void)state;
    for (uint32_t count = 0; count <= RS_FLOW_LIST; count++) {
        rs_flow_list list = {.from = 0x0a000001, .incarnation = 7, .count = count}, out;
        rs_flow_report one;
        uint8_t bytes[RS_FLOW_LIST_BYTES(RS_FLOW_LIST) + 1] = {0};
        for (uint32_t i = 0; i < count; i++) {
            list.stream[i].group = i;
            list.stream[i].sn = UINT64_C(0x123456789ab) + i;
        }
        const size_t length = rs_flow_list_encode(bytes, &list);
        assert_int_equal(length, RS_FLOW_LIST_BYTES(count));
        assert_false(rs_flow_decode(bytes, length, &one)); /* nor do agents of before */
        assert_true(rs_flow_list_decode(bytes, length, &out));
        assert_true(out.from == list.from && out.incarnation == 7 && out.count == count);
        for (uint32_t i = 0; i < count; i++)
            assert_true(out.stream[i].group == i && out.stream[i].sn == list.stream[i].sn);
        for (size_t other = 0; other < sizeof bytes; other++)
            assert_int_equal(rs_flow_list_decode(bytes, other, &out), other == length);
        for (size_t bit = 0; bit < 8 * length; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_false(rs_flow_list_decode(bytes, length, &out));
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

static void garbage__is_no_report(void **state) {
    (void)state;
    const rs_flow_report report = {0x0a000001, 7, 9, UINT64_C(0x123456789ab)};
    rs_flow_report out;
    uint8_t bytes[64] = {0};
    rs_flow_encode(bytes, &report);
    assert_true(rs_flow_decode(bytes, RS_FLOW_BYTES, &out));
    assert_true(out.from == report.from && out.incarnation == report.incarnation && out.group == report.group &&
                out.sn == report.sn);
    for (size_t length = 0; length < sizeof bytes; length++)
        assert_int_equal(rs_flow_decode(bytes, length, &out), length == RS_FLOW_BYTES);
    for (size_t bit = 0; bit < 8 * RS_FLOW_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(rs_flow_decode(bytes, RS_FLOW_BYTES, &out));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    rs_flow_ears *ears = calloc(1, sizeof *ears);
    unsigned seed = 7;
    for (int i = 0; i < 100000; i++) {
        uint8_t packet[64];
        size_t length = (size_t)rand_r(&seed) % sizeof packet;
        for (size_t at = 0; at < length; at++)
            packet[at] = (uint8_t)rand_r(&seed);
        if (length >= 4)
            memcpy(packet, "\x47\x52\x02\x01", 4);
        (void)rs_flow_hear(ears, (unsigned)rand_r(&seed), packet, length, WINDOW);
    }
    free(ears);
}

/* What is missing can still be had from the sender when the window after the last report is over; and when it comes at
 * last, a program that reads has room for all that waited for it. */
static void missing__holds_the_sender_before_it_has_the_packet_no_more(void **state) {
    (void)state;
    const uint32_t sizes[] = {512, 1472, 8972, RS_MESSAGES_PACKET_MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t window = rs_flow_window(sizes[i]);
        rs_flow_heard heard = {.newest = 1000000};
        assert_false(rs_flow_too_far(&heard, 0, window));
        assert_false(rs_flow_too_far(&heard, heard.newest + 5, window));
        uint64_t missing = heard.newest;
        while (!rs_flow_too_far(&heard, missing, window))
            missing--;
        assert_true(heard.newest - missing > window); /* what is under way may be missing for a while */
        uint64_t most = heard.newest - missing + window / RS_FLOW_STEPS + window;
        if (window > 256) /* the least */
            assert_true(most * (sizes[i] + 64) + RS_UNREAD_HOLD < RS_UNREAD_MOST);
        assert_true(RS_UNREAD_MOST <= RS_FLOW_KEPT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window__follows_the_slowest_that_reports),
        cmocka_unit_test(silence__stops_nobody_for_long),
        cmocka_unit_test(receiver__that_holds_on_is_waited_for_a_second),
        cmocka_unit_test(liars__stop_no_publisher),
        cmocka_unit_test(reports__name_any_packet_of_a_large_message),
        cmocka_unit_test(views__say_whose_reports_count),
        cmocka_unit_test(views__choose_the_reporters_that_choose_themselves),
        cmocka_unit_test(reporters__are_few_and_the_same_for_all),
        cmocka_unit_test(packets__are_reported_a_step_at_a_time),
        cmocka_unit_test(packets__that_were_changed_move_nothing),
        cmocka_unit_test(missing__holds_the_sender_before_it_has_the_packet_no_more),
        cmocka_unit_test(small_steps__count_while_a_full_one_comes_in_time),
        cmocka_unit_test(groups__have_one_window_under_way_together),
        cmocka_unit_test(groups__have_a_share_each_whatever_others_do),
        cmocka_unit_test(groups__that_are_silent_do_not_count_for_long),
        cmocka_unit_test(groups__that_somebody_holds_have_two_windows_ahead_together),
        cmocka_unit_test(groups__are_not_stopped_by_liars_in_another),
        cmocka_unit_test(groups__are_held_to_their_share_by_who_goes_on_by_one),
        cmocka_unit_test(stream__that_is_held_back_keeps_its_place),
        cmocka_unit_test(packets__of_many_groups_are_reported_in_time_by_few_reports),
        cmocka_unit_test(packets__of_thousands_of_groups_are_reported_by_lists),
        cmocka_unit_test(what_is_given_out__is_reported_a_step_at_a_time),
        cmocka_unit_test(lists__are_what_was_told_or_nothing),
        cmocka_unit_test(garbage__is_no_report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
