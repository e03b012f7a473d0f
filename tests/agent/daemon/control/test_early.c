/* Over a long way messages go right behind HELLO, before the other end's (agent/daemon/control/pool.c): what agents
 * send and take byte by byte, older ones too, and what comes of it when somebody else answers, or nobody. */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/random.h"

#define MOST 65536u
#define LONG_WAY           \
    (rs_control_options) { \
        .long_trip = 1     \
    }

/* What agents said before messages could go early, and go on saying on short ways. */
static const uint8_t hello_of_h1[] = {32, 0, 0, 0, 1, 2,    0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0,
                                      0,  0, 7, 0, 0, 0xc0, 11, 0, 0, 0, 0, 0, 0, 0, 2, 0, 'h', '1'},
                     hello_of_h2[] = {32, 0, 0, 0, 1, 2,    0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0,
                                      0,  0, 7, 0, 0, 0xc0, 22, 0, 0, 0, 0, 0, 0, 0, 2, 0, 'h', '2'},
                     hello_of_h9[] = {32, 0, 0, 0, 1, 2,    0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0,
                                      0,  0, 7, 0, 0, 0xc0, 99, 0, 0, 0, 0, 0, 0, 0, 2, 0, 'h', '9'};
/* The same by h1, for h2. */
static const uint8_t hello_for_h2[] = {32, 0, 0, 0,    1,    2,    0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0,
                                       0,  0, 7, 0x86, 0x37, 0xdb, 11, 0, 0, 0, 0, 0, 0, 0, 2, 0, 'h', '1'};
static const uint8_t finished[] = {16, 0, 0, 0, 7, 2, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; /* DATA_FNSD */
#define HELLO sizeof hello_of_h1

static rs_message data_fnsd(void) {
    return (rs_message){.type = RS_MSG_DATA_FNSD, .nonce = 5};
}

/* ---------------------------------------------------------------------------------- an end that the test speaks for */

static struct sockaddr_in at(const world *w, uint32_t address) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(w->port), .sin_addr = {.s_addr = htonl(address)}};
}

static int listener(const world *w, uint32_t address) {
    struct sockaddr_in here = at(w, address);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static int accepted(int listening) {
    int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int opened(const world *w, uint32_t from, uint32_t to) {
    struct sockaddr_in here = at(w, from), there = at(w, to);
    here.sin_port = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&there, sizeof there), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void say(int fd, const uint8_t *bytes, size_t length) {
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
}

static bool hung_up(int fd) {
    uint8_t bytes[512];
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
}

static size_t heard_so_far(int fd, uint8_t heard[MOST], size_t have) {
    ssize_t got = recv(fd, heard + have, MOST - have, 0);
    return have + (got > 0 ? (size_t)got : 0);
}

/* These bytes come next, the second ones behind the first, and nothing else by then. */
static void hear(world *w, int fd, const uint8_t *first, size_t first_length, const uint8_t *then, size_t then_length) {
    static uint8_t heard[MOST];
    size_t have = 0;
    wait_until(w, (have = heard_so_far(fd, heard, have)) >= first_length + then_length);
    assert_int_equal(have, first_length + then_length);
    assert_memory_equal(heard, first, first_length);
    if (then_length)
        assert_memory_equal(heard + first_length, then, then_length);
}

/* h1 wants h2, at whose place the test takes what comes, and has just been connected. */
static int taken(world *w, int listening, rs_control_options options, rs_peer *h2) {
    open_end(w, &w->h1, "h1", 0x7f000001, 11, options);
    *h2 = know(&w->h1, "h2", 0x7f000002, w->port);
    rs_control_want(w->h1.control, *h2);
    wait_until(w, rs_control_stats_get(w->h1.control).opened == 1);
    return accepted(listening);
}

/* ------------------------------------------------------------------------------------------------------- both good */

static void early__comes_up_before_the_hello_and_carries_both_ways(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, LONG_WAY);
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, rs_control_stats_get(w->h1.control).opened == 1);
    assert_int_equal(w->h1.ups, 1);
    assert_int_equal(w->h2.ups, 0);
    assert_int_equal(rs_control_knows(w->h1.control, h2), UINT32_MAX); /* nobody has said it yet */
    assert_true(rs_control_round_trip_us(w->h1.control, h2) > 0);
    assert_true(send_message(&w->h1, h2, data_fnsd()));
    wait_until(w, w->h2.messages == 1);
    assert_true(send_message(&w->h2, rs_peers_find(&w->h2.peers, "h1"), data_fnsd()));
    wait_until(w, w->h1.messages == 1);
    assert_int_equal(rs_control_knows(w->h1.control, h2) & RS_HELLO_NAME, RS_HELLO_NAME);
    assert_int_equal(w->h1.ups + w->h2.ups, 2);
    assert_int_equal(w->h1.downs + w->h2.downs, 0);
    assert_int_equal(rs_control_stats_get(w->h1.control).unreached, 0);
}

static void early__both_open_one(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, LONG_WAY);
    open_end(w, &w->h2, "h2", 0x7f000002, 22, LONG_WAY);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port), h1 = know(&w->h2, "h1", w->h1.address, w->port);
    rs_control_want(w->h1.control, h2);
    rs_control_want(w->h2.control, h1);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(send_message(&w->h1, h2, data_fnsd()));
        assert_true(send_message(&w->h2, h1, data_fnsd()));
    }
    wait_until(w, w->h1.messages == 5 && w->h2.messages == 5);
    assert_int_equal(w->h1.downs + w->h2.downs, 0);
}

/* More than is taken before the HELLO comes waits, in order. */
static void early__patches_wait_when_the_peer_is_slow(void **state) {
    world *w = *state;
    uint64_t sn = 0;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, LONG_WAY);
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, rs_control_stats_get(w->h1.control).opened == 1);
    while (w->h1.unwritable == 0)
        assert_true(send_patch(w, &w->h1, h2, sn++));
    wait_until(w, w->h1.writable == 1);
    wait_until(w, w->h2.messages == sn);
    assert_int_equal(w->h1.downs, 0);
}

/* ----------------------------------------------------------------------------------------- beside agents of before */

/* What goes to one, and what comes of its answers. */
static void early__an_older_agent_takes_it(void **state) {
    world *w = *state;
    rs_peer h2;
    int listening = listener(w, 0x7f000002), fd = taken(w, listening, LONG_WAY, &h2);
    assert_int_equal(w->h1.ups, 1);
    assert_true(send_message(&w->h1, h2, data_fnsd()));
    hear(w, fd, hello_for_h2, HELLO, finished, sizeof finished);
    say(fd, hello_of_h2, HELLO);
    say(fd, finished, sizeof finished);
    wait_until(w, w->h1.messages == 1);
    assert_int_equal(w->h1.ups, 1);
    assert_int_equal(w->h1.downs, 0);
    close(fd);
    close(listening);
}

/* What one of before says is taken, and answered by what was said before. */
static void early__an_older_agent_is_heard(void **state) {
    world *w = *state;
    open_end(w, &w->h2, "h2", 0x7f000002, 22, LONG_WAY);
    int fd = opened(w, 0x7f000001, 0x7f000002);
    hear(w, fd, hello_of_h2, HELLO, NULL, 0);
    say(fd, hello_of_h1, HELLO);
    say(fd, finished, sizeof finished);
    wait_until(w, w->h2.messages == 1);
    assert_int_equal(w->h2.ups, 1);
    close(fd);
}

static void early__what_is_for_this_server_is_heard_at_once(void **state) {
    world *w = *state;
    uint8_t bytes[HELLO + sizeof finished];
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    int fd = opened(w, 0x7f000001, 0x7f000002);
    memcpy(bytes, hello_for_h2, HELLO);
    memcpy(bytes + HELLO, finished, sizeof finished);
    say(fd, bytes, sizeof bytes);
    wait_until(w, w->h2.messages == 1);
    hear(w, fd, hello_of_h2, HELLO, NULL, 0);
    close(fd);
}

/* On a short way, to one whose name is not known, and where it matters what it knows, the HELLO is waited for and says
 * for whom nothing is. */
static void early__only_where_it_is_worth_it_and_known_for_whom(void **state) {
    world *w = *state;
    rs_peer h2;
    for (unsigned i = 0; i < 3; i++) {
        int listening = listener(w, 0x7f000002), fd;
        uint8_t expected[HELLO];
        memcpy(expected, hello_of_h1, HELLO);
        if (i == 0) {
            fd = taken(w, listening, (rs_control_options){0}, &h2);
        } else if (i == 1) {
            w->matters = true;
            fd = taken(w, listening, (rs_control_options){.long_trip = 1, .carries = true}, &h2);
            expected[23] |= 0x20;
            w->matters = false;
        } else {
            open_end(w, &w->h1, "h1", 0x7f000001, 11, LONG_WAY);
            h2 = rs_peers_locate(&w->h1.peers, 0x7f000002, w->port);
            rs_control_want(w->h1.control, h2);
            wait_until(w, rs_control_stats_get(w->h1.control).opened == 1);
            fd = accepted(listening);
        }
        assert_int_equal(w->h1.ups, 0);
        assert_false(send_message(&w->h1, h2, data_fnsd()));
        hear(w, fd, expected, HELLO, NULL, 0);
        say(fd, hello_of_h2, HELLO);
        wait_until(w, w->h1.ups == 1);
        assert_true(send_message(&w->h1, h2, data_fnsd()));
        hear(w, fd, finished, sizeof finished, NULL, 0);
        close(fd);
        close(listening);
        close_end(&w->h1);
    }
}

/* ---------------------------------------------------------------------------------------------- somebody else there */

/* Who answers is another server: it takes nothing of what is not for it, and at the next attempts its HELLO is waited
 * for, so that the reason is told. When the right one is there all is well. */
static void early__another_server_takes_nothing(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, LONG_WAY);
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    rs_peer h7 = know(&w->h1, "h7", w->h2.address, w->port);
    rs_control_want(w->h1.control, h7);
    wait_until(w, w->h1.ups == 1);
    assert_true(send_message(&w->h1, h7, data_fnsd()));
    wait_until(w, w->h1.downs >= 3);
    assert_non_null(strstr(w->h1.cause, "another server answers there: \"h2\""));
    assert_int_equal(w->h1.ups, 1);
    assert_int_equal(w->h2.messages, 0);
    assert_true(rs_control_stats_get(w->h1.control).unreached >= 3);
    close_end(&w->h2);
    open_end(w, &w->h2, "h7", 0x7f000002, 77, (rs_control_options){0});
    wait_until(w, w->h1.ups == 2);
    assert_true(send_message(&w->h1, h7, data_fnsd()));
    wait_until(w, w->h2.messages == 1);
}

/* The same of an agent of before, which does not look for whom it is; or one that lies, or says nothing that can be
 * read, or another version, or nothing at all. */
static void early__who_answers_wrongly_gets_no_more(void **state) {
    world *w = *state;
    uint8_t another_version[HELLO], own_name[HELLO];
    memcpy(another_version, hello_of_h2, HELLO);
    another_version[5] = 3;
    memcpy(own_name, hello_of_h1, HELLO);
    const struct {
        const uint8_t *says;
        size_t length;
        const char *cause;
    } cases[] = {{hello_of_h9, HELLO, "another server answers there: \"h9\""},
                 {another_version, HELLO, "speaks version 3"},
                 {own_name, HELLO, "it says that its name is"},
                 {finished, sizeof finished, "does not begin with HELLO"},
                 {(const uint8_t *)"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16, "not the control protocol"},
                 {NULL, 0, "no HELLO came"},
                 {NULL, 1, "it closed the connection"}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_peer h2;
        rs_control_options options = LONG_WAY;
        options.connect_timeout = cases[i].length == 0 ? 100 * RS_MILLISECOND : 0;
        int listening = listener(w, 0x7f000002), fd = taken(w, listening, options, &h2);
        assert_int_equal(w->h1.ups, 1);
        assert_true(send_message(&w->h1, h2, data_fnsd()));
        hear(w, fd, hello_for_h2, HELLO, finished, sizeof finished);
        if (cases[i].says)
            say(fd, cases[i].says, cases[i].length);
        else if (cases[i].length)
            close(fd);
        wait_until(w, w->h1.downs == 1);
        assert_non_null(strstr(w->h1.cause, cases[i].cause));
        assert_false(send_message(&w->h1, h2, data_fnsd()));
        wait_until(w, rs_control_stats_get(w->h1.control).opened == 2);
        int again = accepted(listening);
        assert_int_equal(w->h1.ups, 1);
        hear(w, again, hello_of_h1, HELLO, NULL, 0);
        say(again, hello_of_h2, HELLO);
        wait_until(w, w->h1.ups == 2);
        close(again); /* now that it has shown itself it is not doubted any more */
        wait_until(w, w->h1.downs == 2);
        rs_control_want(w->h1.control, h2);
        wait_until(w, rs_control_stats_get(w->h1.control).opened == 3);
        assert_int_equal(w->h1.ups, 3);
        again = accepted(listening);
        hear(w, again, hello_for_h2, HELLO, NULL, 0);
        close(again);
        if (cases[i].says || !cases[i].length)
            close(fd);
        close(listening);
        close_end(&w->h1);
    }
}

/* Its own connection, which came meanwhile, is used when this one ends. */
static void early__it_ends_and_the_peers_own_serves(void **state) {
    world *w = *state;
    rs_peer h2;
    int listening = listener(w, 0x7f000002), fd = taken(w, listening, LONG_WAY, &h2);
    int own = opened(w, 0x7f000002, 0x7f000001);
    say(own, hello_of_h2, HELLO);
    say(own, finished, sizeof finished);
    wait_until(w, w->h1.messages == 1);
    hear(w, own, hello_of_h1, HELLO, NULL, 0);
    assert_int_equal(w->h1.ups, 1);
    assert_true(send_message(&w->h1, h2, data_fnsd()));
    hear(w, fd, hello_for_h2, HELLO, finished, sizeof finished);
    close(fd);
    wait_until(w, w->h1.ups == 2);
    assert_int_equal(w->h1.downs, 1);
    assert_true(send_message(&w->h1, h2, data_fnsd()));
    hear(w, own, finished, sizeof finished, NULL, 0);
    close(own);
    close(listening);
}

/* Whatever stands in HELLO: it is for this server, or for nobody in particular, or the connection ends. */
static void early__garbage_in_hello(void **state) {
    world *w = *state;
    uint64_t random = 7;
    unsigned good = 0;
    printf("seed %llu\n", (unsigned long long)random);
    open_end(w, &w->h2, "h2", 0x7f000002, 22, LONG_WAY);
    for (unsigned i = 0; i < 300; i++) {
        uint8_t bytes[HELLO + sizeof finished];
        uint64_t drawn = rs_random_next(&random);
        memcpy(bytes, i % 3 ? hello_of_h1 : hello_for_h2, HELLO);
        memcpy(bytes + HELLO, finished, sizeof finished);
        if (i % 3 == 1)
            memcpy(bytes + 20, &drawn, 4);
        else
            bytes[20 + drawn % 4] ^= (uint8_t)(1u << (drawn >> 8) % 8);
        uint32_t engines = bytes[20] | (uint32_t)bytes[21] << 8 | (uint32_t)bytes[22] << 16 | (uint32_t)bytes[23] << 24;
        uint32_t is_for = engines & RS_HELLO_FOR;
        bool right = is_for == 0 || is_for == rs_wire_hello_for("h2");
        int fd = opened(w, 0x7f000001, 0x7f000002);
        say(fd, bytes, sizeof bytes);
        good += right;
        if (right)
            wait_until(w, w->h2.messages == good);
        else
            wait_until(w, hung_up(fd));
        close(fd);
        wait_until(w, rs_control_stats_get(w->h2.control).connections == 0);
        assert_int_equal(w->h2.messages, good);
    }
    printf("%u of 300 were taken\n", good);
    assert_in_range(good, 1, 299);
}

/* The names of a thousand servers are told apart. */
static void early__names_differ(void **state) {
    enum { SERVERS = 1000 };
    static uint32_t seen[SERVERS];
    unsigned same = 0;
    for (unsigned i = 0; i < SERVERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "host-%u.example", i);
        seen[i] = rs_wire_hello_for(name);
        assert_int_equal(seen[i] & ~RS_HELLO_FOR, 0);
        assert_int_not_equal(seen[i], 0);
        for (unsigned j = 0; j < i; j++)
            same += seen[i] == seen[j];
    }
    printf("%u pairs alike of %u\n", same, SERVERS * (SERVERS - 1) / 2);
    assert_true(same <= 3); /* 0.24 in the mean */
    assert_int_equal(rs_wire_hello_for("h1"), 0x1b311300);
    assert_int_equal(rs_wire_hello_for("h2"), 0x1b378600);
    assert_int_not_equal(rs_wire_hello_for(""), 0);
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        with_world(early__comes_up_before_the_hello_and_carries_both_ways),
        with_world(early__both_open_one),
        with_world(early__patches_wait_when_the_peer_is_slow),
        with_world(early__an_older_agent_takes_it),
        with_world(early__an_older_agent_is_heard),
        with_world(early__what_is_for_this_server_is_heard_at_once),
        with_world(early__only_where_it_is_worth_it_and_known_for_whom),
        with_world(early__another_server_takes_nothing),
        with_world(early__who_answers_wrongly_gets_no_more),
        with_world(early__it_ends_and_the_peers_own_serves),
        with_world(early__garbage_in_hello),
        cmocka_unit_test(early__names_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
