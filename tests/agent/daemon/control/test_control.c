/* The control channel between two agents' pools over loopback (agent/daemon/control). */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/manager/link_certificates.h"
#include "io/datagrams.h"
#include "io/guard.h"
#include <openssl/pem.h>

#define PATCHES 3000u /* more than two sockets' buffers hold */

static void control__connects_and_carries_messages_both_ways(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    rs_peer h1 = rs_peers_find(&w->h2.peers, "h1");
    assert_int_not_equal(h1, RS_NO_PEER);
    assert_true(send_message(&w->h1, h2, (rs_message){.type = RS_MSG_INTL_SEQ, .intl_seq = {.sn = 58}}));
    assert_true(send_message(&w->h2, h1, (rs_message){.type = RS_MSG_DATA_FNSD}));
    wait_until(w, w->h1.messages == 1 && w->h2.messages == 1);
    assert_int_equal(w->h2.last_type, RS_MSG_INTL_SEQ);
    assert_int_equal(w->h1.last_type, RS_MSG_DATA_FNSD);
    assert_int_equal(rs_control_stats_get(w->h2.control).connections, 1);
}

/* More than the socket takes at once: the core is told to stop, told to go on, and all arrives in order. */
static void control__patches_wait_when_the_peer_is_slow(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1);
    unsigned choked_before = 0;
    size_t most = 0;
    for (uint64_t sn = 0; sn < PATCHES; sn++) {
        while (w->h1.unwritable > w->h1.writable)
            turn_both(w); /* only now does h2 read */
        most = rs_control_waiting(w->h1.control) > most ? rs_control_waiting(w->h1.control) : most;
        assert_true(send_patch(w, &w->h1, h2, sn));
        choked_before = w->h1.unwritable;
    }
    wait_until(w, w->h2.messages == PATCHES);
    assert_int_equal(w->h2.payload_bytes, (uint64_t)PATCHES * FRAGMENT);
    assert_true(choked_before > 0);
    assert_true(most > 0);
    assert_int_equal(rs_control_waiting(w->h1.control), 0);
    assert_int_equal(w->h1.downs, 0);
}

/* An option of this process's connection to that address; -1: there is none. */
static int option_towards(uint32_t address, int level, int option) {
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in remote = {0};
        socklen_t length = sizeof remote, value_length = sizeof(int);
        int value = 0;
        if (getpeername(fd, (struct sockaddr *)&remote, &length) == 0 && remote.sin_family == AF_INET &&
            ntohl(remote.sin_addr.s_addr) == address && getsockopt(fd, level, option, &value, &value_length) == 0)
            return value;
    }
    return -1;
}

static int dscp_towards(uint32_t address) {
    return option_towards(address, IPPROTO_IP, IP_TOS) >> 2;
}

/* Whatever the kernel's clock, of which they are two ticks at least. A kernel without these options is not asked. */
static void lost_segments_and_acknowledgements__are_not_waited_for(void **state) {
    world *w = *state;
    int known = socket(AF_INET, SOCK_STREAM, 0), most = 20000, value = 0;
    socklen_t length = sizeof value;
    open_both(w);
    rs_control_want(w->h1.control, know(&w->h1, "h2", w->h2.address, w->port));
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    for (int option = 45; option <= 46; option++) { /* TCP_RTO_MIN_US, TCP_DELACK_MAX_US: Linux 6.15 */
        if (getsockopt(known, IPPROTO_TCP, option, &value, &length) < 0)
            continue;
        assert_in_range(option_towards(w->h1.address, IPPROTO_TCP, option), 1, most);
        assert_in_range(option_towards(w->h2.address, IPPROTO_TCP, option), 1, most);
    }
    close(known);
}

/* Messages are few and small and go before multicast, which would starve them at a full port; patches are as large as
 * objects, and do not. */
static void control__is_marked_but_while_patches_are_under_way(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    assert_int_equal(dscp_towards(w->h2.address), RS_DSCP_CONTROL);
    assert_int_equal(dscp_towards(w->h1.address), RS_DSCP_CONTROL);
    assert_true(send_patch(w, &w->h1, h2, 0));
    assert_int_equal(dscp_towards(w->h2.address), 0);
    assert_int_equal(dscp_towards(w->h1.address), RS_DSCP_CONTROL);
    wait_until(w, w->h2.messages == 1);
    wait_until(w, send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD}) &&
                      dscp_towards(w->h2.address) == RS_DSCP_CONTROL);
}

static void control__simultaneous_opens_both_serve(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port), h1 = know(&w->h2, "h1", w->h1.address, w->port);
    rs_control_want(w->h1.control, h2);
    rs_control_want(w->h2.control, h1);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1 && rs_control_stats_get(w->h1.control).connections == 2);
    for (unsigned i = 0; i < 5; i++) {
        assert_true(send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD}));
        assert_true(send_message(&w->h2, h1, (rs_message){.type = RS_MSG_DATA_FNSD}));
    }
    wait_until(w, w->h1.messages == 5 && w->h2.messages == 5);
    assert_int_equal(w->h1.downs + w->h2.downs, 0);
}

static void control__tries_again_until_the_peer_is_there(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){0});
    rs_peer h2 = know(&w->h1, "h2", 0x7f000002, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.downs >= 2);
    assert_non_null(strstr(w->h1.cause, "cannot connect to 127.0.0.2:"));
    assert_non_null(strstr(w->h1.cause, "refused"));
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    wait_until(w, w->h1.ups == 1);
}

/* A listener whose queue is full drops what knocks: as if the network had lost it. */
static int full_listener(const world *w, int waiting[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(w->port)};
    at.sin_addr.s_addr = htonl(0x7f000002);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 0), 0);
    for (int i = 0; i < 2; i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(waiting[i], (const struct sockaddr *)&at, sizeof at);
    }
    return listener;
}

static void control__a_lost_first_segment_is_sent_again_before_the_kernel_would(void **state) {
    world *w = *state;
    int waiting[2], first, listener = full_listener(w, waiting);
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){0});
    rs_control_want(w->h1.control, know(&w->h1, "h2", 0x7f000002, w->port));
    wait_until(w, rs_control_stats_get(w->h1.control).knocked == 1);
    assert_int_equal(rs_control_stats_get(w->h1.control).opened, 0);
    assert_true((first = accept(listener, NULL, NULL)) >= 0); /* room for one */
    wait_until(w, rs_control_stats_get(w->h1.control).opened == 1);
    assert_true(rs_control_stats_get(w->h1.control).knocked <= 5);
    assert_int_equal(rs_control_stats_get(w->h1.control).connections, 1);
    assert_int_equal(w->h1.downs, 0); /* nobody was told that it cannot be reached */
    close(first);
    close(waiting[0]);
    close(waiting[1]);
    close(listener);
}

/* What is on a long way is not lost: all attempts stay until one of them is answered, or the last is given up. */
static void control__attempts_that_may_still_be_answered_stay(void **state) {
    world *w = *state;
    int waiting[2], first, listener = full_listener(w, waiting);
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){.connect_timeout = 60 * RS_SECOND});
    rs_control_want(w->h1.control, know(&w->h1, "h2", 0x7f000002, w->port));
    wait_until(w, rs_control_stats_get(w->h1.control).knocked >= 3);
    assert_in_range(rs_control_stats_get(w->h1.control).connections, 4, 6);
    close(waiting[1]); /* it does not take the place */
    assert_true((first = accept(listener, NULL, NULL)) >= 0);
    wait_until(w, rs_control_stats_get(w->h1.control).opened == 1);
    assert_int_equal(rs_control_stats_get(w->h1.control).connections, 1);
    assert_int_equal(w->h1.downs, 0);
    close(first);
    close(waiting[0]);
    close(listener);
    close_end(&w->h1);

    listener = full_listener(w, waiting);
    open_end(w, &w->h1, "h1", 0x7f000001, 12, (rs_control_options){.connect_timeout = 300 * RS_MILLISECOND});
    rs_control_want(w->h1.control, know(&w->h1, "h2", 0x7f000002, w->port));
    wait_until(w, rs_control_stats_get(w->h1.control).knocked > 0 && w->h1.downs > 0 &&
                      rs_control_stats_get(w->h1.control).connections == 0); /* nothing is left of the others */
    assert_non_null(strstr(w->h1.cause, "no answer"));
    assert_int_equal(rs_control_stats_get(w->h1.control).broken, w->h1.downs); /* the last is told, and no other */
    close(waiting[0]);
    close(waiting[1]);
    close(listener);
}

static void control__stops_trying_after_its_bound(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){.want_bound = 300 * RS_MILLISECOND});
    rs_control_want(w->h1.control, know(&w->h1, "h2", 0, 0)); /* an address nobody told */
    wait_until(w, w->h1.downs == 1);
    assert_non_null(strstr(w->h1.cause, "address"));
    rs_control_want(w->h1.control, know(&w->h1, "h3", 0x7f000002, w->port));
    wait_until(w, rs_control_deadline(w->h1.control) == RS_NEVER);
    assert_true(w->h1.downs >= 2);
}

static void control__address_may_come_later(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", 0, 0);
    rs_control_want(w->h1.control, h2);
    turn_both(w);
    know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_address_known(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1);
}

static void control__restarted_peer_replaces_its_connection(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    close_end(&w->h2);
    wait_until(w, w->h1.downs == 1);
    assert_non_null(strstr(w->h1.cause, "closed the connection"));
    open_end(w, &w->h2, "h2", 0x7f000002, 23, (rs_control_options){0});
    rs_control_want(w->h2.control, know(&w->h2, "h1", w->h1.address, w->port));
    wait_until(w, w->h1.ups == 2 && w->h2.ups == 1);
    assert_true(send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD}));
    wait_until(w, w->h2.messages == 1);
}

static void control__wrong_name_is_refused(void **state) {
    world *w = *state;
    open_both(w);
    rs_control_want(w->h1.control, know(&w->h1, "h7", w->h2.address, w->port));
    wait_until(w, w->h1.downs == 1);
    assert_non_null(strstr(w->h1.cause, "another server answers"));
    assert_int_equal(w->h1.ups, 0);
}

static void control__own_name_is_refused(void **state) {
    world *w = *state;
    open_both(w);
    close_end(&w->h2);
    open_end(w, &w->h2, "h1", 0x7f000002, 22, (rs_control_options){0});
    rs_control_want(w->h2.control, know(&w->h2, "h3", w->h1.address, w->port));
    wait_until(w, w->h2.downs >= 1);
    assert_int_equal(w->h1.ups, 0);
}

static void control__malformed_message_closes_one_connection(void **state) {
    world *w = *state;
    open_both(w);
    w->h2.reject = true;
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD});
    wait_until(w, w->h1.downs == 1 && w->h2.downs == 1);
    assert_int_equal(rs_control_stats_get(w->h2.control).malformed, 1);
}

static void control__shortened_file_breaks_the_connection(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    assert_true(rs_guard_start()); /* as the data channel does in an agent */
    assert_int_equal(ftruncate(w->object_fd, 0), 0);
    assert_false(send_patch(w, &w->h1, h2, 3));
    assert_int_equal(w->h1.downs, 1);
    assert_non_null(strstr(w->h1.cause, "shorter"));
    rs_guard_stop();
    assert_int_equal(ftruncate(w->object_fd, FRAGMENT * FRAGMENTS), 0);
}

/* ------------------------------------------------------------------------------------------------------- strangers */

static int stranger(const world *w) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(w->port), .sin_addr = {htonl(0x7f000001)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* The other side ended the connection (whatever it said before). */
static bool hung_up(int fd) {
    char bytes[512];
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
}

static void control__garbage_is_closed_and_others_go_on(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1);
    uint8_t bytes[4][64];
    memset(bytes[0], 'x', 64);                   /* an absurd length */
    memset(bytes[1], 0, 64);                     /* a length of nothing */
    memset(bytes[2], 0xff, 64);                  /* the largest length */
    memcpy(bytes[3], "\x28\0\0\0\x07\0\0\0", 8); /* looks right, is too long for DATA_FNSD and comes before HELLO */
    memset(bytes[3] + 8, 0, 56);
    for (int i = 0; i < 4; i++) {
        int fd = stranger(w);
        assert_int_equal(send(fd, bytes[i], 64, MSG_NOSIGNAL), 64);
        wait_until(w, hung_up(fd));
        close(fd);
    }
    assert_true(send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD}));
    wait_until(w, w->h2.messages == 1);
    assert_int_equal(w->h1.downs, 0);
}

/* A name is no secret: one whose address is told is not taken from it. */
static void control__borrowed_name_is_refused_and_its_owner_goes_on(void **state) {
    world *w = *state;
    end impostor = {0};
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    open_end(w, &impostor, "h2", 0x7f000003, 33, (rs_control_options){0});
    rs_control_want(impostor.control, know(&impostor, "h1", w->h1.address, w->port));
    wait_until(w, impostor.downs >= 1);
    close_end(&impostor);
    assert_true(send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD}));
    wait_until(w, w->h2.messages == 1);
    assert_int_equal(w->h1.downs + w->h2.downs, 0);
}

/* A stranger at one of the loopback's addresses that says HELLO. */
static int stranger_by_name(const world *w, uint32_t from, uint32_t address, const char *name) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(from)}};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(w->port), .sin_addr = {htonl(address)}};
    uint8_t bytes[RS_HEADER_MAX];
    rs_message hello = {.type = RS_MSG_HELLO, .hello = {.engines = rs_engines_here(), .boot = 5}};
    hello.hello.name_length = (uint16_t)strlen(name);
    memcpy(hello.hello.name, name, strlen(name));
    size_t length = rs_wire_encode(&hello, 0, bytes, sizeof bytes);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* An agent of another version is told why it is not heard, as text that every version can read. */
static void control__another_version_is_refused_with_a_reason(void **state) {
    world *w = *state;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(w->port), .sin_addr = {htonl(0x7f000002)}};
    uint8_t bytes[RS_HEADER_MAX], heard[2 * RS_HEADER_MAX];
    size_t have = 0, header_length;
    uint32_t payload_length;
    rs_message m = {.type = RS_MSG_HELLO, .hello = {.engines = rs_engines_here(), .boot = 5, .name_length = 2}};
    memcpy(m.hello.name, "h9", 2);
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    size_t length = rs_wire_encode(&m, 0, bytes, sizeof bytes);
    bytes[5] = RS_WIRE_VERSION + 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    bool told = false;
    for (ssize_t got = -1; got != 0 && have < sizeof heard;) { /* until it hangs up */
        turn_both(w);
        got = recv(fd, heard + have, sizeof heard - have, 0);
        have += got > 0 ? (size_t)got : 0;
    }
    for (size_t at = 0; rs_wire_frame(heard + at, have - at, &header_length, &payload_length) == 1; at += header_length)
        if (rs_wire_decode(heard + at, header_length, 0, &m) && m.type == RS_MSG_ABORT)
            told = strstr(m.abort.cause.text, "speaks version 3 of the wire and h2 speaks version 2") != NULL;
    assert_true(told);
    close(fd);
}

/* Who comes first by a name does not keep its owner out, nor does the owner's coming help the first. */
static void control__the_first_to_use_a_name_does_not_keep_its_owner_out(void **state) {
    world *w = *state;
    end impostor = {0};
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    open_end(w, &impostor, "h1", 0x7f000003, 33, (rs_control_options){0});
    rs_control_want(impostor.control, know(&impostor, "h2", w->h2.address, w->port));
    wait_until(w, impostor.ups == 1 && w->h2.ups == 1);
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){0});
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 2);
    assert_true(send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD}));
    wait_until(w, w->h2.messages == 1);
    assert_int_equal(w->h1.downs + w->h2.downs + impostor.downs, 0); /* each speaks for itself */

    /* The manager tells where h1 is: it keeps its number, and nobody else has the name. */
    rs_peer h1 = rs_peers_at(&w->h2.peers, "h1", w->h1.address);
    assert_int_equal(rs_control_address(w->h2.control, h1), w->h1.address);
    rs_peers_told(&w->h2.peers, h1, w->h1.address, 9, 0);
    rs_control_address_known(w->h2.control, h1);
    wait_until(w, impostor.downs == 1);
    assert_int_equal(rs_peers_find(&w->h2.peers, "h1"), h1);
    assert_true(rs_control_is_up(w->h2.control, h1));
    assert_int_equal(w->h1.downs, 0);
    int fd = stranger_by_name(w, 0x7f000003, w->h2.address, "h1");
    wait_until(w, hung_up(fd));
    close(fd);
    assert_true(send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD}));
    wait_until(w, w->h2.messages == 2);
    close_end(&impostor);
}

/* The same when h2 had wanted h1, by its name alone, before anybody came. */
static void control__an_address_told_later_ends_who_had_the_name(void **state) {
    world *w = *state;
    end impostor = {0};
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    rs_peer h1 = rs_peers_number(&w->h2.peers, "h1");
    open_end(w, &impostor, "h1", 0x7f000003, 33, (rs_control_options){0});
    rs_control_want(impostor.control, know(&impostor, "h2", w->h2.address, w->port));
    wait_until(w, impostor.ups == 1 && w->h2.ups == 1);
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){0});
    assert_int_equal(know(&w->h2, "h1", w->h1.address, w->port), h1);
    rs_control_address_known(w->h2.control, h1);
    wait_until(w, impostor.downs == 1 && w->h2.downs == 1);
    rs_control_want(w->h2.control, h1);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 2);
    assert_int_equal(rs_control_address(w->h2.control, h1), w->h1.address);
    close_end(&impostor);
}

/* 100 HELLOs from one address, and more from others than there are places: who is needed gets in all the same, both
 * ways, and who is of use stays. */
static void control__hellos_do_not_block_those_who_are_needed(void **state) {
    world *w = *state;
    enum { ONE = 100, OTHERS = 96, PLACES = 32 };
    int fds[ONE + OTHERS];
    char name[32];
    end h3 = {0};
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){.max_connections = PLACES});
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    rs_control_want(w->h2.control, know(&w->h2, "h1", w->h1.address, w->port));
    wait_until(w, w->h2.ups == 1 && w->h1.ups == 1);
    rs_peer h2 = rs_peers_find(&w->h1.peers, "h2");
    rs_peers_hold(&w->h1.peers, h2); /* as a transfer does */
    for (int i = 0; i < ONE + OTHERS; i++) {
        snprintf(name, sizeof name, "s%d", i);
        fds[i] = stranger_by_name(w, 0x7f000009 + (i < ONE ? 0u : (uint32_t)(i - ONE) / 8 + 1), w->h1.address, name);
        wait_until(w, rs_control_stats_get(w->h1.control).accepted + rs_control_stats_get(w->h1.control).refused ==
                          (uint64_t)i + 2);
        if (i == ONE - 1)
            assert_true(rs_control_stats_get(w->h1.control).connections <= 17); /* of one address, and h2 */
        assert_true(rs_control_stats_get(w->h1.control).connections <= PLACES);
    }
    open_end(w, &h3, "h3", 0x7f000003, 33, (rs_control_options){0});
    rs_control_want(h3.control, know(&h3, "h1", w->h1.address, w->port)); /* somebody new has something for us */
    wait_until(w, h3.ups == 1);
    assert_true(send_message(&h3, rs_peers_find(&h3.peers, "h1"), (rs_message){.type = RS_MSG_DATA_FNSD}));
    wait_until(w, w->h1.messages == 1);
    end h4 = {0};
    open_end(w, &h4, "h4", 0x7f000004, 44, (rs_control_options){0});
    rs_control_want(w->h1.control, know(&w->h1, "h4", h4.address, w->port)); /* and we for somebody */
    wait_until(w, h4.ups == 1);
    assert_int_equal(w->h2.downs, 0);
    assert_true(rs_control_is_up(w->h1.control, h2));
    rs_peers_release(&w->h1.peers, h2);
    for (int i = 0; i < ONE + OTHERS; i++)
        close(fds[i]);
    close_end(&h3);
    close_end(&h4);
}

/* One that says HELLO and then nothing that is of use is closed long before the idle bound; one whose address is told
 * is not. */
static void control__who_is_of_no_use_is_closed_soon(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){.use_bound = 200 * RS_MILLISECOND});
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h2.control, know(&w->h2, "h1", w->h1.address, w->port));
    int fd = stranger_by_name(w, 0x7f000009, w->h1.address, "stranger");
    wait_until(w, w->h1.ups == 2);
    wait_until(w, hung_up(fd));
    close(fd);
    wait_until(w, rs_control_stats_get(w->h1.control).connections == 1);
    assert_int_equal(w->h2.downs, 0);
}

/* Of many connections a part is looked at each time, and all of them in the end. */
static void control__many_of_no_use_are_all_closed(void **state) {
    world *w = *state;
    enum { MANY = 320 };
    int fds[MANY];
    char name[32];
    open_end(w, &w->h1, "h1", 0x7f000001, 11,
             (rs_control_options){.max_connections = 2 * MANY, .use_bound = 200 * RS_MILLISECOND});
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    rs_control_want(w->h2.control, know(&w->h2, "h1", w->h1.address, w->port));
    know(&w->h1, "h2", w->h2.address, w->port);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "s%d", i);
        fds[i] = stranger_by_name(w, 0x7f000009 + (uint32_t)i / 8, w->h1.address, name);
        wait_until(w, w->h1.ups == (unsigned)i + 2);
    }
    wait_until(w, rs_control_stats_get(w->h1.control).connections == 1);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    assert_int_equal(w->h2.downs, 0);
    int again = stranger_by_name(w, 0x7f000009, w->h1.address, "again"); /* its address has places again */
    wait_until(w, w->h1.ups == MANY + 2);
    close(again);
}

static void control__silent_stranger_is_closed(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){.connect_timeout = 100 * RS_MILLISECOND});
    int fd = stranger(w);
    wait_until(w, rs_control_stats_get(w->h1.control).accepted == 1);
    wait_until(w, hung_up(fd));
    close(fd);
    wait_until(w, rs_control_stats_get(w->h1.control).connections == 0);
}

static void control__connections_are_capped(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){.max_connections = 3});
    int fds[5];
    for (int i = 0; i < 5; i++)
        fds[i] = stranger(w);
    wait_until(w, rs_control_stats_get(w->h1.control).evicted == 2); /* the oldest go: a HELLO comes at once */
    assert_int_equal(rs_control_stats_get(w->h1.control).connections, 3);
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    wait_until(w, rs_control_stats_get(w->h1.control).connections == 0);
}

static void control__idle_connection_is_closed(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){.idle_timeout = 200 * RS_MILLISECOND});
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
    rs_control_want(w->h1.control, know(&w->h1, "h2", w->h2.address, w->port));
    wait_until(w, w->h1.ups == 1);
    wait_until(w, w->h1.downs == 1 && w->h2.downs == 1);
    assert_int_equal(rs_control_stats_get(w->h1.control).connections, 0);
}

static void control__port_in_use_is_explained(void **state) {
    world *w = *state;
    open_both(w);
    char error[RS_CONNECTION_TEXT] = "";
    rs_peers peers = {0};
    const rs_control_options options = {
        .loop = w->loop, .peers = &peers, .server = "h9", .address = 0x7f000001, .port = w->port};
    const rs_control_callbacks callbacks = {0};
    assert_null(rs_control_new(&options, &callbacks, error));
    assert_non_null(strstr(error, "127.0.0.1"));
    assert_non_null(strstr(error, "in use"));
}

/* A stranger took a name and went; a send to that name, and the agent whose name it is, mean the same server. */
static void peers__a_name_that_a_stranger_had_is_its_owners_again(void **state) {
    (void)state;
    rs_peers peers = {0};
    rs_peers_claim(&peers, "h3", 0x0a000009);
    rs_peer sent_to = rs_peers_number(&peers, "h3");
    rs_peers_hold(&peers, sent_to);
    assert_int_equal(rs_peers_claim(&peers, "h3", 0x0a000003), sent_to);
    assert_int_equal(rs_peers_at(&peers, "h3", 0x0a000003), sent_to);
    rs_peers_free(&peers);
    /* and while the stranger's name is still there, the one that is connected is meant */
    rs_peers_claim(&peers, "h3", 0x0a000009);
    rs_peer owner = rs_peers_claim(&peers, "h3", 0x0a000003);
    rs_peers_hold(&peers, owner);
    assert_int_equal(rs_peers_number(&peers, "h3"), owner);
    assert_int_equal(rs_peers_at(&peers, "h3", 0x0a000003), owner);
    rs_peers_free(&peers);
}

/* ------------------------------------------------------------------------------------------------ certificates */

static credentials authority;

static void issue(const world *w, const char *name, const char *alternative, const credentials *issuer) {
    credentials c = credentials_make(&(certificate_wish){.name = name, .alternative = alternative}, issuer);
    credentials_write(w->folder, name, &c, NULL);
    credentials_free(&c);
}

static int set_up_tls(void **state) {
    static const char *const names[] = {"h1", "h2", "h3"};
    assert_int_equal(set_up(state), 0);
    world *w = *state;
    snprintf(w->folder, sizeof w->folder, "/tmp/test_control.XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    authority = credentials_make(&(certificate_wish){.name = "ca"}, NULL);
    credentials_write(w->folder, "ca", &authority, NULL);
    for (unsigned i = 0; i < 3; i++) {
        char alternative[64];
        snprintf(alternative, sizeof alternative, "URI:rostrum:agent:%s,DNS:%s", names[i], names[i]);
        issue(w, names[i], alternative, &authority);
    }
    issue(w, "alice", "URI:rostrum:operator:h1,DNS:h1", &authority);
    issue(w, "blue", "URI:rostrum:agent:h1,URI:rostrum:tenant:blue,DNS:h1", &authority);
    credentials other = credentials_make(&(certificate_wish){.name = "other"}, NULL);
    issue(w, "stranger", "URI:rostrum:agent:h1", &other);
    credentials_free(&other);
    return 0;
}

static int tear_down_tls(void **state) {
    static const char *const files[] = {"ca", "h1", "h2", "h3", "alice", "blue", "stranger"};
    world *w = *state;
    char path[80];
    for (unsigned i = 0; i < 14; i++) {
        snprintf(path, sizeof path, "%s/%s.%s", w->folder, files[i / 2], i % 2 ? "key" : "pem");
        assert_int_equal(remove(path), 0);
    }
    assert_int_equal(rmdir(w->folder), 0);
    credentials_free(&authority);
    return tear_down(state);
}

/* Who shows what is not its own, or nothing, is refused, by whomever the connection was opened. */
static void tls__speaks_for_whom_the_certificate_names(void **state) {
    world *w = *state;
    static const char *const shown[] = {"h3", "alice", "stranger", "blue", ""};
    static const char *const words[] = {"certificate is for", "certificate is for", "not signed by the CA",
                                        "of another tenant (blue)", "TLS"};
    for (unsigned i = 0; i < 10; i++) {
        unsigned which = i / 2;
        if (shown[which][0])
            show(w, &w->h1, shown[which]);
        char folder[sizeof w->folder];
        memcpy(folder, w->folder, sizeof folder);
        w->folder[0] = shown[which][0] ? w->folder[0] : '\0';
        open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){0});
        memcpy(w->folder, folder, sizeof folder);
        open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){0});
        end *opens = i % 2 ? &w->h1 : &w->h2, *other = i % 2 ? &w->h2 : &w->h1;
        rs_peer peer = know(opens, i % 2 ? "h2" : "h1", other->address, w->port);
        rs_control_want(opens->control, peer);
        wait_until(w, opens->downs > 0);
        assert_int_equal(w->h2.ups, 0);
        const bool both = strcmp(shown[which], "blue") == 0; /* refuse each other: whichever is first */
        if (opens == &w->h2 && !strstr(opens->cause, words[which]) && !(both && strstr(opens->cause, "closed")))
            fail_msg("%s: %s", shown[which], opens->cause);
        close_end(&w->h1);
        close_end(&w->h2);
    }
}

/* The CA's file says who is revoked: what is open to that one ends, and it is refused. */
static void tls__who_is_revoked_is_refused_from_then_on(void **state) {
    world *w = *state;
    open_both(w);
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.ups == 1 && w->h2.ups == 1);
    char path[80];
    snprintf(path, sizeof path, "%s/h1.pem", w->folder);
    FILE *file = fopen(path, "r");
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    X509_CRL *list = X509_CRL_new();
    X509_REVOKED *one = X509_REVOKED_new();
    ASN1_TIME *at = X509_gmtime_adj(NULL, -60), *until = X509_gmtime_adj(NULL, 3600);
    assert_true(X509_CRL_set_version(list, 1) &&
                X509_CRL_set_issuer_name(list, X509_get_subject_name(authority.certificate)) &&
                X509_CRL_set1_lastUpdate(list, at) && X509_CRL_set1_nextUpdate(list, until) &&
                X509_REVOKED_set_serialNumber(one, X509_get_serialNumber(certificate)) &&
                X509_REVOKED_set_revocationDate(one, at) && X509_CRL_add0_revoked(list, one) &&
                X509_CRL_sign(list, authority.key, EVP_sha256()) > 0);
    snprintf(path, sizeof path, "%s/ca.pem", w->folder);
    file = fopen(path, "a");
    assert_int_equal(PEM_write_X509_CRL(file, list), 1);
    fclose(file);
    X509_CRL_free(list);
    ASN1_TIME_free(at);
    ASN1_TIME_free(until);
    X509_free(certificate);
    wait_until(w, w->h2.downs > 0);
    assert_non_null(strstr(w->h2.cause, "revoked"));
    close_end(&w->h1);
    unsigned ups = w->h2.ups;
    open_end(w, &w->h1, "h1", 0x7f000001, 12, (rs_control_options){0});
    h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, w->h1.downs > 0 && strstr(w->h1.cause, "revoked"));
    assert_int_equal(w->h2.ups, ups);
}

/* A name is proven by its certificate: nothing is said before. */
static void tls__nothing_goes_before_it_is_proven_who_is_there(void **state) {
    world *w = *state;
    open_end(w, &w->h1, "h1", 0x7f000001, 11, (rs_control_options){.long_trip = 1});
    open_end(w, &w->h2, "h2", 0x7f000002, 22, (rs_control_options){.long_trip = 1});
    rs_peer h2 = know(&w->h1, "h2", w->h2.address, w->port);
    rs_control_want(w->h1.control, h2);
    wait_until(w, rs_control_stats_get(w->h1.control).opened == 1);
    assert_int_equal(w->h1.ups, 0);
    assert_false(send_message(&w->h1, h2, (rs_message){.type = RS_MSG_DATA_FNSD}));
    wait_until(w, w->h1.ups == 1);
    assert_int_equal(w->h1.downs, 0);
}

#define by_tls(test) \
    { #test " by TLS", test, set_up_tls, tear_down_tls, NULL }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers__a_name_that_a_stranger_had_is_its_owners_again),
        with_world(control__connects_and_carries_messages_both_ways),
        with_world(control__patches_wait_when_the_peer_is_slow),
        with_world(lost_segments_and_acknowledgements__are_not_waited_for),
        with_world(control__is_marked_but_while_patches_are_under_way),
        with_world(control__simultaneous_opens_both_serve),
        with_world(control__tries_again_until_the_peer_is_there),
        with_world(control__a_lost_first_segment_is_sent_again_before_the_kernel_would),
        with_world(control__attempts_that_may_still_be_answered_stay),
        with_world(control__stops_trying_after_its_bound),
        with_world(control__address_may_come_later),
        with_world(control__restarted_peer_replaces_its_connection),
        with_world(control__wrong_name_is_refused),
        with_world(control__own_name_is_refused),
        with_world(control__malformed_message_closes_one_connection),
        with_world(control__shortened_file_breaks_the_connection),
        with_world(control__garbage_is_closed_and_others_go_on),
        with_world(control__borrowed_name_is_refused_and_its_owner_goes_on),
        with_world(control__the_first_to_use_a_name_does_not_keep_its_owner_out),
        with_world(control__another_version_is_refused_with_a_reason),
        with_world(control__an_address_told_later_ends_who_had_the_name),
        with_world(control__hellos_do_not_block_those_who_are_needed),
        with_world(control__who_is_of_no_use_is_closed_soon),
        with_world(control__many_of_no_use_are_all_closed),
        with_world(control__silent_stranger_is_closed),
        with_world(control__connections_are_capped),
        with_world(control__idle_connection_is_closed),
        with_world(control__port_in_use_is_explained),
        by_tls(control__connects_and_carries_messages_both_ways),
        by_tls(control__patches_wait_when_the_peer_is_slow),
        by_tls(control__simultaneous_opens_both_serve),
        by_tls(control__tries_again_until_the_peer_is_there),
        by_tls(control__restarted_peer_replaces_its_connection),
        by_tls(control__malformed_message_closes_one_connection),
        by_tls(control__shortened_file_breaks_the_connection),
        by_tls(control__idle_connection_is_closed),
        by_tls(control__silent_stranger_is_closed),
        by_tls(control__garbage_is_closed_and_others_go_on),
        by_tls(tls__speaks_for_whom_the_certificate_names),
        by_tls(tls__nothing_goes_before_it_is_proven_who_is_there),
        by_tls(tls__who_is_revoked_is_refused_from_then_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
