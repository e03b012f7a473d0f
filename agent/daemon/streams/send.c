/* What a program writes goes into fragments, and these to the core as far as its window reaches. What is beyond stays
 * in the program's socket, whose writes wait: so the slowest receiver holds the program back. */
#include "daemon/streams/send.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/secure.h"
#include "daemon/streams/ring.h"

#define PIECES 64u                 /* fragments filled by one look at the socket */
#define CHECKS 4u                  /* in one turn of the loop */
#define FLUSH (5 * RS_MILLISECOND) /* a fragment that is not full waits so long for more */
#define END_UNKNOWN UINT64_MAX

struct rs_stream_source {
    rs_agent *agent;
    rs_send_state *sending;
    int fd; /* -1: all of it is here */
    rs_watch watch;
    rs_stream_ring ring; /* made when the core has begun */
    uint64_t sn;         /* the fragment being filled */
    uint64_t stamped;    /* those before are signed, where fragments are */
    uint32_t used;       /* bytes of the program in it */
    uint64_t limit;      /* one past the last sn that the window has room for */
    uint64_t bytes;      /* of the program, in all */
    uint64_t end;        /* how many there will be, once it has said so */
    bool over;           /* the core has been told */
    rs_time flush_at;
};

static void give_up(rs_stream_source *s, const char *cause) {
    if (s->fd < 0)
        return;
    rs_loop_unwatch(s->agent->loop, &s->watch);
    close(s->fd);
    s->fd = -1;
    rs_sending_cancel(s->agent, &s->sending->base, cause);
}

/* Those before `end` that are not signed yet, by batches. */
static bool sign(rs_stream_source *s, uint64_t end) {
    rs_signed batch[RS_SIGN_BATCH];
    uint64_t nonce;
    if (s->ring.stamp == 0)
        return true;
    if (rs_send_nonce(s->agent->node, s->sending->base.xfer, &nonce) != RS_OK)
        return false;
    while (s->stamped < end) {
        uint32_t count = 0;
        for (; count < RS_SIGN_BATCH && s->stamped + count < end; count++)
            batch[count] = rs_stream_signed(rs_stream_ring_at(&s->ring, s->stamped + count), nonce, s->stamped + count);
        if (!rs_secure_sign(s->agent, RS_SIGNS_STREAM, batch, count))
            return false;
        for (; count > 0; count--)
            rs_stream_ring_close(&s->ring, s->stamped++);
    }
    return true;
}

static void extend(rs_stream_source *s, uint64_t bytes, bool last) {
    rs_xfer xfer = s->sending->base.xfer;
    if (!sign(s, bytes / s->ring.fragment + (bytes % s->ring.fragment != 0))) {
        give_up(s, "its bytes could not be signed");
        return;
    }
    rs_status status = rs_stream_extend(s->agent->node, rs_agent_now(s->agent), xfer, bytes, last);
    if (status != RS_OK)
        give_up(s, rs_strerror(status));
}

static void seal(rs_stream_source *s) {
    rs_stream_ring_seal(&s->ring, s->sn, s->used);
    s->sn++;
    s->used = 0;
    s->flush_at = RS_NEVER;
}

/* Of the last fragment, which is shorter; 0: there is none. */
static uint64_t last_bytes(const rs_stream_source *s) {
    return s->used > 0 || s->sn == 0 ? RS_STREAM_HEAD + s->ring.stamp + s->used : 0;
}

/* The program has said how much it is, and that much is here. */
static void finish(rs_stream_source *s) {
    uint64_t last = last_bytes(s), before = s->sn * s->ring.fragment;
    if (last)
        rs_stream_ring_seal(&s->ring, s->sn, s->used);
    s->over = true;
    s->flush_at = RS_NEVER;
    rs_loop_unwatch(s->agent->loop, &s->watch);
    close(s->fd);
    s->fd = -1;
    extend(s, before + last, true);
}

/* One look at the socket. False: there is no more now. */
static bool take(rs_stream_source *s) {
    struct iovec pieces[PIECES];
    uint64_t want = s->end - s->bytes;
    size_t count = 0, asked = 0;
    for (uint64_t sn = s->sn; count < PIECES && sn < s->limit && asked < want; sn++, count++) {
        uint32_t used = sn == s->sn ? s->used : 0, room = rs_stream_ring_room(&s->ring) - used;
        pieces[count].iov_base = rs_stream_ring_at(&s->ring, sn) + RS_STREAM_HEAD + s->ring.stamp + used;
        pieces[count].iov_len = room < want - asked ? room : (size_t)(want - asked);
        asked += pieces[count].iov_len;
    }
    if (count == 0)
        return false;
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    ssize_t got = recvmsg(s->fd, &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (got <= 0) {
        give_up(s, "the program that wrote the stream went away before it had said that this is all");
        return false;
    }
    s->bytes += (uint64_t)got;
    s->agent->totals.stream_bytes_out += (uint64_t)got;
    for (size_t left = (size_t)got; left > 0;) {
        uint32_t room = rs_stream_ring_room(&s->ring) - s->used, here = left < room ? (uint32_t)left : room;
        s->used += here;
        left -= here;
        if (s->used == rs_stream_ring_room(&s->ring))
            seal(s);
    }
    return (size_t)got == asked;
}

static bool is_complete(const rs_stream_source *s) {
    return s->bytes == s->end && (s->sn < s->limit || (s->used == 0 && s->sn > 0));
}

/* What the socket holds, as far as there is room; then what the core may have of it. */
static void work(rs_stream_source *s) {
    uint64_t before = s->sn;
    bool more = true;
    for (unsigned looks = 0; looks < CHECKS && more && s->fd >= 0; looks++)
        more = take(s);
    if (s->fd < 0)
        return;
    if (is_complete(s)) {
        finish(s);
        return;
    }
    if (s->sn > before)
        extend(s, s->sn * s->ring.fragment, false);
    if (s->fd < 0)
        return;
    if (s->used > 0 && s->flush_at == RS_NEVER)
        s->flush_at = rs_agent_now(s->agent) + FLUSH;
    if (s->sn < s->limit && s->bytes < s->end)
        rs_loop_watch(s->agent->loop, &s->watch, s->fd, EPOLLIN);
    else
        rs_loop_unwatch(s->agent->loop, &s->watch);
}

static void ready(void *context, uint32_t events) {
    (void)events;
    work(context);
}

void rs_stream_source_moved(rs_stream_source *s) {
    uint64_t first, here, end;
    if (s->over || s->fd < 0 || rs_stream_window(s->agent->node, s->sending->base.xfer, &first, &here, &end) != RS_OK)
        return;
    uint32_t fragment = s->agent->fragment_size;
    if (!s->ring.bytes && !rs_stream_ring_make(&s->ring, fragment, end / fragment + 64)) {
        give_up(s, "no memory for a stream's window");
        return;
    }
    s->ring.stamp = rs_secure_signs(s->agent) ? RS_SIGN_STAMP : 0;
    s->limit = end / fragment;
    work(s);
}

rs_time rs_stream_source_deadline(const rs_stream_source *s) {
    return s->flush_at;
}

void rs_stream_source_timeout(rs_stream_source *s) {
    if (rs_agent_now(s->agent) < s->flush_at || s->fd < 0)
        return;
    if (s->used > 0) {
        seal(s);
        extend(s, s->sn * s->ring.fragment, false);
    }
    s->flush_at = RS_NEVER;
}

void rs_stream_end_api(void *context, const rs_api_call *call, const rs_object_id *id, uint64_t bytes) {
    rs_agent *agent = context;
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next) {
        rs_stream_source *s = t->source;
        if (!s || memcmp(&t->id, id, sizeof *id) != 0)
            continue;
        if (s->end != END_UNKNOWN || s->over || bytes < s->bytes || bytes == END_UNKNOWN) {
            rs_api_reply_error(agent->api, call, ROSTRUM_ERR_INVALID,
                               "stream %s cannot end with %llu bytes: %llu are here, and it ends once", rs_id_text(id),
                               (unsigned long long)bytes, (unsigned long long)s->bytes);
            return;
        }
        s->end = bytes;
        rs_api_reply_ok(agent->api, call);
        if (s->ring.bytes && s->fd >= 0)
            work(s);
        return;
    }
    rs_api_reply_error(agent->api, call, ROSTRUM_ERR_UNKNOWN, "stream %s is not being sent from here", rs_id_text(id));
}

bool rs_stream_source_kept(const rs_agent *agent, const rs_object_id *id, rs_stream_kept *out) {
    for (const rs_transfer_entry *t = agent->transfers.sending; t; t = t->next) {
        const rs_stream_source *s = t->source;
        if (!s || memcmp(&t->id, id, sizeof *id) != 0 || !s->ring.bytes)
            continue;
        uint64_t last = s->over ? last_bytes(s) : 0;
        *out = (rs_stream_kept){&s->ring, s->limit > s->ring.slots ? s->limit - s->ring.slots : 0, s->sn + (last > 0),
                                s->over ? s->sn * s->ring.fragment + last : RS_STREAM};
        return true;
    }
    return false;
}

const uint8_t *rs_stream_source_at(const rs_stream_source *s, uint64_t offset) {
    return s->ring.bytes ? rs_stream_ring_at(&s->ring, offset / s->ring.fragment) : NULL;
}

uint64_t rs_stream_source_bytes(const rs_stream_source *s) {
    return s->bytes;
}

rs_stream_source *rs_stream_source_new(rs_agent *agent, rs_send_state *sending, int fd) {
    rs_stream_source *s = calloc(1, sizeof *s);
    if (!s) {
        close(fd);
        return NULL;
    }
    s->agent = agent;
    s->sending = sending;
    s->fd = fd;
    s->watch = (rs_watch){.ready = ready, .context = s};
    s->end = END_UNKNOWN;
    s->flush_at = RS_NEVER;
    return s;
}

void rs_stream_source_free(rs_stream_source *s) {
    if (!s)
        return;
    if (s->fd >= 0) {
        rs_loop_unwatch(s->agent->loop, &s->watch);
        close(s->fd);
    }
    rs_stream_ring_free(&s->ring);
    free(s);
}
