#include "daemon/groups/unread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define OUT_FIRST (64u << 10)
#define OUT_PIECE (256u << 10)

/* Behind what waits in the buffer, of which there may be `bound` bytes. */
static uint8_t *buffer_room(rs_group_socket *s, size_t length, size_t bound) {
    /* Moved when that pays, or when there is no other way. */
    if (s->out_start > 0 && s->out_length + length > s->out_room &&
        (s->out_start >= s->out_room / 2 || s->out_length + length > bound)) {
        memmove(s->out, s->out + s->out_start, rs_stream_unread(s));
        s->out_length -= s->out_start;
        s->out_start = 0;
    }
    if (s->out_length + length > s->out_room) {
        size_t more = s->out_room ? s->out_room : OUT_FIRST;
        while (more < s->out_length + length)
            more *= 2;
        more = more < bound ? more : bound;
        uint8_t *larger = realloc(s->out, more);
        if (!larger)
            return NULL;
        s->out = larger;
        s->out_room = more;
    }
    uint8_t *at = s->out + s->out_length;
    s->out_length += length;
    return at;
}

uint8_t *rs_unread_room(rs_group_socket *s, size_t length) {
    const size_t bound = rs_stream_unread_most(s);
    if (rs_stream_unread(s) + length > bound)
        return NULL;
    if (s->out_length == 0)
        s->progress_at = rs_agent_now(s->groups->agent); /* it had read all */
    uint8_t *at = buffer_room(s, length, bound);
    if (at && !s->dirty) {
        s->dirty = true;
        s->next_dirty = s->groups->dirty;
        s->groups->dirty = s;
    }
    return at;
}

static bool is_full(int number) {
    return number == EAGAIN || number == EWOULDBLOCK || number == ENOBUFS;
}

static rs_unread_state send_unread(rs_group_socket *s) {
    while (rs_stream_unread(s) > 0) {
        size_t piece = rs_stream_unread(s) < OUT_PIECE ? rs_stream_unread(s) : OUT_PIECE;
        ssize_t sent = send(s->fd, s->out + s->out_start, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            s->out_start += (size_t)sent;
            s->progress_at = rs_agent_now(s->groups->agent);
        } else if (sent < 0 && errno != EINTR) {
            return is_full(errno) ? RS_UNREAD_BLOCKED : RS_UNREAD_GONE;
        }
    }
    return RS_UNREAD_SENT;
}

rs_unread_state rs_unread_flush(rs_group_socket *s) {
    rs_unread_state state = send_unread(s);
    if (rs_stream_unread(s) == 0)
        s->out_start = s->out_length = 0;
    if (rs_stream_unread(s) == 0 && s->out_room > RS_UNREAD_STUCK) { /* a flood is over */
        free(s->out);
        s->out = NULL;
        s->out_room = 0;
    }
    return state;
}
