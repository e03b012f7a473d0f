/* The manager's end of a link, for tests: a listening socket on loopback, and calls of service Agent as frames. */
#ifndef RS_TEST_LINK_PEER_H
#define RS_TEST_LINK_PEER_H

#include "daemon/link.h"

#include <glib-object.h>

#include "rostrum_agent.h"
#include "rostrum_manager.h"

typedef struct {
    int listener;
    int fd; /* the accepted connection, -1 = none */
    uint16_t port;
} link_peer;

/* `port` 0: any. Fails the test when it cannot listen. */
void link_peer_listen(link_peer *peer, uint16_t port);
void link_peer_accept(link_peer *peer); /* waits up to 10 s */
void link_peer_hang_up(link_peer *peer);
void link_peer_close(link_peer *peer);
void link_peer_send(link_peer *peer, const void *bytes, size_t length);
/* One frame from the agent (at most 1 MiB, from malloc), waiting up to 10 s; false at the end of the stream. */
bool link_peer_read(link_peer *peer, uint8_t **frame, size_t *length);

/* A frame (with its length prefix) of one Agent call. */
GByteArray *link_frame_welcome(const char *manager);
GByteArray *link_frame_goodbye(const char *reason);
GByteArray *link_frame_response(const rostrumPathResponse *response);
GByteArray *link_frame_moved(const char *response_id, rostrumPathKind kind, const char *reason);
GByteArray *link_frame_failed(const char *response_id, const char *reason);
GByteArray *link_frame_light(const char *response_id);
GByteArray *link_frame_view(const rostrumOverlayView *view);
GByteArray *link_frame_group_view(const GPtrArray *peers, const GPtrArray *views);
/* A response that grants a circuit with two receivers; change what the test is about. */
rostrumPathResponse *link_granting(const char *request_id, const char *response_id);

/* Decodes a Manager call; `args` is the generated struct of its arguments (unref it). Anything else fails the test. */
char *link_call_decode(const uint8_t *frame, size_t length, ThriftStruct **args);

#endif
