/* Back end netmap (agent/io/netmap*.c) against a netmap device in memory. */
#include <errno.h>
#include <ftw.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_netmap.h"
#include "io/frame.h"
#include "io/netmap_fits.h"
#include "io_fixture.h"

static char said[1024];

static void listen_to(void *context, rs_io_log_level level, const char *text) {
    (void)context, (void)level;
    snprintf(said, sizeof said, "%s", text);
}

static const rs_io_options options = {.interface = "lo", .address = 0x7f000001u, .mtu = 1500, .log = listen_to};

static rs_io *open_fake(void) {
    char error[RS_IO_ERROR_MAX];
    rs_io *io = rs_netmap_open(&fake_device, &options, error);
    if (!io)
        fail_msg("%s", error);
    return io;
}

/* A fixture whose receiving side, or sending side, is the device. */
static int set_up(void **state) {
    fake_reset();
    said[0] = '\0';
    *state = io_fixture_new();
    return 0;
}

static int tear_down(void **state) {
    io_fixture_free(*state);
    assert_int_equal(fake.open_fds, 0);
    assert_int_equal(fake.maps, 0);
    fake_free();
    return 0;
}

static io_fixture *receiving(void **state, uint32_t rings) {
    io_fixture *f = *state;
    char error[RS_IO_ERROR_MAX];
    fake.rings = rings;
    f->in = open_fake();
    if (!rs_io_join(f->in, GROUP, f->group, f->port, error))
        fail_msg("%s", error);
    return f;
}

static io_fixture *sending(void **state, uint32_t rings) {
    io_fixture *f = *state;
    fake.rings = rings;
    f->out = open_fake();
    return f;
}

static const rs_frame_sender stranger = {.mac = {2, 0, 0, 0, 0, 9}, .address = 0x0a000009, .port = 999, .ttl = 3};

static void add_fragment(const io_fixture *f, unsigned sn) {
    uint8_t bytes[FAKE_BUFFER], *header = bytes + RS_FRAME_HEADERS;
    rs_io_packet packet = io_fragment_packet(f, sn, header);
    uint32_t datagram = packet.header_length + packet.payload_length;
    rs_frame_build(bytes, &stranger, f->group, f->port, datagram);
    memcpy(header + packet.header_length, packet.payload, packet.payload_length);
    fake_add(&fake.from_wire, bytes, RS_FRAME_HEADERS + datagram, 1);
}

/* A frame that is none of ours, told apart by its number. */
static uint32_t other_frame(uint8_t *bytes, uint32_t number) {
    memset(bytes, (int)(number % 251), 100);
    bytes[12] = 0x08;
    bytes[13] = 0x06; /* ARP */
    memcpy(bytes + 14, &number, sizeof number);
    return 60 + number % 40;
}

static void check_others(const fake_frames *frames, unsigned first, unsigned count) {
    uint8_t bytes[FAKE_BUFFER];
    assert_int_equal(frames->count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(frames->frames[i].length, other_frame(bytes, first + i));
        assert_memory_equal(frames->frames[i].bytes, bytes, frames->frames[i].length);
    }
}

static void add_others(fake_frames *to, unsigned first, unsigned count) {
    uint8_t bytes[FAKE_BUFFER];
    for (unsigned i = 0; i < count; i++)
        fake_add(to, bytes, other_frame(bytes, first + i), 1);
}

static int look(io_fixture *f, unsigned limit) {
    const rs_io_sink sink = io_fixture_sink(f);
    return rs_io_receive(f->in, limit, &sink);
}

/* ------------------------------------------------------------------------------------------------------- receiving */

static void receive_object(io_fixture *f, unsigned limit) {
    for (unsigned sn = 0; sn < FRAGMENTS; sn++)
        add_fragment(f, sn);
    io_receive(f, FRAGMENTS, limit);
    assert_memory_equal(f->got, f->sent, OBJECT);
    io_check_image(f);
    fake_check_buffers();
    rs_io_stats stats;
    rs_io_stats_get(f->in, &stats);
    assert_int_equal(stats.packets_received, FRAGMENTS);
    assert_int_equal(stats.bytes_received, OBJECT + FRAGMENTS * RS_IO_HEADER_BYTES);
    assert_int_equal(stats.moved, FRAGMENTS);
}

static void netmap__object_comes_in_over_many_turns_of_the_ring(void **state) {
    receive_object(receiving(state, 1), 256);
}

static void netmap__a_small_limit_loses_nothing(void **state) {
    receive_object(receiving(state, 1), 3);
}

static void netmap__several_rings_are_read(void **state) {
    receive_object(receiving(state, 3), 20);
}

static void netmap__frames_in_pieces_are_refused(void **state) {
    io_fixture *f = receiving(state, 1);
    uint8_t bytes[FAKE_BUFFER] = {0};
    rs_io_stats counts;
    for (unsigned sn = 0; sn < 30; sn++) {
        add_fragment(f, sn);
        fake_add(&fake.from_wire, bytes, FAKE_BUFFER, (uint16_t)(2 + sn % 3));
    }
    io_receive(f, 30, 256);
    while (fake.from_wire.count > 0)
        look(f, 256);
    look(f, 256);
    io_check_image(f);
    rs_io_stats_get(f->in, &counts);
    assert_int_equal(f->delivered, 30);
    assert_int_equal(rs_netmap_in_pieces(f->in), 30);
    assert_int_equal(counts.to_kernel, 0);
    assert_non_null(strstr(said, "buf_size"));
}

static void netmap__garbage_goes_to_the_kernel_as_it_is(void **state) {
    io_fixture *f = receiving(state, 1);
    static fake_frame given[500];
    for (unsigned i = 0; i < 500; i++) {
        given[i].length = io_draw(200);
        for (unsigned b = 0; b < given[i].length; b++)
            given[i].bytes[b] = (uint8_t)io_draw(256);
        if (io_draw(2) && given[i].length >= RS_FRAME_HEADERS) /* nearly ours: says to be longer than it is */
            rs_frame_build(given[i].bytes, &stranger, f->group, f->port, given[i].length);
        fake_add(&fake.from_wire, given[i].bytes, given[i].length, 1);
    }
    for (unsigned looks = 0; looks < 500; looks++)
        assert_int_equal(look(f, 256), 0);
    assert_int_equal(f->delivered, 0);
    assert_int_equal(fake.to_kernel.count, 500);
    for (unsigned i = 0; i < 500; i++) {
        assert_int_equal(fake.to_kernel.frames[i].length, given[i].length);
        assert_memory_equal(fake.to_kernel.frames[i].bytes, given[i].bytes, given[i].length);
    }
    fake_check_buffers();
}

static void netmap__groups_are_told_apart_and_left(void **state) {
    io_fixture *f = receiving(state, 1);
    char error[RS_IO_ERROR_MAX];
    assert_false(rs_io_join(f->in, GROUP, f->group + 1, f->port, error));
    assert_non_null(strstr(error, "in use"));
    f->port++;
    add_fragment(f, 1);
    f->port--;
    add_fragment(f, 2);
    assert_int_equal(look(f, 256), 1);
    assert_true(f->present[2] && !f->present[1]);
    rs_io_leave(f->in, GROUP);
    add_fragment(f, 3);
    assert_int_equal(look(f, 256), 0);
    assert_int_equal(fake.to_kernel.count, 2);
}

/* --------------------------------------------------------------------------------------------------------- sending */

static void check_sent(const io_fixture *f, unsigned from, unsigned count) {
    assert_int_equal(fake.to_wire.count, count);
    for (unsigned i = 0; i < count; i++) {
        const fake_frame *frame = &fake.to_wire.frames[i];
        uint8_t header[RS_IO_HEADER_BYTES];
        rs_datagram d;
        rs_io_packet packet = io_fragment_packet(f, from + i, header);
        assert_memory_equal(frame->bytes + 12, "\x08\x00", 2);
        assert_true(rs_frame_parse(frame->bytes + RS_FRAME_ETHERNET, frame->length - RS_FRAME_ETHERNET, &d));
        assert_true(rs_frame_sound(&d));
        assert_int_equal(d.source, options.address);
        assert_int_equal(d.address, f->group);
        assert_int_equal(d.port, f->port);
        assert_int_equal(d.length, RS_IO_HEADER_BYTES + packet.payload_length);
        assert_memory_equal(d.data, header, RS_IO_HEADER_BYTES);
        assert_memory_equal(d.data + RS_IO_HEADER_BYTES, packet.payload, packet.payload_length);
    }
}

static void netmap__object_goes_out_over_many_turns_of_the_ring(void **state) {
    io_fixture *f = sending(state, 1);
    unsigned sns[50];
    for (unsigned sn = 0; sn < FRAGMENTS; sn += 50) {
        for (unsigned i = 0; i < 50; i++)
            sns[i] = sn + i;
        io_send_fragments(f, sns, 50);
    }
    check_sent(f, 0, FRAGMENTS);
    fake_check_buffers();
}

static void netmap__full_rings_take_no_more_and_lose_nothing(void **state) {
    io_fixture *f = sending(state, 2);
    uint8_t headers[40][RS_IO_HEADER_BYTES];
    rs_io_packet packets[40];
    for (unsigned i = 0; i < 40; i++)
        packets[i] = io_fragment_packet(f, i, headers[i]);
    fake.wire_stuck = true;
    const int room = 2 * (FAKE_SLOTS - 1 - FAKE_SLOTS / 8);
    assert_int_equal(rs_io_send(f->out, packets, 40), room);
    assert_false(fake_would_wake()); /* what is left to the kernel's frames does not count */
    assert_int_equal(rs_io_send(f->out, packets + room, 10), 0);
    fake.wire_stuck = false;
    assert_int_equal(rs_io_send(f->out, packets + room, 10), 10);
    assert_true(fake_would_wake());
    check_sent(f, 0, (unsigned)room + 10);
}

static void netmap__a_ring_full_of_data_has_room_for_the_kernel(void **state) {
    io_fixture *f = *state;
    uint8_t headers[40][RS_IO_HEADER_BYTES];
    rs_io_packet packets[40];
    for (unsigned i = 0; i < 40; i++)
        packets[i] = io_fragment_packet(f, i, headers[i]);
    f->in = open_fake();
    fake.wire_stuck = true;
    const int room = FAKE_SLOTS - 1 - FAKE_SLOTS / 8;
    assert_int_equal(rs_io_send(f->in, packets, 40), room);
    add_others(&fake.from_kernel, 0, 5);
    look(f, 256);
    rs_io_stats stats;
    rs_io_stats_get(f->in, &stats);
    assert_int_equal(stats.from_kernel, FAKE_SLOTS / 8);
    fake.wire_stuck = false;
    look(f, 256);
    look(f, 256);
    assert_int_equal(fake.to_wire.count, room + 5);
    fake_check_buffers();
}

static void netmap__what_is_too_long_is_an_error_not_a_stop(void **state) {
    io_fixture *f = sending(state, 1);
    uint8_t headers[2][RS_IO_HEADER_BYTES];
    rs_io_packet packets[2] = {io_fragment_packet(f, 0, headers[0]), io_fragment_packet(f, 5, headers[1])};
    packets[0].payload_length = 1500;
    assert_int_equal(rs_io_send(f->out, packets, 2), 2);
    check_sent(f, 5, 1);
    rs_io_stats stats;
    rs_io_stats_get(f->out, &stats);
    assert_int_equal(stats.send_errors, 1);
}

static void netmap__unreadable_payload_is_said(void **state) {
    io_fixture *f = sending(state, 1);
    int fd = memfd_create("object", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4096), 0);
    uint8_t *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(ftruncate(fd, 0), 0);
    uint8_t headers[2][RS_IO_HEADER_BYTES];
    rs_io_packet packets[2] = {io_fragment_packet(f, 0, headers[0]), io_fragment_packet(f, 1, headers[1])};
    packets[1].payload = map;
    assert_int_equal(rs_io_send(f->out, packets, 2), 1);
    assert_int_equal(rs_io_send(f->out, packets + 1, 1), RS_IO_UNREADABLE);
    check_sent(f, 0, 1);
    munmap(map, 4096);
    close(fd);
}

/* ------------------------------------------------------------------------------------------------ the kernel's own */

static void netmap__kernel_keeps_its_traffic_both_ways(void **state) {
    io_fixture *f = receiving(state, 1);
    add_others(&fake.from_kernel, 1000, 100);
    for (unsigned i = 0; i < 100; i++) {
        add_others(&fake.from_wire, i, 1);
        add_fragment(f, i);
    }
    for (unsigned looks = 0; looks < 100; looks++)
        look(f, 256);
    check_others(&fake.to_kernel, 0, 100);
    check_others(&fake.to_wire, 1000, 100);
    assert_int_equal(f->delivered, 100);
    io_check_image(f);
    fake_check_buffers();
    rs_io_stats counts;
    rs_io_stats_get(f->in, &counts);
    assert_int_equal(counts.to_kernel, 100);
    assert_int_equal(counts.from_kernel, 100);
    assert_int_equal(counts.to_kernel_lost, 0);
}

static void netmap__a_full_host_ring_does_not_stop_data(void **state) {
    io_fixture *f = receiving(state, 1);
    rs_io_stats counts;
    fake.kernel_stuck = true;
    add_others(&fake.from_wire, 0, 40);
    for (unsigned sn = 0; sn < 40; sn++)
        add_fragment(f, sn);
    io_receive(f, 40, 256);
    rs_io_stats_get(f->in, &counts);
    assert_int_equal(counts.to_kernel, FAKE_SLOTS - 1);
    assert_int_equal(counts.to_kernel_lost, 40 - (FAKE_SLOTS - 1));
    fake.kernel_stuck = false;
    add_others(&fake.from_wire, FAKE_SLOTS - 1, 1);
    look(f, 256);
    check_others(&fake.to_kernel, 0, FAKE_SLOTS);
    fake_check_buffers();
}

static void netmap__a_full_nic_keeps_what_the_kernel_sends(void **state) {
    io_fixture *f = receiving(state, 1);
    fake.wire_stuck = true;
    add_others(&fake.from_kernel, 0, 60);
    for (unsigned looks = 0; looks < 10; looks++)
        look(f, 256);
    assert_int_equal(fake.to_wire.count, 0);
    fake.wire_stuck = false;
    for (unsigned looks = 0; looks < 10; looks++)
        look(f, 256);
    check_others(&fake.to_wire, 0, 60);
    fake_check_buffers();
}

/* --------------------------------------------------------------------------------------------------------- opening */

static void expect_refusal(const char *text) {
    char error[RS_IO_ERROR_MAX] = "";
    assert_null(rs_netmap_open(&fake_device, &options, error));
    if (!strstr(error, text))
        fail_msg("\"%s\" does not say \"%s\"", error, text);
    assert_int_equal(fake.open_fds, 0);
    assert_int_equal(fake.maps, 0);
}

static void netmap__what_is_missing_is_said(void **state) {
    (void)state;
    fake.open_errno = ENOENT;
    expect_refusal("modprobe netmap");
    fake.open_errno = EACCES;
    expect_refusal("Permission denied");
    fake.open_errno = 0;
    fake.register_errno = EBUSY;
    expect_refusal("in use by another netmap program");
    fake.register_errno = ENXIO;
    expect_refusal("netmap does not take lo");
    fake.register_errno = 0;
    fake.version = 11;
    expect_refusal("speaks API 11, this agent 14");
    fake.version = 14;
    fake.buffer_bytes = 1024;
    expect_refusal("write 2048 to /sys/module/netmap/parameters/buf_size");
    fake.buffer_bytes = FAKE_BUFFER;
    fake.separate_memory = true;
    expect_refusal("different memory");
    fake.separate_memory = false;
    fake.map_errno = ENOMEM;
    expect_refusal("Cannot allocate memory");
    fake.map_errno = 0;
    fake.rings = 0;
    expect_refusal("0 transmit");
}

static void netmap__without_the_module_udp_is_used(void **state) {
    (void)state;
    char error[RS_IO_ERROR_MAX];
    if (access("/dev/netmap", F_OK) == 0) {
        print_message("skipped: this machine has netmap\n");
        skip();
    }
    rs_io *io = rs_io_open("netmap", &options, error);
    assert_non_null(io);
    assert_string_equal(rs_io_name(io), "udp");
    assert_non_null(strstr(said, "modprobe netmap"));
    rs_io_close(io);
}

/* A sysfs of our own, in which a link to a driver's module, or a holder of netmap's, is made when it is wanted. */
static void make_below(const char *sys, const char *format, const char *name) {
    char path[256], below[200];
    snprintf(below, sizeof below, format, name);
    snprintf(path, sizeof path, "%s/%s", sys, below);
    for (char *at = path + strlen(sys) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        if (mkdir(path, 0700) != 0)
            assert_int_equal(errno, EEXIST);
        *at = '/';
    }
    assert_int_equal(mkdir(path, 0700), 0);
}

static void expect_unfit(const char *sys, const char *interface, const char *why) {
    char error[RS_IO_ERROR_MAX] = "";
    assert_false(rs_netmap_fits(sys, interface, error));
    if (!strstr(error, why))
        fail_msg("\"%s\" is not in: %s", why, error);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)status, (void)kind, (void)where;
    return remove(path);
}

/* `auto` takes it where the module drives the NIC itself, and no checksum of other programs' packets stays undone. */
static void netmap__auto_takes_it_where_it_fits(void **state) {
    (void)state;
    char sys[] = "/tmp/rostrum-sys-XXXXXX", error[RS_IO_ERROR_MAX], link[256];
    assert_non_null(mkdtemp(sys));
    expect_unfit(sys, "nic0", "module is not loaded");
    make_below(sys, "module/%s", "netmap");
    expect_unfit(sys, "nic0", "nic0 has no driver of netmap's (it is virtual)");
    make_below(sys, "class/net/%s/device/driver", "nic0");
    snprintf(link, sizeof link, "%s/class/net/nic0/device/driver/module", sys);
    assert_int_equal(symlink("../../../../../../module/e1000", link), 0);
    expect_unfit(sys, "nic0", "nic0 has no driver of netmap's (e1000)");
    make_below(sys, "module/netmap/holders/%s", "e1000");
    assert_true(rs_netmap_fits(sys, "nic0", error)); /* which does not exist: nobody says it leaves checksums undone */
    make_below(sys, "class/net/%s/device/driver", "lo");
    snprintf(link, sizeof link, "%s/class/net/lo/device/driver/module", sys);
    assert_int_equal(symlink("e1000", link), 0);
    expect_unfit(sys, "lo", "ethtool -K lo tx off");
    assert_int_equal(nftw(sys, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* An agent in a network namespace may see the sysfs of another, whose interfaces have the same names. */
static void netmap__auto_asks_the_driver_rather_than_another_namespaces_sysfs(void **state) {
    (void)state;
    char sys[] = "/tmp/rostrum-sys-XXXXXX", error[RS_IO_ERROR_MAX], link[256];
    io_veth_make();
    if (if_nametoindex("va") == 0) {
        print_message("skipped: no virtual interfaces here (root is needed)\n");
        skip();
    }
    assert_non_null(mkdtemp(sys));
    make_below(sys, "module/netmap/holders/%s", "e1000");
    make_below(sys, "class/net/%s/device/driver", "va");
    snprintf(link, sizeof link, "%s/class/net/va/device/driver/module", sys);
    assert_int_equal(symlink("../../../../../../module/e1000", link), 0);
    expect_unfit(sys, "va", "va has no driver of netmap's (veth)");
    make_below(sys, "bus/pci/drivers/%s", "veth"); /* a module may have another name than its driver */
    snprintf(link, sizeof link, "%s/bus/pci/drivers/veth/module", sys);
    assert_int_equal(symlink("../../../../module/e1000", link), 0);
    if (rs_netmap_offloads("va"))
        expect_unfit(sys, "va", "ethtool -K va tx off");
    else
        assert_true(rs_netmap_fits(sys, "va", error));
    assert_int_equal(nftw(sys, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

#define with_device(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        with_device(netmap__object_comes_in_over_many_turns_of_the_ring),
        with_device(netmap__a_small_limit_loses_nothing),
        with_device(netmap__several_rings_are_read),
        with_device(netmap__frames_in_pieces_are_refused),
        with_device(netmap__garbage_goes_to_the_kernel_as_it_is),
        with_device(netmap__groups_are_told_apart_and_left),
        with_device(netmap__object_goes_out_over_many_turns_of_the_ring),
        with_device(netmap__full_rings_take_no_more_and_lose_nothing),
        with_device(netmap__a_ring_full_of_data_has_room_for_the_kernel),
        with_device(netmap__what_is_too_long_is_an_error_not_a_stop),
        with_device(netmap__unreadable_payload_is_said),
        with_device(netmap__kernel_keeps_its_traffic_both_ways),
        with_device(netmap__a_full_host_ring_does_not_stop_data),
        with_device(netmap__a_full_nic_keeps_what_the_kernel_sends),
        with_device(netmap__what_is_missing_is_said),
        with_device(netmap__without_the_module_udp_is_used),
        cmocka_unit_test(netmap__auto_takes_it_where_it_fits),
        cmocka_unit_test(netmap__auto_asks_the_driver_rather_than_another_namespaces_sysfs), /* last: moves there */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
