/* Data channel over netmap rings. Datagrams to single hosts go to the kernel's stack, which knows the neighbours, and
 * come back by the host ring. */
#include "io/netmap.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/frame.h"
#include "io/guard.h"
#include "io/members.h"
#include "io/netmap_fits.h"
#include "io/netmap_port.h"
#include "io/sockets.h"

typedef struct {
    rs_sockets sockets; /* interface, counters, the socket for single hosts; its epoll watches the rings */
    rs_nm_port port;
    rs_members members;
    rs_frame_sender sender;
    uint64_t in_pieces;                    /* frames of more than one slot, refused */
    uint32_t sending, passing, forwarding; /* rings that were last used: towards NIC, kernel, NIC for the kernel */
    uint32_t reading;                      /* whose turn it is to be read first */
    bool guarded, inside_pieces[RS_NM_RINGS_MAX];
} netmap_io;

/* ------------------------------------------------------------------------------------------------------ the device */

static int device_open(const char *path) {
    return open(path, O_RDWR | O_CLOEXEC);
}

static int device_control(int fd, unsigned long request, void *argument) {
    return ioctl(fd, request, argument);
}

static void *device_map(size_t bytes, int fd) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static const rs_netmap_device kernel_device = {
    .open = device_open, .close = close, .control = device_control, .map = device_map, .unmap = munmap};

/* --------------------------------------------------------------------------------------------------------- opening */

/* Frames of the kernel's stack leave through our rings as they are: what it left to the NIC would stay undone. */
static void warn_of_offload(const netmap_io *io) {
    if (!rs_netmap_offloads(io->sockets.interface.name))
        return;
    char text[200];
    snprintf(text, sizeof text,
             "%s leaves checksums to the NIC, which netmap does not: the control channel may not work until ethtool -K "
             "%s tx off gso off tso off",
             io->sockets.interface.name, io->sockets.interface.name);
    rs_io_warn(&io->sockets.options, text);
}

static bool watch(netmap_io *io, int fd, char *error) {
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(io->sockets.epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return true;
    snprintf(error, RS_IO_ERROR_MAX, "cannot watch netmap's rings: %s", strerror(errno));
    return false;
}

static void netmap_close(rs_io *base) {
    netmap_io *io = (netmap_io *)base;
    rs_nm_port_close(&io->port);
    rs_members_free(&io->members);
    rs_sockets_close(&io->sockets);
    if (io->guarded)
        rs_guard_stop();
    free(io);
}

static bool open_parts(netmap_io *io, const rs_netmap_device *device, const rs_io_options *options, char *error) {
    if (!rs_sockets_open_frames(&io->sockets, options, &io->sender, error))
        return false;
    const rs_interface *interface = &io->sockets.interface;
    io->guarded = rs_guard_start();
    if (!io->guarded) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot set up netmap: %s", strerror(errno));
        return false;
    }
    if (!rs_nm_port_open(&io->port, device, interface->name, interface->mtu + RS_FRAME_ETHERNET, error) ||
        !watch(io, io->port.nic.fd, error) || !watch(io, io->port.host.fd, error))
        return false;
    warn_of_offload(io);
    return true;
}

rs_io *rs_netmap_open(const rs_netmap_device *device, const rs_io_options *options, char *error) {
    netmap_io *io = (netmap_io *)rs_sockets_new(sizeof *io, &rs_io_netmap, error);
    if (!io)
        return NULL;
    io->port.nic.fd = io->port.host.fd = -1;
    if (!open_parts(io, device, options, error)) {
        netmap_close(&io->sockets.base);
        return NULL;
    }
    return &io->sockets.base;
}

static rs_io *netmap_open(const rs_io_options *options, char *error) {
    return rs_netmap_open(&kernel_device, options, error);
}

/* --------------------------------------------------------------------------------------------------------- sending */

typedef enum { PLACED, FULL, UNREADABLE } placed;

/* Part of each ring is left to what the kernel sends, which so waits for a ring of frames at most. */
static placed place(netmap_io *io, const rs_io_packet *packet) {
    uint32_t datagram = packet->header_length + packet->payload_length, total = RS_FRAME_HEADERS + datagram;
    if (datagram > RS_IO_PAYLOAD_MAX || total > io->sockets.interface.mtu + RS_FRAME_ETHERNET) {
        rs_messages_failed(&io->sockets.log, EMSGSIZE, packet);
        return PLACED;
    }
    rs_nm_ring *ring = rs_nm_free_ring(&io->port, &io->port.nic, &io->sending, true);
    if (!ring)
        return FULL;
    rs_nm_slot *slot = &ring->slots[ring->head];
    uint8_t *frame = rs_nm_buffer(ring, slot), *data = frame + RS_FRAME_HEADERS;
    rs_frame_build(frame, &io->sender, packet->address, packet->port, datagram);
    rs_frame_no_checksum(frame);
    memcpy(data, packet->header, packet->header_length);
    if (packet->payload_length > 0 &&
        !rs_guard_copy(data + packet->header_length, packet->payload, packet->payload_length))
        return UNREADABLE;
    slot->length = (uint16_t)total;
    slot->flags = 0;
    ring->head = ring->cur = rs_nm_next(ring, ring->head);
    io->sockets.stats.packets_sent++;
    io->sockets.stats.bytes_sent += datagram;
    return PLACED;
}

static int netmap_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    netmap_io *io = (netmap_io *)base;
    int taken = 0;
    bool unreadable = false, full = false;
    for (; (unsigned)taken < count; taken++) {
        int sent;
        if (IN_MULTICAST(packets[taken].address)) {
            placed how = place(io, &packets[taken]);
            sent = how == UNREADABLE ? RS_IO_UNREADABLE : how == PLACED;
            full = how == FULL;
        } else {
            sent = rs_sockets_send(base, &packets[taken], 1);
        }
        unreadable = sent == RS_IO_UNREADABLE;
        if (sent <= 0)
            break;
    }
    rs_nm_sync(&io->port, &io->port.nic, RS_NM_SYNC_TRANSMIT);
    if (full)
        rs_nm_want_more(&io->port.nic);
    return taken == 0 && unreadable ? RS_IO_UNREADABLE : taken;
}

/* ------------------------------------------------------------------------------------------------------- receiving */

static bool netmap_join(rs_io *base, rs_io_group number, uint32_t address, uint16_t port, char *error) {
    netmap_io *io = (netmap_io *)base;
    return rs_members_add(&io->members, number, address, port, io->sockets.interface.index, io->sockets.options.address,
                          error) != NULL;
}

static void netmap_leave(rs_io *base, rs_io_group number) {
    netmap_io *io = (netmap_io *)base;
    rs_member *member = rs_members_number(&io->members, number);
    if (member)
        rs_members_remove(&io->members, member);
}

/* One copy, from the ring to where the payload belongs. False: it is none of a joined group's. */
static bool deliver(netmap_io *io, const uint8_t *frame, uint32_t length, const rs_io_sink *sink) {
    rs_datagram datagram;
    if (length < RS_FRAME_HEADERS || frame[12] != 0x08 || frame[13] != 0x00 ||
        !rs_frame_parse(frame + RS_FRAME_ETHERNET, length - RS_FRAME_ETHERNET, &datagram))
        return false;
    rs_member *member = rs_members_to(&io->members, datagram.address, datagram.port);
    if (!member)
        return false;
    uint32_t header = datagram.length < RS_IO_HEADER_BYTES ? datagram.length : RS_IO_HEADER_BYTES;
    uint32_t payload = datagram.length - header;
    io->sockets.stats.packets_received++;
    io->sockets.stats.bytes_received += datagram.length;
    uint8_t *target = sink->deliver(sink->context, member->number, datagram.data, header, payload);
    if (target && payload > 0 && rs_guard_copy(target, datagram.data + header, payload))
        io->sockets.stats.moved++;
    return true;
}

static void to_kernel(netmap_io *io, rs_nm_slot *slot) {
    rs_nm_ring *ring = rs_nm_free_ring(&io->port, &io->port.host, &io->passing, false);
    if (!ring) {
        io->sockets.stats.to_kernel_lost++;
        return;
    }
    rs_nm_pass_on(slot, ring);
    io->sockets.stats.to_kernel++;
}

/* A frame of several slots is longer than a buffer: none of ours, and the host ring would cut it. */
static bool in_pieces(netmap_io *io, uint32_t number, const rs_nm_slot *slot) {
    bool inside = io->inside_pieces[number], more = (slot->flags & RS_NM_MORE_FRAGMENTS) != 0;
    io->inside_pieces[number] = more;
    if (!inside && !more)
        return false;
    if (inside)
        return true;
    if (io->in_pieces++ == 0)
        rs_io_warn(&io->sockets.options,
                   "frames longer than netmap's buffers come in and are dropped: make buf_size larger, or turn off LRO "
                   "and GRO with ethtool");
    return true;
}

static unsigned read_ring(netmap_io *io, uint32_t number, unsigned limit, const rs_io_sink *sink) {
    rs_nm_ring *ring = io->port.nic.receive[number];
    unsigned total = 0;
    while (total < limit && ring->head != ring->tail) {
        rs_nm_slot *slot = &ring->slots[ring->head];
        if (in_pieces(io, number, slot) || slot->length > ring->buffer_bytes)
            slot->flags = 0;
        else if (deliver(io, rs_nm_buffer(ring, slot), slot->length, sink))
            total++;
        else
            to_kernel(io, slot);
        ring->head = ring->cur = rs_nm_next(ring, ring->head);
    }
    return total;
}

/* What the kernel sends. What finds no place stays in its ring, and the kernel waits or drops as for any full NIC. */
static bool forward(netmap_io *io, rs_nm_ring *from) {
    bool any = false;
    while (from->head != from->tail) {
        rs_nm_ring *ring = rs_nm_free_ring(&io->port, &io->port.nic, &io->forwarding, false);
        if (!ring)
            break;
        rs_nm_pass_on(&from->slots[from->head], ring);
        from->head = from->cur = rs_nm_next(from, from->head);
        io->sockets.stats.from_kernel++;
        any = true;
    }
    return any;
}

static int netmap_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    netmap_io *io = (netmap_io *)base;
    const rs_nm_side *nic = &io->port.nic, *host = &io->port.host;
    uint64_t passed = io->sockets.stats.to_kernel;
    unsigned total = 0;
    rs_nm_sync(&io->port, nic, RS_NM_SYNC_RECEIVE);
    for (uint32_t i = 0; i < nic->receive_count; i++)
        total += read_ring(io, (io->reading + i) % nic->receive_count, limit - total, sink);
    io->reading = (io->reading + 1) % nic->receive_count;
    rs_nm_sync(&io->port, nic, RS_NM_SYNC_RECEIVE); /* what was read is free for new frames at once */
    if (io->sockets.stats.to_kernel != passed)
        rs_nm_sync(&io->port, host, RS_NM_SYNC_TRANSMIT);
    rs_nm_sync(&io->port, host, RS_NM_SYNC_RECEIVE);
    bool any = false;
    for (uint32_t i = 0; i < host->receive_count; i++)
        any = forward(io, host->receive[i]) || any;
    if (any) {
        rs_nm_sync(&io->port, nic, RS_NM_SYNC_TRANSMIT);
        rs_nm_sync(&io->port, host, RS_NM_SYNC_RECEIVE);
    }
    return (int)total;
}

static int netmap_receive_fd(const rs_io *base) {
    return ((const netmap_io *)base)->sockets.epoll_fd;
}

static int netmap_send_fd(const rs_io *base) {
    return ((const netmap_io *)base)->port.nic.fd;
}

/* The NIC drops before netmap sees a frame; nothing tells of which group. Receivers see the gap. */
static uint64_t netmap_drops(const rs_io *base, rs_io_group number) {
    (void)base, (void)number;
    return 0;
}

/* A slot holds a frame, and one of a ring stays free. A NIC that spreads groups over rings may give one group one. */
static uint64_t netmap_receive_room(const rs_io *base, rs_io_group number) {
    const netmap_io *io = (const netmap_io *)base;
    const rs_nm_side *nic = &io->port.nic;
    uint32_t least = nic->receive_count > 0 ? nic->receive[0]->slot_count : 0;
    for (uint32_t i = 1; i < nic->receive_count; i++)
        least = nic->receive[i]->slot_count < least ? nic->receive[i]->slot_count : least;
    bool joined = rs_members_number(&io->members, number) != NULL;
    return joined && least > 0 ? (uint64_t)(least - 1) * io->sockets.interface.mtu : 0;
}

uint64_t rs_netmap_in_pieces(const rs_io *base) {
    return ((const netmap_io *)base)->in_pieces;
}

const rs_io_ops rs_io_netmap = {.name = "netmap",
                                .summary = "the NIC's own rings by the netmap kernel module (docs/netmap.md)",
                                .open = netmap_open,
                                .close = netmap_close,
                                .send = netmap_send,
                                .join = netmap_join,
                                .leave = netmap_leave,
                                .receive = netmap_receive,
                                .receive_fd = netmap_receive_fd,
                                .send_fd = netmap_send_fd,
                                .drops = netmap_drops,
                                .receive_room = netmap_receive_room,
                                .stats = rs_sockets_stats};
