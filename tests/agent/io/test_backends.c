/* Every packet I/O back end against the same expectations, over a pair of virtual interfaces in a private network
 * namespace: `va` sends, `vb` receives. What the kernel or missing rights do not allow is skipped, with the reason. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/packet_ring.h"
#include "io_fixture.h"

typedef struct {
    const char *out, *in;
    io_fixture *f;
} pairing;

static io_fixture *open_pair(pairing *p, int receive_buffer) {
    rs_io_options receiving = io_veth_to;
    if (strcmp(p->out, "udp-gso") == 0 && strcmp(p->in, "netmap") == 0) {
        print_message("skipped: datagrams that stay joined up to the receiver are longer than netmap's buffers\n");
        skip();
    }
    if (strcmp(p->out, "udp-gso") == 0 && strcmp(p->in, "packet") == 0 && !rs_packet_ring_tells_joined()) {
        print_message("skipped: a few joined datagrams are lost until sockets receive them (test_io_packet.c)\n");
        skip();
    }
    receiving.receive_buffer = receive_buffer;
    p->f = io_fixture_new();
    io_fixture_open_or_skip(p->f, p->out, &io_veth_from, p->in, &receiving);
    return p->f;
}

static int close_pair(void **state) {
    pairing *p = *state;
    if (p->f)
        io_fixture_free(p->f);
    p->f = NULL;
    return 0;
}

static bool places_by_kernel(const pairing *p) {
    return strncmp(p->in, "udp", 3) == 0;
}

static void send_object(io_fixture *f, unsigned batch, unsigned limit) {
    unsigned sns[RS_IO_BATCH];
    for (unsigned sn = 0; sn < FRAGMENTS; sn += batch) {
        for (unsigned i = 0; i < batch; i++)
            sns[i] = sn + i;
        io_send_fragments(f, sns, batch);
        io_receive(f, batch, limit);
    }
}

static void backend__in_order_the_common_case_needs_no_copy(void **state) {
    pairing *p = *state;
    io_fixture *f = open_pair(p, 0);
    send_object(f, 50, 256);
    assert_memory_equal(f->got, f->sent, OBJECT);
    io_check_image(f);
    rs_io_stats in, out;
    rs_io_stats_get(f->in, &in);
    rs_io_stats_get(f->out, &out);
    assert_int_equal(in.predicted + in.moved, FRAGMENTS);
    assert_int_equal(in.packets_received, FRAGMENTS);
    assert_int_equal(out.packets_sent, FRAGMENTS);
    assert_int_equal(out.bytes_sent, OBJECT + FRAGMENTS * RS_IO_HEADER_BYTES);
    assert_int_equal(in.bytes_received, out.bytes_sent);
    assert_int_equal(out.send_errors, 0);
    if (places_by_kernel(p) && strcmp(p->out, p->in) == 0)
        assert_in_range(in.moved, 0, 50); /* the first message tells how many datagrams come as one */
}

static void backend__a_small_limit_loses_nothing(void **state) {
    pairing *p = *state;
    io_fixture *f = open_pair(p, 0);
    send_object(f, 50, 3);
    assert_memory_equal(f->got, f->sent, OBJECT);
    assert_int_equal(f->delivered, FRAGMENTS);
}

/* Of a message that does not fit what is left of the limit nothing would lie in its place. */
static void backend__a_limit_within_a_message_gathers_nothing(void **state) {
    pairing *p = *state;
    if (!places_by_kernel(p))
        skip();
    io_fixture *f = open_pair(p, 0);
    send_object(f, 100, 60);
    assert_memory_equal(f->got, f->sent, OBJECT);
    rs_io_stats in;
    rs_io_stats_get(f->in, &in);
    assert_in_range(in.moved, 0, 100); /* the first messages tell how many datagrams come as one */
}

static void backend__loss_reordering_and_doubles_leave_a_right_image(void **state) {
    io_random_traffic(open_pair(*state, 0));
}

static void backend__without_predictions_the_image_is_the_same(void **state) {
    io_fixture *f = open_pair(*state, 0);
    f->blind = true;
    io_random_traffic(f);
    rs_io_stats stats;
    rs_io_stats_get(f->in, &stats);
    assert_int_equal(stats.predicted, 0);
}

/* A datagram of somebody else: any size, a number that no fragment has. */
static rs_io_packet foreign(const io_fixture *f, const uint8_t *noise) {
    unsigned header = io_draw(3) ? RS_IO_HEADER_BYTES : io_draw(RS_IO_HEADER_BYTES);
    unsigned payload = io_draw(3) ? io_draw(3000) : FRAGMENT;
    return (rs_io_packet){.address = f->group,
                          .port = f->port,
                          .header = noise,
                          .header_length = (uint16_t)header,
                          .payload = noise,
                          .payload_length = header == RS_IO_HEADER_BYTES ? payload : 0};
}

static void backend__mixed_sizes_and_strangers_harm_nothing(void **state) {
    io_fixture *f = open_pair(*state, 0);
    uint8_t noise[4096], headers[RS_IO_BATCH][RS_IO_HEADER_BYTES];
    rs_io_packet packets[RS_IO_BATCH];
    memset(noise, 0x5a, sizeof noise);
    unsigned at = 0;
    for (int round = 0; round < 300; round++) {
        unsigned count = 1 + io_draw(RS_IO_BATCH), strangers = io_draw(3) ? 0 : 1 + io_draw(9);
        for (unsigned i = 0; i < count; i++) {
            bool strange = io_draw(10) < strangers;
            packets[i] = strange ? foreign(f, noise) : io_fragment_packet(f, at++ % FRAGMENTS, headers[i]);
        }
        io_send_all(f->out, packets, count);
        io_receive(f, count, io_draw(2) ? 256 : 1 + io_draw(100));
        io_check_image(f);
        if (io_draw(8) == 0)
            memset(f->present, 0, sizeof f->present);
    }
}

static void backend__two_groups_at_once_are_told_apart(void **state) {
    pairing *p = *state;
    io_fixture *f = open_pair(p, 0);
    char error[RS_IO_ERROR_MAX];
    uint8_t headers[2][RS_IO_HEADER_BYTES];
    const rs_io_sink sink = io_fixture_sink(f);
    rs_io_packet packets[2] = {io_fragment_packet(f, 1, headers[0]), io_fragment_packet(f, 2, headers[1])};
    packets[1].address ^= 0x10000u;
    io_send_all(f->out, packets, 2); /* the second has no receiver */
    io_receive(f, 1, 256);
    assert_true(f->present[1] && !f->present[2]);
    assert_false(rs_io_join(f->in, GROUP, f->group ^ 0x10000u, f->port, error));
    assert_non_null(strstr(error, "in use"));
    assert_true(rs_io_join(f->in, 8, f->group ^ 0x20000u, f->port, error));
    rs_io_leave(f->in, GROUP);
    io_send_all(f->out, packets, 2);
    assert_int_equal(rs_io_receive(f->in, 64, &sink), 0);
    assert_true(rs_io_join(f->in, GROUP, f->group ^ 0x10000u, f->port, error));
    io_send_all(f->out, packets, 2);
    io_receive(f, 1, 256);
    assert_true(f->present[2]);
    assert_int_equal(f->delivered, 2);
}

#define CROWD 40u

typedef struct {
    uint32_t wanted[CROWD], got[CROWD]; /* datagrams */
} crowd;

static uint8_t *count_group(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                            uint32_t payload_length) {
    crowd *c = context;
    (void)payload_length;
    assert_in_range(group, 100, 100 + CROWD - 1);
    assert_true(header_length > 0 && header[0] == group - 100);
    c->got[group - 100]++;
    return NULL;
}

static void join_crowd(const io_fixture *f, uint32_t i) {
    char error[RS_IO_ERROR_MAX];
    if (!rs_io_join(f->in, 100 + i, f->group ^ (i + 1) << 8, f->port, error))
        fail_msg("%s", error);
}

/* Some have more than others, some are left and joined again, and for a while arrivals wake nobody. */
static void backend__of_many_groups_each_gets_its_own(void **state) {
    io_fixture *f = open_pair(*state, 0);
    crowd c = {.wanted = {0}};
    const rs_io_sink sink = {.deliver = count_group, .context = &c};
    uint8_t headers[CROWD][RS_IO_HEADER_BYTES] = {{0}};
    rs_io_leave(f->in, GROUP);
    for (uint32_t i = 0; i < CROWD; i++) {
        headers[i][0] = (uint8_t)i;
        join_crowd(f, i);
    }
    for (unsigned round = 0; round < 40; round++) {
        uint32_t left = io_draw(CROWD), from = io_draw(CROWD), total = 0, came = 0;
        rs_io_leave(f->in, 100 + left);
        join_crowd(f, left);
        rs_io_wake(f->in, round % 8 < 5);
        for (unsigned k = 0; k < 60; k++) {
            uint32_t i = io_draw(2) ? from : io_draw(CROWD);
            const rs_io_packet packet = {.address = f->group ^ (i + 1) << 8,
                                         .port = f->port,
                                         .header = headers[i],
                                         .header_length = RS_IO_HEADER_BYTES};
            io_send_all(f->out, &packet, 1);
            c.wanted[i]++;
            total++;
        }
        for (int waited = 0; came < total && waited < WAIT_MS; waited++) {
            came += (uint32_t)rs_io_receive(f->in, 1 + io_draw(100), &sink);
            if (came < total)
                poll(NULL, 0, waited < 200 ? 0 : 1);
        }
        assert_memory_equal(c.got, c.wanted, sizeof c.got);
    }
}

#define FULL 80u /* groups, each with more than one look's part */
#define JOINED 20u

static uint8_t *count_all(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                          uint32_t payload_length) {
    (void)group, (void)header, (void)header_length, (void)payload_length;
    ++*(unsigned *)context;
    return NULL;
}

/* None of them has what fits the rest of the limit. */
static void backend__more_groups_than_a_look_asks_for_end_it(void **state) {
    io_fixture *f = open_pair(*state, 0);
    unsigned taken = 0, came = 0;
    const rs_io_sink sink = {.deliver = count_all, .context = &taken};
    uint8_t header[RS_IO_HEADER_BYTES] = {0};
    rs_io_packet packets[JOINED];
    rs_io_leave(f->in, GROUP);
    for (uint32_t i = 0; i < FULL; i++)
        join_crowd(f, i);
    for (unsigned round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < FULL; i++) {
            for (unsigned k = 0; k < JOINED; k++)
                packets[k] = (rs_io_packet){.address = f->group ^ (i + 1) << 8,
                                            .port = f->port,
                                            .header = header,
                                            .header_length = RS_IO_HEADER_BYTES};
            io_send_all(f->out, packets, JOINED);
        }
        for (int waited = 0; came < (round + 1) * FULL * JOINED && waited < WAIT_MS; waited++) {
            unsigned now = (unsigned)rs_io_receive(f->in, JOINED + JOINED / 2, &sink);
            came += now;
            if (now == 0)
                poll(NULL, 0, 1);
        }
        assert_int_equal(came, (round + 1) * FULL * JOINED);
        assert_int_equal(taken, came);
    }
}

/* Datagrams by number, and how each was shown before it came. */
typedef struct {
    unsigned taken, shown[256]; /* bit n: it was shown as the n-th from then */
} shown_first;

static void show(void *context, uint32_t ahead, const uint8_t *bytes, size_t length) {
    shown_first *s = context;
    assert_int_equal(length, RS_IO_HEADER_BYTES + 10);
    assert_int_equal(bytes[0], s->taken + ahead);
    assert_int_equal(s->shown[bytes[0]] & ((2u << ahead) - 1), 0); /* by falling numbers */
    s->shown[bytes[0]] |= 1u << ahead;
}

static uint8_t *take_shown(void *context, rs_io_group group, const uint8_t *header, size_t header_length,
                           uint32_t payload_length) {
    shown_first *s = context;
    (void)group;
    assert_int_equal(header_length + payload_length, RS_IO_HEADER_BYTES + 10);
    assert_int_equal(header[0], s->taken);
    s->taken++;
    return NULL;
}

/* What comes next is shown, from that many datagrams before on, whether several came as one or not. */
static void backend__shows_what_comes_next(void **state) {
    const pairing *p = *state;
    io_fixture *f = open_pair(*state, 0);
    shown_first s = {.taken = 0};
    const rs_io_sink sink = {.deliver = take_shown, .soon = show, .soon_most = 3, .context = &s};
    uint8_t headers[200][RS_IO_HEADER_BYTES] = {{0}};
    rs_io_packet packets[200];
    for (unsigned i = 0; i < 200; i++) {
        headers[i][0] = (uint8_t)i;
        packets[i] = (rs_io_packet){.address = f->group,
                                    .port = f->port,
                                    .header = headers[i],
                                    .header_length = RS_IO_HEADER_BYTES,
                                    .payload = f->sent,
                                    .payload_length = 10};
    }
    io_send_all(f->out, packets, 200);
    for (int waited = 0; s.taken < 200 && waited < WAIT_MS; waited++)
        if (rs_io_receive(f->in, 1 + io_draw(100), &sink) == 0)
            poll(NULL, 0, 1);
    assert_int_equal(s.taken, 200);
    unsigned early = 0;
    for (unsigned i = 0; i < 200; i++)
        early += s.shown[i] == 0xe;
    if (strncmp(p->in, "udp", 3) == 0)
        assert_true(early > 0);
}

static void backend__drops_are_counted(void **state) {
    pairing *p = *state;
    if (strcmp(p->in, "netmap") == 0) {
        print_message(
            "skipped: the NIC's rings are as long as its driver made them, and it alone knows what it drops\n");
        skip();
    }
    io_fixture *f = open_pair(p, 20000);
    unsigned sns[50], sn = FRAGMENTS - 1;
    for (unsigned first = 0; first < FRAGMENTS; first += 50) {
        for (unsigned i = 0; i < 50; i++)
            sns[i] = first + i;
        io_send_fragments(f, sns, 50);
    }
    const rs_io_sink sink = io_fixture_sink(f);
    unsigned kept = 0;
    struct pollfd wait = {.fd = rs_io_receive_fd(f->in), .events = POLLIN};
    while (poll(&wait, 1, 50) == 1)
        kept += (unsigned)rs_io_receive(f->in, 256, &sink);
    io_send_fragments(f, &sn, 1); /* the kernel tells the count with the next datagram */
    io_receive(f, 1, 256);
    assert_true(kept < FRAGMENTS);
    assert_in_range(rs_io_drops(f->in, GROUP), 1, FRAGMENTS - kept);
    if (places_by_kernel(p)) {
        rs_io_stats stats;
        rs_io_stats_get(f->in, &stats);
        assert_int_equal(stats.dropped, rs_io_drops(f->in, GROUP));
    }
    if (strcmp(p->out, "udp-gso") != 0) /* of joined datagrams the kernel may count one */
        assert_int_equal(rs_io_drops(f->in, GROUP), FRAGMENTS - kept);
    io_check_image(f);
}

/* Nobody reads while as much comes as there is said to be room for. */
static void backend__what_there_is_room_for_waits(void **state) {
    pairing *p = *state;
    if (strcmp(p->in, "netmap") == 0) {
        print_message("skipped: what waits in an emulated ring fills the sending socket's buffer, which is smaller\n");
        skip();
    }
    io_fixture *f = open_pair(p, 4 << 20);
    uint8_t header[RS_IO_HEADER_BYTES];
    rs_io_packet packet = io_fragment_packet(f, FRAGMENTS, header); /* of no fragment */
    packet.payload = f->sent;
    packet.payload_length = 9000 - 28 - RS_IO_HEADER_BYTES;
    uint64_t room = rs_io_receive_room(f->in, GROUP), count = room / (packet.payload_length + RS_IO_HEADER_BYTES);
    assert_in_range(room, 512 << 10, 64 << 20);
    assert_int_equal(rs_io_receive_room(f->in, GROUP + 1), 0);
    for (uint64_t i = 0; i < count; i++)
        io_send_all(f->out, &packet, 1);
    io_receive(f, (unsigned)count, 256);
    assert_int_equal(f->delivered, count);
    assert_int_equal(rs_io_drops(f->in, GROUP), 0);
}

static bool is_readable(io_fixture *f, int timeout_ms) {
    struct pollfd wait = {.fd = rs_io_receive_fd(f->in), .events = POLLIN};
    return poll(&wait, 1, timeout_ms) == 1;
}

/* Who looks by the clock gets everything, and may wait for arrivals again at any time. */
static void backend__arrivals_need_not_wake(void **state) {
    pairing *p = *state;
    io_fixture *f = open_pair(p, 0);
    unsigned sns[] = {0, 1, 2, 3};
    io_send_fragments(f, sns, 1);
    io_receive(f, 1, 256);
    rs_io_wake(f->in, false);
    io_send_fragments(f, sns + 1, 1);
    const rs_io_sink sink = io_fixture_sink(f);
    for (int waited = 0; f->delivered < 2 && waited < WAIT_MS; waited++) {
        if (places_by_kernel(p))
            assert_false(is_readable(f, 1));
        else
            poll(NULL, 0, 1);
        rs_io_receive(f->in, 256, &sink);
    }
    assert_int_equal(f->delivered, 2);
    io_send_fragments(f, sns + 2, 1);
    rs_io_wake(f->in, true);
    assert_true(is_readable(f, WAIT_MS));
    io_receive(f, 1, 256);
    io_send_fragments(f, sns + 3, 1);
    assert_true(is_readable(f, WAIT_MS));
    io_receive(f, 1, 256);
    io_check_image(f);
}

static void backend__what_cannot_be_sent_is_an_error_not_a_stop(void **state) {
    pairing *p = *state;
    io_fixture *f = open_pair(p, 0);
    static uint8_t large[RS_IO_PAYLOAD_MAX + 1000];
    uint8_t header[RS_IO_HEADER_BYTES] = {0}, good[RS_IO_HEADER_BYTES];
    const rs_io_packet packets[] = {{.address = f->group,
                                     .port = f->port,
                                     .header = header,
                                     .header_length = sizeof header,
                                     .payload = large,
                                     .payload_length = sizeof large},
                                    io_fragment_packet(f, 5, good)};
    io_send_all(f->out, packets, 2);
    io_receive(f, 1, 256);
    assert_true(f->present[5]);
    rs_io_stats stats;
    rs_io_stats_get(f->out, &stats);
    assert_int_equal(stats.send_errors, 1);
    assert_int_equal(stats.packets_sent, 1);
}

/* The third of three payloads of one size lies in a file that was shortened. */
static void backend__unreadable_payload_is_said(void **state) {
    io_fixture *f = open_pair(*state, 0);
    long page = sysconf(_SC_PAGESIZE);
    int fd = memfd_create("object", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 2 * page), 0);
    uint8_t *map = mmap(NULL, (size_t)(2 * page), PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), 0);
    uint8_t headers[3][RS_IO_HEADER_BYTES];
    rs_io_packet packets[3];
    for (unsigned i = 0; i < 3; i++)
        packets[i] = io_fragment_packet(f, i, headers[i]);
    packets[2].payload = map;
    assert_int_equal(rs_io_send(f->out, packets, 3), 2);
    assert_int_equal(rs_io_send(f->out, packets + 2, 1), RS_IO_UNREADABLE);
    io_receive(f, 2, 256);
    io_check_image(f);
    munmap(map, (size_t)(2 * page));
    close(fd);
}

typedef struct {
    const char *name;
    CMUnitTestFunction run;
    bool mixed; /* also from each back end to each other one */
} test_case;

#define CASE(test, mixed) \
    { #test, test, mixed }
#define TESTS_MAX 1000

/* Each case over each back end, or over each pair of them. */
static size_t pair_up(const test_case *cases, size_t case_count, struct CMUnitTest *tests) {
    static char names[TESTS_MAX][120];
    static pairing pairings[TESTS_MAX];
    size_t count = 0;
    for (size_t out = 0; rs_io_backends[out]; out++)
        for (size_t in = 0; rs_io_backends[in]; in++)
            for (size_t i = 0; i < case_count && count < TESTS_MAX; i++) {
                if ((out != in && !cases[i].mixed) || !io_backend_is_here(rs_io_backends[out]) ||
                    !io_backend_is_here(rs_io_backends[in]))
                    continue;
                pairings[count] = (pairing){.out = rs_io_backends[out]->name, .in = rs_io_backends[in]->name};
                snprintf(names[count], sizeof names[count], "%s to %s: %s", pairings[count].out, pairings[count].in,
                         cases[i].name);
                tests[count] = (struct CMUnitTest){.name = names[count],
                                                   .test_func = cases[i].run,
                                                   .teardown_func = close_pair,
                                                   .initial_state = &pairings[count]};
                count++;
            }
    return count;
}

int main(void) {
    static const test_case cases[] = {
        CASE(backend__in_order_the_common_case_needs_no_copy, true),
        CASE(backend__a_small_limit_loses_nothing, true),
        CASE(backend__a_limit_within_a_message_gathers_nothing, false),
        CASE(backend__loss_reordering_and_doubles_leave_a_right_image, true),
        CASE(backend__without_predictions_the_image_is_the_same, false),
        CASE(backend__mixed_sizes_and_strangers_harm_nothing, true),
        CASE(backend__two_groups_at_once_are_told_apart, false),
        CASE(backend__of_many_groups_each_gets_its_own, false),
        CASE(backend__more_groups_than_a_look_asks_for_end_it, false),
        CASE(backend__shows_what_comes_next, false),
        CASE(backend__drops_are_counted, true),
        CASE(backend__what_there_is_room_for_waits, true),
        CASE(backend__arrivals_need_not_wake, false),
        CASE(backend__what_cannot_be_sent_is_an_error_not_a_stop, false),
        CASE(backend__unreadable_payload_is_said, false),
    };
    static struct CMUnitTest tests[TESTS_MAX];
    io_veth_make();
    size_t count = pair_up(cases, sizeof cases / sizeof *cases, tests);
    return _cmocka_run_group_tests("io_backends", tests, count, NULL, NULL);
}
