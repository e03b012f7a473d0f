/* Ways `udp` and `udp-gso`: the kernel's sockets. Payloads are gathered from the object, and scattered to places. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "raw.h"

#define UDP_MAX 65507u

typedef struct {
    int fd;
    unsigned segments; /* packets in one message; 1 for way `udp` */
    bool joined;       /* messages of joined packets came last */
    rs_raw_header headers[RS_RAW_BATCH];
    struct iovec pieces[2 * RS_RAW_BATCH];
    struct mmsghdr messages[RS_RAW_BATCH];
    struct iovec triples[3 * RS_RAW_BATCH];
    uint64_t next; /* the packet expected */
    uint8_t *bounce, *spilled;
} udp;

static udp *make(const rs_raw *raw, bool receives) {
    udp *u = calloc(1, sizeof *u);
    if (!u)
        rs_raw_die("no memory");
    u->fd = rs_raw_socket(raw, receives);
    u->segments = 1;
    return u;
}

/* ---------------------------------------------------------------------------------------------------------- sending */

static void *udp_sender(const rs_raw *raw) {
    return make(raw, false);
}

static void *gso_sender(const rs_raw *raw) {
    udp *u = make(raw, false);
    int segment = (int)(raw->payload + sizeof(rs_raw_header));
    if (setsockopt(u->fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0)
        rs_raw_die("UDP_SEGMENT");
    u->segments = UDP_MAX / (unsigned)segment;
    if (u->segments > RS_RAW_BATCH)
        u->segments = RS_RAW_BATCH;
    return u;
}

static void udp_send(void *sender, const rs_raw *raw, uint64_t first, unsigned count) {
    udp *u = sender;
    unsigned messages = 0;
    for (unsigned i = 0; i < count; i++) {
        u->headers[i] = (rs_raw_header){.sn = first + i};
        u->pieces[2 * i] = (struct iovec){&u->headers[i], sizeof u->headers[i]};
        u->pieces[2 * i + 1] = (struct iovec){rs_raw_place(raw, first + i), rs_raw_length(raw, first + i)};
        if (i % u->segments == 0)
            u->messages[messages++].msg_hdr = (struct msghdr){.msg_iov = &u->pieces[2 * i]};
        u->messages[messages - 1].msg_hdr.msg_iovlen += 2;
    }
    for (unsigned sent = 0; sent < messages;) {
        int done = sendmmsg(u->fd, u->messages + sent, messages - sent, 0);
        if (done < 0 && errno != ENOBUFS && errno != EAGAIN)
            rs_raw_die("sendmmsg");
        sent += done > 0 ? (unsigned)done : 0;
    }
}

/* -------------------------------------------------------------------------------------------------------- receiving */

static void *udp_receiver(rs_raw *raw) {
    udp *u = make(raw, true);
    u->bounce = malloc((size_t)RS_RAW_BATCH * raw->payload);
    u->spilled = malloc((size_t)RS_RAW_BATCH * UDP_MAX);
    if (!u->bounce || !u->spilled)
        rs_raw_die("no memory");
    return u;
}

static void *gso_receiver(rs_raw *raw) {
    udp *u = udp_receiver(raw);
    int on = 1;
    if (setsockopt(u->fd, SOL_UDP, UDP_GRO, &on, sizeof on) != 0)
        rs_raw_die("UDP_GRO");
    u->segments = RS_RAW_BATCH;
    return u;
}

/* Header and place for each of the packets that should come next; their number. */
static unsigned predict(udp *u, rs_raw *raw) {
    unsigned count = 0;
    for (; count < RS_RAW_BATCH && u->next + count < raw->packets; count++) {
        uint64_t sn = u->next + count;
        rs_raw_room(raw, sn);
        u->pieces[2 * count] = (struct iovec){&u->headers[count], sizeof u->headers[count]};
        u->pieces[2 * count + 1] = (struct iovec){rs_raw_place(raw, sn), raw->payload};
    }
    /* A packet that is not the last one must not lie where the last, shorter one belongs. */
    if (count > 0 && u->next + count == raw->packets && raw->slots == 0)
        u->pieces[2 * count - 1].iov_len = rs_raw_length(raw, raw->packets - 1);
    return count;
}

/* Packets lie where others were expected if the network changed their order, or lost some. */
static void settle(udp *u, rs_raw *raw, unsigned count) {
    bool wrong = false;
    for (unsigned i = 0; i < count; i++)
        wrong |= u->headers[i].sn != u->next + i;
    for (unsigned i = 0; wrong && i < count; i++)
        memcpy(u->bounce + (size_t)i * raw->payload, u->pieces[2 * i + 1].iov_base, u->pieces[2 * i + 1].iov_len);
    uint64_t next = u->next;
    for (unsigned i = 0; i < count; i++) {
        uint64_t sn = u->headers[i].sn;
        if (sn >= raw->packets)
            continue;
        if (wrong) {
            rs_raw_room(raw, sn);
            memcpy(rs_raw_place(raw, sn), u->bounce + (size_t)i * raw->payload, rs_raw_length(raw, sn));
        }
        next = sn + 1 > next ? sn + 1 : next;
        rs_raw_arrived(raw, sn);
    }
    u->next = next;
}

/* Packets joined behind the first one of a message, in the order of their headers. */
static void spill(udp *u, rs_raw *raw, const uint8_t *at, size_t bytes) {
    while (bytes > sizeof(rs_raw_header)) {
        rs_raw_header header;
        memcpy(&header, at, sizeof header);
        if (header.sn >= raw->packets)
            return;
        uint32_t length = rs_raw_length(raw, header.sn);
        rs_raw_room(raw, header.sn);
        memcpy(rs_raw_place(raw, header.sn), at + sizeof header, length);
        rs_raw_arrived(raw, header.sn);
        u->next = header.sn + 1 > u->next ? header.sn + 1 : u->next;
        at += sizeof header + length;
        bytes -= sizeof header + length;
    }
}

/* Many messages of one packet each; what is joined to one all the same is copied. */
static unsigned receive_single(udp *u, rs_raw *raw) {
    unsigned room = predict(u, raw), total = 0;
    for (unsigned i = 0; i < room; i++) {
        struct iovec *pieces = &u->triples[3 * i];
        pieces[0] = u->pieces[2 * i];
        pieces[1] = u->pieces[2 * i + 1];
        pieces[2] = (struct iovec){u->spilled + (size_t)i * UDP_MAX, u->segments > 1 ? UDP_MAX : 0};
        u->messages[i].msg_hdr = (struct msghdr){.msg_iov = pieces, .msg_iovlen = 3};
    }
    int got = recvmmsg(u->fd, u->messages, room, MSG_DONTWAIT, NULL);
    if (got <= 0)
        return 0;
    settle(u, raw, (unsigned)got);
    for (unsigned i = 0; i < (unsigned)got; i++) {
        size_t fits = sizeof(rs_raw_header) + u->triples[3 * i + 1].iov_len, bytes = u->messages[i].msg_len;
        total += 1 + (unsigned)(bytes / (fits + 1));
        u->joined = bytes > fits;
        if (bytes > fits)
            spill(u, raw, u->spilled + (size_t)i * UDP_MAX, bytes - fits);
    }
    return total;
}

/* One message of joined packets, header and payload by turns. */
static unsigned receive_joined(udp *u, rs_raw *raw) {
    unsigned room = predict(u, raw);
    struct msghdr message = {.msg_iov = u->pieces, .msg_iovlen = 2 * room};
    ssize_t bytes = room > 0 ? recvmsg(u->fd, &message, MSG_DONTWAIT) : 0;
    if (bytes <= 0)
        return 0;
    size_t each = raw->payload + sizeof(rs_raw_header);
    unsigned count = (unsigned)(((size_t)bytes + each - 1) / each);
    settle(u, raw, count);
    u->joined = count > 1;
    return count;
}

/* While packets come alone many are taken with one call, else one message of joined ones. */
static unsigned gso_receive(void *receiver, rs_raw *raw) {
    udp *u = receiver;
    unsigned got = 1, total = 0;
    while (got > 0 && total < RS_RAW_BATCH) {
        got = u->joined ? receive_joined(u, raw) : receive_single(u, raw);
        total += got;
    }
    return total;
}

static unsigned udp_receive(void *receiver, rs_raw *raw) {
    return receive_single(receiver, raw);
}

static int udp_wait_fd(void *receiver) {
    return ((udp *)receiver)->fd;
}

const rs_raw_method rs_raw_udp = {"udp", udp_sender, udp_send, udp_receiver, udp_receive, udp_wait_fd};
const rs_raw_method rs_raw_udp_gso = {"udp-gso", gso_sender, udp_send, gso_receiver, gso_receive, udp_wait_fd};
