/* Inside of the control channel: the pool's state and the life of its connections. For control.c and control/pool.c
 * only. */
#ifndef RS_DAEMON_CONTROL_POOL_H
#define RS_DAEMON_CONTROL_POOL_H

#include <netinet/in.h>

#include "daemon/accept.h"
#include "daemon/control/control.h"
#include "daemon/log.h"

#define RS_POOL_TICK (250 * RS_MILLISECOND)
#define RS_POOL_BACKOFF_MIN (50 * RS_MILLISECOND)
#define RS_POOL_BACKOFF_MAX RS_SECOND
#define RS_POOL_SHORTER (600 * RS_SECOND) /* then whole ones are tried again: it may have been an outage */
#define RS_POOL_SOURCE_MOST \
    16u /* accepted connections of one address: an agent has one, and its restarts for a moment */
#define RS_POOL_SOURCES 4096u
#define RS_POOL_KEPT_PART 8u /* one in so many places is for connections opened here */

/* What the pool knows of one peer. */
typedef struct {
    rs_connection *sending;    /* what goes to it goes here; NULL = down */
    rs_connection *connecting; /* ours, not up yet: the newest attempt, or the one that was answered */
    uint32_t knocks;           /* so many attempts before it may still be answered */
    uint32_t connections;      /* each of them holds the peer's number, as wanting does */
    bool wanted;
    bool doubted; /* what went to it before its HELLO went in vain the last time: that is waited for */
    rs_time wanted_until, retry_at, backoff;
    rs_time shorter_until; /* segments go to it: those that fill a packet were lost on its way, it seems */
} rs_pool_peer;

struct rs_control {
    rs_control_options options;
    rs_control_callbacks callbacks;
    rs_watch listener;
    rs_accept_pause pause;
    rs_connection *connections; /* the newest first */
    rs_connection *looked_at;   /* the next to be looked at; NULL: from the first on */
    rs_pool_peer *peers;        /* by rs_peer */
    uint32_t peer_room;
    uint32_t wanted_count;
    uint32_t young_count;              /* connections that are not up yet */
    size_t waiting;                    /* bytes to be sent, of all connections */
    uint16_t sources[RS_POOL_SOURCES]; /* accepted connections, by a hash of their addresses */
    rs_time next_tick;
    rs_control_stats stats;
    rs_log_limit refusals, endings; /* lines that strangers cause */
};

static inline rs_time rs_pool_now(const rs_control *control) {
    return rs_loop_now(control->options.loop);
}

/* What is known of a peer that has a number; NULL: out of memory. */
rs_pool_peer *rs_pool_peer_of(rs_control *control, rs_peer peer);
/* Takes `fd` over when it succeeds. */
rs_connection *rs_pool_add(rs_control *control, int fd, bool outgoing, rs_peer peer, const struct sockaddr_in *remote);
/* Ends a connection, and tells what that means for its peer. `c` is gone after this. */
void rs_pool_close(rs_control *control, rs_connection *c, rs_log_level level, const char *cause);
/* An attempt to connect beside which a newer one is out: nothing depends on it. */
bool rs_pool_has_another(const rs_control *control, const rs_connection *c);
/* The same without a message to anyone. */
void rs_pool_drop(rs_control *control, rs_connection *c);
/* Writes why there is no connection, with the address that was tried; `text` itself. */
const char *rs_pool_cannot_connect(char text[RS_CONNECTION_TEXT], uint32_t address, uint16_t port, const char *cause);

/* False: broken, with the reason. */
bool rs_pool_say_hello(rs_control *control, rs_connection *c, char *text);
/* After whatever may have let bytes go, or wait. */
void rs_pool_watch(rs_control *control, rs_connection *c);
/* What waits to be sent on it counts. */
void rs_pool_count_waiting(rs_control *control, rs_connection *c);
/* Could not be reached: the next attempt waits longer. */
void rs_pool_back_off(rs_control *control, rs_peer peer);
/* Makes a place for one more connection, from `source` (0: opened here), at the cost of one that is not in use. NULL:
 * there is one; else why there is none. */
const char *rs_pool_make_place(rs_control *control, uint32_t source);
/* Whether something needs the connection's peer. Remembers it if so. */
bool rs_pool_in_use(rs_control *control, rs_connection *c);
/* False: the manager has told that this peer is at another address. */
bool rs_pool_may_be(const rs_control *control, rs_peer peer, const rs_connection *c);
/* One connection fewer leads to the peer. */
void rs_pool_on_connection_removed(rs_control *control, rs_peer peer);
bool rs_pool_proven(const rs_control *control, const rs_connection *c);
void rs_pool_stop_wanting(rs_control *control, rs_peer peer);

#endif
