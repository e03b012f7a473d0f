/* Headers on the wire, and what the blocks tell one another about a packet. */
#ifndef HEADERS_P4
#define HEADERS_P4

#include "include/ids.p4"

/* In front of frames to the control plane, and from it. */
@controller_header("packet_in")
header packet_in_t {
    @id(1) bit<9> ingress_port;
    @id(2) bit<7> padding;
}

@controller_header("packet_out")
header packet_out_t {
    @id(1) bit<9> egress_port;
    @id(2) bit<7> padding;
}

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ethertype;
}

header vlan_t {
    bit<3>  pcp;
    bit<1>  dei;
    bit<12> vid;
    bit<16> ethertype;
}

header arp_t {
    bit<48> kind; // hardware and protocol types and address lengths: ARP_IPV4_OVER_ETHERNET
    bit<16> operation;
    bit<48> sender_mac;
    bit<32> sender;
    bit<48> target_mac;
    bit<32> target;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_words;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_bytes;
    bit<16> identification;
    bit<1>  reserved;
    bit<1>  dont_fragment;
    bit<1>  more_fragments;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> total_bytes;
    bit<16> checksum;
}

/* Data channel (docs/protocol.md). Its integers are little-endian. */
header rostrum_t {
    bit<16>  magic;
    bit<8>   version;
    bit<4>   other_flags;
    bit<1>   repair;  // not data: what would be session and sn may mean something else
    bit<1>   report;
    bit<1>   attempt;
    bit<1>   first;   // the first sn of the session's ring
    bit<24>  session;
    bit<8>   engine;  // whose data it is; light is light
    bit<64>  nonce;   // of the transfer
    bit<64>  sn;
    bit<64>  aux;
}

struct headers_t {
    packet_in_t  packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    vlan_t     vlan;
    arp_t      arp;
    ipv4_t     ipv4;
    udp_t      udp;
    rostrum_t  rostrum;
}

struct metadata_t {
    reason_t reason; // REASON_NONE while the packet lives
    bit<32>  destination; // what unicast forwarding goes by: of IPv4, or asked for by ARP
    bit<3>   level;
    bit<1>   discovery; // between the control plane and a port: no traffic
}

/* First light: the digest's members in the order of docs/p4.md. */
struct first_light_t {
    bit<9>  port;
    bit<32> group;
    bit<32> source;
    bit<32> epoch;
    bit<32> session;
    bit<64> sn;
}

#endif
