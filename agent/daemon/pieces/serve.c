#include "daemon/pieces/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/accept.h"
#include "daemon/log.h"
#include "daemon/pieces/pipe.h"
#include "daemon/pieces/wire.h"
#include "daemon/store/digest.h"

#define WANTS_MOST 16u          /* pieces that one client may have asked for at a time */
#define OUT_BYTES (256u << 10)  /* messages that wait for one client */
#define TURN_BYTES (256u << 10) /* written to one client before the others are looked at */
#define SPARE_BYTES (64u << 10) /* the same, of what goes besides a transfer: others' packets wait no longer */
#define BURST (2 * RS_MILLISECOND)
#define HANDSHAKE (2 * RS_SECOND) /* for TLS's */
#define IDLE (60 * RS_SECOND)     /* a client that says and takes nothing */
#define LEAVES_BYTES (16u << 10)  /* of digests in a message */
#define PEERS_TOLD 16u
#define KEYS_TOLD 4u
#define RUN_MOST 1024u /* fragments of a stream that are asked for at a time */

typedef struct client {
    struct client *next;
    rs_piece_server *server;
    rs_watch watch;
    rs_piece_pipe pipe;
    rs_piece_watch pieces;  /* of an object that is not whole */
    rs_object *object;      /* NULL: none was asked for yet */
    bool watching, holding; /* `pieces` is in use; the object is held */
    bool waits;             /* it was told that there are no digests of pieces yet, and has not asked for any piece */
    uint32_t address;
    uint16_t port; /* where it gives pieces itself */
    char name[RS_PIECE_NAME];
    rs_time heard_at;
    uint8_t in[RS_PIECE_HEAD + 512];
    size_t in_length;
    uint8_t *out;
    size_t out_length, out_sent;
    size_t out_before; /* so much of it goes before the piece that is being written, the rest after it */
    uint32_t wants[WANTS_MOST];
    uint32_t want_first, want_count;
    uint64_t at, end;     /* bytes of the piece that is being written, */
    int64_t spare_bps;    /* of an object that was under way here when that began: its bound; 0: it was not */
    uint32_t leaves_from; /* digests that are to be said: from there; UINT32_MAX: none */
    bool streams;         /* a stream was asked for, this one, of which so many fragments are to be given yet: */
    rs_object_id stream;
    uint64_t run_sn;
    uint32_t run_left, fragment_size;
    bool over; /* to be freed when the present call is done */
} client;

struct rs_piece_server {
    rs_piece_server_config config;
    rs_watch watch;
    rs_accept_pause pause;
    client *clients;
    rs_time due;       /* by the rate, nothing goes before; */
    rs_time spare_due; /* and of objects that are under way, nothing before this */
    rs_time check_at;
    rs_time held_until; /* clients wait for one of them, or nobody does: RS_NEVER */
    rs_piece_server_stats stats;
};

static void update_watch(client *c);

static rs_time now_of(const rs_piece_server *server) {
    return rs_loop_now(server->config.loop);
}

static void detach(client *c) {
    if (c->watching && c->object && c->object->pieces)
        rs_pieces_unwatch(c->object->pieces, &c->pieces);
    if (c->holding && c->object)
        rs_store_release(c->object);
    c->watching = c->holding = false;
    c->object = NULL;
}

static void drop(client *c) {
    rs_piece_server *server = c->server;
    for (client **at = &server->clients; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    int fd = c->watch.fd;
    detach(c);
    rs_loop_unwatch(server->config.loop, &c->watch);
    rs_piece_pipe_end(&c->pipe);
    close(fd);
    free(c->out);
    free(c);
    server->stats.clients--;
}

/* ------------------------------------------------------------------------------------------------------- saying */

/* A client that does not read what is said to it is dropped. */
static void say(client *c, const rs_piece_message *m) {
    uint8_t head[RS_PIECE_HEAD + 512];
    uint32_t length = rs_piece_put(m, head), follows = m->type == RS_PIECE_PIECE ? 0 : m->length;
    if (c->out_sent == c->out_length)
        c->out_sent = c->out_length = c->out_before = 0;
    if (c->over || c->out_length + length + follows > OUT_BYTES) {
        c->over = true;
        return;
    }
    memcpy(c->out + c->out_length, head, length);
    if (follows)
        memcpy(c->out + c->out_length + length, m->bytes, follows);
    c->out_length += length + follows;
}

static void refuse(client *c, bool gone, const char *text) {
    rs_piece_message m = {.type = RS_PIECE_NO, .gone = gone};
    snprintf(m.text, sizeof m.text, "%s", text);
    say(c, &m);
}

static void piece_came(void *context, rs_object *object, uint64_t piece) {
    client *c = context;
    uint8_t bit = 1;
    (void)object;
    const rs_piece_message m = {
        .type = RS_PIECE_HAVE, .first = (uint32_t)piece, .count = 1, .bytes = &bit, .length = 1};
    say(c, &m);
    update_watch(c);
}

static void object_over(void *context, rs_object *object, bool complete) {
    client *c = context;
    c->watching = false;
    if (complete) {
        rs_store_hold(object);
        c->holding = true;
        if (c->waits)
            refuse(c, false, "it has become whole, and its digests are here now: ask again");
        update_watch(c);
        return;
    }
    c->object = NULL;
    c->want_count = 0;
    c->at = c->end = 0;
    c->over = true;
}

static bool has_leaves(const rs_object *object) {
    return object->pieces ? object->pieces->confirmed : object->leaves != NULL;
}

static uint64_t pieces_of(const rs_object *object) {
    return object->size / RS_DIGEST_CHUNK + (object->size % RS_DIGEST_CHUNK != 0);
}

static void say_bits(client *c) {
    const rs_pieces *pieces = c->object->pieces;
    for (uint64_t first = 0; first < pieces->count;) {
        uint64_t most = pieces->count - first < 8 * LEAVES_BYTES ? pieces->count - first : 8 * LEAVES_BYTES;
        const rs_piece_message m = {.type = RS_PIECE_HAVE,
                                    .first = (uint32_t)first,
                                    .count = (uint32_t)most,
                                    .bytes = pieces->bits + first / 8,
                                    .length = (uint32_t)(most + 7) / 8};
        say(c, &m);
        first += most;
    }
}

/* Those that fetch the same object hear of each other: each can give what it has. */
static void introduce(client *c) {
    uint32_t told = 0;
    for (client *other = c->server->clients; other && told < PEERS_TOLD; other = other->next) {
        if (other == c || other->object != c->object || (!other->port && !c->port))
            continue;
        rs_piece_message m = {.type = RS_PIECE_PEER, .address = other->address, .port = other->port};
        memcpy(m.name, other->name, sizeof m.name);
        if (other->port)
            say(c, &m);
        m.address = c->address;
        m.port = c->port;
        memcpy(m.name, c->name, sizeof m.name);
        if (c->port)
            say(other, &m);
        update_watch(other);
        told++;
    }
}

/* Who comes while it is sent from here hears the rest, and gets what it missed from those who hear it, too. */
static void let_hear(client *c, const rs_piece_message *m) {
    rs_piece_message out[KEYS_TOLD + 1 + PEERS_TOLD];
    const rs_piece_server_config *config = &c->server->config;
    uint32_t count = config->runs ? config->runs(config->context, &m->id, m->name, out, KEYS_TOLD + 1 + PEERS_TOLD) : 0;
    for (uint32_t i = 0; i < count; i++)
        say(c, &out[i]);
}

static void asked(client *c, const rs_piece_message *m) {
    const rs_piece_server_config *config = &c->server->config;
    rs_object *object = rs_store_find(c->server->config.store, &m->id);
    bool complete = object && object->phase == RS_OBJECT_COMPLETE;
    if (c->object || c->streams) {
        c->over = true;
        return;
    }
    if (!rs_piece_pipe_is(&c->pipe, m->name)) {
        refuse(c, true, "the certificate is not of the server that it says it is");
        return;
    }
    rs_piece_message stream;
    if (!object && config->stream && config->stream(config->context, &m->id, &stream)) {
        c->streams = true;
        c->stream = m->id;
        c->fragment_size = stream.fragment_size;
        let_hear(c, m);
        say(c, &stream);
        return;
    }
    rs_digest coming = {0}; /* of one whose pieces who fetches has to check alone */
    if (object && object->phase == RS_OBJECT_RECEIVING && object->pieces && !object->pieces->confirmed &&
        config->digest_of)
        coming = config->digest_of(config->context, object);
    if (!object || object->phase == RS_OBJECT_DIGESTING || object->phase == RS_OBJECT_CHECKING ||
        (!complete && coming.length == 0 && (!object->pieces || !object->pieces->confirmed))) {
        const char *why = object || !config->why_not ? NULL : config->why_not(config->context, &m->id);
        refuse(c, !object, object ? "not enough of it is here yet" : why ? why : "it is not here");
        return;
    }
    c->object = object;
    c->waits = coming.length > 0;
    c->port = m->port;
    memcpy(c->name, m->name, sizeof c->name);
    rs_piece_message has = {
        .type = RS_PIECE_HAS, .size = object->size, .complete = complete, .no_leaves = coming.length > 0};
    if (complete)
        has.root = object->digest;
    else if (coming.length > 0)
        has.root = coming;
    else /* confirmed leaves make it */
        (void)rs_digest_of_leaves(object->pieces->algorithm, object->pieces->leaves, object->pieces->count, &has.root);
    say(c, &has);
    if (complete) {
        rs_store_hold(object);
        c->holding = true;
    } else {
        c->pieces = (rs_piece_watch){.came = piece_came, .over = object_over, .context = c};
        rs_pieces_watch(object->pieces, &c->pieces);
        c->watching = true;
        say_bits(c);
    }
    introduce(c);
    let_hear(c, m);
}

static void spend_of(const rs_piece_server *server, rs_time *due, int64_t rate_bps, uint64_t bytes) {
    if (rate_bps <= 0)
        return;
    rs_time from = *due > now_of(server) - BURST ? *due : now_of(server) - BURST;
    *due = from + (rs_time)((double)bytes * 8e9 / (double)rate_bps);
}

static void spend(const client *c, uint64_t bytes) {
    rs_piece_server *server = c->server;
    spend_of(server, &server->due, server->config.rate_bps, bytes);
    spend_of(server, &server->spare_due, c->spare_bps, bytes);
}

static void say_stream(client *c) {
    rs_piece_message m;
    c->run_left = 0;
    if (!c->server->config.stream(c->server->config.context, &c->stream, &m)) {
        refuse(c, true, "the stream has ended here");
        return;
    }
    c->fragment_size = m.fragment_size;
    say(c, &m);
}

/* Of what is not kept any more, what is kept now is the answer. */
static void say_run(client *c) {
    rs_piece_server *server = c->server;
    uint8_t bytes[RS_PIECE_BODY_MOST - RS_PIECE_HEAD - 8];
    uint32_t length =
        server->config.run(server->config.context, &c->stream, c->run_sn, c->run_left, bytes, (uint32_t)sizeof bytes);
    if (length == 0) {
        say_stream(c);
        return;
    }
    const rs_piece_message m = {.type = RS_PIECE_RUN, .sn = c->run_sn, .bytes = bytes, .length = length};
    uint32_t count = (length + c->fragment_size - 1) / c->fragment_size;
    say(c, &m);
    c->run_sn += count;
    c->run_left -= count < c->run_left ? count : c->run_left;
    server->stats.bytes += length;
    spend(c, length);
}

static bool is_here(const rs_object *object, uint64_t piece) {
    return piece < pieces_of(object) && (!object->pieces || rs_pieces_have(object->pieces, piece));
}

static void take(client *c, const rs_piece_message *m) {
    if (m->type == RS_PIECE_ASK) {
        asked(c, m);
    } else if (m->type == RS_PIECE_WANT_LEAVES && c->object && has_leaves(c->object)) {
        c->leaves_from = 0;
    } else if (m->type == RS_PIECE_WANT && c->object && c->want_count < WANTS_MOST && is_here(c->object, m->first)) {
        c->waits = false;
        c->wants[(c->want_first + c->want_count++) % WANTS_MOST] = m->first;
        rs_store_read_ahead(c->object, (uint64_t)m->first * RS_DIGEST_CHUNK);
    } else if (m->type == RS_PIECE_WANT_RUN && c->streams && c->run_left == 0) {
        c->run_sn = m->sn;
        c->run_left = m->count < RUN_MOST ? m->count : RUN_MOST;
        if (c->run_left == 0)
            say_stream(c);
    } else {
        c->server->stats.refused++;
        c->over = true;
    }
}

/* ------------------------------------------------------------------------------------------------------- writing */

/* Digests go a message at a time, when the last one is out. */
static void say_leaves(client *c) {
    uint64_t count = pieces_of(c->object), left = count - c->leaves_from;
    const uint8_t *leaves = c->object->pieces ? c->object->pieces->leaves : c->object->leaves;
    uint8_t algorithm = c->object->pieces ? c->object->pieces->algorithm : c->object->digest.algorithm;
    uint32_t width = rs_manifest_width(algorithm), most = LEAVES_BYTES / width;
    if (left == 0 || !leaves || (c->object->pieces && !c->object->pieces->confirmed)) {
        c->leaves_from = UINT32_MAX;
        return;
    }
    uint32_t some = left < most ? (uint32_t)left : most;
    const rs_piece_message m = {.type = RS_PIECE_LEAVES,
                                .first = c->leaves_from,
                                .count = some,
                                .bytes = leaves + (size_t)c->leaves_from * width,
                                .length = some * width};
    say(c, &m);
    c->leaves_from = left == some ? UINT32_MAX : c->leaves_from + some;
}

static void begin_piece(client *c) {
    uint32_t piece = c->wants[c->want_first];
    c->want_first = (c->want_first + 1) % WANTS_MOST;
    c->want_count--;
    if (!is_here(c->object, piece)) {
        c->over = true;
        return;
    }
    const rs_piece_server_config *config = &c->server->config;
    c->spare_bps = config->spare_bps ? config->spare_bps(config->context, &c->object->id, c->name) : 0;
    c->at = (uint64_t)piece * RS_DIGEST_CHUNK;
    c->end = c->object->size - c->at < RS_DIGEST_CHUNK ? c->object->size : c->at + RS_DIGEST_CHUNK;
    const rs_piece_message m = {.type = RS_PIECE_PIECE, .first = piece, .length = (uint32_t)(c->end - c->at)};
    say(c, &m);
    c->out_before = c->out_length;
    c->server->stats.pieces++;
}

static bool has_output(const client *c) {
    return c->out_sent < c->out_length || c->at < c->end || c->want_count > 0 || c->leaves_from != UINT32_MAX ||
           c->run_left > 0;
}

/* Its bytes wait for a rate. */
static bool is_held(const client *c) {
    const rs_piece_server *server = c->server;
    rs_time due = c->spare_bps > 0 && server->spare_due > server->due ? server->spare_due : server->due;
    return due > now_of(server);
}

static void hold(const client *c) {
    rs_piece_server *server = c->server;
    rs_time due = c->spare_bps > 0 && server->spare_due > server->due ? server->spare_due : server->due;
    server->held_until = due < server->held_until ? due : server->held_until;
}

/* Those that wait for the rate are looked at in their order: who has had a turn is the last. */
static void goes_last(client *c) {
    client **at = &c->server->clients;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    while (*at)
        at = &(*at)->next;
    *at = c;
    c->next = NULL;
}

static bool wrote(client *c, ssize_t sent) {
    if (sent >= 0)
        return true;
    c->over = errno != EAGAIN && errno != EINTR && errno != ENOBUFS;
    return false;
}

/* Bytes of a piece go out by the rate; what is said besides does not count. */
static void write_out(client *c) {
    rs_piece_server *server = c->server;
    for (uint32_t budget = TURN_BYTES; budget > 0 && !c->over;) {
        size_t upto = c->at < c->end ? c->out_before : c->out_length;
        if (c->out_sent < upto) {
            ssize_t sent = rs_piece_write(&c->pipe, c->out + c->out_sent, upto - c->out_sent, c->at < c->end);
            if (!wrote(c, sent))
                return;
            c->out_sent += (size_t)sent;
            continue;
        }
        if (c->at < c->end) {
            if (is_held(c)) {
                hold(c);
                return;
            }
            uint64_t left = c->end - c->at, room = c->spare_bps > 0 ? SPARE_BYTES : budget;
            uint64_t most = left < room ? left : room;
            ssize_t sent = rs_piece_write_file(&c->pipe, c->object->fd, c->at, (size_t)most);
            if (!wrote(c, sent))
                return;
            if (sent == 0) {
                c->over = true;
                return;
            }
            c->at += (uint64_t)sent;
            budget -= (uint32_t)sent < budget ? (uint32_t)sent : budget;
            server->stats.bytes += (uint64_t)sent;
            c->heard_at = now_of(server);
            spend(c, (uint64_t)sent);
            if (server->config.rate_bps > 0 || c->spare_bps > 0)
                goes_last(c);
        } else if (c->leaves_from != UINT32_MAX) {
            say_leaves(c);
        } else if (c->want_count > 0) {
            begin_piece(c);
        } else if (c->run_left > 0 && is_held(c)) {
            hold(c);
            return;
        } else if (c->run_left > 0) {
            say_run(c);
        } else {
            return;
        }
    }
}

static void update_watch(client *c) {
    bool held = is_held(c) && (c->at < c->end || c->run_left > 0);
    uint32_t events = EPOLLIN | ((has_output(c) && !held) || rs_piece_waits(&c->pipe) ? EPOLLOUT : 0);
    if (held)
        hold(c);
    if (c->watch.events != events)
        (void)rs_loop_watch(c->server->config.loop, &c->watch, c->watch.fd, events);
}

/* ------------------------------------------------------------------------------------------------------- reading */

static void read_in(client *c) {
    ssize_t got = rs_piece_read(&c->pipe, c->in + c->in_length, sizeof c->in - c->in_length);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        c->over = true;
        return;
    }
    if (got < 0)
        return;
    c->in_length += (size_t)got;
    c->heard_at = now_of(c->server);
    size_t used = 0;
    while (!c->over && c->in_length - used >= RS_PIECE_HEAD) {
        uint8_t type;
        uint32_t length;
        rs_piece_message m;
        bool ok = rs_piece_take_head(c->in + used, &type, &length) && length <= sizeof c->in - RS_PIECE_HEAD;
        if (ok && c->in_length - used - RS_PIECE_HEAD < length)
            break;
        if (!ok || !rs_piece_take(type, c->in + used + RS_PIECE_HEAD, length, &m)) {
            c->server->stats.refused++;
            c->over = true;
            return;
        }
        used += RS_PIECE_HEAD + length;
        take(c, &m);
    }
    memmove(c->in, c->in + used, c->in_length - used);
    c->in_length -= used;
}

static void client_ready(void *context, uint32_t events) {
    client *c = context;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        do
            read_in(c);
        while (!c->over && rs_piece_pending(&c->pipe));
    c->over |= !rs_piece_flush(&c->pipe);
    if (!c->over)
        write_out(c);
    if (c->over)
        drop(c);
    else
        update_watch(c);
}

static void accept_one(rs_piece_server *server, int fd, uint32_t address) {
    client *c = server->stats.clients < RS_PIECE_CLIENTS_MOST ? calloc(1, sizeof *c) : NULL;
    if (c && !(c->out = malloc(OUT_BYTES))) {
        free(c);
        c = NULL;
    }
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!c) {
        server->stats.refused++;
        close(fd);
        return;
    }
    c->server = server;
    c->address = address;
    c->heard_at = now_of(server);
    c->leaves_from = UINT32_MAX;
    c->watch = (rs_watch){.ready = client_ready, .context = c};
    if (!rs_piece_pipe_start(&c->pipe, server->config.identity, fd, true, NULL) ||
        !rs_loop_watch(server->config.loop, &c->watch, fd, EPOLLIN)) {
        rs_piece_pipe_end(&c->pipe);
        close(fd);
        free(c->out);
        free(c);
        return;
    }
    c->next = server->clients;
    server->clients = c;
    server->stats.clients++;
}

static void listener_ready(void *context, uint32_t events) {
    rs_piece_server *server = context;
    (void)events;
    for (int i = 0; i < 16; i++) {
        struct sockaddr_in remote = {0};
        socklen_t length = sizeof remote;
        char text[RS_ACCEPT_TEXT];
        int fd = accept4(server->watch.fd, (struct sockaddr *)&remote, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (rs_accept_failed(&server->pause, errno, now_of(server), "the door of pieces", text)) {
                if (text[0])
                    rs_log(RS_LOG_ERROR, "pieces", "%s", text);
                (void)rs_loop_watch(server->config.loop, &server->watch, server->watch.fd, 0);
            }
            return;
        }
        rs_accept_worked(&server->pause);
        accept_one(server, fd, ntohl(remote.sin_addr.s_addr));
    }
}

rs_piece_server *rs_piece_server_new(const rs_piece_server_config *config) {
    rs_piece_server *server = calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->config = *config;
    server->check_at = server->held_until = RS_NEVER;
    struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(config->port)};
    local.sin_addr.s_addr = htonl(config->address);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    server->watch = (rs_watch){.ready = listener_ready, .context = server};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&local, sizeof local) < 0 || listen(fd, 64) < 0 ||
        !rs_loop_watch(config->loop, &server->watch, fd, EPOLLIN)) {
        int number = errno;
        if (fd >= 0)
            close(fd);
        free(server);
        errno = number;
        return NULL;
    }
    server->check_at = rs_loop_now(config->loop) + RS_SECOND;
    return server;
}

void rs_piece_server_free(rs_piece_server *server) {
    if (!server)
        return;
    while (server->clients)
        drop(server->clients);
    int fd = server->watch.fd;
    rs_loop_unwatch(server->config.loop, &server->watch);
    close(fd);
    free(server);
}

rs_time rs_piece_server_deadline(const rs_piece_server *server) {
    return server->held_until < server->check_at ? server->held_until : server->check_at;
}

void rs_piece_server_timeout(rs_piece_server *server) {
    rs_time now = now_of(server);
    if (now >= server->held_until) {
        server->held_until = RS_NEVER;
        for (client *c = server->clients; c; c = c->next)
            update_watch(c);
    }
    if (now < server->check_at)
        return;
    server->check_at = now + RS_SECOND;
    if (rs_accept_resumes(&server->pause, now))
        (void)rs_loop_watch(server->config.loop, &server->watch, server->watch.fd, EPOLLIN);
    for (client *c = server->clients, *next; c; c = next) {
        next = c->next;
        bool stranger = c->pipe.tls && !rs_tls_shaken(c->pipe.tls);
        if (c->over || now - c->heard_at > (stranger ? HANDSHAKE : IDLE))
            drop(c);
    }
}

rs_piece_server_stats rs_piece_server_stats_get(const rs_piece_server *server) {
    return server->stats;
}

void rs_piece_server_let_go(rs_piece_server *server, const rs_object_id *id) {
    for (client *c = server->clients, *next; c; c = next) {
        next = c->next;
        if (c->object && memcmp(&c->object->id, id, sizeof *id) == 0)
            drop(c);
    }
}
