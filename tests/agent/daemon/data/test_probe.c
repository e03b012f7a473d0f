/* Probes on loopback: what is sent is counted, what cannot be done is told with a reason, nothing stays behind. */
#include "daemon/data/probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define LOOPBACK 0x7f000001u
#define GROUP 0xefc00909u

typedef struct {
    unsigned reports, listening;
    char phase[16], cause[RS_PROBE_TEXT];
    uint32_t counts[4], reached;
    char reached_cause[2][RS_PROBE_TEXT];
    rs_loop *loop;
    rs_probes *probes;
} world;

static void report(void *context, rs_manager_probe_report *r) {
    world *w = context;
    if (strcmp(r->phase, "listening") == 0) {
        w->listening++;
        return;
    }
    if (r->group_small + r->unicast_small > 0 || w->reports == 0 || r->cause[0] || r->reached_count) {
        w->counts[0] = r->group_small;
        w->counts[1] = r->group_full;
        w->counts[2] = r->unicast_small;
        w->counts[3] = r->unicast_full;
        snprintf(w->phase, sizeof w->phase, "%s", r->phase);
        snprintf(w->cause, sizeof w->cause, "%s", r->cause);
    }
    w->reached = r->reached_count;
    for (uint32_t i = 0; i < r->reached_count && i < 2; i++)
        snprintf(w->reached_cause[i], RS_PROBE_TEXT, "%s", r->reached[i].cause);
    w->reports++;
}

static int start(void **state) {
    world *w = calloc(1, sizeof *w);
    w->loop = rs_loop_new();
    w->probes = rs_probes_new(w->loop, LOOPBACK, report, w);
    *state = w;
    return 0;
}

static int stop(void **state) {
    world *w = *state;
    rs_probes_free(w->probes);
    rs_loop_free(w->loop);
    free(w);
    return 0;
}

static void run_until(world *w, unsigned reports) {
    for (unsigned i = 0; i < 20000 && w->reports < reports; i++) {
        rs_time bound = rs_loop_refresh(w->loop) + RS_MILLISECOND;
        rs_time due = rs_probes_deadline(w->probes);
        assert_true(rs_loop_turn(w->loop, due < bound ? due : bound));
        if (rs_loop_now(w->loop) >= rs_probes_deadline(w->probes))
            rs_probes_timeout(w->probes);
    }
    assert_int_equal(w->reports, reports);
}

static rs_manager_probe packets(rs_manager_probe_kind kind, const char *id) {
    return (rs_manager_probe){.id = id,
                              .kind = kind,
                              .time = 2 * RS_SECOND,
                              .group = GROUP,
                              .port = (uint16_t)(20000 + getpid() % 10000),
                              .packets = 5,
                              .mtu = 1500};
}

static void probe__unicast_packets_of_this_probe_are_counted_once(void **state) {
    world *w = *state;
    rs_manager_probe listen = packets(RS_MANAGER_PROBE_LISTEN, "p1"), send = packets(RS_MANAGER_PROBE_SEND, "p1");
    rs_manager_probe stranger = packets(RS_MANAGER_PROBE_SEND, "p2");
    rs_manager_server here = {.server = "h2", .address = LOOPBACK, .control_port = 1};
    listen.time = 300 * RS_MILLISECOND;
    send.servers = stranger.servers = &here;
    send.server_count = stranger.server_count = 1;
    rs_probes_order(w->probes, &listen);
    assert_int_equal(w->listening, 1);
    rs_probes_order(w->probes, &stranger);
    rs_probes_order(w->probes, &send);
    run_until(w, 3);
    assert_string_equal(w->phase, "done");
    assert_int_equal(w->counts[2], 5);
    assert_int_equal(w->counts[3], 5);
    assert_int_equal(w->counts[0], 5); /* the loopback interface hands multicast back */
    assert_int_equal(w->counts[1], 5);
    assert_true(rs_probes_deadline(w->probes) == RS_NEVER);
}

static void probe__reach_tells_of_each_server(void **state) {
    world *w = *state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(LOOPBACK)}};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &length), 0);
    rs_manager_server servers[] = {{"h2", LOOPBACK, ntohs(at.sin_port), 0}, {"h3", LOOPBACK, 1, 0}};
    rs_manager_probe order = {
        .id = "r", .kind = RS_MANAGER_PROBE_REACH, .time = 2 * RS_SECOND, .servers = servers, .server_count = 2};
    rs_probes_order(w->probes, &order);
    run_until(w, 1);
    assert_int_equal(w->reached, 2);
    assert_string_equal(w->reached_cause[0], "");
    assert_string_equal(w->reached_cause[1], "Connection refused");
    close(listener);
}

static void probe__too_many_are_refused_with_a_reason(void **state) {
    world *w = *state;
    for (unsigned i = 0; i < RS_PROBES_MAX; i++) {
        char id[16];
        snprintf(id, sizeof id, "l%u", i);
        rs_manager_probe order = packets(RS_MANAGER_PROBE_LISTEN, id);
        order.port = (uint16_t)(order.port + i);
        rs_probes_order(w->probes, &order);
    }
    assert_int_equal(w->listening, RS_PROBES_MAX);
    rs_manager_probe more = {.id = "more", .kind = RS_MANAGER_PROBE_FACTS, .time = RS_SECOND};
    rs_probes_order(w->probes, &more);
    assert_int_equal(w->reports, 1);
    assert_string_equal(w->phase, "failed");
    assert_non_null(strstr(w->cause, "under way already"));
}

static void probe__a_listener_that_hears_nothing_reports_in_time(void **state) {
    world *w = *state;
    rs_manager_probe order = packets(RS_MANAGER_PROBE_LISTEN, "quiet");
    order.time = 20 * RS_MILLISECOND;
    rs_probes_order(w->probes, &order);
    run_until(w, 1);
    assert_string_equal(w->phase, "done");
    assert_int_equal(w->counts[0] + w->counts[1] + w->counts[2] + w->counts[3], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(probe__unicast_packets_of_this_probe_are_counted_once, start, stop),
        cmocka_unit_test_setup_teardown(probe__reach_tells_of_each_server, start, stop),
        cmocka_unit_test_setup_teardown(probe__too_many_are_refused_with_a_reason, start, stop),
        cmocka_unit_test_setup_teardown(probe__a_listener_that_hears_nothing_reports_in_time, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
