// Loss for benches: attached to the egress of the bridge's ports towards receivers, it drops IPv4 frames at random.
//
// There every frame passes, whatever reads it behind (sockets, AF_PACKET, AF_XDP). A frame is what the kernel forwards
// as one: one packet, or up to 64 KiB of joined packets when offload is on.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PPM 1000000

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32); // parts per million
} loss SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2); // frames that passed, and that were dropped
    __type(key, __u32);
    __type(value, __u64);
} frames SEC(".maps");

SEC("tc")
int drop(struct __sk_buff *frame) {
    __u32 zero = 0, *ppm = bpf_map_lookup_elem(&loss, &zero);
    if (!ppm || !*ppm || frame->protocol != bpf_htons(ETH_P_IP))
        return TC_ACT_OK;
    __u32 lost = bpf_get_prandom_u32() % PPM < *ppm;
    __u64 *count = bpf_map_lookup_elem(&frames, &lost);
    if (count)
        ++*count;
    return lost ? TC_ACT_SHOT : TC_ACT_OK;
}

char _license[] SEC("license") = "GPL"; // the kernel lends some helpers only to programs that say so
