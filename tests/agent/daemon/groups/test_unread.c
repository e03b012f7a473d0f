/* Frames from the agent to a program: by the ring that they share, or by the socket. Both ends are here, in one thread:
 * rs_unread_* is the agent's, rostrum_next the program's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/group_frames.h"
#include "client/groups.h"
#include "core/base/random.h"
#include "daemon/groups/unread.h"
#include "lone_agent.h"

#define MESSAGE_MOST (1u << 20)

typedef struct {
    rs_agent agent;
    rs_groups groups;
    rs_group_socket socket;
    rostrum_group *program;
    uint64_t put, got, turns; /* messages; times that the agent's loop told of room */
} world;

static void roomy(void *context, uint32_t events) {
    rs_group_socket *s = context;
    uint64_t count;
    (void)events;
    assert_int_equal(read(s->event, &count, sizeof count), sizeof count);
    RS_HOLDER(world, socket, s)->turns++;
}

static void begin(void **state, bool asks) {
    world *w = calloc(1, sizeof *w);
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    w->agent.loop = rs_loop_new();
    w->groups.agent = &w->agent;
    w->socket = (rs_group_socket){.groups = &w->groups, .fd = ends[0], .event = -1, .given = -1, .asks = asks};
    w->program = rostrum_group_at(ends[1], "plain", "none", MESSAGE_MOST);
    assert_non_null(w->program);
    w->program->asks = asks;
    rs_unread_ring(&w->socket, roomy);
    assert_int_equal(w->socket.ring.page != NULL, asks);
    *state = w;
}

static int with_ring(void **state) {
    begin(state, true);
    return 0;
}

static int without_ring(void **state) {
    begin(state, false);
    return 0;
}

static void end_agent(world *w) {
    if (w->socket.fd >= 0)
        close(w->socket.fd);
    w->socket.fd = -1;
    rs_unread_free(&w->socket);
    w->socket.out = NULL;
    assert_int_equal(w->groups.ring_count, 0);
}

static int stop(void **state) {
    world *w = *state;
    end_agent(w);
    rostrum_group_free(w->program);
    rs_loop_free(w->agent.loop);
    free(w);
    return 0;
}

/* Message `number`, whose bytes follow from it. False: there is no room. */
static bool put(world *w, uint32_t length) {
    uint8_t *at = rs_unread_room(&w->socket, RS_GROUP_FRAME_MESSAGE + (size_t)length);
    if (!at)
        return false;
    rs_group_frame_message(at, length, 0, 1, 0, w->put);
    for (uint32_t i = 0; i < length; i += 61)
        at[RS_GROUP_FRAME_MESSAGE + i] = (uint8_t)(w->put * 7 + i);
    w->put++;
    return true;
}

static rostrum_code take(world *w, rostrum_message *message) {
    rostrum_error error;
    rostrum_code code = rostrum_next(w->program, message, 0, &error);
    if (code)
        return code;
    assert_int_equal(message->sn, w->got);
    for (uint32_t i = 0; i < message->length; i += 61)
        assert_int_equal(((const uint8_t *)message->bytes)[i], (uint8_t)(w->got * 7 + i));
    w->got++;
    return ROSTRUM_OK;
}

static bool is_readable(int fd) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, 0) > 0;
}

/* Any order of turns of both; who sleeps goes on only when it was woken. */
static void any_turns__every_message_comes_once_and_in_order(void **state) {
    world *w = *state;
    uint64_t random = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)random);
    bool asleep = false, blocked = false;
    uint64_t bytes = 0;
    rostrum_message message;
    while (bytes < (UINT64_C(96) << 20) || w->got < w->put) {
        uint32_t what = (uint32_t)(rs_random_next(&random) % 8);
        uint64_t draw = rs_random_next(&random);
        for (uint32_t i = 0; what < 4 && bytes < (UINT64_C(96) << 20) && i < draw % 97; i++) {
            uint32_t length = (uint32_t)(rs_random_next(&random) % (what == 0 ? 200000 : 1400));
            length = what == 0 && draw % 11 == 0 ? MESSAGE_MOST : length;
            bytes += put(w, length) ? length : 0;
        }
        if (what == 4 && !blocked) {
            rs_unread_state now = rs_unread_flush(&w->socket);
            assert_int_not_equal(now, RS_UNREAD_GONE);
            blocked = now == RS_UNREAD_BLOCKED && w->socket.ring.page;
        }
        if (what == 5) {
            uint64_t before = w->turns;
            assert_true(rs_loop_turn(w->agent.loop, 0));
            blocked &= w->turns == before;
        }
        asleep &= !is_readable(rostrum_group_fd(w->program));
        for (uint64_t i = 0; what > 5 && !asleep && i < draw % 200; i++)
            asleep = take(w, &message) == ROSTRUM_ERR_TIMEOUT;
        if (asleep && blocked && !is_readable(w->socket.event))
            fail_msg("both sleep: %llu of %llu came", (unsigned long long)w->got, (unsigned long long)w->put);
    }
}

#define RACED 200000u

static void *publish_all(void *context) {
    world *w = context;
    while (w->put < RACED) {
        for (unsigned i = 0; i < 40 && w->put < RACED; i++)
            put(w, 1024);
        while (rs_unread_flush(&w->socket) == RS_UNREAD_BLOCKED) {
            struct pollfd room = {.fd = w->socket.ring.page ? w->socket.event : w->socket.fd,
                                  .events = w->socket.ring.page ? POLLIN : POLLOUT};
            uint64_t count;
            while (poll(&room, 1, -1) < 1)
                ;
            if (w->socket.ring.page)
                (void)!read(w->socket.event, &count, sizeof count);
        }
    }
    return NULL;
}

/* Both at once, and each sleeps whenever it can: no wake is lost. */
static void race__every_message_comes(void **state) {
    world *w = *state;
    pthread_t agent;
    rostrum_message message;
    assert_int_equal(pthread_create(&agent, NULL, publish_all, w), 0);
    while (w->got < RACED) {
        rostrum_code code = take(w, &message);
        struct pollfd ready = {.fd = rostrum_group_fd(w->program), .events = POLLIN};
        if (code == ROSTRUM_ERR_TIMEOUT)
            (void)poll(&ready, 1, -1);
        else
            assert_int_equal(code, ROSTRUM_OK);
    }
    pthread_join(agent, NULL);
}

/* The program read between the agent's look at the ring and its word that it sleeps, and would not wake it. */
static void read_meanwhile__agent_does_not_sleep(void **state) {
    world *w = *state;
    rostrum_message message;
    while (put(w, 1000) && rs_stream_unread(&w->socket) == 0)
        ;
    assert_int_equal(rs_unread_flush(&w->socket), RS_UNREAD_BLOCKED);
    assert_true(rs_shared_ring_await_room(&w->socket.ring));
    while (take(w, &message) == ROSTRUM_OK)
        ;
    assert_true(is_readable(w->socket.event));
    assert_false(rs_shared_ring_await_room(&w->socket.ring));
}

static void waits_for_message__is_woken_once(void **state) {
    world *w = *state;
    rostrum_message message;
    assert_int_equal(take(w, &message), ROSTRUM_ERR_TIMEOUT);
    for (unsigned i = 0; i < 3; i++) {
        assert_false(is_readable(rostrum_group_fd(w->program)));
        put(w, 100);
        assert_int_equal(rs_unread_flush(&w->socket), RS_UNREAD_SENT);
        assert_true(is_readable(rostrum_group_fd(w->program)));
        put(w, 100); /* it is awake: nothing more goes by the socket */
        assert_int_equal(rs_unread_flush(&w->socket), RS_UNREAD_SENT);
        assert_int_equal(take(w, &message), ROSTRUM_OK);
        assert_int_equal(take(w, &message), ROSTRUM_OK);
        assert_int_equal(take(w, &message), ROSTRUM_ERR_TIMEOUT);
    }
}

/* With as much unread as may be, then an end: what is in the ring is read, then why it ended. */
static void end__is_read_behind_what_the_program_has(void **state) {
    static const char why[] = "this subscriber was too slow";
    world *w = *state;
    rostrum_message message;
    rostrum_error error;
    const bool ring = w->socket.ring.page;
    for (unsigned i = 0; i < 2000; i++)
        assert_true(put(w, 1400));
    assert_int_equal(rs_unread_flush(&w->socket), RS_UNREAD_BLOCKED);
    assert_int_equal(rs_unread_cut(&w->socket), ring);
    assert_int_equal(rs_stream_unread(&w->socket) == 0, ring);
    assert_false(rs_unread_cut(&w->socket));
    uint8_t *at = rs_unread_room(&w->socket, rs_group_frame_end_length(strlen(why)));
    rs_group_frame_end(at, ROSTRUM_ERR_LIMIT, why, strlen(why));
    (void)rs_unread_flush(&w->socket);
    end_agent(w);
    rostrum_code code;
    while ((code = take(w, &message)) == ROSTRUM_OK)
        ;
    if (ring)
        assert_int_equal(code, ROSTRUM_ERR_LIMIT);
    assert_in_range(w->got, ring ? (1u << 20) / 1424 : 1, w->put - 1);
    assert_int_equal(rostrum_next(w->program, &message, -1, &error), code);
}

/* The agent ends: what it had put into the ring is read still. */
static void agent_gone__what_came_is_read_first(void **state) {
    world *w = *state;
    rostrum_message message;
    assert_int_equal(take(w, &message), ROSTRUM_ERR_TIMEOUT);
    for (unsigned i = 0; i < 10; i++)
        put(w, 500);
    assert_int_equal(rs_unread_flush(&w->socket), RS_UNREAD_SENT);
    end_agent(w);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(take(w, &message), ROSTRUM_OK);
    assert_int_equal(take(w, &message), ROSTRUM_ERR_UNAVAILABLE);
}

static void program_gone__is_told(void **state) {
    world *w = *state;
    rostrum_message message;
    assert_int_equal(take(w, &message), ROSTRUM_ERR_TIMEOUT);
    shutdown(rostrum_group_fd(w->program), SHUT_RDWR);
    put(w, 10);
    assert_int_equal(rs_unread_flush(&w->socket), RS_UNREAD_GONE);
}

/* The first words of the shared page are the agent's `put`, `taken` is on the next cache line. */
static _Atomic uint64_t *words_of(const rs_shared_ring *ring) {
    return (_Atomic uint64_t *)(void *)ring->page;
}

static void program_says_what_cannot_be__is_not_served(void **state) {
    world *w = *state;
    rostrum_message message;
    put(w, 10);
    assert_int_equal(rs_unread_flush(&w->socket), RS_UNREAD_SENT);
    assert_int_equal(take(w, &message), ROSTRUM_OK);
    for (unsigned i = 0; i < 3; i++) {
        const rs_shared_ring *ring = &w->socket.ring;
        const uint64_t lies[] = {UINT64_MAX, ring->told + 1, ring->taken - 1};
        atomic_store(&words_of(&w->program->ring)[8], lies[i]);
        w->socket.ring.broken = false;
        while (rs_stream_unread(&w->socket) == 0)
            put(w, 100000);
        assert_int_equal(rs_unread_flush(&w->socket), RS_UNREAD_GONE);
    }
}

static void memory__cannot_be_made_shorter_by_the_program(void **state) {
    world *w = *state;
    rostrum_message message;
    assert_int_equal(take(w, &message), ROSTRUM_ERR_TIMEOUT);
    assert_int_equal(ftruncate(w->program->given[0], 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(w->program->given[0], 1 << 30), -1);
    assert_int_equal(fcntl(w->program->given[0], F_ADD_SEALS, F_SEAL_WRITE), -1);
}

/* It has emptied the eventfd that woke the agent, and made it wait: both have the same one. */
static void program_takes_its_wake_back__agent_does_not_wait(void **state) {
    world *w = *state;
    struct pollfd more = {.fd = w->socket.event, .events = POLLIN};
    assert_int_equal(fcntl(w->socket.event, F_SETFL, 0), 0);
    rs_unread_woken(&w->socket);
    assert_int_equal(eventfd_write(w->socket.event, 1), 0);
    assert_int_equal(poll(&more, 1, 0), 1);
    rs_unread_woken(&w->socket);
    assert_int_equal(poll(&more, 1, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_turns__every_message_comes_once_and_in_order, with_ring, stop),
        cmocka_unit_test_setup_teardown(any_turns__every_message_comes_once_and_in_order, without_ring, stop),
        cmocka_unit_test_setup_teardown(program_takes_its_wake_back__agent_does_not_wait, with_ring, stop),
        cmocka_unit_test_setup_teardown(race__every_message_comes, with_ring, stop),
        cmocka_unit_test_setup_teardown(race__every_message_comes, without_ring, stop),
        cmocka_unit_test_setup_teardown(read_meanwhile__agent_does_not_sleep, with_ring, stop),
        cmocka_unit_test_setup_teardown(waits_for_message__is_woken_once, with_ring, stop),
        cmocka_unit_test_setup_teardown(end__is_read_behind_what_the_program_has, with_ring, stop),
        cmocka_unit_test_setup_teardown(end__is_read_behind_what_the_program_has, without_ring, stop),
        cmocka_unit_test_setup_teardown(agent_gone__what_came_is_read_first, with_ring, stop),
        cmocka_unit_test_setup_teardown(agent_gone__what_came_is_read_first, without_ring, stop),
        cmocka_unit_test_setup_teardown(program_gone__is_told, with_ring, stop),
        cmocka_unit_test_setup_teardown(program_says_what_cannot_be__is_not_served, with_ring, stop),
        cmocka_unit_test_setup_teardown(memory__cannot_be_made_shorter_by_the_program, with_ring, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
