// Whose processor time did packets take on their way? The kernel forwards a packet in whatever task it interrupts,
// mostly the one that sent it: it stands in that task's account. This measures it, by the task's network namespace.
#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define NAMESPACES_MAX 64
#define NET_TX 2 // the kernel's enum: NET_TX_SOFTIRQ, NET_RX_SOFTIRQ
#define NET_RX 3

// Of the kernel's structures, the fields that are read; relocated when loaded.
struct ns_common {
    unsigned int inum;
} __attribute__((preserve_access_index));
struct net {
    struct ns_common ns;
} __attribute__((preserve_access_index));
struct nsproxy {
    struct net *net_ns;
} __attribute__((preserve_access_index));
struct task_struct {
    struct nsproxy *nsproxy;
} __attribute__((preserve_access_index));

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} began SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, NAMESPACES_MAX);
    __type(key, __u32); // the namespace's inode number
    __type(value, __u64);
} spent SEC(".maps");

SEC("tp_btf/softirq_entry")
int BPF_PROG(entry, unsigned int vector) {
    __u32 zero = 0;
    __u64 *start = bpf_map_lookup_elem(&began, &zero);
    if (start && (vector == NET_TX || vector == NET_RX))
        *start = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(leave, unsigned int vector) {
    __u32 zero = 0;
    __u64 *start = bpf_map_lookup_elem(&began, &zero), none = 0;
    if (!start || !*start || (vector != NET_TX && vector != NET_RX))
        return 0;
    __u64 took = bpf_ktime_get_ns() - *start;
    *start = 0;
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 where = BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);
    __u64 *sum = bpf_map_lookup_elem(&spent, &where);
    if (!sum) {
        bpf_map_update_elem(&spent, &where, &none, BPF_NOEXIST);
        sum = bpf_map_lookup_elem(&spent, &where);
    }
    if (sum)
        *sum += took;
    return 0;
}

char _license[] SEC("license") = "GPL"; // the kernel lends some helpers only to programs that say so
