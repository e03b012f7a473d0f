/* The control channel: pooled TCP connections between agents (docs/protocol.md).
 *
 * Two agents may each have opened one. Each sends on the connection that came up first at its side, as long as that
 * lives, so that messages keep their order, and reads both. A connection unused for a while is closed. A peer that
 * restarted (other boot id) loses its old connections.
 *
 * Who opened a connection over a long way does not wait a round trip for the HELLO: its own says which server it is
 * meant for, any other closes it, and messages go right behind. That needs the server's name, and that names prove
 * nothing (no TLS). A peer that says no HELLO then, or a wrong one, went down, and its HELLO is waited for at the next
 * attempts.
 *
 * Anybody can connect. A connection is proven when it comes from the address that the manager has told for its name,
 * and in use while something besides connections holds its peer (a transfer, a view). Places are bounded, for each
 * source address and in all; whoever comes when they are taken takes the place of the oldest connection that is not in
 * use: before its HELLO, then unproven, then proven. An eighth of the places is kept for connections opened here. */
#ifndef RS_DAEMON_CONTROL_H
#define RS_DAEMON_CONTROL_H

#include "core/base/types.h"
#include "daemon/control/connection.h"
#include "daemon/control/peers.h"
#include "daemon/loop.h"

typedef struct rs_control rs_control;

typedef struct {
    void *context;
    void (*peer_up)(void *context, rs_peer peer);
    /* It was up and is not, or could not be reached; tried again by itself while wanted. */
    void (*peer_down)(void *context, rs_peer peer, const char *cause);
    void (*peer_writable)(void *context, rs_peer peer, bool writable);
    /* What goes to it may go before it has said what it knows. NULL: it may. */
    bool (*peer_is_plain)(void *context, rs_peer peer);
    /* False: malformed, the connection is closed. */
    bool (*message)(void *context, rs_peer peer, const uint8_t *header, size_t header_length, const uint8_t *payload,
                    uint32_t payload_length);
} rs_control_callbacks;

/* Zero in a time means its default, given in brackets. */
typedef struct {
    rs_loop *loop;
    rs_peers *peers;
    const char *server;
    uint64_t boot;
    uint32_t address; /* of this server on the data network */
    uint16_t port;
    uint32_t max_connections;
    bool carries;              /* said in HELLO: RS_HELLO_CARRY */
    rs_tls_identity *identity; /* NULL: plain; else both ends show certificates. Must outlive it */
    rs_time connect_timeout;   /* [2 s], and as long for the HELLO */
    rs_time want_bound;        /* a wanted peer is tried this long [6 s] */
    rs_time idle_timeout;      /* [60 s] */
    rs_time long_trip;         /* messages go before the HELLO if the round trip is longer [5 ms] */
    rs_time use_bound;         /* an unproven one that has not been in use by then is closed [10 s] */
    rs_time dead_timeout;      /* sent bytes unacknowledged, or output not taken, this long [5 s] */
} rs_control_options;

/* Listens. NULL and the reason in `error` (RS_CONNECTION_TEXT bytes). */
rs_control *rs_control_new(const rs_control_options *options, const rs_control_callbacks *callbacks, char *error);
/* Closes everything; no callbacks. */
void rs_control_free(rs_control *control);

/* Something must go to that peer: connects, now or when its address is known. */
void rs_control_want(rs_control *control, rs_peer peer);
/* Its address became known. */
void rs_control_address_known(rs_control *control, rs_peer peer);
/* Something of that peer's is under way: its connections are of use, also when it is over before anybody looks. */
void rs_control_used(rs_control *control, rs_peer peer);
bool rs_control_is_up(const rs_control *control, rs_peer peer);
/* What its HELLO says it knows (`engines`); UINT32_MAX: it is not up, or has not said it yet. */
uint32_t rs_control_knows(const rs_control *control, rs_peer peer);
/* The least that was measured on its newest connection; 0: nothing was. */
uint32_t rs_control_round_trip_us(const rs_control *control, rs_peer peer);
/* Where its connection comes from, host order; 0: it is not up. */
uint32_t rs_control_address(const rs_control *control, rs_peer peer);
/* False: the peer is not up (any more); peer_down was called. */
bool rs_control_send(rs_control *control, rs_peer peer, const uint8_t *header, size_t header_length,
                     const rs_connection_payload *payload);
/* Bytes that wait to be sent, of all connections. */
size_t rs_control_waiting(const rs_control *control);

rs_time rs_control_deadline(const rs_control *control);
void rs_control_timeout(rs_control *control);

typedef struct {
    uint64_t accepted, opened, refused, broken, malformed;
    uint64_t evicted;   /* for others who needed the place */
    uint64_t unreached; /* attempts to connect that came to nothing, with all their knocks */
    uint64_t knocked;   /* further attempts to connect, because nothing answered soon */
    uint32_t connections;
} rs_control_stats;
rs_control_stats rs_control_stats_get(const rs_control *control);

#endif
