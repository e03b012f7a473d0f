#include "api_streams.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STREAMS 8
#define FAIL_AT 100000 /* bytes after which a stream to "bad..." fails */

static fake_stream streams[STREAMS];
static bool bad[STREAMS];

fake_stream *fake_stream_of(rs_api_server *api, const rs_object_id *id) {
    fake_stream *unused = NULL;
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].used && memcmp(&streams[i].id, id, sizeof *id) == 0)
            return &streams[i];
        if (!streams[i].used)
            unused = &streams[i];
    }
    if (unused)
        *unused = (fake_stream){.api = api, .used = true, .id = *id, .from = -1, .to = -1};
    return unused;
}

static void end(fake_stream *s, const char *cause) {
    rostrum_receiver receiver = {.name = "h3", .state = cause ? ROSTRUM_RECEIVER_FAILED : ROSTRUM_RECEIVER_DONE};
    rostrum_send_result result = {.ok = !cause,
                                  .path = ROSTRUM_PATH_PACKET,
                                  .protocol = ROSTRUM_PROTOCOL_RDCM,
                                  .data_id = s->id.data,
                                  .size = s->bytes,
                                  .receivers = &receiver,
                                  .receiver_count = 1};
    (void)strncpy(result.cause, cause ? cause : "", sizeof result.cause - 1);
    if (s->from >= 0)
        rs_api_reply_send(s->api, &s->writer, &result);
    if (s->to >= 0 && cause)
        rs_api_reply_error(s->api, &s->reader, ROSTRUM_ERR_FAILED, "%s", cause);
    else if (s->to >= 0)
        rs_api_reply_streamed(s->api, &s->reader, s->bytes);
    if (s->from >= 0)
        close(s->from);
    if (s->to >= 0)
        close(s->to);
    s->used = false;
}

void fake_stream_send(rs_api_server *api, const rs_api_send *send) {
    fake_stream *s = fake_stream_of(api, &send->id);
    if (!s || s->from >= 0 || strncmp(send->receivers[0], "refuse", 6) == 0) {
        rs_api_reply_error(api, &send->call, ROSTRUM_ERR_DENIED, "the manager grants no path");
        close(send->stream);
        return;
    }
    s->from = send->stream;
    s->writer = send->call;
    bad[s - streams] = strncmp(send->receivers[0], "bad", 3) == 0;
}

void fake_stream_end(rs_api_server *api, const rs_api_call *call, const rs_object_id *id, uint64_t bytes) {
    fake_stream *s = fake_stream_of(api, id);
    if (!s || s->from < 0) {
        rs_api_reply_error(api, call, ROSTRUM_ERR_UNKNOWN, "that stream is not being sent from here");
        if (s && s->to < 0)
            s->used = false;
        return;
    }
    s->ends = true;
    s->end = bytes;
    rs_api_reply_ok(api, call);
}

void fake_stream_take(rs_api_server *api, const rs_api_take *take) {
    fake_stream *s = fake_stream_of(api, &take->id);
    if (!s || s->to >= 0) {
        rs_api_reply_error(api, &take->call, ROSTRUM_ERR_EXISTS, "a program here reads that stream");
        close(take->stream);
        return;
    }
    s->to = take->stream;
    s->reader = take->call;
}

static void move(fake_stream *s) {
    char bytes[4096];
    for (int turns = 0; turns < 256 && s->from >= 0 && s->to >= 0; turns++) {
        if (s->ends && s->bytes == s->end) {
            end(s, NULL);
            return;
        }
        if (bad[s - streams] && s->bytes >= FAIL_AT) {
            end(s, "the cable was pulled");
            return;
        }
        ssize_t got = recv(s->from, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            end(s, "the program that wrote the stream went away");
            return;
        }
        if (send(s->to, bytes, (size_t)got, MSG_NOSIGNAL) != got) {
            end(s, "the program that read the stream went away");
            return;
        }
        s->bytes += (uint64_t)got;
    }
}

bool fake_streams_tick(void) {
    bool any = false;
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].used) {
            any = true;
            move(&streams[i]);
        }
    return any;
}

void fake_streams_stop(void) {
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].used)
            end(&streams[i], "the agent stops");
}
