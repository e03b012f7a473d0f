/* Packets of all kinds that are changed, doubled and late on their way: no wrong byte is delivered, and what is spoilt
 * is as good as lost: plain groups say so, Ricochet mends it. */
#include "cluster.h"
#include "pair.h"

enum { NODES = 12, GROUPS = 24, MEMBERS = 6 };

static uint64_t corrupt(cluster *c) {
    rs_messages_stats stats;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        rs_messages_stats_get(cluster_node(c, i), &stats);
        sum += stats.corrupt;
    }
    return sum;
}

static cluster *start(const rs_messages_view *view, double corrupted, rs_messages_config config) {
    cluster_options options = {.nodes = NODES,
                               .seed = cluster_seed(),
                               .corrupted = corrupted,
                               .duplicated = 0.05,
                               .delay = 50 * US,
                               .jitter = 2 * MS,
                               .config = config};
    cluster *c = cluster_new(&options);
    cluster_random_groups(c, GROUPS, MEMBERS, view);
    return c;
}

static void publish(cluster *c, uint32_t messages, uint32_t longest) {
    for (uint32_t i = 0; i < messages; i++) {
        cluster_publish(c, cluster_random(c, NODES), cluster_random(c, GROUPS), 20 + cluster_random(c, longest));
        cluster_run(c, cluster_now(c) + 600 * US);
    }
}

static cluster_account check(cluster *c) {
    cluster_account a = cluster_check(c);
    print_message("due %llu, delivered %llu, missed %llu, wrong %llu, lost %llu, found corrupt %llu\n",
                  (unsigned long long)a.due, (unsigned long long)a.delivered, (unsigned long long)a.missed,
                  (unsigned long long)a.wrong, (unsigned long long)a.lost_events, (unsigned long long)corrupt(c));
    assert_int_equal(a.wrong, 0);
    assert_int_equal(a.twice, 0);
    assert_int_equal(a.out_of_order, 0);
    return a;
}

static void plain__says_lost_for_what_is_spoilt(void **state) {
    (void)state;
    const rs_messages_view orders[] = {{.protocol = "plain"}, {.protocol = "plain", .order = RS_ORDER_FIFO}};
    for (uint32_t i = 0; i < 2; i++) {
        cluster *c = start(&orders[i], 0, (rs_messages_config){0});
        /* A first packet of everybody's everywhere, and a last: what is lost of a stream lies between two that came. */
        for (uint32_t phase = 0; phase < 3; phase++) {
            cluster_corrupt(c, phase == 1 ? 0.1 : 0);
            if (phase == 1)
                publish(c, 4000, 1000);
            else
                for (uint32_t k = 0; k < NODES * GROUPS; k++)
                    cluster_publish(c, k % NODES, k / NODES, 20);
            cluster_run(c, cluster_now(c) + 3000 * MS);
        }
        cluster_account a = check(c);
        assert_true(corrupt(c) > 500);
        assert_true(a.missed > 500);
        assert_int_equal(a.missed, a.lost_events); /* each is one packet */
        cluster_free(c);
    }
}

static void ricochet__mends_what_is_spoilt(void **state) {
    (void)state;
    const rs_messages_view orders[] = {{.protocol = "ricochet"}, {.protocol = "ricochet", .order = RS_ORDER_FIFO}};
    for (uint32_t i = 0; i < 2; i++) {
        cluster *c = start(&orders[i], 0.1, (rs_messages_config){.heartbeats = 10});
        publish(c, 3000, 1000);
        cluster_run(c, cluster_now(c) + 13000 * MS);
        cluster_account a = check(c);
        assert_true(corrupt(c) > 500);
        assert_int_equal(a.missed, 0);
        assert_int_equal(a.lost_events, 0);
        assert_true(a.by_via[RS_VIA_REPAIR] > 100);
        cluster_free(c);
    }
}

static void large__messages_in_parts_likewise(void **state) {
    (void)state;
    const rs_messages_view views[] = {{.protocol = "ricochet", .order = RS_ORDER_FIFO}, {.protocol = "plain"}};
    for (uint32_t i = 0; i < 2; i++) {
        cluster *c = start(&views[i], 0.03, (rs_messages_config){.heartbeats = 10});
        publish(c, 600, 20000);
        cluster_run(c, cluster_now(c) + 13000 * MS);
        cluster_account a = check(c);
        assert_true(corrupt(c) > 100);
        if (i == 0) {
            assert_int_equal(a.missed, 0);
            assert_int_equal(a.lost_events, 0);
        } else
            assert_true(a.missed > 0);
        cluster_free(c);
    }
}

/* A member's memory may change, too: the repair that it makes of what it holds gives nobody a wrong byte, and the
 * packet is had from its sender. */
static void repairs__of_a_member_whose_copy_has_changed(void **state) {
    (void)state;
    const rs_messages_view eager = {.protocol = "ricochet", .options = "r=2,c=3"};
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0}),
                *receiver = pair_node(RECEIVER, (rs_messages_config){0});
    datagram *d = calloc(3, sizeof *d), *repair = calloc(1, sizeof *repair);
    pair_view(sender, 1, &eager, 1);
    pair_view(receiver, 1, &eager, 1);
    for (uint8_t i = 0; i < 3; i++) {
        assert_int_equal(pair_publish(sender, 0, (uint8_t)(i + 1), 1000), RS_OK);
        assert_int_equal(pair_take(sender, 0, &d[i], 1), 1);
    }
    pair_give(receiver, MS, &d[0]);
    pair_give(receiver, MS, &d[2]);
    pair_expect(receiver, 1, 1000);
    pair_expect(receiver, 3, 1000);
    rs_ricochet_put_repair(repair->bytes, 10, 2, d[0].length - RS_GM_HEADER);
    uint8_t *mixed = repair->bytes + RS_RICOCHET_REPAIR + 2 * RS_GM_ID;
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(repair->bytes + RS_RICOCHET_REPAIR + i * RS_GM_ID, d[i].bytes + 4, RS_GM_ID);
        for (uint32_t k = RS_GM_HEADER; k < d[i].length; k++)
            mixed[k - RS_GM_HEADER] ^= d[i].bytes[k];
    }
    mixed[500] ^= 4;
    repair->length = RS_RICOCHET_REPAIR + 2 * RS_GM_ID + d[0].length - RS_GM_HEADER;
    rs_gm_seal(repair->bytes, rs_ricochet_head_length(2));
    pair_give(receiver, 2 * MS, repair);
    pair_expect_nothing(receiver);
    assert_int_equal(pair_stats(receiver).corrupt, 1);
    assert_int_equal(pair_stats(receiver).missing, 1);
    /* It asks for it, as for any lost one. */
    for (rs_time now = 3 * MS; pair_stats(receiver).missing > 0; now += MS) {
        assert_true(now < 200 * MS);
        rs_messages_timeout(receiver, now);
        while (pair_take(receiver, now, repair, 1) == 1)
            if (repair->peer == SENDER) {
                pair_give(sender, now, repair);
                while (pair_take(sender, now, repair, 1) == 1)
                    pair_give(receiver, now, repair);
            }
    }
    pair_expect(receiver, 2, 1000);
    free(d);
    free(repair);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* Nobody is asked to believe a packet that its sender has not sent yet: it has no check, and may still grow. */
static void unsent__packets_are_not_given(void **state) {
    (void)state;
    const rs_messages_view plain = {.protocol = "ricochet"};
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0});
    datagram *d = calloc(1, sizeof *d);
    pair_view(sender, 1, &plain, 0);
    assert_int_equal(pair_publish(sender, 0, 1, 100), RS_OK);
    rs_gm_put_nak(d->bytes, RECEIVER, 1);
    rs_gm_put_nak_item(d->bytes + RS_GM_NAK, &(rs_gm_nak_item){{SENDER, 3, GROUP, 1}, 0});
    d->length = RS_GM_NAK + RS_GM_NAK_ITEM;
    rs_gm_seal(d->bytes, d->length);
    pair_give(sender, MS, d);
    assert_int_equal(pair_take(sender, MS, d, 1), 1);
    assert_int_equal(rs_gm_get_kind(d->bytes, d->length), RS_GM_KIND_DATA);
    assert_true(rs_gm_is_intact(d->bytes, d->length));
    assert_int_equal(pair_stats(sender).retransmits_sent, 0);
    free(d);
    rs_messages_free(sender);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain__says_lost_for_what_is_spoilt),
        cmocka_unit_test(ricochet__mends_what_is_spoilt),
        cmocka_unit_test(large__messages_in_parts_likewise),
        cmocka_unit_test(repairs__of_a_member_whose_copy_has_changed),
        cmocka_unit_test(unsent__packets_are_not_given),
    };
    return cmocka_run_group_tests_name("corruption", tests, NULL, NULL);
}
