/* The life of a control connection: greeting, messages, closing, and which one of a peer's is sent on. */
#include "daemon/control/pool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/transfer/node.h"
#include "daemon/round_trip.h"
#include "daemon/units.h"

/* A connection and its pool, for callbacks of its messages. */
typedef struct {
    rs_control *control;
    rs_connection *connection;
} reading;

static void connection_ready(void *context, uint32_t events);

rs_pool_peer *rs_pool_peer_of(rs_control *control, rs_peer peer) {
    if (peer >= control->peer_room) {
        uint32_t room = control->options.peers->room;
        rs_pool_peer *peers = realloc(control->peers, room * sizeof *peers);
        if (!peers)
            return NULL;
        memset(peers + control->peer_room, 0, (room - control->peer_room) * sizeof *peers);
        control->peers = peers;
        control->peer_room = room;
    }
    return &control->peers[peer];
}

static const char *name_of(const rs_control *control, const rs_connection *c) {
    return c->peer == RS_NO_PEER ? "?" : rs_peers_name(control->options.peers, c->peer);
}

/* Every connection's context is its pool; the connection itself is found by its watch. */
typedef struct {
    rs_connection connection; /* first, so that the one is the other */
    rs_control *control;
} pooled;

/* A connection that leads to the peer. */
static void belongs_to(rs_control *control, rs_peer peer) {
    rs_pool_peer *p = rs_pool_peer_of(control, peer); /* there: whoever gave it its number has made sure */
    p->connections++;
    rs_peers_hold(control->options.peers, peer);
}

void rs_pool_on_connection_removed(rs_control *control, rs_peer peer) {
    control->peers[peer].connections--;
    rs_peers_release(control->options.peers, peer);
}

static uint32_t source_of(uint32_t address) {
    return (address * UINT32_C(2654435761) >> 8) % RS_POOL_SOURCES;
}

rs_connection *rs_pool_add(rs_control *control, int fd, bool outgoing, rs_peer peer, const struct sockaddr_in *remote) {
    pooled *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->control = control;
    rs_connection *c = &p->connection;
    c->fd = fd;
    c->outgoing = outgoing;
    c->phase = outgoing ? RS_CONNECTION_CONNECTING : RS_CONNECTION_GREETING;
    c->peer = peer;
    c->remote_address = ntohl(remote->sin_addr.s_addr);
    c->remote_port = ntohs(remote->sin_port);
    c->phase_since = c->last_activity = rs_pool_now(control);
    c->stalled_since = RS_NEVER;
    c->watch = (rs_watch){.ready = connection_ready, .context = p};
    rs_tls_identity *identity = control->options.identity;
    char text[RS_TLS_TEXT];
    if (identity && !rs_tls_identity_refresh(identity, text))
        rs_log_limited(&control->endings, 10, RS_LOG_WARNING, "control", "the certificate read before is used: %s",
                       text);
    c->tls = identity ? rs_tls_new_peer(identity, fd, !outgoing) : NULL;
    if ((identity && !c->tls) || !rs_loop_watch(control->options.loop, &c->watch, fd, outgoing ? EPOLLOUT : EPOLLIN)) {
        rs_tls_free(c->tls);
        free(p);
        return NULL;
    }
    c->next = control->connections;
    if (c->next)
        c->next->previous = c;
    control->connections = c;
    control->stats.connections++;
    control->young_count++;
    if (!outgoing)
        control->sources[source_of(c->remote_address)]++;
    if (peer != RS_NO_PEER)
        belongs_to(control, peer);
    return c;
}

bool rs_pool_in_use(rs_control *control, rs_connection *c) {
    if (c->peer == RS_NO_PEER || c->phase != RS_CONNECTION_UP)
        return false;
    const rs_pool_peer *p = &control->peers[c->peer];
    bool now = rs_peers_entry(control->options.peers, c->peer)->holds > p->connections + p->wanted;
    c->used |= now;
    return now;
}

/* A stranger who knows a name must not speak for its owner. */
bool rs_pool_may_be(const rs_control *control, rs_peer peer, const rs_connection *c) {
    uint32_t told = rs_peers_entry(control->options.peers, peer)->address;
    return c->outgoing || told == 0 || told == c->remote_address;
}

bool rs_pool_proven(const rs_control *control, const rs_connection *c) {
    return c->peer != RS_NO_PEER && c->phase == RS_CONNECTION_UP &&
           (c->outgoing || rs_peers_entry(control->options.peers, c->peer)->address == c->remote_address);
}

/* Whose place another may take: the lower, the sooner. 0: nobody's. */
static unsigned evictable(rs_control *control, rs_connection *c) {
    if (c->phase == RS_CONNECTION_CONNECTING || rs_pool_in_use(control, c))
        return 0;
    return c->phase == RS_CONNECTION_GREETING ? 1 : !rs_pool_proven(control, c) ? 2 : 3;
}

/* New connections are put in front: of those that are alike the last of the list is the oldest. */
static bool evict(rs_control *control, uint32_t source) {
    rs_connection *victim = NULL;
    unsigned least = UINT32_MAX;
    for (rs_connection *c = control->connections; c; c = c->next) {
        unsigned rank = source && c->remote_address != source ? 0 : evictable(control, c);
        if (rank > 0 && rank <= least && !c->outgoing) {
            victim = c;
            least = rank;
        }
    }
    if (!victim)
        return false;
    control->stats.evicted++;
    rs_pool_close(control, victim, RS_LOG_WARNING, "its place was needed, and it was not in use");
    return true;
}

const char *rs_pool_make_place(rs_control *control, uint32_t source) {
    uint32_t most = control->options.max_connections, count = 0;
    bool many = control->sources[source_of(source)] >= RS_POOL_SOURCE_MOST; /* there, or at others of the same hash */
    for (const rs_connection *c = control->connections; c && source && many; c = c->next)
        count += !c->outgoing && c->remote_address == source;
    if (count >= RS_POOL_SOURCE_MOST)
        return evict(control, source) ? NULL : "its address has as many connections as one may have, all in use";
    if (control->stats.connections >= (source ? most - most / RS_POOL_KEPT_PART : most))
        return evict(control, 0) ? NULL : "too many connections, all in use";
    return NULL;
}

/* -------------------------------------------------------------------------------------------------------- closing */

static void unlink_connection(rs_control *control, rs_connection *c) {
    if (control->looked_at == c)
        control->looked_at = c->next;
    if (!c->outgoing)
        control->sources[source_of(c->remote_address)]--;
    control->young_count -= c->phase != RS_CONNECTION_UP;
    control->waiting -= c->counted;
    if (c->previous)
        c->previous->next = c->next;
    else
        control->connections = c->next;
    if (c->next)
        c->next->previous = c->previous;
    rs_loop_unwatch(control->options.loop, &c->watch);
    control->stats.connections--;
}

void rs_pool_drop(rs_control *control, rs_connection *c) {
    unlink_connection(control, c);
    rs_connection_free(c);
}

static rs_connection *other_up(const rs_control *control, rs_peer peer, const rs_connection *but) {
    bool others = control->peers[peer].connections > 1; /* with the one that just ended, which is still counted */
    for (rs_connection *c = others ? control->connections : NULL; c; c = c->next)
        if (c != but && c->peer == peer && c->phase == RS_CONNECTION_UP)
            return c;
    return NULL;
}

void rs_pool_stop_wanting(rs_control *control, rs_peer peer) {
    rs_pool_peer *p = &control->peers[peer];
    if (!p->wanted)
        return;
    p->wanted = false;
    control->wanted_count--;
    rs_peers_release(control->options.peers, peer);
}

/* It is there, and is who it should be. */
static void reached(rs_control *control, rs_peer peer) {
    rs_pool_peer *p = &control->peers[peer];
    p->backoff = 0;
    p->retry_at = 0;
    p->doubted = false;
    rs_pool_stop_wanting(control, peer);
}

static void come_up(rs_control *control, rs_connection *c) {
    control->peers[c->peer].sending = c;
    if (c->phase == RS_CONNECTION_UP)
        reached(control, c->peer);
    control->callbacks.peer_up(control->callbacks.context, c->peer);
    if (c->choked)
        control->callbacks.peer_writable(control->callbacks.context, c->peer, false);
}

void rs_pool_back_off(rs_control *control, rs_peer peer) {
    rs_pool_peer *p = &control->peers[peer];
    p->backoff = p->backoff ? p->backoff * 2 : RS_POOL_BACKOFF_MIN;
    if (p->backoff > RS_POOL_BACKOFF_MAX)
        p->backoff = RS_POOL_BACKOFF_MAX;
    p->retry_at = rs_pool_now(control) + p->backoff;
    if (p->retry_at < control->next_tick)
        control->next_tick = p->retry_at;
}

/* Attempts to reach the peer that nothing has answered, but for that one. */
static void drop_attempts(rs_control *control, rs_peer peer, const rs_connection *but) {
    bool any = control->peers[peer].knocks > 0;
    control->peers[peer].knocks = 0;
    for (rs_connection *c = any ? control->connections : NULL, *next; c; c = next) {
        next = c->next;
        if (c == but || c->peer != peer || c->phase != RS_CONNECTION_CONNECTING)
            continue;
        rs_pool_drop(control, c);
        rs_pool_on_connection_removed(control, peer);
    }
}

bool rs_pool_has_another(const rs_control *control, const rs_connection *c) {
    return c->phase == RS_CONNECTION_CONNECTING && control->peers[c->peer].connecting != c;
}

void rs_pool_close(rs_control *control, rs_connection *c, rs_log_level level, const char *cause) {
    char address[RS_ADDRESS_TEXT];
    level = rs_pool_has_another(control, c) ? RS_LOG_DEBUG : level;
    rs_log_limited(&control->endings, 10, level, "control", "closed peer=%s address=%s:%u opened_by=%s cause=%s",
                   rs_quote(name_of(control, c)), rs_address_text(c->remote_address, address), c->remote_port,
                   c->outgoing ? "us" : "them", rs_quote(cause));
    rs_peer peer = c->peer;
    rs_pool_peer *p = peer == RS_NO_PEER ? NULL : &control->peers[peer];
    bool was_connecting = p && p->connecting == c, was_sending = p && p->sending == c;
    bool short_lived = rs_pool_now(control) - c->phase_since < RS_POOL_BACKOFF_MAX;
    bool in_vain = was_connecting && c->early, unheard = c->phase == RS_CONNECTION_UP && c->unheard;
    bool was_shorter = c->shorter;
    rs_pool_drop(control, c);
    if (!p)
        return;
    p->doubted |= in_vain;
    /* It was reached, and what went to it was not acknowledged: a switch between may take no packets of that length,
     * and say nothing. If shorter ones are lost too, it was something else. */
    if (unheard)
        p->shorter_until = was_shorter ? 0 : rs_pool_now(control) + RS_POOL_SHORTER;
    if (was_connecting || (was_sending && short_lived))
        rs_pool_back_off(control, peer);
    if (was_connecting) {
        control->stats.unreached++;
        p->connecting = NULL;
        drop_attempts(control, peer, NULL);
    }
    if (was_sending)
        p->sending = NULL;
    if (was_connecting || was_sending)
        control->callbacks.peer_down(control->callbacks.context, peer, cause);
    rs_connection *other = was_sending && !p->sending ? other_up(control, peer, NULL) : NULL;
    if (other)
        come_up(control, other);
    rs_pool_on_connection_removed(control, peer);
}

/* ------------------------------------------------------------------------------------------------------- greeting */

bool rs_pool_say_hello(rs_control *control, rs_connection *c, char *text) {
    rs_message hello = {.type = RS_MSG_HELLO};
    uint8_t bytes[RS_HEADER_MAX];
    hello.hello.engines = (rs_engines_here() & RS_HELLO_ENGINES) | RS_HELLO_TREE | RS_HELLO_NAME |
                          (control->options.carries ? RS_HELLO_CARRY : 0) |
                          (c->early ? rs_wire_hello_for(rs_peers_name(control->options.peers, c->peer)) : 0);
    hello.hello.boot = control->options.boot;
    hello.hello.name_length = (uint16_t)strlen(control->options.server);
    memcpy(hello.hello.name, control->options.server, hello.hello.name_length);
    size_t length = rs_wire_encode(&hello, 0, bytes, sizeof bytes);
    return rs_connection_send(c, rs_pool_now(control), bytes, length, NULL, text);
}

static bool wrong_hello(char *text, const char *format, const char *name) {
    snprintf(text, RS_CONNECTION_TEXT, format, name);
    return false;
}

/* Whom the connection leads to. Accepted connections learn it here; the pool's own must have reached whom they were
 * opened to. */
static bool identify(rs_control *control, rs_connection *c, const rs_message *hello, char *text) {
    const char *name = hello->hello.name;
    if (hello->version != RS_WIRE_VERSION) {
        snprintf(text, RS_CONNECTION_TEXT,
                 "it speaks version %u of the wire and %s speaks version %u: update the older agent", hello->version,
                 control->options.server, RS_WIRE_VERSION);
        return false;
    }
    if (strlen(name) != hello->hello.name_length || strcmp(name, control->options.server) == 0)
        return wrong_hello(text, "it says that its name is %s", rs_quote(name));
    char whose[RS_TLS_TEXT];
    if (c->tls && !rs_tls_is_agent(c->tls, name)) {
        snprintf(text, RS_CONNECTION_TEXT, "it says that its name is %.60s, and its certificate is for %.60s",
                 rs_quote(name), rs_tls_agent(c->tls, whose));
        return false;
    }
    uint32_t is_for = hello->hello.engines & RS_HELLO_FOR;
    if (is_for && is_for != rs_wire_hello_for(control->options.server))
        return wrong_hello(text, "it wants to speak to another server: its name is %s", rs_quote(name));
    if (c->outgoing && !c->tls)
        rs_peers_answers(control->options.peers, c->peer, name);
    if (c->outgoing && strcmp(name, rs_peers_name(control->options.peers, c->peer)) != 0)
        return wrong_hello(text, "another server answers there: %s", rs_quote(name));
    if (!c->outgoing) {
        rs_peer peer = rs_peers_claim(control->options.peers, name, c->remote_address);
        if (peer == RS_NO_PEER || !rs_pool_peer_of(control, peer))
            return wrong_hello(text, "no room for another peer's name: %s", rs_quote(name));
        if (!rs_pool_may_be(control, peer, c))
            return wrong_hello(text, "it says that its name is %s, whose address is another", rs_quote(name));
        c->peer = peer;
        belongs_to(control, peer);
    }
    c->boot = hello->hello.boot;
    c->knows = hello->hello.engines;
    return true;
}

/* Older connections that this one replaces: of an earlier start of the peer, or opened by it before. Of thousands that
 * come up together each is its peer's only one, and nobody looks for others. */
static void close_replaced(rs_control *control, const rs_connection *fresh) {
    if (control->peers[fresh->peer].connections < 2)
        return;
    for (rs_connection *c = control->connections, *next; c; c = next) {
        next = c->next;
        if (c == fresh || c->peer != fresh->peer || c->phase != RS_CONNECTION_UP)
            continue;
        bool restarted = c->boot != fresh->boot;
        if (restarted || (!c->outgoing && !fresh->outgoing)) {
            rs_pool_close(control, c, RS_LOG_INFO,
                          restarted ? "its agent was restarted" : "it opened another connection");
            next = control->connections; /* callbacks do not close others, but the list may have changed all the same */
        }
    }
}

/* To one whose HELLO is of another version: ABORT reads the same in all. */
static void say_why(rs_control *control, rs_connection *c, const char *cause) {
    rs_message abort = {.type = RS_MSG_ABORT};
    uint8_t bytes[RS_HEADER_MAX];
    char text[RS_CONNECTION_TEXT];
    rs_wire_cause_set(&abort.abort.cause, cause);
    size_t length = rs_wire_encode(&abort, 0, bytes, sizeof bytes);
    rs_connection_send(c, rs_pool_now(control), bytes, length, NULL, text);
}

static bool greeted(rs_control *control, rs_connection *c, const uint8_t *bytes, size_t length, char *text) {
    rs_message hello;
    bool read = rs_wire_decode(bytes, length, 0, &hello);
    if (read && hello.type == RS_MSG_ABORT)
        return wrong_hello(text, "it refused: %s", rs_quote(hello.abort.cause.text));
    if (!read || hello.type != RS_MSG_HELLO) {
        control->stats.malformed++;
        return wrong_hello(text, "it does not begin with HELLO%s", "");
    }
    if (!identify(control, c, &hello, text)) {
        if (hello.version != RS_WIRE_VERSION)
            say_why(control, c, text);
        return false;
    }
    c->phase = RS_CONNECTION_UP;
    control->young_count--;
    rs_peers_entry(control->options.peers, c->peer)->round_trip_us = rs_round_trip_us(c->fd);
    c->phase_since = rs_pool_now(control);
    rs_pool_peer *p = &control->peers[c->peer];
    if (p->connecting == c)
        p->connecting = NULL;
    close_replaced(control, c);
    char address[RS_ADDRESS_TEXT];
    rs_log(RS_LOG_DEBUG, "control", "up peer=%s address=%s:%u opened_by=%s", rs_quote(name_of(control, c)),
           rs_address_text(c->remote_address, address), c->remote_port, c->outgoing ? "us" : "them");
    if (!p->sending)
        come_up(control, c);
    else if (p->sending == c)
        reached(control, c->peer);
    return true;
}

static bool take_message(void *context, const uint8_t *header, size_t header_length, const uint8_t *payload,
                         uint32_t payload_length, char *text) {
    reading *r = context;
    if (r->connection->phase == RS_CONNECTION_GREETING)
        return payload_length == 0 ? greeted(r->control, r->connection, header, header_length, text)
                                   : wrong_hello(text, "it does not begin with HELLO%s", "");
    const rs_control_callbacks *callbacks = &r->control->callbacks;
    if (callbacks->message(callbacks->context, r->connection->peer, header, header_length, payload, payload_length))
        return true;
    r->control->stats.malformed++;
    return wrong_hello(text, "a message of it is malformed or contradicts its transfer%s", "");
}

/* --------------------------------------------------------------------------------------------------------- events */

void rs_pool_count_waiting(rs_control *control, rs_connection *c) {
    control->waiting += c->out_length - c->counted;
    c->counted = c->out_length;
}

void rs_pool_watch(rs_control *control, rs_connection *c) {
    rs_pool_count_waiting(control, c);
    rs_loop_watch(control->options.loop, &c->watch, c->fd, rs_connection_events(c));
}

static void unchoke(rs_control *control, rs_connection *c) {
    if (!c->choked || c->out_length > RS_CONNECTION_LOW)
        return;
    c->choked = false;
    if (c->peer != RS_NO_PEER && control->peers[c->peer].sending == c)
        control->callbacks.peer_writable(control->callbacks.context, c->peer, true);
}

const char *rs_pool_cannot_connect(char text[RS_CONNECTION_TEXT], uint32_t address, uint16_t port, const char *cause) {
    char where[RS_ADDRESS_TEXT];
    snprintf(text, RS_CONNECTION_TEXT, "cannot connect to %s:%u: %s", rs_address_text(address, where), port, cause);
    return text;
}

/* Whether messages may go before the peer's HELLO (control.h). */
static bool may_be_early(const rs_control *control, const rs_connection *c) {
    const rs_pool_peer *p = &control->peers[c->peer];
    const rs_peer_entry *entry = rs_peers_entry(control->options.peers, c->peer);
    const rs_control_callbacks *callbacks = &control->callbacks;
    return !c->tls && !p->sending && !p->doubted && rs_peers_is_named(control->options.peers, c->peer) &&
           (rs_time)entry->round_trip_us * RS_MICROSECOND > control->options.long_trip &&
           (!callbacks->peer_is_plain || callbacks->peer_is_plain(callbacks->context, c->peer));
}

static bool finish_connect(rs_control *control, rs_connection *c, char *text) {
    int cause = 0;
    socklen_t length = sizeof cause;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &cause, &length) != 0 || cause != 0) {
        rs_pool_cannot_connect(text, c->remote_address, c->remote_port, strerror(cause ? cause : errno));
        return false;
    }
    c->phase = RS_CONNECTION_GREETING;
    c->phase_since = rs_pool_now(control);
    control->stats.opened++;
    control->peers[c->peer].connecting = c;
    drop_attempts(control, c->peer, c);
    rs_peers_entry(control->options.peers, c->peer)->round_trip_us = rs_round_trip_us(c->fd);
    c->early = may_be_early(control, c);
    if (!rs_pool_say_hello(control, c, text))
        return false;
    if (!c->early)
        return true;
    rs_log(RS_LOG_DEBUG, "control", "what is for it goes before its HELLO peer=%s", rs_quote(name_of(control, c)));
    come_up(control, c);
    return true;
}

static void connection_ready(void *context, uint32_t events) {
    pooled *p = context;
    rs_control *control = p->control;
    rs_connection *c = &p->connection;
    char text[RS_CONNECTION_TEXT] = "";
    bool alive = true;
    if (c->phase == RS_CONNECTION_CONNECTING)
        alive = finish_connect(control, c, text);
    else if (events & EPOLLOUT)
        alive = rs_connection_flush(c, rs_pool_now(control), text);
    if (alive)
        unchoke(control, c);
    if (alive && c->phase != RS_CONNECTION_CONNECTING && (events & (EPOLLIN | EPOLLERR | EPOLLHUP))) {
        reading r = {control, c};
        c->reading = true;
        alive = rs_connection_read(c, rs_pool_now(control), take_message, &r, text);
        c->reading = false;
    }
    if (alive && c->tls && c->phase != RS_CONNECTION_CONNECTING) /* the handshake may have let it go */
        alive = rs_connection_flush(c, rs_pool_now(control), text);
    if (!alive) {
        bool normal = strcmp(text, "it closed the connection") == 0;
        control->stats.broken += !normal && !rs_pool_has_another(control, c);
        rs_pool_close(control, c, normal ? RS_LOG_DEBUG : RS_LOG_WARNING, text);
        return;
    }
    rs_pool_watch(control, c);
}
