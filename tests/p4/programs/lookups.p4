// Tables of every kind, actions with data and conditions, hit and miss, action_run, constant entries, exit.
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> a;
    bit<8> b;
    bit<16> c;
    bit<32> d;
    bit<8> trace;
    bit<8> data;
}

header extra_t {
    bit<8> x;
}

struct headers_t {
    h_t h;
    extra_t extra;
}

struct metadata_t {
    bit<9> port;
    bit<8> mark;
}

parser read(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.a) {
            0: extra;
            default: accept;
        }
    }
    state extra {
        packet.extract(hdr.extra);
        transition accept;
    }
}

control verify_nothing(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) exact_counter;

    action trace(bit<8> bits) {
        hdr.h.trace = hdr.h.trace | bits;
    }
    action forward(bit<9> port, bit<8> data) {
        meta.port = port;
        if (data > 100) {
            hdr.h.data = data - 100;
        } else {
            hdr.h.data = data;
        }
    }
    action drop() {
        mark_to_drop(standard);
    }
    action stop() {
        hdr.h.trace = hdr.h.trace | 0x80;
        exit;
    }

    table exact_table {
        key = { hdr.h.a: exact; standard.ingress_port: exact; }
        actions = { forward; drop; trace; NoAction; }
        default_action = trace(1);
        counters = exact_counter;
        size = 64;
    }
    table lpm_table {
        key = { hdr.h.d: lpm; hdr.h.b: exact; }
        actions = { forward; trace; drop; }
        default_action = trace(2);
        size = 64;
    }
    table ternary_table {
        key = { hdr.h.c: ternary; hdr.h.d[15:8]: ternary; hdr.extra.isValid(): ternary; }
        actions = { forward; trace; stop; drop; }
        default_action = trace(4);
        size = 64;
    }
    table range_table {
        key = { hdr.h.b: range; hdr.h.a & 0x0f: optional; }
        actions = { trace; forward; }
        default_action = trace(8);
        size = 64;
    }
    table constant_table {
        key = { hdr.h.a: ternary; hdr.h.b: ternary; }
        actions = { trace; drop; NoAction; }
        default_action = NoAction();
        const entries = {
            (1, _): trace(16);
            (_, 2 &&& 3): trace(32);
            (3, 1): drop();
        }
    }

    apply {
        meta.port = 2;
        if (exact_table.apply().hit) {
            meta.mark = 1;
        } else {
            meta.mark = 2;
        }
        switch (lpm_table.apply().action_run) {
            forward: { meta.mark = meta.mark + 16; }
            drop: { meta.mark = meta.mark + 32; }
            default: { range_table.apply(); }
        }
        ternary_table.apply();
        constant_table.apply();
        hdr.h.c[7:0] = meta.mark;
        if (standard.egress_spec != 511) {
            standard.egress_spec = meta.port;
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.h.trace == 0x80) {
            exit;
        }
        hdr.h.trace = hdr.h.trace ^ 0x40;
    }
}

control update_nothing(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control write(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
        packet.emit(hdr.extra);
    }
}

V1Switch(read(), verify_nothing(), ingress(), egress(), update_nothing(), write()) main;
