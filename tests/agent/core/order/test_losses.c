/* How late messages of a group with guarantees are where some of what is said is lost, in virtual time. */
#include "order/members.h"

#define AGAIN (30 * MILLISECOND)
#define LATE 2 /* the member that loses */
#define DATA 1
#define ORDER 2
#define NAK 4

typedef struct {
    net of;
    uint8_t kind;   /* the member loses such multicasts: */
    uint32_t lose;  /* so many of them, ... */
    uint32_t each;  /* ... or one of so many; 0: none */
    uint32_t count; /* of them, so far */
    uint64_t given[MEMBERS];
    rs_time at[8192]; /* when a message was published, by its number; it says which */
    uint32_t published;
    rs_time worst; /* of all messages at all members */
    bool deaf;     /* it hears no message, nor one that comes again */
    bool brings;   /* the engine is about to bring what is missing, as it says */
    uint32_t naks; /* for it */
} losing;

static bool is_lost(net *n, uint32_t from, uint32_t to, const rs_order_out *out) {
    losing *l = (losing *)n;
    (void)from;
    if (to == LATE && l->deaf && out->bytes[3] == DATA)
        return true;
    if (to != LATE || out->peer != RS_NO_PEER || out->bytes[3] != l->kind)
        return false;
    l->count++;
    if (l->each)
        return l->count % l->each == 0;
    if (l->lose == 0)
        return false;
    l->lose--;
    return true;
}

static void said(net *n, uint32_t from, const rs_order_out *out) {
    ((losing *)n)->naks += from == LATE && out->bytes[3] == NAK;
}

static void give(net *n, uint32_t to, const rs_order_event *event) {
    losing *l = (losing *)n;
    if (event->kind != RS_ORDER_MESSAGE)
        return;
    uint32_t number = event->bytes[0] | (uint32_t)event->bytes[1] << 8;
    assert_int_equal(number, l->given[to]++);
    rs_time late = n->now - l->at[number];
    l->worst = late > l->worst ? late : l->worst;
}

static bool brings(void *context, uint32_t group, rs_peer sender) {
    const losing *l = context;
    assert_int_equal(group, 7);
    return l->brings && sender == 2;
}

static losing *begin(bool total, bool agreed) {
    losing *l = calloc(1, sizeof *l);
    l->of = (net){.is_lost = is_lost, .said = said, .give = give};
    net_begin(&l->of, (rs_order_config){.total = total, .agreed = agreed, .brings = brings, .context = l});
    return l;
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

static void publish(losing *l, uint32_t from, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t bytes[100] = {(uint8_t)l->published, (uint8_t)(l->published >> 8)};
        assert_int_equal(rs_order_publish(l->of.member[from], l->of.now, bytes, sizeof bytes), RS_OK);
        l->at[l->published++] = l->of.now;
    }
}

/* So many messages, each so long after the one before, and a while. */
static void publish_each(losing *l, uint32_t count, rs_time pause) {
    for (uint32_t i = 0; i < count; i++) {
        publish(l, 1, 1);
        net_run(&l->of, pause);
    }
    net_run(&l->of, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(l->given[i], l->published);
}

/* Messages each 4 ms, while so many ORDERs are lost to one member. */
static void lose_orders(losing *l, uint32_t lost, uint32_t count, rs_time most) {
    publish_each(l, 20, 4 * MILLISECOND);
    l->kind = ORDER;
    l->lose = lost;
    publish_each(l, count, 4 * MILLISECOND);
    assert_in_range(l->worst, 0, most);
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
    losing *l = *state;
    l->kind = DATA;
    l->each = 50;
    for (uint32_t i = 0; i < 50; i++) {
        publish(l, 1, 100);
        net_run(&l->of, MILLISECOND);
    }
    net_run(&l->of, SECOND);
    for (uint32_t i = 0; i < MEMBERS; i++)
        assert_int_equal(l->given[i], l->published);
    assert_in_range(l->worst, 0, AGAIN / 2);
}

/* A large one, of which parts are here: it is asked for as a whole once the engine has had time. */
static void message__is_brought_by_the_engine__is_not_asked_for_before(void **state) {
    losing *l = *state;
    l->kind = DATA;
    l->lose = 1;
    l->brings = true;
    publish(l, 1, 2);
    net_run(&l->of, 3 * AGAIN);
    assert_int_equal(l->naks, 0);
    net_run(&l->of, 2 * AGAIN);
    assert_in_range(l->naks, 1, 2);
    assert_int_equal(l->given[LATE], 2);
    l->lose = 1;
    publish(l, 1, 2);
    net_run(&l->of, AGAIN);
    l->brings = false;
    net_run(&l->of, AGAIN / 2);
    assert_int_equal(l->given[LATE], 4);
    l->brings = l->deaf = true; /* a whole one that comes again takes its time, too: copies of it do not pile up */
    l->naks = 0;
    publish(l, 1, 1);
    net_run(&l->of, SECOND);
    assert_int_equal(l->naks, 1);
    l->deaf = false;
    net_run(&l->of, SECOND);
    assert_int_equal(l->given[LATE], 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(order__is_lost__the_next_one_says_it_too, begin_agreed, net_over),
        cmocka_unit_test_setup_teardown(order__is_lost__the_next_one_says_it_too, begin_total, net_over),
        cmocka_unit_test_setup_teardown(orders__are_lost__they_come_again_while_others_follow, begin_agreed, net_over),
        cmocka_unit_test_setup_teardown(orders__are_lost__they_come_again_while_others_follow, begin_total, net_over),
        cmocka_unit_test_setup_teardown(messages__are_lost_again_and_again__none_waits_for_long, begin_agreed,
                                        net_over),
        cmocka_unit_test_setup_teardown(messages__are_lost_again_and_again__none_waits_for_long, begin_total, net_over),
        cmocka_unit_test_setup_teardown(messages__are_lost_again_and_again__none_waits_for_long, begin_sender,
                                        net_over),
        cmocka_unit_test_setup_teardown(message__is_brought_by_the_engine__is_not_asked_for_before, begin_agreed,
                                        net_over),
        cmocka_unit_test_setup_teardown(message__is_brought_by_the_engine__is_not_asked_for_before, begin_sender,
                                        net_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
