/* Messages kept for replay: what a crash, time, and bounds leave of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/heap.h"
#include "core/base/random.h"
#include "core/order/history.h"

#define SEGMENT 4096u
#define SEGMENTS 64u

/* Segments as files are: what is given back without `drop` stays. */
typedef struct {
    uint64_t first[SEGMENTS];
    uint8_t *memory[SEGMENTS];
    size_t bytes[SEGMENTS], taken, most;
    bool full; /* there is no more */
} disk;

static void *take_segment(void *context, uint64_t first, size_t bytes) {
    disk *d = context;
    for (uint32_t i = 0; i < SEGMENTS && !d->full; i++)
        if (!d->memory[i]) {
            d->first[i] = first;
            d->bytes[i] = bytes;
            d->memory[i] = calloc(1, bytes);
            d->taken += bytes;
            d->most = d->taken > d->most ? d->taken : d->most;
            return d->memory[i];
        }
    return NULL;
}

static void give_segment(void *context, uint64_t first, void *memory, size_t bytes, bool drop) {
    disk *d = context;
    for (uint32_t i = 0; i < SEGMENTS && drop; i++)
        if (d->memory[i] == memory) {
            assert_int_equal(d->first[i], first);
            assert_int_equal(d->bytes[i], bytes);
            free(memory);
            d->memory[i] = NULL;
            d->taken -= bytes;
            return;
        }
    assert_false(drop);
}

static rs_history *history_on(disk *d, uint64_t bytes, uint64_t age) {
    const rs_history_config config = {bytes, age, SEGMENT, take_segment, give_segment, d};
    rs_history *h = rs_history_new(&config, &rs_heap);
    assert_non_null(h);
    return h;
}

static void clear(disk *d) {
    for (uint32_t i = 0; i < SEGMENTS; i++)
        free(d->memory[i]);
    memset(d, 0, sizeof *d);
}

static rs_status add_at(rs_history *h, uint64_t number, uint64_t time, uint64_t pin) {
    uint8_t bytes[300];
    uint32_t length = (uint32_t)(number * 37 % sizeof bytes);
    memset(bytes, (int)number, length);
    const rs_history_record record = {.number = number,
                                      .view = 1 + number / 100,
                                      .time = time,
                                      .sender = 7,
                                      .name = "h7",
                                      .name_length = 2,
                                      .bytes = bytes,
                                      .length = length};
    return rs_history_add(h, &record, time, pin);
}

static void fill(rs_history *h, uint64_t from, uint64_t to) {
    for (uint64_t number = from; number <= to; number++)
        assert_int_equal(add_at(h, number, 1000 * number, UINT64_MAX), RS_OK);
}

/* All from there to there, each as it was put in; nothing else. */
static void holds(const rs_history *h, uint64_t from, uint64_t to) {
    rs_history_record r;
    assert_int_equal(rs_history_first(h), from);
    assert_int_equal(rs_history_last(h), to);
    for (uint64_t number = from; from && number <= to; number++) {
        assert_true(rs_history_find(h, number, &r));
        assert_int_equal(r.number, number);
        assert_int_equal(r.length, number * 37 % 300);
        for (uint32_t i = 0; i < r.length; i++)
            assert_int_equal(r.bytes[i], (uint8_t)number);
        assert_memory_equal(r.name, "h7", 2);
    }
}

static void what_is_put_in__is_found_by_number_and_by_time(void **state) {
    (void)state;
    disk d = {0};
    rs_history_record r;
    rs_history *h = history_on(&d, SEGMENT * SEGMENTS, 0);
    assert_false(rs_history_find(h, 0, &r));
    fill(h, 1, 500);
    holds(h, 1, 500);
    assert_int_equal(add_at(h, 250, 0, UINT64_MAX), RS_ERR_STATE);
    assert_false(rs_history_find(h, 501, &r));
    assert_true(rs_history_since(h, 77 * 1000 - 1, &r));
    assert_int_equal(r.number, 77);
    assert_false(rs_history_since(h, 500001, &r));
    assert_int_equal(rs_history_view_first(h, 450), 400);
    assert_int_equal(rs_history_view_first(h, 50), 1);
    rs_history_free(h);
    clear(&d);
}

static void a_bound_in_bytes__the_oldest_go(void **state) {
    (void)state;
    disk d = {0};
    rs_history *h = history_on(&d, 4 * SEGMENT, 0);
    fill(h, 1, 2000);
    assert_int_equal(rs_history_last(h), 2000);
    assert_true(rs_history_first(h) > 1900);
    assert_true(d.most <= 4 * SEGMENT);
    assert_int_equal(rs_history_bytes(h), d.taken);
    holds(h, rs_history_first(h), 2000);
    assert_int_equal(add_at(h, 1, 0, UINT64_MAX), RS_ERR_LIMIT); /* older than what is kept */
    rs_history_free(h);
    clear(&d);
}

static void what_a_program_still_wants__stays_up_to_twice_the_bound(void **state) {
    (void)state;
    disk d = {0};
    rs_history *h = history_on(&d, 4 * SEGMENT, 0);
    for (uint64_t number = 1; number <= 130; number++)
        assert_int_equal(add_at(h, number, number, 5), RS_OK);
    assert_int_equal(rs_history_first(h), 1);
    assert_true(d.taken > 4 * SEGMENT);
    for (uint64_t number = 131; number <= 2000; number++)
        assert_int_equal(add_at(h, number, number, 5), RS_OK);
    assert_true(rs_history_first(h) > 1700);
    assert_true(d.most <= 8 * SEGMENT);
    rs_history_free(h);
    clear(&d);
}

static void a_bound_in_time__the_oldest_go(void **state) {
    (void)state;
    disk d = {0};
    rs_history *h = history_on(&d, SEGMENT * SEGMENTS, 100 * 1000);
    fill(h, 1, 100);
    rs_history_trim(h, 100 * 1000);
    assert_int_equal(rs_history_first(h), 1);
    rs_history_trim(h, 150 * 1000);
    assert_in_range(rs_history_first(h), 37, 51); /* an eighth goes at a time, none before its time */
    assert_int_equal(add_at(h, 2, 2000, UINT64_MAX), RS_OK);
    rs_history_trim(h, 201 * 1000);
    assert_int_equal(rs_history_first(h), 0);
    rs_history_free(h);
    clear(&d);
}

static void no_memory__what_is_there_makes_room_and_nothing_breaks(void **state) {
    (void)state;
    disk d = {0};
    rs_history *h = history_on(&d, SEGMENT * SEGMENTS, 0);
    d.full = true;
    assert_int_equal(add_at(h, 1, 1, UINT64_MAX), RS_ERR_LIMIT);
    d.full = false;
    fill(h, 2, 300);
    d.full = true;
    while (add_at(h, rs_history_last(h) + 1, 1, UINT64_MAX) == RS_OK)
        ;
    d.full = false;
    (void)add_at(h, 1000, 1, UINT64_MAX);
    assert_int_equal(rs_history_last(h), 1000);
    rs_history_free(h);
    clear(&d);
}

static void what_others_have__fills_the_gap(void **state) {
    (void)state;
    disk d = {0};
    rs_history *h = history_on(&d, SEGMENT * SEGMENTS, 0);
    fill(h, 301, 400);
    fill(h, 1, 50);
    assert_int_equal(rs_history_missing(h, 1, 400), 51);
    assert_int_equal(rs_history_missing(h, 301, 400), 0);
    fill(h, 51, 300);
    assert_int_equal(rs_history_missing(h, 1, 400), 0);
    holds(h, 1, 400);
    rs_history_free(h);
    clear(&d);
}

static void cut__nothing_is_behind(void **state) {
    (void)state;
    disk d = {0};
    rs_history *h = history_on(&d, SEGMENT * SEGMENTS, 0);
    fill(h, 1, 400);
    rs_history_cut(h, 123);
    holds(h, 1, 123);
    fill(h, 124, 300);
    holds(h, 1, 300);
    rs_history_cut(h, 0);
    holds(h, 0, 0);
    assert_int_equal(d.taken, 0);
    rs_history_free(h);
}

/* A crash: any of the last bytes are not as they were. What is before them is there. */
static void a_crash__what_is_whole_is_found_again_and_the_rest_is_cut(void **state) {
    uint64_t random = *(const uint64_t *)*state;
    for (uint32_t round = 0; round < 200; round++) {
        disk d = {0};
        rs_history *h = history_on(&d, SEGMENT * SEGMENTS, 0);
        fill(h, 1, 200);
        rs_history_free(h);
        uint32_t which = 0, count = 0;
        while (count < SEGMENTS && d.memory[count])
            count++;
        which = (uint32_t)(rs_random_next(&random) % count);
        size_t at = rs_random_next(&random) % SEGMENT, many = 1 + rs_random_next(&random) % 64;
        uint8_t before[SEGMENT];
        memcpy(before, d.memory[which], SEGMENT);
        for (size_t i = at; i < at + many && i < SEGMENT; i++)
            d.memory[which][i] = (uint8_t)(rs_random_next(&random) >> 40);
        h = history_on(&d, SEGMENT * SEGMENTS, 0);
        rs_history_record r;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t found = rs_history_load(h, d.first[i], d.memory[i], d.bytes[i]);
            uint64_t next = i + 1 < count ? d.first[i + 1] : 201;
            if (i != which)
                assert_int_equal(found, next - d.first[i]);
            if (found == 0) {
                free(d.memory[i]);
                d.memory[i] = NULL;
                continue;
            }
            d.taken += d.bytes[i];
            for (uint64_t number = d.first[i]; number < d.first[i] + found; number++) {
                assert_true(rs_history_find(h, number, &r));
                assert_int_equal(r.number, number);
                assert_int_equal(r.length, number * 37 % 300);
                for (uint32_t k = 0; k < r.length; k++)
                    assert_int_equal(r.bytes[k], (uint8_t)number);
            }
            uint64_t lost = rs_history_missing(h, d.first[i], next - 1); /* and it can be put in again */
            for (; lost && lost < next; lost++)
                assert_int_equal(add_at(h, lost, 1000 * lost, UINT64_MAX), RS_OK);
        }
        rs_history_free(h);
        clear(&d);
    }
}

static void garbage_as_a_record__is_none(void **state) {
    uint64_t random = *(const uint64_t *)*state;
    uint8_t bytes[200];
    rs_history_record r;
    for (uint32_t round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)(rs_random_next(&random) >> 40);
        if (round % 2)
            memcpy(bytes, "\x52\x48\x01", 3);
        assert_int_equal(rs_history_parse(bytes, rs_random_next(&random) % sizeof bytes, &r), 0);
    }
}

int main(void) {
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_in__is_found_by_number_and_by_time),
        cmocka_unit_test(a_bound_in_bytes__the_oldest_go),
        cmocka_unit_test(what_a_program_still_wants__stays_up_to_twice_the_bound),
        cmocka_unit_test(a_bound_in_time__the_oldest_go),
        cmocka_unit_test(no_memory__what_is_there_makes_room_and_nothing_breaks),
        cmocka_unit_test(what_others_have__fills_the_gap),
        cmocka_unit_test(cut__nothing_is_behind),
        cmocka_unit_test_prestate(a_crash__what_is_whole_is_found_again_and_the_rest_is_cut, &seed),
        cmocka_unit_test_prestate(garbage_as_a_record__is_none, &seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
