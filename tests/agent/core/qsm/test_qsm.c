/* QSM: groups that share a region, losses and corruption there, datagrams of strangers and nonsense, and what its state
 * takes. What every engine of groups must do: engines/test_group_engines.c. */
#include "cluster.h"

#include "core/qsm/rate.h"
#include "core/qsm/state.h"

#define NODES 12u
#define GROUPS 20u
#define REGION_CHANNEL 4000u /* a plain group of the cluster, whose channel the region has */
#define REGION 7u

static const uint32_t region_number = REGION;

static rs_messages_region region_view(const rs_peer *nodes, uint32_t count, uint64_t version) {
    return (rs_messages_region){.protocol = "qsm",
                                .options = "replicas=3",
                                .region = REGION,
                                .version = version,
                                .channel = REGION_CHANNEL,
                                .nodes = nodes,
                                .node_count = count};
}

static void tell_region(cluster *c, const rs_peer *nodes, uint32_t count, uint64_t version) {
    cluster_view(c, REGION_CHANNEL, nodes, count, &(rs_messages_view){.protocol = "plain"});
    rs_messages_region view = region_view(nodes, count, version);
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(rs_messages_set_region(cluster_node(c, i), cluster_now(c), &view), RS_OK);
    assert_int_equal(rs_messages_set_region(cluster_node(c, 0), cluster_now(c), &view), RS_ERR_STATE);
}

static cluster *begin(const cluster_options *options) {
    cluster *c = cluster_new(options);
    rs_peer nodes[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = i;
    tell_region(c, nodes, NODES, 1);
    for (uint32_t id = 0; id < GROUPS; id++)
        cluster_view(c, id, nodes, NODES,
                     &(rs_messages_view){
                         .protocol = "qsm", .order = RS_ORDER_FIFO, .regions = &region_number, .region_count = 1});
    return c;
}

static void publish(cluster *c, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        cluster_publish(c, cluster_random(c, NODES), cluster_random(c, GROUPS), 4 + cluster_random(c, 3000));
        cluster_run(c, cluster_now(c) + 200 * US);
    }
}

/* A program publishes some messages, ends, and another one publishes from the same server later. */
static void publisher__that_comes_again_is_heard(void **state) {
    const uint64_t seed = cluster_seed();
    const rs_peer sender = NODES - 1;
    const rs_time pauses[] = {20 * MS, 300 * MS, 3000 * MS, 30000 * MS};
    rs_peer nodes[NODES];
    (void)state;
    cluster *c = cluster_new(&(cluster_options){.nodes = NODES, .seed = seed, .loss = 0.2, .delay = 50 * US});
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = i;
    tell_region(c, nodes, NODES - 1, 1);
    const rs_messages_region none = {.protocol = "qsm", .region = REGION, .version = 2};
    const rs_messages_region again = {.protocol = "qsm",
                                      .options = "replicas=3",
                                      .region = REGION,
                                      .version = 1,
                                      .channel = REGION_CHANNEL,
                                      .nodes = nodes,
                                      .node_count = NODES - 1};
    for (uint32_t i = 0; i < 12; i++) {
        cluster_view(c, 0, nodes, NODES - 1,
                     &(rs_messages_view){.protocol = "qsm", .regions = &region_number, .region_count = 1});
        if (i > 0)
            assert_int_equal(rs_messages_set_region(cluster_node(c, sender), cluster_now(c), &again), RS_OK);
        for (uint32_t k = 0; k < 3; k++)
            cluster_publish(c, sender, 0, 50);
        cluster_run(c, cluster_now(c) + 20 * MS);
        assert_int_equal(rs_messages_forget(cluster_node(c, sender), cluster_now(c), 0), RS_OK);
        assert_int_equal(rs_messages_set_region(cluster_node(c, sender), cluster_now(c), &none), RS_OK);
        cluster_run(c, cluster_now(c) + pauses[i % 4]);
    }
    cluster_account a = cluster_check(c);
    assert_int_equal(a.due, 12 * 3 * (NODES - 1));
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong, 0);
    cluster_free(c);
}

/* Any datagram may be lost, doubled, corrupted or overtaken: tokens, pulls and ACKs too. */
static void region__that_groups_share_delivers_all_in_order(void **state) {
    const uint64_t seed = cluster_seed();
    (void)state;
    cluster_options options = {.nodes = NODES,
                               .seed = seed,
                               .loss = 0.05,
                               .duplicated = 0.02,
                               .corrupted = 0.005,
                               .delay = 50 * US,
                               .jitter = 200 * US};
    cluster *c = begin(&options);
    publish(c, 500);
    rs_peer nodes[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = i;
    tell_region(c, nodes, NODES, 2); /* what is under way in the view before comes nonetheless */
    publish(c, 200);
    cluster_loss(c, 0);
    cluster_corrupt(c, 0);
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_true(a.due > 7000 && a.packets_lost > 100);
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(rs_messages_count(cluster_node(c, i), "qsm_cached_bytes", NULL), 0);
        assert_int_equal(rs_messages_count(cluster_node(c, i), "qsm_kept_bytes", NULL), 0);
    }
    uint64_t tokens = rs_messages_count(cluster_node(c, 1), "qsm_tokens", NULL);
    cluster_run(c, cluster_now(c) + 5000 * MS);
    assert_int_equal(rs_messages_count(cluster_node(c, 1), "qsm_tokens", NULL), tokens); /* what is idle is silent */
    cluster_free(c);
}

/* Multicast of the region reaches nobody: the switches have no rules for its address, or have them no more. A partition
 * that misses all is sent it alone, also when the view is over meanwhile. */
static void region__whose_multicast_reaches_nobody_loses_nothing(void **state) {
    const uint64_t seed = cluster_seed();
    const rs_peer nodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    cluster_view(c, REGION_CHANNEL + 1, nodes, 1, &(rs_messages_view){.protocol = "plain"});
    for (uint64_t version = 2; version < 6; version++) {
        rs_messages_region deaf = region_view(nodes, NODES, version);
        deaf.channel += version % 2 == 0;
        for (uint32_t i = 0; i < NODES; i++)
            assert_int_equal(rs_messages_set_region(cluster_node(c, i), cluster_now(c), &deaf), RS_OK);
        publish(c, 100);
        if (version == 4)
            cluster_run(c, cluster_now(c) + 1000 * MS);
    }
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_true(a.by_via[RS_VIA_RETRANSMIT] > 1000);
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

static void view_of_groups(cluster *c, const uint32_t *regions, uint32_t count) {
    rs_peer nodes[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = i;
    for (uint32_t id = 0; id < GROUPS; id++)
        cluster_view(
            c, id, nodes, NODES,
            &(rs_messages_view){.protocol = "qsm", .order = RS_ORDER_FIFO, .regions = regions, .region_count = count});
}

/* Half of a region moves to another one, whose name groups are told later: what is published meanwhile is for all. */
static void region__that_nodes_move_from_loses_nothing_until_groups_are_told(void **state) {
    const uint64_t seed = cluster_seed();
    static const uint32_t both[] = {REGION, REGION + 1};
    rs_peer stay[NODES], go[NODES];
    uint32_t staying = 0, going = 0;
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.01, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    publish(c, 100);
    for (uint32_t i = 0; i < NODES; i++)
        if (i % 2)
            go[going++] = i;
        else
            stay[staying++] = i;
    tell_region(c, stay, staying, 2);
    publish(c, 50);
    cluster_view(c, REGION_CHANNEL + 1, go, going, &(rs_messages_view){.protocol = "plain"});
    rs_messages_region moved = region_view(go, going, 1);
    moved.region++;
    moved.channel++;
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(rs_messages_set_region(cluster_node(c, i), cluster_now(c), &moved), RS_OK);
    publish(c, 50);
    view_of_groups(c, both, 2);
    publish(c, 100);
    cluster_loss(c, 0);
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_true(a.due > 3000);
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* A group of four regions, whose packets share one bound of memory: where it ends in the midst of a message, that one
 * waits for room for all of its packets. It went to the first regions alone before, and the others' nodes missed it. */
static void message__of_several_regions_goes_to_all_where_memory_ends(void **state) {
    enum { PARTS = 4, ROUNDS = 10, BURST = 30 };
    const uint64_t seed = cluster_seed();
    uint32_t numbers[PARTS];
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .delay = 50 * US, .config = {.send_bytes = 64 << 10}};
    cluster *c = begin(&options);
    for (uint32_t part = 0; part < PARTS; part++) {
        rs_peer nodes[NODES / PARTS];
        for (uint32_t i = 0; i < NODES / PARTS; i++)
            nodes[i] = part + i * PARTS;
        cluster_view(c, REGION_CHANNEL + 1 + part, nodes, NODES / PARTS, &(rs_messages_view){.protocol = "plain"});
        rs_messages_region view = region_view(nodes, NODES / PARTS, 1);
        numbers[part] = view.region += 1 + part;
        view.channel += 1 + part;
        for (uint32_t i = 0; i < NODES; i++)
            assert_int_equal(rs_messages_set_region(cluster_node(c, i), cluster_now(c), &view), RS_OK);
    }
    view_of_groups(c, numbers, PARTS);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < BURST; i++)
            cluster_publish(c, 0, 0, 1000);
        cluster_run(c, cluster_now(c) + 500 * MS);
    }
    cluster_account a = cluster_check(c);
    assert_int_equal(a.due, ROUNDS * BURST * (NODES - 1));
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    assert_int_equal(rs_messages_count(cluster_node(c, 0), "qsm_packets", "refused"), 0);
    cluster_free(c);
}

/* Views of regions are told before those of groups: a new group's first messages come, by a region that is known,
 * before some members have heard of the group. */
static void group__that_a_member_hears_of_late_has_its_first_messages(void **state) {
    const uint64_t seed = cluster_seed();
    const rs_peer nodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const rs_messages_view like = {
        .protocol = "qsm", .order = RS_ORDER_FIFO, .regions = &region_number, .region_count = 1};
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.01, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    for (uint32_t late = 0; late < 40; late++) {
        const rs_message_group id = GROUPS + late;
        rs_messages_view view = like;
        view.group = view.channel = id;
        view.version = 1;
        view.members = nodes;
        view.member_count = NODES;
        cluster_view(c, id, nodes, NODES, &like);
        for (uint32_t i = 1; i < NODES; i += 2)
            assert_int_equal(rs_messages_forget(cluster_node(c, i), cluster_now(c), id), RS_OK);
        for (uint32_t i = 0; i < 50; i++)
            cluster_publish(c, 0, id, 4 + cluster_random(c, 3000));
        cluster_run(c, cluster_now(c) + 40 * MS);
        for (uint32_t i = 1; i < NODES; i += 2) /* the same view, late */
            assert_int_equal(rs_messages_set_view(cluster_node(c, i), cluster_now(c), &view), RS_OK);
    }
    cluster_loss(c, 0);
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_int_equal(a.due, 40 * 50 * (NODES - 1));
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* One node hears of a region's next view after two seconds in which nobody sent, and all else is settled: what it
 * publishes under the one before is taken still. */
static void view__that_a_sender_hears_of_late_is_there_for_it(void **state) {
    const uint64_t seed = cluster_seed();
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.01, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    rs_peer nodes[NODES];
    publish(c, 100);
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = i;
    rs_messages_region view = region_view(nodes, NODES, 2);
    for (uint32_t i = 1; i < NODES; i++)
        assert_int_equal(rs_messages_set_region(cluster_node(c, i), cluster_now(c), &view), RS_OK);
    publish(c, 50);
    cluster_run(c, cluster_now(c) + 2000 * MS);
    for (uint32_t i = 0; i < 50; i++)
        cluster_publish(c, 0, i % GROUPS, 4 + cluster_random(c, 3000));
    cluster_run(c, cluster_now(c) + 300 * MS);
    assert_int_equal(rs_messages_set_region(cluster_node(c, 0), cluster_now(c), &view), RS_OK);
    cluster_loss(c, 0);
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_true(a.due > 1500);
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* The leader of a region and a partition hears of the view late, and meanwhile all others of its partition miss some
 * packets: once it is there it asks their sender. The last one before it in the ring took it for silent for ever. */
static void leader__that_hears_of_a_view_late_asks_for_what_its_partition_misses(void **state) {
    const uint64_t seed = cluster_seed();
    const rs_peer nodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    rs_messages_region view = region_view(nodes, NODES, 2); /* four partitions: 0, 4 and 8 are one */
    for (uint32_t i = 1; i < NODES; i++)
        assert_int_equal(rs_messages_set_region(cluster_node(c, i), cluster_now(c), &view), RS_OK);
    for (uint32_t i = 0; i < 20; i++) {
        cluster_cut(c, 4, i == 10);
        cluster_cut(c, 8, i == 10);
        for (uint32_t k = 0; k < 10; k++)
            cluster_publish(c, 1, k, 1400);
        cluster_run(c, cluster_now(c) + (i == 10 ? 2 : 100) * MS);
    }
    assert_int_equal(rs_messages_set_region(cluster_node(c, 0), cluster_now(c), &view), RS_OK);
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* All but those that are halted hear of the region's next view. */
static void tell_region_of(cluster *c, const rs_peer *nodes, uint32_t count, uint64_t version, rs_peer halted) {
    cluster_view(c, REGION_CHANNEL, nodes, count, &(rs_messages_view){.protocol = "plain"});
    rs_messages_region view = region_view(nodes, count, version);
    for (uint32_t i = 0; i < NODES; i++)
        if (i != halted)
            assert_int_equal(rs_messages_set_region(cluster_node(c, i), cluster_now(c), &view), RS_OK);
}

static void groups_of(cluster *c, const rs_peer *nodes, uint32_t count) {
    for (uint32_t id = 0; id < GROUPS; id++)
        cluster_view(c, id, nodes, count,
                     &(rs_messages_view){
                         .protocol = "qsm", .order = RS_ORDER_FIFO, .regions = &region_number, .region_count = 1});
}

/* Some of the others publish, most of it one of them to one group. */
static void publish_but(cluster *c, rs_peer but, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        bool most = i % 4 > 0;
        rs_peer sender = most ? 0 : cluster_random(c, NODES);
        sender = sender == but ? (sender + 1) % NODES : sender;
        cluster_publish(c, sender, most ? 0 : cluster_random(c, GROUPS), 4 + cluster_random(c, 3000));
        cluster_run(c, cluster_now(c) + 200 * US);
    }
}

static uint64_t lost_at(cluster *c, rs_peer node) {
    rs_messages_stats stats;
    rs_messages_stats_get(cluster_node(c, node), &stats);
    return stats.lost;
}

/* A node stands still, is put out and comes back, which is all that it hears of it: what nobody sends again it does not
 * wait for (11 s, at each sender), and what is published from then on it has, as all others have all. */
static void node__that_was_put_out_goes_on_at_once_when_it_is_back(void **state) {
    const uint64_t seed = cluster_seed();
    const rs_peer all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.02, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    bool was_out[NODES] = {false};
    uint64_t version = 1;
    for (uint32_t round = 0; round < 6; round++) {
        const rs_peer out = round == 0 ? 0 : cluster_random(c, NODES);
        rs_peer others[NODES];
        uint32_t count = 0;
        for (rs_peer i = 0; i < NODES; i++)
            if (i != out)
                others[count++] = i;
        was_out[out] = true;
        publish(c, 100);
        cluster_run(c, cluster_now(c) + 100 * MS);
        cluster_halt(c, out, true);
        publish_but(c, out, 100);
        cluster_run(c, cluster_now(c) + 3000 * MS); /* its lease */
        tell_region_of(c, others, count, ++version, out);
        groups_of(c, others, count);
        publish_but(c, out, round % 3 == 0 ? 2000 : 100);
        cluster_run(c, cluster_now(c) + (round % 2 ? 8000 : 100) * MS);
        cluster_halt(c, out, false);
        tell_region_of(c, all, NODES, ++version, RS_NO_PEER);
        publish_but(c, out, 20); /* before the views of groups */
        groups_of(c, all, NODES);
        publish_but(c, out, round % 2 ? 400 : 40);
        publish(c, 100);
        cluster_run(c, cluster_now(c) + 1500 * MS);
        assert_int_equal(cluster_check(c).missed, 0);
        for (uint32_t i = 0; i < NODES; i++)
            assert_true(was_out[i] ? i != out || lost_at(c, i) > 0 : lost_at(c, i) == 0);
    }
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_int_equal(a.missed + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* It is told of all that it missed though nothing is published any more when it is back, and then has what is. */
static void node__that_was_put_out_is_told_what_it_missed_though_nothing_follows(void **state) {
    const uint64_t seed = cluster_seed();
    const rs_peer all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, *others = all, out = NODES - 1;
    const uint32_t missed[] = {1, 300, 70000}; /* the last one: more than windows have */
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.02, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    uint64_t version = 1;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 20; i++)
            cluster_publish(c, i % 2, 0, 1000);
        cluster_run(c, cluster_now(c) + 1000 * MS);
        const uint64_t lost = lost_at(c, out);
        uint64_t before = 0, after = 0;
        for (rs_peer i = 0; i < 2; i++)
            before += rs_messages_last_published(cluster_node(c, i), 0);
        cluster_halt(c, out, true);
        tell_region_of(c, others, NODES - 1, ++version, out);
        groups_of(c, others, NODES - 1);
        for (uint32_t i = 0; i < missed[round]; i++) {
            cluster_publish(c, missed[round] > 1000 ? 0 : i % 2, 0, 1000);
            if (i % 8 == 7)
                cluster_run(c, cluster_now(c) + 1 * MS);
        }
        cluster_run(c, cluster_now(c) + 3000 * MS);
        for (rs_peer i = 0; i < 2; i++)
            after += rs_messages_last_published(cluster_node(c, i), 0);
        cluster_halt(c, out, false);
        tell_region_of(c, all, NODES, ++version, RS_NO_PEER);
        groups_of(c, all, NODES);
        cluster_run(c, cluster_now(c) + 5000 * MS);
        assert_int_equal(lost_at(c, out) - lost, after - before);
        for (uint32_t i = 0; i < 20; i++)
            cluster_publish(c, i % 3, 0, 1000);
        cluster_run(c, cluster_now(c) + 3000 * MS);
        assert_int_equal(lost_at(c, out) - lost, after - before);
    }
    cluster_account a = cluster_check(c);
    assert_int_equal(a.missed + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* A publisher stands still, is put out, comes back and publishes at once, before it hears of that: what it sent by
 * views that the others know no more is lost, but they do not wait 11 s for it before they take what it publishes next.
 * One round in two, the others had never heard of it before. */
static void publisher__that_was_put_out_and_does_not_know_keeps_nobody_waiting(void **state) {
    const uint64_t seed = cluster_seed();
    const rs_peer all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.02, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    uint64_t version = 1;
    for (uint32_t round = 0; round < 4; round++) {
        const rs_peer out = round * 3 % NODES;
        rs_peer others[NODES];
        uint32_t count = 0;
        for (rs_peer i = 0; i < NODES; i++)
            if (i != out)
                others[count++] = i;
        for (uint32_t i = 0; round % 2 == 0 && i < 40; i++)
            cluster_publish(c, out, i % GROUPS, 4 + cluster_random(c, 3000));
        cluster_run(c, cluster_now(c) + 1000 * MS);
        cluster_halt(c, out, true);
        tell_region_of(c, others, count, ++version, out);
        groups_of(c, others, count);
        cluster_run(c, cluster_now(c) + 15000 * MS);
        cluster_halt(c, out, false);
        for (uint32_t i = 0; i < 100; i++)
            cluster_publish(c, out, i % GROUPS, 4 + cluster_random(c, 3000));
        cluster_run(c, cluster_now(c) + 200 * MS);
        tell_region_of(c, all, NODES, ++version, RS_NO_PEER);
        groups_of(c, all, NODES);
        for (uint32_t i = 0; i < 100; i++)
            cluster_publish(c, out, i % GROUPS, 4 + cluster_random(c, 3000));
        cluster_run(c, cluster_now(c) + 2500 * MS);
        cluster_account a = cluster_check(c);
        assert_int_equal(a.missed + a.twice + a.wrong + a.out_of_order, 0);
        assert_true(a.lost_events > 0);
    }
    cluster_free(c);
}

/* Views change for a minute, and then as quickly as can be: those before are few, and gone in the end. */
static void views__that_change_for_a_minute_are_few(void **state) {
    const uint64_t seed = cluster_seed();
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    rs_peer nodes[NODES];
    uint64_t version = 1, most = 0;
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i] = i;
    for (uint32_t i = 0; i < 600; i++) {
        tell_region(c, nodes, NODES, ++version);
        publish(c, 1);
        cluster_run(c, cluster_now(c) + 99 * MS);
        uint64_t views = rs_messages_count(cluster_node(c, 1), "qsm_region_views", NULL);
        most = views > most ? views : most;
    }
    assert_in_range(most, 2, 40); /* 3 s of them, and those that a message makes wait for the end of its round */
    rs_messages_region view = region_view(nodes, NODES, version);
    for (uint32_t i = 0; i < 3000; i++) {
        view.version++;
        assert_int_equal(rs_messages_set_region(cluster_node(c, 1), cluster_now(c), &view), RS_OK);
        if (i % 10 == 0)
            cluster_run(c, cluster_now(c) + 100 * US);
    }
    assert_in_range(rs_messages_count(cluster_node(c, 1), "qsm_region_views", NULL), 2, RS_QSM_OLD_MOST + 50);
    cluster_run(c, cluster_now(c) + 20000 * MS);
    assert_int_equal(rs_messages_count(cluster_node(c, 1), "qsm_region_views", NULL), 1);
    cluster_account a = cluster_check(c);
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* What is complete is with all; all is, in the end, also what went with others in a packet. */
static void completion__is_told_of_all_and_not_before_it_is_there(void **state) {
    const uint64_t seed = cluster_seed();
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.05, .delay = 50 * US, .jitter = 100 * US};
    cluster *c = begin(&options);
    assert_int_equal(rs_messages_tell_completion(cluster_node(c, 2), REGION_CHANNEL, true), RS_ERR_INVALID); /* plain */
    assert_int_equal(rs_messages_tell_completion(cluster_node(c, 2), 9999, true), RS_ERR_UNKNOWN);
    for (uint32_t id = 0; id < GROUPS; id++)
        assert_int_equal(rs_messages_tell_completion(cluster_node(c, 2), id, true), RS_OK);
    cluster_publish(c, 2, 0, 50);
    cluster_run(c, cluster_now(c) + 20 * US);
    assert_int_equal(cluster_complete(c, 2, 0), 0); /* nobody can have it yet */
    for (uint32_t i = 0; i < 400; i++) {
        cluster_publish(c, 2, cluster_random(c, GROUPS), 4 + cluster_random(c, i % 4 ? 60 : 3000));
        if (i % 5 == 0)
            cluster_run(c, cluster_now(c) + 300 * US);
    }
    cluster_run(c, cluster_now(c) + 3000 * MS);
    for (uint32_t id = 0; id < GROUPS; id++) {
        assert_true(rs_messages_last_published(cluster_node(c, 2), id) > 0);
        assert_int_equal(cluster_complete(c, 2, id), rs_messages_last_published(cluster_node(c, 2), id));
        assert_int_equal(cluster_complete(c, 3, id), 0); /* did not ask */
    }
    assert_int_equal(rs_messages_tell_completion(cluster_node(c, 2), 0, false), RS_OK);
    uint64_t before = cluster_complete(c, 2, 0);
    cluster_publish(c, 2, 0, 50);
    cluster_run(c, cluster_now(c) + 1000 * MS);
    assert_int_equal(cluster_complete(c, 2, 0), before);
    cluster_free(c);
}

/* A node that dies is waited for until the view says so, and not longer. */
static void completion__comes_when_a_dead_node_is_out_of_the_view(void **state) {
    const uint64_t seed = cluster_seed();
    rs_peer nodes[NODES];
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .delay = 50 * US};
    cluster *c = begin(&options);
    assert_int_equal(rs_messages_tell_completion(cluster_node(c, 2), 0, true), RS_OK);
    cluster_cut(c, NODES - 1, true);
    cluster_publish(c, 2, 0, 50);
    cluster_run(c, cluster_now(c) + 500 * MS);
    uint64_t waited = cluster_complete(c, 2, 0), silent = 0;
    for (uint32_t i = 0; i < NODES - 1; i++)
        silent += rs_messages_count(cluster_node(c, i), "qsm_silent_nodes", NULL);
    assert_true(silent > 0);
    for (uint32_t i = 0; i < NODES - 1; i++)
        nodes[i] = i;
    tell_region(c, nodes, NODES - 1, 2);
    for (uint32_t id = 0; id < GROUPS; id++)
        cluster_view(c, id, nodes, NODES - 1,
                     &(rs_messages_view){
                         .protocol = "qsm", .order = RS_ORDER_FIFO, .regions = &region_number, .region_count = 1});
    cluster_run(c, cluster_now(c) + 15000 * MS);
    assert_int_equal(waited, 0);
    assert_int_equal(cluster_complete(c, 2, 0), 1);
    for (uint32_t i = 0; i < NODES - 1; i++)
        assert_int_equal(rs_messages_count(cluster_node(c, i), "qsm_silent_nodes", NULL), 0);
    cluster_free(c);
}

/* Sec. 2.2: what any of them has of a sender that is gone, all get. */
static void sender_that_dies__leaves_the_others_with_the_same(void **state) {
    const uint64_t seed = cluster_seed();
    rs_peer nodes[NODES];
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .delay = 50 * US};
    cluster *c = begin(&options);
    cluster_cut(c, 5, true); /* two nodes get nothing of it, the others all */
    cluster_cut(c, 8, true);
    for (uint32_t i = 0; i < 60; i++)
        cluster_publish(c, 3, cluster_random(c, GROUPS), 1000);
    cluster_run(c, cluster_now(c) + 2 * MS);
    assert_int_equal(rs_messages_unsent(cluster_node(c, 3)), 0);
    cluster_cut(c, 5, false);
    cluster_cut(c, 8, false);
    cluster_cut(c, 3, true);
    for (uint32_t i = 0; i < NODES - 1; i++)
        nodes[i] = i < 3 ? i : i + 1;
    cluster_run(c, cluster_now(c) + 3000 * MS);
    tell_region(c, nodes, NODES - 1, 2);
    for (uint32_t id = 0; id < GROUPS; id++)
        cluster_view(c, id, nodes, NODES - 1,
                     &(rs_messages_view){
                         .protocol = "qsm", .order = RS_ORDER_FIFO, .regions = &region_number, .region_count = 1});
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_true(a.due >= 60 * (NODES - 1));
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* A second one takes itself for the leader, as for a moment after a change. */
static void two_leaders__do_no_harm(void **state) {
    const uint64_t seed = cluster_seed();
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.02, .delay = 50 * US};
    cluster *c = begin(&options);
    uint8_t bytes[RS_QSM_POSITION_LENGTH] = {0};
    rs_qsm_head head = {6, 7, REGION, 1};
    rs_qsm_put_head(bytes, RS_QSM_KIND_POSITION, &head);
    rs_qsm_put_position(bytes, 6, 7, 1);
    rs_gm_seal(bytes, sizeof bytes);
    assert_true(rs_messages_receive(cluster_node(c, 5), cluster_now(c), 6, bytes, sizeof bytes));
    publish(c, 300);
    cluster_loss(c, 0);
    cluster_run(c, cluster_now(c) + 10000 * MS);
    cluster_account a = cluster_check(c);
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < NODES; i++)
        tokens += rs_messages_count(cluster_node(c, i), "qsm_tokens", "sent");
    assert_true(tokens < 100000); /* ten seconds of two of them; they multiplied without a bound */
    cluster_run(c, cluster_now(c) + 5000 * MS);
    uint64_t later = 0;
    for (uint32_t i = 0; i < NODES; i++)
        later += rs_messages_count(cluster_node(c, i), "qsm_tokens", "sent");
    assert_int_equal(later, tokens); /* and then they rest */
    cluster_free(c);
}

/* Nonsense, and well formed messages of who is none of the region, while it works. */
static void strangers_and_nonsense__change_nothing(void **state) {
    const uint64_t seed = cluster_seed();
    (void)state;
    cluster_options options = {.nodes = NODES, .seed = seed, .loss = 0.02, .delay = 50 * US};
    cluster *c = begin(&options);
    for (uint32_t round = 0; round < 300; round++) {
        uint8_t bytes[400];
        uint32_t length = RS_QSM_HEAD + cluster_random(c, sizeof bytes - RS_QSM_HEAD);
        rs_qsm_head head = {round % 3 ? 77 : cluster_random(c, NODES), 7, REGION, 1};
        for (uint32_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)cluster_random(c, round % 2 ? 256 : 3);
        rs_qsm_put_head(bytes, (uint8_t)(RS_QSM_KIND_DATA + cluster_random(c, 7)), &head);
        if (bytes[3] == RS_QSM_KIND_POSITION)
            length = RS_QSM_POSITION_LENGTH;
        else if (bytes[3] == RS_QSM_KIND_ACK)
            length = RS_QSM_ACK_LENGTH;
        rs_gm_seal(bytes, length);
        (void)rs_messages_soon(cluster_node(c, 0), cluster_random(c, 4), bytes, cluster_random(c, length + 1));
        rs_messages_receive(cluster_node(c, cluster_random(c, NODES)), cluster_now(c), 77, bytes, length);
        publish(c, 1);
    }
    cluster_loss(c, 0);
    cluster_run(c, cluster_now(c) + 20000 * MS);
    cluster_account a = cluster_check(c);
    assert_int_equal(a.missed + a.lost_events + a.twice + a.wrong + a.out_of_order, 0);
    cluster_free(c);
}

/* Of 44 bytes a list came out that was nothing but what the stack held. */
static void list__cut_anywhere_is_none(void **state) {
    (void)state;
    const rs_qsm_ranges wanted = {2, 50, {{1, 2}, {8, 3}}};
    uint8_t bytes[RS_QSM_LIST_HEAD + 9 + RS_QSM_RANGES * RS_QSM_RANGE] = {0};
    rs_qsm_ranges ranges;
    rs_peer sender;
    uint32_t incarnation, partition;
    size_t length = rs_qsm_put_list(bytes, 6, 7, 1, &wanted);
    for (size_t cut = 0; cut < length; cut++)
        assert_false(rs_qsm_get_list(bytes, cut, &sender, &incarnation, &partition, &ranges));
    assert_true(rs_qsm_get_list(bytes, length, &sender, &incarnation, &partition, &ranges));
    assert_int_equal(ranges.count, 2);
}

static size_t held;

static void *count_alloc(void *context, size_t size) {
    size_t *memory = calloc(1, size + 16);
    (void)context;
    assert_non_null(memory);
    *memory = size;
    held += size;
    return (uint8_t *)memory + 16;
}

static void count_release(void *context, void *memory) {
    (void)context;
    held -= *(size_t *)(void *)((uint8_t *)memory - 16);
    free((uint8_t *)memory - 16);
}

/* ----------------------------------------------------------------------------------------------------------- tokens */

/* A packet of node 1, with a message of a group that node 2 is not in. */
static void give_packet(rs_messages *node, uint64_t sn) {
    const uint8_t body[RS_GM_BODY + 1] = {0};
    uint8_t bytes[RS_QSM_CARRIED + sizeof body] = {0};
    rs_qsm_head head = {1, 5, REGION, 1};
    rs_qsm_inner inner = {3, sn, body, sizeof body};
    rs_qsm_put_head(bytes, RS_QSM_KIND_DATA, &head);
    rs_qsm_put_sn(bytes, sn);
    rs_qsm_put_inner(bytes + RS_QSM_DATA_HEAD, &inner);
    rs_gm_seal(bytes, sizeof bytes);
    assert_true(rs_messages_receive(node, 1, 1, bytes, sizeof bytes));
}

/* Node 1's token, and how many packets node 2 says that it misses when it passes it on. */
static uint32_t missed_by_token(rs_messages *node, rs_time now, uint32_t round, uint64_t cutoff) {
    uint8_t bytes[RS_QSM_TOKEN_HEAD + RS_QSM_ENTRY + 16] = {0};
    rs_qsm_head head = {1, 5, REGION, 1};
    rs_qsm_token token = {.from = 1, .leader = 1, .round = round, .parts = 1, .rate = UINT32_MAX, .count = 1};
    rs_qsm_entry entry = {.sender = 1, .incarnation = 5, .cutoff = cutoff, .newest = cutoff, .rate = UINT32_MAX};
    rs_messages_out out;
    uint32_t missing = UINT32_MAX;
    rs_qsm_put_head(bytes, RS_QSM_KIND_TOKEN, &head);
    rs_qsm_put_token(bytes, &token);
    size_t length = RS_QSM_TOKEN_HEAD + rs_qsm_put_entry(bytes + RS_QSM_TOKEN_HEAD, &entry);
    rs_gm_seal(bytes, (uint32_t)length);
    assert_true(rs_messages_receive(node, now, 1, bytes, length));
    while (rs_messages_poll_tx(node, now, &out)) {
        const uint8_t *sent = out.piece[0].bytes;
        if (sent[3] != RS_QSM_KIND_TOKEN)
            continue;
        assert_true(rs_qsm_get_entry(sent + RS_QSM_TOKEN_HEAD, out.piece[0].length - RS_QSM_TOKEN_HEAD, &entry) > 0);
        missing = 0;
        for (uint32_t i = 0; i < entry.naks.count; i++)
            missing += entry.naks.range[i].count;
    }
    return missing;
}

/* What was sent before the token may still wait in a socket behind it: that is no loss while more comes. */
static void token__that_overtakes_packets_makes_no_losses_of_them(void **state) {
    const rs_allocator allocator = {.alloc = count_alloc, .release = count_release};
    rs_messages *node = rs_messages_new(&(rs_messages_config){.self = 2, .incarnation = 7}, &allocator);
    const rs_peer nodes[] = {1, 2};
    const rs_messages_region region = {
        .protocol = "qsm", .region = REGION, .version = 1, .channel = 5, .nodes = nodes, .node_count = 2};
    (void)state;
    assert_int_equal(rs_messages_set_region(node, 1, &region), RS_OK);
    for (uint64_t sn = 1; sn <= 10; sn++)
        if (sn != 4)
            give_packet(node, sn);
    assert_int_equal(missed_by_token(node, 1 * MS, 1, 20), 1);   /* the fourth */
    assert_int_equal(missed_by_token(node, 6 * MS, 2, 20), 1);   /* others may wait behind what came before */
    assert_int_equal(missed_by_token(node, 40 * MS, 3, 20), 11); /* still not here, and nothing else: all of them */
    rs_messages_free(node);
}

/* ------------------------------------------------------------------------------------------------------------- size */

/* Packets sent in 300 ms, by who has always one. */
static uint32_t sent_in_a_while(rs_qsm_control *control, rs_time *now, rs_time round) {
    uint32_t sent = 0;
    for (rs_time end = *now + 300 * MS, over = *now + round; *now < end; *now += 20 * US) {
        if (round && *now >= over) {
            const rs_qsm_report word = {.rate = 1000000, .share = 1000000, .round = round};
            rs_qsm_control_round(control, *now, round, 1);
            rs_qsm_control_told(control, *now, &word);
            over += round;
        }
        while (rs_qsm_control_may_send(control, *now)) {
            rs_qsm_control_sent(control, *now);
            sent++;
        }
    }
    return sent;
}

/* All that was not stable went out at once: where it waited tokens waited behind it, for seconds, and nodes were taken
 * for silent. */
static void sender__that_hears_of_no_round_has_few_packets_on_the_way(void **state) {
    rs_qsm_control control;
    rs_time now = 1;
    (void)state;
    rs_qsm_control_init(&control, RS_QSM_RATE_OURS, 0, 0, 5 * MS, 35 * MS, now);
    assert_true(sent_in_a_while(&control, &now, 5 * MS) > 10000);
    double target = control.target;
    uint32_t few = sent_in_a_while(&control, &now, 0);
    assert_true(few <= 300 + 1 + 3 * target * 0.005); /* three rounds', and mu_min: 1,000 a second */
    assert_true(few >= 200);                          /* it does not stop */
    assert_true(sent_in_a_while(&control, &now, 5 * MS) > 10000);
}

/* A region of 500 nodes, whose rounds take 120 ms: what is known of one that goes on does until a node is behind. */
static void sender__that_begins_has_its_rate_before_the_first_round_is_over(void **state) {
    const rs_qsm_report good = {.rate = 1000000, .share = 1000000, .early = true};
    rs_qsm_report bad = {.rate = 100000, .share = 100000, .behind = 90000, .early = true};
    const struct {
        rs_qsm_law law;
        bool early, grows;
    } cases[] = {{RS_QSM_RATE_OURS, true, true}, {RS_QSM_RATE_OURS, false, false}, {RS_QSM_RATE_PAPER, true, false}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        rs_qsm_control control;
        rs_time now = 1;
        rs_qsm_control_init(&control, cases[i].law, 0, 0, 5 * MS, 135 * MS, now);
        for (; now < 100 * MS; now += 20 * US) {
            if (cases[i].early && now / (20 * US) % 50 == 0)
                rs_qsm_control_told(&control, now, &good);
            for (unsigned k = 0; k < 5 && rs_qsm_control_may_send(&control, now); k++) /* 250,000 a second at most */
                rs_qsm_control_sent(&control, now);
        }
        assert_int_equal(control.target >= 200000, cases[i].grows);
        if (!cases[i].grows)
            continue;
        rs_qsm_control_told(&control, now, &bad);
        assert_true(control.target < 100000 && control.behind);
        double target = control.target;
        for (unsigned k = 0; k < 100; k++)
            rs_qsm_control_told(&control, now += MS, &good); /* from now on, whole rounds count */
        assert_true(control.target >= target && control.target <= target);
    }
}

/* Whatever it is asked, and however often: here by a node of the region that makes tokens without end. */
static void control__has_a_fixed_rate(void **state) {
    const rs_allocator allocator = {.alloc = count_alloc, .release = count_release};
    rs_messages *node = rs_messages_new(&(rs_messages_config){.self = 2, .incarnation = 7}, &allocator);
    const rs_peer nodes[] = {1, 2, 3};
    const rs_messages_region region = {
        .protocol = "qsm", .region = REGION, .version = 1, .channel = 5, .nodes = nodes, .node_count = 3};
    rs_messages_out out;
    uint32_t sent = 0;
    (void)state;
    assert_int_equal(rs_messages_set_region(node, 1, &region), RS_OK);
    for (rs_time now = 1000 * MS; now < 2000 * MS; now += 100 * US) {
        uint8_t bytes[RS_QSM_TOKEN_HEAD] = {0};
        const rs_qsm_head head = {1, 5, REGION, 1};
        rs_qsm_token token = {.from = 1, .leader = 1, .parts = 1, .rate = UINT32_MAX};
        for (uint32_t i = 0; i < 5; i++) { /* 50,000 a second; each is acknowledged and passed on */
            token.round = (uint32_t)(now / (100 * US)) * 5 + i;
            rs_qsm_put_head(bytes, RS_QSM_KIND_TOKEN, &head);
            rs_qsm_put_token(bytes, &token);
            rs_gm_seal(bytes, sizeof bytes);
            assert_true(rs_messages_receive(node, now, 1, bytes, sizeof bytes));
            while (rs_messages_poll_tx(node, now, &out))
                sent++;
        }
        rs_time due = rs_messages_deadline(node);
        assert_true(due != RS_NEVER); /* what waits goes when its time has come */
    }
    assert_true(sent <= RS_QSM_CONTROL_RATE + 512 + 1);
    assert_true(sent >= RS_QSM_CONTROL_RATE);
    rs_messages_free(node);
}

/* A node that says that it is behind, and receives nothing: all of a region believe each other. */
static void liar__slows_a_sender_to_the_least_rate_and_no_further(void **state) {
    const rs_qsm_report nothing = {.behind = 1u << 30, .missing = UINT16_MAX, .round = 5 * MS};
    (void)state;
    for (unsigned law = RS_QSM_RATE_OURS; law <= RS_QSM_RATE_PAPER; law++) {
        rs_qsm_control control;
        rs_time now = 1;
        uint32_t sent = 0;
        rs_qsm_control_init(&control, (rs_qsm_law)law, 0, 0, 5 * MS, 35 * MS, now);
        (void)sent_in_a_while(&control, &now, 5 * MS);
        for (rs_time end = now + 2000 * MS, over = now; now < end; now += 20 * US) {
            if (now >= over) {
                rs_qsm_control_round(&control, now, 5 * MS, 1);
                rs_qsm_control_told(&control, now, &nothing);
                over += 5 * MS;
            }
            while (rs_qsm_control_may_send(&control, now)) {
                rs_qsm_control_sent(&control, now);
                sent += now >= end - 1000 * MS;
            }
        }
        assert_true(control.target >= 1000 && control.target < 2000);
        assert_true(sent >= 450 && sent < 2000); /* alpha of the paper is 0.5 at least */
    }
}

#define MANY_GROUPS 10000u
#define IN_REGION 1000u

/* A packet of the region, with a message of a byte of that group. */
static void give_message(rs_messages *node, rs_time now, rs_peer sender, rs_message_group group, uint64_t sn,
                         uint64_t message) {
    uint8_t inside[RS_GM_DATA_LEAST + 1] = {0}, bytes[RS_QSM_CARRIED + sizeof inside - RS_GM_HEADER] = {0};
    const rs_gm_body about = {.length = 1, .form = RS_GM_SINGLE, .views = {.view = {{.version = 1}}, .count = 1}};
    const rs_gm_id id = {sender, 5, group, message};
    rs_gm_put_header(inside, RS_GM_KIND_DATA, &id);
    rs_gm_put_body(inside + RS_GM_HEADER, &about);
    rs_gm_seal(inside, sizeof inside);
    rs_qsm_inner inner = {group, message, inside + RS_GM_HEADER, sizeof inside - RS_GM_HEADER};
    rs_qsm_put_head(bytes, RS_QSM_KIND_DATA, &(rs_qsm_head){sender, 5, REGION, 1});
    rs_qsm_put_sn(bytes, sn);
    rs_qsm_put_inner(bytes + RS_QSM_DATA_HEAD, &inner);
    rs_gm_seal(bytes, sizeof bytes);
    for (uint32_t ahead = RS_MESSAGES_AHEAD + 1; ahead-- > 0;)
        assert_int_equal(rs_messages_soon(node, ahead, bytes, sizeof bytes), group);
    assert_true(rs_messages_receive(node, now, sender, bytes, sizeof bytes));
}

static uint32_t events_of(rs_messages *node) {
    rs_messages_event event;
    uint32_t count = 0;
    while (rs_messages_poll_event(node, &event))
        count += event.kind == RS_MESSAGES_DELIVER;
    return count;
}

/* 10,000 groups, a region of 1,000 nodes: what docs/qsm.md says of memory. */
static void state__of_many_groups_and_nodes_is_bounded(void **state) {
    const rs_allocator allocator = {.alloc = count_alloc, .release = count_release};
    rs_messages *node = rs_messages_new(&(rs_messages_config){.self = 2, .incarnation = 7}, &allocator);
    static rs_peer nodes[IN_REGION];
    const uint32_t incarnations[10] = {5, 7, 5, 5, 5, 5, 5, 5, 5, 5};
    (void)state;
    for (uint32_t i = 0; i < IN_REGION; i++)
        nodes[i] = i + 1;
    size_t before = held;
    rs_messages_region region = {
        .protocol = "qsm", .region = REGION, .version = 1, .channel = 5, .nodes = nodes, .node_count = IN_REGION};
    assert_int_equal(rs_messages_set_region(node, 1, &region), RS_OK);
    print_message("a region of 1,000 nodes: %zu bytes\n", held - before);
    assert_true(held - before < 8000);
    before = held;
    for (uint32_t i = 1; i <= MANY_GROUPS; i++) {
        rs_messages_view view = {.group = i,
                                 .version = 1,
                                 .channel = 5,
                                 .members = nodes,
                                 .member_count = 10,
                                 .incarnations = incarnations,
                                 .protocol = "qsm",
                                 .order = RS_ORDER_FIFO,
                                 .regions = &region_number,
                                 .region_count = 1};
        assert_int_equal(rs_messages_set_view(node, 1, &view), RS_OK);
    }
    print_message("a group of 10 members: %zu bytes\n", (held - before) / MANY_GROUPS);
    assert_true((held - before) / MANY_GROUPS < 1024);
    assert_int_equal(rs_messages_deadline(node), RS_NEVER); /* idle ones wake nobody */
    before = held;
    for (uint32_t i = 1; i <= MANY_GROUPS; i++) /* a publisher of each: what is here of it */
        give_message(node, 1, 1, i, i, 1);
    assert_int_equal(events_of(node), MANY_GROUPS);
    print_message("a publisher in a group: %zu bytes\n", (held - before) / MANY_GROUPS);
    assert_true((held - before) / MANY_GROUPS < 640);
    before = held;
    for (uint32_t i = 2; i < IN_REGION; i++) /* a packet of each, of a group that this node is not in */
        give_message(node, 1, nodes[i], 20000, 1, 1);
    size_t kept = held;
    rs_messages_timeout(node, 3000 * MS + 1); /* no view of it came */
    print_message("packets that wait for a view: %zu bytes each\n", (kept - held) / (IN_REGION - 2));
    assert_in_range((kept - held) / (IN_REGION - 2), 100, 200);
    print_message("a sender: %zu bytes\n", (held - before) / (IN_REGION - 2));
    assert_true((held - before) / (IN_REGION - 2) < 1024);
    assert_int_equal(rs_messages_count(node, "qsm_packets", "received"), MANY_GROUPS + IN_REGION - 2);
    assert_int_equal(rs_messages_count(node, "qsm_region_views", NULL), 1);
    before = held;
    missed_by_token(node, 1, 1, 0); /* with the first it is known who takes none */
    print_message("tokens of 1,000 nodes: %zu bytes\n", held - before);
    assert_true(held - before < 8 * IN_REGION + 12000);
    rs_messages_free(node);
    assert_int_equal(held, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(publisher__that_comes_again_is_heard),
        cmocka_unit_test(region__that_groups_share_delivers_all_in_order),
        cmocka_unit_test(region__whose_multicast_reaches_nobody_loses_nothing),
        cmocka_unit_test(region__that_nodes_move_from_loses_nothing_until_groups_are_told),
        cmocka_unit_test(message__of_several_regions_goes_to_all_where_memory_ends),
        cmocka_unit_test(group__that_a_member_hears_of_late_has_its_first_messages),
        cmocka_unit_test(view__that_a_sender_hears_of_late_is_there_for_it),
        cmocka_unit_test(leader__that_hears_of_a_view_late_asks_for_what_its_partition_misses),
        cmocka_unit_test(node__that_was_put_out_goes_on_at_once_when_it_is_back),
        cmocka_unit_test(node__that_was_put_out_is_told_what_it_missed_though_nothing_follows),
        cmocka_unit_test(publisher__that_was_put_out_and_does_not_know_keeps_nobody_waiting),
        cmocka_unit_test(views__that_change_for_a_minute_are_few),
        cmocka_unit_test(completion__is_told_of_all_and_not_before_it_is_there),
        cmocka_unit_test(completion__comes_when_a_dead_node_is_out_of_the_view),
        cmocka_unit_test(sender_that_dies__leaves_the_others_with_the_same),
        cmocka_unit_test(two_leaders__do_no_harm),
        cmocka_unit_test(strangers_and_nonsense__change_nothing),
        cmocka_unit_test(list__cut_anywhere_is_none),
        cmocka_unit_test(token__that_overtakes_packets_makes_no_losses_of_them),
        cmocka_unit_test(sender__that_hears_of_no_round_has_few_packets_on_the_way),
        cmocka_unit_test(sender__that_begins_has_its_rate_before_the_first_round_is_over),
        cmocka_unit_test(control__has_a_fixed_rate),
        cmocka_unit_test(liar__slows_a_sender_to_the_least_rate_and_no_further),
        cmocka_unit_test(state__of_many_groups_and_nodes_is_bounded)};
    return cmocka_run_group_tests_name("qsm", tests, NULL, NULL);
}
