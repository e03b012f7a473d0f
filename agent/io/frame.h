/* IPv4 UDP frames for back ends that speak to the NIC below the kernel's IP: made and taken apart here. */
#ifndef RS_IO_FRAME_H
#define RS_IO_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RS_FRAME_ETHERNET 14u
#define RS_FRAME_IP 20u
#define RS_FRAME_UDP 8u
#define RS_FRAME_HEADERS (RS_FRAME_ETHERNET + RS_FRAME_IP + RS_FRAME_UDP)

/* What all frames of a sender have in common. Addresses and ports in host byte order. */
typedef struct {
    uint8_t mac[6];
    uint32_t address;
    uint16_t port;
    uint8_t ttl;
} rs_frame_sender;

/* Writes RS_FRAME_HEADERS bytes for a datagram of `length` bytes to a multicast group: DSCP 0, Don't Fragment, the
 * group's Ethernet address (RFC 1112). The UDP checksum is left as NICs that finish it want it: the folded sum of the
 * pseudo header, not complemented. */
void rs_frame_build(uint8_t *frame, const rs_frame_sender *sender, uint32_t group, uint16_t port, size_t length);

/* Finishes the UDP checksum in software: the datagram is `head` and then `rest`; head_length must be even. */
void rs_frame_checksum(uint8_t *frame, const uint8_t *head, size_t head_length, const uint8_t *rest,
                       size_t rest_length);

/* Leaves the UDP checksum out (RFC 768 allows it): each hop checks Ethernet's, the receiver the object's digest. */
void rs_frame_no_checksum(uint8_t *frame);

typedef struct {
    uint32_t source, address; /* host byte order */
    uint16_t port;
    const uint8_t *data;
    uint32_t length; /* of the data */
    const uint8_t *ip;
} rs_datagram;

/* Takes an IPv4 packet of at most `room` bytes apart, of which it reads the IP and UDP headers. False unless it is a
 * whole UDP datagram with sound lengths and IP header checksum; fragments and packets with IP options are not. Bytes
 * behind the datagram are padding. */
bool rs_frame_parse(const uint8_t *ip, size_t room, rs_datagram *out);

/* The datagram's UDP checksum is right, or the sender made none. Frames that come straight from a local stack, as over
 * veth, have a partial one until they leave the machine. */
bool rs_frame_sound(const rs_datagram *datagram);

#endif
