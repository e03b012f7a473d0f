/* Who is believed, and what that costs: publishers that come and go, agents that are started restarted, and well-formed
 * packets of those who are not what they say. */
#include "core/groups/state.h"
#include "pair.h"

static const rs_messages_view RICOCHET = {.protocol = "ricochet"};
static const rs_messages_view FIFO = {.protocol = "ricochet", .order = RS_ORDER_FIFO};
static const rs_messages_view PLAIN = {.protocol = "plain", .order = RS_ORDER_FIFO};

#define STRANGER 77u
#define OTHER 3u
#define OLD 500u /* incarnations of the sender: as numbers they say nothing of which is the newer one */
#define NEWER 400u
#define MOST 4096u

typedef struct {
    rs_messages *sender, *receiver;
    datagram *d;
} two;

static const pair_server BOTH[] = {{SENDER, OLD, true}, {RECEIVER, 3, false}, {OTHER, 3, false}};

static two begin(rs_messages_config config, const rs_messages_view *like) {
    two t = {.d = calloc(MOST, sizeof *t.d)};
    assert_non_null(t.d);
    t.receiver = pair_node(RECEIVER, config);
    config.incarnation = OLD;
    t.sender = pair_node(SENDER, config);
    pair_view_of(t.sender, 1, like, BOTH, 3);
    pair_view_of(t.receiver, 1, like, BOTH, 3);
    return t;
}

static void end(two *t) {
    rs_messages_free(t->sender);
    rs_messages_free(t->receiver);
    free(t->d);
}

/* A message goes to the receiver. */
static void send(two *t, rs_time now, uint8_t value) {
    assert_int_equal(pair_publish(t->sender, now, value, 1000), RS_OK);
    assert_int_equal(pair_take(t->sender, now, t->d, MOST), 1);
    pair_give_from(t->receiver, now, SENDER, &t->d[0]);
}

static void put_data(datagram *d, rs_gm_kind kind, const rs_gm_id *id, uint32_t version, uint8_t value) {
    const rs_gm_body body = {100, RS_GM_SINGLE, false, {.count = 1, .view = {{version, RS_GM_BACK_MOST}}}};
    rs_gm_put_header(d->bytes, kind, id);
    rs_gm_put_body(d->bytes + RS_GM_HEADER, &body);
    memset(d->bytes + RS_GM_DATA_LEAST, value, 100);
    d->length = RS_GM_DATA_LEAST + 100;
    rs_gm_seal(d->bytes, d->length);
}

static void put_state(datagram *d, rs_peer sender, uint32_t incarnation, uint64_t sn) {
    const rs_gm_state_item item = {GROUP, sn, {.count = 1, .view = {{1, RS_GM_BACK_MOST}}}};
    rs_gm_put_state(d->bytes, sender, incarnation, 1);
    rs_gm_put_state_item(d->bytes + RS_GM_STATE, &item);
    d->length = RS_GM_STATE + RS_GM_STATE_ITEM;
    rs_gm_seal(d->bytes, d->length);
}

/* All that is missing of `count` packets from `first` on is asked for. */
static void put_nak(datagram *d, rs_peer from, uint64_t first, uint32_t items) {
    rs_gm_put_nak(d->bytes, from, items);
    for (uint32_t i = 0; i < items; i++) {
        rs_gm_nak_item item = {{SENDER, OLD, GROUP, first + 33 * i}, UINT32_MAX};
        rs_gm_put_nak_item(d->bytes + RS_GM_NAK + i * RS_GM_NAK_ITEM, &item);
    }
    d->length = RS_GM_NAK + items * RS_GM_NAK_ITEM;
    rs_gm_seal(d->bytes, d->length);
}

static uint32_t delivered(rs_messages *node) {
    rs_messages_event event;
    uint32_t count = 0;
    while (rs_messages_poll_event(node, &event))
        count += event.kind == RS_MESSAGES_DELIVER;
    return count;
}

static void run_to(rs_messages *node, rs_time until) {
    while (rs_messages_deadline(node) <= until)
        rs_messages_timeout(node, rs_messages_deadline(node));
    rs_messages_timeout(node, until);
}

/* ---------------------------------------------------------------------------------- publishers that come again */

/* `rostrum pub g one`, seconds later `rostrum pub g two`: the agent has forgotten the group in between. */
static void publisher__that_comes_again_is_heard(void **state) {
    const rs_messages_view *all[] = {&PLAIN, &RICOCHET, &FIFO};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        two t = begin((rs_messages_config){0}, all[i]);
        for (uint8_t round = 1; round <= 5; round++) {
            send(&t, round * 3000 * MS, round);
            pair_expect(t.receiver, round, 1000);
            pair_expect_nothing(t.receiver);
            assert_int_equal(rs_messages_forget(t.sender, round * 3000 * MS + 2000 * MS, GROUP), RS_OK);
            pair_view_of(t.sender, round + 1u, all[i], BOTH, 3);
        }
        end(&t);
    }
}

/* What it published last before it went was lost, and is told as lost when it comes again; what follows is in order. */
static void publisher__that_comes_again_owns_up_to_what_was_lost(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &FIFO);
    send(&t, MS, 1);
    assert_int_equal(pair_publish(t.sender, 2 * MS, 2, 1000), RS_OK);
    assert_int_equal(pair_take(t.sender, 2 * MS, t.d, MOST), 1); /* lost, and its heartbeats too */
    assert_int_equal(rs_messages_forget(t.sender, 2000 * MS, GROUP), RS_OK);
    pair_view_of(t.sender, 2, &FIFO, BOTH, 3);
    send(&t, 3000 * MS, 3);
    pair_expect(t.receiver, 1, 1000);
    pair_expect_nothing(t.receiver);
    run_to(t.receiver, 4100 * MS);
    pair_expect_lost(t.receiver, 2, 1, RS_LOST_NETWORK);
    pair_expect(t.receiver, 3, 1000);
    end(&t);
}

/* The subscriber's views drop the publisher and list it again: nothing is delivered twice, nothing is missed. */
static void publisher__that_left_and_is_listed_again_goes_on(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &FIFO);
    send(&t, MS, 1);
    datagram *first = malloc(sizeof *first);
    *first = t.d[0];
    pair_view_of(t.receiver, 2, &FIFO, &BOTH[1], 2);
    assert_int_equal(rs_messages_forget(t.sender, 2000 * MS, GROUP), RS_OK);
    pair_view_of(t.receiver, 3, &FIFO, BOTH, 3);
    pair_view_of(t.sender, 3, &FIFO, BOTH, 3);
    send(&t, 3000 * MS, 2);
    pair_give_from(t.receiver, 3001 * MS, SENDER, first);
    pair_expect(t.receiver, 1, 1000);
    pair_expect(t.receiver, 2, 1000);
    pair_expect_nothing(t.receiver);
    free(first);
    end(&t);
}

/* More groups come and go than are remembered: numbers still never come again. */
static void publisher__of_very_many_groups_uses_no_number_twice(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET);
    uint64_t first = 0, again = 0;
    for (uint32_t id = 0; id < 6000; id++) {
        rs_peer members[] = {RECEIVER};
        rs_messages_view view = RICOCHET;
        view.group = view.channel = 1000 + id % 5000;
        view.version = 1;
        view.members = members;
        view.member_count = 1;
        assert_int_equal(rs_messages_set_view(t.sender, 0, &view), RS_OK);
        assert_int_equal(rs_messages_publish(t.sender, MS, view.group, "x", 1, id < 5000 ? &first : &again), RS_OK);
        assert_true(id < 5000 || again > first - (first > 1));
        pair_take(t.sender, MS, t.d, MOST);
        assert_int_equal(rs_messages_forget(t.sender, MS, view.group), RS_OK);
    }
    assert_true(again > 1);
    end(&t);
}

/* A publisher's first packet is quicker than the view that lists it. */
static void publisher__that_is_quicker_than_its_view_is_heard(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &PLAIN);
    pair_view_of(t.receiver, 2, &PLAIN, &BOTH[1], 2);
    send(&t, 5 * MS, 1);
    send(&t, 6 * MS, 2);
    pair_expect_nothing(t.receiver);
    pair_view_of(t.receiver, 3, &PLAIN, BOTH, 3);
    pair_expect(t.receiver, 1, 1000);
    pair_expect(t.receiver, 2, 1000);
    pair_expect_nothing(t.receiver);
    assert_int_equal(pair_stats(t.receiver).early, 2);
    end(&t);
}

/* What no view came for is given up when that is due, whether or not more comes. */
static void publisher__that_no_view_lists_in_time_is_a_stranger(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &PLAIN);
    pair_view_of(t.receiver, 2, &PLAIN, &BOTH[1], 2);
    send(&t, 5 * MS, 1);
    assert_true(rs_messages_deadline(t.receiver) <= 1005 * MS);
    rs_messages_timeout(t.receiver, 1005 * MS);
    assert_int_equal(pair_stats(t.receiver).strangers, 1);
    pair_view_of(t.receiver, 3, &PLAIN, BOTH, 3);
    pair_expect_nothing(t.receiver);
    end(&t);
}

/* One that floods before its view leaves room for others that are early. */
static void publisher__that_is_early_with_very_much_leaves_room_for_others(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &PLAIN);
    rs_messages *other = pair_node(OTHER, (rs_messages_config){.incarnation = 3});
    pair_view_of(other, 1, &PLAIN, BOTH, 3);
    pair_view_of(t.receiver, 2, &PLAIN, &BOTH[1], 1);
    for (uint32_t i = 0; i < 200; i++)
        send(&t, 5 * MS, 1);
    const uint64_t of_one = pair_stats(t.receiver).early;
    assert_in_range(of_one, 2, 32);
    assert_int_equal(pair_stats(t.receiver).strangers, 200 - of_one);
    assert_int_equal(pair_publish(other, 6 * MS, 9, 1000), RS_OK);
    assert_int_equal(pair_take(other, 6 * MS, t.d, MOST), 1);
    pair_give_from(t.receiver, 6 * MS, OTHER, &t.d[0]);
    assert_int_equal(pair_stats(t.receiver).early, of_one + 1);
    pair_view_of(t.receiver, 3, &PLAIN, BOTH, 3);
    for (uint64_t i = 0; i < of_one; i++)
        pair_expect(t.receiver, 1, 1000);
    pair_expect(t.receiver, 9, 1000);
    pair_expect_nothing(t.receiver);
    rs_messages_free(other);
    end(&t);
}

/* An agent started restarted, whatever its clock says: the view tells of it, and the old one's packets are old. */
static void agent__restarted_is_told_by_views_not_by_clocks(void **state) {
    const uint32_t lives[] = {OLD, NEWER, OLD + 7, 1, UINT32_MAX};
    (void)state;
    two t = begin((rs_messages_config){0}, &FIFO);
    send(&t, MS, 1);
    pair_expect(t.receiver, 1, 1000);
    datagram *stale = malloc(sizeof *stale);
    for (uint32_t i = 1; i < 5; i++) {
        const pair_server restarted[] = {{SENDER, lives[i], true}, {RECEIVER, 3, false}, {OTHER, 3, false}};
        *stale = t.d[0];
        rs_messages_free(t.sender);
        t.sender = pair_node(SENDER, (rs_messages_config){.incarnation = lives[i]});
        pair_view_of(t.sender, i + 1, &FIFO, restarted, 3);
        pair_view_of(t.receiver, i + 1, &FIFO, restarted, 3);
        send(&t, (rs_time)i * 1000 * MS, (uint8_t)(i + 1));
        pair_expect_lost(t.receiver, 2, 0, RS_LOST_RESTART);
        pair_expect(t.receiver, (uint8_t)(i + 1), 1000);
        pair_give_from(t.receiver, (rs_time)i * 1000 * MS, SENDER, stale);
        pair_expect_nothing(t.receiver);
    }
    free(stale);
    end(&t);
}

static void boot_ids__give_incarnations(void **state) {
    (void)state;
    assert_int_equal(rs_messages_incarnation(5), rs_messages_incarnation(5));
    for (uint64_t i = 0; i < 100000; i++)
        assert_true(rs_messages_incarnation(i) != 0);
    /* neighbours in time differ, and an hour back is as good as one on */
    const uint64_t boot = UINT64_C(1790000000000000000), hour = UINT64_C(3600000000000);
    assert_true(rs_messages_incarnation(boot) != rs_messages_incarnation(boot + 1));
    assert_true(rs_messages_incarnation(boot) != rs_messages_incarnation(boot - hour));
}

/* --------------------------------------------------------------------------------------------------- strangers */

/* 200 invented senders with two datagrams each: nothing is kept of them but a moment's packets. */
static void strangers__make_no_state(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET);
    datagram *d = calloc(1, sizeof *d);
    for (rs_peer who = 100; who < 300; who++) {
        put_data(d, RS_GM_KIND_DATA, &(rs_gm_id){who, 9, GROUP, 5}, 1, 7);
        pair_give_from(t.receiver, MS, who, d);
        put_state(d, who, 9, 65000);
        pair_give_from(t.receiver, MS, who, d);
        put_data(d, RS_GM_KIND_DATA, &(rs_gm_id){SENDER, OLD, GROUP, 5}, 1, 7);
        pair_give_from(t.receiver, MS, who, d);
    }
    rs_messages_stats s = pair_stats(t.receiver);
    assert_int_equal(s.streams, 0);
    assert_int_equal(s.missing, 0);
    assert_int_equal(s.window_bytes, 0);
    assert_int_equal(s.peers, 3);
    assert_true(s.strangers >= 200 + 100); /* in another's name, and what was too much to wait for a view */
    assert_int_equal(delivered(t.receiver), 0);
    send(&t, 2 * MS, 1);
    assert_int_equal(delivered(t.receiver), 1);
    free(d);
    end(&t);
}

/* One liar among the senders that the view lists says that it is far: windows have a bound, of one and of all, and go
 * when nothing comes. The others' messages come. */
static void window__is_bounded_and_shrinks(void **state) {
    const uint64_t bound = 64 << 10;
    (void)state;
    two t = begin((rs_messages_config){.window_bytes = bound}, &RICOCHET);
    pair_server servers[16] = {BOTH[0], BOTH[1]};
    datagram *d = calloc(1, sizeof *d);
    for (uint32_t i = 2; i < 16; i++)
        servers[i] = (pair_server){50 + i, 9, true};
    pair_view_of(t.receiver, 2, &RICOCHET, servers, 16);
    for (uint32_t i = 2; i < 16; i++) {
        put_data(d, RS_GM_KIND_DATA, &(rs_gm_id){50 + i, 9, GROUP, 1}, 1, 7);
        pair_give_from(t.receiver, MS, 50 + i, d);
        put_state(d, 50 + i, 9, 60000);
        pair_give_from(t.receiver, MS, 50 + i, d);
        assert_true(pair_stats(t.receiver).window_bytes <= bound + 16 * 64);
        delivered(t.receiver);
    }
    assert_true(pair_stats(t.receiver).window_bytes > bound / 2);
    for (uint32_t i = 0; i < 100; i++) {
        send(&t, 2 * MS, (uint8_t)i);
        assert_int_equal(delivered(t.receiver), 1);
    }
    run_to(t.receiver, 20000 * MS);
    delivered(t.receiver);
    assert_int_equal(pair_stats(t.receiver).window_bytes, 16 * 8 * sizeof(uint64_t)); /* the least of each, OTHER too */
    assert_int_equal(pair_stats(t.receiver).missing, 0);
    free(d);
    end(&t);
}

/* Senders that left are remembered, so that they can come again, but not for ever. */
static void senders__that_left_are_not_kept_for_ever(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET);
    datagram *d = calloc(1, sizeof *d);
    for (uint32_t i = 0; i < 5000; i++) {
        const pair_server one[] = {{RECEIVER, 3, false}, {1000 + i, 9, true}};
        pair_view_of(t.receiver, 2 + i, &RICOCHET, one, 2);
        put_data(d, RS_GM_KIND_DATA, &(rs_gm_id){1000 + i, 9, GROUP, 1}, 2 + i, 7);
        pair_give_from(t.receiver, MS, 1000 + i, d);
        assert_int_equal(delivered(t.receiver), 1);
        assert_true(pair_stats(t.receiver).streams <= 1025);
        assert_int_equal(pair_stats(t.receiver).peers, 2);
    }
    free(d);
    end(&t);
}

/* A heartbeat with another incarnation than the view's, one far ahead, a packet far ahead, repairs that name what never
 * was: from wherever they come, the publisher's own messages come on. (The publisher's address can be forged
 * on its own segment; only keys stop that, but it costs a message or two.) */
static void publisher__is_not_muted_by_forged_packets(void **state) {
    (void)state;
    const rs_peer sources[] = {STRANGER, OTHER, SENDER};
    for (uint32_t source = 0; source < 3; source++)
        for (uint32_t lie = 0; lie < 6; lie++) {
            two t = begin((rs_messages_config){.give_up = 300 * MS}, &FIFO);
            datagram *d = calloc(1, sizeof *d);
            const uint64_t far = UINT64_C(1) << 40;
            uint32_t got = 0, next = 0;
            rs_time now = MS;
            for (uint32_t i = 0; i < 100; i++, now += 10 * MS) {
                if (lie == 0)
                    put_state(d, SENDER, OLD + 1, 5);
                else if (lie == 1)
                    put_state(d, SENDER, OLD, far);
                else if (lie == 2)
                    put_state(d, SENDER, OLD, 50000);
                else if (lie == 3)
                    put_data(d, RS_GM_KIND_DATA, &(rs_gm_id){SENDER, OLD, GROUP, far}, 1, 200);
                else if (lie == 4)
                    put_data(d, RS_GM_KIND_AGAIN, &(rs_gm_id){SENDER, OLD, GROUP, 5000}, 1, 200);
                else {
                    const rs_gm_id id = {SENDER, OLD, GROUP, 60000};
                    const rs_peer member = source == 2 ? OTHER : sources[source];
                    rs_ricochet_put_repair(d->bytes, member, 1, RS_GM_BODY + 100);
                    rs_gm_put_id(d->bytes + RS_RICOCHET_REPAIR, &id);
                    memset(d->bytes + RS_RICOCHET_REPAIR + RS_GM_ID, 200, RS_GM_BODY + 100);
                    d->length = RS_RICOCHET_REPAIR + RS_GM_ID + RS_GM_BODY + 100;
                    rs_gm_seal(d->bytes, rs_ricochet_head_length(1));
                }
                pair_give_from(t.receiver, now, lie == 5 && source == 2 ? OTHER : sources[source], d);
                rs_messages_timeout(t.receiver, now);
                send(&t, now, (uint8_t)i);
                rs_messages_event event;
                while (rs_messages_poll_event(t.receiver, &event)) {
                    if (event.kind != RS_MESSAGES_DELIVER || event.length == 100)
                        continue;
                    assert_int_equal(event.length, 1000);
                    assert_true(event.bytes[0] >= next); /* in order, none twice */
                    next = event.bytes[0] + 1u;
                    got++;
                }
            }
            print_message("source %u, lie %u: %u of 100\n", source, lie, got);
            assert_true(got >= (source == 2 && lie == 3 ? 98 : 100));
            assert_true(pair_stats(t.receiver).window_bytes <= UINT64_C(1) << 20);
            free(d);
            end(&t);
        }
}

/* Two packets in a row far ahead, from the publisher's own address: it is heard again soon after. */
static void publisher__is_heard_again_after_a_forged_jump(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET);
    datagram *d = calloc(1, sizeof *d);
    const uint64_t far = UINT64_C(1) << 40;
    uint32_t got = 0;
    for (uint32_t i = 0; i < 10; i++, got += delivered(t.receiver))
        send(&t, MS, (uint8_t)i);
    for (uint32_t i = 0; i < 2; i++) {
        put_data(d, RS_GM_KIND_DATA, &(rs_gm_id){SENDER, OLD, GROUP, far + i}, 1, 200);
        pair_give_from(t.receiver, 2 * MS, SENDER, d);
    }
    delivered(t.receiver); /* the forged ones */
    for (uint32_t i = 0; i < 100; i++, got += delivered(t.receiver))
        send(&t, 3 * MS, (uint8_t)i);
    assert_true(got >= 10 + 99); /* the first one is asked for */
    assert_int_equal(pair_stats(t.receiver).missing, 1);
    free(d);
    end(&t);
}

/* One stream of many that are missing leaves room for the others' losses. */
static void missing__of_a_liar_leave_room_for_others(void **state) {
    (void)state;
    two t = begin((rs_messages_config){.max_missing = 1000}, &RICOCHET);
    const pair_server servers[] = {BOTH[0], BOTH[1], {OTHER, 3, true}};
    datagram *d = calloc(1, sizeof *d);
    pair_view_of(t.receiver, 2, &RICOCHET, servers, 3);
    put_data(d, RS_GM_KIND_DATA, &(rs_gm_id){OTHER, 3, GROUP, 1}, 1, 7);
    pair_give_from(t.receiver, MS, OTHER, d);
    put_state(d, OTHER, 3, 60000);
    pair_give_from(t.receiver, MS, OTHER, d);
    assert_int_equal(pair_stats(t.receiver).missing, 500);
    send(&t, 2 * MS, 1);
    assert_int_equal(pair_publish(t.sender, 2 * MS, 2, 1000), RS_OK);
    pair_take(t.sender, 2 * MS, t.d, MOST); /* lost */
    send(&t, 2 * MS, 3);
    assert_int_equal(pair_stats(t.receiver).missing, 501);
    free(d);
    end(&t);
}

/* ----------------------------------------------------------------------------------------------------- answers */

static uint64_t answered_bytes(two *t, rs_time now, rs_peer to) {
    uint64_t bytes = 0;
    for (uint32_t count; (count = pair_take(t->sender, now, t->d, MOST)) > 0;)
        for (uint32_t i = 0; i < count; i++) {
            assert_true(t->d[i].channel != RS_CH_PEER_DATAGRAM || t->d[i].peer == to);
            bytes += t->d[i].channel == RS_CH_PEER_DATAGRAM ? t->d[i].length : 0;
        }
    return bytes;
}

/* 1.1 KB ask for 1,584 packets: those who are no members, and in another's name, get none of them; a member no more
 * than twice what was published, however often it asks. */
static void naks__are_answered_to_members_within_a_budget(void **state) {
    (void)state;
    two t = begin((rs_messages_config){.send_bytes = 4 << 20}, &RICOCHET);
    datagram *d = calloc(1, sizeof *d);
    uint64_t published = 0, asked = 0, answered = 0;
    for (uint32_t i = 0; i < 1600; i++) {
        assert_int_equal(pair_publish(t.sender, MS, (uint8_t)i, 1000), RS_OK);
        assert_int_equal(pair_take(t.sender, MS, t.d, MOST), 1);
        published += t.d[0].length;
    }
    put_nak(d, STRANGER, 1, 48);
    pair_give_from(t.sender, 2 * MS, STRANGER, d);
    put_nak(d, OTHER, 1, 48);
    pair_give_from(t.sender, 2 * MS, STRANGER, d);
    put_nak(d, SENDER, 1, 48);
    pair_give_from(t.sender, 2 * MS, SENDER, d);
    assert_int_equal(answered_bytes(&t, 2 * MS, RS_NO_PEER), 0);
    assert_int_equal(pair_stats(t.sender).naks_refused, 2 * 1584);
    for (uint32_t i = 0; i < 200; i++) {
        rs_time now = 10 * MS + (rs_time)i * 5 * MS;
        put_nak(d, OTHER, 1, 48);
        pair_give_from(t.sender, now, OTHER, d);
        asked += d->length;
        answered += answered_bytes(&t, now, OTHER);
    }
    print_message("published %llu, asked %llu, answered %llu bytes\n", (unsigned long long)published,
                  (unsigned long long)asked, (unsigned long long)answered);
    assert_true(answered >= published);
    assert_true(answered <= 2 * (published + published / 8) + 16 * 1472);
    assert_true(pair_stats(t.sender).naks_over > 0);
    /* another member is not the worse for it */
    put_nak(d, RECEIVER, 1, 48);
    pair_give_from(t.sender, 2000 * MS, RECEIVER, d);
    assert_true(answered_bytes(&t, 2000 * MS, RECEIVER) >= 1584 * 1000);
    free(d);
    end(&t);
}

/* Who leaves gets no more of the group's data; who joins gets what is asked for. */
static void naks__of_who_left_are_refused(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET);
    datagram *d = calloc(1, sizeof *d);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(pair_publish(t.sender, MS, (uint8_t)i, 1000), RS_OK);
    pair_take(t.sender, MS, t.d, MOST);
    pair_view_of(t.sender, 2, &RICOCHET, BOTH, 2);
    put_nak(d, OTHER, 1, 1);
    pair_give_from(t.sender, 2 * MS, OTHER, d);
    assert_int_equal(answered_bytes(&t, 2 * MS, RS_NO_PEER), 0);
    pair_view_of(t.sender, 3, &RICOCHET, BOTH, 3);
    assert_int_equal(pair_publish(t.sender, 3 * MS, 1, 1000), RS_OK);
    pair_take(t.sender, 3 * MS, t.d, MOST);
    put_nak(d, OTHER, 41, 1);
    pair_give_from(t.sender, 4 * MS, OTHER, d);
    assert_int_equal(answered_bytes(&t, 4 * MS, OTHER), 1000 + RS_GM_DATA_LEAST);
    free(d);
    end(&t);
}

/* ---------------------------------------------------------------------------------------------------- versions */

static void versions__that_are_not_known_are_refused_and_counted(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET);
    send(&t, MS, 1);
    t.d[0].bytes[2]++;
    for (uint32_t i = 0; i < 3; i++)
        assert_false(rs_messages_receive(t.receiver, MS, SENDER, t.d[0].bytes, t.d[0].length));
    assert_int_equal(pair_stats(t.receiver).versions, 3);
    assert_int_equal(pair_stats(t.receiver).other_version, RS_GM_VERSION + 1);
    assert_int_equal(pair_stats(t.receiver).bad, 0);
    end(&t);
}

/* ------------------------------------------------------------------------------------- publishers not heard */

/* Both nodes until then; what is sent to one peer arrives, multicast does not. Returns the unicast datagrams. */
static uint32_t run_without_multicast(two *t, rs_time from, rs_time until) {
    rs_messages *nodes[] = {t->sender, t->receiver};
    uint32_t unicast = 0;
    pair_takes_queries = true;
    for (rs_time now = from; now <= until; now += 5 * MS) {
        for (uint32_t i = 0; i < 2; i++) {
            if (rs_messages_deadline(nodes[i]) <= now)
                rs_messages_timeout(nodes[i], now);
            uint32_t count = pair_take(nodes[i], now, t->d, MOST);
            for (uint32_t k = 0; k < count; k++) {
                if (t->d[k].channel != RS_CH_PEER_DATAGRAM || t->d[k].peer != (i == 0 ? RECEIVER : SENDER))
                    continue;
                unicast++;
                pair_give_from(nodes[1 - i], now, i == 0 ? SENDER : RECEIVER, &t->d[k]);
            }
        }
    }
    pair_takes_queries = false;
    return unicast;
}

/* The switches have no rules for a member yet: all that a publisher multicasts, and its heartbeats, misses it. */
static void publisher__that_is_not_heard_is_asked(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &FIFO);
    assert_int_equal(pair_publish(t.sender, MS, 1, 1000), RS_OK);
    assert_int_equal(pair_publish(t.sender, 2 * MS, 2, 1000), RS_OK);
    run_without_multicast(&t, 2 * MS, 2000 * MS);
    pair_expect(t.receiver, 1, 1000);
    pair_expect(t.receiver, 2, 1000);
    pair_expect_nothing(t.receiver);
    end(&t);
}

static void publisher__that_is_not_heard_is_asked_in_plain_groups(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &PLAIN);
    assert_int_equal(pair_publish(t.sender, MS, 1, 1000), RS_OK);
    assert_int_equal(pair_publish(t.sender, 2 * MS, 2, 1000), RS_OK);
    run_without_multicast(&t, 2 * MS, 2000 * MS);
    pair_expect_lost(t.receiver, 1, 2, RS_LOST_NETWORK);
    pair_expect_nothing(t.receiver);
    end(&t);
}

/* A switch that comes back after 8 s: far more was published than a join may find under way. */
static void publisher__of_much_that_a_new_member_did_not_hear_is_asked(void **state) {
    (void)state;
    for (uint32_t count = 100; count <= 400; count += 300) {
        two t = begin((rs_messages_config){0}, &FIFO);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(pair_publish(t.sender, 2000 * MS, (uint8_t)i, 1000), RS_OK);
            pair_take(t.sender, 2000 * MS, t.d, MOST);
        }
        run_without_multicast(&t, 2000 * MS, 12000 * MS);
        rs_messages_event event;
        uint32_t came = 0, untold = 0;
        while (rs_messages_poll_event(t.receiver, &event)) {
            came += event.kind == RS_MESSAGES_DELIVER;
            untold += event.kind == RS_MESSAGES_LOST && event.count == 0;
        }
        assert_int_equal(came, count < RS_GM_BACK_MOST ? count : RS_GM_BACK_MOST);
        assert_int_equal(untold, count > RS_GM_BACK_MOST);
        end(&t);
    }
}

/* The program ended and its agent has forgotten the group: what it said last was lost, and that is told. */
static void publisher__that_left_is_asked_what_was_its_last(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &FIFO);
    send(&t, MS, 1);
    run_without_multicast(&t, MS, 40000 * MS);
    assert_int_equal(pair_publish(t.sender, 40000 * MS, 2, 1000), RS_OK);
    pair_take(t.sender, 40000 * MS, t.d, MOST);
    assert_int_equal(rs_messages_forget(t.sender, 40100 * MS, GROUP), RS_OK);
    rs_peer members[] = {RECEIVER, OTHER};
    const uint32_t incarnations[] = {3, 3};
    rs_messages_view view = FIFO;
    view.group = GROUP;
    view.channel = 9;
    view.version = 2;
    view.members = members;
    view.member_count = 2;
    view.incarnations = incarnations;
    assert_int_equal(rs_messages_set_view(t.receiver, 40100 * MS, &view), RS_OK);
    pair_expect(t.receiver, 1, 1000);
    run_without_multicast(&t, 40100 * MS, 43000 * MS);
    pair_expect_lost(t.receiver, 2, 1, RS_LOST_NETWORK);
    pair_expect_nothing(t.receiver);
    end(&t);
}

/* A view of the receiver alone with OTHER, from which the sender is gone. */
static void view_without_sender(two *t, rs_time now, const rs_messages_view *like) {
    rs_peer members[] = {RECEIVER, OTHER};
    const uint32_t incarnations[] = {3, 3};
    rs_messages_view view = *like;
    view.group = GROUP;
    view.channel = 9;
    view.version = 2;
    view.members = members;
    view.member_count = 2;
    view.incarnations = incarnations;
    assert_int_equal(rs_messages_set_view(t->receiver, now, &view), RS_OK);
}

/* `rostrum pub` while the switch had no rules yet: all that it said was lost, and when the member would ask, it has
 * left and its agent has forgotten the group. The member is told what it lost. */
static void publisher__that_left_unheard_is_asked_what_was_its_last(void **state) {
    const rs_messages_view *all[] = {&PLAIN, &FIFO, &RICOCHET};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        two t = begin((rs_messages_config){0}, all[i]);
        for (uint8_t n = 1; n <= 3; n++) {
            assert_int_equal(pair_publish(t.sender, MS, n, 1000), RS_OK);
            pair_take(t.sender, MS, t.d, MOST);
        }
        assert_int_equal(rs_messages_forget(t.sender, 100 * MS, GROUP), RS_OK);
        view_without_sender(&t, 100 * MS, all[i]);
        run_without_multicast(&t, 100 * MS, 4000 * MS);
        pair_expect_lost(t.receiver, 1, 3, RS_LOST_NETWORK);
        pair_expect_nothing(t.receiver);
        end(&t);
    }
}

/* It comes again instead: what it published meanwhile is heard, and what was before is told as lost. */
static void publisher__that_left_unheard_and_comes_again(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &FIFO);
    assert_int_equal(pair_publish(t.sender, MS, 1, 1000), RS_OK);
    pair_take(t.sender, MS, t.d, MOST);
    assert_int_equal(rs_messages_forget(t.sender, 100 * MS, GROUP), RS_OK);
    view_without_sender(&t, 100 * MS, &FIFO);
    pair_view_of(t.sender, 3, &FIFO, BOTH, 3);
    pair_view_of(t.receiver, 3, &FIFO, BOTH, 3);
    send(&t, 200 * MS, 2);
    run_to(t.receiver, 2000 * MS);
    pair_expect_lost(t.receiver, 1, 1, RS_LOST_NETWORK);
    pair_expect(t.receiver, 2, 1000);
    pair_expect_nothing(t.receiver);
    end(&t);
}

/* Members that leave without having published: they are not asked for long, and what is remembered has a bound. */
static void members__that_leave_cost_little(void **state) {
    (void)state;
    rs_messages *node = pair_node(RECEIVER, (rs_messages_config){.max_streams = 8192});
    rs_peer members[5001];
    uint32_t incarnations[5001];
    rs_messages_view view = FIFO;
    for (uint32_t i = 0; i < 5001; i++) {
        members[i] = i == 0 ? RECEIVER : 1000 + i;
        incarnations[i] = 7;
    }
    view.group = GROUP;
    view.channel = 9;
    view.members = members;
    view.incarnations = incarnations;
    for (view.version = 1; view.version <= 10; view.version++) {
        view.member_count = view.version % 2 ? 5001 : 1;
        assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK);
    }
    assert_in_range(pair_stats(node).streams, 1, RS_GM_DEPARTED);
    rs_messages_out out;
    for (rs_time now = 0; now <= 60000 * MS; now += 10 * MS) {
        rs_messages_timeout(node, now);
        while (rs_messages_poll_tx(node, now, &out)) {
        }
    }
    uint64_t before = pair_stats(node).queries_sent;
    run_to(node, 120000 * MS);
    assert_int_equal(pair_stats(node).queries_sent, before);
    rs_messages_free(node);
}

/* Minutes later, in quiet, nobody is asked any more, and heartbeats have become rare. */
static void publisher__that_is_heard_is_not_asked(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &FIFO);
    send(&t, 60000 * MS, 1);
    uint64_t before = pair_stats(t.receiver).queries_sent;
    run_to(t.receiver, 61000 * MS);
    run_to(t.sender, 61000 * MS);
    before = pair_stats(t.receiver).queries_sent;
    uint64_t beats = pair_stats(t.sender).heartbeats_sent;
    for (rs_time now = 61000 * MS; now < 361000 * MS; now += 100 * MS) {
        rs_messages_timeout(t.sender, now);
        uint32_t count = pair_take(t.sender, now, t.d, MOST);
        for (uint32_t i = 0; i < count; i++)
            if (t.d[i].channel == RS_CH_GROUP)
                pair_give_from(t.receiver, now, SENDER, &t.d[i]);
        rs_messages_timeout(t.receiver, now);
    }
    assert_in_range(pair_stats(t.sender).heartbeats_sent - beats, 8, 20);
    assert_int_equal(pair_stats(t.receiver).queries_sent, before);
    end(&t);
}

/* A stranger's question is not answered, nor is a member's that comes from elsewhere. */
static void queries__are_answered_to_members(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &FIFO);
    send(&t, MS, 1);
    const rs_gm_state_item item = {GROUP, 1, {.count = 1, .view = {{1, 0}}}};
    const rs_peer from[] = {STRANGER, STRANGER, RECEIVER}, says[] = {STRANGER, RECEIVER, RECEIVER};
    for (uint32_t i = 0; i < 3; i++) {
        rs_gm_put_positions(t.d[0].bytes, RS_GM_KIND_QUERY, says[i], 3, 1);
        rs_gm_put_state_item(t.d[0].bytes + RS_GM_STATE, &item);
        t.d[0].length = RS_GM_STATE + RS_GM_STATE_ITEM;
        rs_gm_seal(t.d[0].bytes, t.d[0].length);
        pair_give_from(t.sender, 2 * MS, from[i], &t.d[0]);
        assert_int_equal(pair_take(t.sender, 2 * MS, t.d, MOST), i == 2);
    }
    end(&t);
}

/* A thousand groups, none of whose publishers answers: a bound of questions a second. */
static void queries__have_a_bound(void **state) {
    (void)state;
    rs_messages *node = pair_node(RECEIVER, (rs_messages_config){0});
    rs_peer members[] = {RECEIVER}, publishers[] = {SENDER};
    for (uint32_t i = 0; i < 1000; i++) {
        rs_messages_view view = FIFO;
        view.group = i + 1;
        view.channel = 9;
        view.version = 1;
        view.members = members;
        view.publishers = publishers;
        view.member_count = view.publisher_count = 1;
        assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK);
    }
    rs_messages_out out;
    for (rs_time now = 0; now <= 10000 * MS; now += 10 * MS) {
        rs_messages_timeout(node, now);
        while (rs_messages_poll_tx(node, now, &out)) {
        }
    }
    assert_in_range(pair_stats(node).queries_sent, 1000, 11 * 256);
    rs_messages_free(node);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(publisher__that_is_not_heard_is_asked),
        cmocka_unit_test(publisher__that_is_not_heard_is_asked_in_plain_groups),
        cmocka_unit_test(publisher__of_much_that_a_new_member_did_not_hear_is_asked),
        cmocka_unit_test(publisher__that_left_is_asked_what_was_its_last),
        cmocka_unit_test(publisher__that_left_unheard_is_asked_what_was_its_last),
        cmocka_unit_test(publisher__that_left_unheard_and_comes_again),
        cmocka_unit_test(members__that_leave_cost_little),
        cmocka_unit_test(publisher__that_is_heard_is_not_asked),
        cmocka_unit_test(queries__are_answered_to_members),
        cmocka_unit_test(queries__have_a_bound),
        cmocka_unit_test(publisher__that_comes_again_is_heard),
        cmocka_unit_test(publisher__that_comes_again_owns_up_to_what_was_lost),
        cmocka_unit_test(publisher__that_left_and_is_listed_again_goes_on),
        cmocka_unit_test(publisher__of_very_many_groups_uses_no_number_twice),
        cmocka_unit_test(publisher__that_is_quicker_than_its_view_is_heard),
        cmocka_unit_test(publisher__that_no_view_lists_in_time_is_a_stranger),
        cmocka_unit_test(publisher__that_is_early_with_very_much_leaves_room_for_others),
        cmocka_unit_test(agent__restarted_is_told_by_views_not_by_clocks),
        cmocka_unit_test(boot_ids__give_incarnations),
        cmocka_unit_test(strangers__make_no_state),
        cmocka_unit_test(window__is_bounded_and_shrinks),
        cmocka_unit_test(senders__that_left_are_not_kept_for_ever),
        cmocka_unit_test(publisher__is_not_muted_by_forged_packets),
        cmocka_unit_test(publisher__is_heard_again_after_a_forged_jump),
        cmocka_unit_test(missing__of_a_liar_leave_room_for_others),
        cmocka_unit_test(naks__are_answered_to_members_within_a_budget),
        cmocka_unit_test(naks__of_who_left_are_refused),
        cmocka_unit_test(versions__that_are_not_known_are_refused_and_counted),
    };
    return cmocka_run_group_tests_name("members", tests, NULL, NULL);
}
