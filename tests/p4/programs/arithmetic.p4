// Expressions of many kinds: widths, signs, saturation, shifts, slices, concatenation, comparison, casts.
#include <core.p4>
#include <v1model.p4>

header input_t {
    bit<8> a;
    bit<8> b;
    bit<16> c;
    bit<4> d;
    bit<12> e;
    bit<64> f;
    int<8> g;
    int<16> h;
}

header output_t {
    bit<8> sum;
    bit<8> difference;
    bit<8> saturated_sum;
    bit<8> saturated_difference;
    int<8> signed_sum;
    int<8> saturated_signed;
    int<16> widened;
    bit<16> product;
    bit<32> joined;
    bit<8> slice;
    bit<64> shifted_left;
    bit<64> shifted_right;
    int<16> arithmetic_shift;
    bit<16> dynamic_shift;
    bit<8> chosen;
    bit<8> comparisons;
    bit<16> negated;
    bit<4> narrow;
    bit<4> mixed;
    bit<8> as_bits;
}

struct headers_t {
    input_t i;
    output_t o;
}

struct metadata_t {
    bit<8> scratch;
    int<16> signed_scratch;
    bool flag;
}

parser read(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.i);
        transition accept;
    }
}

control verify_nothing(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.o.setValid();
        hdr.o.sum = hdr.i.a + hdr.i.b;
        hdr.o.difference = hdr.i.a - hdr.i.b;
        hdr.o.saturated_sum = hdr.i.a |+| hdr.i.b;
        hdr.o.saturated_difference = hdr.i.a |-| hdr.i.b;
        hdr.o.signed_sum = hdr.i.g + (int<8>)hdr.i.a;
        hdr.o.saturated_signed = hdr.i.g |+| (int<8>)hdr.i.b;
        hdr.o.widened = (int<16>)hdr.i.g;
        hdr.o.product = (bit<16>)hdr.i.a * hdr.i.c;
        hdr.o.joined = hdr.i.c ++ hdr.i.a ++ hdr.i.b;
        hdr.o.slice = hdr.i.f[42:35];
        hdr.o.shifted_left = hdr.i.f << 13;
        hdr.o.shifted_right = hdr.i.f >> 7;
        hdr.o.arithmetic_shift = hdr.i.h >> 3;
        hdr.o.dynamic_shift = hdr.i.c << hdr.i.d;
        hdr.o.chosen = hdr.i.a > hdr.i.b ? hdr.i.a : hdr.i.b ^ 8w0x5a;
        meta.flag = hdr.i.g < 0 || (hdr.i.h >= 100 && hdr.i.a != hdr.i.b);
        meta.scratch = 0;
        if (meta.flag) {
            meta.scratch = meta.scratch | 1;
        }
        if ((int<16>)hdr.i.g > hdr.i.h) {
            meta.scratch = meta.scratch | 2;
        }
        if (hdr.i.e[7:0] == hdr.i.a || !(hdr.i.f >= 64w0x8000000000000000)) {
            meta.scratch = meta.scratch | 4;
        }
        hdr.o.comparisons = meta.scratch;
        hdr.o.negated = -(hdr.i.c) ^ ~((bit<16>)hdr.i.e);
        hdr.o.narrow = (bit<4>)(hdr.i.e >> hdr.i.d[1:0]);
        hdr.o.mixed = hdr.i.d |-| 4w9;
        meta.signed_scratch = hdr.i.h - 1000;
        if (meta.signed_scratch < 0) {
            meta.signed_scratch = -meta.signed_scratch;
        }
        hdr.o.as_bits = (bit<8>)(bit<16>)meta.signed_scratch;
        hdr.i.d = hdr.i.d - 1;
        hdr.i.e[7:4] = hdr.i.a[3:0];
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
        packet.emit(hdr.i);
        packet.emit(hdr.o);
    }
}

V1Switch(read(), verify_nothing(), ingress(), egress(), update_nothing(), write()) main;
