/* What user programs and the kernel's netmap module share (netmap(4), API versions 14 and 15): requests, rings, slots.
 * Declared here so that the agent is built with it everywhere; netmap_check.c compares with the system's header where
 * there is one. Only what back end `netmap` uses has a name. */
#ifndef RS_IO_NETMAP_ABI_H
#define RS_IO_NETMAP_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/types.h>

#define RS_NM_API 14u
#define RS_NM_DEVICE "/dev/netmap"

/* A packet buffer by its index. */
typedef struct {
    uint32_t buffer;
    uint16_t length;
    uint16_t flags;
    uint64_t pointer;
} rs_nm_slot;

#define RS_NM_BUFFER_CHANGED 0x0001u /* another buffer was put into the slot */
#define RS_NM_MORE_FRAGMENTS 0x0020u /* the packet goes on in the next slot */

/* Slots [head, tail) are the program's: full ones when receiving, free ones when sending. It gives them back by moving
 * head; cur is where it wants to be woken. The kernel looks at a ring only in a call of the program. */
typedef struct {
    int64_t buffers; /* offset of the buffers from this ring */
    uint32_t slot_count, buffer_bytes;
    uint16_t number, direction;
    uint32_t head, cur, tail;
    uint32_t flags;
    struct timeval time;
    uint64_t offset_mask, alignment;
    _Alignas(128) uint8_t opaque[128];
    rs_nm_slot slots[];
} rs_nm_ring;

/* Where a port's rings are: NIC transmit, host transmit, NIC receive, host receive, as offsets from here. */
typedef struct {
    char name[16];
    uint32_t version, flags;
    uint32_t transmit_rings, receive_rings;
    uint32_t extra_buffers;
    uint32_t host_transmit_rings, host_receive_rings; /* 0 of older modules means 1 */
    uint32_t spare[3];
    ssize_t rings[];
} rs_nm_interface;

typedef struct {
    uint16_t version, type;
    uint32_t reserved;
    char name[64];
    uint64_t options;
    uint64_t body; /* address of a rs_nm_register */
} rs_nm_request;

#define RS_NM_REQUEST_REGISTER 1u

typedef struct {
    uint64_t interface; /* offset of the rs_nm_interface in the shared memory */
    uint64_t memory_bytes;
    uint32_t transmit_slots, receive_slots;
    uint16_t transmit_rings, receive_rings, host_transmit_rings, host_receive_rings;
    uint16_t memory, ring; /* number of the memory region */
    uint32_t mode;
    uint32_t extra_buffers;
    uint64_t flags;
} rs_nm_register;

enum { RS_NM_ALL_NIC = 1, RS_NM_HOST = 2 }; /* modes: which rings */
#define RS_NM_EXCLUSIVE 0x800u

#define RS_NM_CONTROL _IOWR('i', 151, rs_nm_request)
#define RS_NM_SYNC_TRANSMIT _IO('i', 148)
#define RS_NM_SYNC_RECEIVE _IO('i', 149)

_Static_assert(sizeof(rs_nm_slot) == 16, "netmap slot");
_Static_assert(offsetof(rs_nm_slot, length) == 4 && offsetof(rs_nm_slot, flags) == 6, "netmap slot");
_Static_assert(sizeof(rs_nm_ring) == 256 && offsetof(rs_nm_ring, slots) == 256, "netmap ring");
_Static_assert(offsetof(rs_nm_ring, slot_count) == 8 && offsetof(rs_nm_ring, buffer_bytes) == 12, "netmap ring");
_Static_assert(offsetof(rs_nm_ring, head) == 20 && offsetof(rs_nm_ring, cur) == 24, "netmap ring");
_Static_assert(offsetof(rs_nm_ring, tail) == 28 && offsetof(rs_nm_ring, flags) == 32, "netmap ring");
_Static_assert(offsetof(rs_nm_interface, transmit_rings) == 24, "netmap interface");
_Static_assert(offsetof(rs_nm_interface, host_transmit_rings) == 36, "netmap interface");
_Static_assert(sizeof(rs_nm_interface) == 56 && offsetof(rs_nm_interface, rings) == 56, "netmap interface");
_Static_assert(sizeof(rs_nm_request) == 88 && offsetof(rs_nm_request, body) == 80, "netmap request");
_Static_assert(sizeof(rs_nm_register) == 56 && offsetof(rs_nm_register, memory) == 32, "netmap register");
_Static_assert(offsetof(rs_nm_register, mode) == 36 && offsetof(rs_nm_register, flags) == 48, "netmap register");
_Static_assert(RS_NM_CONTROL == 0xc0586997u, "netmap ioctl");
_Static_assert(RS_NM_SYNC_TRANSMIT == 0x6994u && RS_NM_SYNC_RECEIVE == 0x6995u, "netmap ioctl");

static inline rs_nm_ring *rs_nm_ring_at(rs_nm_interface *interface, uint32_t index) {
    return (rs_nm_ring *)(void *)((uint8_t *)interface + interface->rings[index]);
}

static inline uint8_t *rs_nm_buffer(rs_nm_ring *ring, const rs_nm_slot *slot) {
    return (uint8_t *)ring + ring->buffers + (uint64_t)slot->buffer * ring->buffer_bytes;
}

static inline uint32_t rs_nm_next(const rs_nm_ring *ring, uint32_t slot) {
    return slot + 1 == ring->slot_count ? 0 : slot + 1;
}

#endif
