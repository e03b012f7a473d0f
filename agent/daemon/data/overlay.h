/* RDCM in the agent: packets between peers, views of backup overlays from the manager to the core, and what the core
 * finds out about peers and links to the manager. */
#ifndef RS_DAEMON_OVERLAY_H
#define RS_DAEMON_OVERLAY_H

#include "core/transfer/node.h"
#include "daemon/manager/client.h"

typedef struct rs_agent rs_agent;
typedef struct rs_overlay rs_overlay;

/* What comes to the port for packets between peers; all are given. */
typedef struct {
    void *context;
    /* Datagrams wait. False: they are to wait on, for other sockets are read first. */
    bool (*ready)(void *context);
    /* So many of them were read; `all`: no more wait. */
    void (*read)(void *context, unsigned count, bool all);
    /* One from that address. True: it was for somebody else than the core. */
    bool (*datagram)(void *context, uint32_t source, const uint8_t *bytes, size_t length);
    /* Of the core's transfers, from a peer. False: of none with that peer. */
    bool (*packet)(void *context, rs_peer peer, const uint8_t *header, size_t header_length, const uint8_t *payload,
                   uint32_t payload_length);
} rs_overlay_callbacks;

/* NULL with the reason in the log. */
rs_overlay *rs_overlay_new(rs_agent *agent, const rs_overlay_callbacks *callbacks);
void rs_overlay_free(rs_overlay *overlay);

void rs_overlay_view(void *agent, const rs_manager_view *view); /* on_view of the link */
/* A transfer of that object began here, by the path of that group: a view that came before it is handed in. */
void rs_overlay_transfer(rs_overlay *overlay, rs_xfer xfer, const rs_object_id *id, uint32_t group);
void rs_overlay_transfer_over(rs_overlay *overlay, rs_xfer xfer);
/* RS_EV_VIEW_USED, RS_EV_RECEIVER_FAILED, RS_EV_LINK_SUSPECTED, RS_EV_LINK_WORKS. */
void rs_overlay_event(rs_overlay *overlay, const rs_event *event);
void rs_overlay_send(rs_overlay *overlay, const rs_packet_out *out, const uint8_t *payload);
rs_time rs_overlay_waited(const rs_overlay *overlay); /* the datagram that is being given, until it was read */
bool rs_overlay_marked(const rs_overlay *overlay);    /* a switch marked the datagram that is being given (ECN) */
/* Any datagram to an agent's port for packets between peers; `rest` must not change until rs_overlay_flush. */
void rs_overlay_send_bytes(rs_overlay *overlay, const char *server, uint32_t address, uint16_t port,
                           const uint8_t *head, size_t head_length, const uint8_t *rest, size_t rest_length);
/* Where peers are reached, for the core: the manager told of receivers, a sender of those near (REPORT_TO). */
rs_directory rs_overlay_directory(rs_agent *agent);
void rs_overlay_flush(rs_overlay *overlay);

#endif
