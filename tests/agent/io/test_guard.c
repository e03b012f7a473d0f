/* Copies that survive a shortened file (agent/io/guard.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/guard.h"

#define PAGES 4

static uint8_t buffer[PAGES * 65536];

static void copy__ends_at_a_shortened_file_every_time(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = PAGES * page;
    int fd = memfd_create("object", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    memset(map, 7, size);
    assert_true(rs_guard_start());
    assert_true(rs_guard_copy(buffer, map, size));
    assert_int_equal(buffer[size - 1], 7);
    assert_int_equal(ftruncate(fd, (off_t)page), 0);
    for (int i = 0; i < 3; i++) {
        assert_false(rs_guard_copy(buffer, map, size));
        assert_false(rs_guard_copy(map + page, buffer, 10));
        assert_true(rs_guard_copy(buffer, map, page));
    }
    rs_guard_stop();
    munmap(map, size);
    close(fd);
}

static volatile sig_atomic_t seen;

static void note(int number) {
    seen = number;
}

static void other_faults__go_to_the_former_handler(void **state) {
    (void)state;
    struct sigaction mine = {.sa_handler = note}, before, now;
    assert_int_equal(sigaction(SIGBUS, &mine, &before), 0);
    assert_true(rs_guard_start());
    assert_true(rs_guard_start());
    rs_guard_stop();
    raise(SIGBUS);
    assert_int_equal(seen, SIGBUS);
    rs_guard_stop();
    assert_int_equal(sigaction(SIGBUS, &before, &now), 0);
    assert_ptr_equal(now.sa_handler, note);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy__ends_at_a_shortened_file_every_time),
        cmocka_unit_test(other_faults__go_to_the_former_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
