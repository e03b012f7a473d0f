/* Ethernet, IPv4 (RFC 791) and UDP (RFC 768) headers and their checksums. */
#include "io/frame.h"

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <string.h>

/* Sum of 16-bit words as they lie in memory (RFC 1071); 32 at a time: a sum of 2^32 of those fits. */
static uint64_t sum_words(const uint8_t *at, size_t length) {
    uint64_t sum = 0;
    uint32_t word;
    for (; length >= sizeof word; at += sizeof word, length -= sizeof word) {
        memcpy(&word, at, sizeof word);
        sum += word;
    }
    word = 0;
    memcpy(&word, at, length);
    return sum + word;
}

static uint16_t fold(uint64_t sum) {
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static uint64_t pseudo_header(const struct iphdr *ip, uint16_t udp_length) {
    return (uint64_t)ip->saddr + ip->daddr + htons(IPPROTO_UDP) + udp_length;
}

void rs_frame_build(uint8_t *frame, const rs_frame_sender *sender, uint32_t group, uint16_t port, size_t length) {
    struct ether_header ethernet = {
        .ether_dhost = {0x01, 0x00, 0x5e, (uint8_t)(group >> 16 & 0x7f), (uint8_t)(group >> 8), (uint8_t)group},
        .ether_type = htons(ETHERTYPE_IP)};
    memcpy(ethernet.ether_shost, sender->mac, sizeof sender->mac);
    struct iphdr ip = {.version = 4,
                       .ihl = RS_FRAME_IP / 4,
                       .tot_len = htons((uint16_t)(RS_FRAME_IP + RS_FRAME_UDP + length)),
                       .frag_off = htons(IP_DF),
                       .ttl = sender->ttl,
                       .protocol = IPPROTO_UDP,
                       .saddr = htonl(sender->address),
                       .daddr = htonl(group)};
    ip.check = (uint16_t)~fold(sum_words((const uint8_t *)&ip, sizeof ip));
    struct udphdr udp = {.source = htons(sender->port), .dest = htons(port)};
    udp.len = htons((uint16_t)(RS_FRAME_UDP + length));
    udp.check = fold(pseudo_header(&ip, udp.len));
    memcpy(frame, &ethernet, sizeof ethernet);
    memcpy(frame + RS_FRAME_ETHERNET, &ip, sizeof ip);
    memcpy(frame + RS_FRAME_ETHERNET + RS_FRAME_IP, &udp, sizeof udp);
}

void rs_frame_checksum(uint8_t *frame, const uint8_t *head, size_t head_length, const uint8_t *rest,
                       size_t rest_length) {
    uint8_t *udp = frame + RS_FRAME_ETHERNET + RS_FRAME_IP;
    uint16_t check = (uint16_t)~fold(sum_words(udp, RS_FRAME_UDP) + sum_words(head, head_length) +
                                     (rest_length > 0 ? sum_words(rest, rest_length) : 0));
    if (check == 0) /* 0 on the wire means: none was made */
        check = 0xffff;
    memcpy(udp + offsetof(struct udphdr, check), &check, sizeof check);
}

void rs_frame_no_checksum(uint8_t *frame) {
    memset(frame + RS_FRAME_ETHERNET + RS_FRAME_IP + offsetof(struct udphdr, check), 0, sizeof(uint16_t));
}

bool rs_frame_parse(const uint8_t *at, size_t room, rs_datagram *out) {
    struct iphdr ip;
    struct udphdr udp;
    if (room < sizeof ip + sizeof udp)
        return false;
    memcpy(&ip, at, sizeof ip);
    memcpy(&udp, at + sizeof ip, sizeof udp);
    size_t total = ntohs(ip.tot_len), datagram = ntohs(udp.len);
    if (ip.version != 4 || ip.ihl != RS_FRAME_IP / 4 || ip.protocol != IPPROTO_UDP ||
        (ip.frag_off & htons(IP_MF | IP_OFFMASK)) != 0 || fold(sum_words(at, sizeof ip)) != 0xffff)
        return false;
    if (total > room || total < sizeof ip + sizeof udp || datagram < sizeof udp || datagram > total - sizeof ip)
        return false;
    *out = (rs_datagram){.source = ntohl(ip.saddr),
                         .address = ntohl(ip.daddr),
                         .port = ntohs(udp.dest),
                         .data = at + sizeof ip + sizeof udp,
                         .length = (uint32_t)(datagram - sizeof udp),
                         .ip = at};
    return true;
}

bool rs_frame_sound(const rs_datagram *datagram) {
    struct iphdr ip;
    struct udphdr udp;
    memcpy(&ip, datagram->ip, sizeof ip);
    memcpy(&udp, datagram->ip + sizeof ip, sizeof udp);
    return udp.check == 0 || fold(pseudo_header(&ip, udp.len) +
                                  sum_words(datagram->ip + sizeof ip, sizeof udp + datagram->length)) == 0xffff;
}
