/* What is missing is asked for: of whom, when, how often, and how much that is where the network is what loses packets.
 * And what tells of the last packet before a pause. */
#include "pair.h"

static const rs_messages_view RICOCHET = {.protocol = "ricochet"};
/* Repairs of two packets, for everybody. */
static const rs_messages_view EAGER = {.protocol = "ricochet", .options = "r=2,c=64"};
#define LENGTH 1000u
#define OTHER 70u

typedef struct {
    rs_messages *sender, *receiver;
    datagram *d; /* room for MANY */
} two;

#define MANY 64u

static two begin(rs_messages_config config, const rs_messages_view *view, uint32_t more) {
    config.receive_bytes = config.send_bytes = 8 << 20;
    config.deliveries = 8192;
    two t = {pair_node(SENDER, config), pair_node(RECEIVER, config), calloc(MANY, sizeof(datagram))};
    assert_non_null(t.d);
    pair_view(t.sender, 1, view, more);
    pair_view(t.receiver, 1, view, more);
    return t;
}

static void end(two *t) {
    free(t->d);
    rs_messages_free(t->sender);
    rs_messages_free(t->receiver);
}

/* `lost` packets that do not come, between two that do. */
static void lose(two *t, rs_time now, uint32_t lost) {
    for (uint32_t i = 0; i < lost + 2; i++) {
        assert_int_equal(pair_publish(t->sender, now, 7, LENGTH), RS_OK);
        assert_int_equal(pair_take(t->sender, now, t->d, 1), 1);
        if (i == 0 || i == lost + 1)
            pair_give(t->receiver, now, t->d);
    }
}

/* What the receiver sends, but for repairs, at its next deadline; returns the number of datagrams. */
static uint32_t next_naks(two *t, rs_time *now) {
    uint32_t kept = 0;
    uint64_t queries;
    do { /* questions for positions are another matter */
        queries = pair_stats(t->receiver).queries_sent;
        *now = rs_messages_deadline(t->receiver);
        rs_messages_timeout(t->receiver, *now);
    } while (queries < pair_stats(t->receiver).queries_sent && pair_stats(t->receiver).missing > 0);
    uint32_t count = pair_take(t->receiver, *now, t->d, MANY);
    for (uint32_t i = 0; i < count; i++) {
        if (rs_gm_get_kind(t->d[i].bytes, t->d[i].length) == RS_GM_KIND_NAK)
            t->d[kept++] = t->d[i];
    }
    return kept;
}

static void drop_events(rs_messages *node) {
    rs_messages_event event;
    while (rs_messages_poll_event(node, &event))
        ;
}

/* One server at a time, each after a longer wait, and few in all. */
static void nak__the_sender_first_then_members_in_turn(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 4);
    lose(&t, 0, 1);
    rs_time now, last = 0, wait = 0;
    rs_peer before = SENDER;
    uint32_t asked = 0;
    for (uint32_t i = 0;; i++) {
        uint32_t count = next_naks(&t, &now);
        assert_true(now <= 1000 * MS);
        if (pair_stats(t.receiver).missing == 0)
            break;
        if (i == 0) {
            assert_int_equal(now, 100 * MS);
            assert_int_equal(t.d[0].peer, SENDER);
        } else if (i < 3) {
            assert_true(t.d[0].peer != SENDER && t.d[0].peer != before && t.d[0].peer != RECEIVER);
            assert_true(now - last > wait);
            wait = now - last;
        }
        assert_true(count <= (i < 3 ? 1 : 2)); /* two in the end, while the network seems to be well */
        before = t.d[0].peer;
        last = now;
        asked += count;
    }
    assert_true(asked >= 5 && asked <= 12);
    assert_int_equal(pair_stats(t.receiver).asked, asked);
    pair_expect(t.receiver, 7, LENGTH);
    pair_expect(t.receiver, 7, LENGTH);
    pair_expect_lost(t.receiver, 2, 1, RS_LOST_NETWORK);
    end(&t);
}

/* On a quiet network a lost request costs a few milliseconds, not fifty. */
static void nak__again_as_soon_as_an_answer_should_be_there(void **state) {
    (void)state;
    two t = begin((rs_messages_config){.give_up = 100000 * MS}, &RICOCHET, 1); /* no other deadlines meanwhile */
    rs_time now = 0, first;
    for (uint32_t i = 0; i < 30; i++) {
        lose(&t, now, 1);
        assert_int_equal(next_naks(&t, &now), 1);
        pair_give(t.sender, now, &t.d[0]);
        assert_int_equal(pair_take(t.sender, now, t.d, 1), 1);
        now += 200000; /* 0.2 ms later */
        pair_give(t.receiver, now, &t.d[0]);
        assert_int_equal(pair_stats(t.receiver).missing, 0);
        now += MS;
    }
    assert_int_equal(pair_stats(t.receiver).recovered_retransmit, 30);
    lose(&t, now, 1);
    rs_time found = now;
    assert_int_equal(next_naks(&t, &first), 1);
    assert_true(first - found <= 25 * MS); /* no repair ever helped here */
    assert_int_equal(next_naks(&t, &now), 1);
    assert_true(now - first < 10 * MS);
    end(&t);
}

/* All that is missing of a sender goes into one datagram. */
static void nak__many_packets_in_one_datagram(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 1);
    rs_time now;
    lose(&t, 0, 50);
    assert_int_equal(next_naks(&t, &now), 1);
    assert_int_equal(pair_stats(t.receiver).asked, 50);
    pair_give(t.sender, now, &t.d[0]);
    assert_int_equal(pair_take(t.sender, now, t.d, MANY), 50);
    end(&t);
}

static void nak__tells_what_is_missing_longest(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 1);
    rs_time now;
    assert_int_equal(rs_messages_oldest_missing(t.receiver, SENDER, GROUP), 0);
    lose(&t, 0, 3);
    assert_int_equal(rs_messages_oldest_missing(t.receiver, SENDER, GROUP), 2);
    assert_int_equal(rs_messages_oldest_missing(t.receiver, SENDER, GROUP + 1), 0);
    assert_int_equal(rs_messages_oldest_missing(t.receiver, RECEIVER, GROUP), 0);
    assert_int_equal(next_naks(&t, &now), 1);
    pair_give(t.sender, now, &t.d[0]);
    assert_int_equal(pair_take(t.sender, now, t.d, MANY), 3);
    for (uint32_t i = 0; i < 3; i++) {
        pair_give(t.receiver, now, &t.d[i]);
        assert_int_equal(rs_messages_oldest_missing(t.receiver, SENDER, GROUP), i < 2 ? 3 + i : 0);
    }
    end(&t);
}

/* Plain by itself leaves what is lost; who stands above it and needs all has it asked for at once. */
static void nak__of_plain_that_must_be_whole(void **state) {
    const rs_messages_view views[] = {{.protocol = "plain"}, {.protocol = "plain", .whole = true}};
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        two t = begin((rs_messages_config){0}, &views[whole], 1);
        rs_time now = 0;
        lose(&t, 0, 3);
        assert_int_equal(rs_messages_brings(t.receiver, SENDER, GROUP), whole);
        assert_int_equal(next_naks(&t, &now), whole);
        if (whole) {
            assert_in_range(now, 1, 5 * MS);
            pair_give(t.sender, now, &t.d[0]);
            assert_int_equal(pair_take(t.sender, now, t.d, MANY), 3);
            for (uint32_t i = 0; i < 3; i++)
                pair_give(t.receiver, now, &t.d[i]);
            assert_int_equal(pair_stats(t.receiver).missing, 0);
        }
        assert_false(rs_messages_brings(t.receiver, SENDER, GROUP));
        end(&t);
    }
}

/* It was out of the group meanwhile, and comes back: nobody needs what was published then, or asks for all that. */
static void nak__of_plain_is_not_for_what_was_before_a_return(void **state) {
    (void)state;
    const rs_messages_view whole = {.protocol = "plain", .whole = true},
                           anew = {.protocol = "plain", .whole = true, .rejoined = true};
    two t = begin((rs_messages_config){0}, &whole, 1);
    lose(&t, 0, 0);
    pair_view(t.sender, 2, &whole, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(pair_publish(t.sender, 0, 7, LENGTH), RS_OK);
        assert_int_equal(pair_take(t.sender, 0, t.d, 1), 1);
    }
    pair_view(t.sender, 3, &whole, 1);
    pair_view(t.receiver, 3, &anew, 1);
    lose(&t, 0, 2); /* of these it needs all */
    assert_int_equal(pair_stats(t.receiver).missing, 2);
    end(&t);
}

/* Parts of it are here: whoever else needs it does not ask for the whole. */
static void parts__of_a_large_message_come_while_others_are_here(void **state) {
    const rs_messages_view asked = {.protocol = "ricochet"}, not_asked = {.protocol = "ricochet", .options = "naks=0"};
    (void)state;
    for (int naks = 0; naks < 2; naks++) {
        two t = begin((rs_messages_config){0}, naks ? &asked : &not_asked, 1);
        assert_int_equal(pair_publish(t.sender, 0, 7, 5 * LENGTH), RS_OK);
        const uint32_t count = pair_take(t.sender, 0, t.d, MANY);
        assert_true(count >= 3);
        assert_false(rs_messages_brings(t.receiver, SENDER, GROUP));
        for (uint32_t i = 0; i < count; i++) {
            pair_give(t.receiver, 0, &t.d[i]);
            assert_int_equal(rs_messages_brings(t.receiver, SENDER, GROUP), naks && i + 1 < count);
        }
        assert_false(rs_messages_brings(t.receiver, RECEIVER, GROUP));
        end(&t);
    }
}

/* So much is missing that its requests would take longer than the time that there is. */
static void missing__is_more_than_can_be_asked_for_in_time(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 1);
    assert_false(rs_messages_is_behind(t.receiver, SENDER, GROUP));
    lose(&t, 0, 50);
    assert_false(rs_messages_is_behind(t.receiver, SENDER, GROUP));
    lose(&t, 0, 3000);
    assert_true(rs_messages_is_behind(t.receiver, SENDER, GROUP));
    assert_false(rs_messages_is_behind(t.receiver, SENDER, GROUP + 1));
    rs_messages_timeout(t.receiver, 2000 * MS);
    assert_false(rs_messages_is_behind(t.receiver, SENDER, GROUP)); /* it was given up */
    end(&t);
}

static void view_with_other(rs_messages *node, rs_message_group group) {
    rs_messages_view view = RICOCHET;
    const rs_peer members[] = {SENDER, RECEIVER, OTHER};
    view.group = group;
    view.version = 1;
    view.members = members;
    view.member_count = 3;
    assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK);
}

/* Thousands of one sender's: another of which few are missing, or none, is not to blame. */
static void missing__of_one_sender_is_not_said_of_another(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 1);
    rs_messages *other = pair_node(OTHER, (rs_messages_config){.send_bytes = 8 << 20});
    view_with_other(t.receiver, GROUP + 1);
    view_with_other(other, GROUP + 1);
    for (uint32_t lost = 0; lost < 2; lost++) {
        for (uint32_t i = 0; i < 3 + 3000 * lost; i++) {
            assert_int_equal(rs_messages_publish(other, 0, GROUP + 1, "x", 1, NULL), RS_OK);
            assert_int_equal(pair_take(other, 0, t.d, 1), 1);
            if (i == 0 || i == 2 + 3000 * lost)
                pair_give(t.receiver, 0, t.d);
        }
        if (lost == 0)
            lose(&t, 0, 3000);
        assert_true(rs_messages_is_behind(t.receiver, SENDER, GROUP));
        assert_int_equal(rs_messages_is_behind(t.receiver, OTHER, GROUP + 1), lost);
    }
    rs_messages_timeout(t.receiver, 2000 * MS);
    assert_false(rs_messages_is_behind(t.receiver, SENDER, GROUP));
    assert_false(rs_messages_is_behind(t.receiver, OTHER, GROUP + 1));
    rs_messages_free(other);
    end(&t);
}

/* Where nothing is answered requests become few; where all is, everything is asked for at once. */
static void nak__is_bounded_by_what_is_answered(void **state) {
    (void)state;
    const uint32_t lost = 3000;
    for (int answered = 0; answered < 2; answered++) {
        two t = begin((rs_messages_config){0}, &RICOCHET, 1);
        rs_time now = 0;
        lose(&t, now, lost);
        while (pair_stats(t.receiver).missing > 0) {
            uint32_t count = next_naks(&t, &now);
            for (uint32_t i = 0; i < count && answered; i++) {
                datagram answer;
                pair_give(t.sender, now, &t.d[i]);
                while (pair_take(t.sender, now, &answer, 1))
                    pair_give(t.receiver, now + MS, &answer);
            }
            drop_events(t.receiver);
        }
        rs_messages_stats stats = pair_stats(t.receiver);
        print_message("%s: asked for %llu packets, %llu came, %llu lost\n", answered ? "answered" : "in vain",
                      (unsigned long long)stats.asked, (unsigned long long)stats.recovered_retransmit,
                      (unsigned long long)stats.lost);
        if (answered)
            assert_int_equal(stats.recovered_retransmit, lost);
        else
            assert_true(stats.asked < lost / 10); /* each was asked for 57 times before there was a budget */
        end(&t);
    }
}

/* Ten packets a millisecond, repairs of 16: after 6.4 ms the repairs with a packet have been sent. */
static void nak__waits_no_longer_than_bins_take_to_fill(void **state) {
    (void)state;
    const rs_messages_view view = {.protocol = "ricochet", .options = "r=16,c=2,stagger=2"};
    two t = begin((rs_messages_config){0}, &view, 1);
    rs_time now = MS;
    for (uint32_t i = 0; i < 2000; i++, now += MS / 10) {
        assert_int_equal(pair_publish(t.sender, now, 7, LENGTH), RS_OK);
        assert_int_equal(pair_take(t.sender, now, t.d, MANY), 1);
        if (i % 100 != 10 && i < 1960)
            pair_give(t.receiver, now, t.d);
        rs_messages_timeout(t.receiver, now);
        while (pair_take(t.receiver, now, t.d, 1))
            pair_give(t.sender, now, t.d);
        while (pair_take(t.sender, now, t.d, 1))
            pair_give(t.receiver, now, t.d);
        drop_events(t.receiver);
    }
    assert_int_equal(pair_stats(t.receiver).missing, 0);
    lose(&t, now, 0); /* shows that the last 40 are missing */
    assert_int_equal(pair_stats(t.receiver).missing, 40);
    rs_time wait = rs_messages_deadline(t.receiver) - now;
    assert_true(wait >= 4 * MS && wait < 10 * MS);
    end(&t);
}

/* Repairs are flushed after 0.8 ms at most, and two packets come each 5 ms: hope is over with the next one. */
static void nak__of_a_slow_stream_waits_no_longer_than_for_the_flush(void **state) {
    (void)state;
    const rs_messages_view view = {.protocol = "ricochet", .options = "r=16,c=2,stagger=2,flush=0.4"};
    two t = begin((rs_messages_config){0}, &view, 1);
    rs_time now = 5 * MS;
    for (uint32_t i = 0; i < 50; i++, now += 5 * MS) {
        lose(&t, now, 0);
        rs_messages_timeout(t.receiver, now);
        while (pair_take(t.receiver, now, t.d, 1))
            ;
        drop_events(t.receiver);
    }
    lose(&t, now, 1);
    assert_int_equal(pair_stats(t.receiver).missing, 1);
    const rs_time found = now;
    while (next_naks(&t, &now) == 0) /* deadlines of repairs */
        assert_true(now - found < 10 * MS);
    assert_true(now - found < 10 * MS);
    end(&t);
}

#define HELD 64u
#define KNOWN 2000u

/* Ten packets a millisecond, of which repairs are sent after 0.8 ms at most and take `more` to get here. How long after
 * it was found missing a packet is asked for that none of them brings. */
static rs_time asked_after(rs_time more) {
    const rs_messages_view view = {.protocol = "ricochet", .options = "r=16,c=2,stagger=2,flush=0.4"};
    two t = begin((rs_messages_config){0}, &view, 1);
    rs_messages *other = pair_node(10, (rs_messages_config){.receive_bytes = 8 << 20});
    datagram *held = calloc(HELD, sizeof *held);
    rs_time due[HELD], now = MS, found = 0, asked = 0;
    uint32_t first = 0, last = 0;
    assert_non_null(held);
    pair_view(other, 1, &view, 1);
    for (uint32_t i = 0; asked == 0; i++, now += MS / 10) {
        assert_true(i < KNOWN + 500);
        assert_int_equal(pair_publish(t.sender, now, 7, LENGTH), RS_OK);
        assert_int_equal(pair_take(t.sender, now, t.d, 1), 1);
        pair_give(other, now, t.d);
        if (i % 100 != 10)
            pair_give(t.receiver, now, t.d);
        rs_messages_timeout(other, now);
        for (; pair_take(other, now, &held[last % HELD], 1); last += held[last % HELD].peer == RECEIVER)
            due[last % HELD] = now + more;
        assert_true(last - first < HELD);
        found = found == 0 && i > KNOWN && pair_stats(t.receiver).missing > 0 ? now : found;
        for (; first != last && due[first % HELD] <= now; first++)
            if (i < KNOWN)
                pair_give(t.receiver, now, &held[first % HELD]);
        uint64_t naks = pair_stats(t.receiver).naks_sent;
        rs_messages_timeout(t.receiver, now);
        asked = found > 0 && pair_stats(t.receiver).naks_sent > naks ? now : 0;
        while (pair_take(t.receiver, now, t.d, 1))
            ;
        drop_events(t.receiver);
        drop_events(other);
    }
    assert_true(pair_stats(t.receiver).recovered_repair > 10);
    print_message("repairs that take %lld us more: asked after %lld us\n", (long long)more / 1000,
                  (long long)(asked - found) / 1000);
    free(held);
    rs_messages_free(other);
    end(&t);
    return asked - found;
}

static void nak__waits_for_repairs_as_long_as_they_take_here(void **state) {
    (void)state;
    rs_time soon = asked_after(MS / 10), late = asked_after(5 * MS);
    assert_true(soon >= MS && soon <= 5 * MS / 2);
    assert_true(late >= 4 * MS - MS / 10);
}

/* A flood begins after a pause: what is missing of its first packets is asked for as soon as it is known how fast they
 * come, not when it would have been at the pace before. */
static void nak__of_a_flood_that_begins_is_sooner(void **state) {
    (void)state;
    const rs_messages_view view = {.protocol = "ricochet", .options = "r=16,c=2,stagger=2"};
    two t = begin((rs_messages_config){0}, &view, 1);
    rs_time now = MS;
    for (uint32_t i = 0; i < 8; i++, now += 300 * MS)
        lose(&t, now, 0);
    const rs_time began = now;
    lose(&t, now, 20);
    assert_int_equal(pair_stats(t.receiver).missing, 20);
    for (; now < began + 12 * MS; now += MS / 100) {
        lose(&t, now, 0);
        rs_messages_timeout(t.receiver, now);
        while (pair_take(t.receiver, now, t.d, 1))
            pair_give(t.sender, now, t.d);
        while (pair_take(t.sender, now, t.d, 1))
            pair_give(t.receiver, now, t.d);
        drop_events(t.receiver);
    }
    assert_int_equal(pair_stats(t.receiver).missing, 0);
    assert_int_equal(pair_stats(t.receiver).recovered_retransmit, 20);
    end(&t);
}

/* However soon a configuration wants to ask again: waiting for room in the budget costs a look now and then. */
static void nak__waits_for_its_turn_without_spinning(void **state) {
    (void)state;
    two t = begin((rs_messages_config){.nak_retry = 1}, &RICOCHET, 1);
    rs_time now = 0;
    uint32_t looks = 0;
    for (lose(&t, now, 2000); pair_stats(t.receiver).missing > 0; looks++)
        next_naks(&t, &now);
    assert_true(looks < 2000);
    end(&t);
}

/* 200 MB/s: the sender's ring lasts 40 ms, and what is asked for later than that is gone. */
static void nak__in_a_flood_is_before_the_ring_is_written_again(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 0);
    const uint32_t each_ms = 200, flood_ms = 300;
    uint32_t lost = 0;
    for (rs_time ms = 0; ms < flood_ms + 200; ms++) {
        rs_time now = ms * MS;
        for (uint32_t i = 0; i < each_ms && ms < flood_ms; i++) {
            uint32_t number = (uint32_t)ms * each_ms + i;
            bool gone = number % 2000 >= 1960 && ms < flood_ms - 1; /* 2 %, in runs of 40 */
            assert_int_equal(pair_publish(t.sender, now, 7, LENGTH), RS_OK);
            while (pair_take(t.sender, now, t.d, 1)) {
                if (!gone || rs_gm_get_kind(t.d->bytes, t.d->length) != RS_GM_KIND_DATA)
                    pair_give(t.receiver, now, t.d);
            }
            lost += gone;
        }
        rs_messages_timeout(t.sender, now);
        rs_messages_timeout(t.receiver, now);
        while (pair_take(t.receiver, now, t.d, 1))
            pair_give(t.sender, now, t.d);
        while (pair_take(t.sender, now, t.d, 1))
            pair_give(t.receiver, now, t.d);
        drop_events(t.receiver);
    }
    rs_messages_stats stats = pair_stats(t.receiver);
    assert_true(lost > 1000);
    assert_int_equal(stats.lost, 0);
    assert_int_equal(stats.recovered_retransmit, lost);
    end(&t);
}

/* Nothing else brings them: of a flood of which three of ten are lost they are asked for while it goes on. */
static void nak__of_a_flood_to_who_must_have_all_keeps_up(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &(rs_messages_view){.protocol = "plain", .whole = true}, 0);
    const uint32_t each_ms = 60, flood_ms = 100;
    uint64_t most = 0;
    for (rs_time ms = 0; ms < flood_ms; ms++) {
        rs_time now = ms * MS;
        for (uint32_t i = 0; i < each_ms; i++) {
            assert_int_equal(pair_publish(t.sender, now, 7, LENGTH), RS_OK);
            while (pair_take(t.sender, now, t.d, 1))
                if (i % 10 < 7)
                    pair_give(t.receiver, now, t.d);
        }
        rs_messages_timeout(t.receiver, now);
        while (pair_take(t.receiver, now, t.d, 1))
            pair_give(t.sender, now, t.d);
        while (pair_take(t.sender, now, t.d, 1))
            pair_give(t.receiver, now, t.d);
        drop_events(t.receiver);
        most = pair_stats(t.receiver).missing > most ? pair_stats(t.receiver).missing : most;
    }
    assert_true(most < each_ms * flood_ms / 5); /* two thirds of all that is lost */
    end(&t);
}

/* A repair that lacks two packets is kept: one of them brings the other. */
static void nak__leaves_what_comes_with_another(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &EAGER, 1);
    rs_messages *other = pair_node(10, (rs_messages_config){0});
    rs_time now = 0;
    pair_view(other, 1, &EAGER, 1);
    bool told = false;
    for (uint32_t i = 0; i < 8 && !told; i++) { /* its bin begins anywhere in a round */
        assert_int_equal(pair_publish(t.sender, now, 7, LENGTH), RS_OK);
        assert_int_equal(pair_take(t.sender, now, t.d, 1), 1);
        pair_give(other, now, t.d);
        if (i == 0)
            pair_give(t.receiver, now, t.d);
        datagram repair[4];
        uint32_t count = pair_take(other, now, repair, 4);
        for (uint32_t k = 0; k < count; k++) {
            bool two_packets = repair[k].bytes[8] == 2;
            if (repair[k].peer == RECEIVER && two_packets) {
                pair_give(t.receiver, now, &repair[k]);
                told = true;
            }
        }
        drop_events(other);
    }
    assert_true(told);
    uint64_t missing = pair_stats(t.receiver).missing;
    assert_true(missing >= 2);
    assert_int_equal(next_naks(&t, &now), 1);
    assert_int_equal(pair_stats(t.receiver).asked, missing - 1);
    pair_give(t.sender, now, &t.d[0]);
    uint32_t answers = pair_take(t.sender, now, t.d, MANY);
    assert_int_equal(answers, missing - 1);
    for (uint32_t i = 0; i < answers; i++)
        pair_give(t.receiver, now + MS, &t.d[i]);
    assert_int_equal(pair_stats(t.receiver).missing, 0);
    rs_messages_free(other);
    end(&t);
}

/* A sender that is gone is asked in vain: another member that has the packet gives it. */
static void nak__a_member_answers_for_a_sender_that_is_gone(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 1);
    rs_messages *other = pair_node(10, (rs_messages_config){0});
    pair_view(other, 1, &RICOCHET, 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pair_publish(t.sender, 0, (uint8_t)i, LENGTH), RS_OK);
        assert_int_equal(pair_take(t.sender, 0, t.d, 1), 1);
        pair_give(other, 0, t.d);
        if (i != 1)
            pair_give(t.receiver, 0, t.d);
    }
    rs_time now;
    assert_int_equal(next_naks(&t, &now), 1);
    assert_int_equal(t.d[0].peer, SENDER); /* and that is the last of it */
    assert_int_equal(next_naks(&t, &now), 1);
    assert_int_equal(t.d[0].peer, 10);
    pair_give(other, now, &t.d[0]);
    assert_int_equal(pair_take(other, now, t.d, 1), 1);
    pair_give(t.receiver, now + MS, &t.d[0]);
    assert_int_equal(pair_stats(t.receiver).missing, 0);
    assert_int_equal(pair_stats(t.receiver).recovered_retransmit, 1);
    rs_messages_free(other);
    end(&t);
}

/* So does one that lacks nothing itself and was not asked before, with all that its log has room for. */
static void nak__a_member_answers_with_what_came_long_ago(void **state) {
    (void)state;
    const uint32_t room = 8 << 20, later = room / 4 * 3 / LENGTH;
    two t = begin((rs_messages_config){0}, &RICOCHET, 1);
    rs_messages *other = pair_node(10, (rs_messages_config){.receive_bytes = room});
    pair_view(other, 1, &RICOCHET, 1);
    for (uint32_t i = 0; i < 3 + later; i++) {
        assert_int_equal(pair_publish(t.sender, 0, 7, LENGTH), RS_OK);
        assert_int_equal(pair_take(t.sender, 0, t.d, 1), 1);
        if (i == 0 || i == 2)
            pair_give(t.receiver, 0, t.d);
        pair_give(other, 0, t.d);
        pair_expect(other, 7, LENGTH);
    }
    rs_time now;
    do
        assert_int_equal(next_naks(&t, &now), 1);
    while (t.d[0].peer == SENDER);
    pair_give(other, now, &t.d[0]);
    assert_int_equal(pair_take(other, now, t.d, 1), 1);
    pair_give(t.receiver, now, t.d);
    assert_int_equal(pair_stats(t.receiver).recovered_retransmit, 1);
    rs_messages_free(other);
    end(&t);
}

/* Requests that piled up somewhere come together: one answer. */
static void answers__are_given_once_at_a_time(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 1);
    rs_time now;
    lose(&t, 0, 1);
    assert_int_equal(next_naks(&t, &now), 1);
    datagram nak = t.d[0];
    for (uint32_t i = 0; i < 5; i++)
        pair_give(t.sender, now + i * MS / 2, &nak);
    assert_int_equal(pair_take(t.sender, now, t.d, MANY), 1);
    assert_int_equal(pair_stats(t.sender).naks_repeated, 4);
    pair_give(t.sender, now + 5 * MS, &nak); /* the answer may have been lost */
    assert_int_equal(pair_take(t.sender, now + 5 * MS, t.d, MANY), 1);
    end(&t);
}

/* The last packet of all may be lost: the sender says how far it is, so that it is asked for. */
static void heartbeats__tell_of_the_last_packet(void **state) {
    (void)state;
    two t = begin((rs_messages_config){.heartbeat = 20 * MS, .heartbeats = 6}, &RICOCHET, 0);
    assert_int_equal(pair_publish(t.sender, 0, 1, LENGTH), RS_OK);
    assert_int_equal(pair_take(t.sender, 0, t.d, 8), 1); /* lost */
    assert_int_equal(rs_messages_deadline(t.sender), 20 * MS);
    rs_messages_timeout(t.sender, 20 * MS);
    assert_int_equal(pair_take(t.sender, 20 * MS, t.d, 8), 1);
    assert_int_equal(rs_messages_deadline(t.sender), 40 * MS);
    pair_give(t.receiver, 21 * MS, &t.d[0]);
    assert_int_equal(pair_stats(t.receiver).missing, 1);
    rs_time now;
    assert_int_equal(next_naks(&t, &now), 1);
    assert_int_equal(now, 101 * MS); /* 100 ms, of which 20 have passed since it was published */
    assert_int_equal(t.d[0].peer, SENDER);
    pair_give(t.sender, 102 * MS, &t.d[0]);
    assert_int_equal(pair_take(t.sender, 102 * MS, t.d, 8), 1);
    assert_int_equal(t.d[0].peer, RECEIVER);
    pair_give(t.receiver, 103 * MS, &t.d[0]);
    rs_messages_event event;
    assert_true(rs_messages_poll_event(t.receiver, &event));
    assert_int_equal(event.kind, RS_MESSAGES_DELIVER);
    assert_int_equal(event.via, RS_VIA_RETRANSMIT);
    assert_int_equal(event.late, 82 * MS);
    assert_int_equal(pair_stats(t.receiver).missing, 0);
    /* They become rare. */
    uint32_t more = 0;
    for (; rs_messages_deadline(t.sender) < 1000 * MS && more < 20; more++)
        rs_messages_timeout(t.sender, rs_messages_deadline(t.sender));
    assert_int_equal(more - pair_stats(t.sender).queries_sent, 5);
    uint64_t sent = pair_stats(t.sender).heartbeats_sent;
    while (rs_messages_deadline(t.sender) < 1000000 * MS) {
        rs_messages_timeout(t.sender, rs_messages_deadline(t.sender));
        pair_take(t.sender, 0, t.d, 8);
    }
    assert_in_range(pair_stats(t.sender).heartbeats_sent - sent, 30, 45); /* every 30 s */
    end(&t);
}

static void see_view(rs_messages *node, rs_message_group group, rs_group channel, const rs_peer *members,
                     uint32_t count) {
    rs_messages_view view = RICOCHET;
    view.group = group;
    view.channel = channel;
    view.version = 1;
    view.members = members;
    view.member_count = count;
    assert_int_equal(rs_messages_set_view(node, 0, &view), RS_OK);
}

/* A heartbeat to one group tells of others with the same members, so each has fewer of its own. */
static void heartbeats__tell_of_other_groups_too(void **state) {
    (void)state;
    rs_messages *sender = pair_node(SENDER, (rs_messages_config){0}),
                *receiver = pair_node(RECEIVER, (rs_messages_config){0});
    const rs_peer both[] = {SENDER, RECEIVER}, strangers[] = {SENDER, 70, 71};
    datagram d;
    for (rs_message_group id = 0; id < 9; id++) {
        see_view(sender, id, id, id < 8 ? both : strangers, id < 8 ? 2 : 3);
        if (id < 8)
            see_view(receiver, id, id, both, 2);
        assert_int_equal(rs_messages_publish(sender, id * MS, id, "x", 1, NULL), RS_OK);
        assert_int_equal(pair_take(sender, id * MS, &d, 1), 1); /* lost */
    }
    rs_messages_timeout(sender, 40 * MS);
    assert_int_equal(pair_take(sender, 40 * MS, &d, 1), 1);
    assert_int_equal(d.length, RS_GM_STATE + 8 * RS_GM_STATE_ITEM); /* not of that with other members */
    pair_give(receiver, 40 * MS, &d);
    assert_int_equal(pair_stats(receiver).missing, 8);
    while (rs_messages_deadline(sender) < 600 * MS) {
        rs_time now = rs_messages_deadline(sender);
        rs_messages_timeout(sender, now);
        while (pair_take(sender, now, &d, 1))
            ;
    }
    /* Nine would have had 36 each by themselves. */
    uint64_t sent = pair_stats(sender).heartbeats_sent;
    assert_true(sent >= 2 * 9 && sent <= 24);
    rs_messages_free(sender);
    rs_messages_free(receiver);
}

/* Two where the network loses little. */
static void heartbeats__are_fewer_where_little_is_lost(void **state) {
    (void)state;
    two t = begin((rs_messages_config){0}, &RICOCHET, 0);
    rs_time now = 0;
    for (uint32_t i = 0; i < 100; i++, now += MS) {
        assert_int_equal(pair_publish(t.sender, now, 1, LENGTH), RS_OK);
        assert_int_equal(pair_take(t.sender, now, t.d, 8), 1);
    }
    while (rs_messages_deadline(t.sender) < 600 * MS)
        rs_messages_timeout(t.sender, rs_messages_deadline(t.sender));
    assert_int_equal(pair_stats(t.sender).heartbeats_sent, 2);
    end(&t);
}

/* A sender that says to be at any place costs no more than the window. */
static void heartbeats__may_tell_of_any_place(void **state) {
    (void)state;
    two t = begin((rs_messages_config){.window_packets = 64}, &RICOCHET, 0);
    uint64_t places[] = {5, UINT64_C(1) << 59, (UINT64_C(1) << 59) + 3, (UINT64_C(1) << 60) - 1, 9};
    for (uint32_t i = 0; i < sizeof places / sizeof *places; i++) {
        rs_gm_state_item item = {GROUP, places[i], {.count = 1, .view = {{1, RS_GM_BACK_MOST}}}};
        rs_gm_put_state(t.d->bytes, SENDER, 3, 1);
        rs_gm_put_state_item(t.d->bytes + RS_GM_STATE, &item);
        t.d->length = RS_GM_STATE + RS_GM_STATE_ITEM;
        rs_gm_seal(t.d->bytes, t.d->length);
        pair_give(t.receiver, MS, t.d);
        assert_true(pair_stats(t.receiver).missing <= 64);
    }
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nak__the_sender_first_then_members_in_turn),
        cmocka_unit_test(nak__again_as_soon_as_an_answer_should_be_there),
        cmocka_unit_test(nak__many_packets_in_one_datagram),
        cmocka_unit_test(nak__tells_what_is_missing_longest),
        cmocka_unit_test(nak__of_plain_that_must_be_whole),
        cmocka_unit_test(nak__of_plain_is_not_for_what_was_before_a_return),
        cmocka_unit_test(parts__of_a_large_message_come_while_others_are_here),
        cmocka_unit_test(missing__is_more_than_can_be_asked_for_in_time),
        cmocka_unit_test(missing__of_one_sender_is_not_said_of_another),
        cmocka_unit_test(nak__is_bounded_by_what_is_answered),
        cmocka_unit_test(nak__waits_no_longer_than_bins_take_to_fill),
        cmocka_unit_test(nak__of_a_slow_stream_waits_no_longer_than_for_the_flush),
        cmocka_unit_test(nak__waits_for_repairs_as_long_as_they_take_here),
        cmocka_unit_test(nak__of_a_flood_that_begins_is_sooner),
        cmocka_unit_test(nak__waits_for_its_turn_without_spinning),
        cmocka_unit_test(nak__in_a_flood_is_before_the_ring_is_written_again),
        cmocka_unit_test(nak__of_a_flood_to_who_must_have_all_keeps_up),
        cmocka_unit_test(nak__leaves_what_comes_with_another),
        cmocka_unit_test(nak__a_member_answers_for_a_sender_that_is_gone),
        cmocka_unit_test(nak__a_member_answers_with_what_came_long_ago),
        cmocka_unit_test(answers__are_given_once_at_a_time),
        cmocka_unit_test(heartbeats__tell_of_the_last_packet),
        cmocka_unit_test(heartbeats__tell_of_other_groups_too),
        cmocka_unit_test(heartbeats__are_fewer_where_little_is_lost),
        cmocka_unit_test(heartbeats__may_tell_of_any_place),
    };
    return cmocka_run_group_tests_name("naks", tests, NULL, NULL);
}
