/* Frames as a broken or hostile host may send them, against every back end (raw, from `va` to `vb`): what is no sound
 * datagram of a joined group is not delivered, what follows is. */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/frame.h"
#include "io_fixture.h"

#define FRAME_ROOM 4096u
#define TAG 4u /* bytes of a VLAN tag */

typedef struct {
    const char *backend;
    io_fixture *f;
    int raw;
    _Alignas(8) uint8_t pad[2]; /* then the IP header is aligned */
    uint8_t frame[FRAME_ROOM];
    size_t length;
} garbage;

static garbage *begin(void **state) {
    garbage *g = *state;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = 0};
    g->f = io_fixture_new();
    io_fixture_open_or_skip(g->f, "udp", &io_veth_from, g->backend, &io_veth_to);
    at.sll_ifindex = (int)if_nametoindex("va");
    g->raw = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(g->raw, (const struct sockaddr *)&at, sizeof at), 0);
    return g;
}

static int end(void **state) {
    garbage *g = *state;
    if (g->f) {
        io_fixture_free(g->f);
        close(g->raw);
    }
    g->f = NULL;
    return 0;
}

/* A sound frame that carries fragment sn. */
static void make(garbage *g, unsigned sn) {
    uint8_t header[RS_IO_HEADER_BYTES];
    const rs_io_packet packet = io_fragment_packet(g->f, sn, header);
    const rs_frame_sender sender = {.mac = {2, 0, 0, 0, 0, 1}, .address = 0x0a4d0101u, .port = 5, .ttl = 8};
    size_t length = sizeof header + packet.payload_length;
    rs_frame_build(g->frame, &sender, g->f->group, g->f->port, length);
    memcpy(g->frame + RS_FRAME_HEADERS, header, sizeof header);
    memcpy(g->frame + RS_FRAME_HEADERS + sizeof header, packet.payload, packet.payload_length);
    rs_frame_checksum(g->frame, header, sizeof header, packet.payload, packet.payload_length);
    g->length = RS_FRAME_HEADERS + length;
}

static void post(garbage *g) {
    assert_int_equal(send(g->raw, g->frame, g->length, 0), (ssize_t)g->length);
}

/* Sends the frame, then a sound one: is what came the second alone? */
static void expect(garbage *g, const char *what, bool taken) {
    unsigned before = g->f->delivered, sound = FRAGMENTS - 2;
    post(g);
    make(g, sound);
    post(g);
    g->f->present[sound] = false;
    for (int rounds = 0; rounds < 50 && !g->f->present[sound]; rounds++) {
        struct pollfd wait = {.fd = rs_io_receive_fd(g->f->in), .events = POLLIN};
        const rs_io_sink sink = io_fixture_sink(g->f);
        (void)poll(&wait, 1, WAIT_MS / 50);
        (void)rs_io_receive(g->f->in, 256, &sink);
    }
    if (!g->f->present[sound])
        fail_msg("%s: a sound frame after it did not come", what);
    if (g->f->delivered - before != (taken ? 2 : 1))
        fail_msg("%s: %s", what, taken ? "did not come" : "was taken");
    io_check_image(g->f);
}

static struct iphdr *ip_of(garbage *g) {
    return (struct iphdr *)(void *)(g->frame + RS_FRAME_ETHERNET);
}

static struct udphdr *udp_of(garbage *g) {
    return (struct udphdr *)(void *)(g->frame + RS_FRAME_ETHERNET + RS_FRAME_IP);
}

/* After a change of the IP header, RFC 1071. */
static void sign_ip(garbage *g) {
    uint32_t sum = 0;
    uint16_t word;
    ip_of(g)->check = 0;
    for (size_t i = 0; i < RS_FRAME_IP; i += 2) {
        memcpy(&word, g->frame + RS_FRAME_ETHERNET + i, 2);
        sum += word;
    }
    sum = (sum & 0xffff) + (sum >> 16);
    ip_of(g)->check = (uint16_t) ~(sum + (sum >> 16));
}

static void tag(garbage *g, uint16_t tci) {
    const uint16_t words[2] = {htons(ETHERTYPE_VLAN), htons(tci)};
    memmove(g->frame + 12 + TAG, g->frame + 12, g->length - 12);
    memcpy(g->frame + 12, words, sizeof words);
    g->length += TAG;
}

static void garbage__sound_frames_come(void **state) {
    garbage *g = begin(state);
    make(g, 1);
    expect(g, "a frame with a UDP checksum", true);
    make(g, 2);
    udp_of(g)->check = 0;
    expect(g, "a frame without a UDP checksum", true);
    make(g, FRAGMENTS - 1);
    g->length += 100;
    expect(g, "a frame with padding behind the datagram", true);
    assert_true(g->f->present[1] && g->f->present[2] && g->f->present[FRAGMENTS - 1]);
}

static bool below_the_kernel(const garbage *g) {
    return strcmp(g->backend, "xdp") == 0 || strcmp(g->backend, "netmap") == 0;
}

static void garbage__tagged_frames_come_if_for_us(void **state) {
    garbage *g = begin(state);
    if (below_the_kernel(g)) {
        print_message("skipped: %s sees frames before the kernel takes tags off\n", g->backend);
        skip();
    }
    make(g, 3);
    tag(g, 0xa000); /* priority 5, no VLAN */
    expect(g, "a frame with a priority tag", true);
    make(g, 4);
    tag(g, 5);
    expect(g, "a frame of another VLAN", false);
}

static void garbage__unsound_headers_are_not_taken(void **state) {
    garbage *g = begin(state);
    make(g, 1);
    ip_of(g)->check ^= 1;
    expect(g, "a wrong IP checksum", false);
    make(g, 1);
    ip_of(g)->frag_off = htons(IP_MF);
    sign_ip(g);
    expect(g, "the first fragment of a datagram", false);
    make(g, 1);
    ip_of(g)->frag_off = htons(100);
    sign_ip(g);
    expect(g, "a later fragment of a datagram", false);
    make(g, 1);
    udp_of(g)->len = htons(5000);
    expect(g, "a datagram longer than its packet", false);
    make(g, 1);
    udp_of(g)->len = htons(3);
    expect(g, "a datagram shorter than its header", false);
    make(g, 1);
    g->length -= 10;
    expect(g, "a frame that was cut off", false);
    make(g, 1);
    ip_of(g)->tot_len = htons(24);
    sign_ip(g);
    expect(g, "a packet shorter than a datagram's header", false);
    make(g, 1);
    ip_of(g)->protocol = 6;
    sign_ip(g);
    expect(g, "a TCP segment", false);
    make(g, 1);
    ip_of(g)->version = 5;
    sign_ip(g);
    expect(g, "another IP version", false);
    make(g, 1);
    g->frame[12] = 0x86; /* 0x8600 */
    expect(g, "another protocol on Ethernet", false);
    make(g, 1);
    g->length = RS_FRAME_ETHERNET + RS_FRAME_IP;
    expect(g, "a frame that ends before UDP", false);
}

static void garbage__wrong_checksums_of_data_are_not_taken(void **state) {
    garbage *g = begin(state);
    if (below_the_kernel(g)) {
        print_message("skipped: %s does not tell a checksum that is still to be made from a wrong one\n", g->backend);
        skip();
    }
    make(g, 1);
    g->frame[600] ^= 0x10;
    expect(g, "a changed payload", false);
}

/* Random bytes in the headers, random lengths. What is still taken is whole, since payloads are not changed. */
static void garbage__random_headers_harm_nothing(void **state) {
    garbage *g = begin(state);
    for (int round = 0; round < 3000; round++) {
        make(g, io_draw(FRAGMENTS));
        for (unsigned changes = 1 + io_draw(3); changes > 0; changes--)
            g->frame[12 + io_draw(RS_FRAME_HEADERS - 12)] = (uint8_t)io_draw(256);
        if (io_draw(3) == 0)
            g->length = RS_FRAME_ETHERNET + io_draw((unsigned)g->length - RS_FRAME_ETHERNET);
        post(g);
        if (round % 20 == 19) { /* netmap holds on to frames, and with them to the room of the socket that sent them */
            const rs_io_sink sink = io_fixture_sink(g->f);
            (void)rs_io_receive(g->f->in, 256, &sink);
            io_check_image(g->f);
        }
    }
    make(g, 1);
    unsigned before = g->f->delivered;
    post(g);
    while (g->f->delivered == before) /* whatever is still under way, then this one */
        io_receive(g->f, 1, 256);
    io_check_image(g->f);
}

#define CASES 5u
#define BACKENDS_MAX 8u

int main(void) {
    const struct CMUnitTest cases[CASES] = {
        cmocka_unit_test_teardown(garbage__sound_frames_come, end),
        cmocka_unit_test_teardown(garbage__tagged_frames_come_if_for_us, end),
        cmocka_unit_test_teardown(garbage__unsound_headers_are_not_taken, end),
        cmocka_unit_test_teardown(garbage__wrong_checksums_of_data_are_not_taken, end),
        cmocka_unit_test_teardown(garbage__random_headers_harm_nothing, end),
    };
    static struct CMUnitTest tests[CASES * BACKENDS_MAX];
    static char names[CASES * BACKENDS_MAX][120];
    static garbage states[BACKENDS_MAX];
    size_t count = 0;
    io_veth_make();
    for (size_t b = 0; rs_io_backends[b] && b < BACKENDS_MAX; b++)
        for (size_t i = 0; i < CASES && io_backend_is_here(rs_io_backends[b]); i++, count++) {
            states[b].backend = rs_io_backends[b]->name;
            snprintf(names[count], sizeof names[count], "%s: %s", states[b].backend, cases[i].name);
            tests[count] = cases[i];
            tests[count].name = names[count];
            tests[count].initial_state = &states[b];
        }
    return _cmocka_run_group_tests("io_garbage", tests, count, NULL, NULL);
}
