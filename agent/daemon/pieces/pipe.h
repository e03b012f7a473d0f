/* A connection of pieces: plain, or TLS between agents (daemon/manager/tls.h). As recv, send and sendfile do, what is
 * here returns -1 and sets errno. */
#ifndef RS_PIECES_PIPE_H
#define RS_PIECES_PIPE_H

#include <sys/types.h>

#include "daemon/manager/tls.h"

#define RS_PIECE_HELD (16u << 10) /* bytes of a record at most */

typedef struct {
    int fd;
    rs_tls *tls;        /* NULL: plain */
    const char *server; /* whose agent it must be; NULL: it says so itself (rs_piece_pipe_is) */
    bool known;         /* it was looked at */
    uint8_t *held;      /* what TLS has not taken */
    size_t held_length;
} rs_piece_pipe;

/* `identity` NULL: plain. `fd` stays the caller's, `server` must outlive it. False: out of memory. */
bool rs_piece_pipe_start(rs_piece_pipe *pipe, rs_tls_identity *identity, int fd, bool accepts, const char *server);
void rs_piece_pipe_end(rs_piece_pipe *pipe);

/* EKEYREJECTED: it is not that server's agent. EPROTO: TLS failed. */
ssize_t rs_piece_read(rs_piece_pipe *pipe, void *to, size_t room);
ssize_t rs_piece_write(rs_piece_pipe *pipe, const void *bytes, size_t length, bool more);
ssize_t rs_piece_write_file(rs_piece_pipe *pipe, int fd, uint64_t offset, size_t length);
/* False: broken. */
bool rs_piece_flush(rs_piece_pipe *pipe);
/* It waits for the descriptor to take output. */
bool rs_piece_waits(const rs_piece_pipe *pipe);
/* There is more to read, of which the descriptor does not tell. */
bool rs_piece_pending(const rs_piece_pipe *pipe);
/* Whether it is an agent of that server; a plain one may be any. */
bool rs_piece_pipe_is(const rs_piece_pipe *pipe, const char *server);

#endif
