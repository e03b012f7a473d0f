/* Data channel below the kernel's IP: Ethernet frames of our own go to the NIC's queue, where shaping holds as for any
 * other, and come by a ring from which each payload is copied once.
 *
 * The kernel hands over a block of the ring when it is full or some milliseconds old: too late for packets that come
 * alone, which ask whether there is light. So datagrams come by ordinary sockets while they come seldom ("sparse") and
 * by the ring while they come often ("dense"). Those sockets also send to single hosts, whose Ethernet addresses the
 * kernel knows. Memberships are held apart (members.h): sockets take part in a group or do not, as the mode is. */
#include "io/packet.h"

#include <assert.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/sock_diag.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "io/frame.h"
#include "io/interface.h"
#include "io/members.h"
#include "io/messages.h"
#include "io/packet_filter.h"
#include "io/packet_ring.h"
#include "io/sockets.h"
#include "io/udp.h"

#define RING_BYTES (32 << 20)
#define DENSE_PACKETS 16u /* so many in ... */
#define DENSE_NS 2000000u /* ... this time are dense */
#define SPARSE_PACKETS 4u /* no more in a block that time was up for, and ... */
#define SPARSE_BLOCKS 4u  /* ... so many of those in a row, are sparse */

typedef struct {
    rs_io base;
    rs_io_options options;
    rs_interface interface;
    rs_packet_ring ring;
    uint32_t offset; /* bytes of the ring's next packet that are delivered already */
    rs_members members;
    int send_fd;
    rs_io *sockets; /* back end `udp`: sends to single hosts, receives while packets are sparse */
    int epoll_fd;   /* over the ring and the sockets */
    bool dense;
    bool unfit;             /* the ring, for what comes here: sockets it is */
    uint64_t counted_since; /* ns; `counted` packets came since then, while sparse */
    unsigned counted;
    unsigned meagre_blocks; /* in a row, while dense */
    rs_io_stats stats;
    rs_send_log log;
} packet_io;

/* -------------------------------------------------------------------------------------------------------- opening */

static void packet_close(rs_io *base) {
    packet_io *io = (packet_io *)base;
    rs_packet_ring_close(&io->ring);
    rs_members_free(&io->members);
    if (io->send_fd >= 0)
        close(io->send_fd);
    if (io->epoll_fd >= 0)
        close(io->epoll_fd);
    rs_io_close(io->sockets);
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

static bool watch_both(packet_io *io, char *error) {
    struct epoll_event event = {.events = EPOLLIN};
    io->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (io->epoll_fd >= 0 && epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, io->ring.fd, &event) == 0 &&
        epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, rs_io_receive_fd(io->sockets), &event) == 0)
        return true;
    snprintf(error, RS_IO_ERROR_MAX, "cannot watch sockets: %s", strerror(errno));
    return false;
}

rs_io *rs_packet_open(const rs_io_options *options, bool tells_joined, char *error) {
    packet_io *io = calloc(1, sizeof *io);
    if (!io) {
        snprintf(error, RS_IO_ERROR_MAX, "no memory for packet I/O");
        return NULL;
    }
    io->base.ops = &rs_io_packet_ring;
    io->options = *options;
    io->log = (rs_send_log){.options = &io->options, .interface = &io->interface, .stats = &io->stats};
    io->send_fd = io->ring.fd = io->epoll_fd = -1;
    size_t ring = (size_t)(options->receive_buffer > 0 ? options->receive_buffer : RING_BYTES);
    bool ok = !options->loopback;
    if (!ok)
        snprintf(error, RS_IO_ERROR_MAX, "a host's own frames do not come back to it");
    if (ok && rs_interface_find(options, &io->interface, error) && open_send_socket(io, error) &&
        rs_packet_ring_open(&io->ring, &io->interface, ring, tells_joined, error)) {
        io->options.interface = io->interface.name;
        io->sockets = rs_io_udp.open(&io->options, error);
        if (io->sockets && watch_both(io, error))
            return &io->base;
    }
    packet_close(&io->base);
    return NULL;
}

static rs_io *packet_open(const rs_io_options *options, char *error) {
    return rs_packet_open(options, rs_packet_ring_tells_joined(), error);
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
    return rs_messages_send(&io->log, io->send_fd, messages, packets, count);
}

static int packet_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    packet_io *io = (packet_io *)base;
    unsigned taken = 0, run;
    while (taken < count) {
        const rs_io_packet *first = packets + taken;
        bool group = IN_MULTICAST(first->address);
        if (group && too_large(io, first)) {
            rs_messages_failed(&io->log, EMSGSIZE, first);
            taken++;
            continue;
        }
        for (run = 1; taken + run < count && (IN_MULTICAST(first[run].address) != 0) == group &&
                      !(group && too_large(io, &first[run]));)
            run++;
        int sent = group ? send_frames(io, first, run) : rs_io_send(io->sockets, first, run);
        if (sent < 0)
            return taken > 0 ? (int)taken : sent;
        taken += (unsigned)sent;
        if ((unsigned)sent < run)
            break;
    }
    return (int)taken;
}

/* ------------------------------------------------------------------------------------------------------ receiving */

static const rs_members no_members;

/* A socket that was bound to a group takes its packets only as a member of it. */
static bool take_part(packet_io *io, const rs_socket_group *group, uint32_t address, bool join) {
    struct ip_mreqn membership = {.imr_ifindex = (int)io->interface.index};
    membership.imr_multiaddr.s_addr = htonl(address);
    return setsockopt(group->fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &membership,
                      sizeof membership) == 0;
}

/* The kernel tells a socket's drops with its next datagram, of which there may be none. */
static void ask_drops(rs_socket_group *group) {
    uint32_t numbers[SK_MEMINFO_VARS];
    socklen_t length = sizeof numbers;
    if (getsockopt(group->fd, SOL_SOCKET, SO_MEMINFO, numbers, &length) == 0 && length == sizeof numbers)
        group->drops += (uint32_t)(numbers[SK_MEMINFO_DROPS] - (uint32_t)group->drops);
}

static void all_take_part(packet_io *io, bool join) {
    const rs_sockets *sockets = (const rs_sockets *)io->sockets;
    for (unsigned i = 0; i < sockets->group_room; i++) {
        rs_socket_group *group = &sockets->groups[i];
        const rs_member *member = group->fd >= 0 ? rs_members_number(&io->members, group->number) : NULL;
        if (member && IN_MULTICAST(member->address))
            (void)take_part(io, group, member->address, join); /* a failure means packets twice, or by the ring alone */
        if (member && !join)
            ask_drops(group);
    }
}

/* The new socket is opened before the old one is closed: packets in between may come twice, none is lost. */
static void set_dense(packet_io *io, bool dense) {
    if (dense && !rs_packet_filter_attach(io->ring.fd, &io->members))
        return;
    all_take_part(io, !dense);
    if (!dense && !rs_packet_filter_attach(io->ring.fd, &no_members))
        return;
    io->dense = dense;
    io->counted = io->meagre_blocks = 0;
}

static bool packet_join(rs_io *base, rs_io_group number, uint32_t address, uint16_t port, char *error) {
    packet_io *io = (packet_io *)base;
    if (!rs_members_add(&io->members, number, address, port, io->interface.index, io->options.address, error))
        return false;
    bool ok = rs_io_join(io->sockets, number, address, port, error);
    if (ok && io->dense) {
        ok = rs_packet_filter_attach(io->ring.fd, &io->members);
        if (!ok)
            snprintf(error, RS_IO_ERROR_MAX, "cannot set the filter of the packet socket on %s: %s", io->interface.name,
                     strerror(errno));
        all_take_part(io, false);
    }
    if (!ok) {
        rs_io_leave(io->sockets, number);
        rs_members_remove(&io->members, rs_members_number(&io->members, number));
    }
    return ok;
}

/* What the ring still holds of the group, or still gets, finds no member. */
static void packet_leave(rs_io *base, rs_io_group number) {
    packet_io *io = (packet_io *)base;
    rs_member *member = rs_members_number(&io->members, number);
    if (!member)
        return;
    rs_io_leave(io->sockets, number);
    rs_members_remove(&io->members, member);
    if (io->dense)
        (void)rs_packet_filter_attach(io->ring.fd, &io->members);
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

static unsigned read_ring(packet_io *io, unsigned limit, const rs_io_sink *sink) {
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
    if (total > 0)
        rs_members_share_drops(&io->members, rs_packet_ring_drops(&io->ring));
    return total;
}

/* Sockets cut what comes joined. */
static void give_ring_up(packet_io *io) {
    io->unfit = true;
    set_dense(io, false);
    rs_io_warn(&io->options, "datagrams come joined, and the rings of this kernel do not tell how to cut them (Linux "
                             "6.2): they are received by sockets");
}

static void choose_mode(packet_io *io, unsigned by_sockets, unsigned from_ring) {
    if (io->ring.joined > 0 && !io->unfit)
        give_ring_up(io);
    if (io->unfit)
        return;
    if (io->dense) {
        if (from_ring > 0)
            io->meagre_blocks = io->ring.meagre <= SPARSE_PACKETS ? io->meagre_blocks + 1 : 0;
        if (io->meagre_blocks >= SPARSE_BLOCKS)
            set_dense(io, false);
        return;
    }
    if (by_sockets == 0)
        return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (ns - io->counted_since > DENSE_NS) {
        io->counted_since = ns;
        io->counted = 0;
    }
    io->counted += by_sockets;
    if (io->counted >= DENSE_PACKETS)
        set_dense(io, true);
}

/* What is older comes first: of the sockets when it has become dense, of the ring when it no longer is. */
static int packet_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    packet_io *io = (packet_io *)base;
    unsigned total = io->dense ? 0 : read_ring(io, limit, sink), by_sockets = 0;
    if (total < limit)
        by_sockets = (unsigned)rs_io_receive(io->sockets, limit - total, sink);
    total += by_sockets;
    if (io->dense && total < limit)
        total += read_ring(io, limit - total, sink);
    choose_mode(io, by_sockets, total - by_sockets);
    return (int)total;
}

/* The ring tells of blocks and not of packets. */
static void packet_wake(rs_io *base, bool by_arrivals) {
    rs_io_wake(((packet_io *)base)->sockets, by_arrivals);
}

static int packet_receive_fd(const rs_io *base) {
    return ((const packet_io *)base)->epoll_fd;
}

static int packet_send_fd(const rs_io *base) {
    return ((const packet_io *)base)->send_fd;
}

static uint64_t packet_drops(const rs_io *base, rs_io_group number) {
    const packet_io *io = (const packet_io *)base;
    const rs_member *member = rs_members_number(&io->members, number);
    return member ? member->drops + rs_io_drops(io->sockets, number) : 0;
}

/* Blocks are closed early when what comes next does not fit what is left of them. */
static uint64_t packet_receive_room(const rs_io *base, rs_io_group number) {
    const packet_io *io = (const packet_io *)base;
    uint64_t by_sockets = rs_io_receive_room(io->sockets, number), by_ring = io->ring.bytes / 4 * 3;
    return by_sockets < by_ring ? by_sockets : by_ring;
}

static void packet_stats(const rs_io *base, rs_io_stats *out) {
    const packet_io *io = (const packet_io *)base;
    rs_io_stats sockets;
    rs_io_stats_get(io->sockets, &sockets);
    *out = io->stats;
    out->packets_sent += sockets.packets_sent;
    out->bytes_sent += sockets.bytes_sent;
    out->send_errors += sockets.send_errors;
    out->packets_received += sockets.packets_received;
    out->bytes_received += sockets.bytes_received;
    out->predicted += sockets.predicted;
    out->moved += sockets.moved;
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
                                     .wake = packet_wake,
                                     .drops = packet_drops,
                                     .receive_room = packet_receive_room,
                                     .stats = packet_stats};
