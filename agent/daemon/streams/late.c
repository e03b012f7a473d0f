#include "daemon/streams/late.h"
#include "daemon/pieces/pipe.h"
#include "daemon/secure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/pieces/fetch.h"
#include "daemon/streams/receive.h"
#include "daemon/streams/ring.h"
#include "daemon/streams/send.h"

#define LATE_MOST 16u /* streams joined here */
#define PEERS_MOST 8u
#define HEARD_MOST 512u
#define RUN_MOST 256u                  /* fragments asked for at a time */
#define REORDERED 16u                  /* packets; what is missing further back was lost */
#define TICK (10 * RS_MILLISECOND)     /* what is missing is looked for so often */
#define LIVE (100 * RS_MILLISECOND)    /* without a packet for so long it is not heard */
#define SPARED (500 * RS_MILLISECOND)  /* the sender is asked when nobody else gave anything for so long */
#define PEER_BOUND (2 * RS_SECOND)     /* one that answers nothing */
#define NOBODY_BOUND (5 * RS_SECOND)   /* nobody gives any of it */
#define STALLED_BOUND (10 * RS_SECOND) /* the program takes nothing */
#define TRIES_MOST 5u

typedef struct rs_late late;

typedef struct {
    late *of;
    rs_watch watch;
    rs_piece_pipe pipe;
    uint32_t address;
    uint16_t port;
    char name[RS_PIECE_NAME];
    char cause[RS_PIECE_TEXT];
    bool up, ready, sends; /* connected; has said what it keeps; is the sender */
    uint64_t first, here;  /* what it keeps */
    bool asked;            /* it owes an answer: a run up to `upto`, or what it keeps */
    uint64_t upto;
    rs_time since; /* that it was asked, or is tried again */
    uint32_t tries;
    uint8_t in[RS_PIECE_BODY_MOST];
    size_t in_length;
} peer;

struct rs_late {
    late *next;
    rs_agent *agent;
    rs_object_id id;
    rs_api_call call;
    int fd; /* the program's */
    rs_watch watch;
    rs_stream_ring ring;
    uint64_t *bits;                /* of its slots: what is there of [sn, sn + slots) */
    bool begun;                    /* `sn` is known */
    uint64_t sn;                   /* the next one for the program, */
    uint32_t within;               /* of which it had so many bytes */
    uint64_t size;                 /* of all fragments; RS_STREAM: not known yet */
    uint64_t bytes, heard, missed; /* the program's; fragments that were heard, and that peers gave */
    rs_group group;
    uint64_t nonce;
    uint64_t top; /* one past the newest that was heard */
    rs_time top_at, given_at, waits_since, deadline;
    rs_time check_at;
    peer *peers[PEERS_MOST];
    uint32_t peer_count;
    bool dead;
};

static struct {
    late *of;
    uint64_t sn;
    uint32_t length;
} heard[HEARD_MOST];
static uint32_t heard_count;

static rs_time now_of(const late *l) {
    return rs_agent_now(l->agent);
}

/* ------------------------------------------------------------------------------------------------------ the end */

static void hang_up(peer *p) {
    if (!p->watch.active)
        return;
    int fd = p->watch.fd;
    rs_loop_unwatch(p->of->agent->loop, &p->watch);
    rs_piece_pipe_end(&p->pipe);
    close(fd);
    p->up = p->ready = p->asked = false;
    p->in_length = 0;
}

static void lose(peer *p, bool for_good, const char *cause) {
    hang_up(p);
    snprintf(p->cause, sizeof p->cause, "%s", cause);
    p->tries = for_good ? TRIES_MOST : p->tries + 1;
    p->since = now_of(p->of) + (rs_time)p->tries * LIVE;
}

/* It is freed by `sweep`. */
static void over(late *l, bool ok, rostrum_code code, const char *cause) {
    if (l->dead)
        return;
    l->dead = true;
    rs_log(ok ? RS_LOG_INFO : RS_LOG_WARNING, "stream", "stream=%s joined=%s bytes=%llu heard=%llu missed=%llu%s%s",
           rs_id_text(&l->id), ok ? "whole" : "failed", (unsigned long long)l->bytes, (unsigned long long)l->heard,
           (unsigned long long)l->missed, ok ? "" : " cause=", ok ? "" : rs_quote(cause));
    if (ok)
        rs_api_reply_streamed(l->agent->api, &l->call, l->bytes);
    else
        rs_api_reply_error(l->agent->api, &l->call, code, "stream %s ended here after %llu bytes: %s",
                           rs_id_text(&l->id), (unsigned long long)l->bytes, cause);
    rs_loop_unwatch(l->agent->loop, &l->watch);
    close(l->fd);
}

static void sweep(rs_agent *agent) {
    for (late **at = &agent->late_streams; *at;) {
        late *l = *at;
        if (!l->dead) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        for (uint32_t i = 0; i < l->peer_count; i++) {
            hang_up(l->peers[i]);
            free(l->peers[i]);
        }
        for (uint32_t i = 0; i < heard_count; i++)
            heard[i].of = heard[i].of == l ? NULL : heard[i].of;
        if (l->group != RS_NO_GROUP)
            rs_data_leave(agent->data, l->group);
        rs_stream_ring_free(&l->ring);
        free(l->bits);
        free(l);
    }
}

/* -------------------------------------------------------------------------------------------------- what is here */

static uint64_t fragments_of(const late *l) {
    return l->size == RS_STREAM ? UINT64_MAX : l->size / l->ring.fragment + (l->size % l->ring.fragment != 0);
}

static uint32_t length_of(const late *l, uint64_t sn) {
    uint64_t left = l->size == RS_STREAM ? UINT64_MAX : l->size - sn * l->ring.fragment;
    return left < l->ring.fragment ? (uint32_t)left : l->ring.fragment;
}

static bool has(const late *l, uint64_t sn) {
    uint64_t slot = sn % l->ring.slots;
    return l->bits[slot / 64] >> slot % 64 & 1;
}

static void note(late *l, uint64_t sn, bool here) {
    uint64_t slot = sn % l->ring.slots, bit = UINT64_C(1) << slot % 64;
    l->bits[slot / 64] = here ? l->bits[slot / 64] | bit : l->bits[slot / 64] & ~bit;
}

static bool make_ring(late *l, uint32_t fragment) {
    if (l->ring.bytes)
        return l->ring.fragment == fragment;
    if (fragment < RS_FRAGMENT_LEAST || fragment > RS_FRAGMENT_MAX)
        return false;
    uint64_t slots = RS_STREAM_BYTES / fragment + 512;
    l->bits = calloc(slots / 64 + 1, sizeof *l->bits);
    return l->bits && rs_stream_ring_make(&l->ring, fragment, slots);
}

/* A fragment that was opened is the sender's, as far as it signs. */
static bool is_genuine(const late *l, const uint8_t *at, uint64_t sn) {
    const uint8_t *signer = rs_secure_signer(l->agent, RS_KEYS_TRANSFER_IN, l->nonce);
    return !signer || rs_stream_is_signed(l->agent, signer, l->nonce, sn, at);
}

/* As much as the program takes. */
static void hand_out(late *l) {
    bool blocked = false;
    while (!l->dead && l->begun && !blocked && l->sn < fragments_of(l) && has(l, l->sn)) {
        int32_t used = rs_stream_ring_open(&l->ring, l->sn, length_of(l, l->sn));
        if (used < 0) {
            note(l, l->sn, false); /* memory has changed it; it is asked for again */
            break;
        }
        size_t left = (size_t)used - l->within;
        const uint8_t *from = rs_stream_fragment_bytes(rs_stream_ring_at(&l->ring, l->sn)) + l->within;
        ssize_t sent = left ? send(l->fd, from, left, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS && errno != EINTR) {
            over(l, false, ROSTRUM_ERR_FAILED, "the program that read it went away");
            return;
        }
        blocked = sent < (ssize_t)left;
        l->within += sent > 0 ? (uint32_t)sent : 0;
        l->bytes += sent > 0 ? (uint64_t)sent : 0;
        if (sent > 0)
            l->waits_since = RS_NEVER;
        if (blocked)
            break;
        note(l, l->sn, false);
        l->sn++;
        l->within = 0;
    }
    if (l->dead)
        return;
    if (blocked && l->waits_since == RS_NEVER)
        l->waits_since = now_of(l);
    if (l->begun && l->sn == fragments_of(l))
        over(l, true, ROSTRUM_OK, "");
    else
        (void)rs_loop_watch(l->agent->loop, &l->watch, l->fd, blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void program_ready(void *context, uint32_t events) {
    late *l = context;
    rs_agent *agent = l->agent;
    char byte;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && recv(l->fd, &byte, 1, MSG_DONTWAIT) >= 0)
        over(l, false, ROSTRUM_ERR_FAILED, "the program that read it went away");
    else
        hand_out(l);
    sweep(agent);
}

/* ----------------------------------------------------------------------------------------------------- hearing */

bool rs_late_hears(const rs_agent *agent, uint64_t nonce) {
    const late *l = agent->late_streams;
    while (l && (l->dead || l->nonce != nonce))
        l = l->next;
    return l != NULL;
}

uint8_t *rs_late_packet(rs_agent *agent, rs_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length) {
    rs_data_header h;
    if (!agent->late_streams || heard_count == HEARD_MOST || !rs_wire_decode_data(header, header_length, &h) ||
        (h.flags & RS_DATA_REPAIR))
        return NULL;
    late *l = agent->late_streams;
    while (l && (l->dead || l->group != group || l->nonce != h.nonce))
        l = l->next;
    if (!l || !l->begun || h.sn >= INT64_MAX / RS_FRAGMENT_MAX)
        return NULL;
    l->top = h.sn + 1 > l->top ? h.sn + 1 : l->top;
    l->top_at = now_of(l);
    bool fits = h.sn >= l->sn && h.sn < l->sn + l->ring.slots && h.sn < fragments_of(l) && !has(l, h.sn);
    if (!fits || payload_length > l->ring.fragment || payload_length < RS_STREAM_HEAD)
        return NULL;
    heard[heard_count].of = l;
    heard[heard_count].sn = h.sn;
    heard[heard_count++].length = payload_length;
    return rs_stream_ring_at(&l->ring, h.sn);
}

void rs_late_delivered(rs_agent *agent) {
    for (uint32_t i = 0; i < heard_count; i++) {
        late *l = heard[i].of;
        if (!l || l->dead || heard[i].sn < l->sn || has(l, heard[i].sn) ||
            rs_stream_ring_open(&l->ring, heard[i].sn, heard[i].length) < 0 ||
            !is_genuine(l, rs_stream_ring_at(&l->ring, heard[i].sn), heard[i].sn))
            continue;
        /* Of the last one, which is shorter, nobody knows yet that it is: it is asked for. */
        if (heard[i].length != length_of(l, heard[i].sn))
            continue;
        note(l, heard[i].sn, true);
        l->heard++;
    }
    bool any = heard_count > 0;
    heard_count = 0;
    for (late *l = agent->late_streams; l && any; l = l->next)
        if (!l->dead)
            hand_out(l);
    if (any)
        sweep(agent);
}

/* ------------------------------------------------------------------------------------------------- asking peers */

static void peer_ready(void *context, uint32_t events);

static void say(peer *p, const rs_piece_message *m) {
    uint8_t bytes[RS_PIECE_HEAD + 512];
    uint32_t length = rs_piece_put(m, bytes);
    p->asked = true;
    p->since = now_of(p->of);
    if (rs_piece_write(&p->pipe, bytes, length, false) != (ssize_t)length)
        lose(p, false, "it does not read what it is asked");
}

static void dial(peer *p) {
    late *l = p->of;
    struct sockaddr_in remote = {.sin_family = AF_INET, .sin_port = htons(p->port)}, local = {.sin_family = AF_INET};
    remote.sin_addr.s_addr = htonl(p->address);
    local.sin_addr.s_addr = htonl(l->agent->options.address);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    p->watch = (rs_watch){.ready = peer_ready, .context = p};
    p->since = now_of(l);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&local, sizeof local) == 0 &&
        (connect(fd, (struct sockaddr *)&remote, sizeof remote) == 0 || errno == EINPROGRESS) &&
        rs_piece_pipe_start(&p->pipe, l->agent->trust, fd, false, p->name) &&
        rs_loop_watch(l->agent->loop, &p->watch, fd, EPOLLOUT))
        return;
    int number = errno;
    rs_piece_pipe_end(&p->pipe);
    if (fd >= 0)
        close(fd);
    lose(p, false, strerror(number));
}

static void add_peer(late *l, const char *name, uint32_t address, uint16_t port) {
    const rs_options *o = &l->agent->options;
    if (address == 0 || port == 0 || (address == o->address && port == o->piece_port))
        return;
    for (uint32_t i = 0; i < l->peer_count; i++)
        if (l->peers[i]->address == address && l->peers[i]->port == port)
            return;
    peer *p = l->peer_count < PEERS_MOST ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return;
    p->of = l;
    p->address = address;
    p->port = port;
    snprintf(p->name, sizeof p->name, "%s", name);
    l->peers[l->peer_count++] = p;
    dial(p);
}

/* Whom to ask: a receiver before the sender, who has the whole of its rate for those it sends to as long as receivers
 * give what is missing. */
static peer *best(late *l) {
    peer *sender = NULL;
    for (uint32_t i = 0; i < l->peer_count; i++)
        if (l->peers[i]->ready && !l->peers[i]->sends)
            return l->peers[i];
        else if (l->peers[i]->ready)
            sender = l->peers[i];
    return sender && now_of(l) - l->given_at >= SPARED ? sender : NULL;
}

/* What is missing, as far as it is known to be; if nothing is, what the peer keeps by now: the stream's end may be. */
static void ask(late *l) {
    peer *p = l->dead ? NULL : best(l);
    if (!p || p->asked)
        return;
    for (uint32_t i = 0; i < l->peer_count; i++)
        if (l->peers[i]->asked && l->peers[i]->ready && l->peers[i]->upto > l->sn)
            return; /* what that one gives need not be given twice */
    if (!l->begun) {
        l->begun = true;
        l->sn = p->first;
        rs_log(RS_LOG_INFO, "stream", "stream=%s joined at=%llu here=%llu from=%s", rs_id_text(&l->id),
               (unsigned long long)l->sn, (unsigned long long)p->here, rs_quote(p->name));
    }
    uint64_t from = l->sn, room = l->sn + l->ring.slots, upto = p->here < room ? p->here : room;
    if (now_of(l) - l->top_at < LIVE && l->top < upto + REORDERED)
        upto = l->top > REORDERED ? l->top - REORDERED : 0;
    while (from < upto && has(l, from))
        from++;
    uint64_t to = from;
    while (to < upto && to - from < RUN_MOST && !has(l, to))
        to++;
    p->upto = to;
    const rs_piece_message m = {.type = RS_PIECE_WANT_RUN, .sn = from, .count = (uint32_t)(to - from)};
    if (to > from || now_of(l) - p->since >= TICK)
        say(p, &m);
}

/* ------------------------------------------------------------------------------------------------- what they say */

static void take_stream(peer *p, const rs_piece_message *m) {
    late *l = p->of;
    bool sane = m->sn <= m->here && m->here < INT64_MAX / RS_FRAGMENT_MAX && make_ring(l, m->fragment_size) &&
                (m->size == RS_STREAM || m->size / m->fragment_size <= m->here) &&
                (l->size == RS_STREAM || m->size == RS_STREAM || m->size == l->size);
    if (!sane) {
        lose(p, true, "what it says of the stream makes no sense");
        return;
    }
    p->asked = false;
    p->ready = true;
    p->tries = 0;
    p->first = m->sn;
    p->here = m->here;
    l->size = m->size == RS_STREAM ? l->size : m->size;
    if (!p->sends)
        l->given_at = now_of(l);
    if (l->begun && p == best(l) && l->sn < p->first && !has(l, l->sn)) {
        if (l->bytes > 0) {
            over(l, false, ROSTRUM_ERR_FAILED,
                 "it was left behind: what it misses is kept by nobody any more, and nobody waits for who joined");
            return;
        }
        while (l->sn < p->first)
            note(l, l->sn++, false);
        l->within = 0;
    }
}

static void take_run(peer *p, const rs_piece_message *m) {
    late *l = p->of;
    uint64_t sn = m->sn;
    const uint8_t *at = m->bytes;
    uint32_t left = m->length;
    while (left > 0 && l->begun) {
        uint32_t length = length_of(l, sn), some = length < left ? length : left;
        if (sn >= p->upto || sn >= l->sn + l->ring.slots || sn >= fragments_of(l) ||
            rs_stream_fragment_used(at, sn, some) < 0 || !is_genuine(l, at, sn)) {
            lose(p, true, "it gave what was not asked for, or not as it was sealed");
            return;
        }
        if (sn >= l->sn && !has(l, sn)) {
            memcpy(rs_stream_ring_at(&l->ring, sn), at, some);
            note(l, sn, true);
            l->missed++;
            l->agent->fetched_bytes += some;
        }
        at += some;
        left -= some;
        sn++;
    }
    l->given_at = p->since = now_of(l);
    p->asked = sn < p->upto;
}

/* Its packets bring the rest here, too. */
static void take_runs(peer *p, const rs_piece_message *m) {
    late *l = p->of;
    char text[RS_IO_ERROR_MAX];
    p->sends = true;
    if (l->group == RS_NO_GROUP && m->address >> 28 == 14 && m->port && m->nonce) {
        l->group = rs_data_join(l->agent->data, m->address, m->port, text);
        l->nonce = m->nonce;
    }
}

static void take(peer *p, const rs_piece_message *m) {
    switch (m->type) {
    case RS_PIECE_STREAM:
        take_stream(p, m);
        break;
    case RS_PIECE_RUN:
        take_run(p, m);
        break;
    case RS_PIECE_KEY:
        rs_secure_hear(p->of->agent, m);
        break;
    case RS_PIECE_RUNS:
        take_runs(p, m);
        break;
    case RS_PIECE_PEER:
        add_peer(p->of, m->name, m->address, m->port);
        break;
    case RS_PIECE_NO:
        lose(p, m->gone, m->text);
        break;
    default:
        lose(p, true, "it has no stream by that name");
        break;
    }
}

static void read_in(peer *p) {
    ssize_t got = rs_piece_read(&p->pipe, p->in + p->in_length, sizeof p->in - p->in_length);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        lose(p, false, "it hung up");
        return;
    }
    p->in_length += (size_t)got;
    size_t used = 0;
    while (p->watch.active && !p->of->dead && p->in_length - used >= RS_PIECE_HEAD) {
        uint8_t type;
        uint32_t length;
        rs_piece_message m;
        bool ok = rs_piece_take_head(p->in + used, &type, &length) && length <= sizeof p->in - RS_PIECE_HEAD;
        if (ok && p->in_length - used - RS_PIECE_HEAD < length)
            break;
        if (!ok || !rs_piece_take(type, p->in + used + RS_PIECE_HEAD, length, &m)) {
            lose(p, true, "what it says makes no sense");
            return;
        }
        used += RS_PIECE_HEAD + length;
        take(p, &m);
    }
    if (!p->watch.active)
        return;
    memmove(p->in, p->in + used, p->in_length - used);
    p->in_length -= used;
}

static void connected(peer *p) {
    const rs_agent *agent = p->of->agent;
    int number = 0;
    socklen_t size = sizeof number;
    if (getsockopt(p->watch.fd, SOL_SOCKET, SO_ERROR, &number, &size) != 0 || number != 0) {
        lose(p, false, strerror(number ? number : errno));
        return;
    }
    p->up = true;
    (void)rs_loop_watch(agent->loop, &p->watch, p->watch.fd, EPOLLIN);
    rs_piece_message m = {.type = RS_PIECE_ASK, .id = p->of->id, .port = 0};
    snprintf(m.name, sizeof m.name, "%.63s", agent->options.server);
    say(p, &m);
}

static void peer_ready(void *context, uint32_t events) {
    peer *p = context;
    late *l = p->of;
    rs_agent *agent = l->agent;
    if (!p->up)
        connected(p);
    else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        do
            read_in(p);
        while (p->watch.active && !l->dead && rs_piece_pending(&p->pipe));
    if (p->watch.active && !rs_piece_flush(&p->pipe))
        lose(p, false, strerror(errno));
    if (p->watch.active && p->up)
        (void)rs_loop_watch(agent->loop, &p->watch, p->watch.fd, EPOLLIN | (rs_piece_waits(&p->pipe) ? EPOLLOUT : 0));
    hand_out(l);
    ask(l);
    sweep(agent);
}

/* -------------------------------------------------------------------------------------------------- the program */

static late *find(const rs_agent *agent, const rs_object_id *id) {
    for (late *l = agent->late_streams; l; l = l->next)
        if (!l->dead && memcmp(&l->id, id, sizeof *id) == 0)
            return l;
    return NULL;
}

void rs_late_api(void *context, const rs_api_take *take) {
    rs_agent *agent = context;
    rs_error error = {0};
    uint32_t count = 0;
    for (const late *l = agent->late_streams; l; l = l->next)
        count++;
    rs_stream_kept kept;
    if (rs_stream_sink_kept(agent, &take->id, &kept)) { /* it is a receiver */
        rs_stream_take_api(agent, take);
        return;
    }
    late *l = !find(agent, &take->id) && count < LATE_MOST ? calloc(1, sizeof *l) : NULL;
    if (!l) {
        rs_api_reply_error(agent->api, &take->call, find(agent, &take->id) ? ROSTRUM_ERR_EXISTS : ROSTRUM_ERR_LIMIT,
                           "stream %s: a program here has joined it already, or %u are joined", rs_id_text(&take->id),
                           count);
        close(take->stream);
        return;
    }
    rs_time now = rs_agent_now(agent);
    *l = (late){.next = agent->late_streams,
                .agent = agent,
                .id = take->id,
                .call = take->call,
                .fd = take->stream,
                .watch = {.ready = program_ready, .context = l},
                .size = RS_STREAM,
                .group = RS_NO_GROUP,
                .top_at = now - LIVE,
                .given_at = now,
                .waits_since = RS_NEVER,
                .deadline = now + (rs_time)take->wait_ms * RS_MILLISECOND,
                .check_at = now};
    agent->late_streams = l;
    (void)rs_loop_watch(agent->loop, &l->watch, l->fd, EPOLLIN);
    for (uint32_t i = 0; i < take->holder_count && !l->dead; i++) {
        char name[RS_PIECE_NAME];
        uint32_t address;
        uint16_t port;
        if (rs_fetch_parse_holder(agent, take->holders[i], name, &address, &port, &error))
            add_peer(l, name, address, port);
        else
            over(l, false, error.code, error.text);
    }
    sweep(agent);
}

bool rs_late_leave(rs_agent *agent, const rs_object_id *id) {
    late *l = find(agent, id);
    if (l)
        over(l, false, ROSTRUM_ERR_CANCELLED, "a program here left it");
    sweep(agent);
    return l != NULL;
}

/* --------------------------------------------------------------------------------------------------------- time */

static void check_at(late *l) {
    rs_time now = now_of(l);
    bool alive = false, began = false;
    char text[ROSTRUM_TEXT_MAX + 1] = "nobody is named who has it";
    size_t used = 0;
    l->check_at = now + TICK;
    for (uint32_t i = 0; i < l->peer_count; i++) {
        peer *p = l->peers[i];
        if (p->watch.active && p->asked && now - p->since >= PEER_BOUND)
            lose(p, false, "it does not answer");
        if (p->watch.active && !p->up && now - p->since >= PEER_BOUND)
            lose(p, false, "it cannot be reached");
        if (!p->watch.active && p->tries < TRIES_MOST && now >= p->since)
            dial(p);
        alive |= p->watch.active || p->tries < TRIES_MOST;
        began |= p->ready;
        if (!p->ready && used < sizeof text - 1)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.40s: %.80s", used ? "; " : "", p->name,
                                     p->cause[0] ? p->cause : "no answer yet");
    }
    if (l->waits_since != RS_NEVER && now - l->waits_since >= STALLED_BOUND)
        over(l, false, ROSTRUM_ERR_FAILED, "the program that reads it took nothing for 10 s");
    else if (!began && !l->begun && now >= l->deadline)
        over(l, false, ROSTRUM_ERR_TIMEOUT, text);
    else if (!alive || (!began && l->begun && now - l->given_at >= NOBODY_BOUND))
        over(l, false, ROSTRUM_ERR_FAILED, text);
    ask(l);
}

rs_time rs_late_deadline(const rs_agent *agent) {
    rs_time due = RS_NEVER;
    for (const late *l = agent->late_streams; l; l = l->next)
        due = l->check_at < due ? l->check_at : due;
    return due;
}

void rs_late_timeout(rs_agent *agent) {
    for (late *l = agent->late_streams; l; l = l->next)
        if (!l->dead && now_of(l) >= l->check_at)
            check_at(l);
    sweep(agent);
}

void rs_late_free(rs_agent *agent) {
    for (late *l = agent->late_streams; l; l = l->next)
        over(l, false, ROSTRUM_ERR_UNAVAILABLE, "the agent is ending");
    sweep(agent);
}

/* ---------------------------------------------------------------------------------------------------- for others */

static bool kept_of(rs_agent *agent, const rs_object_id *id, rs_stream_kept *out) {
    return rs_stream_source_kept(agent, id, out) || rs_stream_sink_kept(agent, id, out);
}

bool rs_late_kept(void *context, const rs_object_id *id, rs_piece_message *out) {
    rs_stream_kept kept;
    if (!kept_of(context, id, &kept) || !kept.ring->bytes)
        return false;
    *out = (rs_piece_message){.type = RS_PIECE_STREAM,
                              .fragment_size = kept.ring->fragment,
                              .sn = kept.first < kept.here ? kept.first : kept.here,
                              .here = kept.here,
                              .size = kept.size};
    return true;
}

uint32_t rs_late_run(void *context, const rs_object_id *id, uint64_t sn, uint32_t most, uint8_t *out, uint32_t room) {
    rs_stream_kept kept;
    uint32_t used = 0;
    if (!kept_of(context, id, &kept) || !kept.ring->bytes)
        return 0;
    for (; most > 0 && sn < kept.here; most--, sn++) {
        uint64_t left = kept.size == RS_STREAM ? UINT64_MAX : kept.size - sn * kept.ring->fragment;
        uint32_t length = left < kept.ring->fragment ? (uint32_t)left : kept.ring->fragment;
        if (used + length > room || rs_stream_ring_open(kept.ring, sn, length) < 0)
            break;
        memcpy(out + used, rs_stream_ring_at(kept.ring, sn), length);
        used += length;
    }
    return used;
}

uint32_t rs_late_runs(void *context, const rs_object_id *id, const char *name, rs_piece_message *out, uint32_t most) {
    rs_agent *agent = context;
    rs_incoming info;
    uint32_t count = rs_sending_runs(context, id, name, out, most);
    for (const rs_transfer_entry *t = agent->transfers.receiving; t && count == 0 && most > 0; t = t->next) {
        if (!t->sink || memcmp(&t->id, id, sizeof *id) != 0 || rs_incoming_info(agent->node, t->xfer, &info) != RS_OK)
            continue;
        const rs_peer_entry *entry = rs_peers_entry(&agent->peers, info.sender);
        uint32_t address = entry && entry->address ? entry->address : rs_control_address(agent->control, info.sender);
        uint16_t port = entry && entry->control_port ? entry->control_port : agent->options.control_port;
        out[count] = (rs_piece_message){.type = RS_PIECE_PEER, .address = address, .port = (uint16_t)(port + 1)};
        snprintf(out[count++].name, RS_PIECE_NAME, "%.63s", rs_peers_name(&agent->peers, info.sender));
    }
    return count;
}
