/* Parts of the engine for wide areas by themselves: its packets, the repair of sections, the memory of all transfers,
 * the start value of the rate. */
#include "check.h"

#include <stdio.h>

#include "core/base/heap.h"
#include "core/base/random.h"
#include "core/wan/congestion.h"
#include "core/wan/memory.h"
#include "core/wan/sections.h"
#include "core/wan/wire.h"

static rs_wan_nack nack_of(uint64_t base, const uint32_t *missing, uint32_t count) {
    rs_wan_nack n = {.base = base + missing[0], .bits = (uint16_t)(missing[count - 1] - missing[0] + 1)};
    for (uint32_t i = 0; i < count; i++)
        n.map[(missing[i] - missing[0]) / 8] |= (uint8_t)(1u << (missing[i] - missing[0]) % 8);
    return n;
}

/* ------------------------------------------------------------------------------------------------------ packets */

static void a_status__comes_back_as_it_was(void **state) {
    const uint32_t some[] = {3, 4, 900}, all[] = {0, 1023};
    rs_wan_status s = {.nonce = 77,
                       .session = 5,
                       .receivers = 1,
                       .next = 4000,
                       .cum = 3,
                       .received = 3990,
                       .repairs = 2,
                       .marked = 1,
                       .dropped = 9,
                       .stamp_us = 123456,
                       .at = 987654321,
                       .waited_us = 50},
                  back;
    s.nack_count = 3;
    s.nacks[0] = nack_of(0, some, 3);
    s.nacks[1] = nack_of(1024, all, 2);
    s.nacks[2] = nack_of(2048, all, 2);
    uint8_t bytes[RS_HEADER_MAX], again[RS_HEADER_MAX];
    size_t length = rs_wan_encode_status(&s, bytes);
    assert_in_range(length, RS_WAN_STATUS_HEADER, RS_HEADER_MAX);
    assert_true(rs_wan_decode_status(bytes, length, &back));
    assert_int_equal(rs_wan_encode_status(&back, again), length);
    assert_memory_equal(bytes, again, length);
    assert_int_equal(back.nacks[2].base, 2048);
    uint64_t nonce;
    assert_true(rs_wire_nonce(bytes, length, &nonce) && nonce == 77);
    for (size_t shorter = 0; shorter < length; shorter++)
        assert_false(rs_wan_decode_status(bytes, shorter, &back));
    (void)state;
}

/* What is taken is what the encoder makes, byte for byte; no number can overflow what it is added to. */
static void garbage__is_refused_or_sane(void **state) {
    const uint32_t some[] = {3, 4, 900};
    rs_wan_status s = {.nonce = 1, .receivers = 1, .next = 4000, .nack_count = 1}, back;
    uint8_t bytes[RS_HEADER_MAX], again[RS_HEADER_MAX], made[RS_HEADER_MAX];
    s.nacks[0] = nack_of(0, some, 3);
    size_t length = rs_wan_encode_status(&s, made), taken = 0;
    uint64_t random = 1;
    for (int round = 0; round < 200000; round++) {
        memcpy(bytes, made, length);
        for (uint64_t flips = 1 + rs_random_next(&random) % 4; flips; flips--)
            bytes[rs_random_next(&random) % length] ^= (uint8_t)(1u << rs_random_next(&random) % 8);
        if (!rs_wan_decode_status(bytes, length, &back))
            continue;
        taken++;
        assert_int_equal(rs_wan_encode_status(&back, again), length);
        assert_memory_equal(bytes, again, length);
        for (uint32_t i = 0; i < back.nack_count; i++)
            assert_in_range(back.nacks[i].base % RS_WAN_SECTION + back.nacks[i].bits, 1, RS_WAN_SECTION);
        assert_true(back.next < UINT64_MAX / 4 + 1 && back.received < UINT64_MAX / 4 + 1);
    }
    assert_true(taken > 1000);
    (void)state;
}

static void the_word_of_a_data_packet__keeps_times_within_an_eighth(void **state) {
    for (rs_time time = 16000; time < INT64_C(20000000000); time = time * 9 / 8 + 1) {
        rs_wan_word word = {.stamp_us = UINT64_C(1) << 39, .grtt = time, .group = 10, .repair = true};
        rs_wan_word back = rs_wan_unpack(rs_wan_pack(&word));
        assert_true(back.grtt >= time && back.grtt <= time + time / 7 + 32000);
        assert_true(back.stamp_us == word.stamp_us && back.group == 16 && back.repair);
    }
    (void)state;
}

/* ------------------------------------------------------------------------------------------------------ sections */

static void start(rs_wan_sections *s, uint32_t receivers, bool coded) {
    assert_true(rs_wan_sections_start(s, &rs_heap, 4 * RS_WAN_SECTION, receivers));
    s->coded = coded;
    s->gather = 100;
}

static uint32_t mend_all(rs_wan_sections *s, rs_time now, uint32_t *unicast) {
    rs_wan_mend m;
    uint32_t count = 0;
    for (*unicast = 0; rs_wan_sections_mend(s, &rs_heap, now, &m); count++)
        *unicast += m.unicast;
    return count;
}

/* NACKs that were merged on their way come late: by then what they name may be under way to all. */
static void what_went_for_all__does_not_go_again_within_a_round_trip(void **state) {
    rs_wan_sections s;
    start(&s, 3, false);
    assert_true(rs_wan_sections_merge(&s, &rs_heap));
    s.moot = 1000;
    const uint32_t early[] = {5, 6}, late[] = {6, 7};
    uint32_t unicast;
    rs_wan_nack n = nack_of(RS_WAN_SECTION, early, 2);
    assert_true(rs_wan_sections_nack(&s, &rs_heap, 0, 0, &n));
    assert_int_equal(mend_all(&s, 100, &unicast), 2);
    assert_int_equal(unicast, 0); /* though one alone has said it */
    n = nack_of(RS_WAN_SECTION, late, 2);
    assert_true(rs_wan_sections_nack(&s, &rs_heap, 200, 1, &n));
    assert_int_equal(mend_all(&s, 300, &unicast), 1); /* 7 */
    n = nack_of(RS_WAN_SECTION, early, 2);
    assert_true(rs_wan_sections_nack(&s, &rs_heap, 400, 2, &n));
    assert_true(rs_wan_sections_due(&s, 400) == RS_NEVER);
    assert_true(rs_wan_sections_nack(&s, &rs_heap, 1300, 2, &n)); /* those are lost */
    assert_int_equal(mend_all(&s, 1400, &unicast), 2);
    rs_wan_sections_free(&s, &rs_heap);
    (void)state;
}

static void what_all_miss__is_repaired_once_by_multicast(void **state) {
    rs_wan_sections s;
    start(&s, 10, false);
    const uint32_t missing[] = {5, 6, 700};
    uint32_t unicast;
    for (uint32_t r = 0; r < 10; r++) {
        rs_wan_nack n = nack_of(RS_WAN_SECTION, missing, 3);
        assert_true(rs_wan_sections_nack(&s, &rs_heap, r, r, &n));
        assert_int_equal(mend_all(&s, 99, &unicast), 0); /* NACKs are gathered */
    }
    assert_int_equal(rs_wan_sections_due(&s, 99), 100);
    assert_int_equal(mend_all(&s, 100, &unicast), 3);
    assert_int_equal(unicast, 0);
    assert_int_equal(rs_wan_sections_due(&s, 200), RS_NEVER);
    rs_wan_sections_free(&s, &rs_heap);
    (void)state;
}

static void what_each_misses_alone__goes_by_unicast_or_is_combined(void **state) {
    for (int coded = 0; coded < 2; coded++) {
        rs_wan_sections s;
        start(&s, 10, coded);
        uint32_t unicast;
        for (uint32_t r = 0; r < 10; r++) {
            const uint32_t missing[] = {r, 100 + r};
            rs_wan_nack n = nack_of(0, missing, 2);
            assert_true(rs_wan_sections_nack(&s, &rs_heap, 0, r, &n));
        }
        uint32_t packets = mend_all(&s, 100, &unicast);
        assert_int_equal(packets, coded ? 2 : 20);
        assert_int_equal(unicast, coded ? 0 : 20);
        rs_wan_sections_free(&s, &rs_heap);
    }
    (void)state;
}

/* Of a combined repair nobody may miss two, whatever was lost where. */
static void random_losses__every_receiver_can_use_what_it_misses(void **state) {
    uint64_t random = 3;
    for (uint32_t receivers = 2; receivers <= 200; receivers += 33) {
        rs_wan_sections s;
        start(&s, receivers, true);
        bool(*misses)[RS_WAN_SECTION] = calloc(receivers, sizeof *misses);
        for (uint32_t r = 0; r < receivers; r++) {
            uint32_t missing[RS_WAN_SECTION], count = 0;
            for (uint32_t i = 0; i < RS_WAN_SECTION; i++)
                if ((misses[r][i] = rs_random_next(&random) % 100 == 0))
                    missing[count++] = i;
            if (count) {
                rs_wan_nack n = nack_of(0, missing, count);
                assert_true(rs_wan_sections_nack(&s, &rs_heap, 0, r, &n));
            }
        }
        rs_wan_mend m;
        while (rs_wan_sections_mend(&s, &rs_heap, 100, &m))
            for (uint32_t r = 0; r < receivers; r++) {
                uint32_t lacks = 0;
                for (uint32_t i = 0; i < m.count; i++)
                    lacks += misses[r][m.member[i]];
                assert_true(lacks <= 1);
                for (uint32_t i = 0; i < m.count; i++)
                    misses[r][m.member[i]] = false;
            }
        for (uint32_t r = 0; r < receivers; r++)
            for (uint32_t i = 0; i < RS_WAN_SECTION; i++)
                assert_false(misses[r][i]);
        free(misses);
        rs_wan_sections_free(&s, &rs_heap);
    }
    (void)state;
}

/* -------------------------------------------------------------------------------------------------------- memory */

static void transfers_with_other_needs__share_one_bound(void **state) {
    rs_wan_pool pool = {.bound = 1000000};
    rs_wan_user users[4];
    uint64_t random = 1, got[4] = {0};
    for (int i = 0; i < 4; i++)
        rs_wan_pool_join(&pool, &users[i], 10000);
    for (int i = 0; i < 4; i++)
        rs_wan_pool_need(&users[i], UINT64_C(300000) * (uint64_t)(i + 1)); /* three times what there is */
    for (int round = 0; round < 100000; round++) {
        rs_wan_user *u = &users[rs_random_next(&random) % 4];
        if (rs_random_next(&random) % 3)
            got[u - users] += rs_wan_pool_take(u, 1000);
        else
            rs_wan_pool_give(u, 1000);
        assert_true(pool.used <= pool.bound && pool.used_most <= pool.bound);
        assert_true(u->used <= rs_wan_pool_share(u));
    }
    for (int i = 0; i < 4; i++)
        assert_true(got[i] > 100); /* nobody starves */
    assert_true(rs_wan_pool_share(&users[3]) > 3 * rs_wan_pool_share(&users[0]));
    for (int i = 1; i < 4; i++)
        rs_wan_pool_leave(&users[i]);
    assert_int_equal(rs_wan_pool_share(&users[0]), pool.bound); /* what others left is its own */
    rs_wan_pool_leave(&users[0]);
    assert_int_equal(pool.used, 0);
    (void)state;
}

/* ---------------------------------------------------------------------------------------------------------- rate */

static void the_first_rate__falls_with_the_tree(void **state) {
    const rs_time rtt = 100000000;
    int64_t one = rs_wan_first_rate(rtt, 1, 0, 0);
    assert_in_range(one, 39999999, 40000001);
    assert_in_range(rs_wan_first_rate(rtt / 10, 1, 0, 0), 209000000, 210000000); /* 256 KiB in a round trip */
    assert_in_range(rs_wan_first_rate(rtt * 4, 1, 0, 0), 20900000, 21000000);    /* 1 MiB in a round trip */
    assert_in_range(rs_wan_first_rate(rtt, 10, 0, 0), (int64_t)((double)one / 6.4), (int64_t)((double)one / 6.2));
    /* A tree that is known counts as it is: nine links of its own behind one that all share, paths of two. */
    assert_in_range(rs_wan_first_rate(rtt, 9, 10, 2), one / 5 - 1, one / 5 + 1);
    assert_true(rs_wan_first_rate(rtt * 1000, 10000, 0, 0) >= 1000000);
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status__comes_back_as_it_was),
        cmocka_unit_test(garbage__is_refused_or_sane),
        cmocka_unit_test(the_word_of_a_data_packet__keeps_times_within_an_eighth),
        cmocka_unit_test(what_went_for_all__does_not_go_again_within_a_round_trip),
        cmocka_unit_test(what_all_miss__is_repaired_once_by_multicast),
        cmocka_unit_test(what_each_misses_alone__goes_by_unicast_or_is_combined),
        cmocka_unit_test(random_losses__every_receiver_can_use_what_it_misses),
        cmocka_unit_test(transfers_with_other_needs__share_one_bound),
        cmocka_unit_test(the_first_rate__falls_with_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
