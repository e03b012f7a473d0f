/* Data channel over an AF_XDP socket. Datagrams to single hosts go through an ordinary socket, which knows the
 * neighbours; those to groups need no neighbour. */
#include "io/xdp.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/frame.h"
#include "io/guard.h"
#include "io/members.h"
#include "io/sockets.h"
#include "io/xdp_program.h"
#include "io/xdp_socket.h"

typedef struct {
    rs_sockets sockets; /* interface, counters, and the socket for single hosts */
    rs_xdp_socket xdp;
    rs_xdp_program program;
    rs_members members;
    rs_frame_sender sender;
    int send_fd; /* the socket's second descriptor: whoever waits for both directions needs two */
    bool guarded;
    uint64_t dropped;
} xdp_io;

/* -------------------------------------------------------------------------------------------------------- opening */

/* Frames may come on any of a NIC's queues, and one is read. */
static bool check_queues(const rs_interface *interface, char *error) {
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    struct ifreq request = {.ifr_data = (void *)&channels};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface->name);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0;
    if (fd >= 0)
        close(fd);
    uint32_t queues = channels.rx_count + channels.combined_count;
    if (known && queues > 1)
        snprintf(error, RS_IO_ERROR_MAX, "%s spreads what comes over %u queues and xdp reads one: ethtool -L %s %s 1",
                 interface->name, queues, interface->name, channels.combined_count > 0 ? "combined" : "rx");
    return !known || queues <= 1;
}

static void xdp_close(rs_io *base) {
    xdp_io *io = (xdp_io *)base;
    rs_xdp_program_detach(&io->program);
    if (io->send_fd >= 0)
        close(io->send_fd);
    rs_xdp_socket_close(&io->xdp);
    rs_members_free(&io->members);
    rs_sockets_close(&io->sockets);
    if (io->guarded)
        rs_guard_stop();
    free(io);
}

static bool open_parts(xdp_io *io, const rs_io_options *options, char *error) {
    if (!rs_sockets_open_frames(&io->sockets, options, &io->sender, error))
        return false;
    const rs_interface *interface = &io->sockets.interface;
    uint32_t frame = interface->mtu + RS_FRAME_ETHERNET;
    if (!check_queues(interface, error) ||
        !rs_xdp_socket_open(&io->xdp, interface->name, interface->index, frame,
                            (uint32_t)io->sockets.options.receive_buffer, error) ||
        !rs_xdp_program_attach(&io->program, interface->name, interface->index, io->xdp.fd,
                               frame > io->xdp.chunk - RS_XDP_HEADROOM, error))
        return false;
    int size = io->sockets.options.send_buffer;
    (void)rs_socket_buffer(io->xdp.fd, SO_SNDBUFFORCE, SO_SNDBUF, size);
    io->send_fd = dup(io->xdp.fd);
    io->guarded = rs_guard_start();
    if (io->send_fd < 0 || !io->guarded)
        snprintf(error, RS_IO_ERROR_MAX, "cannot set up AF_XDP: %s", strerror(errno));
    return io->send_fd >= 0 && io->guarded;
}

static rs_io *xdp_open(const rs_io_options *options, char *error) {
    xdp_io *io = (xdp_io *)rs_sockets_new(sizeof *io, &rs_io_xdp, error);
    if (!io)
        return NULL;
    io->send_fd = io->xdp.fd = -1;
    io->program = (rs_xdp_program){-1, -1, -1, -1};
    if (!open_parts(io, options, error)) {
        xdp_close(&io->sockets.base);
        return NULL;
    }
    return &io->sockets.base;
}

/* -------------------------------------------------------------------------------------------------------- sending */

typedef enum { PLACED, FULL, UNREADABLE } placed;

/* Headers and payload into chunks, which a run of descriptors names. */
static placed place(xdp_io *io, const rs_io_packet *packet) {
    rs_xdp_socket *xdp = &io->xdp;
    uint32_t datagram = packet->header_length + packet->payload_length;
    uint32_t total = RS_FRAME_HEADERS + datagram, segments = (total + xdp->chunk - 1) / xdp->chunk;
    if (datagram > RS_IO_PAYLOAD_MAX || total > io->sockets.interface.mtu + RS_FRAME_ETHERNET) {
        rs_messages_failed(&io->sockets.log, EMSGSIZE, packet);
        return PLACED;
    }
    if (segments > xdp->unused_count)
        return FULL;
    uint32_t start = *xdp->send.producer, done = 0;
    for (uint32_t i = 0; i < segments; i++) {
        uint64_t address = xdp->unused[xdp->unused_count - 1 - i];
        uint8_t *chunk = xdp->memory + address;
        uint32_t length = 0, room = total - i * xdp->chunk < xdp->chunk ? total - i * xdp->chunk : xdp->chunk;
        if (i == 0) {
            rs_frame_build(chunk, &io->sender, packet->address, packet->port, datagram);
            rs_frame_no_checksum(chunk);
            memcpy(chunk + RS_FRAME_HEADERS, packet->header, packet->header_length);
            length = RS_FRAME_HEADERS + packet->header_length;
        }
        if (room > length && !rs_guard_copy(chunk + length, packet->payload + done, room - length))
            return UNREADABLE;
        done += room - length;
        *rs_xdp_descriptor(&xdp->send, start + i) =
            (struct xdp_desc){.addr = address, .len = room, .options = i + 1 < segments ? XDP_PKT_CONTD : 0};
    }
    xdp->unused_count -= segments;
    rs_xdp_advance(xdp->send.producer, segments);
    io->sockets.stats.packets_sent++;
    io->sockets.stats.bytes_sent += datagram;
    return PLACED;
}

static int send_one(xdp_io *io, const rs_io_packet *packet) {
    if (!IN_MULTICAST(packet->address))
        return rs_sockets_send(&io->sockets.base, packet, 1);
    placed how = place(io, packet);
    if (how == FULL) {
        rs_xdp_kick(&io->xdp);
        rs_xdp_reclaim(&io->xdp);
        how = place(io, packet);
    }
    return how == UNREADABLE ? RS_IO_UNREADABLE : how == PLACED;
}

/* What the kernel leaves in the ring goes with the next kick. The last packet of a batch is put there only if nothing
 * is left, so that whoever has more to send than the NIC takes learns of it. */
static int xdp_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    xdp_io *io = (xdp_io *)base;
    unsigned taken = 0;
    rs_xdp_kick(&io->xdp);
    rs_xdp_reclaim(&io->xdp);
    if (rs_xdp_pending(&io->xdp.send) > 0)
        return 0;
    while (taken < count) {
        if (taken > 0 && taken + 1 == count) {
            rs_xdp_kick(&io->xdp);
            if (rs_xdp_pending(&io->xdp.send) > 0)
                break;
        }
        int sent = send_one(io, &packets[taken]);
        if (sent == RS_IO_UNREADABLE && taken == 0)
            return RS_IO_UNREADABLE;
        if (sent <= 0)
            break;
        taken++;
    }
    rs_xdp_kick(&io->xdp);
    return (int)taken;
}

/* ------------------------------------------------------------------------------------------------------ receiving */

static bool xdp_join(rs_io *base, rs_io_group number, uint32_t address, uint16_t port, char *error) {
    xdp_io *io = (xdp_io *)base;
    rs_member *member = rs_members_add(&io->members, number, address, port, io->sockets.interface.index,
                                       io->sockets.options.address, error);
    if (!member)
        return false;
    if (rs_xdp_program_take(&io->program, address, port))
        return true;
    snprintf(error, RS_IO_ERROR_MAX, "the XDP program takes no more groups: %s", strerror(errno));
    rs_members_remove(&io->members, member);
    return false;
}

static void xdp_leave(rs_io *base, rs_io_group number) {
    xdp_io *io = (xdp_io *)base;
    rs_member *member = rs_members_number(&io->members, number);
    if (!member)
        return;
    rs_xdp_program_pass(&io->program, member->address, member->port);
    rs_members_remove(&io->members, member);
}

/* A received frame: `count` descriptors from `first` on. */
typedef struct {
    uint32_t first, count, length;
} frame;

/* Bytes [offset, offset + length) of a frame, which has them. */
static bool gather(const xdp_io *io, const frame *f, uint32_t offset, uint8_t *to, uint32_t length) {
    for (uint32_t i = 0; i < f->count && length > 0; i++) {
        const struct xdp_desc *descriptor = rs_xdp_descriptor(&io->xdp.receive, f->first + i);
        if (offset >= descriptor->len) {
            offset -= descriptor->len;
            continue;
        }
        uint32_t piece = descriptor->len - offset < length ? descriptor->len - offset : length;
        if (!rs_guard_copy(to, io->xdp.memory + descriptor->addr + offset, piece))
            return false;
        to += piece;
        length -= piece;
        offset = 0;
    }
    return length == 0;
}

/* False: it is none of a joined group's (left since it came, or broken). */
static bool deliver(xdp_io *io, const frame *f, const rs_io_sink *sink) {
    uint8_t head[RS_FRAME_HEADERS + RS_IO_HEADER_BYTES];
    rs_datagram datagram;
    uint32_t have = f->length < sizeof head ? f->length : sizeof head;
    if (have < RS_FRAME_HEADERS || !gather(io, f, 0, head, have) ||
        !rs_frame_parse(head + RS_FRAME_ETHERNET, f->length - RS_FRAME_ETHERNET, &datagram))
        return false;
    rs_member *member = rs_members_to(&io->members, datagram.address, datagram.port);
    if (!member)
        return false;
    uint32_t header = datagram.length < RS_IO_HEADER_BYTES ? datagram.length : RS_IO_HEADER_BYTES;
    uint32_t payload = datagram.length - header;
    member->arrived++;
    io->sockets.stats.packets_received++;
    io->sockets.stats.bytes_received += datagram.length;
    uint8_t *target = sink->deliver(sink->context, member->number, datagram.data, header, payload);
    if (target && payload > 0 && gather(io, f, RS_FRAME_HEADERS + header, target, payload))
        io->sockets.stats.moved++;
    return true;
}

/* The next whole frame of the receive ring; false if there is none. */
static bool next_frame(const xdp_io *io, uint32_t ready, frame *out) {
    const rs_xdp_ring *ring = &io->xdp.receive;
    *out = (frame){.first = *ring->consumer};
    while (out->count < ready) {
        const struct xdp_desc *descriptor = rs_xdp_descriptor(ring, out->first + out->count++);
        out->length += descriptor->len;
        if (!(descriptor->options & XDP_PKT_CONTD))
            return true;
    }
    return false;
}

static int xdp_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    xdp_io *io = (xdp_io *)base;
    uint32_t ready = rs_xdp_ready(&io->xdp.receive);
    unsigned total = 0;
    frame f;
    if (rs_xdp_pending(&io->xdp.send) > 0)
        rs_xdp_kick(&io->xdp);
    while (total < limit && next_frame(io, ready, &f)) {
        total += deliver(io, &f, sink);
        for (uint32_t i = 0; i < f.count; i++)
            rs_xdp_refill(&io->xdp, rs_xdp_descriptor(&io->xdp.receive, f.first + i)->addr);
        rs_xdp_advance(io->xdp.receive.consumer, f.count);
        ready -= f.count;
    }
    if (total > 0) {
        uint64_t dropped = rs_xdp_dropped(&io->xdp);
        rs_members_share_drops(&io->members, dropped - io->dropped);
        io->dropped = dropped;
    }
    if (*io->xdp.fill.flags & XDP_RING_NEED_WAKEUP)
        (void)recvfrom(io->xdp.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
    return (int)total;
}

static int xdp_receive_fd(const rs_io *base) {
    return ((const xdp_io *)base)->xdp.fd;
}

static int xdp_send_fd(const rs_io *base) {
    return ((const xdp_io *)base)->send_fd;
}

static uint64_t xdp_drops(const rs_io *base, rs_io_group number) {
    const rs_member *member = rs_members_number(&((const xdp_io *)base)->members, number);
    return member ? member->drops : 0;
}

/* A frame takes whole chunks, and the kernel keeps some free. */
static uint64_t xdp_receive_room(const rs_io *base, rs_io_group number) {
    const xdp_io *io = (const xdp_io *)base;
    uint32_t bytes = io->sockets.interface.mtu + RS_FRAME_ETHERNET, room = io->xdp.chunk - RS_XDP_HEADROOM;
    uint64_t frames = io->xdp.receive_chunks / ((bytes + room - 1) / room);
    return rs_members_number(&io->members, number) ? frames * io->sockets.interface.mtu / 8 * 7 : 0;
}

const rs_io_ops rs_io_xdp = {.name = "xdp",
                             .summary = "AF_XDP beside the kernel's stack, on drivers with native XDP",
                             .open = xdp_open,
                             .close = xdp_close,
                             .send = xdp_send,
                             .join = xdp_join,
                             .leave = xdp_leave,
                             .receive = xdp_receive,
                             .receive_fd = xdp_receive_fd,
                             .send_fd = xdp_send_fd,
                             .drops = xdp_drops,
                             .receive_room = xdp_receive_room,
                             .stats = rs_sockets_stats};
