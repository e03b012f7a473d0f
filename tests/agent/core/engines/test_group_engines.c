/* What every engine of groups must do, each row of the table in turn: plain, Ricochet, QSM, and one that is made for
 * this test (resend.c). What they deliver of few packets in a test's hands: groups/test_delivery.c. */
#include <stdio.h>

#include "cluster.h"

static const rs_group_engine *engine_of(void **state) {
    return *(const rs_group_engine *const *)*state;
}

static bool recovers(void **state) {
    return strcmp(engine_of(state)->name, "plain") != 0;
}

/* Once at most, the right bytes, in order where that was asked for; and each packet that is missed was told. */
static cluster_account check(cluster *c, uint64_t seed) {
    cluster_account a = cluster_check(c);
    print_message("seed %llu: due %llu, delivered %llu (asked for %llu), told as lost %llu\n", (unsigned long long)seed,
                  (unsigned long long)a.due, (unsigned long long)a.delivered,
                  (unsigned long long)a.by_via[RS_VIA_RETRANSMIT], (unsigned long long)a.lost_events);
    assert_int_equal(a.twice + a.wrong + a.out_of_order, 0);
    return a;
}

static void publish(cluster *c, uint32_t count, uint32_t nodes, uint32_t groups, uint32_t longest) {
    for (uint32_t i = 0; i < count; i++) {
        cluster_publish(c, cluster_random(c, nodes), cluster_random(c, groups), 1000 + cluster_random(c, longest));
        cluster_run(c, cluster_now(c) + 200 * US);
    }
}

static void nothing_is_lost__all_comes_by_multicast(void **state) {
    const uint64_t seed = cluster_seed();
    cluster_options options = {.nodes = 8, .seed = seed, .delay = 50 * US, .jitter = 30 * US};
    cluster *c = cluster_new(&options);
    rs_messages_view view = {.protocol = engine_of(state)->name, .order = RS_ORDER_FIFO};
    cluster_random_groups(c, 6, 5, &view);
    publish(c, 400, 8, 6, 5000);
    cluster_run(c, cluster_now(c) + 3000 * MS);
    cluster_account a = check(c, seed);
    assert_int_equal(a.missed + a.lost_events, 0);
    assert_int_equal(a.by_via[RS_VIA_DATA], a.due);
    assert_int_equal(cluster_on_second_channels(c), 0);
    cluster_free(c);
}

/* The last packet of each stream is among those that may be lost. */
static void losses__come_back_or_are_told(void **state) {
    const uint64_t seed = cluster_seed();
    for (uint32_t order = 0; order < 2; order++) {
        cluster_options options = {.nodes = 8, .seed = seed, .loss = 0.1, .delay = 50 * US, .jitter = 30 * US};
        cluster *c = cluster_new(&options);
        rs_messages_view view = {.protocol = engine_of(state)->name, .order = (rs_messages_order)order};
        cluster_random_groups(c, 6, 5, &view);
        publish(c, 600, 8, 6, 1);
        cluster_loss(c, 0);
        cluster_run(c, cluster_now(c) + 40000 * MS);
        cluster_account a = check(c, seed);
        assert_true(a.packets_lost > 100);
        assert_int_equal(a.missed, a.lost_events);
        assert_true(recovers(state) ? a.missed == 0 : a.missed > 100);
        assert_int_equal(cluster_on_second_channels(c) > 0, strcmp(view.protocol, "resend") == 0);
        cluster_free(c);
    }
}

/* Members come and go; packets are lost, doubled, overtaken; messages are small and large. */
static void members__that_change_get_each_message_once(void **state) {
    const uint64_t seed = cluster_seed();
    cluster_options options = {
        .nodes = 12, .seed = seed, .loss = 0.03, .duplicated = 0.05, .delay = 50 * US, .jitter = 2 * MS};
    cluster *c = cluster_new(&options);
    for (uint32_t id = 0; id < 10; id++) {
        rs_messages_view view = {.protocol = engine_of(state)->name, .order = id % 2 ? RS_ORDER_FIFO : RS_ORDER_NONE};
        rs_peer members[5];
        for (uint32_t i = 0; i < 5; i++)
            members[i] = (id + 2 * i) % 12;
        cluster_view(c, id, members, 5, &view);
    }
    for (uint32_t i = 0; i < 600; i++) {
        cluster_publish(c, cluster_random(c, 12), cluster_random(c, 10), 4 + cluster_random(c, i % 20 ? 300 : 9000));
        if (i % 8 == 0)
            cluster_move(c, cluster_random(c, 10));
        cluster_run(c, cluster_now(c) + 300 * US);
    }
    cluster_loss(c, 0);
    cluster_run(c, cluster_now(c) + 40000 * MS);
    cluster_account a = check(c, seed);
    assert_true(recovers(state) ? a.missed + a.lost_events == 0 : a.missed > 0);
    cluster_free(c);
}

/* The group runs another engine from one view to the next, while packets are missing: nobody trips over what was. */
static void engines__that_change_in_the_middle(void **state) {
    const uint64_t seed = cluster_seed();
    cluster_options options = {.nodes = 6, .seed = seed, .loss = 0.2, .delay = 50 * US};
    cluster *c = cluster_new(&options);
    const rs_peer members[] = {0, 1, 2, 3, 4, 5};
    for (uint32_t turn = 0; turn < 12; turn++) {
        const char *name =
            turn % 2 ? engine_of(state)->name : rs_group_engines_known[turn / 2 % rs_group_engine_count]->name;
        cluster_view(c, 0, members, 6, &(rs_messages_view){.protocol = name});
        publish(c, 60, 6, 1, 3000);
    }
    cluster_loss(c, 0);
    cluster_run(c, cluster_now(c) + 40000 * MS);
    check(c, seed);
    cluster_free(c);
}

static void options__are_checked_and_completed(void **state) {
    cluster_options options = {.nodes = 1, .seed = 1};
    cluster *c = cluster_new(&options);
    rs_messages *node = cluster_node(c, 0);
    const rs_group_engine *engine = engine_of(state);
    char complete[RS_GROUP_OPTIONS_TEXT], again[RS_GROUP_OPTIONS_TEXT], text[64];
    assert_int_equal(rs_messages_check_options(node, engine->name, NULL, NULL, complete), RS_OK);
    assert_int_equal(rs_messages_check_options(node, engine->name, NULL, complete, again), RS_OK);
    assert_string_equal(complete, again);
    assert_int_equal(rs_messages_check_options(node, engine->name, NULL, "nonsense=1", again), RS_ERR_INVALID);
    assert_non_null(strstr(rs_messages_refusal(node), "has no option 'nonsense'"));
    for (uint32_t i = 0; i < engine->option_count; i++) {
        snprintf(text, sizeof text, "%s=%u", engine->options[i].name, engine->options[i].most_milli / 1000 + 1);
        assert_int_equal(rs_messages_check_options(node, engine->name, NULL, text, again), RS_ERR_INVALID);
        assert_non_null(strstr(rs_messages_refusal(node), "is out of range"));
    }
    cluster_free(c);
}

#define ROWS 4u

int main(void) {
    struct CMUnitTest tests[5 * ROWS];
    static char names[5 * ROWS][96];
    const struct CMUnitTest each[] = {
        cmocka_unit_test(nothing_is_lost__all_comes_by_multicast), cmocka_unit_test(losses__come_back_or_are_told),
        cmocka_unit_test(members__that_change_get_each_message_once),
        cmocka_unit_test(engines__that_change_in_the_middle), cmocka_unit_test(options__are_checked_and_completed)};
    assert_int_equal(rs_group_engine_count, ROWS);
    for (uint32_t i = 0; i < 5 * ROWS; i++) {
        tests[i] = each[i / ROWS];
        tests[i].initial_state = (void *)(uintptr_t)&rs_group_engines_known[i % ROWS];
        snprintf(names[i], sizeof names[i], "%s[%s]", each[i / ROWS].name, rs_group_engines_known[i % ROWS]->name);
        tests[i].name = names[i];
    }
    return cmocka_run_group_tests_name("group_engines", tests, NULL, NULL);
}
