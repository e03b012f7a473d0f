/* Members of a group that get what was given out before they were in from those that keep it, in virtual time: over a
 * network that loses, doubles and reorders, and from members that have less, or lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/bytes.h"
#include "core/base/heap.h"
#include "core/base/random.h"
#include "core/base/xxh64.h"
#include "core/order/replay.h"

#define MS INT64_C(1000000)
#define MEMBERS 4u
#define SEGMENT (64u << 10)
#define WALL UINT64_C(1000000000000)

typedef struct datagram {
    struct datagram *next;
    rs_time at;
    uint32_t from, to, length;
    uint8_t bytes[1200];
} datagram;

typedef struct {
    rs_history *history[MEMBERS];
    rs_replay *replay[MEMBERS];
    datagram *wire;
    rs_time now;
    uint64_t random;
    double loss;
    uint32_t liar; /* it changes records that it gives; MEMBERS: nobody does */
    uint32_t mute; /* it answers nothing; MEMBERS: nobody */
    uint64_t datagrams;
} net;

static void *take_segment(void *context, uint64_t first, size_t bytes) {
    (void)context;
    (void)first;
    return calloc(1, bytes);
}

static void give_segment(void *context, uint64_t first, void *memory, size_t bytes, bool drop) {
    (void)context;
    (void)first;
    (void)bytes;
    (void)drop;
    free(memory);
}

/* A message of a stream that `view` began; the same at all. */
static void keep(net *n, uint32_t member, uint64_t view, uint64_t number) {
    uint8_t bytes[3000];
    uint32_t length = 8 + (uint32_t)(number * 7919 % (number % 50 ? 200 : sizeof bytes - 8));
    memset(bytes, (int)number, length);
    rs_le_put(bytes, number ^ view << 32, 8);
    const rs_history_record record = {.number = number,
                                      .view = view,
                                      .time = WALL + member, /* each has its own clock */
                                      .sender = 1,
                                      .name = "h1",
                                      .name_length = 2,
                                      .bytes = bytes,
                                      .length = length};
    assert_int_equal(rs_history_add(n->history[member], &record, WALL, UINT64_MAX), RS_OK);
}

static void keep_run(net *n, uint32_t member, uint64_t view, uint64_t from, uint64_t to) {
    for (; from <= to; from++)
        keep(n, member, view, from);
}

static void sealed(uint8_t *bytes, size_t length) {
    rs_le_put(bytes + 4, rs_gm_xxh64(bytes + 8, length - 8, rs_le_get(bytes, 4)), 4);
}

static void collect(net *n, uint32_t from) {
    rs_replay_out out;
    while (rs_replay_poll_out(n->replay[from], &out)) {
        uint32_t copies = rs_random_part(rs_random_next(&n->random)) < n->loss   ? 0
                          : rs_random_part(rs_random_next(&n->random)) < n->loss ? 2
                                                                                 : 1;
        n->datagrams++;
        for (uint32_t i = 0; i < copies && from != n->mute; i++) {
            datagram *d = calloc(1, sizeof *d);
            assert_true(out.length <= sizeof d->bytes);
            memcpy(d->bytes, out.bytes, out.length);
            if (from == n->liar && d->bytes[3] == 4 && out.length > 40) {
                d->bytes[40] ^= 0x5a;
                sealed(d->bytes, out.length);
            }
            d->length = out.length;
            d->from = from;
            d->to = out.peer;
            d->at = n->now + MS / 10 + (rs_time)(rs_random_next(&n->random) % (MS / 5));
            d->next = n->wire;
            n->wire = d;
        }
    }
    rs_replay_sent(n->replay[from]);
}

static void run(net *n, rs_time how_long) {
    for (rs_time end = n->now + how_long; n->now < end; n->now += MS / 10) {
        for (uint32_t i = 0; i < MEMBERS; i++) {
            if (n->replay[i] && rs_replay_deadline(n->replay[i]) <= n->now)
                rs_replay_timeout(n->replay[i], n->now);
            if (n->replay[i])
                collect(n, i);
        }
        for (datagram **at = &n->wire; *at;) {
            datagram *d = *at;
            if (d->at > n->now) {
                at = &d->next;
                continue;
            }
            *at = d->next;
            if (d->to < MEMBERS && n->replay[d->to])
                assert_true(rs_replay_receive(n->replay[d->to], n->now, WALL, d->from, d->bytes, d->length) ||
                            d->from == n->liar);
            free(d);
        }
    }
}

static void start(net *n, uint32_t member, uint64_t bytes) {
    const rs_history_config kept = {
        .bytes = bytes, .segment_bytes = SEGMENT, .take = take_segment, .give = give_segment};
    const rs_replay_config config = {.group = 7, .self = member, .seed = n->random + member};
    n->history[member] = rs_history_new(&kept, &rs_heap);
    n->replay[member] = rs_replay_new(&config, n->history[member], &rs_heap);
}

/* `joined` 0: it was in the view before. */
static void view_at(net *n, uint32_t member, uint64_t view, uint64_t number, uint32_t members, uint32_t joined) {
    rs_peer peers[2 * MEMBERS];
    uint32_t count = 0, join_count = 0;
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (members >> i & 1)
            peers[count++] = i;
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (joined >> i & 1)
            peers[count + join_count++] = i;
    const rs_order_event event = {.kind = RS_ORDER_VIEW,
                                  .view = view,
                                  .number = number,
                                  .members = peers,
                                  .member_count = count,
                                  .joined = peers + count,
                                  .joined_count = join_count,
                                  .anew = joined >> member & 1};
    rs_replay_view(n->replay[member], n->now, &event);
}

static void view(net *n, uint64_t view, uint64_t number, uint32_t members, uint32_t joined) {
    for (uint32_t i = 0; i < MEMBERS; i++)
        if (members >> i & 1)
            view_at(n, i, view, number, members, joined);
}

static int begin(void **state) {
    net *n = calloc(1, sizeof *n);
    const char *seed = getenv("SEED");
    n->random = seed ? strtoull(seed, NULL, 10) : 1;
    print_message("SEED=%llu\n", (unsigned long long)n->random);
    n->now = 1000 * MS;
    n->liar = n->mute = MEMBERS;
    n->loss = 0.02;
    for (uint32_t i = 0; i < MEMBERS; i++)
        start(n, i, 8u << 20);
    *state = n;
    return 0;
}

static int end(void **state) {
    net *n = *state;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        rs_replay_free(n->replay[i]);
        rs_history_free(n->history[i]);
    }
    while (n->wire) {
        datagram *d = n->wire;
        n->wire = d->next;
        free(d);
    }
    free(n);
    return 0;
}

static void until_whole(net *n, uint32_t member) {
    for (uint32_t i = 0; i < 600 && !rs_replay_is_complete(n->replay[member]); i++)
        run(n, 100 * MS);
    assert_true(rs_replay_is_complete(n->replay[member]));
}

/* All from there to there, and each is the one of that view. */
static void has(net *n, uint32_t member, uint64_t view, uint64_t from, uint64_t to) {
    rs_history_record r;
    assert_int_equal(rs_history_missing(n->history[member], from, to), 0);
    for (uint64_t number = from; number <= to; number++) {
        assert_true(rs_history_find(n->history[member], number, &r));
        assert_int_equal(rs_le_get(r.bytes, 8), number ^ view << 32);
        assert_int_equal(r.view, view);
    }
}

static void a_joiner__gets_all_and_then_what_is_given_out(void **state) {
    net *n = *state;
    view(n, 1, 0, 3, 3);
    keep_run(n, 0, 1, 1, 3000);
    keep_run(n, 1, 1, 1, 3000);
    run(n, 10 * MS);
    view(n, 2, 3000, 7, 4);
    keep_run(n, 2, 2, 3001, 3100);
    until_whole(n, 2);
    has(n, 2, 1, 1, 3000);
    has(n, 2, 2, 3001, 3100);
    rs_replay_stats stats;
    rs_replay_stats_get(n->replay[2], &stats);
    assert_int_equal(stats.pulled, 3000);
    assert_int_equal(stats.refused, 0);
}

static void what_a_program_waits_for__comes_first(void **state) {
    net *n = *state;
    view(n, 1, 0, 1, 1);
    rs_history_record r;
    n->loss = 0;
    keep_run(n, 0, 1, 1, 20000);
    view(n, 2, 20000, 3, 2);
    assert_int_equal(rs_replay_at(n->replay[1], 19990, 20000, &r), RS_REPLAY_WAITS);
    for (uint32_t i = 0; rs_replay_at(n->replay[1], 19990, 20000, &r) != RS_REPLAY_HERE; i++) {
        assert_true(i < 1000);
        run(n, MS);
    }
    assert_true(rs_history_missing(n->history[1], 1, 20000) < 10000); /* most of what is before is still to come */
    until_whole(n, 1);
    has(n, 1, 1, 1, 20000);
}

static void what_nobody_has__is_told_as_gone(void **state) {
    net *n = *state;
    view(n, 1, 0, 3, 3);
    rs_history_record r;
    keep_run(n, 0, 1, 101, 200);
    keep_run(n, 1, 1, 301, 400);
    run(n, 10 * MS);
    view(n, 2, 400, 7, 4);
    until_whole(n, 2);
    has(n, 2, 1, 101, 200);
    has(n, 2, 1, 301, 400);
    assert_int_equal(rs_replay_at(n->replay[2], 1, 400, &r), RS_REPLAY_GONE);
    assert_int_equal(r.number, 101);
    assert_int_equal(rs_replay_at(n->replay[2], 201, 400, &r), RS_REPLAY_GONE);
    assert_int_equal(r.number, 301);
}

static void a_member_that_lies__another_one_gives(void **state) {
    net *n = *state;
    view(n, 1, 0, 7, 7);
    n->liar = 0;
    for (uint32_t i = 0; i < 3; i++)
        keep_run(n, i, 1, 1, 2000);
    run(n, 100 * MS);
    view(n, 2, 2000, 15, 8);
    until_whole(n, 3);
    has(n, 3, 1, 1, 2000);
}

static void a_member_that_says_nothing__another_one_gives(void **state) {
    net *n = *state;
    view(n, 1, 0, 3, 3);
    for (uint32_t i = 0; i < 2; i++)
        keep_run(n, i, 1, 1, 2000);
    run(n, 100 * MS);
    view(n, 2, 2000, 7, 4);
    run(n, MS); /* it has said what it has, perhaps */
    n->mute = 0;
    until_whole(n, 2);
    has(n, 2, 1, 1, 2000);
}

static void a_giver_that_leaves__another_one_gives(void **state) {
    net *n = *state;
    view(n, 1, 0, 3, 3);
    for (uint32_t i = 0; i < 2; i++)
        keep_run(n, i, 1, 1, 20000);
    run(n, 100 * MS);
    view(n, 2, 20000, 7, 4);
    run(n, 5 * MS);
    n->mute = 0;
    view(n, 3, 20000, 6, 0);
    until_whole(n, 2);
    has(n, 2, 1, 1, 20000);
}

/* It was away and kept more than the others, who went on without it: their messages count. */
static void one_comes_back_with_others__it_yields(void **state) {
    net *n = *state;
    keep_run(n, 2, 1, 1, 1000);
    keep_run(n, 0, 1, 1, 900);
    view(n, 5, 900, 1, 1);
    keep_run(n, 0, 5, 901, 1200);
    view(n, 6, 1200, 5, 4);
    until_whole(n, 2);
    has(n, 2, 1, 1, 900);
    has(n, 2, 5, 901, 1200);
    has(n, 0, 5, 901, 1200);
}

/* All begin anew, with what an earlier run left on their disks: the one that has most is believed. */
static void all_begin_anew__who_has_most_counts(void **state) {
    net *n = *state;
    keep_run(n, 0, 1, 1, 500);
    keep_run(n, 0, 2, 501, 700);
    keep_run(n, 1, 1, 1, 500);
    keep_run(n, 1, 3, 501, 900);
    keep_run(n, 2, 1, 1, 300);
    view(n, 9, 900, 15, 15);
    rs_history_record r;
    for (uint32_t i = 0; rs_replay_at(n->replay[3], 850, 900, &r) != RS_REPLAY_HERE; i++) {
        assert_true(i < 1000);
        assert_int_equal(rs_replay_at(n->replay[3], 850, 900, &r), RS_REPLAY_WAITS); /* never: nobody has it */
        run(n, MS);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        until_whole(n, i);
        has(n, i, 1, 1, 500);
        has(n, i, 3, 501, 900);
    }
}

static void the_numbers_begin_again__what_was_kept_goes(void **state) {
    net *n = *state;
    keep_run(n, 1, 1, 1, 500);
    view_at(n, 1, 9, 20, 3, 2);
    assert_int_equal(rs_history_last(n->history[1]), 20);
}

static void less_room_than_others__the_newest_come(void **state) {
    net *n = *state;
    rs_replay_free(n->replay[1]);
    rs_history_free(n->history[1]);
    start(n, 1, 4 * SEGMENT);
    view(n, 1, 0, 1, 1);
    keep_run(n, 0, 1, 1, 20000);
    view(n, 2, 20000, 3, 2);
    for (uint64_t number = 20001; number <= 20100; number++) {
        keep(n, 0, 2, number);
        keep(n, 1, 2, number);
    }
    until_whole(n, 1);
    assert_true(rs_history_bytes(n->history[1]) <= 4 * SEGMENT);
    assert_int_equal(rs_history_last(n->history[1]), 20100);
}

static void garbage__is_counted_and_nothing_breaks(void **state) {
    net *n = *state;
    uint8_t bytes[1200];
    keep_run(n, 0, 1, 1, 200);
    view(n, 1, 200, 3, 1);
    for (uint32_t round = 0; round < 50000; round++) {
        size_t length = rs_random_next(&n->random) % 120;
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)(rs_random_next(&n->random) >> 40);
        if (length >= 16) {
            rs_le_put(bytes, RS_REPLAY_MAGIC, 2);
            bytes[2] = 1;
            bytes[3] = (uint8_t)(1 + round % 5);
            rs_le_put(bytes + 8, 7, 4);
            if (round % 3 == 0 && length >= 32)
                rs_le_put(bytes + 16, 1 + round % 220, 8);
            if (round % 3 == 0 && length >= 32)
                rs_le_put(bytes + 24, round % 17, 4);
            sealed(bytes, length);
        }
        (void)rs_replay_receive(n->replay[0], n->now, WALL, round % 5, bytes, length);
        rs_replay_out out;
        while (rs_replay_poll_out(n->replay[0], &out))
            assert_int_equal(out.peer, 1); /* nothing is said to who is no member */
        rs_replay_sent(n->replay[0]);
    }
    has(n, 0, 1, 1, 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_joiner__gets_all_and_then_what_is_given_out, begin, end),
        cmocka_unit_test_setup_teardown(what_a_program_waits_for__comes_first, begin, end),
        cmocka_unit_test_setup_teardown(what_nobody_has__is_told_as_gone, begin, end),
        cmocka_unit_test_setup_teardown(a_member_that_lies__another_one_gives, begin, end),
        cmocka_unit_test_setup_teardown(a_member_that_says_nothing__another_one_gives, begin, end),
        cmocka_unit_test_setup_teardown(a_giver_that_leaves__another_one_gives, begin, end),
        cmocka_unit_test_setup_teardown(one_comes_back_with_others__it_yields, begin, end),
        cmocka_unit_test_setup_teardown(all_begin_anew__who_has_most_counts, begin, end),
        cmocka_unit_test_setup_teardown(the_numbers_begin_again__what_was_kept_goes, begin, end),
        cmocka_unit_test_setup_teardown(less_room_than_others__the_newest_come, begin, end),
        cmocka_unit_test_setup_teardown(garbage__is_counted_and_nothing_breaks, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
