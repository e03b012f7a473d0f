/* Unicast: IPv4 by destination, ARP by the address it asks for. No flooding: every server is in the topology. */
#ifndef UNICAST_P4
#define UNICAST_P4

#include "include/headers.p4"
#include "include/sizes.p4"

control Unicast(inout metadata_t meta, inout standard_metadata_t standard) {
    @id(ID_UNICAST_COUNTER) @name(".unicast_counter")
    @brief("Packets and bytes to each destination")
    direct_counter(CounterType.packets_and_bytes) sent;

    @id(ID_FORWARD) @name(".forward")
    @brief("The packet leaves by this port")
    action forward(@id(1) bit<9> port) {
        standard.egress_spec = port;
    }

    @id(ID_UNKNOWN_DESTINATION) @name(".unknown_destination")
    @brief("The packet is dropped: nobody is known by this address")
    action unknown_destination() {
        meta.reason = REASON_UNKNOWN_DESTINATION;
    }

    @id(ID_UNICAST) @name(".unicast")
    @brief("Unicast forwarding")
    @description("By IPv4 destination, or by the target address of an ARP frame. One /32 for each server.")
    table unicast {
        key = {
            meta.destination: lpm @id(1) @name("destination") @brief("IPv4 destination or ARP target address");
        }
        actions = {
            forward;
            @defaultonly unknown_destination;
        }
        const default_action = unknown_destination();
        counters = sent;
        size = UNICAST_ENTRIES;
    }

    apply {
        if (unicast.apply().hit) {
            if (standard.egress_spec == standard.ingress_port) {
                meta.reason = REASON_WAY_BACK;
            }
        }
    }
}

#endif
