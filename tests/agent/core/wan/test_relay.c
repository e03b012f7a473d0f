/* A relay between sites: it takes an object by unicast and passes it on by multicast while it comes. */
#include "check.h"
#include "net.h"

#include <stdio.h>
#include <string.h>

#include "core/base/wire.h"
#include "core/wan/options.h"

#define SIZE (UINT64_C(12) << 20)
#define FRAGMENT 1400
#define FRAGMENTS ((SIZE - 1) / FRAGMENT + 1)
#define FRAGMENTS_MOST ((12 << 20) / FRAGMENT + 1)

static const rs_config config = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};
static const rs_path_grant wide = {.group = RS_NO_GROUP,
                                   .kind = RS_PATH_PACKET,
                                   .accepted_size = SIZE,
                                   .rate_bps = 200000000,
                                   .protocol = RS_PROTOCOL_WAN};

typedef struct {
    rs_peer relay;
    uint64_t given;           /* bytes that the relay may send on, from the first on */
    uint64_t from_home;       /* data packets by unicast from server 0 */
    uint64_t passed;          /* and by multicast from the relay, or by unicast to server 2, */
    uint64_t beyond;          /* of which so many have a gap before them */
    bool has[FRAGMENTS_MOST]; /* the relay has them */
} seen;

/* Nothing goes out that has not come in. */
static void watch(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                  size_t length, void *context) {
    seen *s = context;
    rs_data_header h;
    (void)n;
    if (!rs_wire_decode_data(header, length, &h))
        return;
    if (arrives && channel == RS_CH_PEER_DATAGRAM && to == s->relay)
        s->has[h.sn] = true;
    if (arrives)
        return;
    if (channel == RS_CH_PEER_DATAGRAM && from == 0)
        s->from_home++;
    if (channel == RS_CH_GROUP || (channel == RS_CH_PEER_DATAGRAM && from == s->relay && to == 2)) {
        assert_int_equal(from, s->relay);
        bool first = s->given == SIZE || (h.sn + 1) * FRAGMENT <= s->given;
        assert_true(first || s->has[h.sn]);
        s->beyond += !first;
        s->passed++;
    }
}

static net *seeded(uint32_t servers, seen *s, uint64_t seed) {
    net *n = net_new(servers, &config, seed);
    printf("seed %llu\n", (unsigned long long)seed);
    net_knobs *k = net_knob(n);
    memset(s, 0, sizeof *s);
    s->relay = 1;
    k->grant = false;
    k->data_delay = 25 * MS;
    k->control_delay = k->connect_delay = 25 * MS;
    k->watch = watch;
    k->watch_context = s;
    k->resumes = true;
    return n;
}

static net *network(uint32_t servers, seen *s) {
    return seeded(servers, s, 7);
}

static rs_xfer send_sized(net *n, rs_peer from, uint32_t count, const rs_peer *to, bool grows,
                          const rs_path_grant *path, uint64_t size) {
    const rs_send_params params = {.object = net_object(5),
                                   .size = size,
                                   .receivers = to,
                                   .receiver_count = count,
                                   .protocol = RS_PROTOCOL_WAN,
                                   .digest = {.algorithm = 1, .length = 16},
                                   .grows = grows,
                                   .beside = true};
    rs_xfer xfer = 0;
    rs_status status = rs_send_open(net_node(n, from), NET_START + net_now(n), &params, &xfer);
    net_call(n, from, status);
    net_grant(n, from, xfer, path);
    return xfer;
}

static rs_xfer send_by(net *n, rs_peer from, uint32_t count, const rs_peer *to, bool grows, const rs_path_grant *path) {
    return send_sized(n, from, count, to, grows, path, SIZE);
}

/* A step of the relay's agent: what has come may go on. */
static void pass_on(net *n, seen *s, rs_xfer in, rs_xfer out) {
    uint64_t bytes;
    if (rs_receive_prefix(net_node(n, s->relay), in, s->given == SIZE ? 0 : s->given, &bytes) == RS_OK)
        s->given = bytes;
    if (net_has(n, s->relay, 5))
        s->given = SIZE;
    rs_status status = rs_send_grown(net_node(n, s->relay), NET_START + net_now(n), out, s->given);
    if (status == RS_OK)
        net_call(n, s->relay, status);
    status = s->given < SIZE ? rs_send_comes_by(net_node(n, s->relay), NET_START + net_now(n), out, in) : RS_ERR_STATE;
    if (status == RS_OK)
        net_call(n, s->relay, status);
}

static rs_path_grant inside(void) {
    return (rs_path_grant){.group = NET_GROUP,
                           .group_address = 0xefff0000 + NET_GROUP,
                           .data_port = 7070,
                           .kind = RS_PATH_PACKET,
                           .accepted_size = SIZE,
                           .rate_bps = 900000000,
                           .protocol = RS_PROTOCOL_WAN};
}

static void an_object__goes_through_the_relay_once_and_while_it_comes(void **state) {
    seen s;
    net *n = network(4, &s);
    net_knob(n)->peer_loss = 0.01;
    const rs_peer relay = 1, members[] = {2, 3};
    send_by(n, 0, 1, &relay, false, &wide);
    rs_time at = 0, relay_done = 0;
    while (!net_receiving(n, 1))
        net_at(n, at += 10 * MS);
    rs_xfer in = net_receiving(n, 1);
    const rs_path_grant path = inside();
    rs_xfer out = send_by(n, 1, 2, members, true, &path);
    while (at < 60 * SEC && !(net_has(n, 2, 5) && net_has(n, 3, 5))) {
        net_at(n, at += 2 * MS);
        pass_on(n, &s, in, out);
        relay_done = relay_done == 0 && net_has(n, 1, 5) ? at : relay_done;
    }
    assert_true(net_has(n, 1, 5) && net_has(n, 2, 5) && net_has(n, 3, 5));
    assert_true(at < relay_done + 200 * MS); /* and not as long again */
    assert_in_range(s.from_home, FRAGMENTS, FRAGMENTS * 105 / 100);
    assert_in_range(s.passed, FRAGMENTS, FRAGMENTS * 105 / 100);
    net_free(n);
    (void)state;
}

/* Each section misses something until its NACK, half a second later: all else goes on to the next relay meanwhile. */
static void what_has_a_gap_before_it__goes_on_to_the_next_relay(void **state) {
    const rs_peer relay = 1, next = 2;
    rs_path_grant slow = wide, faster = wide;
    slow.rate_bps = 24000000;
    faster.rate_bps = 48000000;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        seen s;
        net *n = seeded(3, &s, seed);
        net_knob(n)->peer_loss = 0.02;
        send_by(n, 0, 1, &relay, false, &slow);
        rs_time at = 0, relay_done = 0;
        while (!net_receiving(n, 1))
            net_at(n, at += 10 * MS);
        rs_xfer in = net_receiving(n, 1), out = send_by(n, 1, 1, &next, true, &faster);
        while (at < 60 * SEC && !net_has(n, 2, 5)) {
            net_at(n, at += 2 * MS);
            pass_on(n, &s, in, out);
            relay_done = relay_done == 0 && net_has(n, 1, 5) ? at : relay_done;
        }
        assert_true(net_has(n, 1, 5) && net_has(n, 2, 5));
        assert_true(s.beyond > FRAGMENTS / 2);
        assert_true(at < relay_done + 400 * MS);
        assert_in_range(s.passed, FRAGMENTS, FRAGMENTS * 106 / 100);
        net_free(n);
    }
    (void)state;
}

/* Its receivers may be ready before anything has come. */
static void what_has_nothing_yet__waits(void **state) {
    seen s;
    net *n = network(3, &s);
    const rs_peer members[] = {2};
    const rs_path_grant path = inside();
    rs_xfer out = send_by(n, 1, 1, members, true, &path);
    net_at(n, 2 * SEC);
    assert_int_equal(s.passed, 0);
    s.given = SIZE;
    net_call(n, 1, rs_send_grown(net_node(n, 1), NET_START + net_now(n), out, SIZE));
    net_run(n, 30 * SEC);
    assert_true(net_has(n, 2, 5));
    net_free(n);
    (void)state;
}

/* Server 2 was a member of the site and becomes its relay: what it has by then does not cross the wide area again. */
static void a_relay_that_dies__is_followed_by_one_that_goes_on_where_it_was(void **state) {
    seen s;
    net *n = network(4, &s);
    const rs_peer relay = 1, next = 2, members[] = {2, 3}, last = 3;
    send_by(n, 0, 1, &relay, false, &wide);
    rs_time at = 0;
    while (!net_receiving(n, 1))
        net_at(n, at += 10 * MS);
    rs_xfer in = net_receiving(n, 1);
    const rs_path_grant path = inside();
    rs_xfer out = send_by(n, 1, 2, members, true, &path);
    while (s.given < SIZE / 2) {
        net_at(n, at += 2 * MS);
        pass_on(n, &s, in, out);
    }
    net_at(n, at += 60 * MS); /* what is on its way arrives */
    net_kill(n, 1);
    net_at(n, at += 200 * MS); /* the members' connections to it end */
    uint64_t before = s.from_home;
    s.relay = 2;
    s.given = 0;
    in = net_receiving(n, 2);
    send_by(n, 0, 1, &next, false, &wide);
    while (net_receiving(n, 2) == in)
        net_at(n, at += 10 * MS);
    in = net_receiving(n, 2);
    out = send_by(n, 2, 1, &last, true, &path);
    while (at < 60 * SEC && !(net_has(n, 2, 5) && net_has(n, 3, 5))) {
        net_at(n, at += 2 * MS);
        pass_on(n, &s, in, out);
    }
    assert_true(net_has(n, 2, 5) && net_has(n, 3, 5));
    const net_told *ended = net_event(n, 2, RS_EV_RECEIVE_DONE, 1);
    assert_true(ended && ended->event.replaced && !ended->event.ok);
    assert_in_range(s.from_home - before, FRAGMENTS * 40 / 100, FRAGMENTS * 60 / 100);
    net_free(n);
    (void)state;
}

/* All that goes to a dead relay goes once more to the one that follows it. Who only stood still gets the rest. */
static void who_is_not_heard__gets_nothing_new(void **state) {
    rs_path_grant slow = wide;
    slow.rate_bps = 20000000;
    for (int dies = 0; dies < 3; dies++) {
        seen s;
        net *n = network(2, &s);
        const rs_peer relay = 1;
        net_knob(n)->peer_loss = 0.01;
        send_by(n, 0, 1, &relay, false, &slow);
        rs_time at = 0;
        while (s.from_home < FRAGMENTS / 4)
            net_at(n, at += 10 * MS);
        if (dies == 2)
            net_kill(n, 1);
        else if (dies == 1)
            net_freeze(n, 1);
        else
            net_pause(n, 1, 1500 * MS);
        uint64_t before = s.from_home, in_ms = 20000000 / 8 / 1000 / FRAGMENT + 1;
        net_at(n, at += 1400 * MS);
        uint64_t most = dies == 2 ? 150 : 450; /* ms: a round trip of 50 ms and 50; two and 250; queues */
        assert_in_range(s.from_home - before, 1, in_ms * most);
        net_run(n, 60 * SEC);
        assert_true(net_has(n, 1, 5) == (dies == 0));
        net_free(n);
    }
    (void)state;
}

/* A firewall, or a translation of addresses that was forgotten: connections last, and the rest goes by them. */
static void a_path_that_lets_no_datagrams_through_any_more__holds_nobody_up(void **state) {
    rs_path_grant slow = wide;
    slow.rate_bps = 20000000;
    seen s;
    net *n = network(2, &s);
    const rs_peer to = 1;
    send_by(n, 0, 1, &to, false, &slow);
    rs_time at = 0;
    while (s.from_home < FRAGMENTS / 4)
        net_at(n, at += 10 * MS);
    net_knob(n)->peer_loss = 1;
    uint64_t before = s.from_home;
    while (at < 60 * SEC && !net_has(n, 1, 5))
        net_at(n, at += 10 * MS);
    assert_true(net_has(n, 1, 5));
    assert_in_range(s.from_home - before, 1, FRAGMENTS / 8);
    net_free(n);
    (void)state;
}

/* A switch that marks all that it lets through has a queue: the sender goes slower, by unicast and by multicast, and
 * what carries on is whole. */
static void marks_of_switches__slow_the_sender(void **state) {
    for (int multicast = 0; multicast < 2; multicast++) {
        rs_time took[2];
        for (int marks = 0; marks < 2; marks++) {
            seen s;
            net *n = network(3, &s);
            const rs_peer to[] = {1, 2};
            const rs_path_grant path = inside();
            s.relay = 0;
            s.given = SIZE;
            net_knob(n)->marks = marks;
            send_by(n, 0, multicast ? 2 : 1, to, false, multicast ? &path : &wide);
            rs_time at = 0;
            while (at < 600 * SEC && !(net_has(n, 1, 5) && (!multicast || net_has(n, 2, 5))))
                net_at(n, at += 10 * MS);
            took[marks] = at;
            net_free(n);
        }
        assert_true(took[0] < 5 * SEC);
        assert_true(took[1] > 2 * took[0] && took[1] < 600 * SEC);
    }
    (void)state;
}

/* As long as the first sender is there, nobody takes its place: the second asks until the object is there. One that
 * sends another object by that id is refused. */
static void another_sender_of_the_object__waits_for_what_comes_from_the_first(void **state) {
    for (int same = 0; same < 2; same++) {
        seen s;
        net *n = network(3, &s);
        const rs_peer to = 2;
        send_by(n, 0, 1, &to, false, &wide);
        rs_time at = 0;
        while (!net_receiving(n, 2))
            net_at(n, at += 10 * MS);
        send_sized(n, 1, 1, &to, false, &wide, SIZE - !same);
        net_at(n, at += SEC / 2);
        assert_false(net_has(n, 2, 5));
        assert_int_equal(net_event(n, 1, RS_EV_PEER_KEPT, 2) != NULL, same);
        while (at < 60 * SEC && !net_has(n, 2, 5))
            net_at(n, at += MS);
        assert_true(net_has(n, 2, 5));
        net_application(n, 2, APP_HAS_IT);
        net_run(n, at + 2 * SEC);
        const net_told *failed = net_event(n, 1, RS_EV_PEER_FAILED, 2);
        assert_int_equal(net_event(n, 1, RS_EV_PEER_DONE, 2) != NULL, same);
        assert_int_equal(failed && strstr(failed->event.cause, "another server is sending another object"), !same);
        assert_non_null(net_event(n, 0, RS_EV_PEER_DONE, 2));
        net_free(n);
    }
    (void)state;
}

/* Many sends share the bound, so one may have less of it than a section; it goes on as its fragments arrive. */
static void a_bound_of_less_than_a_section__holds_nobody_up(void **state) {
    for (int multicast = 0; multicast < 2; multicast++) {
        static const rs_wan_config least = {.memory = UINT64_C(1) << 20};
        rs_config narrow = config;
        narrow.options[RS_PROTOCOL_WAN] = &least;
        net *n = net_new(3, &narrow, 7);
        net_knobs *k = net_knob(n);
        k->grant = false;
        k->data_delay = k->control_delay = k->connect_delay = 5 * MS;
        k->loss = k->peer_loss = 0.01;
        const rs_peer to[] = {1, 2};
        const rs_path_grant path = inside();
        rs_xfer xfer = send_by(n, 0, multicast ? 2 : 1, to, true, multicast ? &path : &wide);
        net_call(n, 0, rs_send_grown(net_node(n, 0), NET_START, xfer, SIZE));
        for (rs_time at = 0; at < 60 * SEC && !(net_has(n, 1, 5) && (!multicast || net_has(n, 2, 5)));) {
            net_at(n, at += 10 * MS);
            rs_send_buffers b;
            assert_int_equal(rs_send_buffers_get(net_node(n, 0), RS_PROTOCOL_WAN, &b), RS_OK);
            assert_true(b.used <= b.bound && b.used_most <= b.bound && b.bound == least.memory);
        }
        assert_true(net_has(n, 1, 5) && (!multicast || net_has(n, 2, 5)));
        net_run(n, 120 * SEC);
        rs_send_buffers b;
        assert_int_equal(rs_send_buffers_get(net_node(n, 0), RS_PROTOCOL_WAN, &b), RS_OK);
        assert_true(b.used_most > 0);
        assert_int_equal(b.used, 0);
        assert_int_equal(b.sends, 0);
        net_free(n);
    }
    (void)state;
}

static void a_path_by_unicast__is_for_one_receiver(void **state) {
    seen s;
    net *n = network(3, &s);
    const rs_peer both[] = {1, 2};
    const rs_send_params params = {
        .object = net_object(5), .size = SIZE, .receivers = both, .receiver_count = 2, .protocol = RS_PROTOCOL_WAN};
    rs_xfer xfer = 0;
    net_call(n, 0, rs_send_open(net_node(n, 0), NET_START, &params, &xfer));
    assert_int_equal(rs_path_granted(net_node(n, 0), NET_START, xfer, &wide), RS_ERR_INVALID);
    net_free(n);
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object__goes_through_the_relay_once_and_while_it_comes),
        cmocka_unit_test(what_has_a_gap_before_it__goes_on_to_the_next_relay),
        cmocka_unit_test(what_has_nothing_yet__waits),
        cmocka_unit_test(a_relay_that_dies__is_followed_by_one_that_goes_on_where_it_was),
        cmocka_unit_test(who_is_not_heard__gets_nothing_new),
        cmocka_unit_test(a_path_that_lets_no_datagrams_through_any_more__holds_nobody_up),
        cmocka_unit_test(marks_of_switches__slow_the_sender),
        cmocka_unit_test(another_sender_of_the_object__waits_for_what_comes_from_the_first),
        cmocka_unit_test(a_bound_of_less_than_a_section__holds_nobody_up),
        cmocka_unit_test(a_path_by_unicast__is_for_one_receiver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
