/* Data channel over UDP sockets with segmentation offload: datagrams of one size to one group leave in one message and
 * come as one message, a packet of up to 64 KB for all of the kernel in between.
 *
 * Received datagrams of a message follow each other without a gap, so that places for them are predicted as a pattern:
 * header, place, header, place ... Bytes that have no predicted place, headers among them, go to the message's bounce
 * buffer at their offset in the message. What does not fit the pattern is gathered there as well ("linear") and copied
 * from there. */
#include "io/udp_gso.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/place.h"
#include "io/sockets.h"

#define SEND_SEGMENTS 64u       /* the kernel's UDP_MAX_SEGMENTS, 64 until Linux 6.8 */
#define SEGMENTS RS_IO_TOGETHER /* places predicted for one message at most; RS_IO_BATCH fit */
#define WANTED_MIN 8u           /* ... or messages read at once, at least: to learn that more come */
#define BOUNCE_BYTES 67584u     /* room for the largest message and a header behind it */
#define MESSAGE_BYTES 65536u    /* of which the kernel may fill so many */
#define UDP_IP_HEADERS 28u
#define CONTROL_BYTES (CMSG_SPACE(sizeof(uint32_t)) + CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint8_t)))

/* One message as it was read. */
typedef struct {
    uint8_t *bounce;
    uint32_t length, segment; /* bytes in all, and of each datagram but the last */
    unsigned first, count;    /* its places in `places` */
    struct sockaddr_in from;
    bool marked; /* the kernel joins none that are with some that are not */
} gso_message;

typedef struct {
    uint8_t *at;
    uint32_t length;
} place;

/* Everything one read needs. */
typedef struct {
    struct mmsghdr headers[RS_IO_BATCH];
    struct iovec vectors[2 * SEGMENTS + RS_IO_BATCH];
    _Alignas(struct cmsghdr) uint8_t control[RS_IO_BATCH][CONTROL_BYTES];
    gso_message messages[RS_IO_BATCH];
    place places[SEGMENTS];
    rs_placement placements[SEGMENTS];
} gso_read;

/* Linear messages whose datagrams are not all delivered yet: more came than the receive call may deliver. */
typedef struct {
    bool waiting;
    rs_io_group group;
    unsigned count, message; /* messages in all, and the one that is next */
    uint32_t offset;
} backlog;

typedef struct {
    rs_sockets sockets;
    uint8_t *bounces; /* RS_IO_BATCH buffers of BOUNCE_BYTES, touched as far as they are needed */
    gso_read *read;
    backlog backlog;
    int backlog_fd; /* readable while something waits there */
    bool plain;     /* the interface cannot: one datagram a message */
} gso_io;

/* -------------------------------------------------------------------------------------------------------- opening */

static void gso_close(rs_io *base) {
    gso_io *io = (gso_io *)base;
    rs_sockets_close(&io->sockets);
    if (io->backlog_fd >= 0)
        close(io->backlog_fd);
    if (io->bounces)
        munmap(io->bounces, (size_t)RS_IO_BATCH * BOUNCE_BYTES);
    free(io->read);
    free(io);
}

static bool join_segments(int fd) {
    int one = 1;
    return setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof one) == 0;
}

static bool check_kernel(const gso_io *io, char *error) {
    int zero = 0;
    bool sends = setsockopt(io->sockets.send_fd, SOL_UDP, UDP_SEGMENT, &zero, sizeof zero) == 0;
    if (sends && setsockopt(io->sockets.send_fd, SOL_UDP, UDP_GRO, &zero, sizeof zero) == 0)
        return true;
    snprintf(error, RS_IO_ERROR_MAX, "this kernel has no %s",
             sends ? "UDP_GRO (Linux 5.0)" : "UDP_SEGMENT (Linux 4.18)");
    return false;
}

static bool allocate(gso_io *io, char *error) {
    io->read = calloc(1, sizeof *io->read);
    io->bounces = rs_sockets_buffers((size_t)RS_IO_BATCH * BOUNCE_BYTES, error);
    io->backlog_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = UINT32_MAX}; /* no group */
    if (io->read && io->bounces && io->backlog_fd >= 0 &&
        epoll_ctl(io->sockets.epoll_fd, EPOLL_CTL_ADD, io->backlog_fd, &event) == 0)
        return true;
    snprintf(error, RS_IO_ERROR_MAX, "cannot set up packet buffers: %s", strerror(errno));
    return false;
}

static rs_io *gso_open(const rs_io_options *options, char *error) {
    gso_io *io = (gso_io *)rs_sockets_new(sizeof *io, &rs_io_udp_gso, error);
    if (!io)
        return NULL;
    io->sockets.tune = join_segments;
    io->backlog_fd = -1;
    if (!rs_sockets_open(&io->sockets, options, error) || !check_kernel(io, error) || !allocate(io, error)) {
        gso_close(&io->sockets.base);
        return NULL;
    }
    return &io->sockets.base;
}

/* -------------------------------------------------------------------------------------------------------- sending */

static uint32_t bytes_of(const rs_io_packet *packet) {
    return packet->header_length + packet->payload_length;
}

/* How many packets from the first on fit one message: one group, one size, the last may be shorter. */
static unsigned run_of(const gso_io *io, const rs_io_packet *packets, unsigned count) {
    uint32_t size = bytes_of(packets), total = size;
    unsigned run = 1;
    if (size == 0 || size + UDP_IP_HEADERS > io->sockets.interface.mtu)
        return 1;
    count = count < SEND_SEGMENTS ? count : SEND_SEGMENTS;
    while (run < count && packets[run].address == packets->address && packets[run].port == packets->port &&
           packets[run].markable == packets->markable) {
        uint32_t next = bytes_of(&packets[run]);
        if (next == 0 || next > size || total + next > RS_IO_PAYLOAD_MAX)
            break;
        total += next;
        run++;
        if (next < size)
            break;
    }
    return run;
}

/* What sendmmsg needs for one batch. */
typedef struct {
    struct mmsghdr messages[RS_IO_BATCH];
    struct iovec vectors[2 * RS_IO_BATCH];
    struct sockaddr_in addresses[RS_IO_BATCH];
    _Alignas(struct cmsghdr) uint8_t control[RS_IO_BATCH][CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int))];
    unsigned runs[RS_IO_BATCH]; /* packets of each message */
} gso_batch;

static void tell_kernel(struct msghdr *message, uint8_t *control, int level, int type, const void *value,
                        size_t length) {
    const struct cmsghdr c = {.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(length)};
    memcpy(control + message->msg_controllen, &c, sizeof c);
    memcpy(control + message->msg_controllen + CMSG_LEN(0), value, length);
    message->msg_control = control;
    message->msg_controllen += CMSG_SPACE(length);
}

static unsigned fill_batch(const gso_io *io, gso_batch *b, const rs_io_packet *packets, unsigned count) {
    unsigned messages = 0;
    for (unsigned i = 0; i < count; messages++) {
        unsigned run = run_of(io, packets + i, count - i);
        struct msghdr *message = &b->messages[messages].msg_hdr;
        struct sockaddr_in *to = &b->addresses[messages];
        *to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(packets[i].port)};
        to->sin_addr.s_addr = htonl(packets[i].address);
        *message = (struct msghdr){
            .msg_name = to, .msg_namelen = sizeof *to, .msg_iov = &b->vectors[2 * i], .msg_iovlen = 2 * (size_t)run};
        uint16_t segment = (uint16_t)bytes_of(&packets[i]);
        if (run > 1)
            tell_kernel(message, b->control[messages], SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
        if (packets[i].markable)
            tell_kernel(message, b->control[messages], IPPROTO_IP, IP_TOS, &(int){RS_ECN_ABLE}, sizeof(int));
        b->runs[messages] = run;
        for (unsigned end = i + run; i < end; i++) {
            b->vectors[2 * i] = (struct iovec){(void *)(uintptr_t)packets[i].header, packets[i].header_length};
            b->vectors[2 * i + 1] = (struct iovec){(void *)(uintptr_t)packets[i].payload, packets[i].payload_length};
        }
    }
    return messages;
}

/* The kernel does not take a message of several: an interface without checksum offload (EIO, before Linux 6.11), a path
 * with a smaller MTU, memory that cannot be read. One by one it is known which packet is to blame. */
static int send_run(gso_io *io, int cause, const rs_io_packet *packets, unsigned count) {
    if (cause == EIO && !io->plain) {
        io->plain = true;
        rs_io_warn(&io->sockets.options, "the kernel cannot cut datagrams for this interface (no checksum offload): "
                                         "they are sent one by one");
    }
    return rs_sockets_send(&io->sockets.base, packets, count);
}

static int gso_send(rs_io *base, const rs_io_packet *packets, unsigned count) {
    gso_io *io = (gso_io *)base;
    if (io->plain)
        return rs_sockets_send(base, packets, count);
    gso_batch b;
    count = count < RS_IO_BATCH ? count : RS_IO_BATCH;
    unsigned messages = fill_batch(io, &b, packets, count), at = 0, taken = 0;
    while (at < messages) {
        int sent = sendmmsg(io->sockets.send_fd, b.messages + at, messages - at, 0);
        if (sent > 0) {
            for (unsigned end = at + (unsigned)sent; at < end; taken += b.runs[at++]) {
                io->sockets.stats.bytes_sent += b.messages[at].msg_len;
                io->sockets.stats.packets_sent += b.runs[at];
            }
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            int alone = send_run(io, errno, packets + taken, b.runs[at]);
            if (alone < 0)
                return taken > 0 ? (int)taken : alone;
            taken += (unsigned)alone;
            if ((unsigned)alone < b.runs[at++])
                break;
        }
    }
    return (int)taken;
}

/* ------------------------------------------------------------------------------------------------------ receiving */

/* Lays out the pattern of one message with at most `wanted` places; `ahead` counts places of the whole read. */
static size_t lay_out(gso_read *r, gso_message *m, struct iovec *vectors, unsigned wanted, const rs_io_sink *sink,
                      rs_io_group group, unsigned *ahead, bool *predictable) {
    uint32_t offset = 0, full = 0;
    size_t used = 0;
    m->first = *ahead;
    m->count = 0;
    while (*predictable && m->count < wanted && *ahead < SEGMENTS) {
        place *p = &r->places[*ahead];
        *predictable = sink->predict(sink->context, group, *ahead, &p->at, &p->length) && p->length > 0;
        full = m->count == 0 ? p->length : full;
        if (!*predictable || p->length > full || offset + RS_IO_HEADER_BYTES + p->length > RS_IO_PAYLOAD_MAX)
            break;
        vectors[used++] = (struct iovec){m->bounce + offset, RS_IO_HEADER_BYTES};
        vectors[used++] = (struct iovec){p->at, p->length};
        offset += RS_IO_HEADER_BYTES + p->length;
        m->count++;
        ++*ahead;
        if (p->length < full) /* a shorter datagram ends a message */
            break;
    }
    vectors[used++] = (struct iovec){m->bounce + offset, MESSAGE_BYTES - offset};
    return used;
}

static void prepare(gso_io *io, const rs_socket_group *group, unsigned messages, unsigned wanted,
                    const rs_io_sink *sink) {
    gso_read *r = io->read;
    bool predictable = sink->predict != NULL;
    unsigned ahead = 0;
    size_t used = 0;
    for (unsigned i = 0; i < messages; i++) {
        gso_message *m = &r->messages[i];
        struct iovec *vectors = &r->vectors[used];
        m->bounce = io->bounces + (size_t)i * BOUNCE_BYTES;
        size_t count = lay_out(r, m, vectors, wanted, sink, group->number, &ahead, &predictable);
        used += count;
        r->headers[i].msg_hdr = (struct msghdr){.msg_name = &m->from,
                                                .msg_namelen = sizeof m->from,
                                                .msg_iov = vectors,
                                                .msg_iovlen = count,
                                                .msg_control = r->control[i],
                                                .msg_controllen = CONTROL_BYTES};
    }
}

/* Bytes of each datagram the kernel joined; the whole message if it says nothing. */
static uint32_t segment_of(struct mmsghdr *message) {
    int segment = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message->msg_hdr); c; c = CMSG_NXTHDR(&message->msg_hdr, c))
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO)
            memcpy(&segment, CMSG_DATA(c), sizeof segment);
    return segment > 0 && (uint32_t)segment < message->msg_len ? (uint32_t)segment : message->msg_len;
}

static unsigned segments_of(const gso_message *m) {
    return m->length > m->segment ? (m->length + m->segment - 1) / m->segment : 1;
}

/* Every datagram of the message has its header where headers are, and its payload in one place (and behind it). */
static bool fits(const gso_read *r, const gso_message *m) {
    if (m->count == 0)
        return true;
    const place *first = &r->places[m->first], *last = &first[m->count - 1];
    uint32_t full = RS_IO_HEADER_BYTES + first->length;
    uint32_t covered = full * (m->count - 1) + RS_IO_HEADER_BYTES + last->length;
    if (m->segment >= m->length) /* one datagram */
        return m->count == 1 || m->length <= full;
    return m->segment == full && (last->length == first->length || m->length <= covered);
}

/* Gathers the whole message in its bounce buffer. */
static void make_linear(const gso_read *r, gso_message *m) {
    uint32_t offset = 0;
    for (unsigned i = 0; i < m->count; i++) {
        const place *p = &r->places[m->first + i];
        offset += RS_IO_HEADER_BYTES;
        if (offset >= m->length)
            break;
        memcpy(m->bounce + offset, p->at, p->length < m->length - offset ? p->length : m->length - offset);
        offset += p->length;
    }
    m->count = 0;
}

static uint8_t *deliver(gso_io *io, const rs_io_sink *sink, rs_io_group group, const gso_message *m, uint32_t offset,
                        uint32_t *payload_length) {
    uint32_t length = m->length - offset < m->segment ? m->length - offset : m->segment;
    uint32_t header_length = length < RS_IO_HEADER_BYTES ? length : RS_IO_HEADER_BYTES;
    *payload_length = length - header_length;
    io->sockets.stats.packets_received++;
    io->sockets.stats.bytes_received += length;
    io->sockets.source = ntohl(m->from.sin_addr.s_addr);
    io->sockets.marked = m->marked;
    return sink->deliver(sink->context, group, m->bounce + offset, header_length, *payload_length);
}

/* Where a datagram lies in messages that were read. */
typedef struct {
    unsigned message;
    uint32_t offset;
} datagram_place;

/* False: it was the last one. */
static bool next_place(const gso_message *messages, unsigned count, datagram_place *at) {
    if (at->message == count)
        return false;
    at->offset += messages[at->message].segment;
    if (at->offset >= messages[at->message].length) {
        at->message++;
        at->offset = 0;
    }
    return at->message < count;
}

/* Those that come after the one at `at` are shown (rs_io_sink.soon). */
static void show_next(const gso_message *messages, unsigned count, datagram_place at, const rs_io_sink *sink) {
    datagram_place places[RS_IO_SOON_MOST];
    uint32_t ahead = 0;
    if (!sink->soon || sink->predict)
        return;
    for (; ahead < sink->soon_most && next_place(messages, count, &at); ahead++)
        places[ahead] = at;
    for (; ahead > 0; ahead--) {
        const datagram_place *p = &places[ahead - 1];
        const gso_message *m = &messages[p->message];
        uint32_t rest = m->length - p->offset;
        sink->soon(sink->context, ahead, m->bounce + p->offset, rest < m->segment ? rest : m->segment);
    }
}

/* Messages that fit their patterns: what lies wrong is mended by moving places, as in place.h. */
static void deliver_patterns(gso_io *io, rs_io_group group, unsigned messages, const rs_io_sink *sink) {
    gso_read *r = io->read;
    unsigned count = 0, kept = 0;
    for (unsigned i = 0; i < messages; i++) {
        const gso_message *m = &r->messages[i];
        unsigned segments = segments_of(m);
        for (unsigned s = 0; s < segments; s++) {
            rs_placement *p = &r->placements[count++];
            uint32_t offset = s * m->segment;
            const place *predicted = s < m->count ? &r->places[m->first + s] : NULL;
            *p = (rs_placement){.bounce = m->bounce + offset + RS_IO_HEADER_BYTES,
                                .head = predicted ? predicted->at : NULL,
                                .head_length = predicted ? predicted->length : 0};
            show_next(r->messages, messages, (datagram_place){i, offset}, sink);
            p->target = deliver(io, sink, group, m, offset, &p->length);
            kept += p->target != NULL && p->length > 0;
        }
    }
    unsigned moved = rs_place_all(r->placements, count);
    io->sockets.stats.moved += moved;
    io->sockets.stats.predicted += kept - moved;
}

static void set_waiting(gso_io *io, bool waiting) {
    if (waiting != io->backlog.waiting) {
        eventfd_t count = 1;
        if (waiting)
            (void)eventfd_write(io->backlog_fd, count);
        else
            (void)eventfd_read(io->backlog_fd, &count);
    }
    io->backlog.waiting = waiting;
}

/* Linear messages: each payload is copied out at once, as many as the limit allows. */
static void deliver_backlog(gso_io *io, unsigned limit, const rs_io_sink *sink, unsigned *total) {
    backlog *b = &io->backlog;
    while (b->message < b->count && *total < limit) {
        const gso_message *m = &io->read->messages[b->message];
        uint32_t length;
        show_next(io->read->messages, b->count, (datagram_place){b->message, b->offset}, sink);
        uint8_t *target = deliver(io, sink, b->group, m, b->offset, &length);
        if (target && length > 0) {
            memcpy(target, m->bounce + b->offset + RS_IO_HEADER_BYTES, length);
            io->sockets.stats.moved++;
        }
        b->offset += m->segment;
        if (b->offset >= m->length) {
            b->message++;
            b->offset = 0;
        }
        ++*total;
    }
    set_waiting(io, b->message < b->count);
}

/* Reads once: many messages while each is one datagram; one message while it holds several, since only then it is
 * known where the next one's datagrams belong. False when the socket had no more. */
static bool read_group(rs_sockets *base, rs_socket_group *group, unsigned limit, const rs_io_sink *sink,
                       unsigned *total) {
    gso_io *io = (gso_io *)base;
    gso_read *r = io->read;
    bool joined = group->last_segments > 1;
    if (joined && *total > 0 && limit < group->last_segments)
        return false; /* it would have to be gathered first: next time */
    unsigned wanted = joined ? group->last_segments + group->last_segments / 8 + 1 : group->last_batch * 2;
    unsigned most = joined ? SEGMENTS : RS_IO_BATCH;
    wanted = wanted > WANTED_MIN ? wanted : WANTED_MIN;
    wanted = wanted < most ? wanted : most;
    wanted = wanted < limit ? wanted : limit;
    unsigned messages = joined ? 1 : wanted;
    prepare(io, group, messages, joined ? wanted : 1, sink);
    int received = recvmmsg(group->fd, r->headers, messages, MSG_DONTWAIT, NULL);
    if (received <= 0) {
        group->last_batch = 0;
        return false;
    }
    bool all_fit = true;
    unsigned segments = 0;
    for (unsigned i = 0; i < (unsigned)received; i++) {
        gso_message *m = &r->messages[i];
        m->length = r->headers[i].msg_len;
        m->segment = segment_of(&r->headers[i]);
        m->marked = rs_sockets_was_marked(&r->headers[i].msg_hdr);
        all_fit = all_fit && fits(r, m);
        unsigned count = segments_of(m), before = group->last_segments, less = before - (before + 15) / 16;
        group->last_segments = count > less ? count : less; /* a batch ends with a message that is not full */
        segments += count;
    }
    group->last_batch = (unsigned)received;
    group->lively = true;
    rs_sockets_note_drops(base, group, &r->headers[received - 1].msg_hdr);
    if (all_fit && segments <= limit && segments <= SEGMENTS) {
        deliver_patterns(io, group->number, (unsigned)received, sink);
        *total += segments;
        return (unsigned)received == messages;
    }
    for (unsigned i = 0; i < (unsigned)received; i++)
        make_linear(r, &r->messages[i]);
    io->backlog = (backlog){.waiting = io->backlog.waiting, .group = group->number, .count = (unsigned)received};
    unsigned delivered = 0;
    deliver_backlog(io, limit, sink, &delivered);
    *total += delivered;
    return (unsigned)received == messages;
}

static int gso_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    gso_io *io = (gso_io *)base;
    unsigned total = 0;
    if (io->backlog.waiting)
        deliver_backlog(io, limit, sink, &total);
    rs_sockets_receive(&io->sockets, limit, sink, read_group, &total);
    return (int)total;
}

static void gso_leave(rs_io *base, rs_io_group number) {
    gso_io *io = (gso_io *)base;
    if (io->backlog.waiting && io->backlog.group == number)
        set_waiting(io, false);
    rs_sockets_leave(base, number);
}

const rs_io_ops rs_io_udp_gso = {
    .name = "udp-gso",
    .summary = "sockets with UDP_SEGMENT and UDP_GRO: several datagrams pass the kernel as one, and may be lost as one",
    .open = gso_open,
    .close = gso_close,
    .send = gso_send,
    .join = rs_sockets_join,
    .leave = gso_leave,
    .receive = gso_receive,
    .receive_fd = rs_sockets_receive_fd,
    .send_fd = rs_sockets_send_fd,
    .wake = rs_sockets_wake,
    .drops = rs_sockets_drops,
    .receive_room = rs_sockets_receive_room,
    .waited = rs_sockets_waited,
    .source = rs_sockets_source,
    .marked = rs_sockets_marked,
    .stats = rs_sockets_stats};
