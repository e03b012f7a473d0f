/* Lateral error correction end to end: what is lost comes back, once, and what that costs is what was asked for. */
#include "cluster.h"

static const rs_messages_view RICOCHET = {.protocol = RS_MESSAGES_RICOCHET};

static void publish_all(cluster *c, uint32_t groups, uint32_t messages, uint32_t nodes, rs_time every) {
    for (uint32_t i = 0; i < messages; i++) {
        cluster_publish(c, cluster_random(c, nodes), cluster_random(c, groups), 20 + cluster_random(c, 1000));
        cluster_run(c, cluster_now(c) + every);
    }
}

static void ricochet__recovers_everything_with_naks(void **state) {
    (void)state;
    cluster_options options = {.nodes = 16, .seed = cluster_seed(), .loss = 0.2, .delay = 50 * US, .jitter = 30 * US};
    cluster *c = cluster_new(&options);
    cluster_random_groups(c, 40, 8, &RICOCHET);
    publish_all(c, 40, 4000, 16, 200 * US);
    cluster_run(c, cluster_now(c) + 3000 * MS);
    cluster_account a = cluster_check(c);
    rs_messages_stats s;
    rs_messages_stats_get(cluster_node(c, 0), &s);
    print_message("due %llu delivered %llu missed %llu twice %llu wrong %llu lost %llu slowest %lld us; data %llu lec "
                  "%llu (%lld us) "
                  "nak %llu (%lld us)\n",
                  (unsigned long long)a.due, (unsigned long long)a.delivered, (unsigned long long)a.missed,
                  (unsigned long long)a.twice, (unsigned long long)a.wrong, (unsigned long long)a.lost_events,
                  (long long)(a.slowest / 1000), (unsigned long long)a.by_via[0], (unsigned long long)a.by_via[1],
                  (long long)(a.late_sum[1] / 1000 / (rs_time)(a.by_via[1] + 1)), (unsigned long long)a.by_via[2],
                  (long long)(a.late_sum[2] / 1000 / (rs_time)(a.by_via[2] + 1)));
    print_message("regions %llu bins %llu kept %llu combined %llu\n", (unsigned long long)s.regions,
                  (unsigned long long)s.bins, (unsigned long long)s.repairs_kept,
                  (unsigned long long)s.repairs_combined);
    assert_int_equal(a.missed, 0);
    assert_int_equal(a.twice, 0);
    assert_int_equal(a.wrong, 0);
    assert_int_equal(a.lost_events, 0);
    assert_true(a.slowest < 400 * MS);
    cluster_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ricochet__recovers_everything_with_naks),
    };
    return cmocka_run_group_tests_name("ricochet", tests, NULL, NULL);
}
