#include "daemon/groups/unread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "api/group_frames.h"

#define OUT_FIRST (64u << 10)
#define OUT_PIECE (256u << 10)
#define RING_BYTES (1u << 20)

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
    uint8_t *at = s->ring.page && rs_stream_unread(s) == 0 ? rs_shared_ring_put(&s->ring, length) : NULL;
    at = at ? at : buffer_room(s, length, bound);
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

/* A socket that is full wakes the program as well. */
static bool wake(const rs_group_socket *s) {
    uint8_t frame[RS_GROUP_FRAME_HEAD];
    rs_group_frame_put_head(frame, 0, RS_GROUP_FRAME_KIND_WAKE, 0);
    ssize_t sent;
    do
        sent = send(s->fd, frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent >= 0 || is_full(errno);
}

static rs_unread_state flush_ring(rs_group_socket *s) {
    for (;;) {
        size_t left = rs_stream_unread(s), fits = left > 0 ? rs_shared_ring_free(&s->ring) : 0;
        size_t piece = left < fits ? left : fits;
        if (piece > 0) {
            memcpy(rs_shared_ring_put(&s->ring, piece), s->out + s->out_start, piece);
            s->out_start += piece;
            s->progress_at = rs_agent_now(s->groups->agent);
        }
        if (rs_shared_ring_tell(&s->ring) && !wake(s))
            return RS_UNREAD_GONE;
        if (s->ring.broken)
            return RS_UNREAD_GONE;
        if (rs_stream_unread(s) == 0)
            return RS_UNREAD_SENT;
        if (rs_shared_ring_await_room(&s->ring))
            return RS_UNREAD_BLOCKED;
    }
}

rs_unread_state rs_unread_flush(rs_group_socket *s) {
    rs_unread_state state = s->ring.page ? flush_ring(s) : send_unread(s);
    if (rs_stream_unread(s) == 0)
        s->out_start = s->out_length = 0;
    if (rs_stream_unread(s) == 0 && s->out_room > RS_UNREAD_STUCK) { /* a flood is over */
        free(s->out);
        s->out = NULL;
        s->out_room = 0;
    }
    return state;
}

/* ---------------------------------------------------------------------------------------------------------- rings */

bool rs_unread_give(const rs_group_socket *s, int memory, int event) {
    const int both[] = {memory, event};
    uint8_t frame[RS_GROUP_FRAME_HEAD];
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof both)] = {0};
    struct iovec bytes = {frame, sizeof frame};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    const struct cmsghdr c = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof both)};
    memcpy(control, &c, sizeof c);
    memcpy(control + CMSG_LEN(0), both, sizeof both);
    rs_group_frame_put_head(frame, 0, RS_GROUP_FRAME_KIND_RING, 0);
    return sendmsg(s->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof frame;
}

static void close_ring(rs_group_socket *s) {
    rs_loop_unwatch(s->groups->agent->loop, &s->roomy);
    s->groups->ring_count -= s->ring.page != NULL;
    rs_shared_ring_close(&s->ring);
    if (s->event >= 0)
        close(s->event);
    s->event = -1;
}

void rs_unread_ring(rs_group_socket *s, void (*roomy)(void *context, uint32_t events)) {
    rs_groups *g = s->groups;
    int memory = -1;
    if (!s->asks || g->ring_count >= RS_RINGS_MOST || !rs_shared_ring_make(&s->ring, RING_BYTES, &memory))
        return;
    g->ring_count++;
    s->roomy = (rs_watch){.ready = roomy, .context = s};
    s->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->event < 0 || !rs_loop_watch(g->agent->loop, &s->roomy, s->event, EPOLLIN) ||
        !rs_unread_give(s, memory, s->event))
        close_ring(s);
    close(memory);
}

/* The program has the same eventfd, and may have emptied it, and made it wait: it is not waited for (Linux 5.8). */
void rs_unread_woken(const rs_group_socket *s) {
    eventfd_t count;
    const struct iovec to = {.iov_base = &count, .iov_len = sizeof count};
    if (preadv2(s->event, &to, 1, -1, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP)
        (void)eventfd_read(s->event, &count);
}

bool rs_unread_cut(rs_group_socket *s) {
    if (!s->ring.page || rs_stream_unread(s) == 0)
        return false;
    s->out_start = s->out_length = 0;
    close_ring(s);
    return true;
}

void rs_unread_free(rs_group_socket *s) {
    close_ring(s);
    free(s->out);
}
