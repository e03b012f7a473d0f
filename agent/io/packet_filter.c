/* Classic BPF (the kernel's Documentation/networking/filter.rst). Offsets count from the IP header, so that VLAN tags
 * do not matter. Conditional jumps reach 255 instructions, so that checks end in a "return 0" of their own. */
#include "io/packet_filter.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#define TAKE BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)
#define DROP BPF_STMT(BPF_RET | BPF_K, 0)
#define IP_AT(offset) ((uint32_t)(SKF_NET_OFF + (offset)))
#define LOAD(size, offset) BPF_STMT(BPF_LD | (size) | BPF_ABS, IP_AT(offset))
#define SKIP_IF_EQUAL(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 1, 0)
#define SKIP_IF_NOT_EQUAL(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1)
#define SKIP_IF_NO_BIT(mask) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (mask), 0, 1)

#define IP_HEADER_20 0x45 /* version 4, no options */
#define IP_FRAGMENT 0x3fff
#define PER_PORT 5u /* instructions beside its addresses' */
#define PER_GROUP 2u

/* For us and not for another host or VLAN; a whole UDP datagram. */
static const struct sock_filter head[] = {
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
    SKIP_IF_NOT_EQUAL(PACKET_OTHERHOST),
    DROP,
    LOAD(BPF_B, 0),
    SKIP_IF_EQUAL(IP_HEADER_20),
    DROP,
    LOAD(BPF_B, 9),
    SKIP_IF_EQUAL(IPPROTO_UDP),
    DROP,
    LOAD(BPF_H, 6),
    SKIP_IF_NO_BIT(IP_FRAGMENT),
    DROP,
};
#define HEAD (sizeof head / sizeof *head)

typedef struct {
    uint16_t port;
    uint32_t address;
} target;

static int by_port(const void *a, const void *b) {
    const target *x = a, *y = b;
    return x->port != y->port ? (x->port < y->port ? -1 : 1) : (x->address > y->address) - (x->address < y->address);
}

static unsigned list_targets(const rs_members *members, target *targets) {
    unsigned count = 0;
    for (unsigned i = 0; i < members->room && count < RS_IO_GROUPS_MAX; i++)
        if (members->list[i].fd >= 0)
            targets[count++] = (target){.port = members->list[i].port, .address = members->list[i].address};
    qsort(targets, count, sizeof *targets, by_port);
    return count;
}

/* Targets of one port: is it the port, then is it one of the addresses. */
static unsigned write_port(struct sock_filter *program, const target *targets, unsigned count) {
    unsigned n = 0, length = PER_PORT + PER_GROUP * count;
    program[n++] = (struct sock_filter)LOAD(BPF_H, 22);
    program[n++] = (struct sock_filter)SKIP_IF_EQUAL(targets->port);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, length - 3);
    program[n++] = (struct sock_filter)LOAD(BPF_W, 16);
    for (unsigned i = 0; i < count; i++) {
        program[n++] = (struct sock_filter)SKIP_IF_NOT_EQUAL(targets[i].address);
        program[n++] = (struct sock_filter)TAKE;
    }
    program[n++] = (struct sock_filter)DROP;
    return n;
}

unsigned rs_packet_filter_write(const rs_members *members, struct sock_filter program[RS_PACKET_FILTER_MAX]) {
    target targets[RS_IO_GROUPS_MAX];
    unsigned count = list_targets(members, targets), n = HEAD, run;
    for (unsigned i = 0; i < HEAD; i++)
        program[i] = head[i];
    for (unsigned i = 0; i < count; i += run) {
        for (run = 1; i + run < count && targets[i + run].port == targets[i].port;)
            run++;
        if (n + PER_PORT + PER_GROUP * run + 1 > RS_PACKET_FILTER_MAX) {
            program[HEAD] = (struct sock_filter)TAKE;
            return HEAD + 1;
        }
        n += write_port(&program[n], &targets[i], run);
    }
    program[n++] = (struct sock_filter)DROP;
    return n;
}

bool rs_packet_filter_attach(int fd, const rs_members *members) {
    struct sock_filter program[RS_PACKET_FILTER_MAX];
    struct sock_fprog filter = {.len = (unsigned short)rs_packet_filter_write(members, program), .filter = program};
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0)
        return true;
    if (errno != ENOMEM) /* net.core.optmem_max bounds programs too: then the short one */
        return false;
    program[HEAD] = (struct sock_filter)TAKE;
    filter.len = HEAD + 1;
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}
