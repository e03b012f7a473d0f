/* Data channel I/O over real sockets on the loopback interface (agent/io/udp.c, lossy.c, io.c). */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io_fixture.h"

#define LOCALHOST 0x7f000001u

static const rs_io_options loopback = {.interface = "lo", .address = LOCALHOST, .log = io_fixture_log};

static int set_up(void **state) {
    io_fixture *f = io_fixture_new();
    io_fixture_open(f, "udp", &loopback, "udp", &loopback);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    io_fixture_free(*state);
    return 0;
}

static void udp__in_order_needs_no_copy(void **state) {
    io_fixture *f = *state;
    unsigned sns[FRAGMENTS];
    for (unsigned sn = 0; sn < FRAGMENTS; sn++)
        sns[sn] = sn;
    for (unsigned sn = 0; sn < FRAGMENTS; sn += 50) {
        io_send_fragments(f, sns + sn, 50);
        io_receive(f, 50, 256);
    }
    io_check_image(f);
    assert_memory_equal(f->got, f->sent, OBJECT);
    rs_io_stats stats;
    rs_io_stats_get(f->in, &stats);
    assert_int_equal(stats.predicted, FRAGMENTS);
    assert_int_equal(stats.moved, 0);
    assert_int_equal(stats.packets_received, FRAGMENTS);
    rs_io_stats_get(f->out, &stats);
    assert_int_equal(stats.packets_sent, FRAGMENTS);
    assert_int_equal(stats.bytes_sent, OBJECT + FRAGMENTS * RS_IO_HEADER_BYTES);
}

static void udp__loss_reordering_and_doubles_leave_a_right_image(void **state) {
    io_random_traffic(*state);
}

static void udp__without_predictions_the_image_is_the_same(void **state) {
    io_fixture *f = *state;
    f->blind = true;
    io_random_traffic(f);
    rs_io_stats stats;
    rs_io_stats_get(f->in, &stats);
    assert_int_equal(stats.predicted, 0);
}

static void udp__foreign_datagrams_harm_nothing(void **state) {
    io_fixture *f = *state;
    unsigned sns[] = {0, 1, 2, 3};
    uint8_t noise[4096];
    memset(noise, 0x5a, sizeof noise);
    const rs_io_packet packets[] = {
        {.address = f->group, .port = f->port, .header = noise, .header_length = 5},
        {.address = f->group, .port = f->port, .header = noise, .header_length = 0},
        {.address = f->group,
         .port = f->port,
         .header = noise,
         .header_length = 200,
         .payload = noise,
         .payload_length = 4000},
        {.address = f->group,
         .port = f->port,
         .header = noise,
         .header_length = RS_IO_HEADER_BYTES,
         .payload = noise,
         .payload_length = 7},
    };
    io_send_fragments(f, sns, 4);
    io_send_all(f->out, packets, 4);
    io_receive(f, 8, 256);
    io_check_image(f);
    assert_int_equal(f->delivered, 8);
    assert_int_equal(f->header_bytes_short, 2);
    for (unsigned i = 4; i < FRAGMENTS; i++)
        assert_false(f->present[i]);
}

typedef struct {
    const rs_io *io;
    char came[9]; /* M of a marked one, else a dot */
    unsigned count;
} marks;

static uint8_t *note_mark(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                          uint32_t payload_length) {
    marks *m = context;
    (void)group, (void)header, (void)header_length, (void)payload_length;
    assert_in_range(m->count, 0, sizeof m->came - 2);
    m->came[m->count++] = rs_io_marked(m->io) ? 'M' : '.';
    return NULL;
}

/* ECN: what an engine lets be marked leaves as ECT(0), the rest as it was; what came marked is told as such. */
static void sockets__let_be_marked_and_tell_marks(void **state) {
    static const char *const backends[] = {"udp", "udp-gso"};
    (void)state;
    for (unsigned b = 0; b < 2; b++) {
        io_fixture *f = io_fixture_new();
        io_fixture_open(f, backends[b], &loopback, backends[b], &loopback);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOCALHOST)};
        socklen_t length = sizeof at;
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1, none = 0;
        assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
        assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof one), 0);
        uint8_t header[RS_IO_HEADER_BYTES] = {0};
        rs_io_packet packets[6];
        for (unsigned i = 0; i < 6; i++)
            packets[i] = (rs_io_packet){.address = LOCALHOST,
                                        .port = ntohs(at.sin_port),
                                        .header = header,
                                        .header_length = sizeof header,
                                        .markable = i / 2 == 1};
        io_send_all(f->out, packets, 6);
        for (unsigned i = 0; i < 6; i++) {
            uint8_t bytes[64];
            _Alignas(struct cmsghdr) uint8_t control[64];
            struct iovec room = {bytes, sizeof bytes};
            struct msghdr h = {
                .msg_iov = &room, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
            struct pollfd ready = {.fd = fd, .events = POLLIN};
            assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
            assert_int_equal(recvmsg(fd, &h, 0), sizeof header);
            const struct cmsghdr *c = CMSG_FIRSTHDR(&h);
            assert_true(c && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS);
            assert_int_equal(*CMSG_DATA(c), i / 2 == 1 ? 2 : 0);
        }
        const struct sockaddr_in group = {
            .sin_family = AF_INET, .sin_port = htons(f->port), .sin_addr.s_addr = htonl(f->group)};
        struct in_addr from = {htonl(LOCALHOST)};
        assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from), 0);
        assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_LOOP, &none, sizeof none), 0);
        for (int tos = 0; tos < 8; tos++) { /* the bits above are another field's */
            assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof tos), 0);
            assert_int_equal(sendto(fd, header, sizeof header, 0, (const struct sockaddr *)&group, sizeof group),
                             sizeof header);
        }
        marks m = {.io = f->in};
        const rs_io_sink sink = {.deliver = note_mark, .context = &m};
        while (m.count < 8) {
            struct pollfd ready = {.fd = rs_io_receive_fd(f->in), .events = POLLIN};
            assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
            rs_io_receive(f->in, 8, &sink);
        }
        assert_string_equal(m.came, "...M...M");
        close(fd);
        io_fixture_free(f);
    }
}

static void udp__other_groups_stay_out(void **state) {
    io_fixture *f = *state;
    char error[RS_IO_ERROR_MAX];
    uint8_t header[RS_IO_HEADER_BYTES] = {0};
    const rs_io_packet other = {
        .address = f->group ^ 0x10000u, .port = f->port, .header = header, .header_length = RS_IO_HEADER_BYTES};
    io_send_all(f->out, &other, 1);
    unsigned sn = 9;
    io_send_fragments(f, &sn, 1);
    io_receive(f, 1, 256);
    assert_int_equal(f->delivered, 1);
    assert_false(rs_io_join(f->in, 7, f->group ^ 0x10000u, f->port, error));
    assert_non_null(strstr(error, "in use"));
    rs_io_leave(f->in, 7);
    io_send_fragments(f, &sn, 1);
    const rs_io_sink sink = io_fixture_sink(f);
    assert_int_equal(rs_io_receive(f->in, 64, &sink), 0);
    assert_true(rs_io_join(f->in, 7, f->group, f->port, error));
}

static void udp__a_full_socket_counts_its_drops(void **state) {
    io_fixture *f = *state;
    char error[RS_IO_ERROR_MAX];
    rs_io_options small = loopback;
    small.receive_buffer = 20000;
    rs_io_close(f->in);
    f->in = rs_io_open("udp", &small, error);
    assert_non_null(f->in);
    assert_true(rs_io_join(f->in, 7, f->group, f->port, error));
    unsigned sns[64], sn = 399;
    for (unsigned i = 0; i < 64; i++)
        sns[i] = i;
    io_send_fragments(f, sns, 64);
    const rs_io_sink sink = io_fixture_sink(f);
    int kept = 0;
    struct pollfd wait = {.fd = rs_io_receive_fd(f->in), .events = POLLIN};
    while (poll(&wait, 1, 0) == 1)
        kept += rs_io_receive(f->in, 256, &sink);
    io_send_fragments(f, &sn, 1); /* the kernel tells the count with the next datagram */
    io_receive(f, 1, 256);
    assert_true(kept < 64);
    assert_int_equal(rs_io_drops(f->in, 7), 64 - kept);
    io_check_image(f);
}

static void udp__unreadable_payload_is_said(void **state) {
    io_fixture *f = *state;
    long page = sysconf(_SC_PAGESIZE);
    int fd = memfd_create("object", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 2 * page), 0);
    uint8_t *map = mmap(NULL, (size_t)(2 * page), PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), 0);
    uint8_t header[RS_IO_HEADER_BYTES] = {0};
    const rs_io_packet packet = {.address = f->group,
                                 .port = f->port,
                                 .header = header,
                                 .header_length = RS_IO_HEADER_BYTES,
                                 .payload = map,
                                 .payload_length = 100};
    assert_int_equal(rs_io_send(f->out, &packet, 1), RS_IO_UNREADABLE);
    munmap(map, (size_t)(2 * page));
    close(fd);
}

static void io__wrong_options_are_explained(void **state) {
    (void)state;
    char error[RS_IO_ERROR_MAX];
    rs_io_options options = loopback;
    assert_null(rs_io_open("carrier-pigeon", &options, error));
    assert_non_null(strstr(error, "carrier-pigeon"));
    assert_non_null(strstr(error, "udp"));
    options.interface = "nosuch0";
    assert_null(rs_io_open("udp", &options, error));
    assert_non_null(strstr(error, "nosuch0"));
    options = loopback;
    options.address = 0x08080808;
    assert_null(rs_io_open("udp", &options, error));
    assert_non_null(strstr(error, "8.8.8.8"));
    options = loopback;
    options.mtu = 100000;
    assert_null(rs_io_open("udp", &options, error));
    assert_non_null(strstr(error, "MTU"));
}

static void remember(void *context, rs_io_log_level level, const char *text) {
    (void)level;
    snprintf(context, RS_IO_ERROR_MAX, "%s", text);
}

static void io__auto_takes_the_best_that_works_and_says_why(void **state) {
    (void)state;
    char error[RS_IO_ERROR_MAX], said[RS_IO_ERROR_MAX] = "", expected[80];
    rs_io_options options = loopback;
    options.log = remember;
    options.log_context = said;
    options.loopback = true; /* packet cannot */
    rs_io *best = rs_io_open("udp-gso", &options, error), *chosen = rs_io_open("auto", &options, error);
    assert_non_null(chosen);
    assert_string_equal(rs_io_name(chosen), rs_io_name(best)); /* udp-gso, or udp where that does not work */
    snprintf(expected, sizeof expected, "auto chose %s: ", rs_io_name(chosen));
    assert_non_null(strstr(said, expected));
    rs_io_close(best);
    rs_io_close(chosen);
    options.interface = "nosuch0";
    assert_null(rs_io_open("auto", &options, error));
    assert_non_null(strstr(error, "nosuch0"));
}

/* ---------------------------------------------------------------------------------------------------------- lossy */

static void lossy__wrong_specs_are_explained(void **state) {
    (void)state;
    char error[RS_IO_ERROR_MAX];
    const char *const wrong[] = {"",
                                 "uniform",
                                 "uniform:",
                                 "uniform:2",
                                 "uniform:-1",
                                 "uniform:x",
                                 "burst:0.1",
                                 "burst:1:3",
                                 "gilbert:0.9:1",
                                 "gilbert:nan:5",
                                 "first:0",
                                 "first:1e99",
                                 "rain:0.1",
                                 "pattern",
                                 "pattern:0.1:65",
                                 "pattern:0.1:0",
                                 "pattern:1.1:seed=1",
                                 "uniform:0.1:3",
                                 "uniform:0.1:seed=",
                                 "uniform:0.1:seed=1x",
                                 "uniform:0.1:seed=-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (rs_io_lossy_check(wrong[i], error))
            fail_msg("\"%s\" was taken", wrong[i]);
    assert_non_null(strstr(error, "gilbert:0.01:5"));
    const char *const right[] = {"uniform:0",      "uniform:1",         "uniform:0.01",        "burst:0.01:8",
                                 "gilbert:0.01:5", "first:3",           "burst:0.2:4:seed=77", "pattern:0.01",
                                 "pattern:0.01:5", "pattern:0.1:seed=7"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        if (!rs_io_lossy_check(right[i], error))
            fail_msg("%s", error);
}

typedef struct {
    rs_io base;
    unsigned count;
} fake_io;

/* An inner back end that delivers `limit` datagrams at once. */
static int fake_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    fake_io *io = (fake_io *)base;
    for (unsigned i = 0; i < limit; i++, io->count++)
        sink->deliver(sink->context, 1, (const uint8_t *)&io->count, sizeof io->count, 0);
    return (int)limit;
}

static bool fake_join(rs_io *base, rs_io_group group, uint32_t address, uint16_t port, char *error) {
    (void)base, (void)group, (void)address, (void)port, (void)error;
    return true;
}

static void fake_leave(rs_io *base, rs_io_group group) {
    (void)base, (void)group;
}

static void fake_close(rs_io *base) {
    free(base);
}

static const rs_io_ops fake_ops = {
    .name = "fake", .receive = fake_receive, .join = fake_join, .leave = fake_leave, .close = fake_close};

#define SAMPLES 200000u

static uint8_t *mark(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                     uint32_t payload_length) {
    (void)group, (void)header_length, (void)payload_length;
    unsigned number;
    memcpy(&number, header, sizeof number);
    ((bool *)context)[number] = true;
    return NULL;
}

/* Which of SAMPLES datagrams come through. The caller frees. */
static bool *through(const char *spec, uint64_t seed) {
    char error[RS_IO_ERROR_MAX];
    fake_io *inner = calloc(1, sizeof *inner);
    inner->base.ops = &fake_ops;
    rs_io *io = rs_io_lossy(&inner->base, spec, seed, error);
    if (!io)
        fail_msg("%s", error);
    bool *came = calloc(SAMPLES, sizeof *came);
    const rs_io_sink sink = {.deliver = mark, .context = came};
    assert_true(rs_io_join(io, 1, 0xefc00001u, 7070, error));
    assert_int_equal(rs_io_receive(io, SAMPLES, &sink), SAMPLES);
    rs_io_leave(io, 1);
    rs_io_close(io);
    return came;
}

static void count_runs(const bool *came, unsigned *lost, unsigned *runs, unsigned *longest) {
    unsigned run = 0;
    *lost = *runs = *longest = 0;
    for (unsigned i = 0; i < SAMPLES; i++) {
        run = came[i] ? 0 : run + 1;
        *lost += !came[i];
        *runs += run == 1;
        *longest = run > *longest ? run : *longest;
    }
}

static void lossy__shares_and_runs_are_as_asked(void **state) {
    (void)state;
    const struct {
        const char *spec;
        double share, run;
    } cases[] = {{"uniform:0.1", 0.1, 1.11},
                 {"burst:0.02:8", 0.02, 8},
                 {"gilbert:0.05:5", 0.05, 5},
                 {"uniform:0", 0, 0},
                 {"uniform:1", 1, SAMPLES}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned lost, runs, longest;
        bool *came = through(cases[i].spec, 42);
        count_runs(came, &lost, &runs, &longest);
        double share = (double)lost / SAMPLES, run = runs ? (double)lost / runs : 0;
        if (share < 0.85 * cases[i].share || share > 1.15 * cases[i].share || run < 0.85 * cases[i].run ||
            run > 1.2 * cases[i].run)
            fail_msg("%s lost %.4f in runs of %.2f", cases[i].spec, share, run);
        free(came);
    }
}

static void lossy__same_seed_same_losses(void **state) {
    (void)state;
    bool *a = through("gilbert:0.1:4", 1), *b = through("gilbert:0.1:4", 1), *c = through("gilbert:0.1:4", 2),
         *d = through("gilbert:0.1:4:seed=9", 1);
    assert_memory_equal(a, b, SAMPLES);
    assert_memory_not_equal(a, c, SAMPLES);
    assert_memory_not_equal(a, d, SAMPLES);
    free(a), free(b), free(c), free(d);
}

static void lossy__first_loses_the_first(void **state) {
    (void)state;
    bool *came = through("first:5", 3);
    for (unsigned i = 0; i < SAMPLES; i++)
        assert_int_equal(came[i], i >= 5);
    free(came);
}

static void lossy__over_real_sockets(void **state) {
    io_fixture *f = *state;
    char error[RS_IO_ERROR_MAX];
    f->in = rs_io_lossy(f->in, "uniform:1", 1, error);
    assert_non_null(f->in);
    assert_true(rs_io_join(f->in, 8, f->group ^ 1u, f->port, error));
    io_fixture all = *f;
    all.group ^= 1u;
    unsigned sns[] = {1, 2, 3};
    io_send_fragments(&all, sns, 3);
    io_receive(f, 3, 256);
    assert_int_equal(f->delivered, 0);
    rs_io_stats stats;
    rs_io_stats_get(f->in, &stats);
    assert_int_equal(stats.intercepted, 3);
    io_send_fragments(f, sns, 3); /* group 7 was joined below the interceptor: untouched */
    io_receive(f, 3, 256);
    assert_int_equal(f->delivered, 3);
    io_check_image(f);
}

#define with_sockets(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#define WHOLE 100u
#define WHOLES 3000u

/* Datagrams in one piece, as a back end on sockets has them for a sink that predicts nothing. */
static int whole_receive(rs_io *base, unsigned limit, const rs_io_sink *sink) {
    fake_io *io = (fake_io *)base;
    for (unsigned i = 0; i < limit; i++, io->count++) {
        uint8_t *bytes = malloc(WHOLE); /* exactly, so that the sanitizer sees a read beyond */
        assert_non_null(bytes);
        memset(bytes, (int)(io->count * 31 & 0xff), WHOLE);
        memcpy(bytes, &io->count, sizeof io->count);
        sink->deliver(sink->context, 1, bytes, RS_IO_HEADER_BYTES, WHOLE - RS_IO_HEADER_BYTES);
        free(bytes);
    }
    return (int)limit;
}

static uint32_t whole_source(const rs_io *base) {
    return ((const fake_io *)base)->count % 7;
}

static const rs_io_ops whole_ops = {.name = "whole",
                                    .receive = whole_receive,
                                    .join = fake_join,
                                    .leave = fake_leave,
                                    .close = fake_close,
                                    .source = whole_source};

typedef struct {
    rs_io *io;
    unsigned times[WHOLES], changed, doubled, late, last;
} whole_sink;

static uint8_t *read_whole(void *context, rs_io_group group, const uint8_t *bytes, size_t header_length,
                           uint32_t length) {
    whole_sink *sink = context;
    unsigned number, bits = 0;
    (void)group;
    assert_int_equal(header_length + length, WHOLE);
    memcpy(&number, bytes, sizeof number);
    for (size_t i = sizeof number; i < WHOLE; i++)
        bits += (unsigned)__builtin_popcount(bytes[i] ^ (number * 31 & 0xff));
    if (number >= WHOLES || bits > 1) { /* the changed bit is in its number */
        sink->changed++;
        return NULL;
    }
    sink->changed += bits;
    sink->doubled += sink->times[number]++ > 0 && bits == 0;
    if (bits == 0 && number > sink->last)
        sink->last = number;
    else if (number < sink->last) {
        sink->late++;
        assert_int_equal(rs_io_source(sink->io), number % 7); /* who sent it, not who sent the last */
    }
    return NULL;
}

/* Group messages' sink reads each datagram as it is given. */
static void lossy__spoils_whole_datagrams(void **state) {
    (void)state;
    char error[RS_IO_ERROR_MAX];
    fake_io *inner = calloc(1, sizeof *inner);
    inner->base.ops = &whole_ops;
    whole_sink *sink = calloc(1, sizeof *sink);
    sink->io = rs_io_lossy(&inner->base, "corrupt:0.1", 5, error);
    assert_non_null(sink->io);
    assert_true(rs_io_join(sink->io, 1, 0xefc00001u, 7070, error));
    const rs_io_sink upper = {.deliver = read_whole, .context = sink};
    for (unsigned i = 0; i < WHOLES; i += 10)
        assert_int_equal(rs_io_receive(sink->io, 10, &upper), 10);
    print_message("changed %u, doubled %u, late %u\n", sink->changed, sink->doubled, sink->late);
    assert_in_range(sink->changed, 50, 150);
    assert_in_range(sink->doubled, 50, 150);
    assert_true(sink->late > 30);
    rs_io_close(sink->io);
    free(sink);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        with_sockets(udp__in_order_needs_no_copy),
        with_sockets(udp__loss_reordering_and_doubles_leave_a_right_image),
        with_sockets(udp__without_predictions_the_image_is_the_same),
        with_sockets(udp__foreign_datagrams_harm_nothing),
        with_sockets(udp__other_groups_stay_out),
        with_sockets(udp__a_full_socket_counts_its_drops),
        with_sockets(udp__unreadable_payload_is_said),
        cmocka_unit_test(sockets__let_be_marked_and_tell_marks),
        cmocka_unit_test(io__wrong_options_are_explained),
        cmocka_unit_test(io__auto_takes_the_best_that_works_and_says_why),
        cmocka_unit_test(lossy__wrong_specs_are_explained),
        cmocka_unit_test(lossy__spoils_whole_datagrams),
        cmocka_unit_test(lossy__shares_and_runs_are_as_asked),
        cmocka_unit_test(lossy__same_seed_same_losses),
        cmocka_unit_test(lossy__first_loses_the_first),
        with_sockets(lossy__over_real_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
