#include "io/datagrams.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 64u
#define READ_BATCH 32u
#define BUFFER_BYTES (4 << 20)

typedef struct {
    struct sockaddr_in to;
    struct iovec pieces[2];
    uint8_t header[RS_DATAGRAM_HEADER_MAX];
} slot;

struct rs_datagrams {
    int fd;
    uint64_t lost;
    unsigned filled;
    slot slots[BATCH];
    struct mmsghdr out[BATCH];
    struct sockaddr_in from[READ_BATCH];
    struct iovec rooms[READ_BATCH];
    struct mmsghdr in[READ_BATCH];
    uint8_t *memory;
};

rs_datagrams *rs_datagrams_open(uint32_t address, uint16_t port, char *error, size_t size) {
    rs_datagrams *d = calloc(1, sizeof *d);
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    const int bytes = BUFFER_BYTES;
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
    for (unsigned i = 0; i < READ_BATCH; i++) {
        d->rooms[i] = (struct iovec){d->memory + (size_t)i * RS_DATAGRAM_MAX, RS_DATAGRAM_MAX};
        d->in[i].msg_hdr = (struct msghdr){
            .msg_name = &d->from[i], .msg_namelen = sizeof d->from[i], .msg_iov = &d->rooms[i], .msg_iovlen = 1};
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

uint64_t rs_datagrams_lost(const rs_datagrams *d) {
    return d->lost;
}

void rs_datagrams_send(rs_datagrams *d, uint32_t address, uint16_t port, const uint8_t *header, size_t header_length,
                       const uint8_t *payload, size_t payload_length) {
    if (d->filled == BATCH)
        rs_datagrams_flush(d);
    slot *s = &d->slots[d->filled];
    memcpy(s->header, header, header_length);
    s->to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    s->pieces[0] = (struct iovec){s->header, header_length};
    s->pieces[1] = (struct iovec){(void *)(uintptr_t)payload, payload_length};
    d->out[d->filled++].msg_hdr = (struct msghdr){
        .msg_name = &s->to, .msg_namelen = sizeof s->to, .msg_iov = s->pieces, .msg_iovlen = payload_length ? 2 : 1};
}

/* One that the kernel refuses (no route, a port nobody listens on told by ICMP, a file shortened under its map) is lost
 * alone; when the socket is full, all that is left is. */
void rs_datagrams_flush(rs_datagrams *d) {
    unsigned at = 0;
    while (at < d->filled) {
        int sent = sendmmsg(d->fd, d->out + at, d->filled - at, 0);
        if (sent > 0) {
            at += (unsigned)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
            d->lost += d->filled - at;
            break;
        } else if (errno != EINTR) {
            d->lost++;
            at++;
        }
    }
    d->filled = 0;
}

unsigned rs_datagrams_receive(rs_datagrams *d, unsigned limit, rs_datagram_taken taken, void *context) {
    unsigned total = 0;
    while (total < limit) {
        unsigned want = limit - total < READ_BATCH ? limit - total : READ_BATCH;
        int got = recvmmsg(d->fd, d->in, want, 0, NULL);
        if (got <= 0)
            return total; /* none wait, or an ICMP error was told: the next look sees what is behind it */
        for (unsigned i = 0; i < (unsigned)got; i++) {
            taken(context, ntohl(d->from[i].sin_addr.s_addr), ntohs(d->from[i].sin_port), d->rooms[i].iov_base,
                  d->in[i].msg_len);
            d->in[i].msg_hdr.msg_namelen = sizeof d->from[i];
        }
        total += (unsigned)got;
        if ((unsigned)got < want)
            return total;
    }
    return total;
}
