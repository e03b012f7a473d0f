/* A netmap port: the NIC's rings and the host's, opened, watched and closed together. */
#ifndef RS_IO_NETMAP_PORT_H
#define RS_IO_NETMAP_PORT_H

#include "io/netmap.h"
#include "io/netmap_abi.h"

#define RS_NM_RINGS_MAX 64u

/* Rings behind one descriptor. */
typedef struct {
    int fd;
    rs_nm_ring *transmit[RS_NM_RINGS_MAX], *receive[RS_NM_RINGS_MAX];
    uint32_t transmit_count, receive_count;
} rs_nm_side;

typedef struct {
    const rs_netmap_device *device;
    rs_nm_side nic, host;
    void *memory;
    size_t memory_bytes;
} rs_nm_port;

/* Takes the interface over. False with the reason in `error`: no module, no permission, no such interface, in use,
 * buffers smaller than `frame_bytes`; rs_nm_port_close either way. */
bool rs_nm_port_open(rs_nm_port *port, const rs_netmap_device *device, const char *interface, uint32_t frame_bytes,
                     char *error);
/* The kernel has its NIC back. */
void rs_nm_port_close(rs_nm_port *port);

/* Gives filled slots to the kernel and learns of free ones; or gives read ones back and learns of new frames. */
void rs_nm_sync(const rs_nm_port *port, const rs_nm_side *side, unsigned long direction);

/* A transmit ring with a free slot, `preferred` if it has one; NULL if none has. With `leave`, an eighth of each ring
 * does not count as free: it is left to others. */
rs_nm_ring *rs_nm_free_ring(const rs_nm_port *port, const rs_nm_side *side, uint32_t *preferred, bool leave);

/* What is free now is not enough: the descriptor becomes writable when more is. */
void rs_nm_want_more(const rs_nm_side *side);

/* Hands the frame of a received slot on without a copy: the two slots change buffers. */
void rs_nm_pass_on(rs_nm_slot *from, rs_nm_ring *to);

#endif
