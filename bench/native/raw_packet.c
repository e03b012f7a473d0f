/* Way `packet`: frames of its own by AF_PACKET, through the queueing discipline; received by a ring (TPACKET_V3). */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/frame.h"
#include "raw.h"

#define BLOCK_BYTES (1u << 20)
#define BLOCKS 64u
#define BLOCK_MS 2u
#define HEAD (RS_FRAME_HEADERS + (unsigned)sizeof(rs_raw_header))

typedef struct {
    int fd, member_fd;
    rs_frame_sender from;
    uint8_t heads[RS_RAW_BATCH][HEAD];
    struct iovec pieces[2 * RS_RAW_BATCH];
    struct mmsghdr messages[RS_RAW_BATCH];
    uint8_t *ring;
    unsigned block;
} packet;

static packet *make(const rs_raw *raw, uint16_t protocol) {
    packet *p = calloc(1, sizeof *p);
    if (!p)
        rs_raw_die("no memory");
    p->fd = socket(AF_PACKET, SOCK_RAW, protocol);
    if (p->fd < 0)
        rs_raw_die("AF_PACKET");
    p->member_fd = rs_raw_socket(raw, protocol != 0);
    return p;
}

static void bind_to(const packet *p, const rs_raw *raw, uint16_t protocol) {
    const struct sockaddr_ll where = {
        .sll_family = AF_PACKET, .sll_protocol = protocol, .sll_ifindex = (int)raw->interface_index};
    if (bind(p->fd, (const struct sockaddr *)&where, sizeof where) != 0)
        rs_raw_die("cannot bind to the interface");
}

static void *packet_sender(const rs_raw *raw) {
    packet *p = make(raw, 0);
    struct ifreq request = {0};
    int bytes = 64 << 20;
    strncpy(request.ifr_name, raw->interface, sizeof request.ifr_name - 1);
    if (ioctl(p->fd, SIOCGIFHWADDR, &request) != 0 ||
        setsockopt(p->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
        rs_raw_die(raw->interface);
    bind_to(p, raw, 0);
    p->from = (rs_frame_sender){.address = raw->address, .port = raw->port, .ttl = 1};
    memcpy(p->from.mac, request.ifr_hwaddr.sa_data, sizeof p->from.mac);
    return p;
}

static void packet_send(void *sender, const rs_raw *raw, uint64_t first, unsigned count) {
    packet *p = sender;
    for (unsigned i = 0; i < count; i++) {
        uint32_t length = rs_raw_length(raw, first + i);
        const rs_raw_header header = {.sn = first + i};
        rs_frame_build(p->heads[i], &p->from, raw->group, raw->port, sizeof header + length);
        rs_frame_no_checksum(p->heads[i]);
        memcpy(p->heads[i] + RS_FRAME_HEADERS, &header, sizeof header);
        p->pieces[2 * i] = (struct iovec){p->heads[i], HEAD};
        p->pieces[2 * i + 1] = (struct iovec){rs_raw_place(raw, first + i), length};
        p->messages[i].msg_hdr = (struct msghdr){.msg_iov = &p->pieces[2 * i], .msg_iovlen = 2};
    }
    for (unsigned sent = 0; sent < count;) {
        int done = sendmmsg(p->fd, p->messages + sent, count - sent, 0);
        if (done < 0 && errno != ENOBUFS && errno != EAGAIN)
            rs_raw_die("sendmmsg");
        sent += done > 0 ? (unsigned)done : 0;
    }
}

static void *packet_receiver(rs_raw *raw) {
    packet *p = make(raw, htons(ETH_P_IP));
    int version = TPACKET_V3, least = 1;
    /* The membership's own socket is not read: it keeps as little as it can. */
    (void)setsockopt(p->member_fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
    const struct tpacket_req3 request = {.tp_block_size = BLOCK_BYTES,
                                         .tp_block_nr = BLOCKS,
                                         .tp_frame_size = 16384,
                                         .tp_frame_nr = BLOCKS * (BLOCK_BYTES / 16384),
                                         .tp_retire_blk_tov = BLOCK_MS};
    if (setsockopt(p->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0 ||
        setsockopt(p->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        rs_raw_die("TPACKET_V3");
    void *ring = mmap(NULL, (size_t)BLOCK_BYTES * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, p->fd, 0);
    if (ring == MAP_FAILED)
        rs_raw_die("cannot map the ring");
    p->ring = ring;
    bind_to(p, raw, htons(ETH_P_IP));
    return p;
}

static void take(rs_raw *raw, const uint8_t *frame, uint32_t bytes) {
    rs_datagram datagram;
    rs_raw_header header;
    if (bytes <= RS_FRAME_ETHERNET ||
        !rs_frame_parse(frame + RS_FRAME_ETHERNET, bytes - RS_FRAME_ETHERNET, &datagram) ||
        datagram.address != raw->group || datagram.port != raw->port || datagram.length < sizeof header)
        return;
    memcpy(&header, datagram.data, sizeof header);
    if (header.sn >= raw->packets || datagram.length - sizeof header != rs_raw_length(raw, header.sn))
        return;
    rs_raw_room(raw, header.sn);
    memcpy(rs_raw_place(raw, header.sn), datagram.data + sizeof header, datagram.length - sizeof header);
    rs_raw_arrived(raw, header.sn);
}

static unsigned packet_receive(void *receiver, rs_raw *raw) {
    packet *p = receiver;
    unsigned total = 0;
    while (total < RS_RAW_BATCH) {
        struct tpacket_block_desc *block = (void *)(p->ring + (size_t)p->block * BLOCK_BYTES);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            break;
        const uint8_t *at = (const uint8_t *)block + block->hdr.bh1.offset_to_first_pkt;
        for (uint32_t i = 0; i < block->hdr.bh1.num_pkts; i++) {
            const struct tpacket3_hdr *one = (const void *)at;
            take(raw, at + one->tp_mac, one->tp_snaplen);
            at += one->tp_next_offset;
        }
        total += block->hdr.bh1.num_pkts;
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        p->block = (p->block + 1) % BLOCKS;
    }
    return total;
}

static int packet_wait_fd(void *receiver) {
    return ((packet *)receiver)->fd;
}

const rs_raw_method rs_raw_packet = {"packet",        packet_sender,  packet_send,
                                     packet_receiver, packet_receive, packet_wait_fd};
