/* Assembled here, instruction by instruction, and loaded by bpf(2): no compiler for BPF and no library are needed. */
#include "io/xdp_program.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/io.h"

/* Where things lie in a frame without VLAN tag and IP options. */
enum { AT_TYPE = 12, AT_VERSION = 14, AT_FRAGMENT = 20, AT_PROTOCOL = 23, AT_ADDRESS = 30, AT_PORT = 36, HEADERS = 42 };

/* Key of the groups: as in the frame. */
typedef struct {
    uint32_t address;
    uint32_t port;
} group_key;

/* ------------------------------------------------------------------------------------------------------- assembler */

#define INSTRUCTION(code_, to, from, offset, value) \
    ((struct bpf_insn){.code = (code_), .dst_reg = (to), .src_reg = (from), .off = (offset), .imm = (value)})
#define LOAD(size, to, from, offset) INSTRUCTION(BPF_LDX | BPF_MEM | (size), to, from, offset, 0)
#define STORE(size, to, offset, from) INSTRUCTION(BPF_STX | BPF_MEM | (size), to, from, offset, 0)
#define COPY(to, from) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0)
#define SET(to, value) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value)
#define ADD(to, value) INSTRUCTION(BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, value)
#define AND(to, value) INSTRUCTION(BPF_ALU64 | BPF_AND | BPF_K, to, 0, 0, value)
#define CALL(function) INSTRUCTION(BPF_JMP | BPF_CALL, 0, 0, 0, function)
#define EXIT INSTRUCTION(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
/* Takes two; the second holds the upper half, which a map has not. */
#define LOAD_MAP(to, fd) \
    INSTRUCTION(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_FD, 0, fd), INSTRUCTION(0, 0, 0, 0, 0)
/* Jumps whose target, the end that passes the frame to the kernel, is filled in afterwards. */
#define PASS (-1)
#define PASS_UNLESS(to, value) INSTRUCTION(BPF_JMP | BPF_JNE | BPF_K, to, 0, PASS, value)
#define PASS_IF(to, value) INSTRUCTION(BPF_JMP | BPF_JEQ | BPF_K, to, 0, PASS, value)
#define PASS_IF_GREATER(to, from) INSTRUCTION(BPF_JMP | BPF_JGT | BPF_X, to, from, PASS, 0)

static long bpf(enum bpf_cmd command, union bpf_attr *attributes) {
    return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

static int make_map(enum bpf_map_type type, const char *name, uint32_t key_bytes, uint32_t entries) {
    union bpf_attr attributes = {
        .map_type = type, .key_size = key_bytes, .value_size = sizeof(uint32_t), .max_entries = entries};
    snprintf(attributes.map_name, sizeof attributes.map_name, "%s", name);
    return (int)bpf(BPF_MAP_CREATE, &attributes);
}

static int load(int groups_fd, int sockets_fd, bool fragments) {
    struct bpf_insn code[] = {
        COPY(BPF_REG_6, BPF_REG_1),
        LOAD(BPF_W, BPF_REG_2, BPF_REG_6, offsetof(struct xdp_md, data)),
        LOAD(BPF_W, BPF_REG_3, BPF_REG_6, offsetof(struct xdp_md, data_end)),
        COPY(BPF_REG_4, BPF_REG_2),
        ADD(BPF_REG_4, HEADERS),
        PASS_IF_GREATER(BPF_REG_4, BPF_REG_3),
        LOAD(BPF_H, BPF_REG_0, BPF_REG_2, AT_TYPE),
        PASS_UNLESS(BPF_REG_0, htons(0x0800)),
        LOAD(BPF_B, BPF_REG_0, BPF_REG_2, AT_VERSION),
        PASS_UNLESS(BPF_REG_0, 0x45),
        LOAD(BPF_B, BPF_REG_0, BPF_REG_2, AT_PROTOCOL),
        PASS_UNLESS(BPF_REG_0, IPPROTO_UDP),
        LOAD(BPF_H, BPF_REG_0, BPF_REG_2, AT_FRAGMENT),
        AND(BPF_REG_0, htons(0x3fff)), /* more fragments, or not the first */
        PASS_UNLESS(BPF_REG_0, 0),
        LOAD(BPF_W, BPF_REG_0, BPF_REG_2, AT_ADDRESS),
        STORE(BPF_W, BPF_REG_10, -8, BPF_REG_0),
        LOAD(BPF_H, BPF_REG_0, BPF_REG_2, AT_PORT),
        STORE(BPF_W, BPF_REG_10, -4, BPF_REG_0),
        COPY(BPF_REG_2, BPF_REG_10),
        ADD(BPF_REG_2, -8),
        LOAD_MAP(BPF_REG_1, groups_fd),
        CALL(BPF_FUNC_map_lookup_elem),
        PASS_IF(BPF_REG_0, 0),
        LOAD_MAP(BPF_REG_1, sockets_fd),
        LOAD(BPF_W, BPF_REG_2, BPF_REG_6, offsetof(struct xdp_md, rx_queue_index)),
        SET(BPF_REG_3, XDP_PASS), /* what happens if the queue has no socket */
        CALL(BPF_FUNC_redirect_map),
        EXIT,
        SET(BPF_REG_0, XDP_PASS),
        EXIT,
    };
    enum { COUNT = sizeof code / sizeof *code, AT_PASS = COUNT - 2 };
    for (int i = 0; i < COUNT; i++)
        if (BPF_CLASS(code[i].code) == BPF_JMP && code[i].off == PASS)
            code[i].off = (int16_t)(AT_PASS - i - 1);
    static const char license[] = "Apache-2.0";
    union bpf_attr attributes = {.prog_type = BPF_PROG_TYPE_XDP,
                                 .expected_attach_type = BPF_XDP,
                                 .insn_cnt = COUNT,
                                 .insns = (uintptr_t)code,
                                 .license = (uintptr_t)license,
                                 .prog_flags = fragments ? BPF_F_XDP_HAS_FRAGS : 0,
                                 .prog_name = "rostrum_data"};
    return (int)bpf(BPF_PROG_LOAD, &attributes);
}

static bool enter_socket(const rs_xdp_program *program, int socket_fd) {
    uint32_t queue = 0, value = (uint32_t)socket_fd;
    union bpf_attr attributes = {
        .map_fd = (uint32_t)program->sockets_fd, .key = (uintptr_t)&queue, .value = (uintptr_t)&value};
    return bpf(BPF_MAP_UPDATE_ELEM, &attributes) == 0;
}

static int hang(const rs_xdp_program *program, unsigned interface_index) {
    union bpf_attr attributes = {0};
    attributes.link_create.prog_fd = (uint32_t)program->program_fd;
    attributes.link_create.target_ifindex = interface_index;
    attributes.link_create.attach_type = BPF_XDP;
    attributes.link_create.flags = XDP_FLAGS_DRV_MODE;
    return (int)bpf(BPF_LINK_CREATE, &attributes);
}

static bool explain(char *error, const char *interface, bool loaded) {
    int cause = errno;
    if (cause == EPERM || cause == EACCES)
        snprintf(error, RS_IO_ERROR_MAX, "xdp needs CAP_NET_ADMIN and CAP_BPF, or root: %s", strerror(cause));
    else if (cause == EBUSY || cause == EEXIST)
        snprintf(error, RS_IO_ERROR_MAX,
                 "%s has an XDP program already: end what put it there (another agent?), or take it off with: "
                 "ip link set dev %s xdp off",
                 interface, interface);
    else if (loaded && (cause == EOPNOTSUPP || cause == ERANGE || cause == EINVAL))
        snprintf(error, RS_IO_ERROR_MAX, "the driver of %s takes no XDP program, or none at this MTU (%s)", interface,
                 strerror(cause));
    else
        snprintf(error, RS_IO_ERROR_MAX, "the kernel does not take the XDP program for %s (%s)", interface,
                 strerror(cause));
    return false;
}

bool rs_xdp_program_attach(rs_xdp_program *program, const char *interface, unsigned interface_index, int socket_fd,
                           bool fragments, char *error) {
    *program = (rs_xdp_program){-1, -1, -1, -1};
    program->groups_fd = make_map(BPF_MAP_TYPE_HASH, "rostrum_groups", sizeof(group_key), RS_IO_GROUPS_MAX);
    if (program->groups_fd < 0)
        return explain(error, interface, false);
    program->sockets_fd = make_map(BPF_MAP_TYPE_XSKMAP, "rostrum_xsks", sizeof(uint32_t), 1);
    if (program->sockets_fd < 0 || !enter_socket(program, socket_fd))
        return explain(error, interface, false);
    program->program_fd = load(program->groups_fd, program->sockets_fd, fragments);
    if (program->program_fd < 0)
        return explain(error, interface, false);
    program->link_fd = hang(program, interface_index);
    return program->link_fd >= 0 || explain(error, interface, true);
}

void rs_xdp_program_detach(rs_xdp_program *program) {
    const int all[] = {program->link_fd, program->program_fd, program->sockets_fd, program->groups_fd};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= 0)
            close(all[i]);
    *program = (rs_xdp_program){-1, -1, -1, -1};
}

bool rs_xdp_program_take(const rs_xdp_program *program, uint32_t address, uint16_t port) {
    const group_key key = {htonl(address), htons(port)};
    const uint32_t value = 1;
    union bpf_attr attributes = {
        .map_fd = (uint32_t)program->groups_fd, .key = (uintptr_t)&key, .value = (uintptr_t)&value};
    return bpf(BPF_MAP_UPDATE_ELEM, &attributes) == 0;
}

void rs_xdp_program_pass(const rs_xdp_program *program, uint32_t address, uint16_t port) {
    const group_key key = {htonl(address), htons(port)};
    union bpf_attr attributes = {.map_fd = (uint32_t)program->groups_fd, .key = (uintptr_t)&key};
    (void)bpf(BPF_MAP_DELETE_ELEM, &attributes);
}
