/* Repair packets between core and packet I/O (data/combine.c, repairs.c): what is made of the pieces gives the
 * one that is missing, and packets keep their order and their bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

#include "daemon/data/combine.h"
#include "daemon/data/repairs.h"
#include "io/guard.h"

#define PIECE 9003u /* no multiple of anything */
#define PIECES RS_COMBINE_MAX
#define LAST 70u /* bytes of the object's last piece */
#define SIZE (((PIECES - 1) * PIECE) + LAST)

static uint8_t object[SIZE];

static void fill(void) {
    uint32_t state = 1;
    for (size_t i = 0; i < SIZE; i++) {
        state = state * 1664525 + 1013904223;
        object[i] = (uint8_t)(state >> 24);
    }
}

static rs_combine pieces(uint32_t count, uint32_t first) {
    rs_combine c = {.count = count};
    for (uint32_t i = 0; i < count; i++) {
        c.offset[i] = (uint64_t)(first + i) * PIECE;
        c.length[i] = first + i == PIECES - 1 ? LAST : PIECE;
    }
    return c;
}

/* As the core plans it: the others, as far as the missing one reaches. */
static rs_combine without(const rs_combine *all, uint32_t missing) {
    rs_combine others = {0};
    for (uint32_t i = 0; i < all->count; i++) {
        if (i == missing)
            continue;
        others.offset[others.count] = all->offset[i];
        others.length[others.count++] = all->length[i] < all->length[missing] ? all->length[i] : all->length[missing];
    }
    return others;
}

static void combine__gives_the_missing_one(void **state) {
    (void)state;
    static uint8_t payload[PIECE], got[PIECE];
    fill();
    assert_true(rs_guard_start());
    for (uint32_t count = 2; count <= PIECES; count++) {
        rs_combine all = pieces(count, PIECES - count); /* the short one is always in it */
        assert_true(rs_combine_make(payload, PIECE, object, &all));
        for (uint32_t missing = 0; missing < count; missing++) {
            rs_combine others = without(&all, missing);
            memcpy(got, payload, all.length[missing]);
            rs_combine_xor(got, all.length[missing], object, &others);
            assert_memory_equal(got, object + all.offset[missing], all.length[missing]);
        }
    }
    rs_guard_stop();
}

static void combine__shortened_file_is_told(void **state) {
    (void)state;
    static uint8_t payload[PIECE];
    int fd = memfd_create("object", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, SIZE), 0);
    uint8_t *map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    rs_combine all = pieces(5, 3);
    assert_true(rs_guard_start());
    assert_true(rs_combine_make(payload, PIECE, map, &all));
    assert_int_equal(ftruncate(fd, 10), 0);
    assert_false(rs_combine_make(payload, PIECE, map, &all));
    assert_false(rs_combine_make(payload, PIECE, map, &all));
    rs_guard_stop();
    munmap(map, SIZE);
    close(fd);
}

static void repairs__in_order_and_bounded(void **state) {
    (void)state;
    rs_repairs *repairs = rs_repairs_new();
    rs_repair_packet packet;
    uint8_t header[RS_DATA_HEADER];
    assert_non_null(repairs);
    assert_false(rs_repairs_next(repairs, &packet));
    for (unsigned round = 0; round < 3; round++) {
        unsigned taken = 0;
        for (uint8_t *room; memset(header, (int)taken, sizeof header), (room = rs_repairs_take(repairs, 7, header, 26));
             taken++)
            memset(room, (int)taken + 1, 26);
        assert_in_range(taken, 64, 1024);
        for (unsigned i = 0; i < taken; i++) {
            assert_true(rs_repairs_next(repairs, &packet));
            assert_int_equal(packet.group, 7);
            assert_int_equal(packet.header[0], (uint8_t)i);
            assert_int_equal(packet.header[RS_DATA_HEADER - 1], (uint8_t)i);
            assert_int_equal(packet.header[RS_DATA_HEADER], (uint8_t)(i + 1));
            assert_int_equal(packet.payload_length, 10);
            assert_int_equal(packet.payload[9], (uint8_t)(i + 1));
        }
        assert_false(rs_repairs_next(repairs, &packet));
    }
    assert_null(rs_repairs_take(repairs, 7, header, RS_REPAIR_HEADER - RS_DATA_HEADER - 1)); /* no whole header */
    assert_null(rs_repairs_take(repairs, 7, header, 1u << 20));
    assert_non_null(rs_repairs_take(repairs, 7, header, RS_REPAIR_HEADER - RS_DATA_HEADER));
    rs_repairs_free(repairs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(combine__gives_the_missing_one),
        cmocka_unit_test(combine__shortened_file_is_told),
        cmocka_unit_test(repairs__in_order_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
