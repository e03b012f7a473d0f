/* Sending and receiving for tests of packet I/O. */
#include "io_fixture.h"

#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

unsigned io_draw(unsigned below) {
    static uint64_t state;
    if (state == 0) {
        const char *given = getenv("ROSTRUM_TEST_SEED");
        state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
        print_message("ROSTRUM_TEST_SEED=%llu\n", (unsigned long long)state);
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((state >> 33) % below);
}

uint32_t io_fragment_length(unsigned sn) {
    return sn == FRAGMENTS - 1 ? LAST : FRAGMENT;
}

static bool predict(void *context, rs_io_group group, uint32_t ahead, uint8_t **place, uint32_t *length) {
    io_fixture *f = context;
    unsigned sn = (f->next + ahead) % FRAGMENTS;
    if (f->blind || group != GROUP || f->present[sn])
        return false;
    *place = f->got + (size_t)sn * FRAGMENT;
    *length = io_fragment_length(sn);
    return true;
}

static uint8_t *deliver(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length) {
    io_fixture *f = context;
    assert_int_equal(group, GROUP);
    f->delivered++;
    if (header_length < RS_IO_HEADER_BYTES) {
        f->header_bytes_short++;
        return NULL;
    }
    uint64_t sn;
    memcpy(&sn, header + 16, sizeof sn);
    if (sn >= FRAGMENTS || payload_length != io_fragment_length((unsigned)sn) || f->present[sn])
        return NULL;
    f->present[sn] = true;
    f->next = (unsigned)(sn + 1) % FRAGMENTS;
    return f->got + sn * FRAGMENT;
}

rs_io_sink io_fixture_sink(io_fixture *f) {
    return (rs_io_sink){.predict = predict, .deliver = deliver, .context = f};
}

void io_fixture_log(void *context, rs_io_log_level level, const char *text) {
    (void)context, (void)level;
    print_message("%s\n", text);
}

bool io_backend_is_here(const rs_io_ops *ops) {
    return strcmp(ops->name, "netmap") != 0 || access("/dev/netmap", F_OK) == 0;
}

io_fixture *io_fixture_new(void) {
    io_fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    /* Tests may run at the same time: each process has groups of its own. */
    f->group = 0xefc80000u | (uint32_t)(getpid() & 0xffff);
    f->port = (uint16_t)(20000 + getpid() % 20000);
    for (size_t i = 0; i < OBJECT; i++)
        f->sent[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + (i >> 16));
    memset(f->got, 0xee, sizeof f->got);
    return f;
}

void io_fixture_open(io_fixture *f, const char *out, const rs_io_options *out_options, const char *in,
                     const rs_io_options *in_options) {
    char error[RS_IO_ERROR_MAX];
    f->out = rs_io_open(out, out_options, error);
    if (!f->out)
        fail_msg("%s", error);
    f->in = rs_io_open(in, in_options, error);
    if (!f->in)
        fail_msg("%s", error);
    if (!rs_io_join(f->in, GROUP, f->group, f->port, error))
        fail_msg("%s", error);
}

static char missing[200] = "io_veth_make was not called"; /* why there is no network to test on */

const rs_io_options io_veth_from = {.interface = "va", .address = 0x0a4d0101u, .log = io_fixture_log};
const rs_io_options io_veth_to = {.interface = "vb", .address = 0x0a4d0102u, .log = io_fixture_log};

/* Both ends are in one namespace: a packet from an own address must count as a foreign one's. */
static const char *const veth[] = {
    "ip link set lo up",
    "ip link add va mtu 9000 type veth peer name vb mtu 9000",
    "ip address add 10.77.1.1/24 dev va",
    "ip address add 10.77.1.2/24 dev vb",
    "echo 1 > /proc/sys/net/ipv4/conf/vb/accept_local",
    "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter",
    "echo 0 > /proc/sys/net/ipv4/conf/vb/rp_filter",
    "ip link set va up",
    "ip link set vb up",
};

/* An interface that was just set up drops what is sent until the kernel has looked at its carrier. */
static bool runs(const char *interface) {
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool up = false;
    strncpy(request.ifr_name, interface, sizeof request.ifr_name - 1);
    for (int waited = 0; fd >= 0 && !up && waited < WAIT_MS; waited += 10) {
        up = ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING);
        if (!up)
            poll(NULL, 0, 10);
    }
    close(fd);
    return up;
}

void io_veth_make(void) {
    missing[0] = '\0';
    if (unshare(CLONE_NEWNET) != 0) {
        snprintf(missing, sizeof missing, "no private network namespace: %s (root is needed)", strerror(errno));
        return;
    }
    for (size_t i = 0; i < sizeof veth / sizeof *veth && !missing[0]; i++)
        if (system(veth[i]) != 0)
            snprintf(missing, sizeof missing, "no virtual interfaces: \"%s\" failed", veth[i]);
    if (!missing[0] && !(runs("va") && runs("vb")))
        snprintf(missing, sizeof missing, "the virtual interfaces are not up after %d ms", WAIT_MS);
}

void io_fixture_open_or_skip(io_fixture *f, const char *out, const rs_io_options *out_options, const char *in,
                             const rs_io_options *in_options) {
    if (missing[0]) {
        print_message("skipped: %s\n", missing);
        skip();
    }
    io_fixture_open(f, out, out_options, in, in_options);
    if (strcmp(rs_io_name(f->out), out) != 0 || strcmp(rs_io_name(f->in), in) != 0) {
        print_message("skipped: %s and %s do not both work here\n", out, in);
        skip();
    }
}

void io_fixture_free(io_fixture *f) {
    rs_io_close(f->out);
    rs_io_close(f->in);
    free(f);
}

rs_io_packet io_fragment_packet(const io_fixture *f, unsigned sn, uint8_t *header) {
    uint64_t number = sn;
    memset(header, 0xab, RS_IO_HEADER_BYTES);
    memcpy(header + 16, &number, sizeof number);
    return (rs_io_packet){.address = f->group,
                          .port = f->port,
                          .header = header,
                          .header_length = RS_IO_HEADER_BYTES,
                          .payload = f->sent + (size_t)sn * FRAGMENT,
                          .payload_length = io_fragment_length(sn)};
}

void io_send_all(rs_io *io, const rs_io_packet *packets, unsigned count) {
    for (unsigned done = 0; done < count;) {
        int taken = rs_io_send(io, packets + done, count - done);
        assert_true(taken >= 0);
        done += (unsigned)taken;
        struct pollfd wait = {.fd = rs_io_send_fd(io), .events = POLLOUT};
        if (taken == 0)
            assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
    }
}

void io_send_fragments(io_fixture *f, const unsigned *sns, unsigned count) {
    uint8_t headers[RS_IO_BATCH][RS_IO_HEADER_BYTES];
    rs_io_packet packets[RS_IO_BATCH];
    assert_true(count <= RS_IO_BATCH);
    for (unsigned i = 0; i < count; i++)
        packets[i] = io_fragment_packet(f, sns[i], headers[i]);
    io_send_all(f->out, packets, count);
}

void io_receive(io_fixture *f, unsigned count, unsigned limit) {
    const rs_io_sink sink = io_fixture_sink(f);
    for (unsigned got = 0; got < count;) {
        struct pollfd wait = {.fd = rs_io_receive_fd(f->in), .events = POLLIN};
        if (poll(&wait, 1, WAIT_MS) != 1)
            fail_msg("only %u of %u datagrams came", got, count);
        int now = rs_io_receive(f->in, limit, &sink);
        assert_in_range(now, 0, limit);
        got += (unsigned)now;
    }
}

void io_check_image(const io_fixture *f) {
    for (unsigned sn = 0; sn < FRAGMENTS; sn++)
        if (f->present[sn] &&
            memcmp(f->got + (size_t)sn * FRAGMENT, f->sent + (size_t)sn * FRAGMENT, io_fragment_length(sn)) != 0)
            fail_msg("fragment %u is not what was sent", sn);
    for (size_t i = OBJECT; i < sizeof f->got; i++)
        assert_int_equal(f->got[i], 0xee);
}

void io_random_traffic(io_fixture *f) {
    unsigned at = io_draw(FRAGMENTS);
    for (int round = 0; round < 200; round++) {
        unsigned sns[RS_IO_BATCH], count = 1 + io_draw(RS_IO_BATCH);
        for (unsigned i = 0; i < count; i++) {
            unsigned what = io_draw(10);
            at += what == 0 ? 2 + io_draw(5) : 1; /* loss */
            sns[i] = what == 1 ? io_draw(FRAGMENTS)
                               : (what == 2 && i > 0 ? sns[i - 1] : at % FRAGMENTS); /* strays, doubles */
        }
        for (unsigned i = 1; i < count; i++)
            if (io_draw(20) == 0) { /* reordering */
                unsigned j = io_draw(i), swap = sns[i];
                sns[i] = sns[j], sns[j] = swap;
            }
        io_send_fragments(f, sns, count);
        io_receive(f, count, 256);
        io_check_image(f);
        if (round % 10 == 9) /* most are there by now: begin again */
            memset(f->present, 0, sizeof f->present);
    }
}
