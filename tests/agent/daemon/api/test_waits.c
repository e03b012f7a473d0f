/* Digests of objects that are sent meanwhile (api/waits.h), with a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/api/waits.h"

#define MIB (UINT64_C(1) << 20)
#define MS INT64_C(1000000)
#define SIZE (64 * MIB)

typedef struct {
    char folder[64], socket[80];
    rs_store *store;
    rs_api_server *api;
    unsigned told; /* digests of objects that are being sent */
    rs_time now;
} fixture;

static void on_added(void *context, const rs_object *object) {
    fixture *f = context;
    (void)object;
    f->told++;
}

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    rs_error error;
    assert_non_null(f);
    (void)snprintf(f->folder, sizeof f->folder, "/dev/shm/rostrum-waits-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->socket, sizeof f->socket, "%s/sock", f->folder);
    const rs_store_config store = {.directory = f->folder};
    const rs_api_config config = {.socket_path = f->socket, .server_name = "h1", .version = "0"};
    const rs_api_handlers handlers = {.on_added = on_added, .context = f};
    f->store = rs_store_open(&store, &error);
    assert_non_null(f->store);
    f->api = rs_api_server_new(&config, &handlers, f->store, &error);
    assert_non_null(f->api);
    f->now = 1000 * MS;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    rs_api_server_free(f->api);
    rs_store_close(f->store);
    (void)rmdir(f->folder);
    free(f);
    return 0;
}

static rs_object *add_file(fixture *f, uint64_t number, uint64_t size, int fd) {
    rs_error error;
    const rs_object_id id = {.data = number};
    assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    rs_object *object = rs_api_add_again(f->api, &id, fd, &error);
    assert_non_null(object);
    return object;
}

static rs_object *add(fixture *f, uint64_t number, uint64_t size) {
    return add_file(f, number, size, memfd_create("source", 0));
}

/* What there is to do now is done, but not for ever. */
static void work(fixture *f) {
    for (unsigned i = 0; i < 1000 && rs_api_server_deadline(f->api) <= f->now; i++)
        rs_api_server_dispatch(f->api, f->now);
}

/* So many ms, each with so many bytes sent. */
static void send_for(fixture *f, rs_object *object, unsigned ms, uint64_t bytes) {
    for (unsigned i = 0; i < ms; i++) {
        f->now += MS;
        object->sent = object->sent + bytes < object->size ? object->sent + bytes : object->size;
        rs_api_digest_sent(f->api, f->now);
        work(f);
    }
}

static void digest__of_what_is_sent_fast_is_there_with_the_last_byte(void **state) {
    fixture *f = *state;
    rs_object *object = add(f, 1, SIZE);
    rs_store_hold(object);
    work(f);
    send_for(f, object, 127, MIB / 2);
    assert_int_equal(object->phase, RS_OBJECT_DIGESTING);
    assert_true(rs_api_server_deadline(f->api) > f->now);
    send_for(f, object, 1, MIB / 2);
    assert_int_equal(object->phase, RS_OBJECT_COMPLETE);
    assert_int_equal(f->told, 1);
    rs_store_release(object);
}

static void digest__of_what_is_sent_slowly_is_there_soon(void **state) {
    fixture *f = *state;
    rs_object *object = add(f, 1, SIZE);
    rs_store_hold(object);
    send_for(f, object, 100, MIB / 16);
    assert_int_equal(object->phase, RS_OBJECT_COMPLETE);
    assert_true(object->sent < object->size);
    rs_store_release(object);
}

static void digest__goes_on_where_nothing_is_sent(void **state) {
    fixture *f = *state;
    rs_object *object = add(f, 1, SIZE);
    rs_store_hold(object);
    send_for(f, object, 100, MIB / 2);
    assert_int_equal(object->phase, RS_OBJECT_DIGESTING);
    send_for(f, object, 45, 0);
    assert_int_equal(object->phase, RS_OBJECT_COMPLETE);
    rs_store_release(object);
}

static void digest__of_one_that_is_sent_lets_others_pass(void **state) {
    fixture *f = *state;
    rs_object *first = add(f, 1, SIZE);
    rs_store_hold(first);
    send_for(f, first, 90, MIB / 2);
    rs_object *second = add(f, 2, SIZE);
    work(f);
    assert_int_equal(first->phase, RS_OBJECT_DIGESTING);
    assert_int_equal(second->phase, RS_OBJECT_COMPLETE);
    rs_store_release(first);
    work(f);
    assert_int_equal(first->phase, RS_OBJECT_COMPLETE);
}

static void digest__of_what_was_passed_over_does_not_hold_the_agent_up(void **state) {
    fixture *f = *state;
    rs_object *object = add(f, 1, SIZE);
    rs_store_hold(object);
    object->sent = 60 * MIB; /* its receivers have what is before */
    rs_api_digest_sent(f->api, f->now);
    assert_true(rs_digest_tree_pending(f->api->waits->tree) >= 40);
    for (unsigned i = 0; i < 20; i++)
        rs_api_server_dispatch(f->api, f->now);
    rs_api_digest_sent(f->api, f->now);
    assert_true(rs_digest_tree_pending(f->api->waits->tree) <= 4);
    rs_store_release(object);
}

static void digest__of_what_is_large_does_not_hold_up_what_is_small(void **state) {
    fixture *f = *state;
    rs_object *large = add(f, 1, 16 * SIZE), *small = add(f, 2, 1000);
    for (unsigned i = 0; i < 4; i++)
        rs_api_server_dispatch(f->api, f->now);
    assert_int_equal(small->phase, RS_OBJECT_COMPLETE);
    for (uint64_t number = 3; large->phase != RS_OBJECT_COMPLETE; number++) { /* nor does a flood of these stop it */
        assert_true(number < 1000);
        (void)add(f, number, 1000);
        rs_api_server_dispatch(f->api, f->now);
    }
}

static void digest__of_a_file_on_a_disk_lets_the_agent_do_other_things_after_each_piece(void **state) {
    fixture *f = *state;
    char name[] = "/var/tmp/rostrum-waits-XXXXXX";
    struct statfs place;
    const int fd = mkstemp(name);
    assert_true(fd >= 0 && unlink(name) == 0 && fstatfs(fd, &place) == 0);
    if (place.f_type == TMPFS_MAGIC) {
        close(fd);
        skip(); /* /var/tmp is no disk here */
    }
    (void)add_file(f, 1, 16 * MIB, fd);
    uint64_t before = rs_digest_tree_pending(f->api->waits->tree);
    rs_api_server_dispatch(f->api, f->now);
    assert_int_equal(rs_digest_tree_pending(f->api->waits->tree), before - 1);
    work(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(digest__of_what_is_sent_fast_is_there_with_the_last_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digest__of_what_is_sent_slowly_is_there_soon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digest__goes_on_where_nothing_is_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digest__of_one_that_is_sent_lets_others_pass, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digest__of_what_was_passed_over_does_not_hold_the_agent_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digest__of_what_is_large_does_not_hold_up_what_is_small, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digest__of_a_file_on_a_disk_lets_the_agent_do_other_things_after_each_piece,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
