/* How late messages of a group with guarantees are where some of what is said is lost, in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/heap.h"
#include "core/order/order.h"

#define MILLISECOND ((rs_time)1000000)
#define SECOND (1000 * MILLISECOND)
#define AGAIN (30 * MILLISECOND)
#define MEMBERS 3
#define LATE 2 /* the member that loses */
#define DATA 1
#define ORDER 2
#define NAK 4

typedef struct {
    rs_order *member[MEMBERS];
    uint8_t kind;   /* the member loses such multicasts: */
    uint32_t lose;  /* so many of them, ... */
    uint32_t each;  /* ... or one of so many; 0: none */
    uint32_t count; /* of them, so far */
    uint64_t given[MEMBERS];
    rs_time at[8192]; /* when a message was published, by its number; it says which */
    uint32_t published;
    rs_time worst; /* of all messages at all members */
    bool brings;   /* the engine is about to bring what is missing, as it says */
    uint32_t naks; /* for it */
    rs_time now;
} net;

static bool is_lost(net *n, uint32_t to, const rs_order_out *out) {
    if (to != LATE || out->peer != RS_NO_PEER || out->bytes[3] != n->kind)
        return false;
    n->count++;
    if (n->each)
        return n->count % n->each == 0;
    if (n->lose == 0)
        return false;
    n->lose--;
    return true;
}

static void pass(net *n, uint32_t from, const rs_order_out *out) {
    n->naks += from == LATE && out->bytes[3] == NAK;
    for (uint32_t to = 0; to < MEMBERS; to++)
        if (to != from && (out->peer == RS_NO_PEER || out->peer == to + 1) && !is_lost(n, to, out))
            assert_true(rs_order_receive(n->member[to], n->now, from + 1, out->bytes, out->length));
}

static bool take(net *n, uint32_t i) {
    rs_order_event event;
    if (!rs_order_poll_event(n->member[i], n->now, &event))
        return false;
    if (event.kind != RS_ORDER_MESSAGE)
        return true;
    uint32_t number = event.bytes[0] | (uint32_t)event.bytes[1] << 8;
    assert_int_equal(number, n->given[i]++);
    rs_time late = n->now - n->at[number];
    n->worst = late > n->worst ? late : n->worst;
    return true;
}

static void settle(net *n) {
    rs_order_out out;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            while (take(n, i))
                more = true;
            while (rs_order_poll_out(n->member[i], n->now, &out)) {
                pass(n, i, &out);
                more = true;
            }
        }
    }
}

static void run(net *n, rs_time how_long) {
    for (rs_time end = n->now + how_long; n->now < end; n->now += MILLISECOND) {
        settle(n);
        for (uint32_t i = 0; i < MEMBERS; i++)
            rs_order_timeout(n->member[i], n->now);
        settle(n);
    }
}

static bool brings(void *context, uint32_t group, rs_peer sender) {
    const net *n = context;
    assert_int_equal(group, 7);
    return n->brings && sender == 2;
}

static net *begin(bool total, bool agreed) {
    const rs_peer peers[MEMBERS] = {1, 2, 3};
    net *n = calloc(1, sizeof *n);
    n->now = SECOND;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const rs_order_config config = {.group = 7,
                                        .self = i + 1,
                                        .instance = 100 + i,
                                        .total = total,
                                        .agreed = agreed,
                                        .brings = brings,
                                        .context = n};
        n->member[i] = rs_order_new(&config, &rs_heap);
        assert_int_equal(rs_order_view(n->member[i], n->now, 1, peers, MEMBERS), RS_OK);
    }
    run(n, SECOND);
    return n;
}

static int begin_agreed(void **state) {
    *state = begin(true, true);
    return 0;
}

static int begin_total(void **state) {
    *state = begin(true, false);
    return 0;
}

static int begin_sender(void **state) {
    *state = begin(false, false);
    return 0;
}

static int over(void **state) {
    net *n = *state;
    for (uint32_t i = 0; i < MEMBERS; i++)
        rs_order_free(n->member[i]);
    free(n);
    return 0;
}

static void publish(net *n, uint32_t from, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t bytes[100] = {(uint8_t)n->published, (uint8_t)(n->published >> 8)};
        assert_int_equal(rs_order_publish(n->member[from], n->now, bytes, sizeof bytes), RS_OK);
        n->at[n->published++] = n->now;
    }
}

/* So many messages, each so long after the one before, and a while. */
static void publish_each(net *n, uint32_t count, rs_time pause) {
    for (uint32_t i = 0; i < count; i++) {
        publish(n, 1, 1);
        run(n, pause);
    }
    run(n, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(n->given[i], n->published);
}

/* Messages each 4 ms, while so many ORDERs are lost to one member. */
static void lose_orders(net *n, uint32_t lost, uint32_t count, rs_time most) {
    publish_each(n, 20, 4 * MILLISECOND);
    n->kind = ORDER;
    n->lose = lost;
    publish_each(n, count, 4 * MILLISECOND);
    assert_in_range(n->worst, 0, most);
}

/* What follows says it again. */
static void order__is_lost__the_next_one_says_it_too(void **state) {
    lose_orders(*state, 1, 100, 5 * MILLISECOND);
}

/* The coordinator goes on to tell of newer ones meanwhile, more often than it would say any again. */
static void orders__are_lost__they_come_again_while_others_follow(void **state) {
    lose_orders(*state, 5, 200, 2 * AGAIN);
}

/* Each gap is asked for as soon as it is the first one, though others are known; all of them at once. */
static void messages__are_lost_again_and_again__none_waits_for_long(void **state) {
    net *n = *state;
    n->kind = DATA;
    n->each = 50;
    for (uint32_t i = 0; i < 50; i++) {
        publish(n, 1, 100);
        run(n, MILLISECOND);
    }
    run(n, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(n->given[i], n->published);
    assert_in_range(n->worst, 0, AGAIN / 2);
}

/* A large one, of which parts are here: it is asked for as a whole once the engine has had time. */
static void message__is_brought_by_the_engine__is_not_asked_for_before(void **state) {
    net *n = *state;
    n->kind = DATA;
    n->lose = 1;
    n->brings = true;
    publish(n, 1, 2);
    run(n, 3 * AGAIN);
    assert_int_equal(n->naks, 0);
    run(n, 2 * AGAIN);
    assert_in_range(n->naks, 1, 2);
    assert_int_equal(n->given[LATE], 2);
    n->lose = 1;
    publish(n, 1, 2);
    run(n, AGAIN);
    n->brings = false;
    run(n, AGAIN / 2);
    assert_int_equal(n->given[LATE], 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(order__is_lost__the_next_one_says_it_too, begin_agreed, over),
        cmocka_unit_test_setup_teardown(order__is_lost__the_next_one_says_it_too, begin_total, over),
        cmocka_unit_test_setup_teardown(orders__are_lost__they_come_again_while_others_follow, begin_agreed, over),
        cmocka_unit_test_setup_teardown(orders__are_lost__they_come_again_while_others_follow, begin_total, over),
        cmocka_unit_test_setup_teardown(messages__are_lost_again_and_again__none_waits_for_long, begin_agreed, over),
        cmocka_unit_test_setup_teardown(messages__are_lost_again_and_again__none_waits_for_long, begin_total, over),
        cmocka_unit_test_setup_teardown(messages__are_lost_again_and_again__none_waits_for_long, begin_sender, over),
        cmocka_unit_test_setup_teardown(message__is_brought_by_the_engine__is_not_asked_for_before, begin_agreed, over),
        cmocka_unit_test_setup_teardown(message__is_brought_by_the_engine__is_not_asked_for_before, begin_sender, over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
