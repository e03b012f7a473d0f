/* What goes of an object's end before anybody asks: XORs that mend what was lost of it, of losses one by one and in
 * bursts. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"
#include "core/base/wire.h"
#include "core/wan/tail.h"

#define MOST 20000u

typedef struct {
    uint64_t random;
    double lost;    /* share */
    uint32_t burst; /* lost in a row, in the mean */
    bool losing;
} path;

static bool loses(path *p) {
    double ends = 1.0 / p->burst, begins = p->lost * ends / (1 - p->lost);
    double drawn = rs_random_part(rs_random_next(&p->random));
    p->losing = p->burst == 1 ? drawn < p->lost : drawn < (p->losing ? 1 - ends : begins);
    return p->losing;
}

/* How much a receiver still misses that takes from each XOR the one it misses, and how many packets that took. */
static uint32_t missing_after(uint32_t count, double lost, uint32_t burst, uint64_t seed, uint32_t *packets) {
    static bool has[MOST];
    const uint64_t first = 1000;
    path p = {.random = seed, .lost = lost, .burst = burst};
    for (uint32_t i = 0; i < count; i++)
        has[i] = !loses(&p);
    rs_wan_tail tail;
    uint64_t member[RS_COMBINE_MAX];
    rs_wan_tail_begin(&tail, first, first + count, lost);
    *packets = 0;
    for (uint32_t members; (members = rs_wan_tail_next(&tail, member)) > 0; ++*packets) {
        uint32_t missing = 0, which = 0;
        for (uint32_t i = 0; i < members; i++) {
            assert_in_range(member[i], first, first + count - 1);
            assert_true(i == 0 || member[i] > member[i - 1]);
            missing += !has[member[i] - first];
            which = has[member[i] - first] ? which : (uint32_t)(member[i] - first);
        }
        if (!loses(&p) && missing == 1)
            has[which] = true;
    }
    assert_false(rs_wan_tail_left(&tail));
    uint32_t missing = 0;
    for (uint32_t i = 0; i < count; i++)
        missing += !has[i];
    return missing;
}

static void what_is_lost__is_mended_by_them(void **state) {
    const struct {
        uint32_t count;
        double lost;
        uint32_t burst;
        double whole, costs; /* so often nothing is missing in the end, at that part of the packets at most */
    } cases[] = {
        {4000, 0, 1, 1, 0.11},       {4000, 0.003, 1, 0.95, 0.11},  {4000, 0.01, 1, 0.95, 0.17},
        {4000, 0.01, 10, 0.9, 0.17}, {4000, 0.05, 1, 0.9, 0.6},     {1500, 0.01, 10, 0.95, 0.17},
        {20000, 0.01, 1, 0.9, 0.17}, {20000, 0.01, 10, 0.95, 0.17}, {100, 0.01, 1, 0.95, 0.4},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t whole = 0, packets = 0, missing = 0;
        for (uint64_t seed = 1; seed <= 200; seed++) {
            uint32_t misses = missing_after(cases[i].count, cases[i].lost, cases[i].burst, seed, &packets);
            whole += misses == 0;
            missing += misses;
        }
        printf("%u, %.3f lost in bursts of %u: seeds 1 to 200: whole %.3f, missing %.2f, packets %.3f\n",
               cases[i].count, cases[i].lost, cases[i].burst, whole / 200.0, missing / 200.0,
               (double)packets / cases[i].count);
        assert_true(whole >= 200 * cases[i].whole);
        assert_true(packets <= cases[i].costs * cases[i].count);
    }
    (void)state;
}

/* A repair packet can say them; each pass has every fragment once; two that one pass has together no other has. */
static void passes__have_all_in_other_company(void **state) {
    const uint32_t counts[] = {1, 2, 3, 12, 100, 361, 3000, MOST};
    const double losses[] = {0, 0.01, 0.05, 0.3};
    static uint8_t seen[MOST];
    for (uint32_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint32_t l = 0; l < sizeof losses / sizeof *losses; l++) {
            rs_wan_tail tail;
            rs_repair_header h = {.engine = RS_PROTOCOL_WAN, .number = 1}, back;
            uint8_t bytes[RS_REPAIR_HEADER];
            memset(seen, 0, sizeof seen);
            rs_wan_tail_begin(&tail, 7, 7 + counts[c], losses[l]);
            while ((h.count = rs_wan_tail_next(&tail, h.member)) > 0) {
                rs_wire_encode_repair(&h, bytes);
                assert_true(rs_wire_decode_repair(bytes, sizeof bytes, &back));
                assert_memory_equal(back.member, h.member, h.count * sizeof h.member[0]);
                for (uint32_t i = 0; i < h.count; i++)
                    seen[h.member[i] - 7]++;
            }
            for (uint32_t i = 0; i + 1 < counts[c]; i++)
                assert_int_equal(seen[i], tail.passes);
        }
    (void)state;
}

/* Of a few fragments: as many XORs as that takes, and not the last one over and over. */
static void few__cost_few(void **state) {
    const uint32_t most[] = {0, 2, 4, 6, 6, 8, 8, 10, 10};
    for (uint32_t count = 1; count < sizeof most / sizeof *most; count++) {
        uint32_t packets = 0, whole = 0;
        for (uint64_t seed = 1; seed <= 200; seed++)
            whole += missing_after(count, 0.02, 1, seed, &packets) == 0;
        printf("%u fragments, 0.02 lost: seeds 1 to 200: whole %.3f, %u packets\n", count, whole / 200.0, packets);
        assert_int_equal(packets, most[count]);
        assert_true(whole >= 196);
    }
    rs_wan_tail tail;
    rs_wan_tail_begin(&tail, 5, 5, 0.01);
    assert_false(rs_wan_tail_left(&tail));
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_lost__is_mended_by_them),
        cmocka_unit_test(passes__have_all_in_other_company),
        cmocka_unit_test(few__cost_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
