/* The data channel: groups sent to and received from, batches, and how often the socket is looked at. */
#ifndef RS_DAEMON_DATA_H
#define RS_DAEMON_DATA_H

#include "core/base/types.h"
#include "daemon/loop.h"
#include "io/io.h"

typedef struct rs_data rs_data;

typedef struct {
    void *context;
    /* As in rs_io_sink. */
    bool (*predict)(void *context, rs_group group, uint32_t ahead, uint8_t **place, uint32_t *length);
    uint8_t *(*deliver)(void *context, rs_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length);
    /* Every payload delivered since the last call is in its place. */
    void (*delivered)(void *context);
    /* The socket dropped that many more datagrams of a group. */
    void (*dropped)(void *context, rs_group group, uint64_t count);
    /* The newest datagram delivered of a group had waited so long in this host; 0: not known. */
    void (*waited)(void *context, rs_group group, rs_time time);
    /* The payload of a packet of this transfer cannot be read: its file was shortened. */
    void (*unreadable)(void *context, rs_xfer xfer);
} rs_data_callbacks;

/* Takes `io` over, also when it fails (NULL: out of memory). */
rs_data *rs_data_new(rs_loop *loop, rs_io *io, const rs_data_callbacks *callbacks);
void rs_data_free(rs_data *data);

/* A number for address:port, to send to; each call needs an rs_data_unuse. RS_NO_GROUP: no room. */
rs_group rs_data_use(rs_data *data, uint32_t address, uint16_t port);
void rs_data_unuse(rs_data *data, rs_group group);
/* The same, to receive from; transfers on one address share a membership. RS_NO_GROUP with the reason in `error`
 * (RS_IO_ERROR_MAX bytes). */
rs_group rs_data_join(rs_data *data, uint32_t address, uint16_t port, char *error);
void rs_data_leave(rs_data *data, rs_group group);
/* Where multicast does not get through, the group's packets go from server to server (docs/lan.md).
 * They come by unicast too, to this host's `here`:`port`, as if by the group; what comes by unicast, or else by the
 * group (`by_unicast`), is handed on to whom rs_data_relay_to names. False with the reason: as rs_data_join. */
bool rs_data_relay(rs_data *data, uint32_t address, uint16_t port, uint32_t here, uint16_t here_port, bool by_unicast,
                   char *error);
/* address 0: to nobody. */
void rs_data_relay_to(rs_data *data, uint32_t address, uint16_t port, uint32_t next, uint16_t next_port);
void rs_data_relay_end(rs_data *data, uint32_t address, uint16_t port);
/* What is sent to the group goes to that host instead; 0: to the group again. */
void rs_data_redirect(rs_data *data, rs_group group, uint32_t host, uint16_t port);
/* Packets handed on, and those that found no room. */
void rs_data_relayed(const rs_data *data, uint64_t *packets, uint64_t *lost);
/* Of the back end: rs_io_stats_get. */
rs_io_stats rs_data_io_stats(const rs_data *data);
bool rs_data_marked(const rs_data *data); /* a switch marked the datagram that is being delivered (ECN) */
bool rs_data_late(const rs_data *data);   /* and it may be a copy of one that came before (rs_io_late) */
/* Bytes of datagrams that may wait for the group before any is dropped; 0 = not joined. */
uint64_t rs_data_room(const rs_data *data, rs_group group);

/* Where to put the next packet to send; NULL while the NIC takes no more. Filled, it goes out by rs_data_push;
 * without, it is used again. */
rs_packet_out *rs_data_slot(rs_data *data);
/* `payload` is where the packet's payload lies, until rs_data_flush returns with nothing waiting or rs_data_forget. */
void rs_data_push(rs_data *data, const uint8_t *payload);
/* Room for a payload of the packet being filled that lies nowhere yet: RS_FRAGMENT_MAX bytes, until it was sent. */
uint8_t *rs_data_payload_room(rs_data *data);
void rs_data_flush(rs_data *data);
/* A transfer's memory goes away: what waits of it is not sent. */
void rs_data_forget(rs_data *data, rs_xfer xfer);
/* Packets wait for the NIC. */
bool rs_data_blocked(const rs_data *data);

rs_time rs_data_due(const rs_data *data);
void rs_data_timeout(rs_data *data);

#endif
