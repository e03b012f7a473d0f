/* What only back end xdp has (agent/io/xdp*.c): frames of several chunks, a program on the interface, traffic that goes
 * on to the kernel. Over virtual interfaces in a private network namespace; skipped, with the reason, where there are
 * none. What it has in common with others is in test_io_backends.c. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io_fixture.h"

#define JUMBO 8896u
#define COUNT 300u
#define GROUP_ADDRESS 0xefc80305u
#define PORT 7070

static char missing[1024]; /* why there is nothing to test on */

static const char *const network[] = {
    "ip link set lo up",
    "ip link add va mtu 9000 type veth peer name vb mtu 9000",
    "ip link add vc numtxqueues 2 numrxqueues 2 type veth peer name vd numtxqueues 2 numrxqueues 2",
    "ip address add 10.77.1.1/24 dev va",
    "ip address add 10.77.1.2/24 dev vb",
    "ip address add 10.77.2.1/24 dev vc",
    "echo 1 > /proc/sys/net/ipv4/conf/vb/accept_local",
    "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter",
    "echo 0 > /proc/sys/net/ipv4/conf/vb/rp_filter",
    "ip link set va up",
    "ip link set vb up",
    "ip link set vc up",
};

static char said[1024];

static void listen_to(void *context, rs_io_log_level level, const char *text) {
    (void)context, (void)level;
    snprintf(said, sizeof said, "%s", text);
}

static const rs_io_options from = {.interface = "va", .address = 0x0a4d0101u, .log = listen_to};
static const rs_io_options to = {.interface = "vb", .address = 0x0a4d0102u, .log = listen_to};

static rs_io *open_xdp(const rs_io_options *options) {
    char error[RS_IO_ERROR_MAX];
    rs_io *io = rs_io_open("xdp", options, error);
    if (!io)
        fail_msg("%s", error);
    return io;
}

static void make_network(void) {
    if (unshare(CLONE_NEWNET) != 0) {
        snprintf(missing, sizeof missing, "no private network namespace: %s (root is needed)", strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof network / sizeof *network && !missing[0]; i++)
        if (system(network[i]) != 0)
            snprintf(missing, sizeof missing, "no virtual interfaces: \"%s\" failed", network[i]);
    if (missing[0])
        return;
    rs_io *io = open_xdp(&from);
    if (strcmp(rs_io_name(io), "xdp") != 0)
        snprintf(missing, sizeof missing, "%s", said);
    rs_io_close(io);
}

static int need_network(void **state) {
    (void)state;
    said[0] = '\0';
    if (missing[0])
        print_message("skipped: %s\n", missing);
    return 0;
}

#define NEED_NETWORK \
    if (missing[0])  \
    skip()

static bool has_program(const char *interface) {
    char command[100];
    snprintf(command, sizeof command, "ip link show dev %s | grep -q xdp", interface);
    return system(command) == 0;
}

/* --------------------------------------------------------------------------------------------------- long frames */

typedef struct {
    uint8_t sent[COUNT][JUMBO], got[COUNT][JUMBO];
    unsigned came;
} object;

static uint8_t *take_jumbo(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                           uint32_t payload_length) {
    object *o = context;
    unsigned sn;
    assert_int_equal(group, GROUP);
    assert_int_equal(header_length, RS_IO_HEADER_BYTES);
    memcpy(&sn, header, sizeof sn);
    assert_in_range(sn, 0, COUNT - 1);
    assert_int_equal(payload_length, JUMBO - sn); /* every place of the chunks' borders */
    o->came++;
    return o->got[sn];
}

static void send_jumbos(rs_io *out, const object *o, unsigned first, unsigned count) {
    uint8_t headers[RS_IO_BATCH][RS_IO_HEADER_BYTES] = {0};
    rs_io_packet packets[RS_IO_BATCH];
    for (unsigned i = 0; i < count; i++) {
        unsigned sn = first + i;
        memcpy(headers[i], &sn, sizeof sn);
        packets[i] = (rs_io_packet){.address = GROUP_ADDRESS,
                                    .port = PORT,
                                    .header = headers[i],
                                    .header_length = RS_IO_HEADER_BYTES,
                                    .payload = o->sent[sn],
                                    .payload_length = JUMBO - sn};
    }
    io_send_all(out, packets, count);
}

static void xdp__frames_of_several_chunks_arrive_whole(void **state) {
    (void)state;
    NEED_NETWORK;
    char error[RS_IO_ERROR_MAX];
    static object o;
    for (size_t i = 0; i < sizeof o.sent; i++)
        ((uint8_t *)o.sent)[i] = (uint8_t)io_draw(256);
    rs_io *out = open_xdp(&from), *in = open_xdp(&to);
    assert_true(rs_io_join(in, GROUP, GROUP_ADDRESS, PORT, error));
    const rs_io_sink sink = {.deliver = take_jumbo, .context = &o};
    for (unsigned first = 0; first < COUNT; first += 50) {
        send_jumbos(out, &o, first, 50);
        struct pollfd wait = {.fd = rs_io_receive_fd(in), .events = POLLIN};
        while (o.came < first + 50) {
            assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
            rs_io_receive(in, 7, &sink);
        }
    }
    for (unsigned sn = 0; sn < COUNT; sn++)
        assert_memory_equal(o.got[sn], o.sent[sn], JUMBO - sn);
    assert_int_equal(rs_io_drops(in, GROUP), 0);
    rs_io_close(out);
    rs_io_close(in);
}

/* ---------------------------------------------------------------------------------------- the others' traffic */

static int ordinary_receiver(uint32_t group, uint16_t port) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(group)};
    struct ip_mreqn membership = {.imr_ifindex = (int)if_nametoindex("vb"), .imr_multiaddr.s_addr = htonl(group)};
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership), 0);
    return fd;
}

static uint8_t *count_only(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                           uint32_t payload_length) {
    (void)group, (void)header, (void)header_length, (void)payload_length;
    ++*(unsigned *)context;
    return NULL;
}

static bool comes_to_kernel(rs_io *out, int receiver, uint32_t address, uint16_t port) {
    const rs_io_packet packet = {
        .address = address, .port = port, .header = (const uint8_t *)"hello", .header_length = 5};
    struct pollfd wait = {.fd = receiver, .events = POLLIN};
    char text[10];
    io_send_all(out, &packet, 1);
    return poll(&wait, 1, 300) == 1 && recv(receiver, text, sizeof text, 0) == 5;
}

static void xdp__what_is_not_ours_goes_to_the_kernel(void **state) {
    (void)state;
    NEED_NETWORK;
    char error[RS_IO_ERROR_MAX];
    rs_io *out = open_xdp(&from), *in = open_xdp(&to);
    int same_port = ordinary_receiver(GROUP_ADDRESS + 1, PORT), same_group = ordinary_receiver(GROUP_ADDRESS, PORT + 1);
    int ours = ordinary_receiver(GROUP_ADDRESS, PORT);
    assert_true(comes_to_kernel(out, ours, GROUP_ADDRESS, PORT)); /* nobody joined yet */
    assert_true(rs_io_join(in, GROUP, GROUP_ADDRESS, PORT, error));
    assert_true(comes_to_kernel(out, same_port, GROUP_ADDRESS + 1, PORT));
    assert_true(comes_to_kernel(out, same_group, GROUP_ADDRESS, PORT + 1));
    assert_false(comes_to_kernel(out, ours, GROUP_ADDRESS, PORT));
    unsigned came = 0;
    const rs_io_sink sink = {.deliver = count_only, .context = &came};
    assert_int_equal(rs_io_receive(in, 64, &sink), 1);
    assert_int_equal(came, 1);
    rs_io_leave(in, GROUP);
    assert_true(comes_to_kernel(out, ours, GROUP_ADDRESS, PORT));
    close(same_port), close(same_group), close(ours);
    rs_io_close(out);
    rs_io_close(in);
}

static void xdp__datagrams_to_a_host_go_through_the_kernel(void **state) {
    (void)state;
    NEED_NETWORK;
    char error[RS_IO_ERROR_MAX];
    rs_io *out = open_xdp(&from);
    rs_io *in = rs_io_open("udp", &to, error);
    assert_non_null(in);
    assert_true(rs_io_join(in, GROUP, to.address, PORT, error));
    const rs_io_packet packet = {
        .address = to.address, .port = PORT, .header = (const uint8_t *)"hello", .header_length = 5};
    io_send_all(out, &packet, 1);
    unsigned came = 0;
    const rs_io_sink sink = {.deliver = count_only, .context = &came};
    struct pollfd wait = {.fd = rs_io_receive_fd(in), .events = POLLIN};
    assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
    assert_int_equal(rs_io_receive(in, 64, &sink), 1);
    rs_io_close(out);
    rs_io_close(in);
}

/* --------------------------------------------------------------------------------------------- coming and going */

static void xdp__program_goes_with_its_process_however_it_ends(void **state) {
    (void)state;
    NEED_NETWORK;
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        char error[RS_IO_ERROR_MAX];
        rs_io *io = rs_io_open("xdp", &from, error);
        byte = io && strcmp(rs_io_name(io), "xdp") == 0;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_true(has_program("va"));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ready[0]), close(ready[1]);
    rs_io *io = open_xdp(&from); /* waits for the kernel to have cleaned up */
    assert_string_equal(rs_io_name(io), "xdp");
    rs_io_close(io);
    assert_false(has_program("va"));
}

static void expect_refusal(const char *what, const rs_io_options *options, const char *text) {
    rs_io *io = open_xdp(options);
    if (strcmp(rs_io_name(io), "udp") != 0)
        fail_msg("%s: xdp opened", what);
    if (!strstr(said, text) || !strstr(said, "udp is used instead"))
        fail_msg("%s: said \"%s\"", what, said);
    rs_io_close(io);
}

static void xdp__what_does_not_work_is_said_and_udp_used(void **state) {
    (void)state;
    NEED_NETWORK;
    const rs_io_options lo = {.interface = "lo", .address = 0x7f000001u, .log = listen_to};
    const rs_io_options queues = {.interface = "vc", .address = 0x0a4d0201u, .log = listen_to};
    rs_io_options loopback = from;
    loopback.loopback = true;
    expect_refusal("lo has no native XDP", &lo, "lo");
    expect_refusal("two queues", &queues, "ethtool -L vc");
    expect_refusal("own datagrams", &loopback, "own datagrams");
    rs_io *first = open_xdp(&from);
    assert_string_equal(rs_io_name(first), "xdp");
    expect_refusal("a second agent", &from, "another program");
    rs_io_close(first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(xdp__frames_of_several_chunks_arrive_whole, need_network),
        cmocka_unit_test_setup(xdp__what_is_not_ours_goes_to_the_kernel, need_network),
        cmocka_unit_test_setup(xdp__datagrams_to_a_host_go_through_the_kernel, need_network),
        cmocka_unit_test_setup(xdp__program_goes_with_its_process_however_it_ends, need_network),
        cmocka_unit_test_setup(xdp__what_does_not_work_is_said_and_udp_used, need_network),
    };
    make_network();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
