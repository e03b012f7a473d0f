/* A non-blocking TCP connection, plain or by TLS, that carries frames: 4-byte big-endian length, then as many bytes.
 * Buffers grow with what has really come, never with what a length announces. */
#ifndef RS_DAEMON_MANAGER_FRAMES_H
#define RS_DAEMON_MANAGER_FRAMES_H

#include "daemon/manager/tls.h"

#include <netinet/in.h>

typedef struct {
    uint8_t *bytes;
    size_t start, end, size;
} rs_frames_buffer;

typedef struct {
    int fd;      /* -1: closed */
    rs_tls *tls; /* NULL: plain */
    rs_frames_buffer in, out;
    rs_time in_progress;  /* last time a byte came in */
    rs_time out_progress; /* last time a byte went out, or output began to wait */
    uint64_t frames_in, frames_out, bytes_in, bytes_out;
} rs_frames;

#define RS_FRAMES_EOF (-4095) /* the peer closed; other negative results are -errno */

void rs_frames_init(rs_frames *f);
/* Begins to connect. 0 = done or under way (then the descriptor becomes writable: rs_frames_connected), else -errno.
 * `stall` is how long the kernel may wait for acknowledgements before it gives the connection up. */
int rs_frames_connect(rs_frames *f, rs_time now, const struct sockaddr_in *address, rs_time stall);
/* 0 = connected, -EINPROGRESS = not yet, else the connection attempt's -errno. */
int rs_frames_connected(rs_frames *f);
/* On a connected socket: from here on all of it goes by TLS. 0 = done, -EAGAIN = under way (call it again when it
 * is ready), else failed. */
int rs_frames_secure(rs_frames *f, rs_tls_identity *identity, const struct sockaddr_in *address);
/* Why TLS failed; "" if it did not. */
const char *rs_frames_text(const rs_frames *f);
void rs_frames_close(rs_frames *f);

/* Queues whole frames (with their length prefixes). -ENOBUFS beyond RS_MANAGER_OUTPUT_MAX, -ENOMEM. */
int rs_frames_put(rs_frames *f, rs_time now, const uint8_t *bytes, size_t length);
/* Writes what the socket takes: 0 or -errno. */
int rs_frames_flush(rs_frames *f, rs_time now);
bool rs_frames_output(const rs_frames *f); /* something still waits */
/* Reading, or TLS's handshake, goes on when the socket takes output. */
bool rs_frames_wants_write(const rs_frames *f);
/* Reads once: bytes read, 0 = nothing now, negative = failed. */
int rs_frames_fill(rs_frames *f, rs_time now);
/* 1 = a whole frame, valid until the next fill or close; 0 = not yet; -EMSGSIZE = a length of 0 or beyond
 * RS_MANAGER_FRAME_MAX. */
int rs_frames_next(rs_frames *f, const uint8_t **frame, size_t *length);
bool rs_frames_partial(const rs_frames *f); /* inside a frame */

#endif
