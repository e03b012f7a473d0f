/* Admission: multicast passes with a grant for its ingress port, group and source only. So nobody sends into a group
 * that is not theirs: not from another port, and not from another address behind the same port.
 */
#ifndef ADMISSION_P4
#define ADMISSION_P4

#include "include/headers.p4"
#include "include/sizes.p4"

control Admission(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    @id(ID_ADMISSION_COUNTER) @name(".admission_counter")
    @brief("Packets and bytes sent under each grant")
    direct_counter(CounterType.packets_and_bytes) granted;

    @id(ID_REFUSED) @name(".refused")
    @brief("Packets and bytes to guarded groups without a grant, by ingress port")
    counter<bit<9>>(PORTS, CounterType.packets_and_bytes) refused;

    @id(ID_GRANT) @name(".grant")
    @brief("The packet may enter its group")
    action grant() {
    }

    @id(ID_NO_GRANT) @name(".no_grant")
    @brief("The packet is dropped: its port and source have no grant for its group")
    action no_grant() {
        meta.reason = REASON_REFUSED;
    }

    @id(ID_ADMISSION) @name(".admission")
    @brief("Who may send into which group")
    @description("By ingress port, group and source. A source of /0 grants every source behind the port.")
    table admission {
        key = {
            standard.ingress_port: exact @id(1) @name("ingress_port") @brief("Port the packet came by");
            hdr.ipv4.destination: exact @id(2) @name("group") @brief("IPv4 multicast destination");
            hdr.ipv4.source: lpm @id(3) @name("source") @brief("IPv4 source");
        }
        actions = {
            grant;
            @defaultonly no_grant;
        }
        const default_action = no_grant();
        counters = granted;
        size = GRANTS;
    }

    @id(ID_GUARD) @name(".guard")
    @brief("The group is one of ours: packets to it without a grant are counted as refused")
    action guard() {
    }

    @id(ID_FOREIGN_GROUP) @name(".foreign_group")
    @brief("The group is none of ours: packets to it without a grant are counted as foreign")
    action foreign_group() {
        meta.reason = REASON_FOREIGN_GROUP;
    }

    @id(ID_GROUP_RANGE) @name(".group_range")
    @brief("The networks that our groups are of")
    @description("Tells intrusion from what servers say to other groups. Both are dropped.")
    table group_range {
        key = {
            hdr.ipv4.destination: lpm @id(1) @name("group") @brief("IPv4 multicast network");
        }
        actions = {
            guard;
            @defaultonly foreign_group;
        }
        const default_action = foreign_group();
        size = GROUP_RANGES;
    }

    apply {
        if (admission.apply().miss) {
            if (group_range.apply().hit) {
                refused.count(standard.ingress_port);
            }
        }
    }
}

#endif
