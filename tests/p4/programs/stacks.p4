// A parser with a loop, look-ahead, skipping, verification and masks; a header stack that is pushed and popped.
#include <core.p4>
#include <v1model.p4>

error { WrongVersion }

header base_t {
    bit<4> version;
    bit<4> skip;
    bit<8> command;
    bit<16> kind;
}

header label_t {
    bit<15> value;
    bit<1> last;
}

header trailer_t {
    bit<8> tag;
    bit<8> rest;
}

header report_t {
    bit<32> error_value;
    bit<8> labels;
    bit<8> checks;
    bit<64> padding;  // so that whatever is taken out, what leaves is an Ethernet frame
}

struct headers_t {
    report_t report;
    base_t base;
    label_t[4] labels;
    trailer_t trailer;
}

struct metadata_t {}

parser read(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.base);
        verify(hdr.base.version == 6 || hdr.base.version == 4, error.WrongVersion);
        packet.advance((bit<32>)hdr.base.skip * 8);
        transition select(hdr.base.version, hdr.base.kind) {
            (4, 0x0100 &&& 0xff00): labels;
            (4, 0x0200 .. 0x02ff): look;
            (6, _): labels;
            (_, 7): trailer;
            default: accept;
        }
    }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.last) {
            0: labels;
            default: look;
        }
    }
    state look {
        transition select(packet.lookahead<bit<12>>()[7:0]) {
            0x00 &&& 0x0f: trailer;
            0x31: trailer;
            default: accept;
        }
    }
    state trailer {
        packet.extract(hdr.trailer);
        transition accept;
    }
}

control verify_nothing(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.report.setValid();
        hdr.report.error_value = 0;
        if (standard.parser_error == error.PacketTooShort) {
            hdr.report.error_value = 1;
        } else if (standard.parser_error == error.StackOutOfBounds) {
            hdr.report.error_value = 2;
        } else if (standard.parser_error == error.WrongVersion) {
            hdr.report.error_value = 3;
        } else if (standard.parser_error != error.NoError) {
            hdr.report.error_value = 99;
        }
        hdr.report.checks = 0;
        if (hdr.labels[0].isValid() && hdr.labels[1].isValid()) {
            hdr.report.checks = 1;
            hdr.labels[1].value = hdr.labels[0].value + 1;
        }
        if (hdr.trailer.isValid() && hdr.trailer.tag == 0x31) {
            hdr.report.checks = hdr.report.checks | 2;
        }
        if (hdr.base.command == 1) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].value = 15w0x1234;
            hdr.labels[0].last = 0;
        } else if (hdr.base.command == 2) {
            hdr.labels.pop_front(2);
        } else if (hdr.base.command == 3) {
            hdr.labels[2] = hdr.labels[0];
            hdr.trailer.setInvalid();
        } else if (hdr.base.command == 4) {
            hdr.labels.push_front(3);
        }
        hdr.report.labels = 0;
        if (hdr.labels[3].isValid()) {
            hdr.report.labels = 4;
        } else if (hdr.labels[2].isValid()) {
            hdr.report.labels = 3;
        }
        standard.egress_spec = 2;
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control update_nothing(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control write(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report);
        packet.emit(hdr.base);
        packet.emit(hdr.labels);
        packet.emit(hdr.trailer);
    }
}

V1Switch(read(), verify_nothing(), ingress(), egress(), update_nothing(), write()) main;
