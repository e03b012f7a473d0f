/* Unicast: IPv4 by destination, ARP by the address it asks for. No flooding: every server is in the topology.
 * And the level of it: what tells senders of losses must not wait behind what causes them.
 */
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

/* Agents' reports and ARP have a level of their own, as far as the meter of the port that they leave by finds them
 * green. What is beyond has level 0, as other unicast: nobody holds multicast up by marking their packets so.
 */
control Urgency(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    @id(ID_CONTROL_SHARE) @name(".control_share")
    @brief("What agents' reports and ARP may have of a port before all else, by egress port")
    meter<bit<9>>(PORTS, MeterType.bytes) share;

    @id(ID_CONTROL_EXCESS) @name(".control_excess")
    @brief("Packets and bytes of reports and ARP beyond a port's control_share, by egress port")
    counter<bit<9>>(PORTS, CounterType.packets_and_bytes) excess;

    apply {
        if (hdr.arp.isValid() || (hdr.ipv4.isValid() && hdr.ipv4.dscp == DSCP_CONTROL)) {
            bit<2> colour = METER_GREEN;
            share.execute_meter(standard.egress_spec, colour);
            if (colour == METER_GREEN) {
                meta.level = LEVEL_CONTROL;
            } else {
                excess.count(standard.egress_spec);
            }
        }
    }
}

#endif
