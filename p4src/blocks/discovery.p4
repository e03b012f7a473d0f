/* LLDP between devices: from the control plane out of a port, and from watched ports to the control plane. Nothing else
 * goes either way, and servers' ports are not watched.
 */
#ifndef DISCOVERY_P4
#define DISCOVERY_P4

#include "include/headers.p4"
#include "include/sizes.p4"

control Discovery(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @id(ID_HAND_UP) @name(".hand_up")
    @brief("The frame goes to the control plane")
    action hand_up() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard.ingress_port;
        hdr.packet_in.padding = 0;
        standard.egress_spec = CPU_PORT;
        meta.discovery = 1;
    }

    @id(ID_UNWATCHED_PORT) @name(".unwatched_port")
    @brief("The frame is dropped, as others that are neither IPv4 nor ARP")
    action unwatched_port() {
        meta.reason = REASON_OTHER_FRAME;
    }

    @id(ID_DISCOVERY) @name(".discovery")
    @brief("Ports whose LLDP frames the control plane wants")
    table discovery {
        key = {
            standard.ingress_port: exact @id(1) @name("ingress_port") @brief("Port to another device");
        }
        actions = {
            hand_up;
            @defaultonly unwatched_port;
        }
        const default_action = unwatched_port();
        size = PORTS;
    }

    apply {
        discovery.apply();
    }
}

#endif
