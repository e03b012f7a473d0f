/* Data channel over ordinary UDP sockets: one socket sends, one socket per joined group receives, both in batches. */
#include "io/udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/place.h"

#define BOUNCE_BYTES 65536u
#define CONTROL_BYTES CMSG_SPACE(sizeof(uint32_t))
#define BATCH_MIN 8u

typedef struct {
    int fd; /* -1 = free */
    rs_io_group number;
    uint64_t drops;
    unsigned last_batch; /* datagrams of the last read: how many places are worth predicting next time */
} udp_group;

/* Everything recvmmsg and sendmmsg need for one batch. */
typedef struct {
    struct mmsghdr messages[RS_IO_BATCH];
    struct iovec vectors[RS_IO_BATCH][3];
    struct sockaddr_in addresses[RS_IO_BATCH];
    uint8_t headers[RS_IO_BATCH][RS_IO_HEADER_BYTES];
    _Alignas(struct cmsghdr) uint8_t control[RS_IO_BATCH][CONTROL_BYTES];
    rs_placement placements[RS_IO_BATCH];
} batch;

typedef struct {
    rs_io base;
    rs_io_options options;
    char interface[IF_NAMESIZE];
    unsigned interface_index;
    int send_fd, epoll_fd;
    udp_group *groups;
    unsigned group_count, group_room; /* slots in use are anywhere in [0, group_room) */
    unsigned next_slot;               /* whose turn it is to be read first */
    uint8_t *bounces; /* RS_IO_BATCH buffers of BOUNCE_BYTES, touched only when a prediction is missing */
    batch *batch;
    rs_io_stats stats;
    int last_send_errno;
    bool buffer_warned;
} udp_io;

/* -------------------------------------------------------------------------------------------------------- opening */

static void warn(const udp_io *io, const char *text) {
    if (io->options.log)
        io->options.log(io->options.log_context, RS_IO_LOG_WARNING, text);
}

/* The kernel's limits hold for the plain option; the FORCE one needs CAP_NET_ADMIN. */
static void set_buffer(udp_io *io, int fd, int force_option, int option, int wanted, const char *what) {
    if (setsockopt(fd, SOL_SOCKET, force_option, &wanted, sizeof wanted) == 0)
        return;
    int got = 0;
    socklen_t length = sizeof got;
    (void)setsockopt(fd, SOL_SOCKET, option, &wanted, sizeof wanted);
    if (getsockopt(fd, SOL_SOCKET, option, &got, &length) != 0 || got / 2 >= wanted || io->buffer_warned)
        return;
    char text[200];
    snprintf(
        text, sizeof text,
        "%s buffer is %d bytes, %d were wanted: bursts may be lost; raise net.core.%cmem_max or give CAP_NET_ADMIN",
        what, got / 2, wanted, option == SO_RCVBUF ? 'r' : 'w');
    warn(io, text);
    io->buffer_warned = true;
}

static bool interface_mtu(const char *name, uint32_t *mtu) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    bool ok = ioctl(fd, SIOCGIFMTU, &request) == 0;
    if (ok)
        *mtu = (uint32_t)request.ifr_mtu;
    close(fd);
    return ok;
}

static bool check_interface(udp_io *io, char *error) {
    uint32_t mtu = 0;
    io->interface_index = if_nametoindex(io->interface);
    if (io->interface_index == 0 || !interface_mtu(io->interface, &mtu)) {
        snprintf(error, RS_IO_ERROR_MAX, "no network interface \"%s\" here", io->interface);
        return false;
    }
    if (io->options.mtu > mtu) {
        snprintf(error, RS_IO_ERROR_MAX, "an MTU of %u was asked for, but %s has %u", io->options.mtu, io->interface,
                 mtu);
        return false;
    }
    return true;
}

static bool open_send_socket(udp_io *io, char *error) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot open a UDP socket: %s", strerror(errno));
        return false;
    }
    io->send_fd = fd;
    struct ip_mreqn out = {.imr_ifindex = (int)io->interface_index};
    out.imr_address.s_addr = htonl(io->options.address);
    int loopback = io->options.loopback;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out) != 0 ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &io->options.ttl, sizeof io->options.ttl) != 0 ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &loopback, sizeof loopback) != 0) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot send multicast on %s: %s", io->interface, strerror(errno));
        return false;
    }
    struct sockaddr_in source = {.sin_family = AF_INET};
    source.sin_addr.s_addr = htonl(io->options.address);
    if (bind(fd, (const struct sockaddr *)&source, sizeof source) != 0) {
        char address[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &source.sin_addr, address, sizeof address);
        snprintf(error, RS_IO_ERROR_MAX, "cannot send from %s: %s (is it an address of %s?)", address, strerror(errno),
                 io->interface);
        return false;
    }
    set_buffer(io, fd, SO_SNDBUFFORCE, SO_SNDBUF, io->options.send_buffer, "send");
    return true;
}

static void udp_close(rs_io *base) {
    udp_io *io = (udp_io *)base;
    for (unsigned i = 0; i < io->group_room; i++)
        if (io->groups[i].fd >= 0)
            close(io->groups[i].fd);
    if (io->send_fd >= 0)
        close(io->send_fd);
    if (io->epoll_fd >= 0)
        close(io->epoll_fd);
    if (io->bounces)
        munmap(io->bounces, (size_t)RS_IO_BATCH * BOUNCE_BYTES);
    free(io->batch);
    free(io->groups);
    free(io);
}

static bool allocate(udp_io *io, char *error) {
    io->batch = calloc(1, sizeof *io->batch);
    void *memory = mmap(NULL, (size_t)RS_IO_BATCH * BOUNCE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    io->bounces = memory == MAP_FAILED ? NULL : memory;
    io->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (io->batch && io->bounces && io->epoll_fd >= 0)
        return true;
    snprintf(error, RS_IO_ERROR_MAX, "cannot set up packet buffers: %s", strerror(errno));
    return false;
}

static rs_io *udp_open(const rs_io_options *options, char *error) {
    udp_io *io = calloc(1, sizeof *io);
    if (!io) {
        snprintf(error, RS_IO_ERROR_MAX, "no memory for packet I/O");
        return NULL;
    }
    io->base.ops = &rs_io_udp;
    io->options = *options;
    io->send_fd = io->epoll_fd = -1;
    snprintf(io->interface, sizeof io->interface, "%s", options->interface);
    io->options.interface = io->interface;
    if (io->options.receive_buffer <= 0)
        io->options.receive_buffer = 16 << 20;
    if (io->options.send_buffer <= 0)
        io->options.send_buffer = 4 << 20;
    if (io->options.ttl <= 0)
        io->options.ttl = 8;
    if (!check_interface(io, error) || !open_send_socket(io, error) || !allocate(io, error)) {
        udp_close(&io->base);
        return NULL;
    }
    return &io->base;
}

/* -------------------------------------------------------------------------------------------------------- sending */

/* Too large or no road just now: this datagram is lost, as any on the data channel may be. Causes are told once. */
static void count_send_error(udp_io *io, int cause, const rs_io_packet *packet) {
    io->stats.send_errors++;
    if (cause == io->last_send_errno)
        return;
    io->last_send_errno = cause;
    char text[160];
    snprintf(text, sizeof text, "a datagram of %u bytes could not be sent on %s: %s",
             packet->header_length + packet->payload_length, io->interface, strerror(cause));
    warn(io, text);
}

static int udp_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    udp_io *io = (udp_io *)base;
    batch *b = io->batch;
    for (unsigned i = 0; i < count; i++) {
        b->addresses[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(packets[i].port)};
        b->addresses[i].sin_addr.s_addr = htonl(packets[i].address);
        b->vectors[i][0] = (struct iovec){(void *)(uintptr_t)packets[i].header, packets[i].header_length};
        b->vectors[i][1] = (struct iovec){(void *)(uintptr_t)packets[i].payload, packets[i].payload_length};
        b->messages[i].msg_hdr = (struct msghdr){.msg_name = &b->addresses[i],
                                                 .msg_namelen = sizeof b->addresses[i],
                                                 .msg_iov = b->vectors[i],
                                                 .msg_iovlen = packets[i].payload_length > 0 ? 2 : 1};
    }
    unsigned taken = 0;
    while (taken < count) {
        int sent = sendmmsg(io->send_fd, b->messages + taken, count - taken, 0);
        if (sent > 0) {
            for (int i = 0; i < sent; i++, taken++)
                io->stats.bytes_sent += packets[taken].header_length + packets[taken].payload_length;
            io->stats.packets_sent += (uint64_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EFAULT) {
            return taken > 0 ? (int)taken : RS_IO_UNREADABLE;
        } else if (errno != EINTR) {
            count_send_error(io, errno, &packets[taken]);
            taken++;
        }
    }
    return (int)taken;
}

/* ------------------------------------------------------------------------------------------------------ receiving */

static udp_group *find_group(const udp_io *io, rs_io_group number) {
    for (unsigned i = 0; i < io->group_room; i++)
        if (io->groups[i].fd >= 0 && io->groups[i].number == number)
            return &io->groups[i];
    return NULL;
}

static udp_group *free_group(udp_io *io) {
    for (unsigned i = 0; i < io->group_room; i++)
        if (io->groups[i].fd < 0)
            return &io->groups[i];
    if (io->group_room >= RS_IO_GROUPS_MAX)
        return NULL;
    unsigned room = io->group_room ? io->group_room * 2 : 8;
    udp_group *groups = realloc(io->groups, room * sizeof *groups);
    if (!groups)
        return NULL;
    io->groups = groups;
    for (unsigned i = io->group_room; i < room; i++)
        groups[i].fd = -1;
    udp_group *fresh = &groups[io->group_room];
    io->group_room = room;
    return fresh;
}

/* Bound to the group's own address, so that no other group's datagrams come in. */
static int open_group_socket(udp_io *io, uint32_t address, uint16_t port) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int one = 1, zero = 0;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(address);
    struct ip_mreqn membership = {.imr_ifindex = (int)io->interface_index};
    membership.imr_multiaddr = to.sin_addr;
    membership.imr_address.s_addr = htonl(io->options.address);
    bool multicast = IN_MULTICAST(address);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &one, sizeof one) != 0 ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &zero, sizeof zero) != 0 ||
        bind(fd, (const struct sockaddr *)&to, sizeof to) != 0 ||
        (multicast && setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)) {
        int cause = errno;
        close(fd);
        errno = cause;
        return -1;
    }
    set_buffer(io, fd, SO_RCVBUFFORCE, SO_RCVBUF, io->options.receive_buffer, "receive");
    return fd;
}

static bool udp_join(rs_io *base, rs_io_group number, uint32_t address, uint16_t port, char *error) {
    udp_io *io = (udp_io *)base;
    if (find_group(io, number)) {
        snprintf(error, RS_IO_ERROR_MAX, "group number %u is in use", number);
        return false;
    }
    udp_group *group = free_group(io);
    if (!group) {
        snprintf(error, RS_IO_ERROR_MAX, "no room for another group (at most %d)", RS_IO_GROUPS_MAX);
        return false;
    }
    int fd = open_group_socket(io, address, port);
    struct epoll_event event = {.events = EPOLLIN};
    if (fd < 0 || epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        char text[INET_ADDRSTRLEN];
        struct in_addr in = {htonl(address)};
        snprintf(error, RS_IO_ERROR_MAX, "cannot receive %s:%u on %s: %s", inet_ntop(AF_INET, &in, text, sizeof text),
                 port, io->interface, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    *group = (udp_group){.fd = fd, .number = number};
    io->group_count++;
    return true;
}

static void udp_leave(rs_io *base, rs_io_group number) {
    udp_io *io = (udp_io *)base;
    udp_group *group = find_group(io, number);
    if (!group)
        return;
    close(group->fd);
    group->fd = -1;
    io->group_count--;
}

/* Points the kernel to the places the sink predicts; what is not predicted or does not fit goes to bounce buffers. */
static void prepare(udp_io *io, const udp_group *group, unsigned count, const rs_io_sink *sink) {
    batch *b = io->batch;
    bool predictable = sink->predict != NULL;
    for (unsigned i = 0; i < count; i++) {
        uint8_t *place = NULL, *bounce = io->bounces + (size_t)i * BOUNCE_BYTES;
        uint32_t length = 0;
        predictable = predictable && sink->predict(sink->context, group->number, i, &place, &length);
        if (!predictable || length > RS_IO_PAYLOAD_MAX)
            length = 0;
        b->placements[i] = (rs_placement){.head = length ? place : NULL, .head_length = length, .bounce = bounce};
        b->vectors[i][0] = (struct iovec){b->headers[i], RS_IO_HEADER_BYTES};
        b->vectors[i][1] = (struct iovec){length ? place : bounce, length};
        b->vectors[i][2] = (struct iovec){bounce + length, BOUNCE_BYTES - length};
        b->messages[i].msg_hdr = (struct msghdr){
            .msg_iov = b->vectors[i], .msg_iovlen = 3, .msg_control = b->control[i], .msg_controllen = CONTROL_BYTES};
    }
}

/* The kernel's count is 32 bits wide, of the whole life of the socket. */
static void note_drops(udp_group *group, struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
            uint32_t count;
            memcpy(&count, CMSG_DATA(c), sizeof count);
            group->drops += (uint32_t)(count - (uint32_t)group->drops);
        }
}

/* Reads one batch. False when the socket had no more. */
static bool read_group(udp_io *io, udp_group *group, unsigned limit, const rs_io_sink *sink, unsigned *total) {
    batch *b = io->batch;
    unsigned count = group->last_batch * 2 > BATCH_MIN ? group->last_batch * 2 : BATCH_MIN;
    count = count < RS_IO_BATCH ? count : RS_IO_BATCH;
    count = count < limit ? count : limit;
    prepare(io, group, count, sink);
    int received = recvmmsg(group->fd, b->messages, count, MSG_DONTWAIT, NULL);
    if (received <= 0) {
        group->last_batch = 0;
        return false;
    }
    group->last_batch = (unsigned)received;
    unsigned kept = 0;
    for (unsigned i = 0; i < (unsigned)received; i++) {
        uint32_t length = b->messages[i].msg_len;
        uint32_t header_length = length < RS_IO_HEADER_BYTES ? length : RS_IO_HEADER_BYTES;
        rs_placement *p = &b->placements[i];
        p->length = length - header_length;
        p->target = sink->deliver(sink->context, group->number, b->headers[i], header_length, p->length);
        kept += p->target != NULL && p->length > 0;
        io->stats.bytes_received += length;
    }
    note_drops(group, &b->messages[received - 1].msg_hdr);
    unsigned moved = rs_place_all(b->placements, (unsigned)received);
    io->stats.packets_received += (uint64_t)received;
    io->stats.moved += moved;
    io->stats.predicted += kept - moved;
    *total += (unsigned)received;
    return (unsigned)received == count;
}

static int udp_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    udp_io *io = (udp_io *)base;
    unsigned total = 0, idle = 0;
    while (total < limit && idle < io->group_count) {
        io->next_slot = (io->next_slot + 1) % io->group_room;
        udp_group *group = &io->groups[io->next_slot];
        if (group->fd < 0)
            continue;
        bool more = read_group(io, group, limit - total, sink, &total);
        idle = more ? 0 : idle + 1;
    }
    return (int)total;
}

static int udp_receive_fd(const rs_io *base) {
    return ((const udp_io *)base)->epoll_fd;
}

static int udp_send_fd(const rs_io *base) {
    return ((const udp_io *)base)->send_fd;
}

static uint64_t udp_drops(const rs_io *base, rs_io_group number) {
    const udp_group *group = find_group((const udp_io *)base, number);
    return group ? group->drops : 0;
}

static void udp_stats(const rs_io *base, rs_io_stats *out) {
    *out = ((const udp_io *)base)->stats;
}

const rs_io_ops rs_io_udp = {.name = "udp",
                             .summary = "sockets with sendmmsg and recvmmsg, on any interface",
                             .open = udp_open,
                             .close = udp_close,
                             .send = udp_send,
                             .join = udp_join,
                             .leave = udp_leave,
                             .receive = udp_receive,
                             .receive_fd = udp_receive_fd,
                             .send_fd = udp_send_fd,
                             .drops = udp_drops,
                             .stats = udp_stats};
