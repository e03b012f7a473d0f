/* Data channel over ordinary UDP sockets: one socket sends, one socket per joined group receives, both in batches. */
#include "io/udp.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "io/place.h"
#include "io/sockets.h"

#define BOUNCE_BYTES 65536u
#define ROOM_BYTES (RS_IO_HEADER_BYTES + BOUNCE_BYTES) /* a header in front of its payload */
#define CONTROL_BYTES (CMSG_SPACE(sizeof(uint32_t)) + CMSG_SPACE(sizeof(uint8_t)))
#define BATCH_MIN 8u

/* Everything recvmmsg needs for one batch. */
typedef struct {
    struct mmsghdr messages[RS_IO_BATCH];
    struct iovec vectors[RS_IO_BATCH][3];
    _Alignas(struct cmsghdr) uint8_t control[RS_IO_BATCH][CONTROL_BYTES];
    rs_placement placements[RS_IO_BATCH];
    struct sockaddr_in from[RS_IO_BATCH];
} batch;

typedef struct {
    rs_sockets sockets;
    uint8_t *bounces; /* RS_IO_BATCH of ROOM_BYTES, touched behind the headers only when a prediction is missing */
    batch *batch;
} udp_io;

static void udp_close(rs_io *base) {
    udp_io *io = (udp_io *)base;
    rs_sockets_close(&io->sockets);
    if (io->bounces)
        munmap(io->bounces, (size_t)RS_IO_BATCH * ROOM_BYTES);
    free(io->batch);
    free(io);
}

static bool allocate(udp_io *io, char *error) {
    io->batch = calloc(1, sizeof *io->batch);
    if (!io->batch)
        snprintf(error, RS_IO_ERROR_MAX, "no memory for packet I/O");
    else
        io->bounces = rs_sockets_buffers((size_t)RS_IO_BATCH * ROOM_BYTES, error);
    return io->bounces != NULL;
}

static rs_io *udp_open(const rs_io_options *options, char *error) {
    udp_io *io = (udp_io *)rs_sockets_new(sizeof *io, &rs_io_udp, error);
    if (!io)
        return NULL;
    if (!rs_sockets_open(&io->sockets, options, error) || !allocate(io, error)) {
        udp_close(&io->sockets.base);
        return NULL;
    }
    return &io->sockets.base;
}

/* Points the kernel to the places the sink predicts; what is not predicted or does not fit goes to bounce buffers. */
static void prepare(udp_io *io, const rs_socket_group *group, unsigned count, const rs_io_sink *sink) {
    batch *b = io->batch;
    bool predictable = sink->predict != NULL;
    for (unsigned i = 0; i < count; i++) {
        uint8_t *place = NULL, *bounce = io->bounces + (size_t)i * ROOM_BYTES + RS_IO_HEADER_BYTES;
        uint32_t length = 0;
        predictable = predictable && sink->predict(sink->context, group->number, i, &place, &length);
        if (!predictable || length > RS_IO_PAYLOAD_MAX)
            length = 0;
        b->placements[i] = (rs_placement){.head = length ? place : NULL, .head_length = length, .bounce = bounce};
        b->vectors[i][0] = (struct iovec){bounce - RS_IO_HEADER_BYTES, RS_IO_HEADER_BYTES};
        b->vectors[i][1] = (struct iovec){length ? place : bounce, length};
        b->vectors[i][2] = (struct iovec){bounce + length, BOUNCE_BYTES - length};
        b->messages[i].msg_hdr = (struct msghdr){.msg_name = &b->from[i],
                                                 .msg_namelen = sizeof b->from[i],
                                                 .msg_iov = b->vectors[i],
                                                 .msg_iovlen = 3,
                                                 .msg_control = b->control[i],
                                                 .msg_controllen = CONTROL_BYTES};
    }
}

/* Those that come after this one are shown (rs_io_sink.soon). */
static void show_next(const batch *b, unsigned at, unsigned count, const rs_io_sink *sink) {
    uint32_t most = count - 1 - at < sink->soon_most ? count - 1 - at : sink->soon_most;
    for (uint32_t ahead = sink->soon && !sink->predict ? most : 0; ahead > 0; ahead--)
        sink->soon(sink->context, ahead, b->placements[at + ahead].bounce - RS_IO_HEADER_BYTES,
                   b->messages[at + ahead].msg_len);
}

/* Reads one batch. False when the socket had no more. */
static bool read_group(rs_sockets *base, rs_socket_group *group, unsigned limit, const rs_io_sink *sink,
                       unsigned *total) {
    udp_io *io = (udp_io *)base;
    batch *b = io->batch;
    rs_io_stats *stats = &io->sockets.stats;
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
    group->lively = true;
    unsigned kept = 0;
    for (unsigned i = 0; i < (unsigned)received; i++) {
        uint32_t length = b->messages[i].msg_len;
        uint32_t header_length = length < RS_IO_HEADER_BYTES ? length : RS_IO_HEADER_BYTES;
        rs_placement *p = &b->placements[i];
        p->length = length - header_length;
        base->source = ntohl(b->from[i].sin_addr.s_addr);
        base->marked = rs_sockets_was_marked(&b->messages[i].msg_hdr);
        show_next(b, i, (unsigned)received, sink);
        p->target =
            sink->deliver(sink->context, group->number, p->bounce - RS_IO_HEADER_BYTES, header_length, p->length);
        kept += p->target != NULL && p->length > 0;
        stats->bytes_received += length;
    }
    rs_sockets_note_drops(base, group, &b->messages[received - 1].msg_hdr);
    unsigned moved = rs_place_all(b->placements, (unsigned)received);
    stats->packets_received += (uint64_t)received;
    stats->moved += moved;
    stats->predicted += kept - moved;
    *total += (unsigned)received;
    return (unsigned)received == count;
}

static int udp_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    unsigned total = 0;
    rs_sockets_receive((rs_sockets *)base, limit, sink, read_group, &total);
    return (int)total;
}

const rs_io_ops rs_io_udp = {.name = "udp",
                             .summary = "sockets with sendmmsg and recvmmsg, on any interface",
                             .open = udp_open,
                             .close = udp_close,
                             .send = rs_sockets_send,
                             .join = rs_sockets_join,
                             .leave = rs_sockets_leave,
                             .receive = udp_receive,
                             .receive_fd = rs_sockets_receive_fd,
                             .send_fd = rs_sockets_send_fd,
                             .wake = rs_sockets_wake,
                             .drops = rs_sockets_drops,
                             .receive_room = rs_sockets_receive_room,
                             .waited = rs_sockets_waited,
                             .source = rs_sockets_source,
                             .marked = rs_sockets_marked,
                             .stats = rs_sockets_stats};
