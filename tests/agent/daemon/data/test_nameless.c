/* Receivers that answer before the object's name is known. */
#include "daemon/data/nameless.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static uint32_t told[RS_NAMELESS_MOST + 10]; /* times, by receiver */
static uint64_t nonces;                      /* of what was told, added up */
static rs_peer dark;                         /* one that cannot be told */

static bool tell(void *context, rs_peer peer, uint64_t nonce) {
    (void)context;
    if (peer == dark)
        return false;
    told[peer]++;
    nonces += nonce;
    return true;
}

static rs_object_id id_of(uint64_t number) {
    return (rs_object_id){.app = {0x11}, .data = number};
}

static rs_nameless *fresh(void) {
    rs_nameless *n = rs_nameless_new();
    assert_non_null(n);
    for (uint32_t i = 0; i < sizeof told / sizeof told[0]; i++)
        told[i] = 0;
    nonces = 0;
    dark = RS_NO_PEER;
    return n;
}

static void names__reach_all_of_a_thousand_receivers_that_answered_before(void **state) {
    (void)state;
    rs_nameless *n = fresh();
    const rs_object_id seven = id_of(7), eight = id_of(8);
    rs_nameless_opened(n, 41, &seven);
    rs_nameless_opened(n, 42, &eight);
    for (int answers = 0; answers < 3; answers++)
        for (rs_peer peer = 1; peer <= 1000; peer++) {
            rs_nameless_note(n, 41, peer);
            rs_nameless_note(n, 42, peer);
            rs_nameless_note(n, 43, peer); /* nobody's */
        }
    rs_nameless_named(n, &seven, tell, NULL);
    uint32_t twice = 0;
    for (rs_peer peer = 1; peer <= 1000; peer++) {
        assert_true(told[peer] >= 1);
        twice += told[peer] > 1;
    }
    assert_in_range(twice, 0, 1000); /* by marks that share a place; harmless */
    assert_int_equal(nonces % 41, 0);
    rs_nameless_named(n, &seven, tell, NULL);
    assert_int_equal(nonces % 41, 0);
    nonces = 0;
    rs_nameless_named(n, &eight, tell, NULL);
    assert_true(nonces >= UINT64_C(42) * 1000);
    rs_nameless_free(n);
}

static void names__who_cannot_be_told_is_when_it_is_heard_again(void **state) {
    (void)state;
    rs_nameless *n = fresh();
    const rs_object_id seven = id_of(7);
    rs_nameless_opened(n, 41, &seven);
    for (rs_peer peer = 1; peer <= 3; peer++)
        rs_nameless_note(n, 41, peer);
    rs_nameless_again(n, 2, tell, NULL); /* there is nothing to tell yet */
    assert_int_equal(told[2], 0);
    dark = 2;
    rs_nameless_named(n, &seven, tell, NULL);
    assert_true(told[1] == 1 && told[2] == 0 && told[3] == 1);
    rs_nameless_again(n, 2, tell, NULL);
    dark = RS_NO_PEER;
    rs_nameless_again(n, 1, tell, NULL);
    assert_true(told[1] == 1 && told[2] == 0);
    rs_nameless_again(n, 2, tell, NULL);
    rs_nameless_again(n, 2, tell, NULL);
    assert_int_equal(told[2], 1);
    rs_nameless_free(n);
}

/* Each message that comes asks if its sender is to be told: by a count, which others may share. */
static void names__two_that_share_a_place_are_each_told_when_they_are_heard_again(void **state) {
    (void)state;
    rs_nameless *n = fresh();
    const rs_object_id seven = id_of(7), eight = id_of(8), nine = id_of(9);
    rs_nameless_opened(n, 41, &seven);
    rs_nameless_opened(n, 42, &eight);
    for (dark = 5; dark <= 5 + 4096; dark += 4096) {
        rs_nameless_note(n, 41, dark);
        rs_nameless_note(n, 42, dark);
        rs_nameless_named(n, &seven, tell, NULL);
        if (dark == 5)
            rs_nameless_named(n, &eight, tell, NULL);
    }
    assert_int_equal(told[5], 1);            /* of the first, by its second naming */
    rs_nameless_opened(n, 41 + 1024, &nine); /* takes the first's place: one is not told of it */
    dark = RS_NO_PEER;
    rs_nameless_again(n, 5 + 4096, tell, NULL);
    assert_int_equal(told[5 + 4096], 1);
    rs_nameless_again(n, 5, tell, NULL);
    assert_int_equal(told[5], 2);
    rs_nameless_again(n, 5, tell, NULL);
    rs_nameless_again(n, 5 + 4096, tell, NULL);
    assert_true(told[5] == 2 && told[5 + 4096] == 1);
    rs_nameless_free(n);
}

/* Programs that give no names keep no more than that. */
static void names__of_more_than_are_kept_some_are_forgotten(void **state) {
    (void)state;
    rs_nameless *n = fresh();
    for (uint64_t nonce = 1; nonce <= 3000; nonce++) {
        const rs_object_id id = id_of(nonce);
        rs_nameless_opened(n, nonce, &id);
        for (rs_peer peer = 1; peer <= 100; peer++)
            rs_nameless_note(n, nonce, peer);
    }
    assert_null(rs_nameless_object(n, 1)); /* its place is another's */
    const rs_object_id last = id_of(3000);
    rs_nameless_named(n, &last, tell, NULL);
    for (rs_peer peer = 1; peer <= 100; peer++)
        assert_true(told[peer] >= 1);
    rs_nameless_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names__reach_all_of_a_thousand_receivers_that_answered_before),
        cmocka_unit_test(names__who_cannot_be_told_is_when_it_is_heard_again),
        cmocka_unit_test(names__two_that_share_a_place_are_each_told_when_they_are_heard_again),
        cmocka_unit_test(names__of_more_than_are_kept_some_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
