/* Priority: a packet's level (0 ... 7) becomes its DSCP, its 802.1Q priority and its queue. */
#ifndef PRIORITY_P4
#define PRIORITY_P4

#include "include/headers.p4"
#include "include/sizes.p4"

control Priority(inout headers_t hdr, in metadata_t meta, inout standard_metadata_t standard) {
    bit<6> new_dscp = 0;
    bit<3> new_pcp = 0;
    bit<4> place = 0; // the queue, a bit wider than v1model's priority, as there may be 8 of them
    bit<4> queues = 1;

    @id(ID_TAG) @name(".tag")
    @brief("DSCP and 802.1Q priority are rewritten, the queue is chosen")
    action tag(@id(1) bit<6> dscp, @id(2) bit<3> pcp, @id(3) bit<3> queue) {
        new_dscp = dscp;
        new_pcp = pcp;
        place = (bit<4>)queue;
    }

    @id(ID_LEAVE_TAGS) @name(".leave_tags")
    @brief("The packet keeps its marks, in the least urgent queue")
    action leave_tags() {
    }

    @id(ID_PRIORITY_TAGS) @name(".priority_tags")
    @brief("What a priority level means on the wire and in the queues")
    table priority_tags {
        key = {
            meta.level: exact @id(1) @name("level") @brief("0: unicast, ARP; of multicast as its path says");
        }
        actions = {
            tag;
            @defaultonly leave_tags;
        }
        const default_action = leave_tags();
        size = LEVELS;
    }

    @id(ID_SET_QUEUES) @name(".set_queues")
    @brief("How many queues each port has: 1 ... 8")
    action set_queues(@id(1) bit<4> count) {
        queues = count;
    }

    @id(ID_EGRESS_QUEUES) @name(".egress_queues")
    @brief("Queues per port, as the default action")
    @description("BMv2 drops a packet whose priority has no queue; so there is one until the control plane says more.")
    table egress_queues {
        actions = {
            set_queues;
        }
        default_action = set_queues(1);
    }

    apply {
        egress_queues.apply();
        if (priority_tags.apply().hit) {
            if (hdr.ipv4.isValid() && hdr.ipv4.header_words == 5) {
                hdr.ipv4.dscp = new_dscp;
            }
            if (hdr.vlan.isValid()) {
                hdr.vlan.pcp = new_pcp;
            }
        }
        if (queues == 0) {
            place = 0;
        } else if (place >= queues) {
            place = queues - 1;
        }
        standard.priority = place[2:0];
    }
}

#endif
