/* Way `xdp`: AF_XDP in copy mode. Rings and program are set up as the agent does it; the loops are plain ones. */
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "io/frame.h"
#include "io/io.h"
#include "io/xdp_program.h"
#include "io/xdp_socket.h"
#include "raw.h"

#define RECEIVE_BYTES (16u << 20)
#define HEAD (RS_FRAME_HEADERS + (unsigned)sizeof(rs_raw_header))

typedef struct {
    rs_xdp_socket xdp;
    rs_xdp_program program;
    rs_frame_sender from;
    int member_fd;
} raw_xdp;

static raw_xdp *make(const rs_raw *raw, bool receives) {
    raw_xdp *x = calloc(1, sizeof *x);
    char error[RS_IO_ERROR_MAX] = "";
    struct ifreq request = {0};
    if (!x)
        rs_raw_die("no memory");
    x->member_fd = rs_raw_socket(raw, receives);
    strncpy(request.ifr_name, raw->interface, sizeof request.ifr_name - 1);
    if (ioctl(x->member_fd, SIOCGIFHWADDR, &request) != 0)
        rs_raw_die(raw->interface);
    x->from = (rs_frame_sender){.address = raw->address, .port = raw->port, .ttl = 1};
    memcpy(x->from.mac, request.ifr_hwaddr.sa_data, sizeof x->from.mac);
    uint32_t frame = raw->mtu + RS_FRAME_ETHERNET;
    if (!rs_xdp_socket_open(&x->xdp, raw->interface, raw->interface_index, frame, RECEIVE_BYTES, error) ||
        (receives && (!rs_xdp_program_attach(&x->program, raw->interface, raw->interface_index, x->xdp.fd,
                                             frame > x->xdp.chunk - RS_XDP_HEADROOM, error) ||
                      !rs_xdp_program_take(&x->program, raw->group, raw->port)))) {
        fprintf(stderr, "raw: %s\n", error);
        exit(1);
    }
    return x;
}

static void *xdp_sender(const rs_raw *raw) {
    return make(raw, false);
}

static void *xdp_receiver(rs_raw *raw) {
    return make(raw, true);
}

/* One frame into as many chunks as it needs; false if too few are free. */
static bool put(raw_xdp *x, const rs_raw *raw, uint64_t sn) {
    rs_xdp_socket *xdp = &x->xdp;
    const rs_raw_header header = {.sn = sn};
    uint32_t payload = rs_raw_length(raw, sn), total = HEAD + payload, done = 0;
    uint32_t pieces = (total + xdp->chunk - 1) / xdp->chunk, start = *xdp->send.producer;
    const uint8_t *from = rs_raw_place(raw, sn);
    if (pieces > xdp->unused_count)
        return false;
    for (uint32_t i = 0; i < pieces; i++) {
        uint64_t address = xdp->unused[--xdp->unused_count];
        uint8_t *chunk = xdp->memory + address;
        uint32_t skip = i == 0 ? HEAD : 0, length = total - i * xdp->chunk;
        length = length < xdp->chunk ? length : xdp->chunk;
        if (i == 0) {
            rs_frame_build(chunk, &x->from, raw->group, raw->port, sizeof header + payload);
            rs_frame_no_checksum(chunk);
            memcpy(chunk + RS_FRAME_HEADERS, &header, sizeof header);
        }
        memcpy(chunk + skip, from + done, length - skip);
        done += length - skip;
        *rs_xdp_descriptor(&xdp->send, start + i) =
            (struct xdp_desc){.addr = address, .len = length, .options = i + 1 < pieces ? XDP_PKT_CONTD : 0};
    }
    rs_xdp_advance(xdp->send.producer, pieces);
    return true;
}

static void xdp_send(void *sender, const rs_raw *raw, uint64_t first, unsigned count) {
    raw_xdp *x = sender;
    for (unsigned i = 0; i < count; i++) {
        while (!put(x, raw, first + i)) {
            rs_xdp_kick(&x->xdp);
            rs_xdp_reclaim(&x->xdp);
        }
    }
    rs_xdp_kick(&x->xdp);
    rs_xdp_reclaim(&x->xdp);
}

/* The frame of `count` descriptors from `first` on: header looked at in the first chunk, payload copied from all. */
static void take(raw_xdp *x, rs_raw *raw, uint32_t first, uint32_t count, uint32_t bytes) {
    const struct xdp_desc *descriptor = rs_xdp_descriptor(&x->xdp.receive, first);
    const uint8_t *at = x->xdp.memory + descriptor->addr;
    rs_datagram datagram;
    rs_raw_header header;
    if (descriptor->len < HEAD || !rs_frame_parse(at + RS_FRAME_ETHERNET, bytes - RS_FRAME_ETHERNET, &datagram))
        return;
    memcpy(&header, datagram.data, sizeof header);
    if (header.sn >= raw->packets || bytes - HEAD < rs_raw_length(raw, header.sn))
        return;
    rs_raw_room(raw, header.sn);
    uint8_t *to = rs_raw_place(raw, header.sn);
    uint32_t left = rs_raw_length(raw, header.sn);
    for (uint32_t i = 0; i < count && left > 0; i++) {
        descriptor = rs_xdp_descriptor(&x->xdp.receive, first + i);
        uint32_t skip = i == 0 ? HEAD : 0, length = descriptor->len - skip < left ? descriptor->len - skip : left;
        memcpy(to, x->xdp.memory + descriptor->addr + skip, length);
        to += length;
        left -= length;
    }
    rs_raw_arrived(raw, header.sn);
}

static unsigned xdp_receive(void *receiver, rs_raw *raw) {
    raw_xdp *x = receiver;
    rs_xdp_ring *ring = &x->xdp.receive;
    uint32_t ready = rs_xdp_ready(ring), done = 0;
    unsigned total = 0;
    while (total < RS_RAW_BATCH) {
        uint32_t first = *ring->consumer, count = 0, bytes = 0;
        bool whole = false;
        while (!whole && done + count < ready) {
            const struct xdp_desc *descriptor = rs_xdp_descriptor(ring, first + count++);
            bytes += descriptor->len;
            whole = !(descriptor->options & XDP_PKT_CONTD);
        }
        if (!whole)
            break;
        take(x, raw, first, count, bytes);
        for (uint32_t i = 0; i < count; i++)
            rs_xdp_refill(&x->xdp, rs_xdp_descriptor(ring, first + i)->addr);
        rs_xdp_advance(ring->consumer, count);
        done += count;
        total++;
    }
    if (*x->xdp.fill.flags & XDP_RING_NEED_WAKEUP)
        (void)recvfrom(x->xdp.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
    return total;
}

static int xdp_wait_fd(void *receiver) {
    return ((raw_xdp *)receiver)->xdp.fd;
}

const rs_raw_method rs_raw_xdp = {"xdp", xdp_sender, xdp_send, xdp_receiver, xdp_receive, xdp_wait_fd};
