/* Telemetry: what ports received and sent, why packets were dropped, and first light. */
#ifndef TELEMETRY_P4
#define TELEMETRY_P4

#include "include/headers.p4"
#include "include/sizes.p4"

control Received(in standard_metadata_t standard) {
    @id(ID_PORT_RECEIVED) @name(".port_received")
    @brief("Packets and bytes received, by port")
    counter<bit<9>>(PORTS, CounterType.packets_and_bytes) received;

    apply {
        received.count(standard.ingress_port);
    }
}

control Drop(in metadata_t meta, inout standard_metadata_t standard) {
    @id(ID_DROPPED) @name(".dropped")
    @brief("Packets and bytes dropped in ingress, by reason")
    counter<reason_t>(DROP_REASONS, CounterType.packets_and_bytes) dropped;

    apply {
        dropped.count(meta.reason);
        mark_to_drop(standard);
    }
}

/* In egress: a replica's instance, given by the control plane, says which delivery it is. */
control Sent(in standard_metadata_t standard) {
    @id(ID_PORT_SENT_MULTICAST) @name(".port_sent_multicast")
    @brief("Copies of multicast packets sent, by port")
    counter<bit<9>>(PORTS, CounterType.packets_and_bytes) multicast;

    @id(ID_PORT_SENT_UNICAST) @name(".port_sent_unicast")
    @brief("Unicast and ARP packets sent, by port")
    counter<bit<9>>(PORTS, CounterType.packets_and_bytes) unicast;

    @id(ID_DELIVERED) @name(".delivered")
    @brief("Copies of a path sent to one receiver port, by the replica's instance")
    counter<bit<16>>(DELIVERIES, CounterType.packets_and_bytes) delivered;

    apply {
        if (standard.instance_type == INSTANCE_REPLICATION) {
            multicast.count(standard.egress_port);
            if (standard.egress_rid != 0 && (bit<32>)standard.egress_rid < DELIVERIES) {
                delivered.count(standard.egress_rid);
            }
        } else {
            unicast.count(standard.egress_port);
        }
    }
}

/* What a watch asks for, as its entry says. */
struct watch_t {
    bit<16> slot;
    bit<32> epoch;
    bit<32> first_session;
    bit<8>  confirm;
}

/* Counts data packets with sns in a row, and raises the digest at the last one asked for. Registers hold, for each
 * slot, the epoch that it was last armed with, the packets in a row so far (as many as were asked for once the digest
 * has been raised) and the next sn of the row. An epoch unlike the register's arms anew, so that the control plane
 * never needs to write a register.
 */
control Row(in headers_t hdr, in standard_metadata_t standard, in watch_t watch, in bit<32> session, in bit<64> sn) {
    @id(ID_LIGHT_EPOCH) @name(".light_epoch")
    @brief("First light, by slot: the epoch that the slot was last armed with")
    register<bit<32>, bit<16>>(WATCHES) epochs;

    @id(ID_LIGHT_RUN) @name(".light_run")
    @brief("First light, by slot: data packets in a row since then")
    register<bit<8>, bit<16>>(WATCHES) runs;

    @id(ID_LIGHT_NEXT) @name(".light_next")
    @brief("First light, by slot: the sn that continues the row")
    register<bit<64>, bit<16>>(WATCHES) nexts;

    apply {
        @atomic {
            bit<32> armed;
            bit<8>  run;
            bit<64> next;
            epochs.read(armed, watch.slot);
            runs.read(run, watch.slot);
            if (armed != watch.epoch) {
                epochs.write(watch.slot, watch.epoch);
                run = 0;
            }
            if (run < watch.confirm) {
                nexts.read(next, watch.slot);
                if (sn != next && hdr.rostrum.first == 0) { // with `first`, the ring has gone around
                    run = 0;
                }
                run = run + 1;
                runs.write(watch.slot, run);
                nexts.write(watch.slot, sn + 1);
                if (run == watch.confirm) {
                    digest<first_light_t>(0, { standard.ingress_port, hdr.ipv4.destination, hdr.ipv4.source,
                                               watch.epoch, session, sn });
                }
            }
        }
    }
}

/* First light: rostrum's data has come by a watched port. */
control FirstLight(in headers_t hdr, in standard_metadata_t standard) {
    Row()   row;
    watch_t asked;

    @id(ID_WATCH) @name(".watch")
    @brief("Raise one first_light_t digest for each epoch")
    @description("When `confirm` packets in a row of sessions from `first_session` on came. Another epoch arms anew.")
    action watch(@id(1) bit<16> slot, @id(2) bit<32> epoch, @id(3) bit<32> first_session, @id(4) bit<8> confirm) {
        asked = { slot, epoch, first_session, confirm };
    }

    @id(ID_UNWATCHED) @name(".unwatched")
    @brief("Nothing is raised")
    action unwatched() {
        asked = { 0, 0, 0, 0 };
    }

    @id(ID_FIRST_LIGHT) @name(".first_light")
    @brief("Where the control plane waits for light")
    table first_light {
        key = {
            standard.ingress_port: exact @id(1) @name("ingress_port") @brief("Port that the light comes by");
            hdr.ipv4.destination: exact @id(2) @name("group") @brief("IPv4 multicast destination");
        }
        actions = {
            watch;
            @defaultonly unwatched;
        }
        const default_action = unwatched();
        size = WATCHES;
    }

    apply {
        if (hdr.rostrum.isValid() && hdr.rostrum.repair == 0) {
            first_light.apply();
            if (asked.epoch != 0) {
                // Little-endian on the wire.
                bit<32> session = 8w0 ++ hdr.rostrum.session[7:0] ++ hdr.rostrum.session[15:8] ++
                                  hdr.rostrum.session[23:16];
                bit<64> sn = hdr.rostrum.sn[7:0] ++ hdr.rostrum.sn[15:8] ++ hdr.rostrum.sn[23:16] ++
                             hdr.rostrum.sn[31:24] ++ hdr.rostrum.sn[39:32] ++ hdr.rostrum.sn[47:40] ++
                             hdr.rostrum.sn[55:48] ++ hdr.rostrum.sn[63:56];
                if (session >= asked.first_session && (bit<32>)asked.slot < WATCHES) {
                    row.apply(hdr, standard, asked, session, sn);
                }
            }
        }
    }
}

#endif
