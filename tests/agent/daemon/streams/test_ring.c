/* Fragments of a continuing stream: what is sealed is opened, what was changed or belongs elsewhere is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/streams/ring.h"

#define FRAGMENT 200u
#define SLOTS 8u

static rs_stream_ring ring;

static int setup(void **state) {
    (void)state;
    return rs_stream_ring_make(&ring, FRAGMENT, SLOTS) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    rs_stream_ring_free(&ring);
    return 0;
}

static void fill(uint64_t sn, uint32_t used) {
    memset(rs_stream_ring_at(&ring, sn), 0xa5, FRAGMENT);
    for (uint32_t i = 0; i < used; i++)
        rs_stream_ring_at(&ring, sn)[RS_STREAM_HEAD + i] = (uint8_t)(sn + i);
    rs_stream_ring_seal(&ring, sn, used);
}

static void sealed__opens_with_its_bytes(void **state) {
    (void)state;
    const uint32_t sizes[] = {0, 1, 100, FRAGMENT - RS_STREAM_HEAD};
    for (uint64_t sn = 0; sn < 4; sn++) {
        fill(sn, sizes[sn]);
        assert_int_equal(rs_stream_ring_open(&ring, sn, FRAGMENT), sizes[sn]);
        const uint8_t *at = rs_stream_ring_at(&ring, sn) + RS_STREAM_HEAD;
        for (uint32_t i = 0; i < rs_stream_ring_room(&ring); i++) /* nothing of what lay there before goes out */
            assert_int_equal(at[i], i < sizes[sn] ? (uint8_t)(sn + i) : 0);
    }
    fill(4, 10); /* the last fragment is as long as it must be */
    assert_int_equal(rs_stream_ring_open(&ring, 4, RS_STREAM_HEAD + 10), 10);
    assert_int_equal(rs_stream_ring_open(&ring, 4, RS_STREAM_HEAD + 9), -1);
}

static void changed__does_not_open(void **state) {
    (void)state;
    for (uint32_t i = 0; i < RS_STREAM_HEAD + 50; i++)
        for (int bit = 0; bit < 8; bit++) {
            fill(3, 50);
            rs_stream_ring_at(&ring, 3)[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(rs_stream_ring_open(&ring, 3, FRAGMENT), -1);
        }
}

static void of_another_round__does_not_open(void **state) {
    (void)state;
    fill(3, 50);
    assert_int_equal(rs_stream_ring_open(&ring, 3 + SLOTS, FRAGMENT), -1);
    assert_int_equal(rs_stream_ring_open(&ring, 3, 0), -1);
    assert_int_equal(rs_stream_ring_open(&ring, 3, RS_STREAM_HEAD - 1), -1);
    assert_int_equal(rs_stream_ring_open(&ring, 3, FRAGMENT + 1), -1);
}

static void odd_sizes__are_refused(void **state) {
    (void)state;
    rs_stream_ring other = {0};
    assert_false(rs_stream_ring_make(&other, RS_STREAM_HEAD, SLOTS));
    assert_false(rs_stream_ring_make(&other, 70000, SLOTS));
    assert_false(rs_stream_ring_make(&other, FRAGMENT, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sealed__opens_with_its_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(changed__does_not_open, setup, teardown),
        cmocka_unit_test_setup_teardown(of_another_round__does_not_open, setup, teardown),
        cmocka_unit_test(odd_sizes__are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
