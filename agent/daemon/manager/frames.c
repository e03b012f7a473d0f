#include "daemon/manager/frames.h"

#include "daemon/manager/client.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Linux 6.15; older kernels refuse. A keepalive that a cut link swallowed comes soon after it works. */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum { PREFIX = 4, READ_SIZE = 16384, RETRANSMIT_MOST_MS = 1000 /* the least that Linux takes */ };

static size_t held(const rs_frames_buffer *b) {
    return b->end - b->start;
}

/* Room for `more` bytes at the end. */
static bool reserve(rs_frames_buffer *b, size_t more) {
    if (b->start > 0 && b->size - b->end < more) {
        memmove(b->bytes, b->bytes + b->start, held(b));
        b->end -= b->start;
        b->start = 0;
    }
    if (b->size - b->end >= more)
        return true;
    size_t size = b->size ? b->size : READ_SIZE;
    while (size - b->end < more)
        size *= 2;
    uint8_t *bytes = realloc(b->bytes, size);
    if (!bytes)
        return false;
    b->bytes = bytes;
    b->size = size;
    return true;
}

static void drop(rs_frames_buffer *b) {
    free(b->bytes);
    *b = (rs_frames_buffer){0};
}

void rs_frames_init(rs_frames *f) {
    *f = (rs_frames){.fd = -1};
}

int rs_frames_connect(rs_frames *f, rs_time now, const struct sockaddr_in *address, rs_time stall) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int on = 1, retransmit_most_ms = RETRANSMIT_MOST_MS;
    unsigned stall_ms = (unsigned)(stall / 1000000);
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &stall_ms, sizeof stall_ms) < 0 ||
        (connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 && errno != EINPROGRESS)) {
        int error = errno;
        close(fd);
        return -error;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &retransmit_most_ms, sizeof retransmit_most_ms);
    f->fd = fd;
    f->in_progress = f->out_progress = now;
    return 0;
}

int rs_frames_connected(rs_frames *f) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
        return -errno;
    if (error)
        return -error;
    struct sockaddr_in peer;
    size = sizeof peer;
    if (getpeername(f->fd, (struct sockaddr *)&peer, &size) < 0)
        return errno == ENOTCONN ? -EINPROGRESS : -errno;
    return 0;
}

int rs_frames_secure(rs_frames *f, rs_tls_identity *identity, const struct sockaddr_in *address) {
    if (!f->tls)
        f->tls = rs_tls_new(identity, f->fd, ntohl(address->sin_addr.s_addr));
    return f->tls ? rs_tls_handshake(f->tls) : -ENOMEM;
}

const char *rs_frames_text(const rs_frames *f) {
    return f->tls ? rs_tls_text(f->tls) : "";
}

void rs_frames_close(rs_frames *f) {
    rs_tls_free(f->tls);
    f->tls = NULL;
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    drop(&f->in);
    drop(&f->out);
}

int rs_frames_put(rs_frames *f, rs_time now, const uint8_t *bytes, size_t length) {
    if (held(&f->out) + length > RS_MANAGER_OUTPUT_MAX)
        return -ENOBUFS;
    if (!reserve(&f->out, length))
        return -ENOMEM;
    if (held(&f->out) == 0)
        f->out_progress = now;
    memcpy(f->out.bytes + f->out.end, bytes, length);
    f->out.end += length;
    f->frames_out++;
    return 0;
}

/* Bytes taken, or -errno. */
static ssize_t put_out(rs_frames *f, const uint8_t *bytes, size_t length) {
    if (f->tls)
        return rs_tls_write(f->tls, bytes, length);
    ssize_t n = send(f->fd, bytes, length, MSG_NOSIGNAL);
    return n < 0 ? -errno : n;
}

int rs_frames_flush(rs_frames *f, rs_time now) {
    while (held(&f->out) > 0) {
        ssize_t n = put_out(f, f->out.bytes + f->out.start, held(&f->out));
        if (n == -EINTR)
            continue;
        if (n < 0)
            return n == -EAGAIN ? 0 : (int)n;
        f->out.start += (size_t)n;
        f->bytes_out += (uint64_t)n;
        f->out_progress = now;
    }
    f->out.start = f->out.end = 0;
    return 0;
}

bool rs_frames_output(const rs_frames *f) {
    return held(&f->out) > 0;
}

bool rs_frames_wants_write(const rs_frames *f) {
    return f->tls && rs_tls_wants_write(f->tls);
}

/* Bytes, 0 at the stream's end, or -errno. */
static ssize_t take_in(rs_frames *f, uint8_t *out, size_t size) {
    if (f->tls)
        return rs_tls_read(f->tls, out, size);
    ssize_t n = recv(f->fd, out, size, 0);
    return n < 0 ? -errno : n;
}

int rs_frames_fill(rs_frames *f, rs_time now) {
    if (!reserve(&f->in, READ_SIZE))
        return -ENOMEM;
    for (;;) {
        ssize_t n = take_in(f, f->in.bytes + f->in.end, READ_SIZE);
        if (n > 0) {
            f->in.end += (size_t)n;
            f->bytes_in += (uint64_t)n;
            f->in_progress = now;
            return (int)n;
        }
        if (n == 0)
            return RS_FRAMES_EOF;
        if (n != -EINTR)
            return n == -EAGAIN ? 0 : (int)n;
    }
}

int rs_frames_next(rs_frames *f, const uint8_t **frame, size_t *length) {
    if (held(&f->in) < PREFIX)
        return 0;
    const uint8_t *at = f->in.bytes + f->in.start;
    size_t size = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
    if (size == 0 || size > RS_MANAGER_FRAME_MAX)
        return -EMSGSIZE;
    if (held(&f->in) < PREFIX + size)
        return 0;
    *frame = at + PREFIX;
    *length = size;
    f->in.start += PREFIX + size;
    f->frames_in++;
    return 1;
}

bool rs_frames_partial(const rs_frames *f) {
    return held(&f->in) > 0 || (f->tls && rs_tls_partial(f->tls));
}
