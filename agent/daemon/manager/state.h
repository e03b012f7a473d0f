/* The link's state, shared by link.c (its life and what comes in) and manager/calls.c (what goes out). */
#ifndef RS_DAEMON_LINK_STATE_H
#define RS_DAEMON_LINK_STATE_H

#include "daemon/manager/codec.h"
#include "daemon/manager/frames.h"
#include "daemon/manager/kept.h"

#define RS_LINK_WORDS 320

typedef enum {
    RS_LINK_STOPPED,    /* before rs_link_start */
    RS_LINK_WAITING,    /* for the next attempt to connect */
    RS_LINK_CONNECTING, /* the socket's connection */
    RS_LINK_SECURING,   /* TLS's handshake */
    RS_LINK_GREETING,   /* hello is out, the welcome not in */
    RS_LINK_UP
} rs_link_state;

struct rs_link {
    rs_link_options options;
    rs_link_callbacks callbacks;
    char *server;
    char manager[32]; /* address:port of the one connected to or tried, for words */
    struct sockaddr_in managers[1 + RS_LINK_STANDBYS_MAX];
    uint32_t manager_count, manager_index;
    rs_tls_identity *identity; /* NULL: no TLS */
    rs_frames frames;
    rs_link_state state;
    rs_time state_since;
    rs_time down_since;   /* start, or the end of the last time it was up */
    rs_time next_attempt; /* in RS_LINK_WAITING */
    rs_time backoff;
    rs_time lease; /* shortest heard on this connection */
    rs_time keepalive_at;
    uint32_t unanswered; /* keepalives since anything was heard */
    uint32_t alive_due;  /* answers to keepalives of this connection that are still to come */
    bool checking;       /* rs_link_confirm: when the last of them has come */
    uint64_t jitter;
    bool told_down; /* on_state(false) was called for this outage */
    bool broken;    /* the connection is of no use: close it at the next turn; `cause` says why */
    char cause[RS_LINK_WORDS];
    bool tls_cause; /* it is TLS's, and stays until somebody mends it */
    char told_cause[RS_LINK_WORDS];
    rs_time told_at; /* on_state(false), for the last time */
    int watched_fd;
    unsigned watched_wants;
    rs_link_pending_list pending;
    rs_link_kept kept;
    rs_link_stats stats;
};

/* The connection is of no use for the reason given; the first reason stays. Closed at the next turn. */
__attribute__((format(printf, 2, 3))) void rs_link_break(rs_link *link, const char *format, ...);
/* Into the output buffer; breaks the link when that is full. */
void rs_link_put(rs_link *link, rs_time now, const rs_link_frame *frame);
void rs_link_flush(rs_link *link, rs_time now);

#endif
