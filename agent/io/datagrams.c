#include "io/datagrams.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "io/sockets.h"

#define BATCH 128u
#define READ_BATCH 32u
#define SEGMENTS 64u /* the kernel's UDP_MAX_SEGMENTS, 64 until Linux 6.8 */
#define OPEN_PEERS 64u
#define BUFFER_BYTES (4 << 20)
#define NONE UINT16_MAX
#define WAITED_MOST INT64_C(1000000000) /* ns; more is a clock that was set */

typedef struct {
    uint32_t address;
    uint16_t port, next; /* the next datagram of the same message, NONE at its end */
    uint32_t length;
    bool markable;
    struct iovec pieces[2];
    uint8_t header[RS_DATAGRAM_HEADER_MAX];
} slot;

/* What one call of sendmmsg takes: messages of one datagram or several. */
typedef struct {
    struct mmsghdr messages[BATCH];
    struct sockaddr_in to[BATCH];
    struct iovec pieces[2 * BATCH];
    _Alignas(struct cmsghdr) uint8_t control[BATCH][CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int))];
    uint16_t first[BATCH], last[BATCH], count[BATCH]; /* of its datagrams, as slots */
    uint32_t bytes[BATCH];
} outgoing;

struct rs_datagrams {
    int fd;
    bool joined, marked;
    int64_t waited;
    struct timespec read_at;
    uint64_t lost;
    unsigned filled;
    slot slots[BATCH];
    outgoing out;
    struct sockaddr_in from[READ_BATCH];
    struct iovec rooms[READ_BATCH];
    struct mmsghdr in[READ_BATCH];
    _Alignas(struct cmsghdr) uint8_t in_control[READ_BATCH][CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint8_t)) +
                                                            CMSG_SPACE(sizeof(struct timespec))];
    uint8_t *memory;
};

static void expect(rs_datagrams *d, unsigned i) {
    d->in[i].msg_hdr = (struct msghdr){.msg_name = &d->from[i],
                                       .msg_namelen = sizeof d->from[i],
                                       .msg_iov = &d->rooms[i],
                                       .msg_iovlen = 1,
                                       .msg_control = d->in_control[i],
                                       .msg_controllen = sizeof d->in_control[i]};
}

rs_datagrams *rs_datagrams_open(uint32_t address, uint16_t port, bool joined, char *error, size_t size) {
    rs_datagrams *d = calloc(1, sizeof *d);
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    const int bytes = BUFFER_BYTES, one = 1;
    if (d) {
        d->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        d->memory = malloc((size_t)READ_BATCH * RS_DATAGRAM_MAX);
    }
    if (!d || d->fd < 0 || !d->memory || bind(d->fd, (const struct sockaddr *)&own, sizeof own) != 0) {
        snprintf(error, size, "no socket for packets between peers on UDP port %u: %s", port, strerror(errno));
        rs_datagrams_close(d);
        return NULL;
    }
    setsockopt(d->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes); /* as much as the system grants */
    setsockopt(d->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(d->fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof one);
    setsockopt(d->fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    d->joined = joined && setsockopt(d->fd, SOL_UDP, UDP_GRO, &one, sizeof one) == 0;
    for (unsigned i = 0; i < READ_BATCH; i++) {
        d->rooms[i] = (struct iovec){d->memory + (size_t)i * RS_DATAGRAM_MAX, RS_DATAGRAM_MAX};
        expect(d, i);
    }
    return d;
}

void rs_datagrams_close(rs_datagrams *d) {
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    free(d->memory);
    free(d);
}

int rs_datagrams_fd(const rs_datagrams *d) {
    return d->fd;
}

bool rs_datagrams_marked(const rs_datagrams *d) {
    return d->marked;
}

int64_t rs_datagrams_waited(const rs_datagrams *d) {
    return d->waited;
}

uint64_t rs_datagrams_lost(const rs_datagrams *d) {
    return d->lost;
}

/* -------------------------------------------------------------------------------------------------------- sending */

void rs_datagrams_send(rs_datagrams *d, uint32_t address, uint16_t port, const uint8_t *header, size_t header_length,
                       const uint8_t *payload, size_t payload_length) {
    if (d->filled == BATCH)
        rs_datagrams_flush(d);
    slot *s = &d->slots[d->filled++];
    if (header_length > 0)
        memcpy(s->header, header, header_length);
    s->address = address;
    s->port = port;
    s->next = NONE;
    s->markable = false;
    s->length = (uint32_t)(header_length + payload_length);
    s->pieces[0] = (struct iovec){s->header, header_length};
    s->pieces[1] = (struct iovec){(void *)(uintptr_t)payload, payload_length};
}

void rs_datagrams_markable(rs_datagrams *d) {
    d->slots[d->filled - 1].markable = true;
}

static bool is_control(const slot *s) {
    return s->pieces[1].iov_len == 0;
}

static bool follows(const rs_datagrams *d, unsigned message, const slot *s) {
    const outgoing *o = &d->out;
    const slot *first = &d->slots[o->first[message]], *last = &d->slots[o->last[message]];
    return first->address == s->address && first->port == s->port && is_control(first) == is_control(s) &&
           first->markable == s->markable && last->length == first->length && s->length > 0 &&
           s->length <= first->length && o->count[message] < SEGMENTS &&
           o->bytes[message] + s->length <= RS_DATAGRAM_MAX;
}

/* The datagrams of the batch into messages; returns how many. Each joins the newest message to its peer, if that goes
 * on with datagrams of one size. */
static unsigned join(rs_datagrams *d) {
    outgoing *o = &d->out;
    uint16_t newest[OPEN_PEERS];
    unsigned messages = 0;
    memset(newest, 0xff, sizeof newest);
    for (unsigned i = 0; i < d->filled; i++) {
        slot *s = &d->slots[i];
        uint16_t *open = &newest[(s->address * UINT32_C(2654435761) + s->port) >> 26];
        unsigned m = *open;
        if (d->joined && m != NONE && follows(d, m, s)) {
            d->slots[o->last[m]].next = (uint16_t)i;
            o->count[m]++;
            o->bytes[m] += s->length;
        } else {
            *open = (uint16_t)(m = messages++);
            o->first[m] = (uint16_t)i;
            o->count[m] = 1;
            o->bytes[m] = s->length;
        }
        o->last[m] = (uint16_t)i;
    }
    return messages;
}

/* One ancillary item at `at`; returns the bytes it takes there. */
static size_t tell_kernel(uint8_t *at, int level, int type, const void *value, size_t length) {
    const struct cmsghdr c = {.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(length)};
    memcpy(at, &c, sizeof c);
    memcpy(at + CMSG_LEN(0), value, length);
    return CMSG_SPACE(length);
}

static void lay_out(rs_datagrams *d, unsigned messages) {
    outgoing *o = &d->out;
    struct iovec *piece = o->pieces;
    for (unsigned m = 0; m < messages; m++) {
        const slot *first = &d->slots[o->first[m]];
        struct msghdr *h = &o->messages[m].msg_hdr;
        o->to[m] = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_port = htons(first->port), .sin_addr.s_addr = htonl(first->address)};
        *h = (struct msghdr){.msg_name = &o->to[m], .msg_namelen = sizeof o->to[m], .msg_iov = piece};
        for (unsigned i = o->first[m]; i != NONE; i = d->slots[i].next) {
            *piece++ = d->slots[i].pieces[0];
            if (d->slots[i].pieces[1].iov_len > 0)
                *piece++ = d->slots[i].pieces[1];
        }
        h->msg_iovlen = (size_t)(piece - h->msg_iov);
        uint16_t segment = (uint16_t)first->length;
        size_t used = 0;
        const int tos = (is_control(first) ? RS_DSCP_CONTROL << 2 : 0) | (first->markable ? RS_ECN_ABLE : 0);
        if (tos)
            used += tell_kernel(o->control[m], IPPROTO_IP, IP_TOS, &tos, sizeof tos);
        if (o->count[m] > 1)
            used += tell_kernel(o->control[m] + used, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
        h->msg_control = used ? o->control[m] : NULL;
        h->msg_controllen = used;
    }
}

static bool is_full(int cause) {
    return cause == EAGAIN || cause == EWOULDBLOCK || cause == ENOBUFS;
}

/* The kernel refuses a message of several: a device that cannot (EIO), a path with a smaller MTU, a file shortened
 * under its map. One by one only those to blame are lost. False: the socket is full. */
static bool send_singly(rs_datagrams *d, unsigned message, int cause) {
    d->joined = d->joined && cause != EIO;
    for (unsigned i = d->out.first[message], left = d->out.count[message]; i != NONE; i = d->slots[i].next, left--) {
        const struct msghdr alone = {.msg_name = &d->out.to[message],
                                     .msg_namelen = sizeof d->out.to[message],
                                     .msg_iov = d->slots[i].pieces,
                                     .msg_iovlen = 2}; /* by best effort: rare */
        ssize_t sent;
        do
            sent = sendmsg(d->fd, &alone, 0);
        while (sent < 0 && errno == EINTR);
        if (sent < 0 && is_full(errno)) {
            d->lost += left;
            return false;
        }
        d->lost += sent < 0;
    }
    return true;
}

/* One that the kernel refuses (no route, a port nobody listens on told by ICMP, a file shortened under its map) is lost
 * alone; when the socket is full, all that is left is. */
void rs_datagrams_flush(rs_datagrams *d) {
    unsigned messages = join(d), at = 0;
    lay_out(d, messages);
    while (at < messages) {
        int sent = sendmmsg(d->fd, d->out.messages + at, messages - at, 0);
        if (sent > 0) {
            at += (unsigned)sent;
        } else if (is_full(errno)) {
            break;
        } else if (errno != EINTR) {
            if (d->out.count[at] == 1)
                d->lost++;
            bool room = d->out.count[at] == 1 || send_singly(d, at, errno);
            at++;
            if (!room)
                break;
        }
    }
    for (; at < messages; at++)
        d->lost += d->out.count[at];
    d->filled = 0;
}

/* ------------------------------------------------------------------------------------------------------ receiving */

/* Bytes of each datagram of a message but the last. */
static size_t segment_of(struct mmsghdr *message) {
    int segment = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message->msg_hdr); c; c = CMSG_NXTHDR(&message->msg_hdr, c))
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO)
            memcpy(&segment, CMSG_DATA(c), sizeof segment);
    return segment > 0 ? (size_t)segment : RS_DATAGRAM_MAX;
}

/* 0: the kernel did not say when it came, or that clock was set meanwhile. */
static int64_t waited(const rs_datagrams *d, struct mmsghdr *message) {
    struct timespec came = d->read_at;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message->msg_hdr); c; c = CMSG_NXTHDR(&message->msg_hdr, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS)
            memcpy(&came, CMSG_DATA(c), sizeof came);
    int64_t time = (int64_t)(d->read_at.tv_sec - came.tv_sec) * 1000000000 + (d->read_at.tv_nsec - came.tv_nsec);
    return time > 0 && time < WAITED_MOST ? time : 0;
}

static unsigned take(rs_datagrams *d, unsigned i, rs_datagram_taken taken, void *context) {
    const uint8_t *bytes = d->rooms[i].iov_base;
    const uint32_t address = ntohl(d->from[i].sin_addr.s_addr);
    const uint16_t port = ntohs(d->from[i].sin_port);
    size_t length = d->in[i].msg_len, segment = segment_of(&d->in[i]), at = 0;
    unsigned count = 0;
    d->waited = waited(d, &d->in[i]);
    d->marked = rs_sockets_was_marked(&d->in[i].msg_hdr); /* the kernel joins none that are with some that are not */
    do {
        taken(context, address, port, bytes + at, length - at < segment ? length - at : segment);
        at += segment;
        count++;
    } while (at < length);
    return count;
}

unsigned rs_datagrams_receive(rs_datagrams *d, unsigned limit, rs_datagram_taken taken, rs_datagrams_read read,
                              void *context) {
    unsigned total = 0;
    while (total < limit) {
        unsigned want = limit - total < READ_BATCH ? limit - total : READ_BATCH;
        int got = recvmmsg(d->fd, d->in, want, 0, NULL);
        if (got <= 0)
            return total; /* none wait, or an ICMP error was told: the next look sees what is behind it */
        clock_gettime(CLOCK_REALTIME, &d->read_at);
        if (read)
            read(context);
        for (unsigned i = 0; i < (unsigned)got; i++) {
            total += take(d, i, taken, context);
            expect(d, i);
        }
        if ((unsigned)got < want)
            return total;
    }
    return total;
}
