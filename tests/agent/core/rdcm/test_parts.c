/* The parts of RDCM's engine by themselves: sets of sequence numbers, BIC, times of passing, acknowledgements. */
#include "check.h"

#include <stdio.h>

#include "core/base/wire.h"
#include "core/rate/bic.h"
#include "core/rdcm/losses.h"
#include "core/rdcm/passes.h"
#include "core/rdcm/set.h"
#include "core/rdcm/wire.h"

static uint64_t random_state;

static uint64_t below(uint64_t bound) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

/* ----------------------------------------------------------------------------------------------------------- sets */

#define SNS 2000

/* Whatever is put in, one by one, by words, from below: the set says what a plain array does, as far as its window
 * goes. */
static void set__says_what_an_array_does(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t words[8] = {0};
        bool in[SNS] = {false};
        rs_rdcm_set set;
        random_state = seed * 7919;
        bool plain = seed % 4 == 0;
        uint64_t bitmap[SNS / 64 + 1] = {0};
        rs_rdcm_set_init(&set, SNS - 3, plain ? bitmap : words, plain ? 0 : 8);
        for (int step = 0; step < 600; step++) {
            uint64_t sn = set.cum + below(plain ? 900 : 500);
            uint64_t what = below(10);
            if (what < 8) {
                bool fits = rs_rdcm_set_fits(&set, sn), fresh = fits && sn < SNS - 3 && !in[sn];
                assert_int_equal(rs_rdcm_set_add(&set, sn), fresh);
                if (fresh)
                    in[sn] = true;
            } else if (what == 8 && !plain) {
                uint64_t index = sn / 64, bits = below(UINT64_MAX), expected = 0;
                for (uint64_t i = 0; i < 64; i++) {
                    uint64_t one = index * 64 + i;
                    bool room = one < SNS - 3 && index >= set.cum / 64 && index - set.cum / 64 <= 7 && one >= set.cum;
                    if ((bits >> i & 1) && room && !in[one]) {
                        in[one] = true;
                        expected |= UINT64_C(1) << i;
                    }
                }
                assert_true(rs_rdcm_set_or(&set, index, bits) == expected);
                rs_rdcm_set_settle(&set);
            } else if (what == 9 && !plain) {
                uint64_t to = set.cum + below(40);
                for (uint64_t i = 0; i < to && i < SNS - 3; i++)
                    in[i] = true;
                rs_rdcm_set_raise(&set, to);
            }
            uint64_t cum = 0, top = 0;
            while (cum < SNS - 3 && in[cum])
                cum++;
            for (uint64_t i = 0; i < SNS - 3; i++)
                top = in[i] ? i + 1 : top;
            assert_int_equal(set.cum, cum);
            assert_int_equal(set.top, top);
        }
        for (uint64_t i = 0; i < SNS - 3; i++) {
            assert_int_equal(rs_rdcm_set_has(&set, i), in[i]);
            if (i / 64 >= set.cum / 64 && (plain || i / 64 - set.cum / 64 < 8))
                assert_int_equal(rs_rdcm_set_word(&set, i / 64) >> (i % 64) & 1, in[i]);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ BIC */

static uint32_t windows_until(rs_bic *bic, uint32_t window) {
    uint32_t rounds = 0;
    for (; bic->window < window; rounds++)
        for (uint32_t i = bic->window; i > 0; i--)
            rs_bic_packet(bic);
    return rounds;
}

static void bic__starts_slowly_and_doubles(void **state) {
    (void)state;
    rs_bic bic;
    rs_bic_start(&bic, 100000);
    assert_int_equal(bic.window, RS_BIC_FIRST);
    assert_int_equal(windows_until(&bic, 1024), 6);
    rs_bic_start(&bic, 50);
    windows_until(&bic, 50);
    rs_bic_packet(&bic);
    assert_int_equal(bic.window, 50); /* what the socket takes */
}

/* The parameters of protocols.md: at a loss to 819/1024, half below 14; then at most 16 a window, less the nearer to
 * where it was; beyond it, slowly at first. */
static void bic__searches_for_where_it_was(void **state) {
    (void)state;
    rs_bic bic;
    rs_bic_start(&bic, 100000);
    windows_until(&bic, 1000);
    uint32_t most = bic.window;
    rs_bic_loss(&bic);
    assert_int_equal(bic.window, most * 819 / 1024);
    uint32_t before = bic.window, step, last = 16;
    while (bic.window + 8 < most) {
        for (uint32_t i = bic.window; i > 0; i--)
            rs_bic_packet(&bic);
        step = bic.window - before;
        assert_in_range(step, 1, 17);
        assert_true(step <= last + 1); /* it slows down */
        last = step;
        before = bic.window;
    }
    uint32_t near = windows_until(&bic, most + 2);
    assert_true(near >= 20); /* it stays where packets were lost for a while... */
    before = bic.window;
    assert_true(windows_until(&bic, most + 200) < 40); /* ...and then looks further */
}

static void bic__small_windows_halve_and_losses_in_a_row_make_room(void **state) {
    (void)state;
    rs_bic bic;
    rs_bic_start(&bic, 12);
    rs_bic_loss(&bic);
    assert_int_equal(bic.window, 6);
    for (int i = 0; i < 5; i++)
        rs_bic_loss(&bic);
    assert_int_equal(bic.window, 2);
    rs_bic_start(&bic, 1000);
    windows_until(&bic, 500);
    rs_bic_loss(&bic);
    uint32_t window = bic.window;
    rs_bic_loss(&bic); /* fast convergence: below the last maximum */
    assert_int_equal(bic.last_max, window * (1024 + 819) / 2048);
}

/* A window that holds the sender, of whose packets some are lost: always, or where it is larger than the path. Returns
 * the mean window of the second half. */
static double window_on(double loss, uint32_t path, rs_losses *l, uint64_t *seed) {
    rs_bic bic;
    double sum = 0;
    rs_bic_start(&bic, 4000);
    *l = (rs_losses){0};
    for (uint64_t sn = 0; sn < 400000; sn++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        double dice = (double)(*seed >> 11) / 9007199254740992.0;
        if (dice < loss || (bic.window > path && dice < 0.2))
            rs_losses_lost(l, &bic, sn, sn + 1, sn + 1 + bic.window, true);
        if (!rs_losses_passed(l, &bic, sn + 1) && !l->trial_packets)
            rs_bic_packet(&bic);
        assert_in_range(bic.window, 2, 4000);
        sum += sn >= 200000 ? bic.window : 0;
    }
    return sum / 200000;
}

static void losses__half_the_window_tells_which_are_usual(void **state) {
    (void)state;
    rs_losses l;
    uint64_t seed = 1;
    for (int run = 0; run < 5; run++) {
        double of_the_path = window_on(0, 300, &l, &seed);
        assert_true(of_the_path > 200 && of_the_path < 301);
        assert_int_equal(l.usual.gaps, 0);
        double rare = window_on(0.002, UINT32_MAX, &l, &seed);
        assert_true(l.usual.gaps > 0 && rare > 1000);
        double many = window_on(0.05, UINT32_MAX, &l, &seed);
        double share = (double)l.usual.lost / (double)l.usual.sent;
        assert_true(share > 0.03 && share < 0.07 && many > 200);
        double both = window_on(0.01, 300, &l, &seed);
        assert_true(both > 150 && both < 310);
        double too_many = window_on(0.3, UINT32_MAX, &l, &seed); /* that is congestion, whatever half a window shows */
        assert_true(too_many < 10);
        printf("windows: %.0f of a path for 300, %.0f at 0.2 %% loss, %.0f at 5 %%, %.0f on a path with 1 %%\n",
               of_the_path, rare, many, both);
    }
}

/* -------------------------------------------------------------------------------------------------------- passing */

static void passes__tell_time_within_a_grain(void **state) {
    (void)state;
    rs_passes p = {0};
    assert_int_equal(rs_passes_by(&p, 100), 0);
    assert_true(rs_passes_when(&p, 0) == RS_NEVER);
    for (rs_time now = 1000; now <= 5000; now++) /* packet n passes at 1000 + n */
        rs_passes_note(&p, now, (uint64_t)(now - 1000) + 1, 50);
    for (uint64_t sn = 3000; sn <= 4000; sn += 7)
        assert_in_range(rs_passes_when(&p, sn), 1000 + sn, 1000 + sn + 50); /* never too early */
    assert_true(rs_passes_when(&p, 4001) == RS_NEVER);
    assert_true(rs_passes_when(&p, 10) == INT64_MIN); /* forgotten: long ago */
    for (rs_time at = 3500; at < 5000; at += 13) {
        uint64_t top = rs_passes_by(&p, at);
        assert_in_range(top, (uint64_t)(at - 1000 - 60), (uint64_t)(at - 1000 + 1));
    }
}

/* ----------------------------------------------------------------------------------------------- acknowledgements */

static void ack__round_trip_and_golden_bytes(void **state) {
    (void)state;
    rs_ack ack = {.flags = RS_ACK_TO_PREDECESSOR,
                  .nonce = 0x1122,
                  .version = 4,
                  .cum = 0x500,
                  .settled = 0x500 + 0x201,
                  .expected = 0x700,
                  .base = 0x500,
                  .words = 2,
                  .map = {0xfe, UINT64_C(1) << 63}};
    uint8_t bytes[RS_ACK_HEADER + 8 * RS_ACK_WORDS];
    rs_ack other;
    size_t length = rs_ack_encode(&ack, bytes);
    assert_int_equal(length, 72);
    const uint8_t start[] = {0x52, 0x41, 2, 1, 2, 0, 1, 2, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 5};
    assert_memory_equal(bytes, start, sizeof start);
    const uint8_t end[] = {1, 0, 0, 0, 1, 0, 0, 0, 0xfe}; /* one receiver, engine */
    assert_memory_equal(bytes + 48, end, sizeof end);
    memset(&other, 0, sizeof other);
    assert_true(rs_ack_decode(bytes, length, &other));
    assert_memory_equal(&other, &ack, sizeof ack);
    size_t header;
    assert_int_equal(rs_wire_datagram(bytes, length, &header), 1);
    assert_int_equal(header, length);
}

static void ack__contradictions_are_refused(void **state) {
    (void)state;
    const rs_ack ack = {.flags = RS_ACK_TO_PARENT, .words = 1, .cum = 64, .base = 64, .map = {2}};
    uint8_t good[RS_ACK_HEADER + 8], bytes[RS_ACK_HEADER + 9];
    rs_ack other;
    size_t length = rs_ack_encode(&ack, good);
    struct {
        size_t at;
        uint8_t value;
    } changes[] = {{0, 0},         {2, 1},  {3, 0},         {3, 32}, {4, 2},  {4, 0}, {5, 1},
                   {24 + 7, 0x80}, {40, 1}, {40 + 7, 0x80}, {48, 2}, {52, 0}, {53, 1}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bytes, good, length);
        bytes[changes[i].at] = changes[i].value;
        assert_false(rs_ack_decode(bytes, length, &other));
    }
    memcpy(bytes, good, length);
    assert_true(rs_ack_decode(bytes, length, &other));
    assert_false(rs_ack_decode(bytes, length - 1, &other));
    assert_false(rs_ack_decode(bytes, length + 1, &other));
    size_t header;
    assert_int_equal(rs_wire_datagram((const uint8_t *)"GET ", 4, &header), -1);
    assert_int_equal(rs_wire_datagram((const uint8_t *)"RS", 2, &header), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set__says_what_an_array_does),
        cmocka_unit_test(bic__starts_slowly_and_doubles),
        cmocka_unit_test(bic__searches_for_where_it_was),
        cmocka_unit_test(bic__small_windows_halve_and_losses_in_a_row_make_room),
        cmocka_unit_test(losses__half_the_window_tells_which_are_usual),
        cmocka_unit_test(passes__tell_time_within_a_grain),
        cmocka_unit_test(ack__round_trip_and_golden_bytes),
        cmocka_unit_test(ack__contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
