#include "daemon/pieces/pipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/log.h"

bool rs_piece_pipe_start(rs_piece_pipe *pipe, rs_tls_identity *identity, int fd, bool accepts, const char *server) {
    char text[RS_TLS_TEXT];
    *pipe = (rs_piece_pipe){.fd = fd, .server = server};
    if (!identity)
        return true;
    if (!rs_tls_identity_refresh(identity, text))
        rs_log(RS_LOG_WARNING, "pieces", "%s", text); /* the files as they were go on */
    pipe->tls = rs_tls_new_peer(identity, fd, accepts);
    pipe->held = malloc(RS_PIECE_HELD);
    if (pipe->tls && pipe->held)
        return true;
    rs_piece_pipe_end(pipe);
    errno = ENOMEM;
    return false;
}

void rs_piece_pipe_end(rs_piece_pipe *pipe) {
    rs_tls_free(pipe->tls);
    free(pipe->held);
    *pipe = (rs_piece_pipe){.fd = -1};
}

static ssize_t failed(const rs_piece_pipe *pipe, ssize_t result) {
    errno = result == -EAGAIN ? EAGAIN : EPROTO;
    if (result != -EAGAIN && rs_tls_text(pipe->tls)[0])
        rs_log(RS_LOG_DEBUG, "pieces", "tls cause=%s", rs_quote(rs_tls_text(pipe->tls)));
    return -1;
}

static bool is_right(rs_piece_pipe *pipe) {
    char text[RS_TLS_TEXT];
    if (pipe->known || !pipe->server)
        return true;
    pipe->known = rs_tls_is_agent(pipe->tls, pipe->server);
    if (!pipe->known)
        rs_log(RS_LOG_WARNING, "pieces", "who answers for server=%s shows the certificate of %s: it is not asked",
               rs_quote(pipe->server), rs_tls_agent(pipe->tls, text));
    return pipe->known;
}

ssize_t rs_piece_read(rs_piece_pipe *pipe, void *to, size_t room) {
    if (!pipe->tls)
        return recv(pipe->fd, to, room, MSG_DONTWAIT);
    ssize_t got = rs_tls_read(pipe->tls, to, room);
    if (rs_tls_shaken(pipe->tls) && !is_right(pipe)) {
        errno = EKEYREJECTED;
        return -1;
    }
    if (!rs_piece_flush(pipe)) /* what waited for the handshake */
        return -1;
    return got < 0 ? failed(pipe, got) : got;
}

bool rs_piece_flush(rs_piece_pipe *pipe) {
    while (pipe->held_length > 0) {
        if (rs_tls_shaken(pipe->tls) && !is_right(pipe)) {
            errno = EKEYREJECTED;
            return false;
        }
        ssize_t sent = rs_tls_write(pipe->tls, pipe->held, pipe->held_length);
        if (sent < 0)
            return failed(pipe, sent) < 0 && errno == EAGAIN;
        pipe->held_length -= (size_t)sent;
        memmove(pipe->held, pipe->held + sent, pipe->held_length);
    }
    return true;
}

/* What is held goes first; room for more behind it. 0: none, errno says why. */
static size_t room_of(rs_piece_pipe *pipe) {
    if (!rs_piece_flush(pipe))
        return 0;
    if (pipe->held_length == RS_PIECE_HELD)
        errno = EAGAIN;
    return RS_PIECE_HELD - pipe->held_length;
}

static ssize_t hold(rs_piece_pipe *pipe, size_t length) {
    pipe->held_length += length;
    return rs_piece_flush(pipe) ? (ssize_t)length : -1;
}

ssize_t rs_piece_write(rs_piece_pipe *pipe, const void *bytes, size_t length, bool more) {
    if (!pipe->tls)
        return send(pipe->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    size_t room = room_of(pipe), some = length < room ? length : room;
    if (room == 0)
        return -1;
    memcpy(pipe->held + pipe->held_length, bytes, some);
    return hold(pipe, some);
}

ssize_t rs_piece_write_file(rs_piece_pipe *pipe, int fd, uint64_t offset, size_t length) {
    off_t at = (off_t)offset;
    if (!pipe->tls)
        return sendfile(pipe->fd, fd, &at, length); /* without a copy; 0: somebody shortened the file */
    size_t room = room_of(pipe), some = length < room ? length : room;
    if (room == 0)
        return -1;
    ssize_t got = pread(fd, pipe->held + pipe->held_length, some, at);
    return got <= 0 ? got : hold(pipe, (size_t)got);
}

bool rs_piece_waits(const rs_piece_pipe *pipe) {
    return pipe->tls && (rs_tls_shaken(pipe->tls) ? pipe->held_length > 0 : rs_tls_wants_write(pipe->tls));
}

bool rs_piece_pending(const rs_piece_pipe *pipe) {
    return pipe->tls && rs_tls_pending(pipe->tls);
}

bool rs_piece_pipe_is(const rs_piece_pipe *pipe, const char *server) {
    return !pipe->tls || rs_tls_is_agent(pipe->tls, server);
}
