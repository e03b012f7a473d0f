/* One TCP connection of the control channel: bytes in, messages out; messages in, bytes out; bounded both ways. */
#ifndef RS_DAEMON_CONNECTION_H
#define RS_DAEMON_CONNECTION_H

#include "core/base/types.h"
#include "core/base/wire.h"
#include "daemon/loop.h"
#include "daemon/manager/tls.h"

#define RS_CONNECTION_HIGH (128u << 10) /* bytes waiting to be sent at which the core is told to stop */
#define RS_CONNECTION_LOW (32u << 10)   /* and at which it may go on */
#define RS_CONNECTIONS_HIGH (8u << 20)  /* bytes waiting on all at which one is stopped as soon as any wait on it */
#define RS_CONNECTION_OUT_MAX (RS_CONNECTION_HIGH + RS_PATCH_HEADER + RS_FRAGMENT_MAX)
#define RS_CONNECTION_IN_MAX (2u * (RS_PATCH_HEADER + RS_FRAGMENT_MAX))
#define RS_CONNECTION_TEXT 200

typedef enum {
    RS_CONNECTION_CONNECTING, /* outgoing, TCP is not there yet */
    RS_CONNECTION_GREETING,   /* our HELLO is out, theirs is awaited */
    RS_CONNECTION_UP
} rs_connection_phase;

typedef struct rs_connection {
    struct rs_connection *next, *previous;
    size_t counted; /* of `out_length`, in what waits on all */
    rs_watch watch;
    int fd;
    rs_tls *tls; /* NULL: plain */
    rs_connection_phase phase;
    bool outgoing;
    bool early;   /* outgoing: what goes to its peer goes by it from before the HELLO on, which said whom it is for */
    bool choked;  /* the core was told to stop */
    bool bulk;    /* patches are under way on it: by best effort, not as control */
    bool unheard; /* what was sent was never acknowledged: the kernel gave it up */
    bool shorter; /* its segments are (rs_pool_peer.shorter_until) */
    bool reading; /* a message of it is being looked at: it is closed behind that */
    bool used;    /* something besides connections held its peer while it was up */
    rs_peer peer; /* RS_NO_PEER until it has said its name */
    uint64_t boot;
    uint32_t knows; /* HELLO's engines */
    uint32_t remote_address;
    uint16_t remote_port;
    rs_time phase_since, last_activity;
    rs_time stalled_since; /* output waits and none went since; RS_NEVER = none waits */
    uint8_t *in, *out;
    size_t in_length, in_room;
    size_t out_start, out_length, out_room;
} rs_connection;

/* Where a message's payload lies: in a mapping, and in the file behind it for what the socket does not take at once
 * (a shortened file must not raise a signal here). */
typedef struct {
    const uint8_t *map;
    int fd; /* -1: none, the mapping is the agent's own */
    uint64_t offset;
    uint32_t length;
} rs_connection_payload;

/* All of these return false when the connection is broken; `text` (RS_CONNECTION_TEXT bytes) then says why. */

/* A socket of the control channel is marked RS_DSCP_CONTROL (io/datagrams.h), so that switches let its messages, few
 * and small, go before multicast; while payloads are under way it is not, as these are as large as objects. */
void rs_connection_mark_control(int fd);

/* Sends as much as the socket takes and keeps the rest. The caller stops at RS_CONNECTION_HIGH; what does not fit at
 * all breaks the connection. */
bool rs_connection_send(rs_connection *connection, rs_time now, const uint8_t *header, size_t header_length,
                        const rs_connection_payload *payload, char *text);
/* Sends what waits. By TLS it may wait for the other end's part of the handshake: call it after each read, too. */
bool rs_connection_flush(rs_connection *connection, rs_time now, char *text);

/* What is waited for: EPOLLIN, EPOLLOUT. */
uint32_t rs_connection_events(const rs_connection *connection);

/* A whole message: `payload_length` bytes at `payload`. False breaks the connection, with the reason. */
typedef bool (*rs_connection_message)(void *context, const uint8_t *header, size_t header_length,
                                      const uint8_t *payload, uint32_t payload_length, char *text);
/* Reads what has come, a bounded amount, and hands over whole messages. */
bool rs_connection_read(rs_connection *connection, rs_time now, rs_connection_message message, void *context,
                        char *text);

/* Frees the buffers, closes the descriptor (its watch must have ended) and frees the structure. */
void rs_connection_free(rs_connection *connection);

#endif
