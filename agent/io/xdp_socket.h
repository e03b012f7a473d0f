/* An AF_XDP socket: its packet memory (UMEM) and its four rings. Memory is cut into chunks; a frame longer than one
 * lies in several. */
#ifndef RS_IO_XDP_SOCKET_H
#define RS_IO_XDP_SOCKET_H

#include <linux/if_xdp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of Linux 6.6, newer than Debian 12's headers. */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0) /* the frame goes on in the next descriptor */
#endif

#define RS_XDP_HEADROOM 256u      /* of each received chunk, the kernel's */
#define RS_XDP_SEGMENTS_MAX 18u   /* chunks of one frame: MAX_SKB_FRAGS and the first */
#define RS_XDP_MEMORY (28u << 20) /* most bytes of packet memory */

/* A ring shared with the kernel: one side produces, the other consumes. */
typedef struct {
    uint32_t *producer, *consumer, *flags;
    void *entries;
    uint32_t size, mask;
    void *map;
    size_t map_bytes;
} rs_xdp_ring;

typedef struct {
    int fd;
    uint8_t *memory;
    uint32_t chunk;                       /* bytes */
    uint32_t receive_chunks, send_chunks; /* those for receiving come first in memory */
    rs_xdp_ring fill, completion, receive, send;
    uint64_t *unused; /* chunks for sending that are free */
    uint32_t unused_count;
} rs_xdp_socket;

/* Opens on queue 0 of the interface, in copy mode, for frames of at most `frame_bytes`. About `receive_bytes` of
 * payload can wait. False with the reason in `error`; rs_xdp_socket_close either way. */
bool rs_xdp_socket_open(rs_xdp_socket *xdp, const char *interface, unsigned interface_index, uint32_t frame_bytes,
                        uint32_t receive_bytes, char *error);
void rs_xdp_socket_close(rs_xdp_socket *xdp);

/* Descriptors (or addresses) the kernel produced that are not consumed. */
uint32_t rs_xdp_ready(const rs_xdp_ring *ring);
/* Those we produced that the kernel has not consumed. */
uint32_t rs_xdp_pending(const rs_xdp_ring *ring);

static inline struct xdp_desc *rs_xdp_descriptor(const rs_xdp_ring *ring, uint32_t index) {
    return &((struct xdp_desc *)ring->entries)[index & ring->mask];
}

static inline uint64_t *rs_xdp_address(const rs_xdp_ring *ring, uint32_t index) {
    return &((uint64_t *)ring->entries)[index & ring->mask];
}

/* Publishes what was written to, or read from, a ring. */
static inline void rs_xdp_advance(uint32_t *pointer, uint32_t count) {
    __atomic_store_n(pointer, *pointer + count, __ATOMIC_RELEASE);
}

/* Chunks whose frames the NIC is done with are free again. */
void rs_xdp_reclaim(rs_xdp_socket *xdp);
/* Makes the kernel send what was produced. */
void rs_xdp_kick(rs_xdp_socket *xdp);
/* Gives chunks that were received into back to the kernel. */
void rs_xdp_refill(rs_xdp_socket *xdp, uint64_t address);
/* Frames the socket had no room for, since it was opened. */
uint64_t rs_xdp_dropped(const rs_xdp_socket *xdp);

#endif
