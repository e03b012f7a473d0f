/* A receive ring of an AF_PACKET socket (TPACKET_V3): blocks the kernel fills with packets and then hands over. */
#ifndef RS_IO_PACKET_RING_H
#define RS_IO_PACKET_RING_H

#include "io/frame.h"
#include "io/interface.h"
#include "io/members.h"

#define RS_PACKET_BLOCK_BYTES (128u << 10) /* at 1 Gb/s one is full after a millisecond; a joined frame has 64 KB */
/* One that is not full is handed over after so long: a latency, but a ring of blocks that hold little is soon full. */
#define RS_PACKET_BLOCK_MS 2

typedef struct {
    int fd; /* readable when a block is ours */
    uint8_t *map;
    size_t bytes;
    uint32_t block_bytes, mtu;
    bool tells_joined;      /* the kernel says how joined datagrams are to be cut */
    unsigned blocks, block; /* in all, and the one that is next */
    uint32_t left, at; /* packets of that block not yet taken, and where the next one is in it; left 0: not begun */
    uint64_t bad;      /* packets that are no sound datagrams */
    uint64_t joined;   /* packets of joined datagrams of which it is not known how to cut them: lost */
    uint32_t meagre;   /* packets of the last block if time was up before it was full, else UINT32_MAX */
} rs_packet_ring;

/* One packet of the ring: as many datagrams as the kernel had put together, each but the last of `segment` bytes. */
typedef struct {
    rs_datagram datagram;
    uint32_t segment;
} rs_ring_packet;

/* This kernel's rings tell of joined datagrams how they are to be cut (Linux 6.2). Older ones lose them if they are
 * asked to tell, and give them uncut otherwise. */
bool rs_packet_ring_tells_joined(void);

/* A ring of at most `bytes` (at least two blocks) that receives nothing until rs_packet_filter_attach. False
 * with the reason in `error`; rs_packet_ring_close either way. */
bool rs_packet_ring_open(rs_packet_ring *ring, const rs_interface *interface, size_t bytes, bool tells_joined,
                         char *error);
void rs_packet_ring_close(rs_packet_ring *ring);

/* The packet that is next. False: none is ours. It stays valid until rs_packet_ring_take. */
bool rs_packet_ring_peek(rs_packet_ring *ring, rs_ring_packet *out);
/* Done with it. */
void rs_packet_ring_take(rs_packet_ring *ring);

/* Packets dropped for want of room since it was last asked. */
uint32_t rs_packet_ring_drops(const rs_packet_ring *ring);

#endif
