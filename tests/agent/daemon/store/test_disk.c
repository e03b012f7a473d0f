/* Objects on disk: pieces are counted, a restart finds them and believes nothing, manifests that are garbage are no
 * objects. Runs in two folders of its own: the store's memory (on /dev/shm) and its disk. */
#include "daemon/store/digest.h"
#include "daemon/store/disk.h"
#include "daemon/store/store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define SIZE (5 * MIB + 1000)
#define PIECES 6u

static char memory[64], disk[64];
static uint8_t content[SIZE];
static uint8_t leaves[PIECES][32];
static rs_digest root;
static unsigned lines;
static const rs_object_id id = {{0x11, 0x22, 0xff}, 7};

static void count_line(void *context, const char *text) {
    (void)context;
    lines++;
    print_message("log: %s\n", text);
}

static rs_store *open_store(void) {
    rs_error error = {0};
    const rs_store_config config = {.directory = memory, .disk = disk, .disk_from = MIB, .log = count_line};
    rs_store *store = rs_store_open(&config, &error);
    if (!store)
        print_message("rs_store_open: %s\n", error.text);
    assert_non_null(store);
    return store;
}

static rs_manifest what(bool with_root) {
    rs_manifest m = {.id = id,
                     .size = SIZE,
                     .algorithm = RS_DIGEST_XXH3,
                     .from = "h1",
                     .from_address = 0x0a000101,
                     .name = "model.bin"};
    m.from_port = 7071;
    m.root = with_root ? root : (rs_digest){.algorithm = RS_DIGEST_XXH3};
    return m;
}

static const char *path_of(const char *suffix) {
    static char path[200];
    (void)snprintf(path, sizeof path, "%s/1122ff00-0000-0000-0000-000000000000/7%s", disk, suffix);
    return path;
}

static void put_piece(rs_store *store, rs_object *object, uint64_t piece) {
    rs_error error;
    uint64_t length = rs_pieces_length(object->pieces, piece);
    assert_true(rs_store_ensure(store, object, piece * MIB, length, &error));
    memcpy(object->map + piece * MIB, content + piece * MIB, (size_t)length);
    assert_true(rs_store_piece_came(object, piece, leaves[piece]));
}

static rs_object *check_all(rs_store *store) {
    rs_object *done = NULL, *last = NULL;
    while (rs_store_check_step(store, 2, &done))
        last = done ? done : last;
    return last;
}

static void complete__is_found_again_and_checked(void **state) {
    (void)state;
    rs_error error;
    rs_store *store = open_store();
    const rs_manifest m = what(false);
    rs_object *object = rs_store_receive_pieces(store, &m, &error);
    assert_non_null(object);
    assert_true(object->on_disk);
    assert_int_equal(rs_store_used(store), 0);
    assert_int_not_equal(rs_store_disk_used(store), 0);
    for (uint64_t piece = 0; piece < PIECES; piece++)
        put_piece(store, object, piece);
    assert_int_equal(object->pieces->prefix, PIECES);
    assert_int_equal(access(path_of(""), F_OK), -1);
    assert_true(rs_store_commit(store, object, &root, &error));
    assert_null(object->pieces);
    assert_int_equal(access(path_of(""), F_OK), 0);
    rs_store_close(store);

    store = open_store();
    object = rs_store_find(store, &id);
    assert_non_null(object);
    assert_int_equal(object->phase, RS_OBJECT_CHECKING);
    assert_int_equal(access(path_of(""), F_OK), -1); /* nobody sees it before it was checked */
    assert_int_equal(rs_store_reader_fd(object, &error), -1);
    assert_ptr_equal(check_all(store), object);
    assert_int_equal(object->phase, RS_OBJECT_COMPLETE);
    assert_true(rs_digest_equal(&object->digest, &root));
    assert_int_equal(object->leaf_count, PIECES);
    assert_memory_equal(object->map, content, SIZE);
    assert_int_equal(access(path_of(""), F_OK), 0);
    assert_true(rs_store_delete(store, &id, &error));
    assert_int_equal(access(path_of(""), F_OK), -1);
    assert_int_equal(access(path_of(".pieces"), F_OK), -1);
    assert_int_equal(rs_store_disk_used(store), 0);
    rs_store_close(store);
}

static void changed_byte__costs_its_piece_only(void **state) {
    (void)state;
    rs_error error;
    rs_store *store = open_store();
    const rs_manifest m = what(true);
    rs_object *object = rs_store_receive_pieces(store, &m, &error);
    for (uint64_t piece = 0; piece < PIECES; piece++)
        put_piece(store, object, piece);
    assert_true(rs_store_commit(store, object, &root, &error));
    rs_store_close(store);
    assert_int_equal(chmod(path_of(""), 0600), 0);
    int fd = open(path_of(""), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)(3 * MIB + 5)), 1);
    close(fd);

    store = open_store();
    object = check_all(store);
    assert_int_equal(object->phase, RS_OBJECT_PARTIAL);
    assert_int_equal(object->pieces->known, PIECES - 1);
    assert_int_equal(rs_pieces_missing(object->pieces, 0), 3);
    assert_int_equal(rs_store_reader_fd(object, &error), -1);
    assert_int_equal(access(path_of(""), F_OK), -1);
    /* It is gone on with, and whole again. */
    assert_ptr_equal(rs_store_receive_pieces(store, &m, &error), object);
    put_piece(store, object, 3);
    assert_true(rs_store_commit(store, object, &root, &error));
    assert_memory_equal(object->map, content, SIZE);
    assert_true(rs_store_delete(store, &id, &error));
    rs_store_close(store);
}

static void killed__pieces_that_came_are_kept(void **state) {
    (void)state;
    rs_error error;
    rs_store *store = open_store();
    const rs_manifest m = what(false);
    rs_object *object = rs_store_receive_pieces(store, &m, &error);
    put_piece(store, object, 1);
    put_piece(store, object, 5);
    assert_true(rs_store_root_known(object, &root));
    /* One that is recorded, and whose bytes never came to the disk. */
    uint8_t lie[32] = {9};
    assert_true(rs_store_piece_came(object, 2, lie));
    rs_store_close(store); /* in the middle, as at a kill */

    store = open_store();
    object = check_all(store);
    assert_int_equal(object->phase, RS_OBJECT_PARTIAL);
    assert_int_equal(object->pieces->known, 2);
    assert_true(rs_pieces_have(object->pieces, 1) && rs_pieces_have(object->pieces, 5));
    assert_string_equal(rs_store_manifest(object)->from, "h1");
    assert_int_equal(rs_store_manifest(object)->from_address, 0x0a000101);
    assert_string_equal(object->name, "model.bin");
    assert_true(rs_digest_equal(&rs_store_manifest(object)->root, &root));
    rs_manifest other = m;
    other.root = root;
    other.root.value[0] ^= 1;
    assert_false(rs_store_resumes(object, &other));
    assert_null(rs_store_receive_pieces(store, &other, &error));
    assert_int_equal(error.code, ROSTRUM_ERR_EXISTS);
    assert_true(rs_store_delete(store, &id, &error));
    rs_store_close(store);
}

static void small_ones__stay_in_memory(void **state) {
    (void)state;
    rs_error error;
    rs_store *store = open_store();
    rs_manifest m = what(false);
    m.size = MIB - 1;
    rs_object *object = rs_store_receive_pieces(store, &m, &error);
    assert_non_null(object);
    assert_false(object->on_disk);
    assert_false(rs_store_keep(object)); /* memory is for what is whole */
    rs_store_discard(store, object);
    rs_store_close(store);
}

/* Of what a manifest may be: shorter, longer, of another object, bits changed. None is an object; all are removed; the
 * store opens. */
static void garbage__is_no_object(void **state) {
    (void)state;
    rs_error error;
    rs_manifest m = what(true), found;
    uint8_t good[RS_MANIFEST_HEADER + PIECES * RS_MANIFEST_RECORD] = {0};
    const char *why;
    rs_manifest_put(&m, good);
    for (uint64_t piece = 0; piece < PIECES; piece++)
        rs_manifest_put_piece(&m, piece, leaves[piece], good + RS_MANIFEST_HEADER + piece * RS_MANIFEST_RECORD);
    assert_true(rs_manifest_take(good, sizeof good, &found, &why));
    assert_string_equal(found.from, "h1");
    assert_string_equal(found.name, "model.bin");
    assert_int_equal(found.from_port, 7071);
    uint8_t leaf[32];
    const uint8_t *record = good + RS_MANIFEST_HEADER;
    assert_true(rs_manifest_take_piece(&m, 0, record, leaf));
    assert_false(rs_manifest_take_piece(&m, 1, record, leaf)); /* of another piece */
    for (size_t bit = 0; bit < (size_t)RS_MANIFEST_HEADER * 8; bit++) {
        uint8_t bad[RS_MANIFEST_HEADER];
        memcpy(bad, good, sizeof bad);
        bad[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(rs_manifest_take(bad, sizeof bad, &found, &why));
    }
    for (size_t bit = 0; bit < (size_t)RS_MANIFEST_RECORD * 8; bit++) {
        uint8_t bad[RS_MANIFEST_RECORD];
        memcpy(bad, record, sizeof bad);
        bad[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(rs_manifest_take_piece(&m, 0, bad, leaf));
    }
    for (size_t length = 0; length < 300; length += 50) {
        rs_store *store = open_store();
        rs_object *object = rs_store_receive_pieces(store, &m, &error);
        assert_non_null(object);
        put_piece(store, object, 0);
        rs_store_close(store);
        int fd = open(path_of(".pieces"), O_WRONLY | O_TRUNC | O_CLOEXEC);
        assert_int_equal(pwrite(fd, good, length, 0), (ssize_t)length);
        if (length == 250) /* a file that is shorter than the object */
            assert_int_equal(pwrite(fd, good, sizeof good, 0), (ssize_t)sizeof good);
        close(fd);
        if (length == 250)
            assert_int_equal(truncate(path_of(".part"), 5), 0);
        lines = 0;
        store = open_store();
        assert_null(rs_store_find(store, &id));
        assert_int_equal(lines, 1);
        assert_int_equal(access(path_of(".part"), F_OK), -1);
        assert_int_equal(access(path_of(".pieces"), F_OK), -1);
        rs_store_close(store);
    }
}

typedef struct {
    rs_piece_watch watch;
    unsigned came, over;
    bool complete;
} watcher;

static void on_came(void *context, rs_object *object, uint64_t piece) {
    watcher *w = context;
    assert_true(rs_pieces_have(object->pieces, piece));
    w->came++;
}

static void on_over(void *context, rs_object *object, bool is_complete) {
    watcher *w = context;
    (void)object;
    w->over++;
    w->complete = is_complete;
}

static void watches__are_told_of_pieces_and_of_the_end(void **state) {
    (void)state;
    rs_error error;
    rs_store *store = open_store();
    const rs_manifest m = what(true);
    for (int complete = 0; complete < 2; complete++) {
        watcher one = {.watch = {.came = on_came, .over = on_over}}, gone = one;
        one.watch.context = &one;
        gone.watch.context = &gone;
        rs_object *object = rs_store_receive_pieces(store, &m, &error);
        rs_pieces_watch(object->pieces, &one.watch);
        rs_pieces_watch(object->pieces, &gone.watch);
        put_piece(store, object, 0);
        rs_pieces_unwatch(object->pieces, &gone.watch);
        put_piece(store, object, 2);
        assert_int_equal(object->pieces->prefix, 1);
        rs_store_piece_gone(object, 0);
        assert_int_equal(object->pieces->prefix, 0);
        assert_false(rs_store_piece_came(object, 2, leaves[2]));
        if (complete)
            assert_true(rs_store_commit(store, object, &root, &error));
        else
            rs_store_discard(store, object);
        assert_int_equal(one.came, 2);
        assert_int_equal(gone.came, 1);
        assert_int_equal(one.over, 1);
        assert_int_equal(gone.over, 0);
        assert_int_equal(one.complete, complete);
    }
    assert_true(rs_store_delete(store, &id, &error));
    rs_store_close(store);
}

static void confirm__drops_what_is_of_another_object(void **state) {
    (void)state;
    rs_pieces *pieces = rs_pieces_new(SIZE, RS_DIGEST_XXH3);
    uint8_t all[PIECES * 16], lie[32] = {1};
    for (unsigned i = 0; i < PIECES; i++)
        memcpy(all + 16 * i, leaves[i], 16);
    assert_true(rs_pieces_put(pieces, 0, leaves[0]));
    assert_true(rs_pieces_put(pieces, 4, lie));
    assert_false(rs_pieces_put(pieces, PIECES, lie));
    all[0] ^= 1;
    assert_false(rs_pieces_confirm(pieces, all, &root));
    assert_int_equal(pieces->known, 2);
    all[0] ^= 1;
    assert_true(rs_pieces_confirm(pieces, all, &root));
    assert_int_equal(pieces->known, 1);
    assert_false(rs_pieces_put(pieces, 4, lie));
    assert_true(rs_pieces_put(pieces, 4, leaves[4]));
    rs_pieces_free(pieces);
}

static int make_folders(void **state) {
    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (uint8_t)(i * 2654435761u >> 13);
    rs_digest_tree *tree = rs_digest_tree_new(RS_DIGEST_XXH3, SIZE);
    rs_digest_tree_all_present(tree);
    rs_digest_tree_step(tree, content, PIECES);
    uint64_t count;
    uint32_t width;
    const uint8_t *all = rs_digest_tree_leaves(tree, &count, &width);
    for (unsigned i = 0; i < PIECES; i++)
        memcpy(leaves[i], all + (size_t)i * width, width);
    bool ok = rs_digest_tree_final(tree, &root);
    rs_digest_tree_free(tree);
    (void)snprintf(memory, sizeof memory, "/dev/shm/rostrum-test-XXXXXX");
    (void)snprintf(disk, sizeof disk, "/var/tmp/rostrum-test-XXXXXX");
    return ok && mkdtemp(memory) && mkdtemp(disk) ? 0 : -1;
}

static int remove_folders(void **state) {
    (void)state;
    return rmdir(memory) | rmdir(disk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete__is_found_again_and_checked),
        cmocka_unit_test(changed_byte__costs_its_piece_only),
        cmocka_unit_test(killed__pieces_that_came_are_kept),
        cmocka_unit_test(small_ones__stay_in_memory),
        cmocka_unit_test(garbage__is_no_object),
        cmocka_unit_test(watches__are_told_of_pieces_and_of_the_end),
        cmocka_unit_test(confirm__drops_what_is_of_another_object),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
