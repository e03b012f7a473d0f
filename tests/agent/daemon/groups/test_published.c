/* Frames from a program to the agent: by the ring that they share, or by the socket. rs_published_* is the agent's end,
 * rostrum_publish the program's; what the agent does with a message is this file's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/group_frames.h"
#include "client/groups.h"
#include "core/base/random.h"
#include "daemon/groups/published.h"
#include "daemon/groups/unread.h"
#include "lone_agent.h"

#define MESSAGE_MOST (1u << 20)

typedef struct {
    rs_agent agent;
    rs_groups groups;
    rs_group_socket socket;
    rostrum_group *program;
    uint64_t seed, random, put, got, bytes;
    uint32_t limits; /* so often there is no room, first */
    bool any;        /* messages are not what `publish` makes */
    bool never_full; /* or at times, at random */
} world;

static void watch(rs_group_socket *s) {
    (void)s; /* these tests look at the socket themselves */
}

static rs_status take(rs_group_socket *at, int kind, const uint8_t *frame, uint32_t length) {
    world *w = RS_HOLDER(world, socket, at);
    const uint8_t *bytes = frame + RS_GROUP_FRAME_HEAD;
    if (kind != RS_GROUP_FRAME_KIND_PUBLISH)
        return RS_ERR_INVALID;
    if (w->limits > 0) {
        w->limits--;
        return RS_ERR_LIMIT;
    }
    if (!w->never_full && rs_random_next(&w->random) % 64 == 0)
        return RS_ERR_LIMIT;
    for (uint32_t i = 0; i < length; i += 61) {
        if (w->any)
            w->bytes += bytes[i];
        else
            assert_int_equal(bytes[i], (uint8_t)(w->got * 7 + i));
    }
    w->got++;
    return RS_OK;
}

static const rs_published_calls CALLS = {.take = take, .watch = watch};

static void begin(void **state, bool asks) {
    world *w = calloc(1, sizeof *w);
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    w->agent.loop = rs_loop_new();
    w->groups.agent = &w->agent;
    w->groups.message_bytes = MESSAGE_MOST;
    w->seed = w->random = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)w->random);
    rs_list_init(&w->groups.paused);
    w->socket =
        (rs_group_socket){.groups = &w->groups, .fd = ends[0], .event = -1, .given = -1, .asks = asks, .calls = &CALLS};
    rs_list_init(&w->socket.in_paused);
    rs_published_ring(&w->socket);
    assert_int_equal(w->socket.published.page != NULL, asks);
    w->program = rostrum_group_at(ends[1], "plain", "none", MESSAGE_MOST);
    assert_non_null(w->program);
    w->program->asks = true;
    (void)rostrum_group_fill(w->program);
    assert_true(rostrum_group_take_ring(w->program));
    assert_int_equal(w->program->published.page != NULL, asks);
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
    if (w->socket.fd >= 0) {
        close(w->socket.fd);
        rs_published_free(&w->socket);
        assert_int_equal(w->groups.ring_count, 0);
    }
    w->socket.fd = -1;
}

static void end_program(world *w) {
    if (w->program)
        rostrum_leave(w->program);
    w->program = NULL;
}

static int stop(void **state) {
    world *w = *state;
    end_agent(w);
    end_program(w);
    rs_loop_free(w->agent.loop);
    free(w);
    return 0;
}

static rostrum_code publish(world *w, uint32_t length, unsigned flags) {
    static uint8_t bytes[MESSAGE_MOST];
    rostrum_error error;
    for (uint32_t i = 0; i < length; i += 61)
        bytes[i] = (uint8_t)(w->put * 7 + i);
    rostrum_code code = rostrum_publish(w->program, bytes, length, flags, &error);
    w->put += !code;
    return code;
}

static bool is_readable(const world *w) {
    struct pollfd ready = {.fd = w->socket.fd, .events = POLLIN};
    return poll(&ready, 1, 0) > 0;
}

/* As the agent's loop: it sleeps until the socket is ready, unless something waits for room. False: it is over. */
static bool agent_turn(world *w) {
    struct pollfd ready = {.fd = w->socket.fd, .events = POLLIN};
    if (!w->socket.paused)
        assert_int_equal(poll(&ready, 1, -1), 1);
    return w->socket.paused ? rs_published_take(&w->socket) : rs_published_read(&w->socket);
}

#define RACED (UINT64_C(160) << 20) /* bytes */

static void *publish_all(void *context) {
    world *w = context;
    uint64_t random = w->seed + 1;
    for (uint64_t bytes = 0; bytes < RACED;) {
        uint64_t draw = rs_random_next(&random);
        uint32_t most = draw % 300 == 0 ? MESSAGE_MOST + 1 : draw % 30 == 0 ? 100000 : 1400;
        uint32_t length = draw % 900 == 0 ? MESSAGE_MOST : (uint32_t)(rs_random_next(&random) % most);
        assert_int_equal(publish(w, length, draw % 7 ? ROSTRUM_MORE : 0), ROSTRUM_OK);
        bytes += length;
    }
    end_program(w);
    return NULL;
}

/* Both at once, and each sleeps whenever it can: no wake is lost, and nothing of who leaves. */
static void race__every_message_comes_once_and_in_order(void **state) {
    world *w = *state;
    pthread_t program;
    assert_int_equal(pthread_create(&program, NULL, publish_all, w), 0);
    while (agent_turn(w))
        ;
    pthread_join(program, NULL);
    assert_int_equal(w->got, w->put);
}

static void message__wakes_the_agent_once(void **state) {
    world *w = *state;
    uint8_t wakes[64];
    w->never_full = true;
    for (unsigned i = 0; i < 3; i++) {
        assert_false(is_readable(w));
        assert_int_equal(publish(w, 100, 0), ROSTRUM_OK);
        assert_int_equal(publish(w, 100, 0), ROSTRUM_OK); /* it is woken: nothing more goes by the socket */
        assert_int_equal(recv(w->socket.fd, wakes, sizeof wakes, MSG_PEEK), RS_GROUP_FRAME_HEAD);
        assert_true(rs_published_read(&w->socket));
        assert_int_equal(w->got, w->put);
    }
}

/* What is more than a turn takes is not forgotten. */
static void much__goes_by_turns(void **state) {
    world *w = *state;
    unsigned turns = 1;
    w->never_full = true;
    for (unsigned i = 0; i < 350; i++)
        assert_int_equal(publish(w, 1400, 0), ROSTRUM_OK);
    assert_true(rs_published_read(&w->socket));
    for (; w->socket.paused; turns++)
        assert_true(rs_published_take(&w->socket));
    assert_int_equal(w->got, 350);
    assert_true(turns > 1);
}

static void agent_gone__publisher_is_told(void **state) {
    world *w = *state;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(publish(w, 100, 0), ROSTRUM_OK);
    end_agent(w);
    assert_int_equal(publish(w, 100, 0), ROSTRUM_ERR_UNAVAILABLE);
    assert_int_equal(publish(w, 100, 0), ROSTRUM_ERR_UNAVAILABLE);
}

static void program_gone__what_it_left_is_taken(void **state) {
    world *w = *state;
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(publish(w, 1000, ROSTRUM_MORE), ROSTRUM_OK);
    end_program(w);
    while (agent_turn(w))
        ;
    assert_int_equal(w->got, 100);
}

/* The first word of the shared page is `put`. */
static _Atomic uint64_t *put_of(const rs_shared_ring *ring) {
    return (_Atomic uint64_t *)(void *)ring->page;
}

static void program_says_what_cannot_be__is_not_served(void **state) {
    world *w = *state;
    w->never_full = true;
    assert_int_equal(publish(w, 1000, 0), ROSTRUM_OK);
    assert_true(rs_published_read(&w->socket));
    for (unsigned i = 0; i < 4; i++) {
        rs_shared_ring *ring = &w->socket.published;
        const uint64_t taken = ring->taken, lies[] = {UINT64_MAX, taken + ring->size + 1, taken - 1, 0};
        atomic_store(put_of(&w->program->published), lies[i]);
        assert_false(rs_published_take(&w->socket));
        assert_true(ring->broken);
        ring->broken = false;
    }
    assert_int_equal(w->got, 1);
}

static void frame_beyond_the_largest__is_not_served(void **state) {
    world *w = *state;
    uint8_t *at = rs_shared_ring_put(&w->program->published, 4096);
    rs_group_frame_put_head(at, MESSAGE_MOST + 1, RS_GROUP_FRAME_KIND_PUBLISH, 0);
    (void)rs_shared_ring_tell(&w->program->published);
    assert_false(rs_published_read(&w->socket));
}

/* The buffer of large frames was written beyond its end. */
static void frame_of_no_kind__larger_than_the_ring_is_not_served(void **state) {
    world *w = *state;
    rs_shared_ring *ring = &w->program->published;
    uint8_t *at = rs_shared_ring_put(ring, ring->size);
    memset(at, 0, ring->size);
    rs_group_frame_put_head(at, 600000, 0, 0);
    (void)rs_shared_ring_tell(ring);
    assert_false(rs_published_read(&w->socket));
}

/* The agent slept, with a frame in the ring, after it had taken a large one that it held for a turn. */
static void large_message_that_waited__what_is_behind_it_is_taken(void **state) {
    world *w = *state;
    rs_shared_ring *ring = &w->program->published;
    w->any = w->never_full = true;
    w->limits = 1;
    uint8_t *at = rs_shared_ring_put(ring, RS_GROUP_FRAME_HEAD + 400000);
    memset(at, 0, RS_GROUP_FRAME_HEAD + 400000);
    rs_group_frame_put_head(at, 600000, RS_GROUP_FRAME_KIND_PUBLISH, 0);
    (void)rs_shared_ring_tell(ring);
    do
        assert_true(rs_published_take(&w->socket));
    while (w->socket.paused);
    at = rs_shared_ring_put(ring, 200000 + RS_GROUP_FRAME_HEAD + 10);
    memset(at, 0, 200000 + RS_GROUP_FRAME_HEAD + 10);
    rs_group_frame_put_head(at + 200000, 10, RS_GROUP_FRAME_KIND_PUBLISH, 0);
    (void)rs_shared_ring_tell(ring);
    do
        assert_true(rs_published_take(&w->socket));
    while (w->socket.paused);
    assert_int_equal(w->got, 2);
}

/* What it published by the socket the agent took for wakes. */
static void program_without_descriptors__is_told(void **state) {
    (void)state;
    uint8_t frame[RS_GROUP_FRAME_HEAD];
    rostrum_group group = {.given = {-1, -1}, .in = {.bytes = frame, .length = sizeof frame}};
    rs_group_frame_put_head(frame, 0, RS_GROUP_FRAME_KIND_RING, 0);
    assert_false(rostrum_group_take_ring(&group));
}

/* It is not waited for: its end of what wakes it is its own. */
static void program_reads_no_wakes__agent_goes_on(void **state) {
    world *w = *state;
    rs_shared_ring *ring = &w->program->published;
    w->never_full = true;
    assert_int_equal(fcntl(w->program->given[1], F_SETFL, 0), 0);
    while (send(w->socket.event, "", 1, MSG_DONTWAIT) == 1)
        ;
    while (rs_shared_ring_free(ring) > 0)
        rs_group_frame_put_head(rs_shared_ring_put(ring, RS_GROUP_FRAME_HEAD), 0, RS_GROUP_FRAME_KIND_PUBLISH, 0);
    (void)rs_shared_ring_tell(ring);
    assert_true(rs_shared_ring_await_room(ring));
    do
        assert_true(rs_published_take(&w->socket));
    while (w->socket.paused);
    assert_int_equal(w->got, ring->size / RS_GROUP_FRAME_HEAD);
}

typedef struct {
    const world *world;
    uint64_t random;
    atomic_bool over;
} scribbler;

/* Lengths, kinds, positions: whatever there is, at any time. */
static void *scribble(void *context) {
    scribbler *s = context;
    const rs_shared_ring *ring = &s->world->program->published;
    while (!atomic_load(&s->over)) {
        uint64_t draw = rs_random_next(&s->random);
        const uint32_t length = draw % 5 == 0 ? (uint32_t)draw : (uint32_t)(draw >> 32) % (draw % 3 ? 40 : 700000);
        _Atomic uint64_t *frame = (_Atomic uint64_t *)(void *)(ring->bytes + (draw >> 20) % ring->size / 8 * 8);
        atomic_store(frame, length | (uint64_t)RS_GROUP_FRAME_KIND_PUBLISH << 32);
        if (draw % 16 == 0)
            atomic_fetch_add(put_of(ring), (draw >> 8) % 5000);
        else if (draw % 1024 == 1)
            atomic_store(put_of(ring), draw >> 40);
    }
    return NULL;
}

/* Each turn ends, and none reads beyond what is shared (sanitizers see that). */
static void program_writes_meanwhile__agent_stays_within(void **state) {
    world *w = *state;
    scribbler s = {.world = w, .random = w->seed + 2};
    pthread_t other;
    w->any = true;
    for (uint32_t i = 0; i < w->socket.published.size; i += RS_GROUP_FRAME_HEAD)
        rs_group_frame_put_head(w->socket.published.bytes + i, 0, RS_GROUP_FRAME_KIND_PUBLISH, 0);
    assert_int_equal(pthread_create(&other, NULL, scribble, &s), 0);
    for (unsigned i = 0; i < 20000; i++) {
        rs_shared_ring *ring = &w->socket.published;
        if (rs_published_take(&w->socket))
            continue;
        w->socket.in_start = w->socket.in_length = 0; /* another program, so to speak */
        ring->broken = false;
        ring->taken = ring->told = ring->put = rs_random_next(&w->random) / 8 * 8;
        atomic_store(put_of(ring), ring->put);
    }
    atomic_store(&s.over, true);
    pthread_join(other, NULL);
    print_message("%llu messages\n", (unsigned long long)w->got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(race__every_message_comes_once_and_in_order, with_ring, stop),
        cmocka_unit_test_setup_teardown(race__every_message_comes_once_and_in_order, without_ring, stop),
        cmocka_unit_test_setup_teardown(message__wakes_the_agent_once, with_ring, stop),
        cmocka_unit_test_setup_teardown(much__goes_by_turns, with_ring, stop),
        cmocka_unit_test_setup_teardown(agent_gone__publisher_is_told, with_ring, stop),
        cmocka_unit_test_setup_teardown(agent_gone__publisher_is_told, without_ring, stop),
        cmocka_unit_test_setup_teardown(program_gone__what_it_left_is_taken, with_ring, stop),
        cmocka_unit_test_setup_teardown(program_gone__what_it_left_is_taken, without_ring, stop),
        cmocka_unit_test_setup_teardown(program_says_what_cannot_be__is_not_served, with_ring, stop),
        cmocka_unit_test_setup_teardown(frame_beyond_the_largest__is_not_served, with_ring, stop),
        cmocka_unit_test_setup_teardown(frame_of_no_kind__larger_than_the_ring_is_not_served, with_ring, stop),
        cmocka_unit_test_setup_teardown(large_message_that_waited__what_is_behind_it_is_taken, with_ring, stop),
        cmocka_unit_test(program_without_descriptors__is_told),
        cmocka_unit_test_setup_teardown(program_reads_no_wakes__agent_goes_on, with_ring, stop),
        cmocka_unit_test_setup_teardown(program_writes_meanwhile__agent_stays_within, with_ring, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
