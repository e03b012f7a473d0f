/* In virtual time: when an object of which a part is here is gone on with. */
#include "daemon/pieces/retry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define HOUR (3600 * RS_SECOND)
#define TICK (500 * RS_MILLISECOND) /* as the agent looks */

/* Hours without a sender; the try after its return comes a minute later at most. */
static void hours__pass_with_a_try_a_minute(void **state) {
    (void)state;
    for (rs_time back = RS_SECOND; back < 24 * HOUR; back += back / 3 + TICK) {
        rs_retry retry = rs_retry_begin(0);
        rs_time now = 0, served = RS_NEVER;
        uint32_t tries = 0;
        for (; served == RS_NEVER && now < 25 * HOUR; now += TICK) {
            if (!rs_retry_due(&retry, now))
                continue;
            rs_retry_tried(&retry, now);
            tries++;
            served = now >= back ? now : RS_NEVER;
        }
        if (back + RS_RETRY_MOST <= RS_RETRY_BOUND) {
            assert_true(served >= back && served <= back + RS_RETRY_MOST + TICK);
            assert_true(served - back <= back + RS_SECOND); /* soon, if it was gone for a short time */
        }
        assert_true(tries <= 10 + now / RS_RETRY_MOST);
    }
}

static void after_a_day__it_is_left_to_a_command(void **state) {
    (void)state;
    rs_retry retry = rs_retry_begin(7);
    rs_time last = 0;
    for (rs_time now = 0; now < 48 * HOUR; now += TICK)
        if (rs_retry_due(&retry, now)) {
            rs_retry_tried(&retry, now);
            last = now;
        }
    assert_true(last > 23 * HOUR && last <= 24 * HOUR + 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hours__pass_with_a_try_a_minute),
        cmocka_unit_test(after_a_day__it_is_left_to_a_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
