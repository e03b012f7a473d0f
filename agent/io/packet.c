/* Data channel below the kernel's IP: Ethernet frames of our own go to the NIC's queue, where shaping holds as for any
 * other, and come by a ring from which each payload is copied once. Groups are joined by ordinary sockets; datagrams to
 * single hosts, whose Ethernet addresses the kernel knows, are sent by an ordinary one. */
#include "io/packet.h"

#include <assert.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/frame.h"
#include "io/interface.h"
#include "io/members.h"
#include "io/packet_filter.h"
#include "io/packet_ring.h"
#include "io/udp.h"

#define RING_BYTES (32 << 20)

typedef struct {
    rs_io base;
    rs_io_options options;
    rs_interface interface;
    rs_packet_ring ring;
    uint32_t offset; /* bytes of the ring's next packet that are delivered already */
    rs_members members;
    int send_fd;
    rs_io *hosts; /* sends to single hosts */
    rs_io_stats stats;
    int last_send_errno;
} packet_io;

/* -------------------------------------------------------------------------------------------------------- opening */

static void packet_close(rs_io *base) {
    packet_io *io = (packet_io *)base;
    rs_packet_ring_close(&io->ring);
    rs_members_free(&io->members);
    if (io->send_fd >= 0)
        close(io->send_fd);
    rs_io_close(io->hosts);
    free(io);
}

/* Of protocol 0: it receives nothing. */
static bool open_send_socket(packet_io *io, char *error) {
    int one = 1, wanted = io->options.send_buffer > 0 ? io->options.send_buffer : 4 << 20;
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = (int)io->interface.index};
    io->send_fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (io->send_fd < 0 || setsockopt(io->send_fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) != 0 ||
        bind(io->send_fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot send frames on %s: %s", io->interface.name, strerror(errno));
        return false;
    }
    int got = rs_socket_buffer(io->send_fd, SO_SNDBUFFORCE, SO_SNDBUF, wanted);
    if (got < wanted)
        rs_warn_buffer(&io->options, SO_SNDBUF, got, wanted);
    return true;
}

static rs_io *packet_open(const rs_io_options *options, char *error) {
    packet_io *io = calloc(1, sizeof *io);
    if (!io) {
        snprintf(error, RS_IO_ERROR_MAX, "no memory for packet I/O");
        return NULL;
    }
    io->base.ops = &rs_io_packet_ring;
    io->options = *options;
    io->send_fd = io->ring.fd = -1;
    size_t ring = (size_t)(options->receive_buffer > 0 ? options->receive_buffer : RING_BYTES);
    bool ok = !options->loopback;
    if (!ok)
        snprintf(error, RS_IO_ERROR_MAX, "a host's own frames do not come back to it");
    if (ok && rs_interface_find(options, &io->interface, error) && open_send_socket(io, error) &&
        rs_packet_ring_open(&io->ring, &io->interface, ring, error)) {
        io->options.interface = io->interface.name;
        io->hosts = rs_io_udp.open(&io->options, error);
        if (io->hosts)
            return &io->base;
    }
    packet_close(&io->base);
    return NULL;
}

/* -------------------------------------------------------------------------------------------------------- sending */

/* What is in front of a datagram: what is to be done to the frame, and its headers. */
typedef struct {
    struct virtio_net_hdr offload;
    uint8_t frame[RS_FRAME_HEADERS];
} front;

static_assert(sizeof(front) == sizeof(struct virtio_net_hdr) + RS_FRAME_HEADERS, "no gap between them");

/* The NIC, or the kernel in front of it, finishes the UDP checksum. */
static void write_front(const packet_io *io, front *f, const rs_io_packet *packet) {
    rs_frame_sender sender = {.address = io->options.address,
                              .port = packet->port,
                              .ttl = (uint8_t)(io->options.ttl > 0 ? io->options.ttl : 8)};
    memcpy(sender.mac, io->interface.mac, sizeof sender.mac);
    f->offload = (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                         .hdr_len = RS_FRAME_HEADERS,
                                         .csum_start = RS_FRAME_ETHERNET + RS_FRAME_IP,
                                         .csum_offset = offsetof(struct udphdr, check)};
    rs_frame_build(f->frame, &sender, packet->address, packet->port, packet->header_length + packet->payload_length);
}

/* As any on the data channel may be, it is lost; each new cause is told. */
static void send_failed(packet_io *io, int cause, const rs_io_packet *packet) {
    io->stats.send_errors++;
    if (cause == io->last_send_errno)
        return;
    io->last_send_errno = cause;
    char text[160];
    snprintf(text, sizeof text, "a datagram of %u bytes could not be sent on %s: %s",
             packet->header_length + packet->payload_length, io->interface.name, strerror(cause));
    rs_io_warn(&io->options, text);
}

static bool too_large(const packet_io *io, const rs_io_packet *packet) {
    return packet->header_length + packet->payload_length + RS_FRAME_IP + RS_FRAME_UDP > io->interface.mtu;
}

/* Frames to groups, each small enough. */
static int send_frames(packet_io *io, const rs_io_packet *packets, unsigned count) {
    struct mmsghdr messages[RS_IO_BATCH];
    struct iovec vectors[RS_IO_BATCH][3];
    front fronts[RS_IO_BATCH];
    for (unsigned i = 0; i < count; i++) {
        write_front(io, &fronts[i], &packets[i]);
        vectors[i][0] = (struct iovec){&fronts[i], sizeof fronts[i]};
        vectors[i][1] = (struct iovec){(void *)(uintptr_t)packets[i].header, packets[i].header_length};
        vectors[i][2] = (struct iovec){(void *)(uintptr_t)packets[i].payload, packets[i].payload_length};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = vectors[i], .msg_iovlen = 3};
    }
    unsigned taken = 0;
    while (taken < count) {
        int sent = sendmmsg(io->send_fd, messages + taken, count - taken, 0);
        if (sent > 0) {
            for (int i = 0; i < sent; i++, taken++)
                io->stats.bytes_sent += packets[taken].header_length + packets[taken].payload_length;
            io->stats.packets_sent += (uint64_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EFAULT) {
            return taken > 0 ? (int)taken : RS_IO_UNREADABLE;
        } else if (errno != EINTR) {
            send_failed(io, errno, &packets[taken]);
            taken++;
        }
    }
    return (int)taken;
}

static int packet_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    packet_io *io = (packet_io *)base;
    unsigned taken = 0, run;
    while (taken < count) {
        const rs_io_packet *first = packets + taken;
        bool group = IN_MULTICAST(first->address);
        if (group && too_large(io, first)) {
            send_failed(io, EMSGSIZE, first);
            taken++;
            continue;
        }
        for (run = 1; taken + run < count && (IN_MULTICAST(first[run].address) != 0) == group &&
                      !(group && too_large(io, &first[run]));)
            run++;
        int sent = group ? send_frames(io, first, run) : rs_io_send(io->hosts, first, run);
        if (sent < 0)
            return taken > 0 ? (int)taken : sent;
        taken += (unsigned)sent;
        if ((unsigned)sent < run)
            break;
    }
    return (int)taken;
}

/* ------------------------------------------------------------------------------------------------------ receiving */

static bool packet_join(rs_io *base, rs_io_group number, uint32_t address, uint16_t port, char *error) {
    packet_io *io = (packet_io *)base;
    rs_member *member =
        rs_members_add(&io->members, number, address, port, io->interface.index, io->options.address, error);
    if (!member)
        return false;
    if (rs_packet_filter_attach(io->ring.fd, &io->members))
        return true;
    snprintf(error, RS_IO_ERROR_MAX, "cannot set the filter of the packet socket on %s: %s", io->interface.name,
             strerror(errno));
    rs_members_remove(&io->members, member);
    return false;
}

static void packet_leave(rs_io *base, rs_io_group number) {
    packet_io *io = (packet_io *)base;
    rs_member *member = rs_members_number(&io->members, number);
    if (!member)
        return;
    rs_members_remove(&io->members, member);
    if (!rs_packet_filter_attach(io->ring.fd, &io->members)) /* what still comes is thrown away here */
        rs_io_warn(&io->options, "a group's datagrams still come though it was left: the filter cannot be changed");
}

/* One datagram of a packet. */
static void deliver(packet_io *io, rs_member *member, const uint8_t *data, uint32_t length, const rs_io_sink *sink) {
    uint32_t header_length = length < RS_IO_HEADER_BYTES ? length : RS_IO_HEADER_BYTES;
    uint32_t payload_length = length - header_length;
    uint8_t *target = sink->deliver(sink->context, member->number, data, header_length, payload_length);
    if (target && payload_length > 0) {
        memcpy(target, data + header_length, payload_length);
        io->stats.moved++;
    }
    member->arrived++;
    io->stats.packets_received++;
    io->stats.bytes_received += length;
}

static int packet_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    packet_io *io = (packet_io *)base;
    rs_ring_packet packet;
    unsigned total = 0;
    while (total < limit && rs_packet_ring_peek(&io->ring, &packet)) {
        const rs_datagram *d = &packet.datagram;
        rs_member *member = rs_members_to(&io->members, d->address, d->port);
        while (member && total < limit) {
            uint32_t left = d->length - io->offset, length = left < packet.segment ? left : packet.segment;
            deliver(io, member, d->data + io->offset, length, sink);
            total++;
            io->offset += length;
            if (io->offset >= d->length)
                member = NULL;
        }
        if (!member) {
            rs_packet_ring_take(&io->ring);
            io->offset = 0;
        }
    }
    uint32_t drops = total > 0 ? rs_packet_ring_drops(&io->ring) : 0;
    if (total > 0)
        rs_members_share_drops(&io->members, drops);
    return (int)total;
}

static int packet_receive_fd(const rs_io *base) {
    return ((const packet_io *)base)->ring.fd;
}

static int packet_send_fd(const rs_io *base) {
    return ((const packet_io *)base)->send_fd;
}

static uint64_t packet_drops(const rs_io *base, rs_io_group number) {
    const rs_member *member = rs_members_number(&((const packet_io *)base)->members, number);
    return member ? member->drops : 0;
}

static void packet_stats(const rs_io *base, rs_io_stats *out) {
    const packet_io *io = (const packet_io *)base;
    rs_io_stats hosts;
    rs_io_stats_get(io->hosts, &hosts);
    *out = io->stats;
    out->packets_sent += hosts.packets_sent;
    out->bytes_sent += hosts.bytes_sent;
    out->send_errors += hosts.send_errors;
}

const rs_io_ops rs_io_packet_ring = {.name = "packet",
                                     .summary = "AF_PACKET frames, received in a ring of the kernel (TPACKET_V3)",
                                     .open = packet_open,
                                     .close = packet_close,
                                     .send = packet_send,
                                     .join = packet_join,
                                     .leave = packet_leave,
                                     .receive = packet_receive,
                                     .receive_fd = packet_receive_fd,
                                     .send_fd = packet_send_fd,
                                     .drops = packet_drops,
                                     .stats = packet_stats};
