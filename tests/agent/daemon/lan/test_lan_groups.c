/* Message groups without a manager, in virtual time: agents on a network that may lose packets, or multicast. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "daemon/lan/groups.h"

#define NODES 6u
#define PACKETS 4096u
#define DELAY (200 * INT64_C(1000))
#define MS (INT64_C(1000000))
#define SECOND (1000 * MS)
#define PORT 7072u

typedef struct {
    uint8_t bytes[RS_LAN_GROUP_MESSAGE];
    rs_time at;
    uint32_t from, to;
    bool multicast;
} packet;

typedef struct {
    rs_lan_groups *groups;
    rs_lan_known *peers;
    bool alive, multicast_blocked; /* what others send by multicast does not come here */
    uint64_t boot;
    /* what came of it */
    uint32_t views, members, senders, address, copies, said, answered;
    uint64_t version, joined; /* joined: the first version with itself as a member */
    uint64_t boots[NODES];    /* of who is in the view */
    char protocol[32], refused[300];
} node;

static node nodes[NODES];
static packet packets[PACKETS];
static uint32_t packet_count;
static rs_time now;
static double loss;
static uint64_t chance;

static uint32_t address_of(uint32_t index) {
    return 0x0a000001u + index;
}

static void put(uint32_t from, uint32_t to, const uint8_t *bytes, bool multicast) {
    if (rs_random_part(rs_random_next(&chance)) < loss || (multicast && nodes[to].multicast_blocked))
        return;
    assert_true(packet_count < PACKETS);
    packet *p = &packets[packet_count++];
    *p = (packet){.at = now + DELAY, .from = from, .to = to, .multicast = multicast};
    memcpy(p->bytes, bytes, sizeof p->bytes);
}

static void say(void *context, rs_lan_group_message *m, uint32_t address, uint16_t port) {
    node *n = context;
    uint32_t from = (uint32_t)(n - nodes);
    uint8_t bytes[RS_LAN_GROUP_MESSAGE];
    m->head.boot = n->boot;
    m->head.control_port = 7071;
    m->head.mtu = 1500;
    snprintf(m->head.name, sizeof m->head.name, "h%u", from);
    rs_lan_group_encode(m, bytes);
    n->said++;
    for (uint32_t to = 0; to < NODES; to++)
        if (to != from && (address == 0 || address == address_of(to)))
            put(from, to, bytes, address == 0);
    assert_true(address == 0 || port == PORT);
}

static uint32_t address_free(void *context, uint32_t wanted) {
    (void)context;
    return wanted;
}

static void on_copies(void *context, const char *group, const uint32_t *addresses, uint32_t count) {
    (void)group;
    (void)addresses;
    ((node *)context)->copies = count;
}

static void on_peer(void *context, const rs_manager_group_peer *peer) {
    ((node *)context)->boots[peer->address - address_of(0)] = peer->boot_id;
}

static void on_view(void *context, const rs_manager_group_view *view) {
    node *n = context;
    bool member = false;
    assert_true(view->full && view->version > n->version);
    n->views++;
    n->version = view->version;
    n->members = view->member_count;
    n->senders = view->sender_count;
    n->address = view->addresses[0];
    snprintf(n->protocol, sizeof n->protocol, "%s", view->options.protocol);
    for (uint32_t i = 0; i < view->member_count; i++)
        member |= view->members[i] == 0;
    n->joined = !member ? 0 : n->joined ? n->joined : view->version;
}

static void on_refused(void *context, const char *group, const char *reason) {
    (void)group;
    snprintf(((node *)context)->refused, sizeof nodes[0].refused, "%s", reason);
}

static int64_t wall_clock(void) {
    return 1800000000 * SECOND + now;
}

static void start(uint32_t index) {
    node *n = &nodes[index];
    uint64_t boot = n->boot + 1 + index;
    *n = (node){.alive = true, .boot = boot, .multicast_blocked = n->multicast_blocked};
    n->peers = calloc(RS_LAN_PEERS_MAX, sizeof *n->peers);
    for (uint32_t i = 0; i < NODES; i++) /* discovery knows them */
        n->peers[i] = (rs_lan_known){.used = i != index,
                                     .address = address_of(i),
                                     .lan_port = PORT,
                                     .control_port = 7071,
                                     .has_cookie = true,
                                     .heard = now,
                                     .multicast_heard = n->multicast_blocked ? 0 : now};
    const rs_manager_callbacks views = {
        .on_group_peer = on_peer, .on_group_view = on_view, .on_group_refused = on_refused, .context = n};
    char name[8];
    snprintf(name, sizeof name, "h%u", index);
    const rs_lan_groups_options options = {.server = name,
                                           .address = address_of(index),
                                           .control_port = 7071,
                                           .data_port = 7070,
                                           .boot = boot,
                                           .seed = index,
                                           .secret = 77 + index,
                                           .peers = n->peers,
                                           .views = &views,
                                           .context = n,
                                           .say = say,
                                           .address_free = address_free,
                                           .copies = on_copies,
                                           .wall_clock = wall_clock};
    n->groups = rs_lan_groups_new(&options);
    assert_non_null(n->groups);
}

static void stop(uint32_t index) {
    rs_lan_groups_free(nodes[index].groups);
    free(nodes[index].peers);
    nodes[index].groups = NULL;
    nodes[index].alive = false;
}

static void deliver(void) {
    for (uint32_t i = 0; i < packet_count;) {
        if (packets[i].at > now) {
            i++;
            continue;
        }
        packet p = packets[i];
        rs_lan_group_message m;
        packets[i] = packets[--packet_count];
        assert_true(rs_lan_group_decode(p.bytes, sizeof p.bytes, &m));
        if (!nodes[p.to].alive)
            continue;
        rs_lan_groups_heard(nodes[p.to].groups, now, &m, address_of(p.from), PORT, p.multicast);
    }
}

static void run(rs_time span) {
    rs_time until = now + span;
    while (now < until) {
        rs_time next = until;
        for (uint32_t i = 0; i < NODES; i++) {
            rs_time due = nodes[i].alive ? rs_lan_groups_deadline(nodes[i].groups) : RS_NEVER;
            next = due < next ? due : next;
        }
        for (uint32_t i = 0; i < packet_count; i++)
            next = packets[i].at < next ? packets[i].at : next;
        now = next > now ? next : now;
        deliver();
        for (uint32_t i = 0; i < NODES; i++)
            if (nodes[i].alive)
                rs_lan_groups_timeout(nodes[i].groups, now);
    }
}

static void call_as(uint32_t index, rs_manager_group_call call, const char *protocol, bool asked) {
    const rs_manager_group_options facts = {protocol, "none", ""};
    rs_lan_groups_call(nodes[index].groups, now, call, "ticks", &facts, asked);
}

static void call(uint32_t index, rs_manager_group_call what) {
    call_as(index, what, "plain", false);
}

static int begin(void **state) {
    const char *given = getenv("LAN_SEED");
    (void)state;
    chance = given ? strtoull(given, NULL, 0) : 20261123;
    print_message("LAN_SEED=%llu\n", (unsigned long long)chance);
    memset(nodes, 0, sizeof nodes);
    packet_count = 0;
    now = SECOND;
    loss = 0;
    for (uint32_t i = 0; i < NODES; i++)
        start(i);
    return 0;
}

static int end(void **state) {
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        if (nodes[i].alive)
            stop(i);
    return 0;
}

static void all_see(uint32_t members, uint32_t senders) {
    for (uint32_t i = 0; i < NODES; i++) {
        if (!nodes[i].alive || !nodes[i].views)
            continue;
        assert_int_equal(nodes[i].members, members);
        assert_int_equal(nodes[i].senders, senders);
        assert_int_equal(nodes[i].address, nodes[0].address);
        assert_string_equal(nodes[i].protocol, nodes[0].protocol);
        assert_int_equal(nodes[i].copies, 0);
    }
}

/* What is published once the join is over is owed to the new member: no version is below the one it joined with. */
static void groups__members_find_each_other(void **state) {
    (void)state;
    call(0, RS_MANAGER_GROUP_USE);
    run(300 * MS);
    for (uint32_t i = 1; i < NODES; i++) {
        call(i, RS_MANAGER_GROUP_JOIN);
        run(160 * MS);
        assert_true(nodes[i].joined > 0);
        for (uint32_t k = 0; k < i; k++)
            assert_true(nodes[k].version >= nodes[i].joined);
    }
    run(SECOND);
    all_see(NODES - 1, 1);
    assert_true((nodes[0].address & 0xffc00000u) == 0xefc00000u);
}

static void groups__all_at_once_and_founded_apart(void **state) {
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        call_as(i, RS_MANAGER_GROUP_JOIN, i == 3 ? "ricochet" : "plain", false);
    run(2 * SECOND);
    all_see(NODES, 0); /* of what it is, the older foundation holds */
}

/* A publisher goes on with its numbers: what it sent to the one before is owed to nobody of the one after. */
static void groups__one_of_the_same_name_has_later_versions(void **state) {
    (void)state;
    call(0, RS_MANAGER_GROUP_USE);
    call(1, RS_MANAGER_GROUP_JOIN);
    run(3 * SECOND);
    uint64_t before = nodes[0].version > nodes[1].version ? nodes[0].version : nodes[1].version;
    call(0, RS_MANAGER_GROUP_UNUSE);
    call(1, RS_MANAGER_GROUP_LEAVE);
    run(100 * MS);
    call(2, RS_MANAGER_GROUP_JOIN);
    run(100 * MS);
    nodes[0].version = 0; /* it was told to forget the group */
    call(0, RS_MANAGER_GROUP_USE);
    run(SECOND);
    assert_true(nodes[2].joined > before);
    assert_true(nodes[0].version >= nodes[2].joined);
}

static void groups__with_loss_all_know_of_all_in_time(void **state) {
    (void)state;
    loss = 0.3;
    for (uint32_t i = 0; i < NODES; i++) {
        call(i, RS_MANAGER_GROUP_JOIN);
        run(7 * MS);
    }
    run(25 * SECOND);
    loss = 0;
    run(30 * SECOND);
    all_see(NODES, 0);
}

static void groups__who_leaves_or_dies_is_out_and_who_starts_again_is_another(void **state) {
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        call(i, RS_MANAGER_GROUP_JOIN);
    run(SECOND);
    call(5, RS_MANAGER_GROUP_LEAVE);
    nodes[5].views = 0;
    run(10 * MS);
    all_see(NODES - 1, 0);
    stop(4);
    run(10 * SECOND);
    all_see(NODES - 1, 0); /* it may only be slow */
    run(35 * SECOND);
    all_see(NODES - 2, 0);
    uint64_t before = nodes[0].boots[3];
    stop(3);
    start(3);
    call(3, RS_MANAGER_GROUP_JOIN);
    run(160 * MS);
    assert_int_equal(nodes[0].members, NODES - 2);
    run(SECOND);
    all_see(NODES - 2, 0);
    assert_true(nodes[0].boots[3] != before && nodes[0].boots[3] == nodes[3].boot);
}

static void groups__roles_change(void **state) {
    (void)state;
    call(0, RS_MANAGER_GROUP_USE);
    call(1, RS_MANAGER_GROUP_JOIN);
    run(SECOND);
    all_see(1, 1);
    call(0, RS_MANAGER_GROUP_JOIN);
    run(160 * MS);
    assert_int_equal(nodes[1].members, 2);
    run(SECOND);
    all_see(2, 0);
    assert_true(nodes[1].version >= nodes[0].joined);
    call(0, RS_MANAGER_GROUP_LEAVE);
    run(10 * MS);
    all_see(1, 1);
    call(0, RS_MANAGER_GROUP_UNUSE);
    nodes[0].views = 0;
    run(10 * MS);
    assert_int_equal(nodes[1].members, 1);
    assert_int_equal(nodes[1].senders, 0);
}

static void groups__where_multicast_is_blocked_members_get_copies(void **state) {
    (void)state;
    for (uint32_t i = 0; i < NODES; i++) {
        stop(i);
        nodes[i].multicast_blocked = i >= 3;
        start(i);
    }
    for (uint32_t i = 0; i < NODES; i++)
        call(i, RS_MANAGER_GROUP_JOIN);
    run(SECOND);
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(nodes[i].members, NODES);
        assert_int_equal(nodes[i].copies, i < 3 ? 3 : 2);
    }
    nodes[3].multicast_blocked = false; /* heard again with the next message of each */
    run(12 * SECOND);
    assert_int_equal(nodes[0].copies, 2);
    nodes[1].multicast_blocked = true; /* and not any more: it asks those it has not heard for 12 s */
    run(25 * SECOND);
    assert_int_equal(nodes[0].copies, 3);
    run(60 * SECOND); /* nobody is out for that */
    assert_int_equal(nodes[0].members, NODES);
    assert_int_equal(nodes[1].members, NODES);
}

static void groups__other_options_are_refused(void **state) {
    (void)state;
    call_as(0, RS_MANAGER_GROUP_JOIN, "ricochet", true);
    run(200 * MS);
    call_as(1, RS_MANAGER_GROUP_JOIN, "plain", true);
    run(200 * MS);
    assert_non_null(strstr(nodes[1].refused, "ticks runs ricochet with order none, as 10.0.0.1 founded it"));
    assert_int_equal(nodes[1].views, 0);
    call(2, RS_MANAGER_GROUP_JOIN); /* as it is */
    run(200 * MS);
    assert_string_equal(nodes[2].protocol, "ricochet");
    assert_int_equal(nodes[0].members, 2);
}

/* Whoever cannot read what is sent to an address does not get it into a view, nor out of it; and nobody is made to say
 * more than is said to it. */
static void groups__forged_addresses_change_nothing(void **state) {
    (void)state;
    call(0, RS_MANAGER_GROUP_JOIN);
    call(1, RS_MANAGER_GROUP_JOIN);
    run(20 * SECOND);
    uint32_t views = nodes[0].views, said = nodes[0].said, forged = 0;
    for (unsigned turn = 0; turn < 2000; turn++) {
        rs_lan_group_message m = {.id = rs_lan_group_id("ticks"),
                                  .version = rs_random_next(&chance) >> 17,
                                  .founded = 1,
                                  .group = "ticks",
                                  .protocol = "ricochet",
                                  .order = "none"};
        m.head = (rs_lan_message){.type = RS_LAN_GROUP,
                                  .flags = (uint16_t)(rs_random_next(&chance) % 128),
                                  .nonce = rs_random_next(&chance),
                                  .cookie = rs_random_next(&chance) % 3,
                                  .boot = rs_random_next(&chance),
                                  .group = 0xefc12345u,
                                  .data_port = 7070,
                                  .control_port = 7071};
        uint32_t from = turn % 2 ? address_of(1) : 0x0a000100u + turn;
        rs_lan_groups_heard(nodes[0].groups, now, &m, from, PORT, turn % 3 == 0);
        forged++;
        packet_count = 0; /* whoever is at that address does not hear of it */
    }
    run(SECOND);
    assert_int_equal(nodes[0].members, 2);
    assert_string_equal(nodes[0].protocol, "plain");
    assert_true(nodes[0].views <= views + 1);
    assert_true(nodes[0].said - said <= forged + 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(groups__members_find_each_other, begin, end),
        cmocka_unit_test_setup_teardown(groups__all_at_once_and_founded_apart, begin, end),
        cmocka_unit_test_setup_teardown(groups__one_of_the_same_name_has_later_versions, begin, end),
        cmocka_unit_test_setup_teardown(groups__with_loss_all_know_of_all_in_time, begin, end),
        cmocka_unit_test_setup_teardown(groups__who_leaves_or_dies_is_out_and_who_starts_again_is_another, begin, end),
        cmocka_unit_test_setup_teardown(groups__roles_change, begin, end),
        cmocka_unit_test_setup_teardown(groups__where_multicast_is_blocked_members_get_copies, begin, end),
        cmocka_unit_test_setup_teardown(groups__other_options_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(groups__forged_addresses_change_nothing, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
