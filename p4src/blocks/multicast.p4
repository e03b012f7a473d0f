/* Multicast: (ingress port, group) -> replication group. A path's first and last hops are such entries, no more. */
#ifndef MULTICAST_P4
#define MULTICAST_P4

#include "include/headers.p4"
#include "include/sizes.p4"

control Multicast(in headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @id(ID_MULTICAST_COUNTER) @name(".multicast_counter")
    @brief("Packets and bytes of each path, before replication")
    direct_counter(CounterType.packets_and_bytes) carried;

    @id(ID_REPLICATE) @name(".replicate")
    @brief("A copy to every port of a replication group")
    @description("Copies carry the priority level. A copy to the ingress port is pruned in egress.")
    action replicate(@id(1) bit<16> replication, @id(2) bit<3> level) {
        standard.mcast_grp = replication;
        meta.level = level;
    }

    @id(ID_NO_PATH) @name(".no_path")
    @brief("The packet is dropped: it is admitted, but there is no path for it")
    action no_path() {
        meta.reason = REASON_NO_PATH;
    }

    @id(ID_MULTICAST) @name(".multicast")
    @brief("Multicast forwarding")
    @description("By ingress port and group: a path at its first, middle or last switch.")
    table multicast {
        key = {
            standard.ingress_port: exact @id(1) @name("ingress_port") @brief("Port the packet came by");
            hdr.ipv4.destination: exact @id(2) @name("group") @brief("IPv4 multicast destination");
        }
        actions = {
            replicate;
            @defaultonly no_path;
        }
        const default_action = no_path();
        counters = carried;
        size = PATHS;
    }

    apply {
        multicast.apply();
    }
}

/* In egress. The replication engine copies to every port of the group; a path that has its ingress port among them
 * (as an OpenFlow group may) must not send back. Unicast never gets here: it was dropped in ingress.
 */
control Prune(inout standard_metadata_t standard, out bool pruned) {
    apply {
        pruned = standard.egress_port == standard.ingress_port;
        if (pruned) {
            mark_to_drop(standard);
        }
    }
}

#endif
