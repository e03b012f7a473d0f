/* The object store on a tmpfs of 8 MiB, mounted in a mount namespace of this test's own; of small pages, and again of
 * huge ones. */
#include "daemon/store/digest.h"
#include "daemon/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define TMPFS_BYTES (8 * MIB)

static char folder[64];
static const rs_object_id ids[3] = {{{0x11, 0x22, 0xff}, 7}, {{0x11, 0x22, 0xff}, UINT64_MAX}, {{0x33}, 7}};
static const rs_digest some_digest = {.algorithm = RS_DIGEST_XXH3, .length = 16, .value = {1, 2, 3}};

static rs_store *open_store(uint64_t quota, uint32_t max_objects) {
    rs_error error = {0};
    rs_store_config config = {.directory = folder, .quota_bytes = quota, .max_objects = max_objects};
    rs_store *store = rs_store_open(&config, &error);
    if (!store)
        print_message("rs_store_open: %s\n", error.text);
    assert_non_null(store);
    return store;
}

static const char *path_of(const rs_object_id *id) {
    static char path[160];
    char uuid[33];
    for (size_t i = 0; i < 16; i++)
        (void)snprintf(uuid + 2 * i, 3, "%02x", id->app[i]);
    (void)snprintf(path, sizeof path, "%s/%.8s-%.4s-%.4s-%.4s-%.12s/%" PRIu64, folder, uuid, uuid + 8, uuid + 12,
                   uuid + 16, uuid + 20, id->data);
    return path;
}

static uint64_t tmpfs_free(void) {
    struct statfs info;
    assert_int_equal(statfs(folder, &info), 0);
    return (uint64_t)info.f_bavail * (uint64_t)info.f_bsize;
}

static rs_object *receive_complete(rs_store *store, const rs_object_id *id, const char *text) {
    rs_error error;
    rs_object *object = rs_store_receive(store, id, strlen(text), &error);
    assert_non_null(object);
    if (*text)
        memcpy(object->map, text, strlen(text));
    assert_true(rs_store_commit(store, object, &some_digest, &error));
    rs_store_release(object);
    return object;
}

static void assert_reads(int fd, const char *text) {
    char buffer[64] = {0};
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, buffer, sizeof buffer - 1, 0), strlen(text));
    assert_string_equal(buffer, text);
}

static void receive__is_visible_only_when_complete(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 0);
    rs_object *object = rs_store_receive(store, &ids[0], 5, &error);
    assert_non_null(object);
    memcpy(object->map, "hello", 5);
    assert_ptr_equal(rs_store_find(store, &ids[0]), object);
    assert_int_equal(access(path_of(&ids[0]), F_OK), -1);
    assert_int_equal(rs_store_reader_fd(object, &error), -1);
    assert_int_equal(error.code, ROSTRUM_ERR_BUSY);
    assert_null(rs_store_receive(store, &ids[0], 5, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_EXISTS);
    assert_non_null(strstr(error.text, "being received"));

    assert_true(rs_store_commit(store, object, &some_digest, &error));
    struct stat info;
    assert_int_equal(stat(path_of(&ids[0]), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0440);
    int fd = rs_store_reader_fd(object, &error);
    assert_reads(fd, "hello");
    assert_int_equal(write(fd, "x", 1), -1);
    assert_true(mmap(NULL, 5, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    close(fd);
    rs_store_close(store);
    assert_int_equal(access(path_of(&ids[0]), F_OK), -1);
}

static void discard__leaves_nothing(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 0);
    uint64_t before = tmpfs_free();
    rs_object *object = rs_store_receive(store, &ids[0], 5 * MIB + 1, &error);
    assert_non_null(object);
    while (rs_store_allocate_step(store, object, MIB, &error) > 0)
        ;
    memset(object->map, 1, 5 * MIB + 1);
    rs_store_discard(store, object);
    assert_null(rs_store_find(store, &ids[0]));
    assert_int_equal(rs_store_used(store), 0);
    while (rs_store_work(store, MIB))
        ;
    assert_int_equal(tmpfs_free(), before);
    rs_store_close(store);
}

static void quota__counts_everything_and_says_so(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(3 * MIB, 0);
    rs_object *one = rs_store_receive(store, &ids[0], 2 * MIB, &error);
    rs_object *created = rs_store_create(store, MIB / 2, 9, &error);
    assert_non_null(one);
    assert_non_null(created);
    assert_int_equal(rs_store_used(store), 2 * MIB + MIB / 2);
    assert_null(rs_store_receive(store, &ids[1], MIB, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_NO_ROOM);
    assert_non_null(strstr(error.text, "quota"));
    int outside = memfd_create("outside", MFD_CLOEXEC);
    assert_int_equal(ftruncate(outside, (off_t)MIB), 0);
    assert_null(rs_store_add(store, &ids[1], outside, 9, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_NO_ROOM);
    rs_store_discard(store, created);
    assert_non_null(rs_store_add(store, &ids[1], outside, 9, &error));
    close(outside);
    rs_store_close(store);
}

static void sizes__absurd_and_zero(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(UINT64_MAX, 0);
    static const uint64_t absurd[] = {UINT64_MAX, (uint64_t)INT64_MAX + 1, INT64_MAX, (uint64_t)1 << 62,
                                      (uint64_t)1 << 45};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        assert_null(rs_store_receive(store, &ids[0], absurd[i], &error));
        assert_null(rs_store_create(store, absurd[i], 1, &error));
        assert_true(error.code == ROSTRUM_ERR_INVALID || error.code == ROSTRUM_ERR_NO_ROOM);
    }
    assert_int_equal(rs_store_used(store), 0);
    rs_object *empty = receive_complete(store, &ids[0], "");
    int fd = rs_store_reader_fd(empty, &error);
    assert_reads(fd, "");
    close(fd);
    rs_store_close(store);
}

static void full_tmpfs__is_an_error_at_allocation(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(UINT64_MAX / 4, 0);
    assert_null(rs_store_receive(store, &ids[0], TMPFS_BYTES + 1, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_NO_ROOM);
    assert_non_null(strstr(error.text, "tmpfs"));
    /* What one transfer was promised, the next one does not get, though it is not allocated yet. */
    rs_object *one = rs_store_receive(store, &ids[0], 7 * MIB, &error);
    assert_non_null(one);
    assert_true(tmpfs_free() > 2 * MIB);
    assert_null(rs_store_receive(store, &ids[1], 2 * MIB, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_NO_ROOM);

    /* Somebody else fills the tmpfs meanwhile: an error with the reason, not a signal. */
    char other[96];
    (void)snprintf(other, sizeof other, "%s/other", folder);
    int fd = open(other, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fallocate(fd, 0, 0, (off_t)tmpfs_free()), 0);
    assert_true(rs_store_ensure(store, one, 0, MIB, &error));
    assert_false(rs_store_ensure(store, one, 6 * MIB, 100, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_NO_ROOM);
    assert_int_equal(rs_store_allocate_step(store, one, 8 * MIB, &error), -1);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_true(rs_store_ensure(store, one, 6 * MIB + 5, MIB - 5, &error));
    assert_false(rs_store_ensure(store, one, 7 * MIB, 1, &error));
    while (rs_store_allocate_step(store, one, MIB, &error) > 0)
        ;
    assert_true(tmpfs_free() <= MIB);
    memset(one->map, 0x5a, 7 * MIB);
    close(fd);
    assert_int_equal(unlink(other), 0);
    rs_store_close(store);
}

/* Room is made in any order; what is written stays, and what nobody wrote is zero. */
static void room__is_made_once_and_touches_nothing_else(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 0);
    const uint64_t size = 6 * MIB + 5000, at[] = {2 * MIB - 3, 6 * MIB, 0, 4 * MIB + 1};
    rs_object *object = rs_store_receive(store, &ids[0], size, &error);
    assert_non_null(object);
    for (size_t i = 0; i < 4; i++) {
        assert_true(rs_store_ensure(store, object, at[i], 8, &error));
        memcpy(object->map + at[i], "received", 8);
        assert_true(rs_store_ensure(store, object, at[i], 8, &error));
    }
    while (rs_store_allocate_step(store, object, MIB, &error) > 0)
        ;
    assert_true(tmpfs_free() <= TMPFS_BYTES - size);
    uint64_t others = 0;
    for (uint64_t i = 0; i < size; i++)
        others += object->map[i] != 0;
    assert_int_equal(others, 4 * 8);
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(object->map + at[i], "received", 8);
    rs_store_discard(store, object);
    rs_store_close(store);
}

/* Freed memory is there again at once for who needs it, though freeing is done bit by bit. */
static void reuse__room_of_the_deleted_is_found(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 0);
    for (int round = 0; round < 3; round++) {
        rs_object *object = rs_store_receive(store, &ids[0], 7 * MIB, &error);
        assert_non_null(object);
        while (rs_store_allocate_step(store, object, MIB, &error) > 0)
            ;
        memset(object->map, round, 7 * MIB);
        assert_true(rs_store_commit(store, object, &some_digest, &error));
        rs_store_release(object);
        assert_true(rs_store_delete(store, &ids[0], &error));
    }
    rs_store_close(store);
}

/* Whoever linked it has it, though nobody has it open. */
static void delete__spares_what_has_another_name(void **context) {
    (void)context;
    rs_error error;
    char other[80], text[9] = {0};
    rs_store *store = open_store(0, 0);
    (void)receive_complete(store, &ids[0], "precious");
    (void)snprintf(other, sizeof other, "%s/linked", folder);
    assert_int_equal(link(path_of(&ids[0]), other), 0);
    assert_true(rs_store_delete(store, &ids[0], &error));
    while (rs_store_work(store, 1))
        ;
    FILE *file = fopen(other, "r");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, 8, file), 8);
    fclose(file);
    unlink(other);
    assert_string_equal(text, "precious");
    rs_store_close(store);
}

static void delete__waits_for_transfers_and_spares_readers(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 0);
    assert_false(rs_store_delete(store, &ids[0], &error));
    assert_int_equal(error.code, ROSTRUM_ERR_UNKNOWN);
    rs_object *building = rs_store_receive(store, &ids[1], 100, &error);
    assert_false(rs_store_delete(store, &ids[1], &error));
    assert_int_equal(error.code, ROSTRUM_ERR_BUSY);
    rs_store_discard(store, building);

    rs_object *object = receive_complete(store, &ids[0], "precious");
    rs_object *other = receive_complete(store, &ids[2], "same dataID, other application");
    int fd = rs_store_reader_fd(object, &error);
    rs_store_hold(object);
    assert_false(rs_store_delete(store, &ids[0], &error));
    assert_int_equal(error.code, ROSTRUM_ERR_BUSY);
    assert_non_null(strstr(error.text, "being sent"));
    rs_store_release(object);
    assert_true(rs_store_delete(store, &ids[0], &error));
    assert_null(rs_store_find(store, &ids[0]));
    while (rs_store_work(store, 1))
        ;
    assert_reads(fd, "precious");
    close(fd);
    fd = rs_store_reader_fd(other, &error);
    assert_reads(fd, "same dataID, other application");
    close(fd);
    rs_store_close(store);
}

static void add__of_a_created_file(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 0);
    rs_object *created = rs_store_create(store, 6 * MIB, 42, &error);
    assert_non_null(created);
    assert_ptr_equal(rs_store_find_created(store, created->handle), created);
    assert_int_equal(rs_store_writer_fd(created, &error), -1); /* not all allocated */
    while (rs_store_allocate_step(store, created, MIB, &error) > 0)
        ;
    int fd = rs_store_writer_fd(created, &error);
    assert_int_equal(pwrite(fd, "written", 7, 0), 7);
    assert_int_equal(ftruncate(fd, 7), 0);
    rs_object *added = rs_store_add(store, &ids[0], fd, 42, &error);
    assert_ptr_equal(added, created);
    assert_int_equal(added->size, 7);
    assert_int_equal(added->phase, RS_OBJECT_DIGESTING);
    assert_false(added->private_file);
    assert_true(rs_store_used(store) < MIB);
    assert_false(rs_store_delete(store, &ids[0], &error));
    assert_int_equal(error.code, ROSTRUM_ERR_BUSY);
    assert_true(rs_store_added(store, added, &some_digest, &error));
    assert_null(rs_store_add(store, &ids[0], fd, 42, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_EXISTS);
    close(fd);
    fd = open(path_of(&ids[0]), O_RDONLY | O_CLOEXEC);
    assert_reads(fd, "written");
    close(fd);
    assert_true(rs_store_delete(store, &ids[0], &error));
    assert_int_equal(access(path_of(&ids[0]), F_OK), -1);
    rs_store_close(store);
}

static void add__of_files_from_elsewhere(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 0);
    int memory = memfd_create("app", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(write(memory, "from a memfd", 12), 12);
    rs_object *object = rs_store_add(store, &ids[0], memory, 1, &error);
    assert_non_null(object);
    assert_false(object->private_file);
    assert_true(rs_store_added(store, object, &some_digest, &error));
    int fd = rs_store_reader_fd(object, &error);
    assert_reads(fd, "from a memfd");
    assert_int_equal(write(fd, "x", 1), -1);
    assert_true(rs_store_delete(store, &ids[0], &error));
    assert_reads(fd, "from a memfd");
    close(fd);
    assert_int_equal(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
    object = rs_store_add(store, &ids[0], memory, 1, &error);
    assert_non_null(object);
    assert_true(object->private_file);
    close(memory);

    char disk_path[] = "/var/tmp/rostrum-store-XXXXXX";
    int disk = mkstemp(disk_path), pipes[2];
    assert_true(disk >= 0);
    unlink(disk_path);
    struct statfs info;
    assert_int_equal(fstatfs(disk, &info), 0);
    assert_int_equal(ftruncate(disk, (off_t)(4 * TMPFS_BYTES)), 0);
    uint64_t used = rs_store_used(store);
    if (info.f_type != 0x01021994) {                            /* some systems have /var/tmp in memory */
        object = rs_store_add(store, &ids[1], disk, 1, &error); /* larger than the store, of which it takes nothing */
        assert_non_null(object);
        assert_int_equal(rs_store_used(store), used);
        rs_store_read_ahead(object, 0);
        rs_store_discard(store, object);
    }
    close(disk);
    assert_int_equal(pipe(pipes), 0);
    assert_null(rs_store_add(store, &ids[1], pipes[0], 1, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_INVALID);
    close(pipes[0]);
    close(pipes[1]);
    assert_null(rs_store_add(store, &ids[1], -1, 1, &error));
    rs_store_close(store);
}

static void limit__of_objects(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 2);
    receive_complete(store, &ids[0], "a");
    receive_complete(store, &ids[1], "b");
    assert_null(rs_store_receive(store, &ids[2], 1, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_LIMIT);
    assert_true(rs_store_delete(store, &ids[1], &error));
    receive_complete(store, &ids[2], "c");
    rs_store_close(store);
}

static void open__cleans_what_a_crash_left_and_nothing_else(void **context) {
    (void)context;
    char keep[200], app[160];
    const char *object = path_of(&ids[0]);
    (void)snprintf(app, sizeof app, "%s", object);
    *strrchr(app, '/') = 0;
    (void)snprintf(keep, sizeof keep, "%s/keep-me", app);
    assert_int_equal(mkdir(app, 0711), 0);
    int fd = open(object, O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
    assert_true(fd >= 0);
    close(fd);
    fd = open(keep, O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
    assert_true(fd >= 0);
    close(fd);
    rs_store *store = open_store(0, 0);
    assert_int_equal(access(path_of(&ids[0]), F_OK), -1);
    assert_int_equal(access(keep, F_OK), 0);
    receive_complete(store, &ids[0], "new");
    rs_store_close(store);
    assert_int_equal(unlink(keep), 0);
    assert_int_equal(rmdir(app), 0);
}

static void open__refuses_what_is_not_ours(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_store(0, 0);
    rs_store_config config = {.directory = folder};
    assert_null(rs_store_open(&config, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_EXISTS);
    rs_store_close(store);
    config.directory = "/proc";
    assert_null(rs_store_open(&config, &error));
    assert_non_null(strstr(error.text, "mount -t tmpfs"));
    config.directory = "/nowhere/at/all";
    assert_null(rs_store_open(&config, &error));
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
}

static int mount_tmpfs(const char *options) {
    (void)snprintf(folder, sizeof folder, "/tmp/rostrum-store-XXXXXX");
    if (!mkdtemp(folder) || unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("rostrum-test", folder, "tmpfs", 0, options) < 0) {
        print_message("a private tmpfs (%s) could not be mounted: %s\n", options, strerror(errno));
        return -1;
    }
    return 0;
}

static int small_pages(void **context) {
    (void)context;
    return mount_tmpfs("size=8m,mode=0711");
}

static int huge_pages(void **context) {
    (void)context;
    if (access("/sys/kernel/mm/transparent_hugepage/shmem_enabled", F_OK) < 0) {
        print_message("this kernel has no huge pages for tmpfs: small ones again\n");
        return small_pages(context);
    }
    return mount_tmpfs("size=8m,mode=0711,huge=within_size");
}

static int remove_tmpfs(void **context) {
    (void)context;
    return umount(folder) < 0 || rmdir(folder) < 0;
}

static rs_store *open_with_reserve(uint64_t bytes) {
    rs_error error;
    rs_store_config config = {.directory = folder, .reserve_bytes = bytes};
    rs_store *store = rs_store_open(&config, &error);
    assert_non_null(store);
    assert_false(rs_store_prepared(store));
    while (rs_store_prepare(store, 2 * MIB))
        ;
    assert_true(rs_store_prepared(store));
    assert_int_equal(rs_store_in_reserve(store), bytes);
    return store;
}

static void reserve__goes_to_objects_and_is_made_again(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_with_reserve(2 * MIB);
    rs_object *object = rs_store_receive(store, &ids[0], 3 * MIB, &error); /* more than the reserve */
    assert_non_null(object);
    assert_int_equal(rs_store_in_reserve(store), 0);
    while (rs_store_allocate_step(store, object, MIB, &error) > 0)
        ;
    assert_false(rs_store_prepared(store));
    assert_int_equal(rs_store_used(store), 3 * MIB); /* the reserve is not in the quota */
    memset(object->map, 1, 3 * MIB);
    while (rs_store_prepare(store, 2 * MIB))
        ;
    assert_true(rs_store_prepared(store));
    rs_store_discard(store, object);
    rs_store_close(store);
}

/* Its pages are those of the reserve: nothing is left to allocate, and nothing that is there was made meanwhile. */
static void reserve__makes_an_object_ready_at_once(void **context) {
    (void)context;
    rs_error error;
    const uint64_t size = 4 * MIB - 100;
    rs_store *store = open_with_reserve(4 * MIB);
    uint64_t before = tmpfs_free();
    rs_object *object = rs_store_receive(store, &ids[0], size, &error);
    assert_non_null(object);
    assert_int_equal(rs_store_allocate_step(store, object, 1, &error), 0);
    assert_in_range(tmpfs_free(), before, before + 4096);
    assert_int_equal(rs_store_in_reserve(store), 0);
    memset(object->map, 7, size);
    assert_true(rs_store_commit(store, object, &some_digest, &error));
    struct stat info;
    assert_int_equal(stat(path_of(&ids[0]), &info), 0);
    assert_int_equal(info.st_size, size);
    assert_int_equal(info.st_mode & 07777, 0440);
    assert_true(rs_store_delete(store, &ids[0], &error));
    rs_store_close(store);
}

/* What is in the reserve is there for objects that no file of it fits. */
static void reserve__keeps_no_object_out(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_with_reserve(4 * MIB);
    rs_object *small[6];
    for (size_t i = 0; i < 6; i++) {
        small[i] = rs_store_create(store, 256 << 10, 1, &error); /* too small to take one */
        assert_non_null(small[i]);
    }
    rs_object *object = rs_store_receive(store, &ids[0], 6 * MIB, &error);
    assert_non_null(object);
    while (rs_store_allocate_step(store, object, MIB, &error) > 0)
        ;
    memset(object->map, 1, 6 * MIB); /* it is there */
    assert_null(rs_store_receive(store, &ids[2], 2 * MIB, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_NO_ROOM);
    rs_store_discard(store, object);
    for (size_t i = 0; i < 6; i++)
        rs_store_discard(store, small[i]);
    rs_store_close(store);
}

/* An application may make its file longer: also then. */
static void reserve__keeps_no_holes_of_a_created_file_out(void **context) {
    (void)context;
    rs_error error;
    rs_store *store = open_with_reserve(4 * MIB);
    rs_object *created = rs_store_create(store, 256 << 10, 1, &error);
    assert_non_null(created);
    while (rs_store_allocate_step(store, created, MIB, &error) > 0)
        ;
    while (rs_store_prepare(store, 2 * MIB))
        ;
    assert_int_equal(rs_store_in_reserve(store), 4 * MIB);
    int fd = rs_store_writer_fd(created, &error);
    assert_int_equal(ftruncate(fd, 5 * MIB), 0);
    assert_ptr_equal(rs_store_add(store, &ids[0], fd, 1, &error), created);
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    assert_true((uint64_t)info.st_blocks * 512 >= 5 * MIB);
    assert_true(rs_store_in_reserve(store) < 4 * MIB);
    close(fd);
    rs_store_discard(store, created);
    rs_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receive__is_visible_only_when_complete),
        cmocka_unit_test(discard__leaves_nothing),
        cmocka_unit_test(quota__counts_everything_and_says_so),
        cmocka_unit_test(sizes__absurd_and_zero),
        cmocka_unit_test(full_tmpfs__is_an_error_at_allocation),
        cmocka_unit_test(room__is_made_once_and_touches_nothing_else),
        cmocka_unit_test(reuse__room_of_the_deleted_is_found),
        cmocka_unit_test(delete__spares_what_has_another_name),
        cmocka_unit_test(delete__waits_for_transfers_and_spares_readers),
        cmocka_unit_test(add__of_a_created_file),
        cmocka_unit_test(add__of_files_from_elsewhere),
        cmocka_unit_test(reserve__goes_to_objects_and_is_made_again),
        cmocka_unit_test(reserve__makes_an_object_ready_at_once),
        cmocka_unit_test(reserve__keeps_no_object_out),
        cmocka_unit_test(reserve__keeps_no_holes_of_a_created_file_out),
        cmocka_unit_test(limit__of_objects),
        cmocka_unit_test(open__cleans_what_a_crash_left_and_nothing_else),
        cmocka_unit_test(open__refuses_what_is_not_ours),
    };
    int failed = cmocka_run_group_tests_name("small pages", tests, small_pages, remove_tmpfs);
    return failed + cmocka_run_group_tests_name("huge pages", tests, huge_pages, remove_tmpfs);
}
