/* The metrics endpoint: what it answers, and that strangers cannot hurt or hold it. */
#include "daemon/metrics/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/log.h"

typedef struct {
    rs_loop *loop;
    rs_metrics_server *server;
    unsigned pages;
    uint16_t port;
} world;

static char *page(void *context, size_t *length) {
    world *w = context;
    w->pages++;
    char *made = strdup("rostrum_agent_manager_up 1\n");
    *length = strlen(made);
    return made;
}

static int start(void **state) {
    char text[RS_METRICS_TEXT];
    world *w = calloc(1, sizeof *w);
    w->loop = rs_loop_new();
    for (unsigned i = 0; i < 100 && !w->server; i++) { /* a port that nobody has */
        char where[32];
        w->port = (uint16_t)(20000 + ((unsigned)getpid() * 7 + i) % 12000);
        snprintf(where, sizeof where, "127.0.0.1:%u", w->port);
        w->server = rs_metrics_server_new(w->loop, where, page, w, text);
    }
    *state = w;
    return w->server ? 0 : -1;
}

static int stop(void **state) {
    world *w = *state;
    rs_metrics_server_free(w->server);
    rs_loop_free(w->loop);
    free(w);
    return 0;
}

static int caller(const world *w) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(w->port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void turn(world *w) {
    assert_true(rs_loop_turn(w->loop, rs_loop_refresh(w->loop) + RS_MILLISECOND));
    if (rs_loop_now(w->loop) >= rs_metrics_server_deadline(w->server))
        rs_metrics_server_timeout(w->server);
}

/* The whole answer, "" if the connection was closed without one. */
static void answer_of(world *w, int fd, char out[2048]) {
    size_t used = 0;
    for (unsigned i = 0; i < 10000; i++) { /* some ms each, while nothing comes */
        turn(w);
        ssize_t got = recv(fd, out + used, 2047 - used, MSG_DONTWAIT);
        if (got > 0)
            used += (size_t)got;
        else if (got == 0)
            break;
    }
    out[used] = '\0';
    close(fd);
}

static void ask(world *w, const char *request, size_t length, char out[2048]) {
    int fd = caller(w);
    assert_int_equal(send(fd, request, length, MSG_NOSIGNAL), (ssize_t)length);
    answer_of(w, fd, out);
}

static void server__gives_the_page_and_nothing_else(void **state) {
    static const struct {
        const char *request, *status;
    } cases[] = {
        {"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK"},
        {"GET /metrics?x=1 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"},
        {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404"},
        {"GET /metricsx HTTP/1.1\r\n\r\n", "HTTP/1.1 404"},
        {"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405"},
        {"GET /metrics\r\n\r\n", "HTTP/1.1 400"},
        {"GET /metrics SMTP\r\n\r\n", "HTTP/1.1 400"},
        {"\r\n\r\n", "HTTP/1.1 400"},
        {"GET\r\n /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
    };
    world *w = *state;
    char out[2048];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ask(w, cases[i].request, strlen(cases[i].request), out);
        assert_non_null(strstr(out, cases[i].status));
        assert_non_null(strstr(out, "Connection: close"));
    }
    ask(w, cases[0].request, strlen(cases[0].request), out);
    assert_non_null(strstr(out, "\r\n\r\nrostrum_agent_manager_up 1\n"));
    assert_int_equal(w->pages, 3);
}

static void server__takes_a_request_byte_by_byte(void **state) {
    world *w = *state;
    const char *request = "GET /metrics HTTP/1.1\r\n\r\n";
    char out[2048];
    int fd = caller(w);
    for (const char *at = request; *at; at++) {
        assert_int_equal(send(fd, at, 1, MSG_NOSIGNAL), 1);
        turn(w);
    }
    answer_of(w, fd, out);
    assert_non_null(strstr(out, "200 OK"));
}

static void server__answers_a_request_without_end_and_closes(void **state) {
    world *w = *state;
    char out[2048], *request = malloc(RS_METRICS_REQUEST_MAX);
    memset(request, 'a', RS_METRICS_REQUEST_MAX);
    ask(w, request, RS_METRICS_REQUEST_MAX, out);
    assert_non_null(strstr(out, "HTTP/1.1 431"));
    free(request);
}

static void server__survives_garbage(void **state) {
    world *w = *state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    for (unsigned round = 0; round < 300; round++) {
        char bytes[600], out[2048];
        size_t length = 1 + (unsigned)rand_r(&seed) % sizeof bytes;
        for (size_t i = 0; i < length; i++)
            bytes[i] = (char)rand_r(&seed);
        if (round % 3 == 0)
            memcpy(bytes + length - (length < 4 ? length : 4), "\r\n\r\n", length < 4 ? length : 4);
        int fd = caller(w);
        assert_true(send(fd, bytes, length, MSG_NOSIGNAL) > 0);
        turn(w);
        shutdown(fd, SHUT_WR);
        answer_of(w, fd, out);
        assert_true(out[0] == '\0' || strncmp(out, "HTTP/1.1 4", 10) == 0);
    }
    char out[2048];
    ask(w, "GET /metrics HTTP/1.1\r\n\r\n", 25, out);
    assert_non_null(strstr(out, "200 OK"));
}

/* Descriptors run out: the loop sleeps instead of spinning, and goes on when there are some again. */
static void server__out_of_descriptors_neither_spins_nor_stays_so(void **state) {
    world *w = *state;
    struct rlimit before, none;
    int fd = caller(w), lowest = dup(fd);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    rs_log_set_level("error");
    rs_time until = rs_loop_refresh(w->loop) + 100 * RS_MILLISECOND;
    unsigned turns = 0;
    for (; rs_loop_refresh(w->loop) < until; turns++)
        assert_true(rs_loop_turn(w->loop, until));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_in_range(turns, 1, 5); /* a loop that spins makes many thousands */
    assert_true(rs_metrics_server_deadline(w->server) < RS_NEVER);
    char out[2048];
    assert_int_equal(send(fd, "GET /metrics HTTP/1.1\r\n\r\n", 25, MSG_NOSIGNAL), 25);
    answer_of(w, fd, out);
    assert_non_null(strstr(out, "200 OK"));
    close(fd);
}

static void server__has_room_when_those_who_say_nothing_hold_all_places(void **state) {
    world *w = *state;
    int silent[RS_METRICS_CONNECTIONS_MAX];
    char out[2048];
    for (unsigned i = 0; i < RS_METRICS_CONNECTIONS_MAX; i++) {
        silent[i] = caller(w);
        turn(w);
    }
    ask(w, "GET /metrics HTTP/1.1\r\n\r\n", 25, out);
    assert_non_null(strstr(out, "200 OK")); /* in the place of the oldest */
    assert_int_equal(recv(silent[0], out, 1, MSG_DONTWAIT), 0);
    assert_true(rs_metrics_server_deadline(w->server) <= rs_loop_now(w->loop) + RS_METRICS_TIME);
    for (unsigned i = 0; i < RS_METRICS_CONNECTIONS_MAX; i++) {
        close(silent[i]);
        turn(w);
    }
    for (unsigned i = 0; i < 10; i++)
        turn(w);
    ask(w, "GET /metrics HTTP/1.1\r\n\r\n", 25, out);
    assert_non_null(strstr(out, "200 OK"));
}

static void server__a_unix_socket_left_behind_is_replaced(void **state) {
    world *w = *state;
    char text[RS_METRICS_TEXT], path[64];
    snprintf(path, sizeof path, "/tmp/rs-metrics-%d.sock", getpid());
    struct sockaddr_un here = {.sun_family = AF_UNIX};
    snprintf(here.sun_path, sizeof here.sun_path, "%s", path);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (struct sockaddr *)&here, sizeof here), 0);
    close(stale);
    rs_metrics_server *second = rs_metrics_server_new(w->loop, path, page, w, text);
    assert_non_null(second);
    assert_null(rs_metrics_server_new(w->loop, path, page, w, text)); /* somebody listens: not taken away */
    assert_non_null(strstr(text, "Address already in use"));
    rs_metrics_server_free(second);
    struct stat found;
    assert_int_equal(stat(path, &found), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(server__gives_the_page_and_nothing_else, start, stop),
        cmocka_unit_test_setup_teardown(server__takes_a_request_byte_by_byte, start, stop),
        cmocka_unit_test_setup_teardown(server__answers_a_request_without_end_and_closes, start, stop),
        cmocka_unit_test_setup_teardown(server__survives_garbage, start, stop),
        cmocka_unit_test_setup_teardown(server__out_of_descriptors_neither_spins_nor_stays_so, start, stop),
        cmocka_unit_test_setup_teardown(server__has_room_when_those_who_say_nothing_hold_all_places, start, stop),
        cmocka_unit_test_setup_teardown(server__a_unix_socket_left_behind_is_replaced, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
