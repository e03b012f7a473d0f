/* The agent's application interface with a fake daemon behind it, for tests of the clients.
 *
 *   api_testd SOCKET STORE [QUOTA [MAX_QUEUED]]
 *
 * A send emits events and ends some ticks later. Receivers' names say what becomes of them: "bad..." fails; "slow..."
 * never ends (cancel it); "copy-N" succeeds, and this server receives the object as number N; any other succeeds.
 * "refuse..." refuses the send at once. Streams go from a program here to another one; messages of channels come back.
 * Ends when its standard input does. */
#include "daemon/api/server.h"
#include "daemon/api/status.h"
#include "daemon/api/waits.h"
#include "daemon/store/digest.h"

#include "api_channels.h"
#include "api_streams.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRANSFERS_MAX 64
#define TICK_MS 2
#define TICKS 8

typedef struct {
    bool used, slow;
    int tick;
    rs_api_call call;
    rs_object *object;
    rostrum_send_result result;
    rostrum_receiver *receivers;
} transfer;

typedef struct {
    rs_store *store;
    rs_api_server *api;
    transfer transfers[TRANSFERS_MAX];
    uint32_t running;
} fake;

static int64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void phase(fake *daemon, const transfer *one, const char *name, const char *text) {
    rostrum_event event = {.kind = ROSTRUM_EVENT_PHASE, .sending = true, .size = one->object->size};
    (void)snprintf(event.subject, sizeof event.subject, "%s", name);
    (void)snprintf(event.text, sizeof event.text, "%s", text);
    rs_api_event(daemon->api, &one->object->id, &event);
}

static void on_send(void *context, const rs_api_send *send) {
    fake *daemon = context;
    transfer *one = NULL;
    if (!send->object) {
        fake_stream_send(daemon->api, send);
        return;
    }
    for (int i = 0; i < TRANSFERS_MAX && !one; i++)
        one = daemon->transfers[i].used ? NULL : &daemon->transfers[i];
    if (!one || strncmp(send->receivers[0], "refuse", 6) == 0) {
        rs_api_reply_error(daemon->api, &send->call, ROSTRUM_ERR_UNAVAILABLE, "the manager cannot be reached");
        return;
    }
    *one = (transfer){.used = true, .call = send->call, .object = send->object};
    one->receivers = calloc(send->receiver_count, sizeof *one->receivers);
    if (!one->receivers)
        abort();
    for (uint32_t i = 0; i < send->receiver_count; i++) {
        (void)snprintf(one->receivers[i].name, sizeof one->receivers[i].name, "%s", send->receivers[i]);
        one->slow |= strncmp(send->receivers[i], "slow", 4) == 0;
    }
    one->result.receiver_count = send->receiver_count;
    one->result.receivers = one->receivers;
    one->result.data_id = send->object->id.data;
    one->result.size = send->object->size;
    one->result.requested_ns = clock_ns(CLOCK_REALTIME);
    (void)snprintf(one->result.response_id, sizeof one->result.response_id, "wait %u deadline %u", send->wait_ms,
                   send->deadline_ms);
    rs_store_hold(send->object);
    daemon->running++;
    phase(daemon, one, "requested", "");
}

static void receive_copy(fake *daemon, const rs_object *object, uint64_t number) {
    rs_error error;
    rs_object_id id = object->id;
    id.data = number;
    rs_object *copy = rs_store_receive(daemon->store, &id, object->size, &error);
    if (!copy) {
        rs_api_object_failed(daemon->api, &id, error.text);
        return;
    }
    if (!rs_store_ensure(daemon->store, copy, 0, object->size, &error))
        abort();
    if (object->size)
        memcpy(copy->map, object->map, object->size);
    if (!rs_store_commit(daemon->store, copy, &object->digest, &error))
        abort();
    rs_api_object_complete(daemon->api, &id);
}

static void end_receiver(fake *daemon, transfer *one, rostrum_receiver *receiver) {
    receiver->first_light_ns = one->result.requested_ns + 1000;
    receiver->initial_sn = 5;
    if (strncmp(receiver->name, "bad", 3) == 0) {
        receiver->state = ROSTRUM_RECEIVER_FAILED;
        (void)snprintf(receiver->cause, sizeof receiver->cause, "no light at tor3 port 5 after 200 ms");
        one->result.ok = false;
        return;
    }
    receiver->state = ROSTRUM_RECEIVER_DONE;
    receiver->digest_ok = true;
    receiver->patched_fragments = 3;
    receiver->complete_ns = clock_ns(CLOCK_REALTIME);
    if (strncmp(receiver->name, "copy-", 5) == 0)
        receive_copy(daemon, one->object, strtoull(receiver->name + 5, NULL, 10));
}

static void end(fake *daemon, transfer *one, const char *cause) {
    one->result.ok = !cause;
    for (uint32_t i = 0; i < one->result.receiver_count && !cause; i++)
        end_receiver(daemon, one, &one->receivers[i]);
    if (!one->result.ok)
        (void)snprintf(one->result.cause, sizeof one->result.cause, "%s", cause ? cause : "some receivers failed");
    one->result.done_ns = clock_ns(CLOCK_REALTIME);
    one->result.path = ROSTRUM_PATH_CIRCUIT;
    one->result.sessions = 1;
    one->result.packets_sent = 1000;
    one->result.rate_bps = 940000000;
    phase(daemon, one, "done", "");
    rs_api_reply_send(daemon->api, &one->call, &one->result);
    rs_store_release(one->object);
    free(one->receivers);
    one->used = false;
    daemon->running--;
}

static void tick(fake *daemon, transfer *one) {
    one->tick++;
    if (one->tick == 1) {
        one->result.accepted_ns = clock_ns(CLOCK_REALTIME);
        phase(daemon, one, "accepted", "circuit over ocs");
    } else if (one->tick < TICKS || one->slow || one->object->phase == RS_OBJECT_DIGESTING) {
        rostrum_event event = {.kind = ROSTRUM_EVENT_PROGRESS,
                               .sending = true,
                               .bytes = one->object->size * (uint64_t)(one->tick % TICKS) / TICKS,
                               .size = one->object->size,
                               .rate_bps = 940000000,
                               .receivers = one->result.receiver_count};
        rs_api_event(daemon->api, &one->object->id, &event);
    } else {
        end(daemon, one, NULL);
    }
}

static void on_added(void *context, const rs_object *object) {
    fake *daemon = context;
    for (int i = 0; i < TRANSFERS_MAX; i++)
        if (daemon->transfers[i].used && daemon->transfers[i].object == object)
            phase(daemon, &daemon->transfers[i], "digest", "");
}

static void on_unreadable(void *context, const rs_object *object, const char *text) {
    fake *daemon = context;
    for (int i = 0; i < TRANSFERS_MAX; i++)
        if (daemon->transfers[i].used && daemon->transfers[i].object == object)
            end(daemon, &daemon->transfers[i], text);
}

static void on_cancel(void *context, const rs_api_call *call, const rs_object_id *id) {
    fake *daemon = context;
    for (int i = 0; i < TRANSFERS_MAX; i++) {
        transfer *one = &daemon->transfers[i];
        if (one->used && one->object->id.data == id->data && memcmp(one->object->id.app, id->app, 16) == 0) {
            rs_api_reply_ok(daemon->api, call);
            end(daemon, one, "cancelled by the application");
            return;
        }
    }
    rs_api_reply_error(daemon->api, call, ROSTRUM_ERR_UNKNOWN, "object %" PRIu64 " is not being sent from here",
                       id->data);
}

static void on_stream_end(void *context, const rs_api_call *call, const rs_object_id *id, uint64_t bytes) {
    const fake *daemon = context;
    fake_stream_end(daemon->api, call, id, bytes);
}

static void on_stream_receive(void *context, const rs_api_take *take) {
    const fake *daemon = context;
    fake_stream_take(daemon->api, take);
}

static void on_status(void *context, const rs_api_call *call) {
    fake *daemon = context;
    rostrum_transfer rows[TRANSFERS_MAX] = {0};
    rostrum_status status = {
        .manager_up = true, .transfers = rows, .started_ns = clock_ns(CLOCK_REALTIME), .packets_bad = 2};
    (void)snprintf(status.manager, sizeof status.manager, "10.255.0.1:9090, up");
    for (int i = 0; i < TRANSFERS_MAX; i++) {
        const transfer *one = &daemon->transfers[i];
        if (!one->used)
            continue;
        rostrum_transfer *row = &rows[status.transfer_count++];
        memcpy(row->app, one->object->id.app, 16);
        row->data_id = one->object->id.data;
        row->sending = true;
        row->size = one->object->size;
        row->receivers = one->result.receiver_count;
        (void)snprintf(row->phase, sizeof row->phase, "high-rate");
    }
    rs_api_reply_status(daemon->api, call, &status);
}

static void log_line(void *context, const char *text) {
    (void)context;
    (void)fprintf(stderr, "%s\n", text);
}

static int timeout_ms(const fake *daemon) {
    rs_time due = rs_api_server_deadline(daemon->api);
    if (daemon->running)
        return due == 0 ? 0 : TICK_MS;
    if (due == RS_NEVER)
        return -1;
    int64_t left = due - clock_ns(CLOCK_MONOTONIC);
    return left <= 0 ? 0 : (int)(left / 1000000 + 1);
}

static void run(fake *daemon) {
    int64_t next = 0;
    for (;;) {
        struct pollfd ready[2] = {{.fd = rs_api_server_fd(daemon->api), .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        int bound = timeout_ms(daemon);
        bool streams = fake_streams_tick(), channels = fake_channels_tick();
        if ((streams || channels) && (bound < 0 || bound > TICK_MS))
            bound = TICK_MS;
        if (poll(ready, 2, bound) < 0 && errno != EINTR)
            abort();
        if (ready[1].revents)
            return;
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        rs_api_server_dispatch(daemon->api, now);
        if (now < next)
            continue;
        next = now + TICK_MS * 1000000;
        for (int i = 0; i < TRANSFERS_MAX; i++)
            if (daemon->transfers[i].used)
                tick(daemon, &daemon->transfers[i]);
    }
}

static void on_join(void *context, const rs_api_join *join) {
    const fake *daemon = context;
    rs_api_reply_error(daemon->api, &join->call, ROSTRUM_ERR_UNAVAILABLE, "there are no message groups here");
    if (join->socket >= 0)
        close(join->socket);
}

static void on_channels(void *context, const rs_api_join *join) {
    const fake *daemon = context;
    fake_channels_open(daemon->api, join);
}

int main(int argc, char **argv) {
    static fake daemon;
    rs_error error;
    if (argc < 3) {
        (void)fprintf(stderr, "usage: api_testd SOCKET STORE [QUOTA [MAX_QUEUED]]\n");
        return 2;
    }
    rs_store_config store = {.directory = argv[2], .quota_bytes = argc > 3 ? strtoull(argv[3], NULL, 0) : 0};
    daemon.store = rs_store_open(&store, &error);
    rs_api_config config = {.socket_path = argv[1],
                            .server_name = "h1",
                            .version = "0.1.0-test",
                            .boot_id = 77,
                            .max_clients = 16,
                            .max_pending = 64,
                            .max_queued_bytes = argc > 4 ? strtoull(argv[4], NULL, 0) : 0};
    rs_api_handlers handlers = {.on_send = on_send,
                                .on_added = on_added,
                                .on_unreadable = on_unreadable,
                                .on_cancel = on_cancel,
                                .on_stream_end = on_stream_end,
                                .on_stream_receive = on_stream_receive,
                                .on_join = on_join,
                                .on_channels = on_channels,
                                .on_status = on_status,
                                .log = log_line,
                                .context = &daemon};
    daemon.api = daemon.store ? rs_api_server_new(&config, &handlers, daemon.store, &error) : NULL;
    if (!daemon.api) {
        (void)fprintf(stderr, "api_testd: %s\n", error.text);
        rs_store_close(daemon.store);
        return 1;
    }
    (void)printf("ready\n");
    (void)fflush(stdout);
    run(&daemon);
    for (int i = 0; i < TRANSFERS_MAX; i++)
        if (daemon.transfers[i].used)
            end(&daemon, &daemon.transfers[i], "the agent stops");
    fake_streams_stop();
    fake_channels_stop();
    rs_api_server_free(daemon.api);
    rs_store_close(daemon.store);
    return 0;
}
