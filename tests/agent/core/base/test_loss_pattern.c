/* Patterns of losses (agent/core/base/loss_pattern.c): the same wherever they are made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/base/loss_pattern.h"
#include "core/base/wire.h"

#define FRAGMENTS 100000u

/* Fixed vectors: another build, machine or language must find these too. */
static void pattern__is_fixed(void **state) {
    (void)state;
    assert_int_equal(rs_server_seed(1, "h0-0-1"), UINT64_C(0x5a3409ba0a88239b));
    assert_int_equal(rs_server_seed(0, ""), UINT64_C(0xcbf29ce484222325));
    const struct {
        uint32_t run;
        uint64_t sn[8];
    } cases[] = {{1, {229, 239, 394, 454, 591, 594, 597, 749}}, {5, {229, 230, 231, 232, 233, 591, 592, 593}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_loss_pattern pattern = rs_loss_pattern_of(rs_server_seed(1, "h0-0-1"), 0.01, cases[i].run);
        unsigned found = 0;
        for (uint64_t sn = 0; found < 8; sn++)
            if (rs_loss_pattern_has(&pattern, sn))
                assert_int_equal(sn, cases[i].sn[found++]);
    }
}

static void pattern__has_the_share_and_runs_asked_for(void **state) {
    (void)state;
    const struct {
        double share;
        uint32_t run;
    } cases[] = {{0.01, 1}, {0.01, 5}, {0.2, 8}, {0, 3}, {1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_loss_pattern pattern = rs_loss_pattern_of(7, cases[i].share, cases[i].run);
        unsigned lost = 0, run = 0;
        for (uint64_t sn = 0; sn < FRAGMENTS; sn++) {
            bool has = rs_loss_pattern_has(&pattern, sn);
            lost += has;
            if (!has && run)
                assert_true(run >= cases[i].run);
            run = has ? run + 1 : 0;
        }
        double share = (double)lost / FRAGMENTS;
        if (share < 0.85 * cases[i].share || share > 1.15 * cases[i].share)
            fail_msg("%g in runs of %u: %g lost", cases[i].share, cases[i].run, share);
    }
}

static bool loses(rs_loss_pattern *pattern, uint64_t object, uint64_t sn) {
    const rs_data_header header = {.session = 1, .nonce = object, .sn = sn};
    uint8_t bytes[RS_DATA_HEADER];
    rs_wire_encode_data(&header, bytes);
    return rs_loss_pattern_loses(pattern, bytes, sizeof bytes);
}

static void first_copies__are_lost_and_repeated_ones_pass(void **state) {
    (void)state;
    rs_loss_pattern pattern = rs_loss_pattern_of(3, 0.1, 2);
    for (uint64_t object = 1; object <= 2; object++) {
        uint64_t before = pattern.lost, lost = 0;
        for (uint64_t sn = 100; sn < 2000; sn++) {
            bool has = rs_loss_pattern_has(&pattern, sn);
            lost += has;
            assert_int_equal(loses(&pattern, object, sn), has);
        }
        for (uint64_t sn = 0; sn < 2000; sn++)
            assert_false(loses(&pattern, object, sn));
        assert_true(lost > 0);
        assert_int_equal(pattern.lost - before, lost);
    }
}

static void data_packets_of_messages__are_lost_as_they_come(void **state) {
    (void)state;
    for (uint8_t kind = 1; kind <= 16; kind++) { /* 1: of a group; 16: of a region (core/groups/wire.h) */
        rs_loss_pattern pattern = rs_loss_pattern_of(5, 0.1, 3);
        const uint8_t packet[RS_DATA_HEADER] = {0x47, 0x52, 2, kind};
        uint64_t lost = 0;
        for (uint64_t n = 0; n < 1000; n++) {
            bool has = (kind == 1 || kind == 16) && rs_loss_pattern_has(&pattern, n);
            assert_int_equal(rs_loss_pattern_loses(&pattern, packet, n % 2 ? sizeof packet : 4), has);
            lost += has;
        }
        assert_int_equal(pattern.lost, lost);
        assert_int_equal(lost > 50, kind == 1 || kind == 16);
        assert_false(rs_loss_pattern_loses(&pattern, packet, 3));
    }
}

static void other_packets__pass(void **state) {
    (void)state;
    rs_loss_pattern pattern = rs_loss_pattern_of(3, 1, 1);
    const rs_repair_header repair = {.session = 1, .nonce = 1, .number = 1, .mark = true};
    uint8_t bytes[RS_REPAIR_HEADER] = {0};
    rs_wire_encode_repair(&repair, bytes);
    assert_false(rs_loss_pattern_loses(&pattern, bytes, sizeof bytes));
    assert_false(rs_loss_pattern_loses(&pattern, bytes, 3));
    assert_true(loses(&pattern, 1, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pattern__is_fixed),
        cmocka_unit_test(pattern__has_the_share_and_runs_asked_for),
        cmocka_unit_test(first_copies__are_lost_and_repeated_ones_pass),
        cmocka_unit_test(data_packets_of_messages__are_lost_as_they_come),
        cmocka_unit_test(other_packets__pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
