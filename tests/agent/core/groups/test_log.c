/* Rings of packets tell what of them is written soon. */
#include "core/groups/log.h"
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#define SIZE (UINT64_C(1) << 20)

typedef struct {
    uint8_t *bytes, *upto; /* what it was told of, in order */
    uint32_t calls;
} told;

static void *alloc(void *context, size_t size) {
    told *t = context;
    t->bytes = t->upto = calloc(1, size);
    return t->bytes;
}

static void release(void *context, void *memory) {
    (void)context;
    free(memory);
}

static void soon(void *context, void *memory, size_t size) {
    told *t = context;
    assert_ptr_equal(memory, t->upto);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(t->upto[i], 0); /* not written yet */
    t->upto += size;
    t->calls++;
}

static void log__tells_what_is_written_soon_once(void **state) {
    (void)state;
    told t = {0};
    const rs_allocator allocator = {alloc, release, &t, soon};
    rs_gm_log log;
    assert_int_equal(rs_gm_log_init(&log, SIZE, &allocator), RS_OK);
    assert_int_equal(t.calls, 0); /* a group that says nothing takes no pages */
    for (uint32_t i = 0; log.head < 3 * SIZE; i++) {
        const uint32_t length = 1 + i * 37 % 1472;
        uint64_t at = rs_gm_log_append(&log, length);
        uint8_t *bytes = rs_gm_log_datagram(&log, at);
        memset(bytes, 0xff, length);
        if (log.head < SIZE)
            assert_true(bytes + length <= t.upto && (uint64_t)(t.upto - t.bytes) <= log.head + RS_GM_LOG_SOON);
        assert_true(t.upto <= t.bytes + SIZE);
    }
    assert_ptr_equal(t.upto, t.bytes + SIZE);
    assert_int_equal(t.calls, SIZE / RS_GM_LOG_SOON);
    release(NULL, log.bytes);
}

static void log__is_told_of_ahead_where_it_is_wanted_or_used(void **state) {
    (void)state;
    for (int wanted = 0; wanted < 2; wanted++) {
        told t = {0};
        const rs_allocator allocator = {alloc, release, &t, soon};
        rs_gm_log log;
        assert_int_equal(rs_gm_log_init(&log, SIZE, &allocator), RS_OK);
        log.wanted = wanted;
        rs_gm_log_prepare(&log);
        assert_int_equal(t.calls, wanted);
        while (!wanted && log.head < RS_GM_LOG_USED) {
            assert_true(rs_gm_log_is_prepared(&log));
            rs_gm_log_append(&log, 1000);
        }
        for (uint32_t i = 0; i < SIZE / RS_GM_LOG_STEP; i++)
            rs_gm_log_prepare(&log);
        assert_true(rs_gm_log_is_prepared(&log));
        assert_ptr_equal(t.upto, t.bytes + SIZE);
        const uint32_t calls = t.calls;
        while (log.head < 2 * SIZE)
            rs_gm_log_append(&log, 1000);
        assert_int_equal(t.calls, calls); /* all was told */
        release(NULL, log.bytes);
    }
}

static void count(void *context, void *memory, size_t size) {
    (void)memory;
    *(uint64_t *)context += size;
}

/* What the node tells of, in all, after a view of which it is a member, or publishes only, or neither, and so many
 * messages of 1 KB of its own. */
static uint64_t prepared_by(bool view, bool member, uint32_t messages) {
    uint64_t bytes = 0;
    rs_allocator allocator = pair_allocator();
    allocator.context = &bytes;
    allocator.soon = count;
    const rs_messages_config config = {
        .self = SENDER, .incarnation = 3, .receive_bytes = SIZE, .send_bytes = 4 * SIZE, .deliveries = 64};
    rs_messages *node = rs_messages_new(&config, &allocator);
    assert_non_null(node);
    const pair_server servers[] = {{RECEIVER, 0, false}, {SENDER, 0, !member}};
    if (view)
        pair_view_of(node, 1, &(rs_messages_view){.protocol = "ricochet"}, servers, 2);
    assert_int_equal(rs_messages_is_prepared(node), !view);
    datagram *d = calloc(messages + 1, sizeof *d);
    for (uint32_t i = 0; i < messages; i++)
        assert_int_equal(pair_publish(node, 0, 1, 1000), RS_OK);
    pair_take(node, 0, d, messages);
    free(d);
    for (uint32_t calls = 0; !rs_messages_is_prepared(node); calls++) {
        assert_true(calls < 6 * SIZE / RS_GM_LOG_STEP);
        rs_messages_prepare(node);
    }
    rs_messages_free(node);
    return bytes;
}

static void node__prepares_what_a_member_and_what_a_publisher_needs(void **state) {
    (void)state;
    assert_int_equal(prepared_by(false, false, 0), 0);
    assert_int_equal(prepared_by(true, true, 0), SIZE);
    assert_int_equal(prepared_by(true, false, 0), 4 * SIZE);
    assert_int_equal(prepared_by(true, true, RS_GM_LOG_USED / 1000 + 1), SIZE + 4 * SIZE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log__tells_what_is_written_soon_once),
        cmocka_unit_test(log__is_told_of_ahead_where_it_is_wanted_or_used),
        cmocka_unit_test(node__prepares_what_a_member_and_what_a_publisher_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
