/* Datagrams between peers over real sockets on the loopback interface (agent/io/datagrams.c). */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/datagrams.h"

#define LOCALHOST 0x7f000001u
#define PEERS 3
#define MOST 400
#define HEADER 8

typedef struct {
    rs_datagrams *at;
    uint16_t port;
    uint32_t expected[MOST], lengths[MOST]; /* numbers and sizes sent to it, in order */
    unsigned sent, got, given;              /* of `got`, those that were read before the last batch */
    bool read;                              /* and it was told that one was read */
} peer;

static uint8_t payload[RS_DATAGRAM_MAX];

static uint16_t free_port(void) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOCALHOST)};
    socklen_t length = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &length), 0);
    close(fd);
    return ntohs(own.sin_port);
}

static rs_datagrams *open_at(uint16_t port, bool joined) {
    char error[160] = "";
    rs_datagrams *d = rs_datagrams_open(LOCALHOST, port, joined, error, sizeof error);
    if (!d)
        fail_msg("%s", error);
    return d;
}

static void put_number(uint8_t *header, uint32_t number, uint32_t length) {
    memcpy(header, &number, 4);
    memcpy(header + 4, &length, 4);
}

static void send_to(rs_datagrams *from, peer *to, uint32_t number, uint32_t length) {
    uint8_t header[HEADER];
    put_number(header, number, length);
    to->expected[to->sent] = number;
    to->lengths[to->sent++] = length;
    rs_datagrams_send(from, LOCALHOST, to->port, header, HEADER, length ? payload + number % 256 : NULL, length);
}

/* In order, whole, nothing else. */
static void check(void *context, uint32_t address, uint16_t port, const uint8_t *bytes, size_t length) {
    peer *p = context;
    uint32_t head[2];
    (void)port;
    assert_int_equal(address, LOCALHOST);
    assert_true(p->read);
    assert_true(p->got < p->sent && length >= HEADER);
    memcpy(head, bytes, sizeof head);
    assert_int_equal(head[0], p->expected[p->got]);
    assert_int_equal(length, HEADER + p->lengths[p->got]);
    assert_memory_equal(bytes + HEADER, payload + head[0] % 256, p->lengths[p->got]);
    p->got++;
}

/* Before what was read is handed over. */
static void was_read(void *context) {
    peer *p = context;
    assert_true(!p->read || p->got > p->given);
    p->given = p->got;
    p->read = true;
}

static void await_all(peer *p) {
    struct pollfd ready = {.fd = rs_datagrams_fd(p->at), .events = POLLIN};
    while (p->got < p->sent) {
        assert_int_equal(poll(&ready, 1, 5000), 1);
        rs_datagrams_receive(p->at, 7, check, was_read, p);
    }
    assert_int_equal(rs_datagrams_receive(p->at, 7, check, was_read, p), 0);
}

/* Runs of one size, shorter ones in between, several peers by turns, more than a batch. */
static void mixed_traffic(bool sender_joins, bool receiver_joins) {
    static const uint32_t sizes[] = {1400, 1400, 1400, 1400, 300, 0, 9000};
    unsigned seed = (unsigned)getpid();
    print_message("seed %u\n", seed);
    srand(seed);
    rs_datagrams *from = open_at(free_port(), sender_joins);
    peer peers[PEERS];
    memset(peers, 0, sizeof peers);
    for (unsigned i = 0; i < PEERS; i++) {
        peers[i].port = free_port();
        peers[i].at = open_at(peers[i].port, receiver_joins);
    }
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 20; i++) {
            uint32_t size = sizes[(unsigned)rand() % (sizeof sizes / sizeof *sizes)];
            peer *to = &peers[(unsigned)rand() % PEERS];
            send_to(from, to, round * 20 + i, size);
        }
        if (round % 4 == 3) {
            rs_datagrams_flush(from);
            for (unsigned i = 0; i < PEERS; i++)
                await_all(&peers[i]);
        }
    }
    assert_int_equal(rs_datagrams_lost(from), 0);
    for (unsigned i = 0; i < PEERS; i++)
        rs_datagrams_close(peers[i].at);
    rs_datagrams_close(from);
}

static void datagrams__joined_ones_come_whole_and_in_order(void **state) {
    (void)state;
    mixed_traffic(true, true);
}

static void datagrams__each_side_may_join_alone(void **state) {
    (void)state;
    mixed_traffic(true, false);
    mixed_traffic(false, true);
    mixed_traffic(false, false);
}

static void datagrams__one_that_cannot_be_read_is_lost_alone(void **state) {
    (void)state;
    const uint32_t length = 1000;
    long page = sysconf(_SC_PAGESIZE);
    uint8_t *gone = mmap(NULL, (size_t)page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(gone, MAP_FAILED);
    rs_datagrams *from = open_at(free_port(), true);
    peer to = {.port = free_port()};
    to.at = open_at(to.port, true);
    for (uint32_t i = 0; i < 20; i++) {
        uint8_t header[HEADER] = {0};
        if (i == 11)
            rs_datagrams_send(from, LOCALHOST, to.port, header, HEADER, gone, length);
        else
            send_to(from, &to, i, length);
    }
    rs_datagrams_flush(from);
    await_all(&to);
    assert_int_equal(rs_datagrams_lost(from), 1);
    rs_datagrams_close(to.at);
    rs_datagrams_close(from);
    munmap(gone, (size_t)page);
}

/* The type of service (DSCP and ECN) and length of the next datagram at a plain socket. */
static int service_of_next(int fd, size_t *length) {
    uint8_t bytes[2048];
    _Alignas(struct cmsghdr) uint8_t control[64];
    struct iovec room = {bytes, sizeof bytes};
    struct msghdr h = {.msg_iov = &room, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 5000), 1);
    ssize_t got = recvmsg(fd, &h, 0);
    assert_true(got >= 0);
    *length = (size_t)got;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    assert_true(c && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS);
    return *CMSG_DATA(c);
}

static void note_marks(void *context, uint32_t address, uint16_t port, const uint8_t *bytes, size_t length) {
    uint64_t *marks = context;
    (void)address, (void)port, (void)bytes, (void)length;
    *marks = *marks << 1 | rs_datagrams_marked((const rs_datagrams *)(uintptr_t)marks[1]);
}

/* A switch marked every other one: whoever takes them is told of which. */
static void marks__are_told_of_each(void **state) {
    (void)state;
    for (int joined = 0; joined < 2; joined++) {
        uint16_t port = free_port();
        const struct sockaddr_in to = {
            .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(LOCALHOST)};
        rs_datagrams *d = open_at(port, joined);
        uint64_t marks[2] = {1, (uintptr_t)d};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        for (int i = 0; i < 8; i++) {
            const int service = i % 2 ? 3 : 2;
            assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_TOS, &service, sizeof service), 0);
            assert_int_equal(sendto(fd, payload, 100, 0, (const struct sockaddr *)&to, sizeof to), 100);
        }
        while (marks[0] < 256) {
            struct pollfd ready = {.fd = rs_datagrams_fd(d), .events = POLLIN};
            assert_int_equal(poll(&ready, 1, 5000), 1);
            rs_datagrams_receive(d, 8, note_marks, NULL, marks);
        }
        assert_int_equal(marks[0], 0x155);
        rs_datagrams_close(d);
        close(fd);
    }
}

/* Acknowledgements and reports are few and small: marked so that switches let them go before multicast. Repairs are
 * not, of the same length and to the same peer neither; of these some let switches mark them. */
static void control_is_marked__bulk_is_not(void **state) {
    (void)state;
    for (int joined = 0; joined < 2; joined++) {
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOCALHOST)};
        socklen_t length = sizeof own;
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1;
        assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof own), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &length), 0);
        assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof one), 0);
        rs_datagrams *d = open_at(free_port(), joined);
        const uint8_t header[80] = {0};
        for (int i = 0; i < 12; i++) {
            if (i / 3 % 2)
                rs_datagrams_send(d, LOCALHOST, ntohs(own.sin_port), header, 30, payload, 50);
            else
                rs_datagrams_send(d, LOCALHOST, ntohs(own.sin_port), header, 80, NULL, 0);
            if (i == 4)
                rs_datagrams_markable(d);
        }
        rs_datagrams_flush(d);
        for (int i = 0; i < 12; i++) {
            size_t got;
            assert_int_equal(service_of_next(fd, &got), i == 4 ? 2 : i / 3 % 2 ? 0 : RS_DSCP_CONTROL << 2);
            assert_int_equal(got, 80);
        }
        assert_int_equal(rs_datagrams_lost(d), 0);
        rs_datagrams_close(d);
        close(fd);
    }
}

int main(void) {
    for (unsigned i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 7 + i / 256);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datagrams__joined_ones_come_whole_and_in_order),
        cmocka_unit_test(datagrams__each_side_may_join_alone),
        cmocka_unit_test(datagrams__one_that_cannot_be_read_is_lost_alone),
        cmocka_unit_test(control_is_marked__bulk_is_not),
        cmocka_unit_test(marks__are_told_of_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
