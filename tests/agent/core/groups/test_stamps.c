/* Stamps: a member that makes packets in another's name is not believed, in data, answers and repairs, and takes no
 * message from anybody by that; with stamps every engine delivers what it delivers without. */
#include "cluster.h"
#include "core/base/xxh64.h"
#include "core/qsm/wire.h"
#include "pair.h"

/* As a signature does: whoever stamps is in it, and all of the packet. Nodes here make only their own. */
static uint64_t stamp_of(rs_peer sender, const rs_messages_stamped *p) {
    uint64_t of = rs_gm_xxh64(p->id, RS_GM_ID, 0x5eed0000u + sender);
    return rs_gm_xxh64(p->rest, p->rest_length, rs_gm_xxh64(p->head, p->head_length, of));
}

static void make(void *context, const rs_messages_stamped *packets, uint32_t count) {
    uint32_t *batches = context;
    assert_in_range(count, 1, RS_MESSAGES_STAMPED);
    for (uint32_t i = 0; i < count; i++) {
        rs_gm_id id;
        rs_gm_get_id(packets[i].id, &id);
        uint64_t value = stamp_of(id.sender, &packets[i]);
        memcpy(packets[i].stamp, &value, sizeof value);
    }
    if (batches)
        ++*batches;
}

static bool is_right(void *context, rs_peer sender, const rs_messages_stamped *packet) {
    (void)context;
    uint64_t value = stamp_of(sender, packet);
    return memcmp(packet->stamp, &value, sizeof value) == 0;
}

static rs_messages_config stamped(uint32_t *batches) {
    return (rs_messages_config){.stamps = {.context = batches, .make = make, .is_right = is_right}};
}

/* The packet as another member would have it, check and all. */
static datagram *lie_of(const datagram *d) {
    datagram *lie = malloc(sizeof *lie);
    memcpy(lie, d, sizeof *lie);
    lie->bytes[d->length - 1] ^= 1;
    rs_gm_seal(lie->bytes, lie->length);
    return lie;
}

static void forged__data_is_not_believed_and_takes_nothing_away(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, stamped(NULL)), *receiver = pair_node(RECEIVER, stamped(NULL));
    const rs_messages_view view = {.protocol = "ricochet", .order = RS_ORDER_FIFO};
    datagram *d = calloc(2, sizeof *d);
    pair_view(sender, 1, &view, 1);
    pair_view(receiver, 1, &view, 1);
    for (uint8_t i = 0; i < 2; i++) {
        assert_int_equal(pair_publish(sender, 0, (uint8_t)(i + 1), 1000), RS_OK);
        assert_int_equal(pair_take(sender, 0, &d[i], 1), 1);
        datagram *lie = lie_of(&d[i]);
        pair_give(receiver, MS, lie);
        pair_expect_nothing(receiver);
        pair_give(receiver, MS, &d[i]);
        pair_expect(receiver, (uint8_t)(i + 1), 1000);
        free(lie);
    }
    assert_int_equal(pair_stats(receiver).forged, 2);
    assert_int_equal(pair_stats(receiver).corrupt, 0);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* A packet of another size of batch, far ahead, or without a stamp is no better. */
static void unstamped__packets_are_refused_where_all_are_stamped(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0}), *receiver = pair_node(RECEIVER, stamped(NULL));
    const rs_messages_view view = {.protocol = "plain"};
    datagram *d = calloc(1, sizeof *d);
    pair_view(sender, 1, &view, 1);
    pair_view(receiver, 1, &view, 1);
    assert_int_equal(pair_publish(sender, 0, 1, 700), RS_OK);
    assert_int_equal(pair_take(sender, 0, d, 1), 1);
    pair_give(receiver, MS, d);
    pair_expect_nothing(receiver);
    assert_int_equal(pair_stats(receiver).forged, 1);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* An answer to a request comes from any member: it cannot change what it passes on. */
static void answers__of_another_member_cannot_change_the_packet(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, stamped(NULL)), *receiver = pair_node(RECEIVER, stamped(NULL));
    const rs_messages_view view = {.protocol = "ricochet"};
    datagram *d = calloc(3, sizeof *d);
    pair_view(sender, 1, &view, 1);
    pair_view(receiver, 1, &view, 1);
    for (uint8_t i = 0; i < 3; i++) {
        assert_int_equal(pair_publish(sender, 0, (uint8_t)(i + 1), 1000), RS_OK);
        assert_int_equal(pair_take(sender, 0, &d[i], 1), 1);
    }
    pair_give(receiver, MS, &d[0]);
    pair_give(receiver, MS, &d[2]);
    pair_expect(receiver, 1, 1000);
    pair_expect(receiver, 3, 1000);
    d[1].bytes[3] = RS_GM_KIND_AGAIN;
    datagram *lie = lie_of(&d[1]);
    pair_give_from(receiver, 2 * MS, SENDER, lie);
    pair_expect_nothing(receiver);
    assert_int_equal(pair_stats(receiver).missing, 1);
    pair_give_from(receiver, 2 * MS, SENDER, &d[1]);
    pair_expect(receiver, 2, 1000);
    assert_int_equal(pair_stats(receiver).forged, 1);
    free(lie);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* What a repair restores carries its sender's stamp; who makes the repair cannot make that. */
static void repairs__that_restore_a_lie_are_refused(void **state) {
    (void)state;
    const rs_messages_view eager = {.protocol = "ricochet", .options = "r=2,c=3"};
    for (uint32_t lies = 0; lies < 2; lies++) {
        rs_messages *sender = pair_node(SENDER, stamped(NULL)), *receiver = pair_node(RECEIVER, stamped(NULL));
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
        datagram *lie = lie_of(&d[1]);
        const datagram *mixed_of[] = {&d[0], lies ? lie : &d[1]};
        rs_ricochet_put_repair(repair->bytes, 10, 2, d[0].length - RS_GM_HEADER);
        uint8_t *mixed = repair->bytes + RS_RICOCHET_REPAIR + 2 * RS_GM_ID;
        for (uint32_t i = 0; i < 2; i++) {
            memcpy(repair->bytes + RS_RICOCHET_REPAIR + i * RS_GM_ID, d[i].bytes + 4, RS_GM_ID);
            for (uint32_t k = RS_GM_HEADER; k < d[i].length; k++)
                mixed[k - RS_GM_HEADER] ^= mixed_of[i]->bytes[k];
        }
        repair->length = RS_RICOCHET_REPAIR + 2 * RS_GM_ID + d[0].length - RS_GM_HEADER;
        rs_gm_seal(repair->bytes, rs_ricochet_head_length(2));
        pair_give(receiver, 2 * MS, repair);
        if (lies)
            pair_expect_nothing(receiver);
        else
            pair_expect(receiver, 2, 1000);
        assert_int_equal(pair_stats(receiver).forged, lies);
        assert_int_equal(pair_stats(receiver).missing, lies);
        free(lie);
        free(d);
        free(repair);
        rs_messages_free(sender);
        rs_messages_free(receiver);
    }
}

/* Of a region, with that number, and one message. */
static void give_in_region(rs_messages *node, uint64_t number, const datagram *message) {
    uint8_t bytes[2048];
    rs_gm_id id;
    rs_gm_get_id(message->bytes + RS_GM_HEADER - RS_GM_ID, &id);
    const rs_qsm_inner inner = {GROUP, id.sn, message->bytes + RS_GM_HEADER, message->length - RS_GM_HEADER};
    const size_t length = RS_QSM_CARRIED + inner.length;
    assert_true(length <= sizeof bytes);
    rs_qsm_put_head(bytes, RS_QSM_KIND_DATA, &(rs_qsm_head){id.sender, id.incarnation, 7, 1});
    rs_qsm_put_sn(bytes, number);
    rs_qsm_put_inner(bytes + RS_QSM_DATA_HEAD, &inner);
    rs_gm_seal(bytes, length);
    assert_true(rs_messages_receive(node, MS, RS_NO_PEER, bytes, length));
}

/* Packets of regions have numbers that no stamp speaks for: a member that uses the next ones in a sender's name, for
 * messages of its own or for some that it heard, suppresses nothing. */
static void numbers__in_a_region_are_taken_by_the_senders_packets_alone(void **state) {
    (void)state;
    static const rs_peer nodes[] = {SENDER, RECEIVER, 9};
    static const uint32_t region = 7;
    rs_messages *sender = pair_node(SENDER, stamped(NULL)), *receiver = pair_node(RECEIVER, stamped(NULL));
    const rs_messages_view plain = {.protocol = "plain"};
    const rs_messages_view view = {.protocol = "qsm", .order = RS_ORDER_FIFO, .regions = &region, .region_count = 1};
    const rs_messages_region told = {
        .protocol = "qsm", .region = region, .version = 1, .channel = RS_NO_GROUP, .nodes = nodes, .node_count = 3};
    assert_int_equal(rs_messages_set_region(receiver, 0, &told), RS_OK);
    pair_view(sender, 1, &plain, 1); /* what it publishes is put into the region here */
    pair_view(receiver, 1, &view, 1);
    datagram *d = calloc(4, sizeof *d);
    for (uint8_t i = 0; i < 4; i++) {
        assert_int_equal(pair_publish(sender, 0, (uint8_t)(i + 1), 700), RS_OK);
        assert_int_equal(pair_take(sender, 0, &d[i], 1), 1);
        datagram *lie = lie_of(&d[i]);
        give_in_region(receiver, i + 1u, lie);
        if (i > 0)
            give_in_region(receiver, i + 1u, &d[i - 1]);
        pair_expect_nothing(receiver);
        give_in_region(receiver, i + 1u, &d[i]);
        pair_expect(receiver, (uint8_t)(i + 1), 700);
        give_in_region(receiver, i + 1u, &d[i]);
        pair_expect_nothing(receiver);
        free(lie);
    }
    assert_int_equal(rs_messages_count(receiver, "qsm_packets", "received"), 4);
    assert_int_equal(pair_stats(receiver).forged, 4);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

static void batches__are_of_what_waits(void **state) {
    (void)state;
    uint32_t batches = 0;
    rs_messages *sender = pair_node(SENDER, stamped(&batches)), *receiver = pair_node(RECEIVER, stamped(NULL));
    const rs_messages_view view = {.protocol = "plain", .order = RS_ORDER_FIFO};
    datagram *d = calloc(1, sizeof *d);
    pair_view(sender, 1, &view, 1);
    pair_view(receiver, 1, &view, 1);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(pair_publish(sender, 0, (uint8_t)(i + 1), 1000), RS_OK);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(pair_take(sender, 0, d, 1), 1);
        pair_give(receiver, MS, d);
        pair_expect(receiver, (uint8_t)(i + 1), 1000);
    }
    assert_int_equal(batches, 1);
    /* small ones share packets until these are stamped */
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(pair_publish(sender, 0, (uint8_t)(i + 1), 10), RS_OK);
    assert_int_equal(pair_take(sender, 0, d, 1), 1);
    pair_give(receiver, MS, d);
    for (uint32_t i = 0; i < 5; i++)
        pair_expect(receiver, (uint8_t)(i + 1), 10);
    assert_int_equal(batches, 2);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

static void lossy__groups_deliver_all_the_same(void **state) {
    (void)state;
    enum { NODES = 8, GROUPS = 6 };
    cluster_options options = {.nodes = NODES,
                               .seed = cluster_seed(),
                               .loss = 0.05,
                               .loss_of_data_only = true,
                               .delay = 50 * US,
                               .jitter = 2 * MS,
                               .config = stamped(NULL)};
    options.config.heartbeats = 10;
    cluster *c = cluster_new(&options);
    cluster_random_groups(c, GROUPS, 5, &(rs_messages_view){.protocol = "ricochet", .order = RS_ORDER_FIFO});
    for (uint32_t i = 0; i < 1500; i++) {
        cluster_publish(c, cluster_random(c, NODES), cluster_random(c, GROUPS),
                        20 + cluster_random(c, i % 50 ? 900 : 9000));
        cluster_run(c, cluster_now(c) + 600 * US);
    }
    cluster_run(c, cluster_now(c) + 13000 * MS);
    cluster_account a = cluster_check(c);
    assert_int_equal(a.wrong, 0);
    assert_int_equal(a.missed, 0);
    assert_int_equal(a.lost_events, 0);
    assert_true(a.packets_lost > 100);
    for (uint32_t i = 0; i < NODES; i++) {
        rs_messages_stats stats;
        rs_messages_stats_get(cluster_node(c, i), &stats);
        assert_int_equal(stats.forged, 0);
    }
    cluster_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged__data_is_not_believed_and_takes_nothing_away),
        cmocka_unit_test(unstamped__packets_are_refused_where_all_are_stamped),
        cmocka_unit_test(answers__of_another_member_cannot_change_the_packet),
        cmocka_unit_test(repairs__that_restore_a_lie_are_refused),
        cmocka_unit_test(numbers__in_a_region_are_taken_by_the_senders_packets_alone),
        cmocka_unit_test(batches__are_of_what_waits),
        cmocka_unit_test(lossy__groups_deliver_all_the_same),
    };
    return cmocka_run_group_tests_name("stamps", tests, NULL, NULL);
}
