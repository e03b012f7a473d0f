/* An agent on loopback that is late: what waits in its sockets is read before timers of groups run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/groups/wire.h"
#include "core/qsm/wire.h"
#include "daemon/groups/state.h"
#include "daemon/groups/views.h"
#include "lone_agent.h"

#define SELF 0x7f000001u
#define OTHER 0x7f000002u
#define REGION 7u
#define MANY 330u /* datagrams: more than a turn reads, and fewer than the smallest of buffers holds */
#define TURNS 40u
#define EIGHT 8
#define JOINED_MOST 60u

typedef struct {
    lone_agent lone;
    int other; /* a socket of the other node */
} world;

static rs_time machine; /* what the machine's clock says */

static uint16_t group_port(void) {
    return (uint16_t)(60000 + getpid() % 5000);
}

static rs_time read_machine(void) {
    return machine;
}

/* `joined`: the region has an address, and the kernel joins what comes to it. */
static int start_with(void **state, bool joined) {
    world *w = calloc(1, sizeof *w);
    static char server[] = "h1", udp[] = "udp", gso[] = "udp-gso";
    lone_agent_start_with(&w->lone, server, joined ? gso : udp);
    machine = 1000 * RS_SECOND;
    rs_loop_clock_set(w->lone.agent->loop, read_machine);
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(OTHER)};
    w->other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(w->other, (const struct sockaddr *)&own, sizeof own), 0);
    const rs_manager_group_peer peers[] = {{.id = 1, .server = "h1", .address = SELF, .port = 9},
                                           {.id = 2, .server = "h2", .address = OTHER, .port = 9}};
    const int32_t nodes[] = {1, 2};
    const rs_manager_group_region region = {.region = REGION,
                                            .version = 1,
                                            .full = true,
                                            .protocol = "qsm",
                                            .options = "",
                                            .address = joined ? SELF : 0,
                                            .port = joined ? group_port() : 0,
                                            .nodes = nodes,
                                            .node_count = 2};
    for (unsigned i = 0; i < 2; i++)
        rs_groups_peer(w->lone.agent, &peers[i]);
    rs_groups_region(w->lone.agent, &region);
    *state = w;
    return 0;
}

static int start(void **state) {
    return start_with(state, false);
}

static int start_joined(void **state) {
    return start_with(state, true);
}

static int stop(void **state) {
    world *w = *state;
    close(w->other);
    lone_agent_stop(&w->lone);
    free(w);
    return 0;
}

static void say_to(const world *w, uint16_t port, const uint8_t *bytes, size_t length) {
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(SELF)};
    assert_int_equal(sendto(w->other, bytes, length, 0, (const struct sockaddr *)&to, sizeof to), length);
}

static void say(const world *w, const uint8_t *bytes, size_t length) {
    say_to(w, (uint16_t)atoi(w->lone.port), bytes, length);
}

/* To all of the region, so many datagrams of eight bytes, which the kernel carries as one. */
static void say_joined(const world *w, unsigned datagrams) {
    uint8_t bytes[JOINED_MOST * EIGHT] = {0};
    int each = EIGHT, off = 0;
    assert_int_equal(setsockopt(w->other, SOL_UDP, UDP_SEGMENT, &each, sizeof each), 0);
    say_to(w, group_port(), bytes, datagrams * (size_t)EIGHT);
    assert_int_equal(setsockopt(w->other, SOL_UDP, UDP_SEGMENT, &off, sizeof off), 0);
}

/* A turn of the loop, as far as groups are concerned. */
static void turn(const world *w) {
    rs_groups *g = w->lone.agent->groups;
    rs_groups_pump(g);
    assert_true(rs_loop_turn(w->lone.agent->loop, 0));
    if (rs_agent_now(w->lone.agent) >= rs_groups_deadline(g))
        rs_groups_timeout(g);
}

static uint64_t tokens(const world *w, const char *kind) {
    return rs_messages_count(w->lone.agent->groups->node, "qsm_tokens", kind);
}

/* The other node's packet: this one leads, and makes tokens. */
static void say_packet(const world *w) {
    const uint8_t body[RS_GM_BODY + 1] = {0};
    uint8_t bytes[RS_QSM_CARRIED + sizeof body] = {0};
    const rs_qsm_inner inner = {3, 1, body, sizeof body};
    rs_qsm_put_head(bytes, RS_QSM_KIND_DATA, &(rs_qsm_head){OTHER, 5, REGION, 1});
    rs_qsm_put_sn(bytes, 1);
    rs_qsm_put_inner(bytes + RS_QSM_DATA_HEAD, &inner);
    rs_gm_seal(bytes, sizeof bytes);
    say(w, bytes, sizeof bytes);
}

static void say_token_ack(const world *w, uint16_t port) {
    uint8_t bytes[RS_QSM_TOKEN_HEAD] = {0};
    const rs_qsm_token token = {.from = OTHER, .leader = SELF, .round = 1, .parts = 1};
    rs_qsm_put_head(bytes, RS_QSM_KIND_TOKEN_ACK, &(rs_qsm_head){OTHER, 5, REGION, 1});
    rs_qsm_put_token(bytes, &token);
    rs_gm_seal(bytes, sizeof bytes);
    say_to(w, port, bytes, sizeof bytes);
}

static void make_token(const world *w) {
    say_packet(w);
    for (unsigned i = 0; i < TURNS && tokens(w, "sent") == 0; i++) {
        turn(w);
        machine += RS_MILLISECOND;
    }
    assert_int_equal(tokens(w, "sent"), 1);
    assert_int_equal(tokens(w, "again"), 0);
}

/* It did not run for so long, and finds these, and the acknowledgement of its token behind them. */
static void be_late(const world *w, rs_time late, bool acknowledged) {
    const uint8_t nothing[8] = {0};
    for (unsigned i = 0; i < MANY; i++)
        say(w, nothing, sizeof nothing);
    if (acknowledged)
        say_token_ack(w, (uint16_t)atoi(w->lone.port));
    machine += late;
}

static void token__that_was_acknowledged_while_its_node_was_late_is_not_sent_again(void **state) {
    const world *w = *state;
    make_token(w);
    be_late(w, 300 * RS_MILLISECOND, true);
    for (unsigned i = 0; i < TURNS; i++) {
        turn(w);
        machine += RS_MILLISECOND / 10; /* what reading takes */
    }
    assert_int_equal(tokens(w, "again"), 0);
}

/* Of what the kernel joined a turn takes less than it might, and the rest waits: the socket is not empty. */
static void token__acknowledged_behind_joined_datagrams_is_not_sent_again(void **state) {
    const world *w = *state;
    say_joined(w, JOINED_MOST); /* it learns that they are */
    make_token(w);
    for (unsigned datagrams = 0; datagrams < MANY; datagrams += JOINED_MOST)
        say_joined(w, JOINED_MOST);
    say_token_ack(w, group_port());
    machine += 300 * RS_MILLISECOND;
    for (unsigned i = 0; i < TURNS; i++) {
        turn(w);
        machine += RS_MILLISECOND / 10;
    }
    assert_int_equal(tokens(w, "again"), 0);
}

/* The clock leaves out a pause that long: what waits is read before even its first milliseconds are over. */
static void token__of_a_node_that_was_stopped_for_two_seconds_is_not_sent_again(void **state) {
    const world *w = *state;
    make_token(w);
    be_late(w, 2 * RS_SECOND, true);
    for (unsigned i = 0; i < TURNS; i++) {
        turn(w);
        machine += 2 * RS_MILLISECOND; /* on a busy machine */
    }
    assert_int_equal(tokens(w, "again"), 0);
    assert_int_equal(tokens(w, "passed over"), 0);
}

static void token__that_nobody_acknowledged_is_sent_again_once_all_is_read(void **state) {
    const world *w = *state;
    make_token(w);
    be_late(w, 300 * RS_MILLISECOND, false);
    for (unsigned i = 0; i < TURNS; i++)
        turn(w);
    assert_int_equal(tokens(w, "again"), 1);
}

/* What never ends keeps no timer waiting for ever. */
static void token__is_sent_again_in_a_flood(void **state) {
    const world *w = *state;
    const uint8_t nothing[8] = {0};
    make_token(w);
    be_late(w, 300 * RS_MILLISECOND, false);
    uint32_t turns = 0;
    for (; turns < 2 * RS_DRAIN_MOST / 256 && tokens(w, "again") == 0; turns++) {
        turn(w);
        for (unsigned i = 0; i < 256; i++)
            say(w, nothing, sizeof nothing);
    }
    assert_int_equal(tokens(w, "again"), 1);
    assert_true(turns > 2); /* it waited */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(token__that_was_acknowledged_while_its_node_was_late_is_not_sent_again, start,
                                        stop),
        cmocka_unit_test_setup_teardown(token__acknowledged_behind_joined_datagrams_is_not_sent_again, start_joined,
                                        stop),
        cmocka_unit_test_setup_teardown(token__of_a_node_that_was_stopped_for_two_seconds_is_not_sent_again, start,
                                        stop),
        cmocka_unit_test_setup_teardown(token__that_nobody_acknowledged_is_sent_again_once_all_is_read, start, stop),
        cmocka_unit_test_setup_teardown(token__is_sent_again_in_a_flood, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
