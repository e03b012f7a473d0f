/* librostrum's continuing streams: bytes go through a pair of sockets, the request's answer says what became of them.
 */
#include "client/connection.h"

#include <rostrum/streams.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_BYTES (512 << 10)
#define FINAL_ANSWER_MS 10000 /* between the end of the bytes and the agent's report on it */

struct rostrum_stream {
    rostrum *agent;
    int fd;
    bool sending, over;
    uint64_t data_id, tag, bytes;
    rostrum_outcome outcome; /* of the request that began it */
};

static rostrum_stream *make(rostrum *agent, uint64_t data_id, int *theirs, rostrum_error *error) {
    const int bytes = SOCKET_BYTES;
    int ends[2];
    rostrum_stream *stream = calloc(1, sizeof *stream);
    if (!stream || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(stream);
        (void)rostrum_fail(error, ROSTRUM_ERR_NO_ROOM, "no memory or no descriptors for a stream");
        return NULL;
    }
    for (int i = 0; i < 2; i++)
        (void)setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); /* as much as the system grants */
    stream->agent = agent;
    stream->data_id = data_id;
    stream->fd = ends[0];
    stream->outcome = (rostrum_outcome){.fd = -1, .keep_result = true};
    *theirs = ends[1];
    return stream;
}

/* Sends the request that agent->request holds. */
static rostrum_code begin(rostrum_stream *stream, int theirs, const rostrum_send_options *options, rostrum_stream **out,
                          rostrum_error *error) {
    const rostrum_start_params params = {.callback = rostrum_take_answer,
                                         .context = &stream->outcome,
                                         .on_event = options ? options->on_event : NULL,
                                         .event_context = options ? options->context : NULL,
                                         .fd = theirs};
    rostrum_code code = rostrum_start(stream->agent, &params, &stream->tag, error);
    close(theirs);
    if (code) {
        close(stream->fd);
        free(stream);
        return code;
    }
    *out = stream;
    return ROSTRUM_OK;
}

rostrum_code rostrum_stream_send(rostrum *agent, uint64_t data_id, const char *const *receivers,
                                 uint32_t receiver_count, const rostrum_send_options *options, rostrum_stream **out,
                                 rostrum_error *error) {
    int theirs;
    *out = NULL;
    rostrum_stream *stream = make(agent, data_id, &theirs, error);
    if (!stream)
        return ROSTRUM_ERR_NO_ROOM;
    stream->sending = true;
    rs_api_request *request = rostrum_request(agent, RS_API_STREAM_SEND, data_id);
    request->flags = (options && options->on_event ? RS_API_SEND_EVENTS : 0) |
                     (options ? (uint32_t)options->stragglers & 3 : 0) << RS_API_SEND_STRAGGLERS |
                     (uint32_t)ROSTRUM_PROTOCOL_RDCM << RS_API_SEND_PROTOCOL;
    request->wait_ms = options ? options->wait_ms : 0;
    request->receiver_count = receiver_count;
    for (uint32_t i = 0; i < receiver_count && i < ROSTRUM_RECEIVERS_MAX; i++)
        request->receivers[i] = receivers[i];
    return begin(stream, theirs, options, out, error);
}

rostrum_code rostrum_stream_receive(rostrum *agent, uint64_t data_id, uint32_t wait_ms, rostrum_stream **out,
                                    rostrum_error *error) {
    int theirs;
    *out = NULL;
    rostrum_stream *stream = make(agent, data_id, &theirs, error);
    if (!stream)
        return ROSTRUM_ERR_NO_ROOM;
    rostrum_request(agent, RS_API_STREAM_RECEIVE, data_id)->wait_ms = wait_ms;
    return begin(stream, theirs, NULL, out, error);
}

rostrum_code rostrum_stream_join(rostrum *agent, uint64_t data_id, const char *const *holders, uint32_t holder_count,
                                 uint32_t wait_ms, rostrum_stream **out, rostrum_error *error) {
    int theirs;
    *out = NULL;
    if (holder_count == 0 || holder_count > ROSTRUM_RECEIVERS_MAX)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "say who receives or sends the stream");
    rostrum_stream *stream = make(agent, data_id, &theirs, error);
    if (!stream)
        return ROSTRUM_ERR_NO_ROOM;
    rs_api_request *request = rostrum_request(agent, RS_API_STREAM_JOIN, data_id);
    request->wait_ms = wait_ms;
    request->receiver_count = holder_count;
    for (uint32_t i = 0; i < holder_count; i++)
        request->receivers[i] = holders[i];
    return begin(stream, theirs, NULL, out, error);
}

/* Waits until the socket of the bytes can be used; events and answers are taken meanwhile. */
static void wait_ready(rostrum_stream *stream, short events) {
    struct pollfd ready[2] = {{.fd = stream->fd, .events = events}, {.fd = stream->agent->socket, .events = POLLIN}};
    if (poll(ready, 2, -1) > 0 && ready[1].revents)
        (void)rostrum_dispatch(stream->agent, NULL);
}

/* The agent takes or gives no more bytes: its answer says why. */
static rostrum_code why(rostrum_stream *stream, rostrum_error *error) {
    rostrum_code code = rostrum_wait_for(stream->agent, stream->tag, FINAL_ANSWER_MS, &stream->outcome, error);
    return code ? code : rostrum_fail(error, ROSTRUM_ERR_UNAVAILABLE, "the agent takes no more of this stream");
}

static rostrum_code write_held(rostrum_stream *stream, const void *bytes, size_t length, rostrum_error *error) {
    const uint8_t *at = bytes;
    if (!stream->sending)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "this stream is read here, not written");
    while (length > 0) {
        ssize_t sent = send(stream->fd, at, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            length -= (size_t)sent;
            stream->bytes += (uint64_t)sent;
        } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
            wait_ready(stream, POLLOUT);
        } else if (sent < 0 && errno != EINTR) {
            return why(stream, error);
        }
    }
    return ROSTRUM_OK;
}

rostrum_code rostrum_stream_write(rostrum_stream *stream, const void *bytes, size_t length, rostrum_error *error) {
    rostrum *agent = stream->agent; /* which a callback may close */
    rostrum_ref(agent);
    rostrum_code code = write_held(stream, bytes, length, error);
    rostrum_unref(agent);
    return code;
}

static rostrum_code finish_held(rostrum_stream *stream, rostrum_send_result **result, rostrum_error *error) {
    if (result)
        *result = NULL;
    if (!stream->sending)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "this stream is read here, not written");
    if (!stream->over && !stream->outcome.done) {
        rostrum_request(stream->agent, RS_API_STREAM_END, stream->data_id)->number = stream->bytes;
        rostrum_code code = rostrum_ask(stream->agent, 0, -1, NULL, error);
        if (code && !stream->outcome.done)
            return code;
    }
    stream->over = true;
    rostrum_code code = rostrum_wait_for(stream->agent, stream->tag, UINT64_MAX, &stream->outcome, error);
    if (result) {
        *result = stream->outcome.result;
        stream->outcome.result = NULL;
    }
    return code;
}

rostrum_code rostrum_stream_finish(rostrum_stream *stream, rostrum_send_result **result, rostrum_error *error) {
    rostrum *agent = stream->agent; /* which a callback may close */
    rostrum_ref(agent);
    rostrum_code code = finish_held(stream, result, error);
    rostrum_unref(agent);
    return code;
}

rostrum_code rostrum_stream_read(rostrum_stream *stream, void *bytes, size_t room, size_t *length,
                                 rostrum_error *error) {
    *length = 0;
    if (stream->sending)
        return rostrum_fail(error, ROSTRUM_ERR_INVALID, "this stream is written here, not read");
    while (!stream->over) {
        ssize_t got = recv(stream->fd, bytes, room, 0);
        if (got > 0) {
            stream->bytes += (uint64_t)got;
            *length = (size_t)got;
            return ROSTRUM_OK;
        }
        if (got < 0 && errno == EINTR)
            continue;
        rostrum_code code = rostrum_wait_for(stream->agent, stream->tag, FINAL_ANSWER_MS, &stream->outcome, error);
        if (code)
            return code;
        if (stream->outcome.size != stream->bytes)
            return rostrum_fail(error, ROSTRUM_ERR_UNAVAILABLE, "not all bytes of the stream came through its socket");
        stream->over = true;
    }
    return ROSTRUM_OK;
}

int rostrum_stream_fd(const rostrum_stream *stream) {
    return stream->fd;
}

void rostrum_stream_close(rostrum_stream *stream) {
    if (!stream)
        return;
    rostrum_forget(stream->agent, stream->tag);
    rostrum_send_result_free(stream->outcome.result);
    close(stream->fd);
    free(stream);
}
