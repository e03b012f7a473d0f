/* A replica that is given states that make no sense; what it says goes to a stream that the test writes. */
#include "client/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define GROUP "log"
#define HEAD 21u

static rostrum_replica *replica;
static int64_t clock_ms;
static uint8_t said[512]; /* the last message that it published, and how many */
static uint32_t said_length, said_count;
static rostrum_message coming;
static rostrum_view coming_view;
static bool has_coming;
static uint8_t object[256]; /* of any name */
static size_t object_length;
static bool has_object;
static char taken[64];
static uint32_t delivered_count, deleted_count;
static rostrum_code set_code;
static rostrum_error error;

static int64_t now_ms(void *world) {
    (void)world;
    return clock_ms;
}

static rostrum_code next(void *world, rostrum_message *message, const rostrum_view **view, int timeout_ms,
                         rostrum_error *reason) {
    (void)world;
    clock_ms += timeout_ms;
    if (!has_coming) {
        reason->code = ROSTRUM_ERR_TIMEOUT;
        return reason->code;
    }
    has_coming = false;
    *message = coming;
    *view = &coming_view;
    return ROSTRUM_OK;
}

static rostrum_code try_publish(void *world, const void *bytes, uint32_t length, rostrum_error *reason) {
    (void)world, (void)reason;
    assert_in_range(length, HEAD, sizeof said);
    memcpy(said, bytes, length);
    said_length = length;
    said_count++;
    return ROSTRUM_OK;
}

static rostrum_code read_object(void *world, const char *name, const uint8_t **bytes, size_t *length,
                                rostrum_error *reason) {
    (void)world, (void)name, (void)reason;
    if (!has_object)
        return ROSTRUM_ERR_UNKNOWN;
    uint8_t *copy = malloc(object_length + 1); /* of its own, so that a read behind it is seen */
    assert_non_null(copy);
    copy = realloc(copy, object_length ? object_length : 1);
    memcpy(copy, object, object_length);
    *bytes = copy;
    *length = object_length;
    return ROSTRUM_OK;
}

static void unread(void *world, const uint8_t *bytes, size_t length) {
    (void)world, (void)length;
    free((void *)(uintptr_t)bytes);
}

static bool forget(void *world, const char *name) {
    (void)world, (void)name;
    deleted_count++;
    bool there = has_object;
    has_object = false;
    return there;
}

static rostrum_code add(void *world, const char *name, const void *table, size_t table_length, const void *state,
                        size_t state_length, rostrum_error *reason) {
    (void)world, (void)name, (void)table, (void)table_length, (void)state, (void)state_length;
    reason->code = ROSTRUM_ERR_NO_ROOM;
    return reason->code;
}

static rostrum_code send_object(void *world, const char *name, const char *server, const void *table,
                                size_t table_length, const void *state, size_t state_length, rostrum_replica_send **out,
                                rostrum_error *reason) {
    (void)out, (void)server;
    return add(world, name, table, table_length, state, state_length, reason);
}

static bool sent(void *world, rostrum_replica_send *send, rostrum_error *result) {
    (void)world, (void)send, (void)result;
    return true;
}

static void abandon(void *world, rostrum_replica_send *send) {
    (void)world, (void)send;
}

static const rostrum_replica_world world = {now_ms, next, try_publish, read_object, unread,
                                            forget, add,  send_object, sent,        abandon};

static void deliver(void *context, const rostrum_message *message) {
    (void)context, (void)message;
    delivered_count++;
}

static rostrum_code get_state(void *context, void **bytes, size_t *length) {
    (void)context;
    *bytes = NULL;
    *length = 0;
    return ROSTRUM_OK;
}

static rostrum_code set_state(void *context, const void *bytes, size_t length) {
    (void)context;
    assert_in_range(length, 0, sizeof taken - 1);
    memcpy(taken, bytes, length);
    taken[length] = 0;
    return set_code;
}

static rostrum_code step(void) {
    bool delivered;
    return rostrum_replica_step(replica, clock_ms, &delivered, &error);
}

static rostrum_code hear(const char *sender, uint64_t sn, const void *bytes, uint32_t length) {
    coming = (rostrum_message){.sender = sender, .sn = sn, .bytes = bytes, .length = length};
    has_coming = true;
    return step();
}

/* It joined h2, which has the state, and its WANT has come back. */
static int setup(void **context) {
    static const rostrum_replica_callbacks callbacks = {
        .deliver = deliver, .get_state = get_state, .set_state = set_state};
    static const char *const members[] = {"h1", "h2"};
    (void)context;
    clock_ms = 1000;
    said_count = delivered_count = deleted_count = 0;
    has_object = false;
    set_code = ROSTRUM_OK;
    taken[0] = 0;
    replica = rostrum_replica_new(&world, NULL, "h1", GROUP, &callbacks, NULL);
    coming_view = (rostrum_view){.id = 2,
                                 .number = 5,
                                 .members = members,
                                 .joined = members,
                                 .left = members,
                                 .member_count = 2,
                                 .joined_count = 1,
                                 .anew = 1};
    coming = (rostrum_message){.kind = ROSTRUM_VIEW, .sender = ""};
    has_coming = true;
    (void)step();
    return said_count == 1 && said[8] == 'W' && hear("h1", 6, said, said_length) == ROSTRUM_OK ? 0 : -1;
}

static int teardown(void **context) {
    (void)context;
    rostrum_replica_free(replica);
    return 0;
}

/* h2 answers the last WANT. */
static void offer(const char *name) {
    uint8_t bytes[256];
    memcpy(bytes, said, HEAD);
    bytes[8] = 'O';
    int text = snprintf((char *)bytes + HEAD, sizeof bytes - HEAD, "h1\n%s", name);
    (void)hear("h2", 7, bytes, HEAD + (uint32_t)text);
}

static void put_object(const void *bytes, size_t length) {
    memcpy(object, bytes, length);
    object_length = length;
    has_object = true;
}

/* The table of a giver that saw message 6, with itself as the holder, and "hello". */
static size_t good_state(uint8_t *to) {
    rostrum_replica_table table = {.number = 6, .lineage = 1};
    rostrum_replica_who holder = rostrum_replica_who_of("h2", 77);
    size_t length;
    (void)rostrum_replica_put(&table.holders, &holder, true);
    uint8_t *bytes = rostrum_replica_table_write(&table, &length);
    memcpy(to, bytes, length);
    memcpy(to + length, "hello", 5);
    free(bytes);
    rostrum_replica_table_clear(&table);
    return length + 5;
}

static void good_state__is_taken_and_what_came_after_it_is_delivered(void **context) {
    (void)context;
    uint8_t state[200];
    offer("rostrum.state/log/h1/1/1/2");
    (void)hear("h2", 8, "after", 5);
    assert_false(rostrum_replica_ready(replica));
    put_object(state, good_state(state));
    assert_int_equal(rostrum_replica_dispatch(replica, 0, &error), ROSTRUM_OK);
    assert_true(rostrum_replica_ready(replica));
    assert_string_equal(taken, "hello");
    assert_int_equal(delivered_count, 1);
    assert_int_equal(said[8], 'R');
    assert_int_equal(deleted_count, 1);
}

static void short_or_garbage__its_giver_is_passed_over(void **context) {
    (void)context;
    uint8_t state[200];
    size_t length = good_state(state);
    for (size_t cut = 0; cut < length - 5; cut += 7) {
        uint32_t before = said_count;
        offer("rostrum.state/log/h1/1/1/2");
        put_object(state, cut);
        (void)step();
        (void)step();
        assert_false(rostrum_replica_ready(replica));
        assert_string_equal(taken, "");
        assert_int_equal(said_count, before + 1); /* the next one is asked */
        assert_int_equal(said[8], 'W');
    }
    offer("rostrum.state/log/h1/1/2/2");
    put_object(state, length);
    (void)step();
    assert_true(rostrum_replica_ready(replica));
}

static void program_that_refuses_all_states__hears_why_in_the_end(void **context) {
    (void)context;
    uint8_t state[200];
    rostrum_code code = ROSTRUM_OK;
    set_code = ROSTRUM_ERR_INVALID;
    for (uint32_t i = 0; i < ROSTRUM_REPLICA_ATTEMPTS; i++) {
        offer("rostrum.state/log/h1/1/1/2");
        put_object(state, good_state(state));
        (void)step();
        code = step();
    }
    assert_int_equal(code, ROSTRUM_ERR_UNAVAILABLE);
    assert_non_null(strstr(error.text, "does not take the state"));
    assert_int_equal(step(), ROSTRUM_ERR_UNAVAILABLE); /* as long as it is asked */
}

static void offer_of_another_object__leaves_it_alone(void **context) {
    (void)context;
    uint8_t state[200];
    put_object(state, good_state(state));
    offer("values");
    offer("rostrum.state/other/h1/1/1/2");
    offer("");
    (void)step();
    assert_false(rostrum_replica_ready(replica));
    assert_int_equal(deleted_count, 0);
}

/* Rows without end, names that are cut off, counts that lie. */
static void any_bytes__as_table_or_message__do_no_harm(void **context) {
    (void)context;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srandom(seed);
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[160];
        size_t length = (size_t)random() % sizeof bytes, used;
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)(random() % 3 ? random() % 4 : random());
        uint8_t *exact = malloc(length ? length : 1);
        memcpy(exact, bytes, length);
        rostrum_replica_table table;
        if (rostrum_replica_table_read(exact, length, &table, &used))
            assert_in_range(used, 24, length);
        rostrum_replica_table_clear(&table);
        if (length > 9) {
            memcpy(exact, "\0rostrum", 8);
            exact[8] = (uint8_t) "CWORF"[random() % 5];
        }
        (void)hear(random() % 2 ? "h1" : "h2", 8 + (uint64_t)round, exact, (uint32_t)length);
        free(exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(good_state__is_taken_and_what_came_after_it_is_delivered, setup, teardown),
        cmocka_unit_test_setup_teardown(short_or_garbage__its_giver_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(program_that_refuses_all_states__hears_why_in_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(offer_of_another_object__leaves_it_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(any_bytes__as_table_or_message__do_no_harm, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
