/* librostrum against the test server (api_testd, its path is the first argument): blocking and asynchronous use. */
#include <rostrum/channels.h>
#include <rostrum/rostrum.h>
#include <rostrum/streams.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const uint8_t app[16] = "0123456789abcde";
static char folder[64] = "/dev/shm/rostrum-librostrum-XXXXXX", socket_path[96], store[96];
static const char *program;
static pid_t server;
static int server_input = -1;
static rostrum *agent;
static rostrum_error error;

static int start_server(void) {
    int input[2], output[2];
    char ready[8] = {0};
    if (pipe(input) < 0 || pipe(output) < 0 || (server = fork()) < 0)
        return -1;
    if (server == 0) {
        dup2(input[0], 0);
        dup2(output[1], 1);
        close(input[1]);
        close(output[0]);
        execl(program, program, socket_path, store, "33554432", (char *)NULL);
        _exit(127);
    }
    close(input[0]);
    close(output[1]);
    server_input = input[1];
    ssize_t got = read(output[0], ready, sizeof ready - 1);
    close(output[0]);
    return got == 6 ? 0 : -1;
}

static int stop_server(void) {
    int status = -1;
    close(server_input);
    waitpid(server, &status, 0);
    return status;
}

static int setup(void **context) {
    (void)context;
    if (start_server() < 0)
        return -1;
    rostrum_code code = rostrum_connect(socket_path, app, "test", &agent, &error);
    if (code)
        print_message("connect: %s\n", error.text);
    return (int)code;
}

static int teardown(void **context) {
    (void)context;
    rostrum_close(agent);
    agent = NULL;
    return stop_server();
}

static void add_text(uint64_t data_id, const char *text) {
    int fd;
    assert_int_equal(rostrum_create(agent, strlen(text), &fd, NULL, &error), ROSTRUM_OK);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
    assert_int_equal(rostrum_add(agent, data_id, fd, &error), ROSTRUM_OK);
    close(fd);
}

static void assert_reads(int fd, const char *text) {
    char buffer[64] = {0};
    assert_int_equal(pread(fd, buffer, sizeof buffer - 1, 0), strlen(text));
    assert_string_equal(buffer, text);
    close(fd);
}

static void connect__fails_with_a_reason(void **context) {
    (void)context;
    static const uint8_t nobody[16];
    rostrum *other;
    assert_int_equal(rostrum_connect("/nowhere/agent.sock", app, "x", &other, &error), ROSTRUM_ERR_UNAVAILABLE);
    assert_null(other);
    assert_non_null(strstr(error.text, "/nowhere/agent.sock"));
    assert_int_equal(rostrum_connect(socket_path, nobody, "x", &other, &error), ROSTRUM_ERR_INVALID);
    assert_int_equal(rostrum_connect(socket_path, app, "a\nb", &other, NULL), ROSTRUM_ERR_INVALID);
    char long_path[200];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_int_equal(rostrum_connect(long_path, app, "x", &other, &error), ROSTRUM_ERR_INVALID);
    assert_string_equal(rostrum_server(agent), "h1");
}

static void objects__add_read_delete(void **context) {
    (void)context;
    int fd;
    uint64_t size, handle;
    add_text(1, "hello");
    assert_int_equal(rostrum_read(agent, 1, 0, &fd, &size, &error), ROSTRUM_OK);
    assert_int_equal(size, 5);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(rostrum_delete(agent, 1, &error), ROSTRUM_OK);
    assert_reads(fd, "hello");
    assert_int_equal(rostrum_delete(agent, 1, &error), ROSTRUM_ERR_UNKNOWN);
    assert_int_equal(rostrum_read(agent, 1, 0, &fd, NULL, &error), ROSTRUM_ERR_UNKNOWN);
    assert_int_equal(fd, -1);
    assert_int_equal(rostrum_read(agent, 1, 5, &fd, NULL, &error), ROSTRUM_ERR_TIMEOUT);
    assert_int_equal(rostrum_create(agent, (uint64_t)1 << 40, &fd, NULL, &error), ROSTRUM_ERR_NO_ROOM);
    assert_int_equal(fd, -1);
    assert_int_equal(rostrum_create(agent, 4096, &fd, &handle, &error), ROSTRUM_OK);
    close(fd);
    assert_int_equal(rostrum_drop(agent, handle, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_drop(agent, handle, &error), ROSTRUM_ERR_UNKNOWN);
    assert_int_equal(rostrum_add(agent, 1, -1, &error), ROSTRUM_ERR_INVALID);
}

typedef struct {
    int phases, progress;
} heard;

static void on_event(void *context, const rostrum_event *event) {
    heard *now = context;
    now->phases += event->kind == ROSTRUM_EVENT_PHASE;
    now->progress += event->kind == ROSTRUM_EVENT_PROGRESS;
}

static rostrum_code refusal;
static int closings;

static void waits_in_event(void *context, const rostrum_event *event) {
    rostrum_status *status = NULL;
    (void)event;
    refusal = rostrum_status_get(*(rostrum **)context, &status, NULL);
    rostrum_status_free(status);
}

static void closes_in_event(void *context, const rostrum_event *event) {
    (void)event;
    rostrum_close(*(rostrum **)context);
    closings++;
}

/* What a callback must not do fails by itself, and nothing else does. */
static void callbacks__that_wait_or_close_end_nothing_but_themselves(void **context) {
    (void)context;
    static const char *const good[] = {"h3"};
    rostrum *other = NULL;
    rostrum_send_options options = {.on_event = waits_in_event, .context = &agent};
    add_text(61, "data");
    assert_int_equal(rostrum_send(agent, 61, good, 1, &options, NULL, &error), ROSTRUM_OK);
    assert_int_equal(refusal, ROSTRUM_ERR_INVALID);
    rostrum_status *status = NULL;
    assert_int_equal(rostrum_status_get(agent, &status, &error), ROSTRUM_OK);
    rostrum_status_free(status);

    assert_int_equal(rostrum_connect(socket_path, app, "closes", &other, &error), ROSTRUM_OK);
    options = (rostrum_send_options){.on_event = closes_in_event, .context = &other};
    closings = 0;
    assert_int_equal(rostrum_send(other, 61, good, 1, &options, NULL, &error), ROSTRUM_ERR_CANCELLED);
    assert_int_equal(closings, 1);
    (void)rostrum_cancel(agent, 61, NULL); /* a send goes on without its program */
}

static void send__tells_what_each_receiver_got(void **context) {
    (void)context;
    static const char *const good[] = {"h3", "h4"}, *const mixed[] = {"h3", "bad"}, *const slow[] = {"slow"},
                             *const twice[] = {"a", "a"};
    rostrum_send_result *result;
    heard now = {0};
    rostrum_send_options options = {.on_event = on_event, .context = &now, .wait_ms = 5};
    add_text(2, "data");
    assert_int_equal(rostrum_send(agent, 2, good, 2, &options, &result, &error), ROSTRUM_OK);
    assert_true(result->ok);
    assert_int_equal(result->receiver_count, 2);
    assert_string_equal(result->receivers[1].name, "h4");
    assert_int_equal(result->receivers[1].patched_fragments, 3);
    assert_string_equal(result->response_id, "wait 5 deadline 0");
    assert_int_equal(now.phases, 3);
    assert_true(now.progress > 0);
    rostrum_send_result_free(result);

    assert_int_equal(rostrum_send(agent, 2, mixed, 2, NULL, &result, &error), ROSTRUM_ERR_FAILED);
    assert_non_null(result);
    assert_true(result->receivers[0].digest_ok);
    assert_string_equal(result->receivers[1].cause, "no light at tor3 port 5 after 200 ms");
    rostrum_send_result_free(result);
    assert_int_equal(rostrum_send(agent, 2, mixed, 2, NULL, NULL, &error), ROSTRUM_ERR_FAILED);

    assert_int_equal(rostrum_send(agent, 2, twice, 2, NULL, &result, &error), ROSTRUM_ERR_INVALID);
    assert_null(result);
    assert_int_equal(rostrum_send(agent, 77, good, 2, NULL, &result, &error), ROSTRUM_ERR_UNKNOWN);
    options.timeout_ms = 5;
    assert_int_equal(rostrum_send(agent, 2, slow, 1, &options, &result, &error), ROSTRUM_ERR_TIMEOUT);
    assert_int_equal(rostrum_cancel(agent, 2, &error), ROSTRUM_OK); /* its answer, which nobody waits for, is skipped */
    assert_int_equal(rostrum_delete(agent, 2, &error), ROSTRUM_OK);
}

static void send_file__adds_and_sends(void **context) {
    (void)context;
    static const char *const good[] = {"h3"}, *const refused[] = {"refuse"};
    rostrum_send_result *result;
    int fd = memfd_create("file", MFD_CLOEXEC);
    assert_int_equal(write(fd, "data", 4), 4);
    assert_int_equal(rostrum_send_file(agent, 8, -1, good, 1, NULL, &result, &error), ROSTRUM_ERR_INVALID);
    assert_int_equal(rostrum_send_file(agent, 8, fd, refused, 1, NULL, &result, &error), ROSTRUM_ERR_UNAVAILABLE);
    assert_int_equal(rostrum_delete(agent, 8, &error), ROSTRUM_ERR_UNKNOWN);
    assert_int_equal(rostrum_send_file(agent, 8, fd, good, 1, NULL, &result, &error), ROSTRUM_OK);
    assert_true(result->ok && result->size == 4);
    rostrum_send_result_free(result);
    assert_int_equal(rostrum_send_file(agent, 8, fd, good, 1, NULL, &result, &error), ROSTRUM_ERR_EXISTS);
    assert_int_equal(rostrum_delete(agent, 8, &error), ROSTRUM_OK);
    close(fd);
}

static void status__has_objects_and_transfers(void **context) {
    (void)context;
    static const char *const slow[] = {"slow"};
    rostrum_status *status;
    add_text(3, "data");
    assert_int_equal(rostrum_start_send(agent, 3, slow, 1, NULL, NULL, NULL, NULL, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_status_get(agent, &status, &error), ROSTRUM_OK);
    assert_string_equal(status->server, "h1");
    assert_true(status->manager_up);
    assert_int_equal(status->object_count, 1);
    assert_int_equal(status->objects[0].data_id, 3);
    assert_int_equal(status->objects[0].holds, 1);
    assert_int_equal(status->transfer_count, 1);
    assert_string_equal(status->transfers[0].phase, "high-rate");
    rostrum_status_free(status);
    assert_int_equal(rostrum_delete(agent, 3, &error), ROSTRUM_ERR_BUSY);
    assert_int_equal(rostrum_cancel(agent, 3, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_leave_object(agent, 3, &error), ROSTRUM_ERR_UNKNOWN); /* it is sent from here */
}

static uint32_t objects_there(rostrum *watcher) {
    rostrum_status *status;
    assert_int_equal(rostrum_status_get(watcher, &status, &error), ROSTRUM_OK);
    uint32_t count = status->object_count;
    rostrum_status_free(status);
    return count;
}

static void ephemeral__what_is_left_goes_with_the_last_that_asked(void **context) {
    (void)context;
    rostrum *watcher, *other;
    assert_int_equal(rostrum_connect(socket_path, app, "watcher", &watcher, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_connect(socket_path, app, "other", &other, &error), ROSTRUM_OK);
    add_text(4, "data");
    assert_int_equal(rostrum_ephemeral(agent, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_ephemeral(other, &error), ROSTRUM_OK);
    rostrum_close(agent);
    assert_int_equal(objects_there(watcher), 1); /* the other lives */
    rostrum_close(other);
    for (int tries = 0; objects_there(watcher) > 0; tries++) {
        assert_in_range(tries, 0, 6000); /* a minute */
        (void)poll(NULL, 0, 10);
    }
    agent = watcher; /* which teardown closes */
}

typedef struct {
    int answers, reads;
    rostrum_code code;
    heard events;
} progress;

static void on_answer(void *context, const rostrum_answer *answer) {
    progress *now = context;
    now->answers++;
    if (answer->error.code)
        now->code = answer->error.code;
    if (answer->fd >= 0) {
        assert_reads(answer->fd, "to be copied");
        now->reads++;
    }
}

static void dispatch_until(const int *count, int wanted) {
    while (*count < wanted) {
        struct pollfd ready = {.fd = rostrum_fd(agent), .events = POLLIN};
        assert_int_equal(poll(&ready, 1, 20000), 1);
        assert_int_equal(rostrum_dispatch(agent, &error), ROSTRUM_OK);
    }
}

static void asynchronous__many_at_once(void **context) {
    (void)context;
    static const char *const copy[] = {"copy-9"};
    progress now = {0};
    uint64_t first, second;
    add_text(4, "to be copied");
    assert_int_equal(rostrum_start_subscribe(agent, 4, on_event, NULL, &now.events, NULL, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_start_read(agent, 9, 20000, on_answer, &now, &first, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_start_read(agent, 9, 20000, on_answer, &now, &second, &error), ROSTRUM_OK);
    assert_true(first != second);
    assert_int_equal(rostrum_start_send(agent, 4, copy, 1, NULL, on_answer, &now, NULL, &error), ROSTRUM_OK);
    dispatch_until(&now.answers, 3);
    assert_int_equal(now.reads, 2);
    assert_int_equal(now.code, ROSTRUM_OK);
    dispatch_until(&now.events.phases, 3);
    assert_int_equal(rostrum_start_delete(agent, 9, on_answer, &now, NULL, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_start_delete(agent, 9, on_answer, &now, NULL, &error), ROSTRUM_OK);
    dispatch_until(&now.answers, 5);
    assert_int_equal(now.code, ROSTRUM_ERR_UNKNOWN);
}

static void asynchronous__everyone_hears_that_the_agent_is_gone(void **context) {
    (void)context;
    progress now = {0};
    assert_int_equal(rostrum_start_read(agent, 5, 60000, on_answer, &now, NULL, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_start_read(agent, 6, 60000, on_answer, &now, NULL, &error), ROSTRUM_OK);
    assert_int_equal(kill(server, SIGKILL), 0);
    while (rostrum_dispatch(agent, &error) == ROSTRUM_OK) {
        struct pollfd ready = {.fd = rostrum_fd(agent), .events = POLLIN};
        assert_int_equal(poll(&ready, 1, 20000), 1);
    }
    assert_int_equal(now.answers, 2);
    assert_int_equal(now.code, ROSTRUM_ERR_UNAVAILABLE);
    assert_int_equal(rostrum_delete(agent, 1, &error), ROSTRUM_ERR_UNAVAILABLE);
    waitpid(server, NULL, 0);
    close(server_input);
    assert_int_equal(start_server(), 0); /* over what the dead one left */
}

static void close__answers_what_is_under_way(void **context) {
    (void)context;
    progress now = {0};
    rostrum *other;
    assert_int_equal(rostrum_connect(socket_path, app, NULL, &other, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_start_read(other, 5, 60000, on_answer, &now, NULL, &error), ROSTRUM_OK);
    rostrum_close(other);
    assert_int_equal(now.answers, 1);
    assert_int_equal(now.code, ROSTRUM_ERR_CANCELLED);
}

static void stream__all_comes_and_its_end(void **context) {
    (void)context;
    static uint8_t sent[300000], got[300000];
    const char *const receivers[] = {"h3"};
    rostrum_stream *out, *in;
    rostrum_send_result *result;
    size_t length, have = 0;
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (uint8_t)(i * 7 % 251);
    assert_int_equal(rostrum_stream_receive(agent, 5, 1000, &in, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_stream_send(agent, 5, receivers, 1, NULL, &out, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_stream_write(in, sent, 1, &error), ROSTRUM_ERR_INVALID);
    assert_int_equal(rostrum_stream_read(out, got, 1, &length, &error), ROSTRUM_ERR_INVALID);
    for (size_t at = 0; at < sizeof sent; at += 60000) {
        assert_int_equal(rostrum_stream_write(out, sent + at, 60000, &error), ROSTRUM_OK);
        while (have < at + 60000) {
            assert_int_equal(rostrum_stream_read(in, got + have, sizeof got - have, &length, &error), ROSTRUM_OK);
            have += length;
        }
    }
    assert_int_equal(rostrum_stream_finish(out, &result, &error), ROSTRUM_OK);
    assert_int_equal(result->size, sizeof sent);
    assert_int_equal(rostrum_stream_read(in, got, sizeof got, &length, &error), ROSTRUM_OK);
    assert_int_equal(length, 0);
    rostrum_send_result_free(result);
    rostrum_stream_close(out);
    rostrum_stream_close(in);
}

static void stream__failures_have_reasons(void **context) {
    (void)context;
    static const uint8_t zeros[10000];
    const char *const receivers[] = {"bad"}, *const refused[] = {"refuse"};
    rostrum_stream *out, *in;
    uint8_t byte;
    size_t length;
    assert_int_equal(rostrum_stream_send(agent, 6, refused, 1, NULL, &out, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_stream_finish(out, NULL, &error), ROSTRUM_ERR_DENIED);
    rostrum_stream_close(out);
    assert_int_equal(rostrum_stream_receive(agent, 6, 1000, &in, &error), ROSTRUM_OK);
    assert_int_equal(rostrum_stream_send(agent, 6, receivers, 1, NULL, &out, &error), ROSTRUM_OK);
    rostrum_code code = ROSTRUM_OK;
    for (int i = 0; i < 10000 && !code; i++)
        code = rostrum_stream_write(out, zeros, sizeof zeros / (i < 20 ? 1 : 10), &error);
    assert_int_equal(code, ROSTRUM_ERR_FAILED);
    assert_non_null(strstr(error.text, "the cable was pulled"));
    while (!(code = rostrum_stream_read(in, &byte, 1, &length, &error)))
        assert_int_equal(length, 1);
    assert_int_equal(code, ROSTRUM_ERR_FAILED);
    assert_non_null(strstr(error.text, "the cable was pulled"));
    rostrum_stream_close(out);
    rostrum_stream_close(in);
}

static void uuid__parse(void **context) {
    (void)context;
    static const uint8_t expected[16] = {0xf8, 0x1d, 0x4f, 0xae, 0x7d, 0xec, 0x11, 0xd0,
                                         0xa7, 0x65, 0,    0xa0, 0xc9, 0x1e, 0x6b, 0xf6};
    uint8_t out[16];
    assert_true(rostrum_uuid_parse("f81d4fae-7dec-11D0-a765-00a0c91e6bf6", out));
    assert_memory_equal(out, expected, 16);
    static const char *const bad[] = {"",
                                      "f81d4fae",
                                      "f81d4fae-7dec-11d0-a765-00a0c91e6bf",
                                      "f81d4fae-7dec-11d0-a765-00a0c91e6bf6x",
                                      "f81d4fae_7dec-11d0-a765-00a0c91e6bf6",
                                      "g81d4fae-7dec-11d0-a765-00a0c91e6bf6"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(rostrum_uuid_parse(bad[i], out));
}

/* As Python's rostrum.client takes them. */
static void data_id__is_a_number_or_a_name(void **context) {
    (void)context;
    char longest[130] = {0};
    uint64_t id;
    static const struct {
        const char *name;
        uint64_t id;
    } known[] = {{"42", 42},
                 {" 0x2A\n", 42},
                 {"1_000", 1000},
                 {"+0b_11", 3},
                 {"-0", 0},
                 {"00", 0},
                 {"18446744073709551615", UINT64_MAX},
                 {"0o17", 15},
                 {"model.bin", 0xd5974a0bb3d1e846},
                 {"gr\xc3\xb6\xc3\x9f"
                  "e",
                  0xe99a32c955e1f8f4},
                 {"10.bin", 0xffb38b3b65e764c9}};
    static const char *const names[] = {"007", "0x", "1__0", "_1", "1_", "12a", "0b2", "- 1", "+", " ", "0_x1"};
    static const char *const bad[] = {"", "-1", "18446744073709551616", "0x10000000000000000"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(rostrum_data_id(known[i].name, &id, &error), ROSTRUM_OK);
        assert_true(id == known[i].id);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(rostrum_data_id(names[i], &id, &error), ROSTRUM_OK);
        assert_true(id > UINT32_MAX);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(rostrum_data_id(bad[i], &id, &error), ROSTRUM_ERR_INVALID);
    memset(longest, 'x', 128); /* one block of the hash; one byte more */
    assert_int_equal(rostrum_data_id(longest, &id, &error), ROSTRUM_OK);
    assert_true(id == 0x224e1e874e31c90);
    memset(longest, 'y', 129);
    assert_int_equal(rostrum_data_id(longest, &id, &error), ROSTRUM_OK);
    assert_true(id == 0xe601539f147a617c);
}

static void fetch__that_nobody_answers_has_a_reason(void **context) {
    (void)context;
    static const char *const holders[] = {"h2@10.0.0.2"};
    progress now = {0};
    int fd = 7;
    uint64_t size = 1;
    assert_int_equal(rostrum_fetch(agent, 5, holders, 1, 10, &fd, &size, &error), ROSTRUM_ERR_UNAVAILABLE);
    assert_int_equal(fd, -1);
    assert_int_equal(rostrum_fetch(agent, 5, holders, ROSTRUM_RECEIVERS_MAX + 1, 10, &fd, NULL, &error),
                     ROSTRUM_ERR_INVALID);
    assert_int_equal(rostrum_start_fetch(agent, 5, holders, 1, 10, on_answer, &now, NULL, &error), ROSTRUM_OK);
    dispatch_until(&now.answers, 1);
    assert_int_equal(now.code, ROSTRUM_ERR_UNAVAILABLE);
}

/* What a feed has to give, and how often it was asked. */
typedef struct {
    uint32_t left, given, asked, heard;
    uint64_t complete;
} lot;

static int64_t give(void *context, void *to, uint32_t room) {
    lot *l = context;
    l->asked++;
    if (l->left == 0)
        return ROSTRUM_FEED_EMPTY;
    l->left--;
    l->given++;
    memset(to, 'x', room);
    memcpy(to, &l->given, sizeof l->given);
    return l->given == 1 ? 0 : (int64_t)(room - l->given); /* the first is empty: that is a message, too */
}

static void *signal_it(void *channel) {
    rostrum_channel_signal(channel);
    return NULL;
}

/* Until that many more came. */
static void take_messages(rostrum_channels *all, uint32_t count) {
    rostrum_channel *which;
    rostrum_message message;
    while (count > 0) {
        assert_int_equal(rostrum_channels_next(all, &which, &message, 10000, &error), ROSTRUM_OK);
        lot *l = rostrum_channel_context(which);
        if (message.kind == ROSTRUM_COMPLETE) {
            l->complete = message.sn;
            continue;
        }
        assert_int_equal(message.kind, ROSTRUM_MESSAGE);
        assert_string_equal(message.sender, "h2");
        l->heard++;
        assert_int_equal(message.length, l->heard == 1 ? 0 : 1000 - l->heard);
        if (l->heard > 1)
            assert_memory_equal(message.bytes, &l->heard, sizeof l->heard);
        count--;
    }
}

static void channels__feeds_are_called_in_turn_while_they_have_something(void **context) {
    rostrum_channels *all;
    rostrum_channel *channels[3], *which;
    rostrum_message message;
    lot lots[3] = {{.left = 300}, {.left = 300}, {.left = 0}};
    (void)context;
    assert_int_equal(rostrum_channels_open(agent, &all, &error), ROSTRUM_OK);
    for (uint32_t i = 0; i < 3; i++) {
        const char *names[] = {"a", "b", "idle"};
        assert_int_equal(rostrum_channel_open(all, names[i], NULL,
                                              ROSTRUM_CHANNEL_SUBSCRIBE | ROSTRUM_CHANNEL_COMPLETION, give, &lots[i],
                                              &channels[i], &error),
                         ROSTRUM_OK);
        assert_int_equal(lots[i].asked, 0); /* it has not joined */
        assert_string_equal(rostrum_channel_group(channels[i]), names[i]);
    }
    assert_int_equal(rostrum_channel_publish(channels[0], "x", 1, 0, &error), ROSTRUM_ERR_INVALID);
    for (uint32_t joined = 0; joined < 3; joined++) {
        assert_int_equal(rostrum_channels_next(all, &which, &message, 10000, &error), ROSTRUM_OK);
        assert_int_equal(message.kind, ROSTRUM_JOINED);
    }
    take_messages(all, 600);
    assert_int_equal(lots[0].heard, 300);
    assert_int_equal(lots[1].heard, 300);
    assert_int_equal(lots[0].asked, 301); /* once more than it gave: then it is left alone */
    assert_int_equal(lots[1].asked, 301);
    assert_int_equal(lots[2].asked, 1);
    while (rostrum_channels_next(all, &which, &message, 0, &error) == ROSTRUM_OK) {
    }
    assert_int_equal(error.code, ROSTRUM_ERR_TIMEOUT);
    assert_int_equal(lots[2].asked, 1);

    pthread_t other;
    lots[2].left = 2;
    assert_int_equal(pthread_create(&other, NULL, signal_it, channels[2]), 0);
    take_messages(all, 2); /* a signal by another thread ends the wait */
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(lots[2].asked, 1 + 3);
    rostrum_channel_signal(channels[0]);
    rostrum_channel_signal(channels[0]);
    while (lots[0].asked < 302 || lots[2].complete < 2)
        if (rostrum_channels_next(all, &which, &message, 10, &error) == ROSTRUM_OK)
            lots[2].complete = which == channels[2] && message.kind == ROSTRUM_COMPLETE ? message.sn : lots[2].complete;
    assert_int_equal(lots[0].asked, 302);
    rostrum_channel_signal(channels[1]);
    rostrum_channel_close(channels[1]); /* while it waits to be asked */
    assert_int_equal(rostrum_channels_next(all, &which, &message, 0, &error), ROSTRUM_ERR_TIMEOUT);
    assert_int_equal(lots[1].asked, 301);
    rostrum_channels_close(all);
}

int main(int argc, char **argv) {
    if (argc < 2 || !mkdtemp(folder)) {
        (void)fprintf(stderr, "usage: test_librostrum API_TESTD\n");
        return 2;
    }
    program = argv[1];
    (void)snprintf(socket_path, sizeof socket_path, "%s/agent.sock", folder);
    (void)snprintf(store, sizeof store, "%s/objects", folder);
    if (mkdir(store, 0711) < 0)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(connect__fails_with_a_reason, setup, teardown),
        cmocka_unit_test_setup_teardown(objects__add_read_delete, setup, teardown),
        cmocka_unit_test_setup_teardown(callbacks__that_wait_or_close_end_nothing_but_themselves, setup, teardown),
        cmocka_unit_test_setup_teardown(send__tells_what_each_receiver_got, setup, teardown),
        cmocka_unit_test_setup_teardown(send_file__adds_and_sends, setup, teardown),
        cmocka_unit_test_setup_teardown(status__has_objects_and_transfers, setup, teardown),
        cmocka_unit_test_setup_teardown(ephemeral__what_is_left_goes_with_the_last_that_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(asynchronous__many_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(asynchronous__everyone_hears_that_the_agent_is_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(close__answers_what_is_under_way, setup, teardown),
        cmocka_unit_test_setup_teardown(stream__all_comes_and_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(stream__failures_have_reasons, setup, teardown),
        cmocka_unit_test_setup_teardown(fetch__that_nobody_answers_has_a_reason, setup, teardown),
        cmocka_unit_test_setup_teardown(channels__feeds_are_called_in_turn_while_they_have_something, setup, teardown),
        cmocka_unit_test(uuid__parse),
        cmocka_unit_test(data_id__is_a_number_or_a_name),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(socket_path);
    (void)rmdir(store);
    (void)rmdir(folder);
    return failed;
}
