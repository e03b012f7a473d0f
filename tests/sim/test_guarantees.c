/* No two survivors disagree on order or view: seeded runs in virtual time (sim/messages/guarantees.h).
 *
 * RUNS=100000 runs so many; SEED=n runs that one alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "messages/guarantees.h"

static void survivors__agree_on_order_and_views(void **state) {
    (void)state;
    const char *one = getenv("SEED"), *many = getenv("RUNS");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1, last = one ? first : many ? strtoull(many, NULL, 10) : 1000;
    uint64_t deliveries = 0, views = 0, crashes = 0, partitions = 0, checks = 0;
    for (uint64_t seed = first; seed <= last; seed++) {
        sim_guarantees_result result;
        const sim_guarantees_params params = {.seed = seed};
        assert_true(sim_guarantees_run(&params, &result));
        if (result.disagreements || result.stuck)
            fail_msg("SEED=%llu: %llu disagreements, %llu stuck: %s", (unsigned long long)seed,
                     (unsigned long long)result.disagreements, (unsigned long long)result.stuck, result.text);
        deliveries += result.deliveries;
        views += result.views;
        crashes += result.crashes;
        partitions += result.partitions;
        checks += result.checks;
    }
    print_message("%llu deliveries, %llu views, %llu crashes, %llu partitions, %llu comparisons\n",
                  (unsigned long long)deliveries, (unsigned long long)views, (unsigned long long)crashes,
                  (unsigned long long)partitions, (unsigned long long)checks);
    if (!one)
        assert_true(deliveries > 1000 && views > 1000 && crashes > 50 && partitions > 20 && checks > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(survivors__agree_on_order_and_views)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
