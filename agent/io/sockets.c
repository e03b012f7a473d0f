/* Sockets of the data channel: opening, joining, sending one datagram a message, counting drops. */
#include "io/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <linux/time_types.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MANY 4u /* groups: asking which are ready costs less than looking at all */
#define READY 64

/* -------------------------------------------------------------------------------------------------------- opening */

static void set_buffer(rs_sockets *io, int fd, int force_option, int option, int wanted) {
    int got = rs_socket_buffer(fd, force_option, option, wanted);
    if (got >= wanted || io->buffer_warned)
        return;
    rs_warn_buffer(&io->options, option, got, wanted);
    io->buffer_warned = true;
}

static bool open_send_socket(rs_sockets *io, char *error) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot open a UDP socket: %s", strerror(errno));
        return false;
    }
    io->send_fd = fd;
    struct ip_mreqn out = {.imr_ifindex = (int)io->interface.index};
    out.imr_address.s_addr = htonl(io->options.address);
    int loopback = io->options.loopback;
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out) != 0 ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &io->options.ttl, sizeof io->options.ttl) != 0 ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &loopback, sizeof loopback) != 0) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot send multicast on %s: %s", io->interface.name, strerror(errno));
        return false;
    }
    struct sockaddr_in source = {.sin_family = AF_INET};
    source.sin_addr.s_addr = htonl(io->options.address);
    if (bind(fd, (const struct sockaddr *)&source, sizeof source) != 0) {
        char address[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &source.sin_addr, address, sizeof address);
        snprintf(error, RS_IO_ERROR_MAX, "cannot send from %s: %s (is it an address of %s?)", address, strerror(errno),
                 io->interface.name);
        return false;
    }
    set_buffer(io, fd, SO_SNDBUFFORCE, SO_SNDBUF, io->options.send_buffer);
    return true;
}

rs_sockets *rs_sockets_new(size_t size, const rs_io_ops *ops, char *error) {
    rs_sockets *io = calloc(1, size);
    if (!io) {
        snprintf(error, RS_IO_ERROR_MAX, "no memory for packet I/O");
        return NULL;
    }
    io->base.ops = ops;
    io->send_fd = io->epoll_fd = -1;
    return io;
}

uint8_t *rs_sockets_buffers(size_t bytes, char *error) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED)
        return memory;
    snprintf(error, RS_IO_ERROR_MAX, "cannot set up packet buffers: %s", strerror(errno));
    return NULL;
}

bool rs_sockets_open(rs_sockets *io, const rs_io_options *options, char *error) {
    io->options = *options;
    io->log = (rs_send_log){.options = &io->options, .interface = &io->interface, .stats = &io->stats};
    io->send_fd = io->epoll_fd = -1;
    if (io->options.receive_buffer <= 0)
        io->options.receive_buffer = 16 << 20;
    if (io->options.send_buffer <= 0)
        io->options.send_buffer = 4 << 20;
    if (io->options.ttl <= 0)
        io->options.ttl = 8;
    if (!rs_interface_find(options, &io->interface, error) || !open_send_socket(io, error))
        return false;
    io->options.interface = io->interface.name;
    io->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (io->epoll_fd < 0)
        snprintf(error, RS_IO_ERROR_MAX, "cannot watch sockets: %s", strerror(errno));
    return io->epoll_fd >= 0;
}

bool rs_sockets_open_frames(rs_sockets *io, const rs_io_options *options, rs_frame_sender *out, char *error) {
    struct sockaddr_in own = {0};
    socklen_t length = sizeof own;
    if (!rs_sockets_open(io, options, error))
        return false;
    if (options->loopback) {
        snprintf(error, RS_IO_ERROR_MAX, "%s cannot bring a host its own datagrams: use --io udp", io->base.ops->name);
        return false;
    }
    if (getsockname(io->send_fd, (struct sockaddr *)&own, &length) != 0) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot set up %s: %s", io->base.ops->name, strerror(errno));
        return false;
    }
    *out =
        (rs_frame_sender){.address = io->options.address, .port = ntohs(own.sin_port), .ttl = (uint8_t)io->options.ttl};
    memcpy(out->mac, io->interface.mac, sizeof out->mac);
    return true;
}

void rs_sockets_close(rs_sockets *io) {
    for (unsigned i = 0; i < io->group_room; i++)
        if (io->groups[i].fd >= 0)
            close(io->groups[i].fd);
    if (io->send_fd >= 0)
        close(io->send_fd);
    if (io->epoll_fd >= 0)
        close(io->epoll_fd);
    free(io->groups);
}

/* -------------------------------------------------------------------------------------------------------- sending */

static void tell_ecn(uint8_t *control) {
    const struct cmsghdr c = {.cmsg_level = IPPROTO_IP, .cmsg_type = IP_TOS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memset(control, 0, CMSG_SPACE(sizeof(int)));
    memcpy(control, &c, sizeof c);
    memcpy(control + CMSG_LEN(0), &(int){RS_ECN_ABLE}, sizeof(int));
}

int rs_sockets_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    rs_sockets *io = (rs_sockets *)base;
    struct mmsghdr messages[RS_IO_BATCH];
    struct iovec vectors[RS_IO_BATCH][2];
    struct sockaddr_in addresses[RS_IO_BATCH];
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
    tell_ecn(control); /* the same for all that are markable */
    count = count < RS_IO_BATCH ? count : RS_IO_BATCH;
    for (unsigned i = 0; i < count; i++) {
        addresses[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(packets[i].port)};
        addresses[i].sin_addr.s_addr = htonl(packets[i].address);
        vectors[i][0] = (struct iovec){(void *)(uintptr_t)packets[i].header, packets[i].header_length};
        vectors[i][1] = (struct iovec){(void *)(uintptr_t)packets[i].payload, packets[i].payload_length};
        messages[i].msg_hdr = (struct msghdr){.msg_name = &addresses[i],
                                              .msg_namelen = sizeof addresses[i],
                                              .msg_iov = vectors[i],
                                              .msg_iovlen = packets[i].payload_length > 0 ? 2 : 1,
                                              .msg_control = packets[i].markable ? control : NULL,
                                              .msg_controllen = packets[i].markable ? sizeof control : 0};
    }
    return rs_messages_send(&io->log, io->send_fd, messages, packets, count);
}

/* --------------------------------------------------------------------------------------------------------- groups */

static rs_socket_group *find_group(const rs_sockets *io, rs_io_group number) {
    for (unsigned i = 0; i < io->group_room; i++)
        if (io->groups[i].fd >= 0 && io->groups[i].number == number)
            return &io->groups[i];
    return NULL;
}

static rs_socket_group *free_group(rs_sockets *io) {
    for (unsigned i = 0; i < io->group_room; i++)
        if (io->groups[i].fd < 0)
            return &io->groups[i];
    if (io->group_room >= RS_IO_GROUPS_MAX)
        return NULL;
    unsigned room = io->group_room ? io->group_room * 2 : 8;
    rs_socket_group *groups = realloc(io->groups, room * sizeof *groups);
    if (!groups)
        return NULL;
    io->groups = groups;
    for (unsigned i = io->group_room; i < room; i++)
        groups[i].fd = -1;
    rs_socket_group *fresh = &groups[io->group_room];
    io->group_room = room;
    return fresh;
}

/* The time at which the kernel took the last datagram read from the socket from the network. */
static bool taken_at(int fd, struct timespec *out) {
    struct __kernel_timespec stamp;
    if (ioctl(fd, SIOCGSTAMPNS_NEW, &stamp) != 0)
        return false;
    *out = (struct timespec){.tv_sec = stamp.tv_sec, .tv_nsec = (long)stamp.tv_nsec};
    return true;
}

/* Bound to the group's own address, so that no other group's datagrams come in. */
static int open_group_socket(rs_sockets *io, uint32_t address, uint16_t port) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int one = 1, zero = 0;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(address);
    struct ip_mreqn membership = {.imr_ifindex = (int)io->interface.index};
    membership.imr_multiaddr = to.sin_addr;
    membership.imr_address.s_addr = htonl(io->options.address);
    bool multicast = IN_MULTICAST(address);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &one, sizeof one) != 0 ||
        setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof one) != 0 ||
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &zero, sizeof zero) != 0 || (io->tune && !io->tune(fd)) ||
        bind(fd, (const struct sockaddr *)&to, sizeof to) != 0 ||
        (multicast && setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) != 0)) {
        int cause = errno;
        close(fd);
        errno = cause;
        return -1;
    }
    set_buffer(io, fd, SO_RCVBUFFORCE, SO_RCVBUF, io->options.receive_buffer);
    struct timespec none;
    (void)taken_at(fd, &none); /* the first question makes the kernel keep these times */
    return fd;
}

bool rs_sockets_join(rs_io *base, rs_io_group number, uint32_t address, uint16_t port, char *error) {
    rs_sockets *io = (rs_sockets *)base;
    if (find_group(io, number)) {
        snprintf(error, RS_IO_ERROR_MAX, "group number %u is in use", number);
        return false;
    }
    rs_socket_group *group = free_group(io);
    if (!group) {
        snprintf(error, RS_IO_ERROR_MAX, "no room for another group (at most %d)", RS_IO_GROUPS_MAX);
        return false;
    }
    int fd = open_group_socket(io, address, port);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(group - io->groups)};
    if (fd < 0 || epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        char text[INET_ADDRSTRLEN];
        struct in_addr in = {htonl(address)};
        snprintf(error, RS_IO_ERROR_MAX, "cannot receive %s:%u on %s: %s", inet_ntop(AF_INET, &in, text, sizeof text),
                 port, io->interface.name, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    *group = (rs_socket_group){.fd = fd, .number = number};
    io->group_count++;
    return true;
}

void rs_sockets_leave(rs_io *base, rs_io_group number) {
    rs_sockets *io = (rs_sockets *)base;
    rs_socket_group *group = find_group(io, number);
    if (!group)
        return;
    close(group->fd);
    group->fd = -1;
    io->group_count--;
    io->muted_count -= group->muted;
}

/* Of many groups few are lively: the others may stay watched. */
void rs_sockets_wake(rs_io *base, bool by_arrivals) {
    rs_sockets *io = (rs_sockets *)base;
    for (unsigned i = 0; i < io->group_room; i++) {
        rs_socket_group *group = &io->groups[i];
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (group->fd < 0 || group->muted != by_arrivals || (!by_arrivals && !group->lively))
            continue;
        if (epoll_ctl(io->epoll_fd, by_arrivals ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, group->fd, &event) == 0)
            group->muted = !by_arrivals;
        group->lively = false;
    }
    io->muted_count = 0;
    for (unsigned i = 0; i < io->group_room; i++)
        io->muted_count += io->groups[i].fd >= 0 && io->groups[i].muted;
}

static rs_socket_group *next_group(rs_sockets *io) {
    do
        io->next_slot = (io->next_slot + 1) % io->group_room;
    while (io->groups[io->next_slot].fd < 0);
    return &io->groups[io->next_slot];
}

/* Each ready group once, until none is, or none has what fits the limit. */
static void receive_ready(rs_sockets *io, unsigned limit, const rs_io_sink *sink, rs_sockets_read read,
                          unsigned *total) {
    struct epoll_event ready[READY];
    bool more = true;
    while (more && *total < limit) {
        int count = epoll_wait(io->epoll_fd, ready, READY, 0);
        unsigned before = *total;
        more = count == READY;
        for (int i = 0; i < count && *total < limit; i++) {
            rs_socket_group *group = ready[i].data.u32 < io->group_room ? &io->groups[ready[i].data.u32] : NULL;
            if (group && group->fd >= 0)
                more |= read(io, group, limit - *total, sink, total);
        }
        more = more && *total > before;
    }
}

void rs_sockets_receive(rs_sockets *io, unsigned limit, const rs_io_sink *sink, rs_sockets_read read, unsigned *total) {
    if (io->group_count > MANY && io->muted_count == 0) {
        receive_ready(io, limit, sink, read, total);
        return;
    }
    for (unsigned idle = 0; *total < limit && idle < io->group_count;)
        idle = read(io, next_group(io), limit - *total, sink, total) ? 0 : idle + 1;
}

/* The kernel's count is 32 bits wide, of the whole life of the socket. */
void rs_sockets_note_drops(rs_sockets *io, rs_socket_group *group, struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
            uint32_t count;
            memcpy(&count, CMSG_DATA(c), sizeof count);
            io->stats.dropped += (uint32_t)(count - (uint32_t)group->drops);
            group->drops += (uint32_t)(count - (uint32_t)group->drops);
        }
}

bool rs_sockets_was_marked(struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
            return (*CMSG_DATA(c) & RS_ECN_MASK) == RS_ECN_MASK;
    return false;
}

/* ---------------------------------------------------------------------------------------------------------- asking */

int rs_sockets_receive_fd(const rs_io *base) {
    return ((const rs_sockets *)base)->epoll_fd;
}

int rs_sockets_send_fd(const rs_io *base) {
    return ((const rs_sockets *)base)->send_fd;
}

uint64_t rs_sockets_drops(const rs_io *base, rs_io_group number) {
    const rs_socket_group *group = find_group((const rs_sockets *)base, number);
    return group ? group->drops : 0;
}

uint32_t rs_sockets_source(const rs_io *base) {
    return ((const rs_sockets *)base)->source;
}

bool rs_sockets_marked(const rs_io *base) {
    return ((const rs_sockets *)base)->marked;
}

int64_t rs_sockets_waited(const rs_io *base, rs_io_group number) {
    const rs_socket_group *group = find_group((const rs_sockets *)base, number);
    struct timespec taken, now;
    if (!group || !taken_at(group->fd, &taken))
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t waited = (int64_t)(now.tv_sec - taken.tv_sec) * 1000000000 + (now.tv_nsec - taken.tv_nsec);
    return waited > 0 && waited < INT64_C(1000000000) ? waited : 0; /* that clock may be set at any time */
}

/* The kernel counts the memory a datagram lies in, up to twice its bytes, and gives it back with a delay of up to a
 * quarter of the buffer. */
uint64_t rs_sockets_receive_room(const rs_io *base, rs_io_group number) {
    const rs_socket_group *group = find_group((const rs_sockets *)base, number);
    int granted = 0;
    socklen_t length = sizeof granted;
    if (!group || getsockopt(group->fd, SOL_SOCKET, SO_RCVBUF, &granted, &length) != 0 || granted < 0)
        return 0;
    return (uint64_t)granted / 8 * 3;
}

void rs_sockets_stats(const rs_io *base, rs_io_stats *out) {
    *out = ((const rs_sockets *)base)->stats;
}
