#include "daemon/groups/published.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/group_frames.h"
#include "daemon/groups/unread.h"

#define IN_FIRST (256u << 10)
#define RING_BYTES (512u << 10)
#define TURN_BYTES (256u << 10) /* of a ring, before what was taken is sent */
#define LOOKS 64u               /* at a ring in a turn */
#define WAKES 256u              /* bytes of them, read at once */

static void set_paused(rs_group_socket *s, bool paused) {
    if (paused == s->paused)
        return;
    s->paused = paused;
    rs_list_keep(&s->groups->paused, &s->in_paused, paused);
    s->calls->watch(s);
}

static uint32_t head_at(const uint8_t *at, int *kind) {
    uint8_t head[RS_GROUP_FRAME_HEAD];
    uint32_t length;
    memcpy(head, at, sizeof head);
    atomic_signal_fence(memory_order_seq_cst); /* read once: in a ring it may change */
    *kind = rs_group_frame_head(head, &length);
    return length;
}

/* Whole frames, until so many bytes or more are taken. False: they do not keep to the format. */
static bool take_frames(rs_group_socket *s, const uint8_t *bytes, size_t have, size_t most, size_t *taken, bool *full) {
    *taken = 0;
    *full = false;
    while (!*full && *taken < most && have - *taken >= RS_GROUP_FRAME_HEAD) {
        const uint8_t *at = bytes + *taken;
        int kind;
        const uint32_t length = head_at(at, &kind);
        if (length > s->groups->message_bytes)
            return false;
        if (have - *taken < RS_GROUP_FRAME_HEAD + (size_t)length)
            break;
        rs_status status = s->calls->take(s, kind, at, length);
        if (status != RS_OK && status != RS_ERR_LIMIT)
            return false;
        *full = status == RS_ERR_LIMIT;
        *taken += *full ? 0 : RS_GROUP_FRAME_HEAD + (size_t)length;
    }
    return true;
}

static bool take_buffer(rs_group_socket *s, bool *full) {
    size_t taken;
    bool well = take_frames(s, s->in + s->in_start, s->in_length - s->in_start, SIZE_MAX, &taken, full);
    s->in_start += taken;
    if (s->in_start == s->in_length)
        s->in_start = s->in_length = 0;
    return well;
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

/* ---------------------------------------------------------------------------------------------------------- rings */

static void close_ring(rs_group_socket *s) {
    if (!s->published.page)
        return;
    s->groups->ring_count--;
    rs_shared_ring_close(&s->published);
    if (s->event >= 0)
        close(s->event);
    s->event = -1;
}

void rs_published_ring(rs_group_socket *s) {
    rs_groups *g = s->groups;
    int memory = -1;
    if (!s->asks || g->ring_count >= RS_RINGS_MOST || !rs_shared_ring_make(&s->published, RING_BYTES, &memory))
        return;
    (void)rs_shared_ring_sleep(&s->published); /* the first frame wakes the agent */
    g->ring_count++;
    int ends[2] = {-1, -1};
    bool paired = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0;
    s->event = ends[0];
    if (!paired || !rs_unread_give(s, memory, ends[1]))
        close_ring(s);
    if (paired)
        close(ends[1]);
    close(memory);
}

/* What the program does with its end makes nobody wait here; what fills this one are wakes. */
static bool wake(int event) {
    return send(event, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 || errno == EAGAIN;
}

/* Of a frame that is larger than the ring, what is there; the whole one is taken of the buffer. */
static bool gather(rs_group_socket *s, const uint8_t *at, size_t waiting, size_t *taken, bool *full) {
    uint32_t length;
    *taken = 0;
    if (!in_room(s))
        return false;
    if (s->in_length == 0) {
        memcpy(s->in, at, RS_GROUP_FRAME_HEAD);
        s->in_length = *taken = RS_GROUP_FRAME_HEAD;
    }
    if (rs_group_frame_head(s->in, &length) != RS_GROUP_FRAME_KIND_PUBLISH)
        return false;
    size_t left = RS_GROUP_FRAME_HEAD + (size_t)length - s->in_length, more = waiting - *taken;
    if (length > s->groups->message_bytes || !in_room(s))
        return false;
    more = more < left ? more : left;
    memcpy(s->in + s->in_length, at + *taken, more);
    s->in_length += more;
    *taken += more;
    return more < left || take_buffer(s, full);
}

static bool is_large(const rs_group_socket *s, const uint8_t *at, size_t waiting) {
    int kind;
    return s->in_length > 0 ||
           (waiting >= RS_GROUP_FRAME_HEAD && RS_GROUP_FRAME_HEAD + (size_t)head_at(at, &kind) > s->published.size);
}

/* What is more than a turn takes waits with those that wait for room. */
static bool take_ring(rs_group_socket *s) {
    rs_shared_ring *ring = &s->published;
    bool full = false, sleeps = false;
    size_t all = 0;
    for (unsigned looks = 0; !full && !sleeps && all < TURN_BYTES && looks < LOOKS; looks++) {
        const uint8_t *at;
        size_t taken, held = s->in_length, waiting = rs_shared_ring_waiting(ring, SIZE_MAX, &at);
        bool well = is_large(s, at, waiting) ? gather(s, at, waiting, &taken, &full)
                                             : take_frames(s, at, waiting, TURN_BYTES - all, &taken, &full);
        if (ring->broken || !well)
            return false;
        rs_shared_ring_take(ring, taken);
        all += taken;
        if (rs_shared_ring_give_back(ring, true) && !wake(s->event))
            return false;
        sleeps = taken == 0 && s->in_length == held && !full && rs_shared_ring_sleep(ring);
    }
    set_paused(s, !sleeps);
    return true;
}

/* A wake. Who has gone may have left something in the ring. */
static bool read_wakes(rs_group_socket *s) {
    uint8_t wakes[WAKES];
    ssize_t got = recv(s->fd, wakes, sizeof wakes, MSG_DONTWAIT);
    bool gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    return take_ring(s) && (!gone || s->paused);
}

bool rs_published_take(rs_group_socket *s) {
    bool full;
    if (s->published.page)
        return take_ring(s);
    bool well = take_buffer(s, &full);
    if (well)
        set_paused(s, full);
    return well;
}

bool rs_published_read(rs_group_socket *s) {
    if (s->published.page)
        return read_wakes(s);
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
    close_ring(s);
    free(s->in);
}
