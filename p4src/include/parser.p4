/* Bytes to headers and back, and the IPv4 header checksum.
 *
 *   packet_out, or
 *   ethernet -> [vlan] -> arp
 *                      -> ipv4 -> udp -> rostrum
 *
 * What is not known is left in the payload. A frame that ends within a header that it announces has a parser error.
 */
#ifndef PARSER_P4
#define PARSER_P4

#include "include/headers.p4"

parser FrameParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: from_control;
            default: ethernet;
        }
    }

    /* What the control plane sends is not looked into. */
    state from_control {
        packet.extract(hdr.packet_out);
        transition accept;
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_VLAN: vlan;
            ETHERTYPE_ARP: arp_kind;
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ethertype) {
            ETHERTYPE_ARP: arp_kind;
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state arp_kind {
        transition select(packet.lookahead<bit<48>>()) {
            ARP_IPV4_OVER_ETHERNET: arp;
            default: accept;
        }
    }

    state arp {
        packet.extract(hdr.arp);
        meta.destination = hdr.arp.target;
        transition accept;
    }

    /* UDP only behind a header without options, in a packet that is not a fragment. */
    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.destination = hdr.ipv4.destination;
        transition select(hdr.ipv4.header_words, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
                          hdr.ipv4.protocol) {
            (5, 0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.total_bytes) {
            0 .. 39: accept; // 8 of its own and 32: no room for a rostrum header
            default: rostrum_magic;
        }
    }

    state rostrum_magic {
        transition select(packet.lookahead<bit<24>>()) {
            ROSTRUM_DATA: rostrum;
            default: accept;
        }
    }

    state rostrum {
        packet.extract(hdr.rostrum);
        transition accept;
    }
}

#define IPV4_CHECKED                                                                                                  \
    { hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_bytes,                     \
      hdr.ipv4.identification, hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments,                    \
      hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination }

/* Options are not parsed, so a header that has them can be neither verified nor updated: nothing in it is changed. */
control VerifyHeader(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid() && hdr.ipv4.header_words == 5, IPV4_CHECKED, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
    }
}

control UpdateHeader(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.header_words == 5, IPV4_CHECKED, hdr.ipv4.checksum,
                        HashAlgorithm.csum16);
    }
}

control FrameDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.rostrum);
    }
}

#endif
