/* The program of rostrum's switches, top of rack and core. docs/p4.md is its contract with the control plane.
 *
 *           ingress                                                                         egress
 *  frame  +---------+   unicast, ARP      +---------+         +----------+  +----------+  +---------+
 *  ------>| parser, |-------------------->| Unicast,|-------->| Priority |->| queues,  |->| Prune,  |--> deparser
 *         | sanity  |                     | Urgency |         | DSCP,    |  | replica- |  | Sent    |    (IPv4
 *         +---------+   +-----------+  +-----------+  +-----+ | PCP,     |  | tion     |  +---------+    checksum)
 *              |   '--->| Admission |->| Multicast |->|First|>| queue    |  +----------+
 *              | multi- +-----------+  +-----------+  |Light| +----------+
 *              v  cast        |              |        +-----+
 *            Drop           Drop           Drop          '--> digest
 *
 *  LLDP from watched ports goes to the control plane, and what that sends to a port leaves as it is: Discovery.
 */
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

#include "include/ids.p4"
#include "include/sizes.p4"
#include "include/headers.p4"
#include "include/parser.p4"
#include "blocks/unicast.p4"
#include "blocks/admission.p4"
#include "blocks/multicast.p4"
#include "blocks/priority.p4"
#include "blocks/telemetry.p4"
#include "blocks/discovery.p4"

/* What no table needs to see. */
control Sanity(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    apply {
        if (standard.parser_error != error.NoError) {
            meta.reason = REASON_MALFORMED;
        } else if (hdr.ipv4.isValid()) {
            if (hdr.ipv4.version != 4 || hdr.ipv4.header_words < 5 || hdr.ipv4.total_bytes < 20) {
                meta.reason = REASON_MALFORMED;
            } else if (standard.checksum_error == 1) {
                meta.reason = REASON_CHECKSUM;
            }
        } else if (!hdr.arp.isValid() && hdr.ethernet.ethertype != ETHERTYPE_LLDP) {
            meta.reason = REASON_OTHER_FRAME;
        }
    }
}

control TorIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Received()   received;
    Sanity()     sanity;
    Unicast()    unicast;
    Urgency()    urgency;
    Admission()  admission;
    Multicast()  multicast;
    FirstLight() first_light;
    Priority()   priority;
    Discovery()  discovery;
    Drop()       drop;

    apply {
        if (hdr.packet_out.isValid()) {
            standard.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
            meta.discovery = 1;
            exit;
        }
        received.apply(standard);
        sanity.apply(hdr, meta, standard);
        if (meta.reason == REASON_NONE) {
            if (hdr.ethernet.ethertype == ETHERTYPE_LLDP) {
                discovery.apply(hdr, meta, standard);
            } else if (hdr.ipv4.isValid() && hdr.ipv4.destination[31:28] == MULTICAST_PREFIX) {
                admission.apply(hdr, meta, standard);
                if (meta.reason == REASON_NONE) {
                    multicast.apply(hdr, meta, standard);
                }
                if (meta.reason == REASON_NONE) {
                    first_light.apply(hdr, standard);
                }
            } else {
                unicast.apply(meta, standard);
                if (meta.reason == REASON_NONE) {
                    urgency.apply(hdr, meta, standard);
                }
            }
        }
        if (meta.discovery == 1) {
            exit;
        } else if (meta.reason == REASON_NONE) {
            priority.apply(hdr, meta, standard);
        } else {
            drop.apply(meta, standard);
        }
    }
}

control TorEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Prune() prune;
    Sent()  sent;

    apply {
        bool pruned;
        prune.apply(standard, pruned);
        if (!pruned && meta.discovery == 0) {
            sent.apply(standard);
        }
    }
}

@pkginfo(name = "rostrum-tor", version = "1", organization = "rostrum", url = "docs/p4.md")
V1Switch(FrameParser(), VerifyHeader(), TorIngress(), TorEgress(), UpdateHeader(), FrameDeparser()) main;
