/* Rings and memory of an AF_XDP socket, by the kernel's own interface (linux/if_xdp.h). */
#include "io/xdp_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/io.h"

#define CHUNK_SMALL 2048u
#define CHUNK_LARGE 4096u
#define SEND_BYTES (4u << 20)
#define CHUNKS_MIN 64u
#define QUEUE_TRIES 200
#define QUEUE_PAUSE_US 5000

uint32_t rs_xdp_ready(const rs_xdp_ring *ring) {
    return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - *ring->consumer;
}

uint32_t rs_xdp_pending(const rs_xdp_ring *ring) {
    return *ring->producer - __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
}

static uint32_t power_of_two(uint32_t at_least) {
    uint32_t size = 1;
    while (size < at_least)
        size *= 2;
    return size;
}

static bool failed(char *error, const char *interface, const char *what) {
    int cause = errno;
    if (cause == EPERM)
        snprintf(error, RS_IO_ERROR_MAX, "AF_XDP on %s: %s: CAP_NET_RAW, or root, is needed", interface, what);
    else if (cause == EBUSY)
        snprintf(error, RS_IO_ERROR_MAX, "AF_XDP on %s: %s: another program uses its queue 0", interface, what);
    else if (cause == EINVAL || cause == EOPNOTSUPP || cause == EAFNOSUPPORT)
        snprintf(error, RS_IO_ERROR_MAX,
                 "AF_XDP on %s: %s: this kernel or driver cannot (%s; frames of several pieces need Linux 6.6)",
                 interface, what, strerror(cause));
    else
        snprintf(error, RS_IO_ERROR_MAX, "AF_XDP on %s: %s: %s", interface, what, strerror(cause));
    return false;
}

static bool make_memory(rs_xdp_socket *xdp) {
    size_t bytes = (size_t)(xdp->receive_chunks + xdp->send_chunks) * xdp->chunk;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    xdp->memory = memory;
    xdp->unused = malloc(xdp->send_chunks * sizeof *xdp->unused);
    if (!xdp->unused)
        return false;
    for (uint32_t i = 0; i < xdp->send_chunks; i++)
        xdp->unused[i] = (uint64_t)(xdp->receive_chunks + i) * xdp->chunk;
    xdp->unused_count = xdp->send_chunks;
    struct xdp_umem_reg region = {.addr = (uintptr_t)memory, .len = bytes, .chunk_size = xdp->chunk};
    return setsockopt(xdp->fd, SOL_XDP, XDP_UMEM_REG, &region, sizeof region) == 0;
}

static bool map_ring(rs_xdp_ring *ring, int fd, const struct xdp_ring_offset *at, size_t entry_bytes, off_t page) {
    ring->mask = ring->size - 1;
    ring->map_bytes = at->desc + ring->size * entry_bytes;
    void *map = mmap(NULL, ring->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);
    if (map == MAP_FAILED)
        return false;
    uint8_t *start = map;
    ring->map = map;
    ring->producer = (void *)(start + at->producer);
    ring->consumer = (void *)(start + at->consumer);
    ring->flags = (void *)(start + at->flags);
    ring->entries = start + at->desc;
    return true;
}

static bool make_rings(rs_xdp_socket *xdp) {
    const struct {
        rs_xdp_ring *ring;
        int option;
        uint32_t entries;
    } wanted[] = {{&xdp->fill, XDP_UMEM_FILL_RING, xdp->receive_chunks},
                  {&xdp->completion, XDP_UMEM_COMPLETION_RING, xdp->send_chunks},
                  {&xdp->receive, XDP_RX_RING, xdp->receive_chunks},
                  {&xdp->send, XDP_TX_RING, xdp->send_chunks}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        rs_xdp_ring *ring = wanted[i].ring;
        ring->size = power_of_two(wanted[i].entries);
        if (setsockopt(xdp->fd, SOL_XDP, wanted[i].option, &ring->size, sizeof ring->size) != 0)
            return false;
    }
    struct xdp_mmap_offsets at;
    socklen_t length = sizeof at;
    if (getsockopt(xdp->fd, SOL_XDP, XDP_MMAP_OFFSETS, &at, &length) != 0)
        return false;
    if (length != sizeof at) { /* Linux before 5.4 has no flags in its rings */
        errno = EOPNOTSUPP;
        return false;
    }
    return map_ring(&xdp->fill, xdp->fd, &at.fr, sizeof(uint64_t), (off_t)XDP_UMEM_PGOFF_FILL_RING) &&
           map_ring(&xdp->completion, xdp->fd, &at.cr, sizeof(uint64_t), (off_t)XDP_UMEM_PGOFF_COMPLETION_RING) &&
           map_ring(&xdp->receive, xdp->fd, &at.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING) &&
           map_ring(&xdp->send, xdp->fd, &at.tx, sizeof(struct xdp_desc), (off_t)XDP_PGOFF_TX_RING);
}

/* Chunks such that a frame takes as few as possible, and so many of them that `receive_bytes` can wait. */
static void plan(rs_xdp_socket *xdp, uint32_t frame_bytes, uint32_t receive_bytes) {
    xdp->chunk = frame_bytes <= CHUNK_SMALL - RS_XDP_HEADROOM ? CHUNK_SMALL : CHUNK_LARGE;
    uint32_t room = xdp->chunk - RS_XDP_HEADROOM, segments = (frame_bytes + room - 1) / room;
    uint64_t chunks = (uint64_t)receive_bytes * segments / frame_bytes;
    uint32_t most = (RS_XDP_MEMORY - SEND_BYTES) / xdp->chunk;
    xdp->receive_chunks = chunks > most ? most : (chunks < CHUNKS_MIN ? CHUNKS_MIN : (uint32_t)chunks);
    xdp->send_chunks = SEND_BYTES / xdp->chunk;
}

/* The kernel gives a queue free some time after its last socket was closed: it is asked for that long. */
static bool take_queue(int fd, unsigned interface_index, bool pieces) {
    const struct sockaddr_xdp address = {.sxdp_family = AF_XDP,
                                         .sxdp_flags =
                                             (uint16_t)(XDP_COPY | XDP_USE_NEED_WAKEUP | (pieces ? XDP_USE_SG : 0)),
                                         .sxdp_ifindex = interface_index};
    for (int tries = 1; bind(fd, (const struct sockaddr *)&address, sizeof address) != 0; tries++) {
        if (errno != EBUSY || tries == QUEUE_TRIES)
            return false;
        usleep(QUEUE_PAUSE_US);
    }
    return true;
}

bool rs_xdp_socket_open(rs_xdp_socket *xdp, const char *interface, unsigned interface_index, uint32_t frame_bytes,
                        uint32_t receive_bytes, char *error) {
    *xdp = (rs_xdp_socket){.fd = -1};
    plan(xdp, frame_bytes, receive_bytes);
    bool pieces = frame_bytes > xdp->chunk - RS_XDP_HEADROOM;
    if (frame_bytes > RS_XDP_SEGMENTS_MAX * (xdp->chunk - RS_XDP_HEADROOM)) {
        snprintf(error, RS_IO_ERROR_MAX, "AF_XDP takes no frames of %u bytes: use --mtu 9000", frame_bytes);
        return false;
    }
    xdp->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (xdp->fd < 0)
        return failed(error, interface, "no socket");
    if (!make_memory(xdp))
        return failed(error, interface, "no packet memory");
    if (!make_rings(xdp))
        return failed(error, interface, "no rings");
    if (!take_queue(xdp->fd, interface_index, pieces))
        return failed(error, interface, "no queue");
    for (uint32_t i = 0; i < xdp->receive_chunks; i++)
        rs_xdp_refill(xdp, (uint64_t)i * xdp->chunk);
    return true;
}

void rs_xdp_socket_close(rs_xdp_socket *xdp) {
    rs_xdp_ring *const rings[] = {&xdp->fill, &xdp->completion, &xdp->receive, &xdp->send};
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++)
        if (rings[i]->map)
            munmap(rings[i]->map, rings[i]->map_bytes);
    if (xdp->fd >= 0)
        close(xdp->fd);
    if (xdp->memory)
        munmap(xdp->memory, (size_t)(xdp->receive_chunks + xdp->send_chunks) * xdp->chunk);
    free(xdp->unused);
    *xdp = (rs_xdp_socket){.fd = -1};
}

void rs_xdp_reclaim(rs_xdp_socket *xdp) {
    uint32_t ready = rs_xdp_ready(&xdp->completion);
    for (uint32_t i = 0; i < ready && xdp->unused_count < xdp->send_chunks; i++)
        xdp->unused[xdp->unused_count++] = *rs_xdp_address(&xdp->completion, *xdp->completion.consumer + i);
    rs_xdp_advance(xdp->completion.consumer, ready);
}

/* One call takes 32 descriptors (TX_BATCH_SIZE). A NIC that takes nothing ends it. */
void rs_xdp_kick(rs_xdp_socket *xdp) {
    uint32_t pending = rs_xdp_pending(&xdp->send);
    while (pending > 0) {
        (void)sendto(xdp->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
        uint32_t left = rs_xdp_pending(&xdp->send);
        if (left == pending)
            break;
        pending = left;
    }
}

void rs_xdp_refill(rs_xdp_socket *xdp, uint64_t address) {
    *rs_xdp_address(&xdp->fill, *xdp->fill.producer) = address - address % xdp->chunk;
    rs_xdp_advance(xdp->fill.producer, 1);
}

uint64_t rs_xdp_dropped(const rs_xdp_socket *xdp) {
    struct xdp_statistics counts = {0};
    socklen_t length = sizeof counts;
    if (getsockopt(xdp->fd, SOL_XDP, XDP_STATISTICS, &counts, &length) != 0)
        return 0;
    return counts.rx_dropped + counts.rx_ring_full;
}
