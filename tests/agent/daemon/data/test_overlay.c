/* Views of overlays and packets between peers (agent/daemon/data/overlay.c), at an agent on loopback. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/wire.h"
#include "core/rdcm/wire.h"
#include "daemon/agent.h"
#include "daemon/data/receiving.h"
#include "daemon/manager/client.h"
#include "lone_agent.h"

#define FRAGMENT 1000u
#define SIZE 4000u
#define FIRST_PATH 0xefc00101u
#define SECOND_PATH 0xefc00102u
#define LOOPBACK 0x7f000001u
#define NEIGHBOUR 0x7f000002u

typedef struct {
    lone_agent lone;
    rs_peer sender;
    uint64_t nonce;
    uint16_t neighbour_port; /* of the agent at NEIGHBOUR */
} world;

static rs_object_id object(void) {
    return (rs_object_id){.app = {7}, .data = 42};
}

static int start(void **state) {
    world *w = calloc(1, sizeof *w);
    static char server[] = "h2";
    lone_agent_start(&w->lone, server);
    rs_loop_refresh(w->lone.agent->loop);
    w->neighbour_port = 9;
    w->sender = rs_peers_number(&w->lone.agent->peers, "h1");
    rs_peers_hold(&w->lone.agent->peers, w->sender);
    *state = w;
    return 0;
}

static int stop(void **state) {
    world *w = *state;
    lone_agent_stop(&w->lone);
    free(w);
    return 0;
}

static void say(world *w, const rs_message *m) {
    uint8_t bytes[RS_HEADER_MAX];
    size_t length = rs_wire_encode(m, 0, bytes, sizeof bytes);
    assert_true(length > 0);
    assert_true(rs_receiving_message(w->lone.agent, w->sender, bytes, length, NULL, 0));
    rs_agent_pump(w->lone.agent);
}

/* The sender opens the object on the path of that group. */
static void open_by(world *w, uint32_t group) {
    rs_message m = {.type = RS_MSG_OPEN, .nonce = ++w->nonce};
    m.open.object = object();
    m.open.size = SIZE;
    m.open.fragment_size = FRAGMENT;
    m.open.end = SIZE / FRAGMENT;
    m.open.feedback_us = 5000;
    m.open.group_address = group;
    m.open.data_port = (uint16_t)atoi(w->lone.data_port);
    m.open.engine = RS_PROTOCOL_RDCM;
    m.open.path_kind = RS_PATH_PACKET;
    m.open.light_confirm = 1;
    m.open.digest = (rs_digest){.algorithm = 1, .length = 16};
    say(w, &m);
}

static void abandon(world *w) {
    rs_message m = {.type = RS_MSG_ABORT, .nonce = w->nonce};
    rs_wire_cause_set(&m.abort.cause, "cancelled by the sender: a test");
    say(w, &m);
}

static void view(world *w, const char *path, uint32_t group, uint64_t version) {
    const rs_manager_server servers[] = {{"h1", LOOPBACK, 9, 0}, {"h3", NEIGHBOUR, w->neighbour_port, 0}};
    rs_manager_view v = {.response_id = path,
                         .version = version,
                         .group = group,
                         .object = object(),
                         .sender = "h1",
                         .leaf = {"h3", "h3", "h1"},
                         .servers = servers,
                         .server_count = 2};
    rs_overlay_view(w->lone.agent, &v);
    rs_agent_pump(w->lone.agent);
}

static uint64_t version_in_use(const world *w) {
    rs_xfer_stats stats;
    assert_non_null(w->lone.agent->transfers.receiving);
    assert_int_equal(rs_xfer_stats_get(w->lone.agent->node, w->lone.agent->transfers.receiving->xfer, &stats), RS_OK);
    return stats.view;
}

static void a_view_before_its_transfer__is_handed_in_then(void **state) {
    world *w = *state;
    view(w, "p1", FIRST_PATH, 3);
    open_by(w, FIRST_PATH);
    assert_int_equal(version_in_use(w), 3);
    view(w, "p1", FIRST_PATH, 4);
    assert_int_equal(version_in_use(w), 4);
}

/* The same object is sent again, by another path, while the manager still changes the overlay of the last one: what it
 * tells of that must not outrank the new path's first view, neither before the transfer begins here nor after. */
static void an_object_is_sent_again__views_of_the_last_path_do_not_count(void **state) {
    world *w = *state;
    view(w, "p1", FIRST_PATH, 5);
    open_by(w, FIRST_PATH);
    assert_int_equal(version_in_use(w), 5);
    abandon(w);
    assert_null(w->lone.agent->transfers.receiving);
    view(w, "p2", SECOND_PATH, 1);
    view(w, "p1", FIRST_PATH, 6);
    open_by(w, SECOND_PATH);
    assert_int_equal(version_in_use(w), 1);
    view(w, "p1", FIRST_PATH, 7);
    assert_int_equal(version_in_use(w), 1);
    view(w, "p2", SECOND_PATH, 2);
    assert_int_equal(version_in_use(w), 2);
}

/* A socket of the server at that address, on any port; which one: `port`. */
static int socket_at(uint32_t address, uint16_t *port) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    socklen_t length = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &length), 0);
    *port = ntohs(own.sin_port);
    return fd;
}

static void send_ack(const world *w, int fd) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(w->lone.port)), .sin_addr.s_addr = htonl(LOOPBACK)};
    uint8_t bytes[RS_ACK_HEADER + 8 * RS_ACK_WORDS];
    rs_ack ack = {.flags = RS_ACK_TO_PREDECESSOR, .nonce = w->nonce, .version = 1};
    size_t length = rs_ack_encode(&ack, bytes);
    assert_int_equal(sendto(fd, bytes, length, 0, (struct sockaddr *)&to, sizeof to), length);
}

/* Reads what is there: over loopback it is there once it was sent. */
static uint64_t acks_heard(world *w) {
    rs_xfer_stats stats;
    for (int turn = 0; turn < 4; turn++)
        assert_true(rs_loop_turn(w->lone.agent->loop, rs_loop_refresh(w->lone.agent->loop)));
    assert_int_equal(rs_xfer_stats_get(w->lone.agent->node, w->lone.agent->transfers.receiving->xfer, &stats), RS_OK);
    return stats.acks_received;
}

/* Only the agents that views name are heard: not other servers, and not other programs on theirs. */
static void a_packet_of_another_program__is_not_heard(void **state) {
    world *w = *state;
    uint16_t other_port, strange_port;
    int agent = socket_at(NEIGHBOUR, &w->neighbour_port), other = socket_at(NEIGHBOUR, &other_port),
        stranger = socket_at(NEIGHBOUR + 1, &strange_port);
    open_by(w, FIRST_PATH);
    view(w, "p1", FIRST_PATH, 1);
    send_ack(w, other);
    send_ack(w, stranger);
    assert_int_equal(acks_heard(w), 0);
    send_ack(w, agent);
    assert_int_equal(acks_heard(w), 1);
    close(agent);
    close(other);
    close(stranger);
}

static void announce(world *w, uint64_t data, uint64_t size) {
    rs_message m = {.type = RS_MSG_OPEN, .nonce = ++w->nonce};
    m.open.object = (rs_object_id){.app = {7}, .data = data};
    m.open.size = size;
    m.open.fragment_size = FRAGMENT;
    m.open.end = (size - 1) / FRAGMENT + 1;
    m.open.light_confirm = 1;
    m.open.digest = (rs_digest){.algorithm = 1, .length = 16};
    say(w, &m);
}

static bool is_received(const world *w, uint64_t data) {
    for (const rs_transfer_entry *t = w->lone.agent->transfers.receiving; t; t = t->next)
        if (t->id.data == data)
            return true;
    return false;
}

/* So many times the agent looks at how far its transfers are. */
static void progress_is_looked_at(world *w, unsigned times) {
    while (times-- > 0) {
        for (rs_transfer_entry *t = w->lone.agent->transfers.receiving; t; t = t->next)
            t->progress_at = 0;
        rs_receiving_timeout(w->lone.agent);
    }
}

/* The sender's control connection; from then on it is up here. */
static int connect_sender(world *w) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(w->lone.port))};
    rs_message m = {.type = RS_MSG_HELLO, .hello = {.engines = rs_engines_here(), .boot = 5, .name_length = 2}};
    uint8_t bytes[RS_HEADER_MAX];
    memcpy(m.hello.name, "h1", 2);
    size_t length = rs_wire_encode(&m, 0, bytes, sizeof bytes);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
    while (!rs_control_is_up(w->lone.agent->control, w->sender))
        assert_true(rs_loop_turn(w->lone.agent->loop, RS_NEVER));
    return fd;
}

static void hang_up(world *w, int fd) {
    close(fd);
    while (rs_control_is_up(w->lone.agent->control, w->sender))
        assert_true(rs_loop_turn(w->lone.agent->loop, RS_NEVER));
}

/* All of the quota is kept for an object that never comes: others get it when they need it. */
static void an_object_announced_without_data__gives_way(void **state) {
    world *w = *state;
    int fd = connect_sender(w);
    announce(w, 1, 900000);
    assert_true(is_received(w, 1));
    announce(w, 2, 500000);
    assert_false(is_received(w, 2)); /* the first may come yet */
    progress_is_looked_at(w, 30);
    assert_true(is_received(w, 1)); /* nobody needs its room */
    announce(w, 3, 2000000);
    assert_true(is_received(w, 1)); /* it would not help */
    announce(w, 4, 500000);
    assert_true(is_received(w, 4) && !is_received(w, 1));
    hang_up(w, fd);
    announce(w, 5, 900000); /* whoever announced the last one has gone: there is nothing to wait for */
    assert_true(is_received(w, 5) && !is_received(w, 4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_view_before_its_transfer__is_handed_in_then, start, stop),
        cmocka_unit_test_setup_teardown(an_object_is_sent_again__views_of_the_last_path_do_not_count, start, stop),
        cmocka_unit_test_setup_teardown(an_object_announced_without_data__gives_way, start, stop),
        cmocka_unit_test_setup_teardown(a_packet_of_another_program__is_not_heard, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
