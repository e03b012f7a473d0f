/* An agent on loopback in a group with guarantees: what they have to say to a member leaves at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/group_frames.h"
#include "core/base/heap.h"
#include "daemon/groups/ordered.h"
#include "daemon/groups/state.h"
#include "daemon/groups/stream_state.h"
#include "daemon/groups/views.h"
#include "lone_agent.h"

#define SELF 0x7f000001u
#define OTHER 0x7f000002u
#define CHANNELS 512u
#define MEMBER 0x7f000003u /* as which the agent takes part: the other one coordinates */

typedef struct {
    lone_agent lone;
    int other; /* the socket of the other member */
    rs_local_group group;
} world;

static int start(void **state) {
    world *w = calloc(1, sizeof *w);
    static char server[] = "h1";
    lone_agent_start(&w->lone, server);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(OTHER)};
    socklen_t length = sizeof own;
    w->other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(w->other, (const struct sockaddr *)&own, length), 0);
    assert_int_equal(getsockname(w->other, (struct sockaddr *)&own, &length), 0);
    const rs_manager_group_peer peers[] = {
        {.id = 1, .server = "h1", .address = SELF, .port = 9},
        {.id = 2, .server = "h2", .address = OTHER, .port = ntohs(own.sin_port), .boot_id = 1}};
    for (unsigned i = 0; i < 2; i++)
        rs_groups_peer(w->lone.agent, &peers[i]);
    const rs_order_config config = {.group = 7, .self = MEMBER, .instance = 1, .total = true};
    w->group = (rs_local_group){.id = 7, .ordered = rs_order_new(&config, &rs_heap)};
    w->lone.agent->groups->ordered = &w->group;
    *state = w;
    return 0;
}

static int stop(void **state) {
    world *w = *state;
    w->lone.agent->groups->ordered = NULL;
    rs_order_free(w->group.ordered);
    close(w->other);
    lone_agent_stop(&w->lone);
    free(w);
    return 0;
}

/* It lay in the batch until something else was sent, or the loop's next turn: a timer's, 10 ms later. */
static void what_a_member_is_told__has_left_before_the_agent_waits(void **state) {
    const world *w = *state;
    const rs_peer members[] = {OTHER, MEMBER};
    uint8_t bytes[RS_DATAGRAM_MAX];
    const rs_time now = rs_agent_now(w->lone.agent);
    assert_int_equal(rs_order_view(w->group.ordered, now, 1, members, 2), RS_OK);
    rs_order_timeout(w->group.ordered, now + RS_SECOND); /* nobody has asked it: it reports */
    while (rs_groups_pump(w->lone.agent->groups)) {
    }
    const ssize_t length = recv(w->other, bytes, sizeof bytes, 0);
    assert_true(length > 2);
    assert_int_equal(bytes[0] | bytes[1] << 8, RS_ORDER_MAGIC);
}

/* It was cut off, and is in a view again: that is of the primary part, which nothing else says. */
static void view__ends_what_was_said_of_being_cut_off(void **state) {
    world *w = *state;
    const rs_peer members[] = {MEMBER};
    w->group.not_primary = true;
    assert_int_equal(rs_order_view(w->group.ordered, rs_agent_now(w->lone.agent), 1, members, 1), RS_OK);
    while (rs_groups_pump(w->lone.agent->groups)) {
    }
    assert_int_equal(w->group.view_count, 1);
    assert_false(w->group.not_primary);
    w->group.not_primary = true;
    rs_ordered_forget(w->lone.agent->groups, &w->group);
    assert_false(w->group.not_primary);
}

/* It has lost messages and views of so many groups that it cannot be told of all at once. */
static void views_of_many_groups_that_are_owed__come_as_soon_as_there_is_room(void **state) {
    world *w = *state;
    static rs_group_stream streams[CHANNELS];
    static rs_group_stream *channels[CHANNELS];
    static uint32_t peers[RS_GROUP_FRAME_VIEW_MOST];
    static uint8_t read[1 << 20];
    rs_groups *g = w->lone.agent->groups;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    rs_group_socket program = {
        .groups = g, .many = true, .fd = ends[0], .event = -1, .channels = channels, .channel_room = CHANNELS};
    for (uint32_t i = 0; i < RS_GROUP_FRAME_VIEW_MOST; i++)
        peers[i] = 1000 + i;
    w->group.delivery.tells_views = true;
    w->group.view_peers = peers;
    w->group.view_count = RS_GROUP_FRAME_VIEW_MOST;
    for (uint32_t i = 0; i < CHANNELS; i++) {
        streams[i] = (rs_group_stream){.groups = g, .group = &w->group, .socket = &program, .receives = true};
        streams[i].channel = (uint16_t)i;
        streams[i].owes_view = true;
        streams[i].lost = 1;
        channels[i] = &streams[i];
    }
    program.loses = true;
    uint32_t owed = CHANNELS;
    for (uint32_t turn = 0; turn < 1000 && owed > 0; turn++) {
        program.dirty = true;
        program.blocked = false;
        g->dirty = &program;
        rs_streams_flush(g);
        while (recv(ends[1], read, sizeof read, 0) > 0) {
        }
        owed = 0;
        for (uint32_t i = 0; i < CHANNELS; i++)
            owed += streams[i].owes_view || streams[i].lost > 0;
    }
    assert_int_equal(owed, 0);
    rs_loop_unwatch(w->lone.agent->loop, &program.watch);
    g->dirty = NULL;
    w->group.view_peers = NULL;
    free(program.out);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_member_is_told__has_left_before_the_agent_waits, start, stop),
        cmocka_unit_test_setup_teardown(view__ends_what_was_said_of_being_cut_off, start, stop),
        cmocka_unit_test_setup_teardown(views_of_many_groups_that_are_owed__come_as_soon_as_there_is_room, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
