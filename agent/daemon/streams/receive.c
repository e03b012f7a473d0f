/* A stream that comes in goes into the socket of the program that reads it, in order and as fast as that takes it. What
 * it does not take stays in the window, and a full window holds the sender back; but not for ever: a program that takes
 * nothing while something waits, or none that comes at all, fails this receiver, and the others go on. */
#include "daemon/streams/receive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/secure.h"
#include "daemon/streams/ring.h"
#include "daemon/streams/send.h"

#define PIECES 64u /* fragments in one write */
#define GONE "the program that read the stream went away"
#define LENT_FOR (5 * RS_SECOND) /* a stream that others joined is kept so long after its end here */
#define WAIT_BOUNDS 2            /* silence bounds that a program may take nothing while something waits */

struct rs_stream_sink {
    rs_agent *agent;
    rs_xfer xfer; /* 0: not begun */
    rs_object_id id;
    rs_stream_ring ring;
    uint64_t nonce; /* of its transfer */
    bool signs;     /* its sender does, by this key */
    uint8_t signer[RS_SIGN_PUBLIC];
    /* the program */
    int fd; /* -1: none, or it has all */
    rs_api_call call;
    rs_watch watch;
    bool ended; /* it has all, or none will: nothing more is handed out */
    /* fragments opened, being written: pieces [piece, piece_count) of those from `sn` on */
    struct iovec pieces[PIECES];
    uint32_t piece, piece_count;
    uint64_t sn;
    uint64_t here, size; /* as the core has it; size is known at the end */
    bool complete;
    uint64_t bytes;      /* of the program */
    rs_time waits_since; /* something waits for the program; RS_NEVER: nothing does */
    bool lent;           /* others have joined, and get what they missed from here */
};

/* One that has ended here, for those who joined it. */
struct rs_stream_ended {
    rs_stream_ended *next;
    rs_object_id id;
    rs_stream_ring ring;
    uint64_t size;
    rs_time until;
};

/* A program that waits for a stream to begin. */
struct rs_stream_reader {
    rs_stream_reader *next;
    rs_agent *agent;
    rs_object_id id;
    rs_api_call call;
    int fd;
    rs_watch watch;
    uint32_t wait_ms;
    rs_time deadline;
};

/* ------------------------------------------------------------------------------------------- handing bytes out */

static void close_program(rs_stream_sink *s) {
    if (s->fd < 0)
        return;
    rs_loop_unwatch(s->agent->loop, &s->watch);
    close(s->fd);
    s->fd = -1;
}

/* This receiver has failed; the sender is told. */
static void give_up(rs_stream_sink *s, const char *text) {
    char cause[160];
    snprintf(cause, sizeof cause, "%s at %.60s", text, s->agent->options.server);
    s->ended = true;
    s->waits_since = RS_NEVER;
    if (s->fd >= 0)
        rs_loop_unwatch(s->agent->loop, &s->watch);
    rs_receive_cancel(s->agent->node, rs_agent_now(s->agent), s->xfer, cause);
}

static uint32_t length_of(const rs_stream_sink *s, uint64_t sn) {
    uint64_t from = sn * s->ring.fragment, left = s->here > from ? s->here - from : 0;
    return left < s->ring.fragment ? (uint32_t)left : s->ring.fragment;
}

/* Opens what is here next. False: a fragment is not as it was sealed. */
static bool open_pieces(rs_stream_sink *s) {
    s->piece = s->piece_count = 0;
    while (s->piece_count < PIECES) {
        uint64_t sn = s->sn + s->piece_count;
        uint32_t length = length_of(s, sn);
        if (length == 0 || (length < s->ring.fragment && !s->complete))
            return true;
        int32_t used = rs_stream_ring_open(&s->ring, sn, length);
        if (used < 0)
            return false;
        s->pieces[s->piece_count++] =
            (struct iovec){rs_stream_fragment_bytes(rs_stream_ring_at(&s->ring, sn)), (size_t)used};
    }
    return true;
}

/* What the socket took. */
static void written(rs_stream_sink *s, size_t count) {
    s->bytes += count;
    s->agent->totals.stream_bytes_in += count;
    while (s->piece < s->piece_count && count >= s->pieces[s->piece].iov_len)
        count -= s->pieces[s->piece++].iov_len;
    if (count > 0) {
        s->pieces[s->piece].iov_base = (uint8_t *)s->pieces[s->piece].iov_base + count;
        s->pieces[s->piece].iov_len -= count;
    }
}

static void taken(rs_stream_sink *s) {
    uint64_t bytes = s->sn * s->ring.fragment;
    (void)rs_stream_taken(s->agent->node, rs_agent_now(s->agent), s->xfer, bytes < s->here ? bytes : s->here);
}

/* All of it went to the program: the sender learns it, and so does the program. */
static void finish(rs_stream_sink *s) {
    s->ended = true;
    rs_verified(s->agent->node, rs_agent_now(s->agent), s->xfer, true, "");
    rs_log(RS_LOG_INFO, "stream", "stream=%s read=whole bytes=%llu", rs_id_text(&s->id), (unsigned long long)s->bytes);
    rs_api_reply_streamed(s->agent->api, &s->call, s->bytes);
    close_program(s);
}

/* As much as the program takes. */
static void work(rs_stream_sink *s) {
    bool blocked = false, moved = false;
    while (!blocked && !s->ended && s->fd >= 0) {
        if (s->piece == s->piece_count && !open_pieces(s)) {
            /* They were right when they came. */
            give_up(s, "the memory of this server has changed bytes of the stream that were right when they came,");
            return;
        }
        if (s->piece_count == 0)
            break;
        struct msghdr message = {.msg_iov = s->pieces + s->piece, .msg_iovlen = s->piece_count - s->piece};
        ssize_t sent = sendmsg(s->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS && errno != EINTR) {
            give_up(s, GONE);
            return;
        }
        blocked = sent < 0;
        written(s, sent > 0 ? (size_t)sent : 0);
        if (sent >= 0)
            s->waits_since = RS_NEVER;
        moved |= s->piece > 0;
        s->sn += s->piece;
        memmove(s->pieces, s->pieces + s->piece, (s->piece_count - s->piece) * sizeof *s->pieces);
        s->piece_count -= s->piece;
        s->piece = 0;
    }
    if (s->waits_since == RS_NEVER && length_of(s, s->sn) > 0 && !s->ended)
        s->waits_since = rs_agent_now(s->agent);
    if (moved)
        taken(s);
    if (s->ended || s->fd < 0)
        return;
    if (s->complete && s->piece_count == 0 && length_of(s, s->sn) == 0)
        finish(s);
    else
        rs_loop_watch(s->agent->loop, &s->watch, s->fd, blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* It reads only: what can be read is its end. */
static void ready(void *context, uint32_t events) {
    rs_stream_sink *s = context;
    char byte;
    ssize_t got = events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? recv(s->fd, &byte, 1, MSG_DONTWAIT) : -1;
    if (got >= 0 || (events & (EPOLLHUP | EPOLLERR))) {
        give_up(s, got > 0 ? "a program wrote into the stream that it reads" : GONE);
        return;
    }
    work(s);
}

void rs_stream_sink_moved(rs_stream_sink *s) {
    uint64_t first, here, end;
    if (s->xfer && rs_stream_window(s->agent->node, s->xfer, &first, &here, &end) == RS_OK)
        s->here = here;
    work(s);
}

void rs_stream_sink_complete(rs_stream_sink *s) {
    s->complete = true;
    rs_stream_sink_moved(s);
}

/* ---------------------------------------------------------------------------------------------------- programs */

static void attach(rs_stream_sink *s, int fd, const rs_api_call *call) {
    s->fd = fd;
    s->call = *call;
    s->waits_since = RS_NEVER;
    work(s);
}

static void end_reader(rs_stream_reader *r) {
    for (rs_stream_reader **at = &r->agent->stream_readers; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    rs_loop_unwatch(r->agent->loop, &r->watch);
    if (r->fd >= 0)
        close(r->fd);
    free(r);
}

static void reader_ready(void *context, uint32_t events) {
    (void)events;
    end_reader(context); /* it went away: it has nothing to say */
}

static rs_stream_sink *find(const rs_agent *agent, const rs_object_id *id) {
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        if (t->sink && memcmp(&t->id, id, sizeof *id) == 0)
            return t->sink;
    return NULL;
}

static uint32_t readers(const rs_agent *agent, const rs_object_id *id) {
    uint32_t count = 0;
    for (const rs_stream_reader *r = agent->stream_readers; r; r = r->next)
        count += !id || memcmp(&r->id, id, sizeof *id) == 0;
    return count;
}

void rs_stream_take_api(void *context, const rs_api_take *take) {
    rs_agent *agent = context;
    rs_stream_sink *s = find(agent, &take->id);
    const char *name = rs_id_text(&take->id);
    rs_stream_reader *r = NULL;
    bool free_for_it = !s || (s->fd < 0 && !s->ended);
    if (!free_for_it || readers(agent, &take->id) > 0)
        rs_api_reply_error(agent->api, &take->call, ROSTRUM_ERR_EXISTS, "stream %s has a program here that reads it",
                           name);
    else if (!s && take->wait_ms == 0)
        rs_api_reply_error(agent->api, &take->call, ROSTRUM_ERR_UNKNOWN, "stream %s is not coming in here", name);
    else if (!s && (readers(agent, NULL) >= RS_STREAMS_MOST || !(r = calloc(1, sizeof *r))))
        rs_api_reply_error(agent->api, &take->call, ROSTRUM_ERR_LIMIT, "%u programs wait for streams here already",
                           RS_STREAMS_MOST);
    if (s && free_for_it) {
        attach(s, take->stream, &take->call);
        return;
    }
    if (!r) {
        close(take->stream);
        return;
    }
    *r = (rs_stream_reader){.next = agent->stream_readers,
                            .agent = agent,
                            .id = take->id,
                            .call = take->call,
                            .fd = take->stream,
                            .watch = {.ready = reader_ready, .context = r},
                            .wait_ms = take->wait_ms,
                            .deadline = rs_agent_now(agent) + (rs_time)take->wait_ms * RS_MILLISECOND};
    agent->stream_readers = r;
    rs_loop_watch(agent->loop, &r->watch, r->fd, EPOLLIN);
}

/* -------------------------------------------------------------------------------------------------------- life */

rs_stream_sink *rs_stream_sink_new(rs_agent *agent, const rs_incoming *info, char *cause, size_t size) {
    uint32_t count = 0;
    for (const rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        count += t->sink != NULL;
    rs_stream_sink *s = NULL;
    if (find(agent, &info->object))
        snprintf(cause, size, "%.60s has a stream by that name coming in already", agent->options.server);
    else if (count >= RS_STREAMS_MOST)
        snprintf(cause, size, "%u streams come in at %.60s already", count, agent->options.server);
    else if (!(s = calloc(1, sizeof *s)) ||
             !rs_stream_ring_make(&s->ring, info->fragment_size, RS_STREAM_BYTES / info->fragment_size + 512))
        snprintf(cause, size, "no memory at %.60s for a stream", agent->options.server);
    if (!s || !s->ring.bytes) {
        free(s);
        return NULL;
    }
    agent->stream_sinks++;
    s->agent = agent;
    s->id = info->object;
    s->nonce = info->nonce;
    const uint8_t *signer = rs_secure_signer(agent, RS_KEYS_TRANSFER_IN, info->nonce);
    s->signs = signer != NULL;
    if (signer)
        memcpy(s->signer, signer, sizeof s->signer);
    s->fd = -1;
    s->watch = (rs_watch){.ready = ready, .context = s};
    s->waits_since = rs_agent_now(agent);
    return s;
}

void rs_stream_sink_begin(rs_stream_sink *s, rs_xfer xfer) {
    s->xfer = xfer;
    taken(s);
    for (rs_stream_reader *r = s->agent->stream_readers; r; r = r->next)
        if (memcmp(&r->id, &s->id, sizeof s->id) == 0) {
            int fd = r->fd;
            rs_api_call call = r->call;
            rs_loop_unwatch(s->agent->loop, &r->watch);
            r->fd = -1;
            end_reader(r);
            attach(s, fd, &call);
            return;
        }
}

bool rs_stream_sink_kept(rs_agent *agent, const rs_object_id *id, rs_stream_kept *out) {
    rs_stream_sink *s = find(agent, id);
    uint64_t first, here, end;
    for (rs_stream_ended *e = agent->ended_streams; e && !s; e = e->next)
        if (memcmp(&e->id, id, sizeof *id) == 0) {
            uint64_t all = e->size / e->ring.fragment + (e->size % e->ring.fragment != 0);
            *out = (rs_stream_kept){&e->ring, all > e->ring.slots ? all - e->ring.slots : 0, all, e->size};
            e->until = rs_agent_now(agent) + LENT_FOR;
            return true;
        }
    if (!s || !s->xfer)
        return false;
    s->lent = true;
    uint64_t fragment = s->ring.fragment, came = s->here / fragment + (s->complete && s->here % fragment != 0);
    uint64_t past = came;
    if (rs_stream_window(agent->node, s->xfer, &first, &here, &end) == RS_OK && end / fragment > past)
        past = end / fragment;
    past += 64; /* what is on its way may take these places */
    *out = (rs_stream_kept){&s->ring, past > s->ring.slots ? past - s->ring.slots : 0, came,
                            s->complete ? s->here : RS_STREAM};
    return true;
}

/* Who joined it may lack something yet. */
static void keep_ended(rs_stream_sink *s) {
    rs_stream_ended *e = s->lent && s->complete && !s->agent->stopping ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return;
    *e = (rs_stream_ended){s->agent->ended_streams, s->id, s->ring, s->here, rs_agent_now(s->agent) + LENT_FOR};
    s->agent->ended_streams = e;
    s->ring.bytes = NULL;
}

static void forget_ended(rs_agent *agent, rs_time now) {
    for (rs_stream_ended **at = &agent->ended_streams; *at;) {
        rs_stream_ended *e = *at;
        if (now < e->until) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        rs_stream_ring_free(&e->ring);
        free(e);
    }
}

void rs_stream_sink_free(rs_stream_sink *s, const char *cause) {
    if (!s)
        return;
    keep_ended(s);
    if (s->fd >= 0)
        rs_api_reply_error(s->agent->api, &s->call, ROSTRUM_ERR_FAILED, "stream %s ended after %llu bytes: %s",
                           rs_id_text(&s->id), (unsigned long long)s->bytes, cause);
    close_program(s);
    s->agent->stream_sinks--;
    rs_stream_ring_free(&s->ring);
    free(s);
}

void rs_stream_sink_leave(rs_stream_sink *s) {
    s->ended = true;
    s->waits_since = RS_NEVER;
    if (s->fd < 0)
        return;
    rs_api_reply_error(s->agent->api, &s->call, ROSTRUM_ERR_CANCELLED, "stream %s was left after %llu bytes",
                       rs_id_text(&s->id), (unsigned long long)s->bytes);
    close_program(s);
}

uint8_t *rs_stream_sink_at(const rs_stream_sink *s, uint64_t offset) {
    return rs_stream_ring_at(&s->ring, offset / s->ring.fragment);
}

bool rs_stream_sink_is_right(const rs_stream_sink *s, uint64_t offset, const uint8_t *payload, uint32_t length) {
    uint64_t sn = offset / s->ring.fragment;
    const uint8_t *at = payload ? payload : rs_stream_ring_at(&s->ring, sn);
    return length <= s->ring.fragment && rs_stream_fragment_used(at, sn, length) >= 0 &&
           (!s->signs || rs_stream_is_signed(s->agent, s->signer, s->nonce, sn, at));
}

bool rs_stream_is_signed(rs_agent *agent, const uint8_t *signer, uint64_t nonce, uint64_t sn, const uint8_t *at) {
    const rs_signed fragment = rs_stream_signed(at, nonce, sn);
    return fragment.stamp && rs_secure_is_signed(agent, signer, RS_SIGNS_STREAM, &fragment);
}

uint64_t rs_stream_sink_bytes(const rs_stream_sink *s) {
    return s->bytes;
}

static rs_time stalled_at(const rs_stream_sink *s) {
    return s->waits_since == RS_NEVER || s->ended ? RS_NEVER
                                                  : s->waits_since + WAIT_BOUNDS * s->agent->options.silence_bound;
}

rs_time rs_streams_deadline(const rs_agent *agent) {
    rs_time due = RS_NEVER;
    for (const rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (t->source && rs_stream_source_deadline(t->source) < due)
            due = rs_stream_source_deadline(t->source);
    for (const rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next)
        if (t->sink && stalled_at(t->sink) < due)
            due = stalled_at(t->sink);
    for (const rs_stream_reader *r = agent->stream_readers; r; r = r->next)
        due = r->deadline < due ? r->deadline : due;
    for (const rs_stream_ended *e = agent->ended_streams; e; e = e->next)
        due = e->until < due ? e->until : due;
    return due;
}

void rs_streams_timeout(rs_agent *agent) {
    rs_time now = rs_agent_now(agent);
    forget_ended(agent, now);
    for (rs_transfer_entry *t = agent->transfers.sending; t; t = t->next)
        if (t->source)
            rs_stream_source_timeout(t->source);
    for (rs_transfer_entry *t = agent->transfers.receiving; t; t = t->next) {
        if (!t->sink || now < stalled_at(t->sink))
            continue;
        char text[96];
        snprintf(text, sizeof text, "%s for %.1f s",
                 t->sink->fd < 0 ? "no program read the stream" : "the program that reads the stream took nothing",
                 (double)(now - t->sink->waits_since) / 1e9);
        give_up(t->sink, text);
    }
    for (rs_stream_reader *r = agent->stream_readers, *next; r; r = next) {
        next = r->next;
        if (now < r->deadline)
            continue;
        rs_api_reply_error(agent->api, &r->call, ROSTRUM_ERR_TIMEOUT, "stream %s did not begin within %u ms",
                           rs_id_text(&r->id), r->wait_ms);
        end_reader(r);
    }
}

void rs_streams_free(rs_agent *agent) {
    forget_ended(agent, RS_NEVER);
    while (agent->stream_readers)
        end_reader(agent->stream_readers);
}
