/* Sealed datagrams: whoever has no key can send once more what it heard, whoever has a group's key can make packets and
 * heartbeats in another's name. Nothing is delivered twice, and the sender is heard again once it was asked. */
#include "core/groups/state.h"
#include "pair.h"

static const rs_messages_view RICOCHET = {.protocol = "ricochet"};
static const rs_messages_view FIFO = {.protocol = "ricochet", .order = RS_ORDER_FIFO};
static const rs_messages_view PLAIN = {.protocol = "plain"};

#define LIFE 500u
#define MOST 64u
#define FAR (UINT64_C(1) << 40)

typedef struct {
    rs_messages *sender, *receiver;
    datagram d[MOST], last;
    rs_time now;
} two;

static const pair_server BOTH[] = {{SENDER, LIFE, true}, {RECEIVER, 3, false}};

static two *begin(const rs_messages_view *like, uint32_t window) {
    two *t = calloc(1, sizeof *t);
    assert_non_null(t);
    rs_messages_config config = {.sealed = true, .window_packets = window, .lone_heartbeats = true};
    t->receiver = pair_node(RECEIVER, config);
    config.incarnation = LIFE;
    t->sender = pair_node(SENDER, config);
    pair_view_of(t->sender, 1, like, BOTH, 2);
    pair_view_of(t->receiver, 1, like, BOTH, 2);
    t->now = MS;
    pair_takes_queries = true;
    return t;
}

static void end(two *t) {
    pair_takes_queries = false;
    rs_messages_free(t->sender);
    rs_messages_free(t->receiver);
    free(t);
}

static void give(two *t, rs_messages *to, rs_peer from, rs_messages_came came, const datagram *d) {
    uint8_t *bytes = malloc(d->length);
    assert_non_null(bytes);
    memcpy(bytes, d->bytes, d->length);
    assert_true(rs_messages_receive_as(to, t->now, from, came, bytes, d->length));
    free(bytes);
}

/* The next packet of the sender. */
static const datagram *made(two *t, uint8_t value) {
    assert_int_equal(pair_publish(t->sender, t->now, value, 1000), RS_OK);
    for (uint32_t count = pair_take(t->sender, t->now, t->d, MOST); count-- > 0;)
        if (rs_gm_get_kind(t->d[count].bytes, t->d[count].length) == RS_GM_KIND_DATA) {
            t->last = t->d[count];
            return &t->last;
        }
    fail();
    return NULL;
}

static uint32_t delivered(rs_messages *node, uint8_t *last) {
    rs_messages_event event;
    uint32_t count = 0;
    while (rs_messages_poll_event(node, &event))
        if (event.kind == RS_MESSAGES_DELIVER) {
            *last = event.bytes[0];
            count++;
        }
    return count;
}

/* What the two have for each other alone arrives, for that long. */
static uint32_t talk(two *t, rs_time time, uint8_t *last) {
    rs_messages *nodes[] = {t->sender, t->receiver};
    const rs_peer names[] = {SENDER, RECEIVER};
    uint32_t got = 0;
    for (rs_time until = t->now + time; t->now < until; t->now += 5 * MS)
        for (uint32_t i = 0; i < 2; i++) {
            rs_messages_timeout(nodes[i], t->now);
            uint32_t count = pair_take(nodes[i], t->now, t->d, MOST);
            for (uint32_t k = 0; k < count; k++)
                if (t->d[k].channel == RS_CH_PEER_DATAGRAM && t->d[k].peer == names[1 - i])
                    give(t, nodes[1 - i], names[i], RS_CAME_ALONE, &t->d[k]);
            got += delivered(t->receiver, last);
        }
    return got;
}

static void put_lie(datagram *d, uint64_t sn) {
    const rs_gm_body body = {100, RS_GM_SINGLE, false, {.count = 1, .view = {{1, RS_GM_BACK_MOST}}}};
    rs_gm_put_header(d->bytes, RS_GM_KIND_DATA, &(rs_gm_id){SENDER, LIFE, GROUP, sn});
    rs_gm_put_body(d->bytes + RS_GM_HEADER, &body);
    memset(d->bytes + RS_GM_DATA_LEAST, 200, 100);
    d->length = RS_GM_DATA_LEAST + 100;
    rs_gm_seal(d->bytes, d->length);
}

static void put_heartbeat(datagram *d, uint64_t sn) {
    const rs_gm_state_item item = {GROUP, sn, {.count = 1, .view = {{1, RS_GM_BACK_MOST}}}};
    rs_gm_put_state(d->bytes, SENDER, LIFE, 1);
    rs_gm_put_state_item(d->bytes + RS_GM_STATE, &item);
    d->length = RS_GM_STATE + RS_GM_STATE_ITEM;
    rs_gm_seal(d->bytes, d->length);
}

/* A member that hears a sender from its 300th packet on, and then everything that ever was, once more: twice, and as
 * far behind the seal's window as if its counter had been led far ahead. */
static void packets__that_were_recorded_are_delivered_once(void **state) {
    const rs_messages_view *like[] = {&RICOCHET, &FIFO, &PLAIN};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        enum { ALL = 400, FIRST = 300 };
        two *t = begin(like[i], 64);
        datagram *recorded = calloc(ALL, sizeof *recorded);
        uint8_t last = 0;
        assert_non_null(recorded);
        for (uint32_t n = 0; n < ALL; n++)
            recorded[n] = *made(t, (uint8_t)n);
        for (uint32_t n = FIRST; n < ALL; n++) {
            give(t, t->receiver, SENDER, RS_CAME_TO_ALL, &recorded[n]);
            (void)delivered(t->receiver, &last);
        }
        (void)talk(t, 3000 * MS, &last); /* what it owes from before is asked for, or given up */
        for (uint32_t round = 0; round < 2; round++)
            for (uint32_t n = 0; n < ALL; n++) {
                give(t, t->receiver, SENDER, RS_CAME_LATE, &recorded[n]);
                assert_int_equal(delivered(t->receiver, &last), 0);
            }
        assert_int_equal(talk(t, 3000 * MS, &last), 0);
        give(t, t->receiver, SENDER, RS_CAME_LATE, made(t, 77)); /* and what is new still comes */
        assert_int_equal(delivered(t->receiver, &last), 1);
        assert_int_equal(last, 77);
        free(recorded);
        end(t);
    }
}

/* Nothing is known here (any more) of a sender whose packets come late: they may be old ones. It is asked, and what it
 * publishes from then on is heard. */
static void packets__of_a_sender_that_was_not_heard_wait_for_its_word(void **state) {
    (void)state;
    two *t = begin(&RICOCHET, 0);
    uint8_t last = 0;
    const datagram old = *made(t, 1);
    give(t, t->receiver, SENDER, RS_CAME_LATE, &old);
    assert_int_equal(delivered(t->receiver, &last), 0);
    assert_int_equal(pair_stats(t->receiver).streams, 0);
    assert_int_equal(talk(t, 1000 * MS, &last), 1); /* it is owed: asked for, and sent by its sender */
    give(t, t->receiver, SENDER, RS_CAME_LATE, &old);
    assert_int_equal(delivered(t->receiver, &last), 0);
    for (uint8_t value = 2; value < 50; value++) {
        give(t, t->receiver, SENDER, RS_CAME_LATE, made(t, value));
        assert_int_equal(delivered(t->receiver, &last), 1);
        assert_int_equal(last, value);
    }
    assert_in_range(pair_stats(t->receiver).queries_sent, 1, 4);
    end(t);
}

/* Behind a counter far ahead that another member used: gaps are filled, in order, and a heartbeat is no news. */
static void packets__behind_another_members_counter_are_heard(void **state) {
    (void)state;
    two *t = begin(&FIFO, 0);
    datagram kept;
    uint8_t last = 0;
    for (uint8_t value = 1; value <= 10; value++)
        give(t, t->receiver, SENDER, RS_CAME_TO_ALL, made(t, value));
    assert_int_equal(delivered(t->receiver, &last), 10);
    for (uint8_t value = 11; value < 100; value += 2) {
        kept = *made(t, value);
        give(t, t->receiver, SENDER, RS_CAME_LATE, made(t, value + 1));
        assert_int_equal(delivered(t->receiver, &last), 0);
        give(t, t->receiver, SENDER, RS_CAME_LATE, &kept);
        give(t, t->receiver, SENDER, RS_CAME_LATE, &kept);
        assert_int_equal(delivered(t->receiver, &last), 2);
        assert_int_equal(last, value + 1);
    }
    put_heartbeat(&kept, 5000);
    give(t, t->receiver, SENDER, RS_CAME_LATE, &kept);
    assert_int_equal(pair_stats(t->receiver).missing, 0);
    end(t);
}

/* Another member leads all far away by packets in the sender's name: until the sender's answer, no longer. */
static void sender__is_heard_again_once_it_was_asked(void **state) {
    (void)state;
    for (uint32_t late = 0; late < 2; late++) {
        const rs_messages_came came = late ? RS_CAME_LATE : RS_CAME_TO_ALL;
        two *t = begin(&RICOCHET, 0);
        uint8_t last = 0;
        datagram lie;
        for (uint8_t value = 1; value <= 10; value++)
            give(t, t->receiver, SENDER, came == RS_CAME_LATE && value > 1 ? came : RS_CAME_TO_ALL, made(t, value));
        assert_int_equal(delivered(t->receiver, &last), 10);
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < 2; i++) {
                put_lie(&lie, FAR + 1000 * round + i);
                give(t, t->receiver, SENDER, RS_CAME_TO_ALL, &lie);
            }
            (void)delivered(t->receiver, &last);
            give(t, t->receiver, SENDER, came, made(t, 20)); /* it does not fit: its sender is asked */
            (void)talk(t, 20 * MS, &last);
            for (uint8_t value = 30; value < 60; value++) {
                give(t, t->receiver, SENDER, came, made(t, value));
                assert_int_equal(delivered(t->receiver, &last), 1);
                assert_int_equal(last, value);
            }
            t->now += 200 * MS;
        }
        end(t);
    }
}

/* Heartbeats are of whoever has the group's key: where they say more than may be, the sender itself is asked. */
static void heartbeats__lead_nobody_astray(void **state) {
    (void)state;
    two *t = begin(&RICOCHET, 0);
    uint8_t last = 0;
    datagram lie;
    for (uint8_t value = 1; value <= 10; value++)
        give(t, t->receiver, SENDER, RS_CAME_TO_ALL, made(t, value));
    for (uint32_t i = 0; i < 100; i++) {
        put_heartbeat(&lie, FAR);
        give(t, t->receiver, SENDER, RS_CAME_TO_ALL, &lie);
    }
    assert_int_equal(delivered(t->receiver, &last), 10);
    assert_int_equal(pair_stats(t->receiver).lost, 0);
    (void)talk(t, 500 * MS, &last);
    assert_int_equal(pair_stats(t->receiver).lost, 0);
    assert_in_range(pair_stats(t->receiver).queries_sent, 1, 12);
    give(t, t->receiver, SENDER, RS_CAME_TO_ALL, made(t, 11));
    assert_int_equal(delivered(t->receiver, &last), 1);
    /* its own word is believed at once: so much was missed while this node stood still */
    put_heartbeat(&lie, 11 + 70000);
    give(t, t->receiver, SENDER, RS_CAME_ALONE, &lie);
    (void)delivered(t->receiver, &last);
    assert_true(pair_stats(t->receiver).lost > 0);
    end(t);
}

/* A member that joins, or comes again after a restart, has the key in use, and nothing else: neither windows nor
 * streams. What was sent before it came, and was recorded, is none of its business; what is sent from then on is. */
static void packets__of_before_a_member_joined_are_not_for_it(void **state) {
    const rs_messages_view *like[] = {&RICOCHET, &FIFO, &PLAIN};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        enum { ALL = 50 };
        two *t = begin(like[i], 0);
        datagram *recorded = calloc(ALL + 1, sizeof *recorded);
        uint8_t last = 0;
        assert_non_null(recorded);
        for (uint32_t n = 0; n < ALL; n++) {
            recorded[n] = *made(t, (uint8_t)n);
            give(t, t->receiver, SENDER, RS_CAME_TO_ALL, &recorded[n]);
            assert_int_equal(delivered(t->receiver, &last), 1);
        }
        put_heartbeat(&recorded[ALL], ALL / 2);
        rs_messages_free(t->receiver); /* it is restarted: another life, a view that says so */
        t->receiver =
            pair_node(RECEIVER, (rs_messages_config){.sealed = true, .lone_heartbeats = true, .incarnation = 4});
        const pair_server again[] = {{SENDER, LIFE, true}, {RECEIVER, 4, false}};
        pair_view_of(t->receiver, 2, like[i], again, 2);
        for (uint32_t round = 0; round < 2; round++)
            for (uint32_t n = ALL + 1; n-- > 0;) {
                give(t, t->receiver, SENDER, RS_CAME_TO_ALL, &recorded[n]);
                assert_int_equal(delivered(t->receiver, &last), 0);
            }
        assert_int_equal(pair_stats(t->receiver).streams, 0);
        assert_in_range(pair_stats(t->receiver).queries_sent, 1, 2); /* however many there were */
        pair_view_of(t->sender, 2, like[i], again, 2);
        assert_int_equal(talk(t, 2000 * MS, &last), 0);
        for (uint32_t n = 0; n <= ALL; n++) {
            give(t, t->receiver, SENDER, RS_CAME_TO_ALL, &recorded[n]);
            assert_int_equal(delivered(t->receiver, &last), 0);
        }
        for (uint8_t value = 100; value < 110; value++) {
            give(t, t->receiver, SENDER, RS_CAME_TO_ALL, made(t, value));
            assert_int_equal(delivered(t->receiver, &last), 1);
            assert_int_equal(last, value);
        }
        assert_int_equal(talk(t, 3000 * MS, &last), 0);
        assert_int_equal(pair_stats(t->receiver).lost, 0);
        free(recorded);
        end(t);
    }
}

/* What one node sends another is none of those that whoever has a group's key can make. */
static void datagrams__of_one_node_to_another_have_no_groups_keys(void **state) {
    (void)state;
    uint8_t bytes[64] = {0};
    for (uint32_t kind = 0; kind < 64; kind++) {
        bool region = false;
        uint32_t number = 0;
        rs_gm_put_header(bytes, (rs_gm_kind)kind, &(rs_gm_id){SENDER, LIFE, GROUP, 1});
        const bool goes = rs_messages_scope(bytes, sizeof bytes, &region, &number);
        assert_int_equal(goes, kind == RS_GM_KIND_DATA || kind == RS_GM_KIND_REGIONS);
        assert_int_equal(region, kind == RS_GM_KIND_REGIONS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packets__that_were_recorded_are_delivered_once),
        cmocka_unit_test(packets__of_a_sender_that_was_not_heard_wait_for_its_word),
        cmocka_unit_test(packets__behind_another_members_counter_are_heard),
        cmocka_unit_test(sender__is_heard_again_once_it_was_asked),
        cmocka_unit_test(heartbeats__lead_nobody_astray),
        cmocka_unit_test(packets__of_before_a_member_joined_are_not_for_it),
        cmocka_unit_test(datagrams__of_one_node_to_another_have_no_groups_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
