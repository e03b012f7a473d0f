/* Lateral error correction end to end: what is lost comes back, once, and what that costs is what was asked for. */
#include <stdio.h>

#include "cluster.h"

static const rs_messages_view RICOCHET = {.protocol = "ricochet"};

static void publish_all(cluster *c, uint32_t groups, uint32_t messages, uint32_t nodes, rs_time every) {
    for (uint32_t i = 0; i < messages; i++) {
        cluster_publish(c, cluster_random(c, nodes), cluster_random(c, groups), 20 + cluster_random(c, 1000));
        cluster_run(c, cluster_now(c) + every);
    }
}

static void show(cluster *c) {
    cluster_account a = cluster_check(c);
    print_message(
        "due %llu, delivered %llu (late: multicast %llu, repairs %llu after %lld us, asked for %llu after %lld us), "
        "slowest %lld us, %llu data packets lost\n",
        (unsigned long long)a.due, (unsigned long long)a.delivered, (unsigned long long)a.by_via[0],
        (unsigned long long)a.by_via[1], (long long)(a.late_sum[1] / 1000 / (rs_time)(a.by_via[1] + 1)),
        (unsigned long long)a.by_via[2], (long long)(a.late_sum[2] / 1000 / (rs_time)(a.by_via[2] + 1)),
        (long long)(a.slowest / 1000), (unsigned long long)a.packets_lost);
}

/* Every message that was due came, once, as it was sent, in order where that was asked for. */
static void expect_exactly_once(cluster *c) {
    cluster_account a = cluster_check(c);
    show(c);
    assert_int_equal(a.missed, 0);
    assert_int_equal(a.twice, 0);
    assert_int_equal(a.wrong, 0);
    assert_int_equal(a.out_of_order, 0);
    assert_int_equal(a.lost_events, 0);
}

/* Ricochet, Fig. 8 (c): 16 nodes, 128 groups each, of 10; 20 % of all that comes to a node is lost, NAKs and what they
 * ask for too. */
static void ricochet__recovers_everything_within_250_ms(void **state) {
    (void)state;
    cluster_options options = {
        .nodes = 16, .seed = cluster_seed(), .loss = 0.2, .delay = 50 * US, .jitter = 30 * US, .config.heartbeats = 10};
    cluster *c = cluster_new(&options);
    cluster_random_groups(c, 204, 10, &RICOCHET);
    publish_all(c, 204, 3000, 16, 600 * US);
    cluster_run(c, cluster_now(c) + 13000 * MS);
    expect_exactly_once(c);
    cluster_account a = cluster_check(c);
    assert_true(a.slow <=
                2); /* of some 6,000 that were missing: a NAK and what it asks for may be lost again and again */
    assert_true(a.by_via[RS_VIA_REPAIR] > 4 * a.by_via[RS_VIA_RETRANSMIT]);
    cluster_free(c);
}

/* What lateral error correction gives without any NAK at 1 % loss: more than 99 %. */
static void ricochet__recovers_nearly_all_alone(void **state) {
    (void)state;
    rs_messages_view alone = {.protocol = "ricochet", .options = "naks=0"};
    cluster_options options = {.nodes = 32, .seed = cluster_seed(), .loss = 0.01, .delay = 50 * US};
    cluster *c = cluster_new(&options);
    cluster_random_groups(c, 100, 10, &alone);
    publish_all(c, 100, 6000, 32, 300 * US);
    cluster_run(c, cluster_now(c) + 1000 * MS);
    show(c);
    cluster_account a = cluster_check(c);
    assert_int_equal(a.twice + a.wrong, 0);
    assert_true(a.missed * 100 < a.packets_lost * 2); /* the last packets are in no full repair */
    assert_true(a.late_sum[RS_VIA_REPAIR] / (rs_time)(a.by_via[RS_VIA_REPAIR] + 1) < 20 * MS);
    cluster_free(c);
}

/* The same seed gives the same run. */
static void ricochet__is_deterministic(void **state) {
    (void)state;
    cluster_account account[2];
    uint64_t seed = cluster_seed();
    for (int i = 0; i < 2; i++) {
        cluster_options options = {.nodes = 12, .seed = seed, .loss = 0.1, .delay = 50 * US, .jitter = 200 * US};
        cluster *c = cluster_new(&options);
        cluster_random_groups(c, 30, 6, &RICOCHET);
        publish_all(c, 30, 800, 12, 200 * US);
        cluster_run(c, cluster_now(c) + 500 * MS);
        account[i] = cluster_check(c);
        cluster_free(c);
    }
    assert_memory_equal(&account[0], &account[1], sizeof account[0]);
}

/* Loss, duplicates, reordering, members that come and go, both orders, messages of many packets: all that is due is
 * delivered exactly once. */
static void ricochet__exactly_once_while_views_change(void **state) {
    (void)state;
    uint64_t seed = cluster_seed();
    for (uint64_t round = 0; round < 3; round++) {
        cluster_options options = {
            .nodes = 20, .seed = seed + round, .loss = 0.05, .duplicated = 0.05, .delay = 50 * US, .jitter = 3 * MS};
        cluster *c = cluster_new(&options);
        for (uint32_t id = 0; id < 30; id++) {
            char text[64];
            uint32_t c_milli = 2000 + cluster_random(c, 5000);
            snprintf(text, sizeof text, "r=%u,c=%u.%03u,stagger=%u", id % 3 ? 8 : 4, c_milli / 1000, c_milli % 1000,
                     id % 5 ? 1 : 3);
            rs_messages_view view = {
                .protocol = "ricochet", .order = id % 2 ? RS_ORDER_FIFO : RS_ORDER_NONE, .options = text};
            rs_peer members[6];
            for (uint32_t i = 0; i < 6; i++)
                members[i] = (id + 3 * i) % 20;
            cluster_view(c, id, members, 6, &view);
        }
        for (uint32_t i = 0; i < 2500; i++) {
            uint32_t group = cluster_random(c, 30), length = 4 + cluster_random(c, i % 40 ? 300 : 20000);
            cluster_publish(c, cluster_random(c, 20), group, length);
            if (i % 8 == 0)
                cluster_move(c, cluster_random(c, 30));
            if (i % 4 == 0)
                cluster_run(c, cluster_now(c) + 500 * US);
        }
        cluster_run(c, cluster_now(c) + 3000 * MS);
        expect_exactly_once(c);
        cluster_free(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ricochet__recovers_everything_within_250_ms),
        cmocka_unit_test(ricochet__recovers_nearly_all_alone),
        cmocka_unit_test(ricochet__is_deterministic),
        cmocka_unit_test(ricochet__exactly_once_while_views_change),
    };
    return cmocka_run_group_tests_name("ricochet", tests, NULL, NULL);
}
