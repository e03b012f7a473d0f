/* NACKs of many receivers go up a tree (docs/wan.md, "Many receivers"). */
#include "check.h"
#include "net.h"

#include <stdio.h>
#include <string.h>

#include "core/base/random.h"
#include "core/wan/collector.h"

#define SIZE (UINT64_C(24) << 20)
#define FRAGMENT 1400
#define SERVERS 23u
#define RATE INT64_C(400000000)

/* Racks of four, by their numbers. */
static rs_peer peer_at(void *context, uint32_t address, uint16_t port) {
    (void)context, (void)port;
    return (address & 0xffff) - 1;
}

static bool place_of(void *context, rs_peer peer, uint32_t *address, uint16_t *port) {
    (void)context;
    peer = peer == RS_NO_PEER ? 0 : peer; /* only the sender asks for its own */
    *address = (peer / 4) << 16 | (peer + 1);
    *port = 7071;
    return true;
}

static uint32_t old_from, old_count; /* agents that know no REPORT_TO */

static bool knows_tree(void *context, rs_peer peer) {
    (void)context;
    return peer < old_from || peer >= old_from + old_count;
}

typedef struct {
    uint64_t at_sender;      /* statuses with NACKs */
    uint64_t at_receivers;   /* the same */
    uint64_t from[SERVERS];  /* at the sender, by whom */
    uint32_t speaks_most;    /* for so many receivers one of them spoke */
    bool is_parent[SERVERS]; /* others' NACKs came there */
} seen;

static void watch(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                  size_t length, void *context) {
    seen *s = context;
    rs_wan_status status;
    (void)n;
    if (channel != RS_CH_PEER_DATAGRAM || !arrives || !rs_wan_decode_status(header, length, &status) ||
        status.nack_count == 0)
        return;
    s->at_sender += to == 0;
    s->at_receivers += to != 0;
    s->from[from] += to == 0;
    if (to == 0 && status.receivers > s->speaks_most)
        s->speaks_most = status.receivers;
    s->is_parent[to] |= to != 0;
}

static net *begin(uint32_t direct, uint64_t seed, seen *s) {
    const rs_config config = {
        .fragment_size = FRAGMENT,
        .nic_rate_bps = RATE,
        .direct_receivers = direct,
        .feedback_arity = 2,
        .directory = {.peer_at = peer_at, .place_of = place_of, .knows_tree = knows_tree, .host_bits = 16}};
    net *n = net_new(SERVERS, &config, seed);
    net_knobs *k = net_knob(n);
    printf("seed %llu\n", (unsigned long long)seed);
    *s = (seen){0};
    k->path.protocol = RS_PROTOCOL_WAN;
    k->data_delay = k->control_delay = k->connect_delay = 10 * MS;
    k->loss = k->peer_loss = 0.01;
    k->watch = watch;
    k->watch_context = s;
    net_send_all(n, 1, SIZE);
    return n;
}

static uint32_t whole(const net *n) {
    uint32_t count = 0;
    for (rs_peer i = 1; i < SERVERS; i++)
        count += net_has(n, i, 1);
    return count;
}

static void nacks_of_many__come_merged(void **state) {
    seen direct, tree;
    net *n = begin(SERVERS, 3, &direct);
    net_run(n, 60 * SEC);
    assert_int_equal(whole(n), SERVERS - 1);
    rs_time alone = net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START;
    net_free(n);
    n = begin(2, 3, &tree);
    net_run(n, 60 * SEC);
    assert_int_equal(whole(n), SERVERS - 1);
    rs_time merged = net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->at - NET_START;
    net_free(n);
    printf("to the sender %llu, merged %llu; to receivers %llu; one spoke for %u; %.3f s, %.3f s\n",
           (unsigned long long)direct.at_sender, (unsigned long long)tree.at_sender,
           (unsigned long long)tree.at_receivers, tree.speaks_most, (double)alone / 1e9, (double)merged / 1e9);
    assert_int_equal(direct.at_receivers, 0);
    assert_true(tree.at_receivers > 50);
    assert_true(tree.at_sender * 2 < direct.at_sender);
    assert_in_range(tree.speaks_most, 4, SERVERS);
    assert_true(merged < alone * 11 / 10);
    (void)state;
}

static rs_peer a_parent(const seen *s) {
    for (rs_peer i = 1; i < SERVERS; i++)
        if (s->is_parent[i])
            return i;
    return RS_NO_PEER;
}

/* Its data come and its control channel stands, but what it would pass on is gone: those below ask the sender. */
static void a_parent_that_passes_nothing_on__is_done_without(void **state) {
    seen s;
    net *n = begin(2, 5, &s);
    net_at(n, 200 * MS);
    rs_peer mute = a_parent(&s);
    assert_int_not_equal(mute, RS_NO_PEER);
    net_mute(n, mute, true);
    net_run(n, 60 * SEC);
    for (rs_peer i = 1; i < SERVERS; i++)
        assert_true(i == mute || net_has(n, i, 1));
    net_free(n);
    (void)state;
}

static void a_parent_that_dies__hands_those_below_on(void **state) {
    seen s;
    net *n = begin(2, 7, &s);
    net_at(n, 200 * MS);
    rs_peer dead = a_parent(&s);
    assert_int_not_equal(dead, RS_NO_PEER);
    uint32_t told = 0, again = 0;
    for (rs_peer i = 1; i < SERVERS; i++)
        told += net_messages(n, 0, i, RS_MSG_REPORT_TO);
    assert_int_equal(told, SERVERS - 1);
    net_kill(n, dead);
    net_run(n, 60 * SEC);
    for (rs_peer i = 1; i < SERVERS; i++) {
        again += net_messages(n, 0, i, RS_MSG_REPORT_TO);
        assert_true(i == dead || net_has(n, i, 1));
    }
    assert_true(again > told);
    net_free(n);
    (void)state;
}

static void agents_that_know_no_tree__ask_the_sender(void **state) {
    seen s;
    old_from = 5, old_count = 4;
    net *n = begin(2, 9, &s);
    net_run(n, 60 * SEC);
    assert_int_equal(whole(n), SERVERS - 1);
    for (rs_peer i = old_from; i < old_from + old_count; i++) {
        assert_int_equal(net_messages(n, 0, i, RS_MSG_REPORT_TO), 0);
        assert_false(s.is_parent[i]);
        assert_true(s.from[i] > 3);
    }
    old_count = 0;
    net_free(n);
    (void)state;
}

/* -------------------------------------------------------------------------------------------------- the collector */

static void mark(uint8_t *map, uint32_t at) {
    map[at / 8] |= (uint8_t)(1u << at % 8);
}

static void random_nacks__come_out_as_their_union(void **state) {
    uint64_t random = 11;
    printf("seed 11\n");
    rs_wan_collector c = {.parent = 1, .height = 2, .child_count = 1, .children = {2}};
    static uint8_t wanted[64][RS_WAN_SECTION / 8];
    rs_time now = 0;
    for (uint64_t section = 0; section < 64; section++) {
        uint32_t count = (uint32_t)(rs_random_next(&random) % 5);
        for (uint32_t i = 0; i < count; i++) {
            uint8_t map[RS_WAN_SECTION / 8] = {0};
            for (uint32_t k = 0; k < 1 + rs_random_next(&random) % 20; k++) {
                uint32_t at = (uint32_t)(rs_random_next(&random) % RS_WAN_SECTION);
                mark(map, at);
                mark(wanted[section], at);
            }
            rs_wan_nack nack;
            rs_wan_nack_of(section, map, &nack);
            if (i == 2) /* two came before it was over here */
                rs_wan_collect_over(&c, now, section, 100 * MS);
            rs_wan_collect(&c, now += MS / 4, &nack, 1, 100 * MS);
        }
        if (count < 3)
            rs_wan_collect_over(&c, now, section, 100 * MS);
        rs_wan_collected *kept = rs_wan_collected_of(&c, section);
        assert_int_equal(kept != NULL, count > 0);
        if (!kept)
            continue;
        assert_in_range(kept->due, 0, now + 50 * MS);
        assert_ptr_equal(rs_wan_collected_due(&c, kept->due), kept);
        assert_int_equal(kept->receivers, count);
        assert_memory_equal(kept->map, wanted[section], sizeof kept->map);
        kept->receivers = 0;
        now += 50 * MS;
    }
    (void)state;
}

/* Children that name what nobody has seen sent fill no more than the room, and push nothing out that is due. */
static void liars__take_no_more_than_the_room(void **state) {
    rs_wan_collector c = {.parent = 1, .height = 1, .child_count = 2, .children = {2, 3}};
    uint8_t map[RS_WAN_SECTION / 8] = {1};
    rs_wan_nack nack;
    rs_wan_collect_over(&c, 0, 0, 100 * MS);
    rs_wan_nack_of(0, map, &nack);
    rs_wan_collect(&c, 0, &nack, 1, 100 * MS);
    for (uint64_t section = 1; section < 100; section++) {
        rs_wan_nack_of(section, map, &nack);
        rs_wan_collect(&c, 0, &nack, UINT32_MAX, 100 * MS);
    }
    assert_non_null(rs_wan_collected_of(&c, 0));
    assert_in_range(rs_wan_collect_due(&c), 0, 50 * MS);
    assert_null(rs_wan_collected_due(&c, -1));
    assert_true(rs_wan_collects_from(&c, 3));
    assert_false(rs_wan_collects_from(&c, 4));
    (void)state;
}

static void a_parent_that_brings_nothing__is_left_alone_for_a_while(void **state) {
    rs_wan_collector c = {.parent = 1};
    for (int i = 0; i < 2; i++)
        rs_wan_parent_was(&c, 0, false, 100 * MS);
    rs_wan_parent_was(&c, 0, true, 100 * MS);
    for (int i = 0; i < 3; i++) {
        assert_true(rs_wan_has_parent(&c, 0));
        rs_wan_parent_was(&c, 0, false, 100 * MS);
    }
    assert_false(rs_wan_has_parent(&c, 1 * SEC));
    assert_true(rs_wan_has_parent(&c, 10 * SEC));
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nacks_of_many__come_merged),
        cmocka_unit_test(a_parent_that_passes_nothing_on__is_done_without),
        cmocka_unit_test(a_parent_that_dies__hands_those_below_on),
        cmocka_unit_test(agents_that_know_no_tree__ask_the_sender),
        cmocka_unit_test(random_nacks__come_out_as_their_union),
        cmocka_unit_test(liars__take_no_more_than_the_room),
        cmocka_unit_test(a_parent_that_brings_nothing__is_left_alone_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
