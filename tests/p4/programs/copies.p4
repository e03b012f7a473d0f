// What becomes of a packet: multicast, clones, resubmission, recirculation, digests, truncation; registers, counters,
// hashes and checksums on the way.
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> command;
    bit<8> group;
    bit<8> rounds;
    bit<8> trace;
    bit<16> checksum;
    bit<16> length;
    bit<32> hash;
    bit<16> count;
    bit<8> index;
    bit<8> out_port;
}

struct headers_t {
    h_t h;
}

struct metadata_t {
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
    bit<32> hash;
    bit<16> count;
}

struct digest_t {
    bit<8> command;
    bit<16> count;
    bit<9> port;
}

parser read(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}

control check(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.h.command != 9, { hdr.h.command, hdr.h.group, hdr.h.rounds, hdr.h.trace },
                        hdr.h.checksum, HashAlgorithm.csum16);
    }
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<16>>(8) seen;
    counter(8, CounterType.packets_and_bytes) commands;

    apply {
        hdr.h.trace = (bit<8>)standard.instance_type;
        if (standard.checksum_error == 1) {
            hdr.h.trace = hdr.h.trace | 0x10;
        }
        commands.count((bit<32>)hdr.h.command);
        seen.read(meta.count, (bit<32>)hdr.h.index);
        meta.count = meta.count + 1;
        seen.write((bit<32>)hdr.h.index, meta.count);
        hdr.h.count = meta.count;
        hdr.h.length = (bit<16>)standard.packet_length;
        if (hdr.h.index[0:0] == 0) {
            hash(meta.hash, HashAlgorithm.crc32, 32w0, { hdr.h.command, hdr.h.index, hdr.h.group }, 64w0x100000000);
        } else {
            hash(meta.hash, HashAlgorithm.crc16, 32w10, { hdr.h.group, 4w5, hdr.h.rounds, 4w1 }, 64w1000);
        }
        hdr.h.hash = meta.hash;
        standard.egress_spec = 2;
        meta.lost = 7;
        if (hdr.h.command == 1) {
            standard.mcast_grp = (bit<16>)hdr.h.group;
        } else if (hdr.h.command == 2) {
            meta.kept = hdr.h.index + 1;
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.h.group, 1);
        } else if (hdr.h.command == 3) {
            if (meta.kept < hdr.h.rounds && meta.kept < 5) {
                meta.kept = meta.kept + 1;
                resubmit_preserving_field_list(1);
            }
        } else if (hdr.h.command == 4) {
            digest<digest_t>(1, { hdr.h.command, meta.count, standard.ingress_port });
        } else if (hdr.h.command == 5) {
            mark_to_drop(standard);
        } else if (hdr.h.command == 6) {
            truncate((bit<32>)hdr.h.rounds + 20);
        }
        hdr.h.rounds = hdr.h.rounds + meta.kept;
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.h.out_port = (bit<8>)standard.egress_port;
        if (standard.instance_type == 5) {
            hdr.h.count = standard.egress_rid;
            if (standard.egress_port == standard.ingress_port) {
                mark_to_drop(standard);
            }
        }
        if (standard.instance_type == 1 || standard.instance_type == 2) {
            hdr.h.hash = (bit<32>)(meta.kept ++ meta.lost);
            hdr.h.trace = (bit<8>)standard.instance_type | 0x20;
        } else if (hdr.h.command == 7) {
            meta.kept = 99;
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.h.group, 1);
            hdr.h.group = 0;
        } else if (hdr.h.command == 8 && meta.kept < 3) {
            meta.kept = meta.kept + 1;
            recirculate_preserving_field_list(1);
        }
        hdr.h.length = (bit<16>)standard.packet_length;
    }
}

control correct(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(hdr.h.command != 5, { hdr.h.command, hdr.h.group, hdr.h.rounds, hdr.h.trace,
                        hdr.h.length }, hdr.h.checksum, HashAlgorithm.csum16);
    }
}

control write(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}

V1Switch(read(), check(), ingress(), egress(), correct(), write()) main;
