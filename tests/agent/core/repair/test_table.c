/* Which fragments are combined: each receiver a set is said to serve misses exactly one of its members, and there are
 * hardly more sets than the receiver needs that lost most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/heap.h"
#include "core/base/wire.h"
#include "core/repair/table.h"

#define MOST 300
#define SPAN 4000

typedef struct {
    rs_repair_table table;
    uint32_t receivers;
    bool missing[MOST][SPAN]; /* the truth */
} world;

static world *make(uint32_t receivers) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->receivers = receivers;
    assert_int_equal(rs_repair_table_init(&w->table, &rs_heap, receivers), RS_OK);
    return w;
}

static void end(world *w) {
    rs_repair_table_free(&w->table, &rs_heap);
    free(w);
}

static bool misses(world *w, uint32_t receiver, uint64_t sn) {
    bool room = rs_repair_want(&w->table, 0, receiver, sn);
    w->missing[receiver][sn] |= room;
    return room;
}

static bool serves(const rs_repair_set *s, uint32_t receiver) {
    return s->serves[receiver / 64] >> receiver % 64 & 1;
}

/* How many members the receiver misses; the last one. */
static uint32_t missed(const world *w, const rs_repair_set *s, uint32_t receiver, uint64_t *sn) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (!w->missing[receiver][s->sn[i]])
            continue;
        *sn = s->sn[i];
        count++;
    }
    return count;
}

/* `sure`: repairs under way have arrived. */
static void check_set(const world *w, const rs_repair_set *s, bool sure) {
    uint32_t served = 0;
    assert_in_range(s->count, 1, RS_COMBINE_MAX);
    for (uint32_t i = 1; i < s->count; i++) {
        assert_true(s->sn[i] > s->sn[i - 1]);
        assert_true(s->sn[i] - s->sn[i - 1] <= (s->count > RS_REPAIR_SPARSE ? RS_REPAIR_NEAR : RS_REPAIR_FAR));
    }
    for (uint32_t r = 0; r < w->receivers; r++) {
        if (!serves(s, r))
            continue;
        uint64_t sn;
        served++;
        assert_true(!sure || missed(w, s, r, &sn) <= 1); /* 0: from a repair that was not meant for it */
    }
    assert_int_equal(served, s->served);
    assert_true(served > 0);
}

/* What a receiver says after a set went out. */
static void tell(world *w, uint32_t receiver, uint32_t number) {
    for (uint64_t from = 0; from < SPAN; from += RS_MAP_BITS) {
        uint8_t map[RS_MAP_BYTES] = {0};
        uint32_t bits = SPAN - from < RS_MAP_BITS ? (uint32_t)(SPAN - from) : RS_MAP_BITS;
        for (uint32_t i = 0; i < bits; i++)
            map[i / 8] |= (uint8_t)(w->missing[receiver][from + i] << i % 8);
        const rs_repair_told told = {
            .from = from, .base = from, .bits = bits, .number = number, .last = from + bits == SPAN, .map = map};
        rs_repair_tell(&w->table, 0, receiver, &told);
    }
}

static void three_losses__one_set(void **state) {
    (void)state;
    world *w = make(3);
    rs_repair_set s;
    assert_false(rs_repair_pick(&w->table, &s));
    misses(w, 0, 10);
    misses(w, 1, 20);
    misses(w, 2, 30);
    assert_true(rs_repair_pick(&w->table, &s));
    check_set(w, &s, true);
    assert_int_equal(s.count, 3);
    assert_int_equal(s.served, 3);
    rs_repair_sent(&w->table, &s, 1);
    assert_false(rs_repair_pick(&w->table, &s));
    end(w);
}

static void same_loss__sent_as_it_is(void **state) {
    (void)state;
    world *w = make(3);
    rs_repair_set s;
    for (uint32_t r = 0; r < 3; r++)
        misses(w, r, 7);
    assert_true(rs_repair_pick(&w->table, &s));
    assert_int_equal(s.count, 1);
    assert_int_equal(s.served, 3);
    end(w);
}

/* Receiver 0 misses both: together they are of no use to it, and it counts as much as the other. */
static void two_losses_of_one__not_together(void **state) {
    (void)state;
    world *w = make(2);
    rs_repair_set s;
    misses(w, 0, 1);
    misses(w, 0, 2);
    misses(w, 1, 2);
    assert_true(rs_repair_pick(&w->table, &s));
    check_set(w, &s, true);
    assert_int_equal(s.count, 1);
    end(w);
}

static void repair__lost_or_of_use(void **state) {
    (void)state;
    world *w = make(2);
    rs_repair_set s;
    misses(w, 0, 10);
    misses(w, 1, 20);
    assert_true(rs_repair_pick(&w->table, &s));
    rs_repair_sent(&w->table, &s, 5);
    w->missing[0][10] = false; /* it got there */
    tell(w, 0, 5);
    assert_int_equal(w->table.mended, 1);
    tell(w, 1, 4); /* has not seen it yet */
    assert_false(rs_repair_pick(&w->table, &s));
    tell(w, 1, 5); /* has seen it or a later one, and still misses it */
    assert_true(rs_repair_pick(&w->table, &s));
    assert_int_equal(s.sn[0], 20);
    rs_repair_patched(&w->table, &s);
    tell(w, 1, 9); /* a patch is reliable: nothing is repaired twice */
    assert_false(rs_repair_pick(&w->table, &s));
    w->missing[1][20] = false;
    tell(w, 1, 9);
    assert_int_equal(w->table.of[1].missing, 0);
    assert_int_equal(w->table.mended, 1);
    end(w);
}

static void receiver_that_left__wants_nothing(void **state) {
    (void)state;
    world *w = make(2);
    rs_repair_set s;
    for (uint64_t sn = 0; sn < 100; sn++)
        misses(w, (uint32_t)(sn % 2), sn);
    rs_repair_forget(&w->table, 0, false);
    assert_int_equal(w->table.of[0].missing, 0);
    while (rs_repair_pick(&w->table, &s)) {
        assert_false(serves(&s, 0));
        rs_repair_sent(&w->table, &s, 1);
    }
    rs_repair_forget(&w->table, 1, true);
    assert_int_equal(w->table.mended, 50);
    assert_int_equal(w->table.wanted, 0);
    end(w);
}

/* Whoever floods the table leaves room for the others; what is told again is not remembered twice. */
static void bounds__hold(void **state) {
    (void)state;
    world *w = make(8);
    uint32_t took = 0;
    for (uint64_t sn = 0; sn < SPAN; sn++)
        took += misses(w, 3, sn);
    assert_int_equal(took, w->table.share);
    assert_true(misses(w, 3, 5));
    assert_int_equal(w->table.of[3].missing, took);
    assert_true(misses(w, 4, SPAN - 1));
    assert_true(w->table.count <= w->table.capacity);
    rs_repair_table none;
    assert_int_equal(rs_repair_table_init(&none, &rs_heap, RS_REPAIR_RECEIVERS + 1), RS_ERR_LIMIT);
    end(w);
}

static uint64_t random_state;

static double chance(void) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 11) / (double)(UINT64_C(1) << 53);
}

/* How many repairs each of which gets lost with the same probability it takes until nobody misses anything, over what
 * the receiver needs that lost most. */
static double expansion(uint32_t receivers, double loss, double of_repairs) {
    world *w = make(receivers);
    uint32_t sent = 0, most = 1;
    rs_repair_set s;
    for (uint32_t r = 0; r < receivers; r++) {
        uint32_t lost = 0;
        for (uint64_t sn = 0; sn < SPAN; sn++)
            lost += chance() < loss && misses(w, r, sn);
        most = lost > most ? lost : most;
    }
    for (uint64_t left = 1; left;) {
        while (rs_repair_pick(&w->table, &s)) {
            check_set(w, &s, of_repairs == 0);
            rs_repair_sent(&w->table, &s, ++sent);
            for (uint32_t r = 0; r < receivers; r++) {
                uint64_t sn;
                if (chance() >= of_repairs && missed(w, &s, r, &sn) == 1)
                    w->missing[r][sn] = false;
            }
        }
        left = 0;
        for (uint32_t r = 0; r < receivers; r++) {
            tell(w, r, sent);
            left += w->table.of[r].missing;
        }
    }
    end(w);
    return (double)sent / most;
}

/* One receiver is far behind the others: they are served with it. Its losses took all places in the choice. */
static void many_old_losses_of_one__others_are_served_too(void **state) {
    (void)state;
    world *w = make(16);
    rs_repair_set s;
    for (uint64_t sn = 0; sn < 200; sn++)
        misses(w, 0, sn);
    for (uint32_t r = 1; r < 16; r++)
        misses(w, r, 200 + r);
    assert_true(rs_repair_pick(&w->table, &s));
    check_set(w, &s, true);
    assert_int_equal(s.served, 16);
    end(w);
}

static void random_losses__near_the_bound(void **state) {
    (void)state;
    static const struct {
        uint32_t receivers;
        double loss, lossless, lossy; /* bounds of the expansion: repairs arrive; are lost as data packets are */
    } cases[] = {{2, 0.01, 1.0, 1.2},  {3, 0.01, 1.05, 1.2},  {3, 0.05, 1.05, 1.2},  {3, 0.2, 1.2, 1.5},
                 {8, 0.01, 1.1, 1.2},  {16, 0.01, 1.1, 1.3},  {32, 0.01, 1.15, 1.3}, {32, 0.05, 1.15, 1.35},
                 {64, 0.01, 1.9, 2.1}, {128, 0.01, 2.8, 3.0}, {256, 0.01, 3.6, 3.8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        random_state = i;
        double lossless = expansion(cases[i].receivers, cases[i].loss, 0);
        double lossy = expansion(cases[i].receivers, cases[i].loss, cases[i].loss);
        print_message("%u receivers, %.2f: %.2f and %.2f of the least\n", cases[i].receivers, cases[i].loss, lossless,
                      lossy);
        assert_true(lossless <= cases[i].lossless);
        assert_true(lossy <= cases[i].lossy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_losses__one_set),
        cmocka_unit_test(same_loss__sent_as_it_is),
        cmocka_unit_test(two_losses_of_one__not_together),
        cmocka_unit_test(repair__lost_or_of_use),
        cmocka_unit_test(receiver_that_left__wants_nothing),
        cmocka_unit_test(bounds__hold),
        cmocka_unit_test(many_old_losses_of_one__others_are_served_too),
        cmocka_unit_test(random_losses__near_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
