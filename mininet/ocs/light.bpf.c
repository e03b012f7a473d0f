// Light in the kernel: what enters an OCS port leaves by every output its circuit reaches, when the mirrors are still.
//
// Attached to the ingress of each OCS port's interface. User space (light.py) computes where light goes and until when
// it is dark or ringing, and writes that into `circuits`; a hash map's update replaces a value as a whole, so a frame
// sees the old circuit or the new one. Any Ethernet frame passes; nothing in it is looked at.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#define MAX_PORTS 1024 // light.py: MAX_PORTS
#define MAX_OUTPUTS 64 // light.py: MAX_OUTPUTS
#define PPM 1000000

struct output {
    __u64 dark_until_ns; // CLOCK_MONOTONIC
    __u64 ringing_until_ns;
    __u32 ifindex;
    __u32 port;
    __u32 ringing_loss_ppm;
    __u32 loss_ppm;
};

struct circuit {
    __u32 port; // the input's number
    __u32 outputs;
    struct output output[MAX_OUTPUTS];
};

// Per input port: frames and bytes that came, and frames without a circuit. Per output port: what became of its copies.
struct counters {
    __u64 rx_frames, rx_bytes, no_circuit;
    __u64 forwarded, forwarded_bytes, dark, ringing_lost, lost;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MAX_PORTS);
    __type(key, __u32); // the input interface's index
    __type(value, struct circuit);
} circuits SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, MAX_PORTS);
    __type(key, __u32); // the port's number
    __type(value, struct counters);
} counters SEC(".maps");

static __always_inline int chance(__u32 ppm) {
    return ppm && bpf_get_prandom_u32() % PPM < ppm;
}

SEC("tc")
int light(struct __sk_buff *frame) {
    __u32 in = frame->ingress_ifindex, bytes = frame->len, last = 0;
    struct circuit *circuit = bpf_map_lookup_elem(&circuits, &in);
    if (!circuit)
        return TC_ACT_SHOT;
    __u32 port = circuit->port;
    struct counters *input = bpf_map_lookup_elem(&counters, &port);
    if (!input)
        return TC_ACT_SHOT;
    input->rx_frames++;
    input->rx_bytes += bytes;
    if (!circuit->outputs) {
        input->no_circuit++;
        return TC_ACT_SHOT;
    }

    __u64 now = bpf_ktime_get_ns();
    for (__u32 i = 0; i < MAX_OUTPUTS; i++) {
        if (i >= circuit->outputs)
            break;
        struct output *out = &circuit->output[i];
        __u32 out_port = out->port;
        struct counters *count = bpf_map_lookup_elem(&counters, &out_port);
        if (!count)
            continue;
        if (now < out->dark_until_ns) {
            count->dark++;
            continue;
        }
        if (now < out->ringing_until_ns && chance(out->ringing_loss_ppm)) {
            count->ringing_lost++;
            continue;
        }
        if (chance(out->loss_ppm)) {
            count->lost++;
            continue;
        }
        count->forwarded++;
        count->forwarded_bytes += bytes;
        if (last)
            bpf_clone_redirect(frame, last, 0);
        last = out->ifindex; // the last lit output gets the frame itself, and saves a copy
    }
    return last ? bpf_redirect(last, 0) : TC_ACT_SHOT;
}

char _license[] SEC("license") = "GPL"; // the kernel lends some helpers only to programs that say so
