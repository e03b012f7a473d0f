/* Messages about pieces: what is put is taken again; garbage and every cut is refused; and the plan of who is asked for
 * what. */
#include "daemon/pieces/plan.h"
#include "daemon/pieces/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/random.h"

static const uint8_t digests[32] = {1, 2, 3};

static const rs_piece_message messages[] = {
    {.type = RS_PIECE_ASK, .id = {{1, 2, 3}, 7}, .port = 7072, .name = "h1"},
    {.type = RS_PIECE_HAS, .size = 123456789, .root = {.algorithm = 1, .length = 16, .value = {9}}, .complete = true},
    {.type = RS_PIECE_NO, .gone = true, .text = "it is not here"},
    {.type = RS_PIECE_WANT_LEAVES},
    {.type = RS_PIECE_LEAVES, .first = 5, .count = 2, .bytes = digests, .length = 32},
    {.type = RS_PIECE_WANT, .first = 17},
    {.type = RS_PIECE_HAVE, .first = 8, .count = 13, .bytes = digests, .length = 2},
    {.type = RS_PIECE_HAS, .size = 5, .root = {.algorithm = 1, .length = 16, .value = {9}}, .no_leaves = true},
    {.type = RS_PIECE_RUNS, .address = 0xefc00101, .port = 7070, .nonce = 0x123456789abcdef, .fragment_size = 8896},
    {.type = RS_PIECE_STREAM, .fragment_size = 8896, .sn = 7, .here = 1ull << 40, .size = RS_STREAM},
    {.type = RS_PIECE_WANT_RUN, .sn = 1ull << 40, .count = 256},
    {.type = RS_PIECE_RUN, .sn = 5, .bytes = digests, .length = 32},
    {.type = RS_PIECE_KEY, .nonce = 9, .epoch = 3, .key = {1, 2, 3}, .signer = {4, 5}},
    {.type = RS_PIECE_PEER, .address = 0x0a000103, .port = 7072, .name = "h3"},
};
#define MESSAGES (sizeof messages / sizeof messages[0])

/* Head and body, in memory of exactly that size. */
static uint8_t *complete(const rs_piece_message *m, uint32_t *length) {
    uint8_t bytes[RS_PIECE_BODY_MOST];
    *length = rs_piece_put(m, bytes);
    uint8_t *out = malloc(*length + m->length);
    assert_non_null(out);
    memcpy(out, bytes, *length);
    if (m->length)
        memcpy(out + *length, m->bytes, m->length);
    *length += m->length;
    return out;
}

static void messages__are_taken_as_they_were_put(void **state) {
    (void)state;
    for (size_t i = 0; i < MESSAGES; i++) {
        const rs_piece_message *m = &messages[i];
        rs_piece_message found;
        uint32_t length, body;
        uint8_t type, *bytes = complete(m, &length);
        assert_true(rs_piece_take_head(bytes, &type, &body));
        assert_int_equal(type, m->type);
        assert_int_equal(body, length - RS_PIECE_HEAD);
        assert_true(rs_piece_take(type, bytes + RS_PIECE_HEAD, body, &found));
        assert_memory_equal(&found.id, &m->id, sizeof m->id);
        assert_string_equal(found.name, m->name);
        assert_string_equal(found.text, m->text);
        assert_memory_equal(&found.root, &m->root, sizeof m->root);
        assert_true(found.size == m->size && found.complete == m->complete && found.gone == m->gone);
        assert_true(found.first == m->first && found.count == m->count && found.length == m->length);
        assert_true(found.address == m->address && found.port == m->port && found.no_leaves == m->no_leaves);
        assert_true(found.nonce == m->nonce && found.fragment_size == m->fragment_size);
        assert_true(found.sn == m->sn && found.here == m->here);
        assert_true(found.epoch == m->epoch);
        assert_memory_equal(found.key, m->key, sizeof m->key);
        assert_memory_equal(found.signer, m->signer, sizeof m->signer);
        for (uint32_t cut = 0; cut < (type == RS_PIECE_RUN ? 9 : body); cut++) /* of it any number of bytes follow */
            assert_false(rs_piece_take(type, bytes + RS_PIECE_HEAD, cut, &found));
        free(bytes);
    }
}

static void garbage__is_refused_and_bounded(void **state) {
    (void)state;
    uint64_t random = 42;
    uint8_t head[RS_PIECE_HEAD], type;
    uint32_t length;
    const rs_piece_message piece = {.type = RS_PIECE_PIECE, .first = 3, .length = 1 << 20};
    assert_int_equal(rs_piece_put(&piece, (uint8_t[64]){0}), RS_PIECE_HEAD + 4);
    for (unsigned i = 0; i < 100000; i++) {
        uint8_t *body = malloc(64);
        rs_piece_message found;
        for (unsigned at = 0; at < 64; at++)
            body[at] = (uint8_t)rs_random_next(&random);
        memcpy(head, body, sizeof head);
        if (i % 2) {
            memcpy(head, "RP\x01", 3);
            head[3] = (uint8_t)(i % 12);
            head[6] = head[7] = 0;
        }
        if (rs_piece_take_head(head, &type, &length))
            assert_true(type == RS_PIECE_PIECE ? length <= 4 + (1 << 20) : length <= RS_PIECE_BODY_MOST);
        if (rs_piece_take((uint8_t)(i % 12), body, 1 + i % 63, &found)) {
            assert_non_null(memchr(found.name, 0, sizeof found.name));
            assert_true(!found.bytes || found.bytes + found.length <= body + 64);
        }
        free(body);
    }
}

static void plan__asks_for_the_rarest_once(void **state) {
    (void)state;
    enum { PIECES = 40 };
    uint8_t all[PIECES / 8 + 1], none[PIECES / 8 + 1] = {0};
    bool seen[PIECES] = {false};
    uint32_t piece;
    memset(all, 0xff, sizeof all);
    rs_piece_plan *plan = rs_piece_plan_new(PIECES, 1);
    for (uint32_t i = 0; i < PIECES; i++) {
        rs_piece_plan_holder(plan, i, true);
        if (i != 11)
            rs_piece_plan_holder(plan, i, true);
    }
    assert_false(rs_piece_plan_next(plan, none, &piece));
    assert_true(rs_piece_plan_next(plan, all, &piece));
    assert_int_equal(piece, 11); /* one holder has it, two the others */
    rs_piece_plan_again(plan, 11);
    rs_piece_plan_here(plan, 11);
    seen[11] = true;
    while (rs_piece_plan_next(plan, all, &piece)) {
        assert_true(piece < PIECES && !seen[piece]);
        seen[piece] = true;
    }
    for (uint32_t i = 0; i < PIECES; i++)
        assert_true(seen[i]);
    assert_int_equal(rs_piece_plan_missing(plan), 0);
    rs_piece_plan_again(plan, 5);
    assert_int_equal(rs_piece_plan_missing(plan), 1);
    assert_true(rs_piece_plan_next(plan, all, &piece));
    assert_int_equal(piece, 5);
    rs_piece_plan_free(plan);
}

static void plan__does_not_ask_for_what_comes_by_itself(void **state) {
    (void)state;
    uint8_t all[2] = {0xff, 0xff};
    uint32_t piece;
    rs_piece_plan *plan = rs_piece_plan_new(10, 1);
    rs_piece_plan_here(plan, 7);
    rs_piece_plan_wait(plan, 1, 40, true);
    assert_int_equal(rs_piece_plan_missing(plan), 1);
    assert_true(rs_piece_plan_next(plan, all, &piece) && piece == 0);
    assert_false(rs_piece_plan_next(plan, all, &piece));
    rs_piece_plan_here(plan, 3);
    rs_piece_plan_wait(plan, 2, 5, false); /* 2 and 4: 3 came */
    assert_int_equal(rs_piece_plan_missing(plan), 2);
    rs_piece_plan_wait(plan, 0, 10, false);
    assert_int_equal(rs_piece_plan_missing(plan), 7);
    rs_piece_plan_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages__are_taken_as_they_were_put),
        cmocka_unit_test(garbage__is_refused_and_bounded),
        cmocka_unit_test(plan__asks_for_the_rarest_once),
        cmocka_unit_test(plan__does_not_ask_for_what_comes_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
