/* Memory kept ready for objects (store/reserve.c), on a tmpfs of 32 MiB in a mount namespace of its own. What is
 * there is counted by the kernel (st_blocks, statfs). */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/store/reserve.h"

#define MIB (UINT64_C(1) << 20)

static char path[64];
static rs_store_folder folder;

static uint64_t bytes_of(int fd) {
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    return (uint64_t)info.st_blocks * 512;
}

/* Bytes of the reserve that are in memory. */
static uint64_t resident(const rs_reserve *reserve) {
    uint64_t found = 0;
    for (unsigned i = 0; i < reserve->count; i++)
        found += bytes_of(reserve->files[i].fd);
    return found;
}

static uint64_t tmpfs_free(void) {
    struct statfs info;
    assert_int_equal(statfs(path, &info), 0);
    return (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
}

static rs_reserve filled(uint64_t size) {
    rs_reserve reserve;
    rs_reserve_open(&reserve, &folder, size);
    while (rs_reserve_fill(&reserve, 2 * MIB))
        ;
    assert_true(rs_reserve_is_filled(&reserve));
    assert_int_equal(resident(&reserve), size);
    return reserve;
}

static void reserve__of_nothing_does_nothing(void **state) {
    (void)state;
    rs_reserve reserve;
    uint64_t ready;
    rs_reserve_open(&reserve, &folder, 0);
    assert_true(rs_reserve_is_filled(&reserve));
    assert_false(rs_reserve_fill(&reserve, 100 * MIB));
    rs_reserve_give(&reserve, 100 * MIB);
    assert_int_equal(reserve.filled, 0);
    assert_int_equal(rs_reserve_take(&reserve, 4 * MIB, &ready), -1);
    rs_reserve_close(&reserve);
}

static void reserve__sizes_are_whole_slices(void **state) {
    (void)state;
    const struct {
        uint64_t asked, size;
    } cases[] = {{1, 2 * MIB}, {2 * MIB, 2 * MIB}, {2 * MIB + 1, 4 * MIB}, {7 * MIB, 8 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_reserve reserve;
        rs_reserve_open(&reserve, &folder, cases[i].asked);
        assert_int_equal(reserve.size, cases[i].size);
        assert_int_equal(reserve.filled, 0); /* nothing is taken from the system yet */
        rs_reserve_close(&reserve);
    }
}

static void reserve__is_filled_step_by_step_and_no_further(void **state) {
    (void)state;
    rs_reserve reserve;
    rs_reserve_open(&reserve, &folder, 6 * MIB);
    assert_true(rs_reserve_fill(&reserve, 2 * MIB));
    assert_int_equal(reserve.filled, 2 * MIB);
    assert_int_equal(resident(&reserve), 2 * MIB);
    assert_true(rs_reserve_fill(&reserve, 1)); /* whole slices */
    assert_int_equal(reserve.filled, 4 * MIB);
    assert_false(rs_reserve_fill(&reserve, 100 * MIB));
    assert_int_equal(reserve.filled, 6 * MIB);
    assert_int_equal(resident(&reserve), 6 * MIB);
    assert_false(rs_reserve_fill(&reserve, 2 * MIB));
    assert_int_equal(reserve.filled, 6 * MIB);
    rs_reserve_close(&reserve);
    assert_int_equal(tmpfs_free(), 32 * MIB);
}

static void reserve__gives_back_and_is_filled_again(void **state) {
    (void)state;
    rs_reserve reserve = filled(8 * MIB);
    rs_reserve_give(&reserve, 3 * MIB); /* two slices */
    assert_int_equal(reserve.filled, 4 * MIB);
    assert_int_equal(resident(&reserve), 4 * MIB);
    rs_reserve_give(&reserve, 100 * MIB); /* no more than there is */
    assert_int_equal(reserve.filled, 0);
    assert_int_equal(tmpfs_free(), 32 * MIB);
    rs_reserve_give(&reserve, 2 * MIB);
    assert_false(rs_reserve_fill(&reserve, 8 * MIB));
    assert_int_equal(resident(&reserve), 8 * MIB);
    rs_reserve_close(&reserve);
    rs_reserve_close(&reserve); /* twice is once */
}

/* What is taken is zero, has the object's size, and its pages are there; the next file is as large as that object. */
static void taken__is_a_file_of_zeros_of_that_size(void **state) {
    (void)state;
    static const uint64_t sizes[] = {8 * MIB, 8 * MIB - 5000, 5 * MIB + 1, 12 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        rs_reserve reserve = filled(8 * MIB);
        uint64_t ready = 0, size = sizes[i], others = 0;
        int fd = rs_reserve_take(&reserve, size, &ready);
        assert_true(fd >= 0);
        assert_int_equal(ready, size < 8 * MIB ? size : 8 * MIB);
        struct stat info;
        assert_int_equal(fstat(fd, &info), 0);
        assert_int_equal(info.st_size, size);
        assert_int_equal(info.st_nlink, 0);
        assert_in_range(bytes_of(fd), ready, ready + 2 * MIB);
        uint8_t *bytes = malloc(size);
        assert_non_null(bytes);
        assert_int_equal(pread(fd, bytes, size, 0), size);
        for (uint64_t at = 0; at < size; at++)
            others += bytes[at] != 0;
        assert_int_equal(others, 0);
        free(bytes);
        assert_int_equal(reserve.filled, 0);
        while (rs_reserve_fill(&reserve, 2 * MIB))
            ;
        assert_true(rs_reserve_is_filled(&reserve));
        assert_int_equal(reserve.filled, 8 * MIB);
        assert_int_equal(reserve.files[0].filled, size > 6 * MIB ? 8 * MIB : 6 * MIB);
        close(fd);
        rs_reserve_close(&reserve);
    }
}

static void taken__by_several_objects_of_a_size(void **state) {
    (void)state;
    rs_reserve reserve = filled(12 * MIB);
    uint64_t ready = 0;
    int fds[3];
    int first = rs_reserve_take(&reserve, 4 * MIB, &ready); /* all of it, cut */
    assert_true(first >= 0);
    assert_int_equal(bytes_of(first), 4 * MIB);
    while (rs_reserve_fill(&reserve, 2 * MIB))
        ;
    for (size_t i = 0; i < 3; i++) {
        fds[i] = rs_reserve_take(&reserve, 4 * MIB, &ready);
        assert_true(fds[i] >= 0);
        assert_int_equal(ready, 4 * MIB);
    }
    assert_int_equal(rs_reserve_take(&reserve, 4 * MIB, &ready), -1);
    for (size_t i = 0; i < 3; i++)
        close(fds[i]);
    close(first);
    rs_reserve_close(&reserve);
}

/* Small objects neither take a file of the reserve's nor change what it is made of. */
static void taken__not_by_small_objects(void **state) {
    (void)state;
    rs_reserve reserve = filled(16 * MIB);
    uint64_t ready;
    assert_int_equal(rs_reserve_take(&reserve, 0, &ready), -1);
    assert_int_equal(rs_reserve_take(&reserve, 2 * MIB - 1, &ready), -1);
    assert_true(rs_reserve_is_filled(&reserve));
    assert_int_equal(reserve.count, 1);
    rs_reserve_close(&reserve);
}

/* A file that is much larger than the object stays, and is cut to its size by and by, for the next one. */
static void taken__not_if_much_would_be_left(void **state) {
    (void)state;
    rs_reserve reserve = filled(16 * MIB);
    uint64_t ready;
    reserve.files[0].filled += RS_RESERVE_SURPLUS; /* as if it was */
    reserve.size += RS_RESERVE_SURPLUS;
    reserve.filled += RS_RESERVE_SURPLUS;
    assert_int_equal(rs_reserve_take(&reserve, 12 * MIB, &ready), -1);
    assert_int_equal(reserve.count, 1);
    reserve.size -= RS_RESERVE_SURPLUS;
    while (rs_reserve_fill(&reserve, 16 * MIB))
        ;
    assert_int_equal(reserve.files[0].filled, 12 * MIB);
    assert_int_equal(reserve.filled, 16 * MIB);
    assert_int_equal(resident(&reserve), 16 * MIB);
    rs_reserve_close(&reserve);
}

/* A file that cannot be made shorter goes as a whole, and no other one because of that. */
static void given__is_no_more_than_asked_where_a_file_cannot_be_cut(void **state) {
    (void)state;
    rs_reserve reserve = filled(8 * MIB);
    uint64_t ready;
    int fd = rs_reserve_take(&reserve, 4 * MIB, &ready);
    if (fd >= 0)
        close(fd);
    while (rs_reserve_fill(&reserve, 2 * MIB))
        ;
    assert_int_equal(reserve.count, 2);
    rs_ready_file *last = &reserve.files[1];
    fd = rs_store_file_reopen(last->fd, O_RDONLY);
    assert_true(fd >= 0);
    close(last->fd);
    last->fd = fd;
    rs_reserve_give(&reserve, 2 * MIB);
    assert_int_equal(reserve.count, 1);
    assert_int_equal(reserve.filled, 4 * MIB);
    rs_reserve_close(&reserve);
}

static void full_tmpfs__ends_filling(void **state) {
    (void)state;
    rs_reserve reserve;
    rs_reserve_open(&reserve, &folder, 1024 * MIB);
    assert_false(rs_reserve_fill(&reserve, 1024 * MIB));
    assert_false(rs_reserve_is_filled(&reserve));
    assert_in_range(tmpfs_free(), 1 * MIB, 6 * MIB); /* others have room */
    assert_int_equal(resident(&reserve), reserve.filled);
    rs_reserve_close(&reserve);
    assert_int_equal(tmpfs_free(), 32 * MIB);
}

static int make_tmpfs(void **state) {
    const char *options = *state;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        print_message("this test must be root\n");
        return -1;
    }
    (void)snprintf(path, sizeof path, "/tmp/rostrum-test-reserve-%d", getpid());
    if (mkdir(path, 0700) < 0 || mount("tmpfs", path, "tmpfs", 0, options) < 0)
        return -1;
    rs_error error;
    return rs_store_folder_open(&folder, path, true, NULL, &error) ? 0 : -1;
}

static int remove_tmpfs(void **state) {
    (void)state;
    close(folder.fd);
    return umount(path) < 0 || rmdir(path) < 0;
}

int main(void) {
    static const char *const kinds[] = {"size=32M,mode=0700", "size=32M,mode=0700,huge=within_size"};
    int failed = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test(reserve__of_nothing_does_nothing),
            cmocka_unit_test(reserve__sizes_are_whole_slices),
            cmocka_unit_test(reserve__is_filled_step_by_step_and_no_further),
            cmocka_unit_test(reserve__gives_back_and_is_filled_again),
            cmocka_unit_test(taken__is_a_file_of_zeros_of_that_size),
            cmocka_unit_test(taken__by_several_objects_of_a_size),
            cmocka_unit_test(taken__not_by_small_objects),
            cmocka_unit_test(taken__not_if_much_would_be_left),
            cmocka_unit_test(given__is_no_more_than_asked_where_a_file_cannot_be_cut),
            cmocka_unit_test(full_tmpfs__ends_filling),
        };
        static const char *options;
        options = kinds[i];
        if (make_tmpfs((void **)&options))
            return 1;
        failed += cmocka_run_group_tests(tests, NULL, NULL);
        if (remove_tmpfs(NULL))
            return 1;
    }
    return failed;
}
