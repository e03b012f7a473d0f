/* The sender's side, repairs and NAKs packet by packet, and the buffer in front of a node. */
#include "core/groups/engine.h"
#include "core/ricochet/options.h"
#include "pair.h"

static const rs_messages_view RICOCHET = {.protocol = "ricochet"};
/* Repairs of two packets, for everybody. */
static const rs_messages_view EAGER = {.protocol = "ricochet", .options = "r=2,c=64"};

static void publish__needs_a_view_and_a_length(void **state) {
    (void)state;
    rs_messages *node = pair_node(SENDER, (rs_messages_config){.message_bytes = 5000});
    assert_int_equal(pair_publish(node, 0, 1, 10), RS_ERR_UNKNOWN);
    pair_view(node, 1, &RICOCHET, 0);
    assert_int_equal(pair_publish(node, 0, 1, 5001), RS_ERR_INVALID);
    assert_int_equal(pair_publish(node, 0, 1, 5000), RS_OK);
    rs_messages_free(node);
}

/* Small messages published while one waits share its datagram, in order; a message of no bytes is one too. */
static void publish__small_messages_share_a_datagram(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0}),
                *receiver = pair_node(RECEIVER, (rs_messages_config){0});
    datagram *d = calloc(8, sizeof *d);
    pair_view(sender, 1, &RICOCHET, 0);
    pair_view(receiver, 1, &RICOCHET, 0);
    for (uint8_t i = 0; i < 5; i++)
        assert_int_equal(pair_publish(sender, 0, i, i * 100), RS_OK);
    assert_int_equal(pair_take(sender, 0, d, 8), 1);
    assert_int_equal(pair_publish(sender, 0, 9, 100), RS_OK); /* that one is gone: a new one */
    assert_int_equal(pair_take(sender, 0, d + 1, 7), 1);
    pair_give(receiver, MS, &d[0]);
    for (uint8_t i = 0; i < 5; i++)
        pair_expect(receiver, i, i * 100);
    pair_give(receiver, MS, &d[1]);
    pair_expect(receiver, 9, 100);
    assert_int_equal(pair_stats(sender).data_sent, 2);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* Packets of one length leave an agent together: a large message is made of such, but for a last one that is shorter
 * by less than a byte for each. */
static void publish__large_messages_are_packets_of_one_length(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){.message_bytes = 100000}),
                *receiver = pair_node(RECEIVER, (rs_messages_config){.message_bytes = 100000});
    datagram *d = calloc(128, sizeof *d);
    pair_view(sender, 1, &RICOCHET, 0);
    pair_view(receiver, 1, &RICOCHET, 0);
    for (uint32_t length = 1400; length <= 100000; length += length / 3 + 1) {
        assert_int_equal(pair_publish(sender, 0, 7, length), RS_OK);
        uint32_t count = pair_take(sender, 0, d, 128);
        assert_int_equal(count, (length - 1) / (d[0].length - RS_GM_DATA_LEAST - RS_GM_PART) + 1);
        assert_true(count > 1);
        for (uint32_t i = 0; i + 1 < count; i++)
            assert_int_equal(d[i].length, d[0].length);
        assert_in_range(d[count - 1].length, d[0].length - count + 1, d[0].length);
        for (uint32_t i = 0; i < count; i++)
            pair_give(receiver, MS, &d[i]);
        pair_expect(receiver, 7, length);
    }
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* What waits to be sent is never overwritten: the publisher is told to wait. */
static void publish__says_when_too_much_waits(void **state) {
    (void)state;
    rs_messages *node = pair_node(SENDER, (rs_messages_config){.send_bytes = 16384});
    datagram *d = calloc(64, sizeof *d);
    pair_view(node, 1, &RICOCHET, 0);
    uint32_t count = 0;
    while (pair_publish(node, 0, (uint8_t)count, 1000) == RS_OK)
        count++;
    assert_true(count >= 13 && count <= 16);
    assert_int_equal(pair_publish(node, 0, 1, 1000), RS_ERR_LIMIT);
    assert_int_equal(pair_publish(node, 0, 1, 8000), RS_ERR_LIMIT);
    assert_true(rs_messages_unsent(node) > 12000);
    assert_int_equal(pair_take(node, 0, d, 64), count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(d[i].bytes[RS_GM_DATA_LEAST + 500], i);
    assert_int_equal(rs_messages_unsent(node), 0);
    assert_int_equal(pair_publish(node, 0, 1, 1000), RS_OK);
    free(d);
    rs_messages_free(node);
}

/* A receiver that got both packets of a repair makes it for the one that missed one of them. */
static void repairs__give_the_packet_that_is_missing(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0}),
                *receiver = pair_node(RECEIVER, (rs_messages_config){0});
    rs_messages *other = pair_node(10, (rs_messages_config){0});
    datagram *d = calloc(16, sizeof *d);
    pair_view(sender, 1, &EAGER, 1);
    pair_view(receiver, 1, &EAGER, 1);
    pair_view(other, 1, &EAGER, 1);
    for (uint8_t i = 0; i < 8; i++) {
        assert_int_equal(pair_publish(sender, 0, i, 600 + 100u * i), RS_OK);
        assert_int_equal(pair_take(sender, 0, &d[i], 1), 1);
        pair_give(other, MS, &d[i]);
        if (i % 2 == 0)
            pair_give(receiver, MS, &d[i]);
    }
    datagram *repairs = calloc(64, sizeof *repairs);
    uint32_t count = pair_take(other, MS, repairs, 64);
    for (uint32_t i = 0; i < count; i++) {
        if (repairs[i].peer == RECEIVER)
            pair_give(receiver, 2 * MS, &repairs[i]);
    }
    rs_messages_event event;
    uint32_t repaired = 0, all = 0;
    while (rs_messages_poll_event(receiver, &event)) {
        assert_int_equal(event.kind, RS_MESSAGES_DELIVER);
        assert_int_equal(event.length, 600 + 100 * (event.sn - 1));
        for (uint32_t i = 0; i < event.length; i++)
            assert_int_equal(event.bytes[i], event.sn - 1);
        repaired += event.via == RS_VIA_REPAIR;
        all++;
    }
    assert_true(all >= 6 && repaired == all - 4); /* the last two may be in repairs that are not full yet */
    free(d);
    free(repairs);
    rs_messages_free(sender);
    rs_messages_free(receiver);
    rs_messages_free(other);
}

/* A repair of the packets whose data are given, as another member would make it. */
static void make_repair(datagram *out, const datagram *data, const uint32_t *which, uint32_t count) {
    uint32_t longest = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < count; i++)
        longest = data[which[i]].length - RS_GM_HEADER > longest ? data[which[i]].length - RS_GM_HEADER : longest;
    rs_ricochet_put_repair(out->bytes, 10, count, longest);
    uint8_t *body = out->bytes + RS_RICOCHET_REPAIR + count * RS_GM_ID;
    for (uint32_t i = 0; i < count; i++) {
        const datagram *d = &data[which[i]];
        memcpy(out->bytes + RS_RICOCHET_REPAIR + i * RS_GM_ID, d->bytes + 4, RS_GM_ID);
        for (uint32_t k = 0; k < d->length - RS_GM_HEADER; k++)
            body[k] ^= d->bytes[RS_GM_HEADER + k];
    }
    out->length = RS_RICOCHET_REPAIR + count * RS_GM_ID + longest;
    rs_gm_seal(out->bytes, rs_ricochet_head_length(count));
}

/* Ricochet, Sec. 4.2.8: two repairs that cannot be used differ in one packet: they give that packet, and then both the
 * others as soon as one of them comes. */
static void repairs__unusable_ones_are_combined(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0}),
                *receiver = pair_node(RECEIVER, (rs_messages_config){0});
    datagram *d = calloc(8, sizeof *d), *repair = calloc(1, sizeof *repair);
    pair_view(sender, 1, &EAGER, 1);
    pair_view(receiver, 1, &EAGER, 1);
    for (uint8_t i = 0; i < 4; i++) {
        assert_int_equal(pair_publish(sender, 0, i, 1000 - 100u * i), RS_OK);
        assert_int_equal(pair_take(sender, 0, &d[i], 1), 1);
    }
    pair_give(receiver, MS, &d[3]);
    pair_expect(receiver, 3, 700);
    make_repair(repair, d, (uint32_t[]){0, 1, 3}, 3);
    pair_give(receiver, MS, repair);
    pair_expect_nothing(receiver);
    assert_int_equal(rs_messages_count(receiver, "repairs", "kept"), 1);
    make_repair(repair, d, (uint32_t[]){1, 0, 2}, 3);
    pair_give(receiver, MS, repair);
    pair_expect(receiver, 2, 800);
    pair_expect_nothing(receiver);
    assert_int_equal(rs_messages_count(receiver, "repairs", "combined"), 1);
    pair_give(receiver, MS, &d[1]); /* the kept one now misses a single packet */
    pair_expect(receiver, 1, 900);
    pair_expect(receiver, 0, 1000);
    pair_expect_nothing(receiver);
    assert_int_equal(pair_stats(receiver).recovered_repair, 2);
    free(d);
    free(repair);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* Quiet groups: a repair that does not fill is sent after the time that was asked for. */
static void repairs__that_do_not_fill_are_sent_in_time(void **state) {
    (void)state;
    rs_messages_view view = {.protocol = "ricochet", .options = "r=32,c=64"};
    const rs_ricochet_config config = {.flush = 15 * MS};
    const rs_group_engine_config engine = {"ricochet", &config};
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0});
    rs_messages *receiver = pair_node(RECEIVER, (rs_messages_config){.engines = &engine, .engine_count = 1});
    datagram *d = calloc(8, sizeof *d);
    pair_view(sender, 1, &view, 1);
    pair_view(receiver, 1, &view, 1);
    assert_int_equal(pair_publish(sender, 0, 4, 1000), RS_OK);
    assert_int_equal(pair_take(sender, 0, d, 1), 1);
    pair_give(receiver, 2 * MS, d);
    uint32_t at_once = pair_take(receiver, 2 * MS, d, 8); /* the first round of a bin may be of one packet */
    if (at_once == 0) {
        assert_int_equal(rs_messages_deadline(receiver), 17 * MS);
        rs_messages_timeout(receiver, 17 * MS);
        at_once = pair_take(receiver, 17 * MS, d, 8);
    }
    assert_int_equal(at_once, 2); /* for the sender, which is a member, and for the other one */
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* The same as the group's own option: what comes after so long takes such a repair along, and without any the timer of
 * twice so long does. */
static void repairs__of_a_group_are_flushed_as_its_options_say(void **state) {
    (void)state;
    rs_messages_view view = {.protocol = "ricochet", .options = "r=16,c=64,flush=0.4"};
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0});
    rs_messages *receiver = pair_node(RECEIVER, (rs_messages_config){0});
    datagram *d = calloc(64, sizeof *d);
    uint32_t streaming = 0, ended = 0;
    pair_view(sender, 1, &view, 1);
    pair_view(receiver, 1, &view, 1);
    for (uint8_t i = 0; i < 60; i++) { /* each 0.1 ms, and no timer runs */
        const rs_time now = 10 * MS + i * (MS / 10);
        assert_int_equal(pair_publish(sender, now, i, 400), RS_OK);
        assert_int_equal(pair_take(sender, now, d, 1), 1);
        pair_give(receiver, now, d);
        pair_expect(receiver, i, 400);
        assert_true(rs_messages_deadline(receiver) > now); /* a stream's next packets come before its timers */
        streaming += pair_take(receiver, now, d, 64);
    }
    assert_in_range(streaming, 20, 48); /* to two others, of two in the making, each of two to five packets */
    const rs_time last = 10 * MS + 59 * (MS / 10);
    for (rs_time now = last + MS / 10; now <= last + MS; now += MS / 10) {
        rs_messages_timeout(receiver, now);
        ended += pair_take(receiver, now, d, 64);
    }
    assert_in_range(ended, 2, 4);
    assert_int_equal(rs_messages_count(receiver, "repairs", "sent"), streaming + ended);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* A new view may bring another engine; what was published before and after is delivered. */
static void engines__are_switched_by_a_view(void **state) {
    (void)state;
    const rs_messages_view plain = {.protocol = "plain"};
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0});
    rs_messages *receiver = pair_node(RECEIVER, (rs_messages_config){0});
    datagram *d = calloc(64, sizeof *d);
    for (uint64_t version = 1; version <= 4; version++) {
        pair_view(sender, version, version % 2 ? &plain : &EAGER, 1);
        pair_view(receiver, version, version % 2 ? &plain : &EAGER, 1);
        for (uint8_t i = 0; i < 6; i++) {
            assert_int_equal(pair_publish(sender, MS, i, 900), RS_OK);
            assert_int_equal(pair_take(sender, MS, d, 1), 1);
            pair_give(receiver, MS, d);
            pair_expect(receiver, i, 900);
        }
        /* Repairs are made by the one engine, not by the other; none are left of a bin that went away. */
        assert_int_equal(pair_take(receiver, MS, d, 64) > 0, version % 2 == 0);
        assert_int_equal(rs_messages_count(receiver, "bins", NULL) > 0, version % 2 == 0);
        pair_view(receiver, 100 * version, &plain, 1);
        pair_take(receiver, MS, d, 64);
        rs_messages_forget(receiver, MS, GROUP);
    }
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

static void engines__are_known_by_name(void **state) {
    (void)state;
    rs_messages *node = pair_node(SENDER, (rs_messages_config){0});
    char options[RS_GROUP_OPTIONS_TEXT];
    assert_string_equal(rs_messages_engine(node, 0)->name, "plain");
    assert_string_equal(rs_messages_engine(node, 1)->name, "ricochet");
    assert_string_equal(rs_messages_engine(node, 2)->name, "qsm");
    assert_string_equal(rs_messages_engine(node, 3)->name, "resend");
    assert_null(rs_messages_engine(node, 4));
    assert_int_equal(rs_messages_check_options(node, "carrier pigeon", NULL, "", options), RS_ERR_PROTOCOL);
    assert_non_null(strstr(rs_messages_refusal(node), "there is plain, ricochet, qsm, resend"));
    assert_non_null(strstr(rs_strerror(RS_ERR_PROTOCOL), "protocol"));
    rs_messages_free(node);
}

/* What is of a kind that no engine here has is refused, and who looks is told which. */
static void receive__counts_kinds_that_no_engine_has(void **state) {
    (void)state;
    rs_messages *node = pair_node(SENDER, (rs_messages_config){0});
    uint8_t bytes[64] = {0};
    for (uint32_t kind = 41; kind < 256; kind++) {
        rs_gm_put_kind(bytes, (uint8_t)kind);
        assert_false(rs_messages_receive(node, MS, RECEIVER, bytes, sizeof bytes));
        assert_int_equal(pair_stats(node).kinds, kind - 40);
        assert_int_equal(pair_stats(node).other_kind, kind);
    }
    rs_gm_put_kind(bytes, RS_RICOCHET_KIND_REPAIR); /* malformed, but known */
    assert_false(rs_messages_receive(node, MS, RECEIVER, bytes, sizeof bytes));
    assert_int_equal(pair_stats(node).kinds, 215);
    rs_messages_free(node);
}

/* Shared addresses bring packets of other groups: dropped and counted. */
static void receive__counts_what_is_of_other_groups(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0}),
                *stranger = pair_node(77, (rs_messages_config){0});
    datagram *d = calloc(1, sizeof *d);
    pair_view(sender, 1, &RICOCHET, 0);
    assert_int_equal(pair_publish(sender, 0, 4, 1000), RS_OK);
    assert_int_equal(pair_take(sender, 0, d, 1), 1);
    pair_give(stranger, 0, d);
    pair_expect_nothing(stranger);
    assert_int_equal(pair_stats(stranger).foreign, 1);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(stranger);
}

/* Ricochet, Sec. 4.2.6: a full buffer drops at random, so that what is lost is not a burst; the rest is in order. */
static void rx_queue__drops_at_random_when_it_is_full(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0});
    rs_messages *receiver = pair_node(RECEIVER, (rs_messages_config){.rx_queue_packets = 50});
    datagram *d = calloc(1, sizeof *d);
    pair_view(sender, 1, &RICOCHET, 0);
    pair_view(receiver, 1, &RICOCHET, 0);
    uint32_t dropped = 0, delivered = 0, last = 0, from_first_half = 0;
    for (uint32_t i = 1; i <= 100; i++) {
        assert_int_equal(pair_publish(sender, 0, (uint8_t)i, 1000), RS_OK);
        assert_int_equal(pair_take(sender, 0, d, 1), 1);
        dropped += !rs_messages_enqueue(receiver, SENDER, d->bytes, d->length);
    }
    assert_int_equal(dropped, 50);
    assert_int_equal(rs_messages_work(receiver, MS, 20), 20);
    assert_true(rs_messages_enqueue(receiver, SENDER, d->bytes, d->length)); /* room again */
    assert_int_equal(rs_messages_work(receiver, MS, 1000), 31);
    assert_int_equal(rs_messages_work(receiver, MS, 1000), 0);
    rs_messages_event event;
    while (rs_messages_poll_event(receiver, &event)) {
        assert_true(event.sn > last);
        last = (uint32_t)event.sn;
        from_first_half += event.sn <= 50;
        delivered++;
    }
    assert_int_equal(delivered, 50);
    assert_true(from_first_half > 5 && from_first_half < 40);
    free(d);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* Any allocation may fail: calls say so or do less, and nothing leaks or breaks. */
static void memory__may_fail_anywhere(void **state) {
    (void)state;
    const rs_allocator allocator = pair_allocator();
    datagram *d = calloc(64, sizeof *d);
    bool through = false;
    for (uint64_t fail = 0; !through && fail < 400; fail++) {
        rs_messages *node[2];
        rs_messages_config config = {.self = SENDER, .receive_bytes = 65536, .send_bytes = 65536, .deliveries = 64};
        pair_fail_after = fail;
        node[0] = rs_messages_new(&config, &allocator);
        config.self = RECEIVER;
        node[1] = rs_messages_new(&config, &allocator);
        bool failed = !node[0] || !node[1];
        for (uint64_t version = 1; version <= 2 && !failed; version++) {
            rs_peer members[] = {SENDER, RECEIVER, 10, 11};
            rs_messages_view view = EAGER;
            view.group = GROUP;
            view.version = version;
            view.members = members;
            view.member_count = version == 1 ? 3 : 4;
            failed |= rs_messages_set_view(node[0], 0, &view) != RS_OK;
            failed |= rs_messages_set_view(node[1], 0, &view) != RS_OK;
            uint8_t bytes[4000] = {0};
            for (uint32_t i = 0; i < 20; i++)
                rs_messages_publish(node[0], 0, GROUP, bytes, i % 5 ? 1000 : 4000, NULL);
            uint32_t count = pair_take(node[0], 0, d, 64);
            for (uint32_t i = 0; i < count; i++) {
                if (i % 4)
                    rs_messages_receive(node[1], MS, SENDER, d[i].bytes, d[i].length);
            }
            for (rs_time now = MS; now < 400 * MS; now += 20 * MS) {
                rs_messages_timeout(node[1], now);
                count = pair_take(node[1], now, d, 64);
                for (uint32_t i = 0; i < count && i < 40; i++)
                    rs_messages_receive(node[0], now, RECEIVER, d[i].bytes, d[i].length);
                count = pair_take(node[0], now, d, 64);
                for (uint32_t i = 0; i < count; i++)
                    rs_messages_receive(node[1], now, SENDER, d[i].bytes, d[i].length);
            }
        }
        through = pair_fail_after > 0;
        rs_messages_free(node[0]);
        rs_messages_free(node[1]);
    }
    pair_fail_after = UINT64_MAX;
    assert_true(through);
    free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(publish__needs_a_view_and_a_length),
        cmocka_unit_test(publish__small_messages_share_a_datagram),
        cmocka_unit_test(publish__large_messages_are_packets_of_one_length),
        cmocka_unit_test(publish__says_when_too_much_waits),
        cmocka_unit_test(repairs__give_the_packet_that_is_missing),
        cmocka_unit_test(repairs__unusable_ones_are_combined),
        cmocka_unit_test(repairs__that_do_not_fill_are_sent_in_time),
        cmocka_unit_test(repairs__of_a_group_are_flushed_as_its_options_say),
        cmocka_unit_test(engines__are_switched_by_a_view),
        cmocka_unit_test(engines__are_known_by_name),
        cmocka_unit_test(receive__counts_kinds_that_no_engine_has),
        cmocka_unit_test(receive__counts_what_is_of_other_groups),
        cmocka_unit_test(rx_queue__drops_at_random_when_it_is_full),
        cmocka_unit_test(memory__may_fail_anywhere),
    };
    return cmocka_run_group_tests_name("publish", tests, NULL, NULL);
}
