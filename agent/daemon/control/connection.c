/* Buffers and framing of one control connection. */
#include "daemon/control/connection.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/datagrams.h"
#include "io/guard.h"

#define IN_FIRST 4096u
#define READ_TURN (256u << 10) /* bytes read of one connection before others have their turn */

static bool broken(char *text, const char *what, int cause) {
    if (cause)
        snprintf(text, RS_CONNECTION_TEXT, "%s: %s", what, strerror(cause));
    else
        snprintf(text, RS_CONNECTION_TEXT, "%s", what);
    return false;
}

void rs_connection_free(rs_connection *connection) {
    rs_tls_free(connection->tls);
    if (connection->fd >= 0)
        close(connection->fd);
    free(connection->in);
    free(connection->out);
    free(connection);
}

/* --------------------------------------------------------------------------------------------------------- output */

void rs_connection_mark_control(int fd) {
    const int tos = RS_DSCP_CONTROL << 2;
    setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
}

/* The mark holds for all that the socket still has to send. */
static void mark(rs_connection *c, bool bulk) {
    const int none = 0;
    int waiting = 0;
    if (c->bulk == bulk)
        return;
    if (!bulk && (c->out_length > 0 || ioctl(c->fd, SIOCOUTQ, &waiting) != 0 || waiting > 0))
        return;
    if (bulk)
        setsockopt(c->fd, IPPROTO_IP, IP_TOS, &none, sizeof none);
    else
        rs_connection_mark_control(c->fd);
    c->bulk = bulk;
}

/* The socket, or TLS by it, has failed, by an errno. */
static bool failed(rs_connection *c, char *text, const char *what, int cause) {
    c->unheard = cause == ETIMEDOUT;
    if (c->tls)
        return broken(text, rs_tls_text(c->tls)[0] ? rs_tls_text(c->tls) : what, 0);
    return broken(text, what, cause);
}

static bool would_block(int cause) {
    return cause == EAGAIN || cause == EWOULDBLOCK || cause == EINTR;
}

/* Room for `length` more bytes behind what waits. */
static uint8_t *make_room(rs_connection *c, size_t length) {
    if (c->out_length + length > RS_CONNECTION_OUT_MAX)
        return NULL;
    if (c->out_start + c->out_length + length > c->out_room) {
        if (c->out_length > 0)
            memmove(c->out, c->out + c->out_start, c->out_length);
        c->out_start = 0;
    }
    if (c->out_length + length > c->out_room) {
        size_t room = c->out_room ? c->out_room : 4096;
        while (room < c->out_length + length)
            room *= 2;
        uint8_t *out = realloc(c->out, room);
        if (!out)
            return NULL;
        c->out = out;
        c->out_room = room;
    }
    uint8_t *at = c->out + c->out_start + c->out_length;
    c->out_length += length;
    return at;
}

/* The rest of a message that the socket took `sent` bytes of. */
static bool keep_rest(rs_connection *c, const uint8_t *header, size_t header_length,
                      const rs_connection_payload *payload, size_t sent, char *text) {
    size_t of_header = sent < header_length ? sent : header_length, of_payload = sent - of_header;
    size_t header_left = header_length - of_header, payload_left = (payload ? payload->length : 0) - of_payload;
    uint8_t *at = make_room(c, header_left + payload_left);
    if (!at)
        return broken(text, "too many bytes wait to be sent, or out of memory", 0);
    memcpy(at, header + of_header, header_left);
    at += header_left;
    if (payload && payload->fd < 0) {
        memcpy(at, payload->map + of_payload, payload_left);
        return true;
    }
    for (size_t done = 0; done < payload_left;) {
        ssize_t got = pread(payload->fd, at + done, payload_left - done, (off_t)(payload->offset + of_payload + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return broken(text, "the object's file became shorter while it was being sent", got < 0 ? errno : 0);
        done += (size_t)got;
    }
    return true;
}

/* By TLS all waits first, in one piece: what could not go yet must be the same when it is tried again. */
static bool send_by_tls(rs_connection *c, rs_time now, const uint8_t *header, size_t header_length,
                        const rs_connection_payload *payload, char *text) {
    size_t payload_length = payload ? payload->length : 0;
    if (c->out_length == 0)
        c->stalled_since = now;
    uint8_t *at = make_room(c, header_length + payload_length);
    if (!at)
        return broken(text, "too many bytes wait to be sent, or out of memory", 0);
    memcpy(at, header, header_length);
    if (payload_length > 0 && !rs_guard_copy(at + header_length, payload->map, payload_length))
        return broken(text, "the object's file became shorter while it was being sent", 0);
    return c->phase == RS_CONNECTION_CONNECTING || rs_connection_flush(c, now, text);
}

bool rs_connection_send(rs_connection *c, rs_time now, const uint8_t *header, size_t header_length,
                        const rs_connection_payload *payload, char *text) {
    size_t sent = 0, total = header_length + (payload ? payload->length : 0);
    mark(c, payload && payload->length > 0);
    if (c->tls)
        return send_by_tls(c, now, header, header_length, payload, text);
    if (c->out_length == 0 && c->phase != RS_CONNECTION_CONNECTING) {
        struct iovec parts[2] = {{(void *)(uintptr_t)header, header_length}};
        if (payload)
            parts[1] = (struct iovec){(void *)(uintptr_t)payload->map, payload->length};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = payload && payload->length ? 2 : 1};
        ssize_t taken = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (taken < 0 && errno == EFAULT)
            return broken(text, "the object's file became shorter while it was being sent", 0);
        if (taken < 0 && !would_block(errno))
            return failed(c, text, "sending failed", errno);
        sent = taken > 0 ? (size_t)taken : 0;
        c->last_activity = now;
    }
    if (sent == total)
        return true;
    if (c->out_length == 0)
        c->stalled_since = now;
    return keep_rest(c, header, header_length, payload, sent, text);
}

bool rs_connection_flush(rs_connection *c, rs_time now, char *text) {
    while (c->out_length > 0) {
        ssize_t sent = c->tls ? rs_tls_write(c->tls, c->out + c->out_start, c->out_length)
                              : send(c->fd, c->out + c->out_start, c->out_length, MSG_NOSIGNAL);
        if (c->tls && sent < 0) {
            if (sent == -EAGAIN)
                return true;
            return failed(c, text, "sending failed", (int)-sent);
        }
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && would_block(errno))
            return true;
        if (sent < 0)
            return failed(c, text, "sending failed", errno);
        c->out_start += (size_t)sent;
        c->out_length -= (size_t)sent;
        c->last_activity = c->stalled_since = now;
    }
    c->stalled_since = RS_NEVER;
    c->out_start = 0;
    free(c->out);
    c->out = NULL;
    c->out_room = 0;
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- input */

static bool grow_input(rs_connection *c) {
    size_t room = c->in_room ? c->in_room * 4 : IN_FIRST;
    if (room > RS_CONNECTION_IN_MAX)
        room = RS_CONNECTION_IN_MAX;
    uint8_t *in = realloc(c->in, room);
    if (!in)
        return false;
    c->in = in;
    c->in_room = room;
    return true;
}

/* Hands over the whole messages at the front of the buffer. */
static bool take_messages(rs_connection *c, rs_connection_message message, void *context, char *text) {
    size_t at = 0;
    while (at < c->in_length) {
        size_t header_length = 0;
        uint32_t payload_length = 0;
        int known = rs_wire_frame(c->in + at, c->in_length - at, &header_length, &payload_length);
        if (known < 0)
            return broken(text, "what it sends is not the control protocol", 0);
        if (known == 0 || c->in_length - at < header_length + payload_length)
            break;
        if (!message(context, c->in + at, header_length, c->in + at + header_length, payload_length, text))
            return false;
        at += header_length + payload_length;
    }
    c->in_length -= at;
    if (at > 0 && c->in_length > 0)
        memmove(c->in, c->in + at, c->in_length);
    return true;
}

bool rs_connection_read(rs_connection *c, rs_time now, rs_connection_message message, void *context, char *text) {
    for (size_t total = 0; total < READ_TURN || (c->tls && rs_tls_pending(c->tls));) {
        if (c->in_length == c->in_room && (c->in_room >= RS_CONNECTION_IN_MAX || !grow_input(c)))
            return broken(text, "out of memory for what it sends", 0);
        size_t room = c->in_room - c->in_length;
        ssize_t got =
            c->tls ? rs_tls_read(c->tls, c->in + c->in_length, room) : recv(c->fd, c->in + c->in_length, room, 0);
        if (c->tls && got < 0) {
            if (got == -EAGAIN)
                break;
            return failed(c, text, "receiving failed", (int)-got);
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && would_block(errno))
            break;
        if (got < 0)
            return failed(c, text, "receiving failed", errno);
        if (got == 0)
            return broken(
                text, c->in_length > 0 ? "it closed the connection inside a message" : "it closed the connection", 0);
        c->in_length += (size_t)got;
        c->last_activity = now;
        total += (size_t)got;
        if (!take_messages(c, message, context, text))
            return false;
        if (!c->tls && (size_t)got < room)
            break;
    }
    if (c->in_length == 0) { /* of thousands hardly any is inside a message */
        free(c->in);
        c->in = NULL;
        c->in_room = 0;
    }
    return true;
}

uint32_t rs_connection_events(const rs_connection *c) {
    if (c->phase == RS_CONNECTION_CONNECTING)
        return EPOLLOUT;
    bool output = c->tls && !rs_tls_shaken(c->tls) ? rs_tls_wants_write(c->tls) : c->out_length > 0;
    return EPOLLIN | (output ? EPOLLOUT : 0u);
}
