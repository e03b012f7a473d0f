/* The simulator's C parts under the sanitizers: the calendar against a plain sort, and a whole small network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "engine/calendar.h"
#include "engine/sim.h"

#define SOURCES 300

static void calendar__gives_the_earliest_then_the_smallest(void **state) {
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    calendar c = {0};
    rs_time at[SOURCES];
    assert_true(calendar_reserve(&c, SOURCES));
    for (int i = 0; i < SOURCES; i++)
        at[i] = RS_NEVER;
    for (int turn = 0; turn < 20000; turn++) {
        uint32_t source = (uint32_t)rand() % SOURCES;
        at[source] = rand() % 4 ? rand() % 1000 : RS_NEVER;
        calendar_set(&c, source, at[source]);
        uint32_t least = 0, first = 0;
        for (uint32_t i = 1; i < SOURCES; i++)
            if (at[i] < at[least])
                least = i;
        assert_int_equal(calendar_first(&c, RS_NEVER, &first), at[least]);
        if (at[least] != RS_NEVER)
            assert_int_equal(first, least);
    }
    calendar_free(&c);
}

/* As a simulation uses it: time goes on, and what is set lies nanoseconds to years ahead. */
static void calendar__works_off_all_times_in_order(void **state) {
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    calendar c = {0};
    rs_time at[SOURCES], now = 0;
    assert_true(calendar_reserve(&c, SOURCES));
    for (int i = 0; i < SOURCES; i++)
        at[i] = RS_NEVER;
    for (int turn = 0; turn < 100000; turn++) {
        uint32_t source = (uint32_t)rand() % SOURCES, first = 0, least = 0;
        rs_time ahead = (rs_time)rand() % (INT64_C(1) << rand() % 31) << (rand() % 8 ? 0 : rand() % 25);
        at[source] = rand() % 8 ? now + ahead : RS_NEVER;
        calendar_set(&c, source, at[source]);
        if (rand() % 3)
            continue;
        for (uint32_t i = 1; i < SOURCES; i++)
            if (at[i] < at[least])
                least = i;
        assert_true(calendar_first(&c, RS_NEVER, &first) == at[least]);
        if (at[least] == RS_NEVER)
            continue;
        assert_int_equal(first, least);
        now = at[least];
        at[least] = now > INT64_C(1) << 61 ? RS_NEVER : now + rand() % 100;
        calendar_set(&c, least, at[least]);
    }
    calendar_free(&c);
}

static void sim__delivers_under_losses_and_leaves_nothing(void **state) {
    (void)state;
    sim *s = sim_new(7);
    uint32_t hosts[5], hub = sim_add_switch(s), down[5];
    sim_host_params host = {.fragment_size = 1408, .nic_rate_bps = 1000000000};
    sim_link_params wire = {.rate_bps = 1000000000, .delay_ns = 5000, .queue_bytes = 100000, .classes = 2};
    for (int i = 0; i < 5; i++) {
        host.seed = (uint64_t)i;
        hosts[i] = sim_add_host(s, &host);
        uint32_t up = sim_add_link(s, hosts[i], hub, &wire);
        down[i] = sim_add_link(s, hub, hosts[i], &wire);
        assert_true(sim_set_loss(s, down[i], SIM_LOSS_GILBERT, 0.05, 3));
        assert_true(sim_set_group(s, hosts[i], 9, &up, i == 0, i > 0));
    }
    assert_true(sim_set_group(s, hub, 9, down + 1, 4, false));
    sim_set_path(s, hosts[0], &(sim_path_params){.group = 9, .rate_bps = 1000000000});
    assert_int_not_equal(sim_add_flow(s, hosts[1], hosts[2], 100000000, 500, 0, 1000000000), SIM_ERROR);
    assert_int_not_equal(sim_send(s, hosts[0], &(sim_send_params){1, 2000000, hosts + 1, 4, NULL}), SIM_ERROR);
    assert_true(sim_run(s, 1500000000));
    assert_true(sim_crash(s, hosts[4]));
    assert_int_not_equal(sim_send(s, hosts[0], &(sim_send_params){2, 2000000, hosts + 1, 4, NULL}), SIM_ERROR);
    assert_true(sim_run(s, 1510000000)); /* in the middle: what is under way must be freed too */
    uint64_t count = 0, whole = 0;
    const sim_note *notes = sim_notes(s, &count);
    for (uint64_t i = 0; i < count; i++)
        whole += notes[i].kind == SIM_NOTE_RECEIVE_DONE && notes[i].value;
    assert_int_equal(whole, 4);
    sim_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calendar__gives_the_earliest_then_the_smallest),
                                       cmocka_unit_test(calendar__works_off_all_times_in_order),
                                       cmocka_unit_test(sim__delivers_under_losses_and_leaves_nothing)};
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
