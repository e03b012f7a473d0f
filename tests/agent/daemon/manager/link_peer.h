/* The manager's end of a link, for tests: a listening socket on loopback, and calls of service Agent as frames. */
#ifndef RS_TEST_LINK_PEER_H
#define RS_TEST_LINK_PEER_H

#include "daemon/manager/client.h"

#include "thrift_schema.h"

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
/* One frame from the agent (at most 2 MiB, from malloc), waiting up to 10 s; false at the end of the stream. */
bool link_peer_read(link_peer *peer, uint8_t **frame, size_t *length);

/* A frame with its length prefix, from malloc. */
typedef struct {
    uint8_t *data;
    size_t len;
} link_frame;

/* A call of service Agent. */
link_frame link_frame_of(uint32_t call, const void *args);
link_frame link_frame_welcome(const char *manager);
link_frame link_frame_goodbye(const char *reason);
link_frame link_frame_response(const rs_thrift_path_response *response);
link_frame link_frame_moved(const char *response_id, int32_t kind, const char *reason);
link_frame link_frame_failed(const char *response_id, const char *reason);
link_frame link_frame_alive(void);
link_frame link_frame_light(const char *response_id);
link_frame link_frame_view(const rs_thrift_overlay_view *view);
link_frame link_frame_group_view(const rs_thrift_group_peer *peers, uint32_t peer_count,
                                 const rs_thrift_group_view *views, uint32_t view_count);
/* A response that grants a circuit with two receivers, h3 and h5; change what the test is about. */
typedef struct {
    rs_thrift_path_response response;
    rs_thrift_server_address receivers[2];
} link_grant;
void link_granting(link_grant *grant, const char *request_id, const char *response_id);

/* Decodes a call of service Manager: its arguments, until link_args_free. Anything else fails the test. */
const void *link_call_decode(const uint8_t *frame, size_t length, const char *expected);
void link_args_free(const void *args);

#endif
