/* What lateral error correction costs (Ricochet, Sec. 4): each packet received is in c repairs on average, whatever
 * other groups there are, and no node gets more repairs than its share. */
#include <stdio.h>

#include "cluster.h"

#include <math.h>

#define NODES 24u
#define GROUPS 24u

/* Sizes and c differ from group to group, as random groups of a real system's do. */
static cluster *overlapping(uint64_t seed, uint32_t sizes[GROUPS], uint32_t c_milli[GROUPS],
                            bool member[GROUPS][NODES]) {
    cluster_options options = {.nodes = NODES, .seed = seed, .delay = 20 * US};
    cluster *c = cluster_new(&options);
    for (uint32_t id = 0; id < GROUPS; id++) {
        rs_peer members[NODES];
        sizes[id] = 0;
        c_milli[id] = 1000 + cluster_random(c, 3500);
        for (uint32_t i = 0; i < NODES; i++) {
            member[id][i] = cluster_random(c, 100) < 25 + id;
            if (member[id][i])
                members[sizes[id]++] = i;
        }
        if (sizes[id] < 2) {
            memset(member[id], 0, sizeof member[id]);
            for (sizes[id] = 0; sizes[id] < 8; sizes[id]++) {
                members[sizes[id]] = sizes[id];
                member[id][sizes[id]] = true;
            }
        }
        char text[64];
        snprintf(text, sizeof text, "naks=0,c=%u.%03u,stagger=%u", c_milli[id] / 1000, c_milli[id] % 1000, 1 + id % 2);
        rs_messages_view view = {.protocol = "ricochet", .options = text};
        cluster_view(c, id, members, sizes[id], &view);
    }
    return c;
}

/* 40,000 messages of random nodes to random groups; then all that is under way arrives. */
static void publish_a_lot(cluster *c) {
    for (uint32_t i = 0; i < 40000; i++) {
        cluster_publish(c, cluster_random(c, NODES), cluster_random(c, GROUPS), 8);
        if (i % 4 == 0)
            cluster_run(c, cluster_now(c) + 100 * US);
    }
    cluster_run(c, cluster_now(c) + 100 * MS);
}

static void overhead__of_every_group_is_its_rate_of_fire(void **state) {
    (void)state;
    uint32_t sizes[GROUPS], c_milli[GROUPS];
    bool member[GROUPS][NODES];
    cluster *c = overlapping(cluster_seed(), sizes, c_milli, member);
    publish_a_lot(c);
    for (uint32_t id = 0; id < GROUPS; id++) {
        double received = (double)cluster_received(c, id), c_value = c_milli[id] / 1000.0;
        double wanted = c_value < sizes[id] - 1 ? c_value : sizes[id] - 1;
        double each = (double)cluster_included(c, id) / received;
        /* Repairs that are not full at the end: at most r packets of each bin; and the draws' deviation, of which a
         * repair is one for all its packets. */
        double deviation = 5 * sqrt(8 * wanted / received) + 0.04 * wanted;
        print_message("group %2u of %2u: c %.3f, %.0f packets in %.3f repairs each\n", id, sizes[id], wanted, received,
                      each);
        assert_true(fabs(each - wanted) < deviation);
    }
    cluster_free(c);
}

/* What each node is sent is the sum over its groups of what a member's share is. */
static void overhead__no_node_is_favoured(void **state) {
    (void)state;
    uint32_t sizes[GROUPS], c_milli[GROUPS];
    bool member[GROUPS][NODES];
    cluster *c = overlapping(cluster_seed(), sizes, c_milli, member);
    publish_a_lot(c);
    for (uint32_t node = 0; node < NODES; node++) {
        double wanted = 0;
        for (uint32_t id = 0; id < GROUPS; id++) {
            double each = c_milli[id] / 1000.0 / (sizes[id] - 1);
            /* Of each packet every other receiver sends it a repair with that probability; a sender that is a member
             * receives nothing of its own. */
            if (!member[id][node])
                continue;
            double received_by_others = (double)cluster_received(c, id) - (double)cluster_received_by(c, id, node);
            wanted += (each < 1 ? each : 1) * received_by_others / 8;
        }
        double got = (double)cluster_repairs_to(c, node);
        print_message("node %2u: %.0f repairs, %.0f are its share\n", node, got, wanted);
        assert_true(fabs(got - wanted) < 0.05 * wanted + 5 * sqrt(wanted));
    }
    cluster_free(c);
}

/* Targets are drawn before a bin fills, so that no XOR is made for nobody: at most c for a packet (Sec. 4.2.5). */
static void overhead__no_more_xors_than_c(void **state) {
    (void)state;
    rs_messages_view view = {.protocol = "ricochet", .options = "naks=0"};
    cluster_options options = {.nodes = 32, .seed = cluster_seed(), .delay = 20 * US};
    cluster *c = cluster_new(&options);
    cluster_random_groups(c, 100, 10, &view);
    for (uint32_t i = 0; i < 6000; i++) {
        cluster_publish(c, cluster_random(c, 32), cluster_random(c, 100), 8);
        cluster_run(c, cluster_now(c) + 50 * US);
    }
    double xors = 0, received = 0;
    for (uint32_t i = 0; i < 32; i++) { /* one of them may have bad luck with its draws */
        rs_messages_stats s;
        rs_messages_stats_get(cluster_node(c, i), &s);
        double here = (double)rs_messages_count(cluster_node(c, i), "xors", NULL);
        assert_true(here < 6 * (double)s.data_received);
        xors += here;
        received += (double)s.data_received;
    }
    print_message("xors a packet: %.3f\n", xors / received);
    assert_true(xors < 5.1 * received);
    cluster_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overhead__of_every_group_is_its_rate_of_fire),
        cmocka_unit_test(overhead__no_node_is_favoured),
        cmocka_unit_test(overhead__no_more_xors_than_c),
    };
    return cmocka_run_group_tests_name("overhead", tests, NULL, NULL);
}
