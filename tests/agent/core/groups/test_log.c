/* The ring of packets tells what of it is written soon. */
#include "check.h"
#include "core/groups/log.h"

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
        uint8_t *datagram = rs_gm_log_datagram(&log, at);
        memset(datagram, 0xff, length);
        if (log.head < SIZE)
            assert_true(datagram + length <= t.upto && (uint64_t)(t.upto - t.bytes) <= log.head + RS_GM_LOG_SOON);
        assert_true(t.upto <= t.bytes + SIZE);
    }
    assert_ptr_equal(t.upto, t.bytes + SIZE);
    assert_int_equal(t.calls, SIZE / RS_GM_LOG_SOON);
    release(NULL, log.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(log__tells_what_is_written_soon_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
