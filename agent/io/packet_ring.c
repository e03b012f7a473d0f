/* The kernel's Documentation/networking/packet_mmap.rst has the layout. A ring comes with virtio headers, since frames
 * of a local sender or a NIC that joins datagrams hold several of them. */
#include "io/packet_ring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "io/packet_filter.h"

#define FRAME_BYTES 2048u /* the kernel wants to know; blocks are filled without gaps whatever it is */
#define GSO_UDP_L4 5      /* VIRTIO_NET_HDR_GSO_UDP_L4, in the headers since Linux 6.2 */

bool rs_packet_ring_tells_joined(void) {
    struct utsname kernel;
    unsigned major = 0, minor = 0;
    bool known = uname(&kernel) == 0 && sscanf(kernel.release, "%u.%u", &major, &minor) == 2;
    return !known || major > 6 || (major == 6 && minor >= 2);
}

static bool set_up(rs_packet_ring *ring, size_t bytes) {
    int version = TPACKET_V3, told = ring->tells_joined;
    ring->block_bytes = RS_PACKET_BLOCK_BYTES;
    ring->blocks = bytes > 2 * (size_t)ring->block_bytes ? (unsigned)(bytes / ring->block_bytes) : 2;
    ring->bytes = (size_t)ring->blocks * ring->block_bytes;
    const struct tpacket_req3 request = {.tp_block_size = ring->block_bytes,
                                         .tp_block_nr = ring->blocks,
                                         .tp_frame_size = FRAME_BYTES,
                                         .tp_frame_nr = ring->blocks * (ring->block_bytes / FRAME_BYTES),
                                         .tp_retire_blk_tov = RS_PACKET_BLOCK_MS};
    const rs_members none = {0};
    if (setsockopt(ring->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0 ||
        setsockopt(ring->fd, SOL_PACKET, PACKET_VNET_HDR, &told, sizeof told) != 0 ||
        setsockopt(ring->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0 ||
        !rs_packet_filter_attach(ring->fd, &none))
        return false;
    void *map = mmap(NULL, ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
    ring->map = map == MAP_FAILED ? NULL : map;
    return ring->map != NULL;
}

bool rs_packet_ring_open(rs_packet_ring *ring, const rs_interface *interface, size_t bytes, bool tells_joined,
                         char *error) {
    *ring = (rs_packet_ring){.fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                             .tells_joined = tells_joined,
                             .mtu = interface->mtu,
                             .meagre = UINT32_MAX};
    if (ring->fd < 0) {
        snprintf(error, RS_IO_ERROR_MAX, "cannot open a packet socket: %s%s", strerror(errno),
                 errno == EPERM ? " (CAP_NET_RAW is needed)" : "");
        return false;
    }
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = (int)interface->index};
    socklen_t length = sizeof at;
    if (!set_up(ring, bytes) || bind(ring->fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(ring->fd, (struct sockaddr *)&at, &length) != 0) {
        snprintf(error, RS_IO_ERROR_MAX, "no receive ring (TPACKET_V3) of %zu KiB on %s: %s", ring->bytes >> 10,
                 interface->name, strerror(errno));
        return false;
    }
    if (at.sll_hatype != ARPHRD_ETHER) {
        snprintf(error, RS_IO_ERROR_MAX, "%s is not an Ethernet interface", interface->name);
        return false;
    }
    return true;
}

void rs_packet_ring_close(rs_packet_ring *ring) {
    if (ring->map)
        munmap(ring->map, ring->bytes);
    if (ring->fd >= 0)
        close(ring->fd);
}

static struct tpacket_block_desc *block_of(const rs_packet_ring *ring) {
    return (struct tpacket_block_desc *)(void *)(ring->map + (size_t)ring->block * ring->block_bytes);
}

static const struct tpacket3_hdr *packet_of(const rs_packet_ring *ring) {
    return (const struct tpacket3_hdr *)(const void *)((const uint8_t *)block_of(ring) + ring->at);
}

static void give_back(rs_packet_ring *ring) {
    __atomic_store_n(&block_of(ring)->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    ring->block = (ring->block + 1) % ring->blocks;
}

/* Begins the next block if it is ours. */
static bool begin(rs_packet_ring *ring) {
    for (unsigned i = 0; i < ring->blocks; i++) {
        struct tpacket_block_desc *block = block_of(ring);
        uint32_t status = __atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE);
        if ((status & TP_STATUS_USER) == 0)
            return false;
        ring->left = block->hdr.bh1.num_pkts;
        ring->at = block->hdr.bh1.offset_to_first_pkt;
        ring->meagre = status & TP_STATUS_BLK_TMO ? ring->left : UINT32_MAX;
        if (ring->left > 0)
            return true;
        give_back(ring);
    }
    return false;
}

void rs_packet_ring_take(rs_packet_ring *ring) {
    ring->at += packet_of(ring)->tp_next_offset;
    if (--ring->left == 0)
        give_back(ring);
}

/* How a packet's datagram is to be cut. False: it cannot be. */
static bool find_segment(rs_packet_ring *ring, const struct tpacket3_hdr *packet, rs_ring_packet *out) {
    struct virtio_net_hdr offload;
    out->segment = out->datagram.length;
    if (!ring->tells_joined) {
        bool joined = out->datagram.length + RS_FRAME_IP + RS_FRAME_UDP > ring->mtu;
        ring->joined += joined;
        return !joined;
    }
    memcpy(&offload, (const uint8_t *)packet + packet->tp_mac - sizeof offload, sizeof offload);
    if (offload.gso_type == GSO_UDP_L4 && offload.gso_size > 0 && offload.gso_size < out->segment)
        out->segment = offload.gso_size;
    return offload.gso_type == VIRTIO_NET_HDR_GSO_NONE || offload.gso_type == GSO_UDP_L4;
}

/* Checksums the kernel or the NIC has looked at, or that are still to be made, are right. */
static bool parse(rs_packet_ring *ring, const struct tpacket3_hdr *packet, rs_ring_packet *out) {
    const uint8_t *start = (const uint8_t *)packet;
    uint32_t link = (uint32_t)packet->tp_net - packet->tp_mac;
    if (packet->tp_snaplen < link || !rs_frame_parse(start + packet->tp_net, packet->tp_snaplen - link, &out->datagram))
        return false;
    if (!find_segment(ring, packet, out))
        return false;
    return (packet->tp_status & (TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID)) != 0 || rs_frame_sound(&out->datagram);
}

bool rs_packet_ring_peek(rs_packet_ring *ring, rs_ring_packet *out) {
    while (ring->left > 0 || begin(ring)) {
        if (parse(ring, packet_of(ring), out))
            return true;
        ring->bad++;
        rs_packet_ring_take(ring);
    }
    return false;
}

uint32_t rs_packet_ring_drops(const rs_packet_ring *ring) {
    struct tpacket_stats_v3 stats = {0};
    socklen_t length = sizeof stats;
    if (getsockopt(ring->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length) != 0)
        return 0;
    return stats.tp_drops;
}
