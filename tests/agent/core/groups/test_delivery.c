/* What a subscriber gets: order, large messages, and reports of everything it does not get. */
#include "pair.h"

static const rs_messages_view PLAIN = {.protocol = "plain"};
static const rs_messages_view PLAIN_FIFO = {.protocol = "plain", .order = RS_ORDER_FIFO};

/* Of the engine that a test is run with. */
#define ANY (&(const rs_messages_view){.protocol = *state})
#define ANY_FIFO (&(const rs_messages_view){.protocol = *state, .order = RS_ORDER_FIFO})

typedef struct {
    rs_messages *sender, *receiver;
    datagram sent[64];
} pair;

static pair *start(const rs_messages_view *view, rs_messages_config config) {
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->sender = pair_node(SENDER, config);
    p->receiver = pair_node(RECEIVER, config);
    pair_view(p->sender, 1, view, 0);
    pair_view(p->receiver, 1, view, 0);
    return p;
}

static void end(pair *p) {
    rs_messages_free(p->sender);
    rs_messages_free(p->receiver);
    free(p);
}

/* Messages of 1,000 bytes (no two share a datagram), the n-th of them all bytes n, from 1. */
static void send(pair *p, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pair_publish(p->sender, 0, (uint8_t)(i + 1), 1000), RS_OK);
        assert_int_equal(pair_take(p->sender, 0, &p->sent[i], 1), 1);
    }
}

static void delivery__unordered_as_they_come(void **state) {
    pair *p = start(ANY, (rs_messages_config){0});
    send(p, 3);
    for (uint32_t i = 3; i-- > 0;) {
        pair_give(p->receiver, MS, &p->sent[i]);
        pair_expect(p->receiver, (uint8_t)(i + 1), 1000);
        pair_expect_nothing(p->receiver);
    }
    pair_give(p->receiver, MS, &p->sent[1]); /* again: not again */
    pair_expect_nothing(p->receiver);
    assert_int_equal(pair_stats(p->receiver).duplicates, 1);
    end(p);
}

static void delivery__fifo_waits_for_a_gap(void **state) {
    pair *p = start(ANY_FIFO, (rs_messages_config){0});
    send(p, 3);
    pair_give(p->receiver, MS, &p->sent[0]);
    pair_expect(p->receiver, 1, 1000);
    pair_give(p->receiver, MS, &p->sent[2]);
    pair_expect_nothing(p->receiver);
    pair_give(p->receiver, 2 * MS, &p->sent[1]);
    pair_expect(p->receiver, 2, 1000);
    pair_expect(p->receiver, 3, 1000);
    pair_expect_nothing(p->receiver);
    end(p);
}

static void delivery__fifo_gives_a_gap_up_in_time_and_says_so(void **state) {
    (void)state;
    pair *p = start(&PLAIN_FIFO, (rs_messages_config){.give_up_plain = 70 * MS});
    send(p, 4);
    pair_give(p->receiver, MS, &p->sent[0]);
    pair_expect(p->receiver, 1, 1000);
    pair_give(p->receiver, 2 * MS, &p->sent[3]);
    assert_int_equal(rs_messages_deadline(p->receiver), 72 * MS);
    rs_messages_timeout(p->receiver, 71 * MS);
    pair_expect_nothing(p->receiver);
    rs_messages_timeout(p->receiver, 72 * MS);
    pair_expect_lost(p->receiver, 2, 2, RS_LOST_NETWORK);
    pair_expect(p->receiver, 4, 1000);
    pair_give(p->receiver, 73 * MS, &p->sent[1]); /* too late: it was told as lost */
    pair_expect_nothing(p->receiver);
    assert_int_equal(pair_stats(p->receiver).missing, 0);
    end(p);
}

/* The first packets of a stream are missed too, not only those between others. */
static void delivery__the_first_packets_can_be_lost_too(void **state) {
    pair *p = start(ANY_FIFO, (rs_messages_config){0});
    send(p, 3);
    pair_give(p->receiver, MS, &p->sent[2]);
    pair_expect_nothing(p->receiver);
    assert_int_equal(pair_stats(p->receiver).missing, 2);
    pair_give(p->receiver, MS, &p->sent[1]);
    pair_give(p->receiver, MS, &p->sent[0]);
    for (uint8_t i = 1; i <= 3; i++)
        pair_expect(p->receiver, i, 1000);
    end(p);
}

/* Who joins later is owed what was published since, not what was before. */
static void delivery__a_joiner_is_owed_what_comes_after(void **state) {
    pair *p = start(ANY_FIFO, (rs_messages_config){0});
    rs_peer alone[] = {SENDER};
    rs_messages_view before = *ANY_FIFO;
    before.group = GROUP;
    before.channel = 9;
    before.version = 2;
    before.members = alone;
    before.member_count = 1;
    assert_int_equal(rs_messages_set_view(p->sender, 0, &before), RS_OK);
    assert_int_equal(rs_messages_set_view(p->receiver, 0, &before), RS_OK);
    send(p, 2);
    pair_give(p->receiver, MS, &p->sent[0]);
    pair_expect_nothing(p->receiver);
    assert_int_equal(pair_stats(p->receiver).foreign, 1);
    pair_view(p->sender, 3, ANY_FIFO, 0);
    pair_view(p->receiver, 3, ANY_FIFO, 0);
    for (uint32_t i = 2; i < 5; i++) {
        assert_int_equal(pair_publish(p->sender, 0, (uint8_t)(i + 1), 1000), RS_OK);
        assert_int_equal(pair_take(p->sender, 0, &p->sent[i], 1), 1);
        if (i == 3)
            pair_view(p->sender, 4, ANY_FIFO, 1); /* somebody else joins: that changes nothing for this one */
    }
    pair_give(p->receiver, MS, &p->sent[4]);
    assert_int_equal(pair_stats(p->receiver).missing, 2);
    pair_give(p->receiver, MS, &p->sent[3]);
    pair_give(p->receiver, MS, &p->sent[2]);
    for (uint8_t i = 3; i <= 5; i++)
        pair_expect(p->receiver, i, 1000);
    end(p);
}

static void delivery__large_messages_come_whole_in_any_order(void **state) {
    for (int fifo = 0; fifo < 2; fifo++) {
        pair *p = start(fifo ? ANY_FIFO : ANY, (rs_messages_config){0});
        assert_int_equal(pair_publish(p->sender, 0, 7, 20000), RS_OK);
        uint32_t count = pair_take(p->sender, 0, p->sent, 64);
        assert_true(count >= 14);
        for (uint32_t i = count; i-- > 0;) {
            pair_expect_nothing(p->receiver);
            pair_give(p->receiver, MS, &p->sent[i]);
        }
        pair_expect(p->receiver, 7, 20000);
        pair_expect_nothing(p->receiver);
        end(p);
    }
}

static void delivery__a_large_message_with_a_hole_is_told_as_lost(void **state) {
    (void)state;
    pair *p = start(&PLAIN, (rs_messages_config){.give_up_plain = 10 * MS, .assembly_bound = 50 * MS});
    assert_int_equal(pair_publish(p->sender, 0, 7, 5000), RS_OK);
    assert_int_equal(pair_take(p->sender, 0, p->sent, 64), 4);
    pair_give(p->receiver, MS, &p->sent[0]);
    pair_give(p->receiver, MS, &p->sent[2]); /* 1 is missing, and the last: nobody can know */
    rs_messages_timeout(p->receiver, 11 * MS);
    pair_expect_lost(p->receiver, 2, 1, RS_LOST_NETWORK);
    pair_expect_lost(p->receiver, 1, 2, RS_LOST_ASSEMBLY); /* came in vain */
    pair_give(p->receiver, 12 * MS, &p->sent[3]);
    pair_expect_lost(p->receiver, 4, 1, RS_LOST_ASSEMBLY);
    pair_expect_nothing(p->receiver);
    /* The tail of another one never comes: time bounds it. */
    assert_int_equal(pair_publish(p->sender, 0, 8, 5000), RS_OK);
    assert_int_equal(pair_take(p->sender, 0, p->sent, 64), 4);
    for (uint32_t i = 0; i < 3; i++)
        pair_give(p->receiver, 20 * MS, &p->sent[i]);
    assert_int_equal(rs_messages_deadline(p->receiver), 70 * MS);
    rs_messages_timeout(p->receiver, 70 * MS);
    pair_expect_lost(p->receiver, 5, 3, RS_LOST_ASSEMBLY);
    end(p);
}

static void delivery__messages_too_large_for_the_receiver_are_told(void **state) {
    pair *p = start(ANY, (rs_messages_config){0});
    rs_messages_free(p->receiver);
    p->receiver = pair_node(RECEIVER, (rs_messages_config){.message_bytes = 2000});
    pair_view(p->receiver, 1, ANY, 0);
    assert_int_equal(pair_publish(p->sender, 0, 7, 3000), RS_OK);
    assert_int_equal(pair_take(p->sender, 0, p->sent, 64), 3);
    for (uint32_t i = 0; i < 3; i++)
        pair_give(p->receiver, MS, &p->sent[i]);
    pair_expect_lost(p->receiver, 1, 3, RS_LOST_ASSEMBLY);
    pair_expect_nothing(p->receiver);
    end(p);
}

/* A subscriber that does not take its messages loses the newest, and is told how many. */
static void delivery__a_slow_subscriber_is_told_what_it_lost(void **state) {
    pair *p = start(ANY, (rs_messages_config){.deliveries = 4});
    send(p, 10);
    for (uint32_t i = 0; i < 10; i++)
        pair_give(p->receiver, MS, &p->sent[i]);
    for (uint8_t i = 1; i <= 4; i++)
        pair_expect(p->receiver, i, 1000);
    pair_expect_lost(p->receiver, 5, 6, RS_LOST_SLOW);
    pair_expect_nothing(p->receiver);
    end(p);
}

/* Messages whose bytes were overwritten before the subscriber took them are told as lost. */
static void delivery__what_was_overwritten_is_told(void **state) {
    pair *p = start(ANY, (rs_messages_config){.receive_bytes = 8192, .send_bytes = 8192});
    send(p, 12);
    for (uint32_t i = 0; i < 12; i++)
        pair_give(p->receiver, MS, &p->sent[i]);
    uint64_t lost = 0, delivered = 0;
    rs_messages_event event;
    while (rs_messages_poll_event(p->receiver, &event)) {
        lost += event.kind == RS_MESSAGES_LOST ? event.count : 0;
        delivered += event.kind == RS_MESSAGES_DELIVER;
        if (event.kind == RS_MESSAGES_LOST)
            assert_int_equal(event.reason, RS_LOST_SLOW);
        else
            assert_int_equal(event.bytes[999], event.sn);
    }
    assert_int_equal(lost + delivered, 12);
    assert_true(delivered >= 5 && lost >= 4);
    end(p);
}

/* More packets after a gap than the window holds: the gap is given up, what follows goes on. */
static void delivery__a_window_that_is_full_gives_up_the_oldest(void **state) {
    pair *p = start(ANY_FIFO, (rs_messages_config){.window_packets = 16});
    send(p, 40);
    for (uint32_t i = 0; i < 40; i++) {
        if (i != 5)
            pair_give(p->receiver, MS, &p->sent[i]);
    }
    for (uint8_t i = 1; i <= 5; i++)
        pair_expect(p->receiver, i, 1000);
    pair_expect_lost(p->receiver, 6, 1, RS_LOST_WINDOW);
    for (uint8_t i = 7; i <= 40; i++)
        pair_expect(p->receiver, i, 1000);
    pair_expect_nothing(p->receiver);
    end(p);
}

static void delivery__a_far_jump_is_told_at_once(void **state) {
    pair *p = start(ANY_FIFO, (rs_messages_config){.window_packets = 16});
    send(p, 60);
    pair_give(p->receiver, MS, &p->sent[0]);
    pair_give(p->receiver, MS, &p->sent[2]);
    pair_give(p->receiver, MS, &p->sent[50]);
    pair_expect(p->receiver, 1, 1000);
    pair_expect_nothing(p->receiver); /* believed when the next one follows it */
    pair_give(p->receiver, MS, &p->sent[51]);
    pair_expect_lost(p->receiver, 2, 1, RS_LOST_WINDOW);
    pair_expect(p->receiver, 3, 1000);
    pair_expect_lost(p->receiver, 4, 47, RS_LOST_WINDOW);
    pair_give(p->receiver, MS, &p->sent[50]);
    pair_expect(p->receiver, 51, 1000);
    pair_expect(p->receiver, 52, 1000);
    pair_expect_nothing(p->receiver);
    end(p);
}

/* A sender that is restarted starts over; packets of its former life are no longer taken. */
static void delivery__a_sender_that_restarts(void **state) {
    pair *p = start(ANY, (rs_messages_config){0});
    send(p, 3);
    pair_give(p->receiver, MS, &p->sent[0]);
    pair_expect(p->receiver, 1, 1000);
    rs_messages_free(p->sender);
    p->sender = pair_node(SENDER, (rs_messages_config){.incarnation = 4});
    pair_view(p->sender, 1, ANY, 0);
    assert_int_equal(pair_publish(p->sender, 0, 99, 1000), RS_OK);
    assert_int_equal(pair_take(p->sender, 0, &p->sent[10], 1), 1);
    pair_give(p->receiver, 2 * MS, &p->sent[10]);
    pair_expect_nothing(p->receiver); /* no view tells of that yet */
    pair_view_of(p->receiver, 2, ANY, (const pair_server[]){{SENDER, 4, false}, {RECEIVER, 3, false}}, 2);
    pair_expect_lost(p->receiver, 2, 0, RS_LOST_RESTART);
    pair_expect(p->receiver, 99, 1000);
    pair_give(p->receiver, 3 * MS, &p->sent[1]);
    pair_expect_nothing(p->receiver);
    assert_int_equal(pair_stats(p->receiver).early, 2);
    end(p);
}

/* After the group is forgotten nothing of it is delivered any more, and nothing is owed. */
static void delivery__forgotten_groups_are_silent(void **state) {
    pair *p = start(ANY, (rs_messages_config){0});
    send(p, 3);
    assert_int_equal(pair_publish(p->sender, 0, 9, 3000), RS_OK);
    assert_int_equal(pair_take(p->sender, 0, &p->sent[3], 3), 3);
    for (uint32_t i = 0; i < 6; i++) {
        if (i != 1)
            pair_give(p->receiver, MS, &p->sent[i]);
    }
    assert_int_equal(rs_messages_forget(p->receiver, MS, GROUP), RS_OK);
    pair_expect_nothing(p->receiver);
    pair_take(p->receiver, MS, p->sent, 64); /* repairs that were begun go out: others may need them */
    rs_messages_timeout(p->receiver, 5000 * MS);
    pair_expect_nothing(p->receiver);
    assert_int_equal(pair_stats(p->receiver).missing, 0);
    assert_int_equal(pair_stats(p->receiver).streams, 0);
    assert_true(rs_messages_deadline(p->receiver) == RS_NEVER);
    assert_int_equal(pair_take(p->receiver, MS, p->sent, 64), 0);
    end(p);
}

#define WITH(test, engine) \
    { #test "[" engine "]", test, NULL, NULL, engine }
#define EACH(test) WITH(test, "plain"), WITH(test, "ricochet"), WITH(test, "resend")

int main(void) {
    const struct CMUnitTest tests[] = {
        EACH(delivery__unordered_as_they_come),
        EACH(delivery__fifo_waits_for_a_gap),
        cmocka_unit_test(delivery__fifo_gives_a_gap_up_in_time_and_says_so),
        EACH(delivery__the_first_packets_can_be_lost_too),
        EACH(delivery__a_joiner_is_owed_what_comes_after),
        EACH(delivery__large_messages_come_whole_in_any_order),
        cmocka_unit_test(delivery__a_large_message_with_a_hole_is_told_as_lost),
        EACH(delivery__messages_too_large_for_the_receiver_are_told),
        EACH(delivery__a_slow_subscriber_is_told_what_it_lost),
        EACH(delivery__what_was_overwritten_is_told),
        EACH(delivery__a_window_that_is_full_gives_up_the_oldest),
        EACH(delivery__a_far_jump_is_told_at_once),
        EACH(delivery__a_sender_that_restarts),
        EACH(delivery__forgotten_groups_are_silent),
    };
    return cmocka_run_group_tests_name("delivery", tests, NULL, NULL);
}
