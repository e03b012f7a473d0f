#include "daemon/groups/published.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/group_frames.h"

#define IN_FIRST (256u << 10)

static void set_paused(rs_group_socket *s, bool paused) {
    if (paused == s->paused)
        return;
    s->paused = paused;
    rs_list_keep(&s->groups->paused, &s->in_paused, paused);
    rs_stream_watch(s);
}

bool rs_published_take(rs_group_socket *s) {
    bool full = false;
    while (!full && s->in_length - s->in_start >= RS_GROUP_FRAME_HEAD) {
        const uint8_t *at = s->in + s->in_start;
        uint32_t length;
        int kind = rs_group_frame_head(at, &length);
        if (length > s->groups->message_bytes)
            return false;
        if (s->in_length - s->in_start < RS_GROUP_FRAME_HEAD + (size_t)length)
            break;
        rs_status status = rs_stream_take_frame(s, kind, at, length);
        if (status != RS_OK && status != RS_ERR_LIMIT)
            return false;
        full = status == RS_ERR_LIMIT;
        s->in_start += full ? 0 : RS_GROUP_FRAME_HEAD + (size_t)length;
    }
    set_paused(s, full);
    if (s->in_start == s->in_length)
        s->in_start = s->in_length = 0;
    return true;
}

/* Room for the rest of a large message, or for many small ones. */
static bool in_room(rs_group_socket *s) {
    size_t want = IN_FIRST, have = s->in_length - s->in_start;
    uint32_t length;
    if (have >= RS_GROUP_FRAME_HEAD && rs_group_frame_head(s->in + s->in_start, &length) &&
        length <= s->groups->message_bytes && RS_GROUP_FRAME_HEAD + (size_t)length > want)
        want = RS_GROUP_FRAME_HEAD + (size_t)length;
    if (s->in_start > 0 && s->in_room - s->in_length < want / 2) {
        memmove(s->in, s->in + s->in_start, have);
        s->in_start = 0;
        s->in_length = have;
    }
    if (s->in_room >= want)
        return true;
    uint8_t *larger = realloc(s->in, want);
    if (larger) {
        s->in = larger;
        s->in_room = want;
    }
    return larger != NULL;
}

bool rs_published_read(rs_group_socket *s) {
    if (!in_room(s))
        return false;
    ssize_t got = recv(s->fd, s->in + s->in_length, s->in_room - s->in_length, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0)
        return false;
    s->in_length += (size_t)got;
    return rs_published_take(s);
}

void rs_published_free(rs_group_socket *s) {
    free(s->in);
}
