/* Room is made by what was read longest ago, told before; what is pinned, in use, read since or added stays. In virtual
 * time, in two folders of its own: the store's memory (on /dev/shm) and its disk. */
#include "daemon/store/digest.h"
#include "daemon/store/evict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define SIZE MIB
#define QUOTA (10 * MIB)
#define NOTICE ((rs_time)5000000000)

static char memory[64], disk[64];
static uint8_t content[SIZE], leaf[32];
static rs_digest root;
static rs_store *store;
static rs_evict *evict;
static char told[1000]; /* "7 goes, 7 gone" */
static uint64_t quota = QUOTA;
static uint32_t objects_most;

static void note(void *context, const rs_object *object, rs_time in) {
    (void)context;
    size_t used = strlen(told);
    (void)snprintf(told + used, sizeof told - used, "%s%llu %s", used ? ", " : "", (unsigned long long)object->id.data,
                   in == RS_NEVER ? "stays"
                   : in > 0       ? "goes"
                                  : "gone");
}

static void open_with(uint64_t disk_from) {
    rs_error error = {0};
    const rs_store_config config = {.directory = memory,
                                    .quota_bytes = quota,
                                    .max_objects = objects_most,
                                    .disk = disk,
                                    .disk_from = disk_from,
                                    .disk_quota_bytes = QUOTA,
                                    .evict_notice = NOTICE};
    store = rs_store_open(&config, &error);
    assert_non_null(store);
    const rs_evict_config evicts = {.store = store, .notice = NOTICE, .tell = note};
    evict = rs_evict_new(&evicts);
    assert_non_null(evict);
    told[0] = '\0';
}

static void close_it(void) {
    rs_evict_free(evict);
    rs_store_close(store);
}

static rs_object_id id_of(uint64_t number) {
    return (rs_object_id){.app = {0x11}, .data = number};
}

/* NULL: it did not fit, and `error` says why. */
static rs_object *receive_of(uint64_t number, uint64_t size, rs_error *error) {
    const rs_manifest what = {.id = id_of(number), .size = size, .algorithm = RS_DIGEST_XXH3, .root = root};
    rs_object *object = rs_store_receive_pieces(store, &what, error);
    if (!object)
        return NULL;
    assert_true(rs_store_ensure(store, object, 0, size, error));
    memcpy(object->map, content, size);
    assert_true(rs_store_piece_came(object, 0, leaf));
    assert_true(rs_store_commit(store, object, &root, error));
    return object;
}

static rs_object *receive(uint64_t number, rs_error *error) {
    return receive_of(number, SIZE, error);
}

static void receive_all(uint64_t first, uint64_t last) {
    rs_error error = {0};
    for (uint64_t number = first; number <= last; number++)
        assert_non_null(receive(number, &error));
}

static void read_it(uint64_t number) {
    rs_error error = {0};
    rs_object_id id = id_of(number);
    int fd = rs_store_reader_fd(rs_store_find(store, &id), &error);
    assert_true(fd >= 0);
    close(fd);
}

static bool is_here(uint64_t number) {
    rs_object_id id = id_of(number);
    return rs_store_find(store, &id) != NULL;
}

static void room__above_nine_tenths_those_read_longest_ago_go_after_the_notice(void **state) {
    for (uint64_t from_disk = 0; from_disk < 2; from_disk++) {
        (void)state;
        open_with(from_disk ? 0 : RS_NEVER);
        receive_all(1, 9);
        assert_false(rs_evict_look(evict, 1));
        assert_string_equal(told, ""); /* 9/10 is not more than 9/10 */
        receive_all(10, 10);
        read_it(1);
        assert_false(rs_evict_look(evict, 2));
        assert_string_equal(told, "2 goes, 3 goes");
        assert_false(rs_evict_look(evict, NOTICE));
        assert_true(is_here(2) && is_here(3));
        assert_true(rs_evict_look(evict, NOTICE + 2));
        assert_string_equal(told, "2 goes, 3 goes, 2 gone, 3 gone");
        assert_true(!is_here(2) && !is_here(3) && is_here(1) && is_here(4));
        assert_false(rs_evict_look(evict, 3 * NOTICE));
        assert_int_equal(rs_evict_stats_get(evict).bytes, 2 * SIZE);
        for (uint64_t number = 1; number <= 10; number++) {
            rs_object_id id = id_of(number);
            rs_error error;
            (void)rs_store_delete(store, &id, &error);
        }
        close_it();
    }
}

static void room__who_is_read_pinned_or_used_after_it_was_told_stays_and_another_goes(void **state) {
    (void)state;
    open_with(RS_NEVER);
    receive_all(1, 10);
    (void)rs_evict_look(evict, 1);
    assert_string_equal(told, "1 goes, 2 goes");
    read_it(1);
    rs_object_id two = id_of(2);
    rs_store_pin(rs_store_find(store, &two), true);
    (void)rs_evict_look(evict, 2);
    assert_string_equal(told, "1 goes, 2 goes, 1 stays, 2 stays, 3 goes, 4 goes");
    rs_object_id three = id_of(3);
    rs_store_hold(rs_store_find(store, &three));
    assert_true(rs_evict_look(evict, NOTICE + 2)); /* 5 is told now, and has its time */
    assert_true(is_here(1) && is_here(2) && is_here(3) && !is_here(4) && is_here(5));
    rs_store_release(rs_store_find(store, &three));
    close_it();
}

static void room__what_does_not_fit_is_refused_with_a_reason_and_fits_after_the_notice(void **state) {
    (void)state;
    rs_error error = {0};
    open_with(RS_NEVER);
    receive_all(1, 10);
    assert_null(receive(11, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_NO_ROOM);
    assert_non_null(strstr(error.text, "room is being made"));
    (void)rs_evict_look(evict, 1);
    assert_true(rs_evict_look(evict, NOTICE + 1));
    assert_non_null(receive(11, &error));
    /* what could never fit moves nobody */
    const rs_manifest huge = {.id = id_of(12), .size = 2 * QUOTA, .algorithm = RS_DIGEST_XXH3, .root = root};
    assert_null(rs_store_receive_pieces(store, &huge, &error));
    assert_non_null(strstr(error.text, "it is too large"));
    told[0] = '\0';
    (void)rs_evict_look(evict, NOTICE + 2);
    assert_string_equal(told, "");
    close_it();
}

static void room__added_objects_never_go_and_what_is_lacking_then_is_told(void **state) {
    (void)state;
    rs_error error = {0};
    open_with(RS_NEVER);
    for (uint64_t number = 1; number <= 10; number++) {
        int fd = memfd_create("object", 0);
        assert_int_equal(write(fd, content, SIZE), SIZE);
        rs_object_id id = id_of(number);
        rs_object *object = rs_store_add(store, &id, fd, 0, &error);
        assert_non_null(object);
        assert_true(rs_store_added(store, object, &root, &error));
        close(fd);
    }
    assert_null(receive(11, &error));
    assert_non_null(strstr(error.text, "pinned, in use or added")); /* none is being made, and was said to be */
    assert_true(strlen(error.text) < 115);                          /* what a sender is told of it */
    assert_false(rs_evict_look(evict, 1));
    assert_string_equal(told, "");
    assert_int_equal(rs_evict_stats_get(evict).short_of, 2 * SIZE);
    close_it();
}

static void room__pins_and_reads_of_objects_on_disk_outlive_a_restart(void **state) {
    (void)state;
    rs_object *done;
    open_with(0);
    receive_all(1, 10);
    rs_object_id two = id_of(2);
    rs_store_pin(rs_store_find(store, &two), true);
    usleep(20000); /* file times go in steps of some ms */
    read_it(1);
    close_it();
    open_with(0);
    while (rs_store_check_step(store, 100, &done))
        ;
    (void)rs_evict_look(evict, 1);
    (void)rs_evict_look(evict, NOTICE + 1);
    assert_true(is_here(1) && is_here(2));
    assert_int_equal(rs_evict_stats_get(evict).objects, 2);
    close_it();
}

/* The clock was ahead when they were received, and was set right: the agent said each second that they go, and stay. */
static void made_of_the_future(bool restarted) {
    rs_object *done;
    open_with(0);
    receive_all(1, 10);
    for (uint64_t number = 1; number <= 10; number++) {
        rs_object_id id = id_of(number);
        struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
        (void)clock_gettime(CLOCK_REALTIME, &times[0]);
        times[0].tv_sec += 36000 - (time_t)number;
        assert_int_equal(futimens(rs_store_find(store, &id)->fd, times), 0);
    }
    close_it();
    open_with(0);
    while (rs_store_check_step(store, 100, &done))
        ;
    read_it(10); /* by the clock that is right */
    if (restarted) {
        close_it();
        open_with(0);
        while (rs_store_check_step(store, 100, &done))
            ;
    }
    (void)rs_evict_look(evict, 1);
    (void)rs_evict_look(evict, 2);
    assert_string_equal(told, "9 goes, 8 goes");
    assert_true(rs_evict_look(evict, NOTICE + 1));
    assert_string_equal(told, "9 goes, 8 goes, 9 gone, 8 gone");
    close_it();
}

static void room__is_made_of_objects_read_in_the_future(void **state) {
    (void)state;
    made_of_the_future(false);
}

/* What was read by the clock that is right went first. */
static void room__is_made_of_objects_read_in_the_future_after_a_restart(void **state) {
    (void)state;
    made_of_the_future(true);
}

static uint32_t count_here(uint64_t last) {
    uint32_t count = 0;
    for (uint64_t number = 1; number <= last; number++)
        count += is_here(number);
    return count;
}

static void room__is_made_for_more_objects_too(void **state) {
    (void)state;
    rs_error error = {0};
    objects_most = 1000;
    open_with(RS_NEVER);
    objects_most = 0;
    for (uint64_t number = 1; number <= 1000; number++)
        assert_non_null(receive_of(number, 100, &error));
    assert_null(receive_of(1001, 100, &error));
    assert_non_null(strstr(error.text, "room is being made"));
    assert_false(rs_evict_look(evict, 1));
    assert_true(rs_evict_look(evict, NOTICE + 1));
    assert_int_equal(count_here(1000), 800);
    assert_true(!is_here(200) && is_here(201));
    assert_non_null(receive_of(1001, 100, &error));
    close_it();
}

/* All others went as soon as 9/10 were pinned. */
static void room__what_is_pinned_leaves_is_for_others(void **state) {
    (void)state;
    rs_error error = {0};
    for (int by_count = 0; by_count < 2; by_count++) {
        objects_most = by_count ? 1000 : 0;
        quota = by_count ? QUOTA : (uint64_t)1000 * 4096;
        open_with(RS_NEVER);
        objects_most = 0;
        quota = QUOTA;
        for (uint64_t number = 1; number <= 990; number++) {
            rs_object *object = receive_of(number, 100, &error);
            assert_non_null(object);
            if (number <= 950)
                rs_store_pin(object, true);
        }
        assert_false(rs_evict_look(evict, 1));
        assert_string_equal(told, "");
        for (uint64_t number = 991; number <= 999; number++)
            assert_non_null(receive_of(number, 100, &error));
        assert_false(rs_evict_look(evict, 2));
        assert_true(rs_evict_look(evict, NOTICE + 2));
        assert_int_equal(count_here(1000), 950 + 40); /* of 50 places 49 were taken */
        assert_true(!is_here(959) && is_here(960));
        close_it();
    }
}

static void room__of_small_objects_only_as_many_go_as_their_pages_make(void **state) {
    (void)state;
    rs_error error = {0};
    quota = 100 * 4096;
    open_with(RS_NEVER);
    quota = QUOTA;
    for (uint64_t number = 1; number <= 80; number++)
        assert_non_null(receive_of(number, 100, &error));
    assert_null(receive_of(81, (uint64_t)30 * 4096, &error)); /* ten pages more than are left */
    (void)rs_evict_look(evict, 1);
    assert_true(rs_evict_look(evict, NOTICE + 1));
    assert_false(rs_evict_look(evict, NOTICE + 2));
    assert_int_equal(count_here(80), 70);
    close_it();
}

static int make_folders(void **state) {
    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (uint8_t)(i * 7 + i / 1000);
    if (!rs_digest_leaf(RS_DIGEST_XXH3, content, SIZE, 0, leaf) || !rs_digest_of_leaves(RS_DIGEST_XXH3, leaf, 1, &root))
        return -1;
    (void)snprintf(memory, sizeof memory, "/dev/shm/rostrum-evict-XXXXXX");
    (void)snprintf(disk, sizeof disk, "/var/tmp/rostrum-evict-XXXXXX");
    return mkdtemp(memory) && mkdtemp(disk) ? 0 : -1;
}

static int remove_folders(void **state) {
    char command[200];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s %s", memory, disk);
    return system(command) == 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(room__above_nine_tenths_those_read_longest_ago_go_after_the_notice,
                                        make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(room__who_is_read_pinned_or_used_after_it_was_told_stays_and_another_goes,
                                        make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(room__what_does_not_fit_is_refused_with_a_reason_and_fits_after_the_notice,
                                        make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(room__added_objects_never_go_and_what_is_lacking_then_is_told, make_folders,
                                        remove_folders),
        cmocka_unit_test_setup_teardown(room__pins_and_reads_of_objects_on_disk_outlive_a_restart, make_folders,
                                        remove_folders),
        cmocka_unit_test_setup_teardown(room__is_made_of_objects_read_in_the_future, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(room__is_made_of_objects_read_in_the_future_after_a_restart, make_folders,
                                        remove_folders),
        cmocka_unit_test_setup_teardown(room__is_made_for_more_objects_too, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(room__what_is_pinned_leaves_is_for_others, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(room__of_small_objects_only_as_many_go_as_their_pages_make, make_folders,
                                        remove_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
