/* What every engine of objects must do, each row of the table in turn: Republic, RDCM, and one that is made for this
 * test (plainseq.c). */
#include "check.h"

#include <stdio.h>

#include "core/transfer/engine.h"
#include "net_state.h"

#define FRAGMENT 1000
#define SEEDS 5

static const rs_config usual = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};

static rs_protocol protocol_of(void **state) {
    return (rs_protocol)(*(const rs_engine *const *)*state)->id;
}

static net *by(void **state, uint32_t servers, uint64_t seed) {
    net *n = net_new(servers, &usual, seed);
    net_knob(n)->path.protocol = protocol_of(state);
    return n;
}

/* All of them have it, and the sender knows. */
static void assert_complete(net *n, uint64_t data, uint64_t seed) {
    const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    if (!done || !done->event.ok) {
        net_show(n);
        fail_msg("seed %llu: %s", (unsigned long long)seed, done ? done->event.cause : "the send does not end");
    }
    for (rs_peer to = 1; to < n->server_count; to++)
        assert_true(net_has(n, to, data));
    assert_int_equal(net_events(n, 0, RS_EV_PATH_WANTED, ANYONE), net_events(n, 0, RS_EV_PATH_DONE, ANYONE));
}

static void nothing_is_lost__each_fragment_is_sent_once(void **state) {
    net *n = by(state, 5, 1);
    rs_xfer xfer = net_send_all(n, 1, 2000 * FRAGMENT - 7);
    for (rs_time at = 0; at < 5 * SEC && !net_event(n, 0, RS_EV_SEND_DONE, ANYONE); at += 10 * MS)
        net_at(n, at);
    assert_complete(n, 1, 1);
    assert_int_equal(net_stats(n, 0, xfer).protocol, protocol_of(state));
    assert_in_range(net_stats(n, 0, xfer).packets_sent, 2000, 2100);
    for (rs_peer to = 1; to < 5; to++)
        assert_int_equal(net_messages(n, to, 0, RS_MSG_PTCH_REQ), 0);
    net_free(n);
}

static void sizes_at_the_edges__arrive(void **state) {
    const uint64_t sizes[] = {0, 1, FRAGMENT, FRAGMENT + 1, 64 * FRAGMENT, 65 * FRAGMENT};
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        net *n = by(state, 3, i + 1);
        net_knob(n)->loss = i % 2 ? 0.5 : 0;
        net_send_all(n, 1, sizes[i]);
        net_at(n, 20 * SEC);
        assert_complete(n, 1, i + 1);
        net_free(n);
    }
}

static void losses_late_and_doubled_packets__all_is_mended(void **state) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        net *n = by(state, 6, seed);
        net_knob(n)->loss = 0.02 * (double)seed;
        net_knob(n)->burst = seed % 2 ? 0 : 5;
        net_knob(n)->data_jitter = 200 * US;
        net_knob(n)->duplicate = 0.01;
        net_send_all(n, 1, 1500 * FRAGMENT);
        net_at(n, 20 * SEC);
        assert_complete(n, 1, seed);
        net_free(n);
    }
}

/* Behind a counter that another receiver led far ahead: what is not here is taken, with all that it asks for; what
 * comes once more has nobody say anything. */
static void packets_that_may_be_copies__are_taken_once(void **state) {
    uint64_t said[2] = {0};
    for (uint32_t twice = 0; twice < 2; twice++) {
        net *n = by(state, 4, 7);
        net_knob(n)->late = true;
        net_knob(n)->duplicate = twice ? 1 : 0;
        net_send_all(n, 1, 2000 * FRAGMENT);
        net_at(n, 20 * SEC);
        assert_complete(n, 1, 7);
        for (rs_peer to = 1; to < 4; to++) {
            said[twice] += net_messages(n, to, 0, RS_MSG_RATE) + net_messages(n, to, 0, RS_MSG_PTCH_REQ);
            assert_int_equal(net_messages(n, to, 0, RS_MSG_PTCH_REQ), 0);
        }
        net_free(n);
    }
    assert_true(said[1] <= said[0] + said[0] / 10 + 3);
}

static void connections_are_cut__nothing_is_lost_for_good(void **state) {
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        net *n = by(state, 3, seed);
        net_knob(n)->loss = 0.05;
        net_send_all(n, 1, 2000 * FRAGMENT);
        rs_time at = 0;
        for (int cuts = 0; cuts < 12; cuts++) {
            at += (rs_time)(net_random(n) * 5 * (double)MS);
            net_at(n, at);
            net_cut(n, 0, 1 + (rs_peer)(cuts % 2));
        }
        net_at(n, 20 * SEC);
        assert_complete(n, 1, seed);
        net_free(n);
    }
}

static void a_slow_receiver__gets_all(void **state) {
    net *n = by(state, 4, 1);
    net_bottleneck(n, 3, 200000000, 30, true);
    net_send_all(n, 1, 3000 * FRAGMENT);
    net_at(n, 30 * SEC);
    assert_complete(n, 1, 1);
    net_free(n);
}

static void a_late_receiver__gets_all(void **state) {
    net *n = by(state, 4, 1);
    net_unreachable(n, 3, true);
    net_send_all(n, 1, 1000 * FRAGMENT);
    net_at(n, 2 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1) && !net_has(n, 3, 1));
    net_unreachable(n, 3, false);
    net_at(n, 10 * SEC);
    assert_complete(n, 1, 1);
    net_free(n);
}

static void a_process_stands_still__all_arrives_after_it(void **state) {
    for (rs_peer who = 0; who < 2; who++) {
        net *n = by(state, 4, 1 + who);
        net_send_all(n, 1, 5000 * FRAGMENT);
        net_at(n, 15 * MS);
        net_pause(n, who, 700 * MS);
        net_at(n, 20 * SEC);
        assert_complete(n, 1, 1 + who);
        net_free(n);
    }
}

static void a_receiver_dies__the_others_have_it(void **state) {
    net *n = by(state, 4, 1);
    net_send_all(n, 1, 10000 * FRAGMENT);
    net_at(n, 30 * MS);
    net_kill(n, 2);
    net_at(n, 20 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 3, 1));
    assert_non_null(net_event(n, 0, RS_EV_PEER_FAILED, 2));
    assert_false(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

static void the_sender_dies__receivers_give_up(void **state) {
    net *n = by(state, 3, 1);
    net_send_all(n, 1, 50000 * FRAGMENT);
    net_at(n, 30 * MS);
    net_kill(n, 0);
    net_at(n, 20 * SEC);
    for (rs_peer to = 1; to < 3; to++)
        assert_false(net_event(n, to, RS_EV_RECEIVE_DONE, ANYONE)->event.ok);
    net_free(n);
}

static void the_sender_cancels__receivers_hear_why(void **state) {
    net *n = by(state, 3, 1);
    rs_xfer xfer = net_send_all(n, 1, 50000 * FRAGMENT);
    net_at(n, 30 * MS);
    net_call(n, 0, rs_send_cancel(net_node(n, 0), net_knob(n)->now, xfer, "not needed"));
    net_at(n, 1 * SEC);
    for (rs_peer to = 1; to < 3; to++)
        assert_non_null(strstr(net_event(n, to, RS_EV_RECEIVE_DONE, ANYONE)->event.cause, "not needed"));
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 1);
    net_free(n);
}

static void a_receiver_cancels__the_other_has_it(void **state) {
    net *n = by(state, 3, 1);
    net_send_all(n, 1, 10000 * FRAGMENT);
    net_at(n, 30 * MS);
    net_call(n, 2, rs_receive_cancel(net_node(n, 2), net_knob(n)->now, net_receiving(n, 2), "the disk is full"));
    net_at(n, 10 * SEC);
    assert_true(net_has(n, 1, 1));
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "the disk is full"));
    net_free(n);
}

static void a_wrong_digest__is_told(void **state) {
    net *n = by(state, 3, 1);
    net_bad_digest(n, 2);
    net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 10 * SEC);
    assert_true(net_has(n, 1, 1) && !net_has(n, 2, 1));
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 2)->event.cause, "wrong digest"));
    net_free(n);
}

static void a_wrong_piece__is_fetched_again(void **state) {
    net *n = by(state, 3, 1);
    net_digest(n, (rs_digest){.algorithm = 1, .length = 16});
    net_wrong_piece(n, 2, 150 * FRAGMENT + 10, 20 * FRAGMENT, 2);
    net_send_all(n, 1, 1000 * FRAGMENT);
    net_at(n, 10 * SEC);
    assert_complete(n, 1, 1);
    assert_int_equal(net_fetches(n, 2), 2);
    net_free(n);
}

static void the_path_fails__the_rest_goes_by_unicast(void **state) {
    for (rs_time at = 1500 * US; at < 20 * MS; at *= 3) {
        net *n = by(state, 3, 1);
        net_knob(n)->loss = 0.02;
        rs_xfer xfer = net_send_all(n, 1, 4000 * FRAGMENT);
        net_at(n, at);
        net_call(n, 0, rs_path_failed(net_node(n, 0), net_knob(n)->now, xfer, "the switch is gone"));
        net_at(n, 20 * SEC);
        assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
        net_free(n);
    }
}

static void the_path_moves__all_arrives(void **state) {
    net *n = by(state, 3, 1);
    rs_xfer xfer = net_send_all(n, 1, 4000 * FRAGMENT);
    net_at(n, 20 * MS);
    net_call(n, 0, rs_path_moved(net_node(n, 0), net_knob(n)->now, xfer, RS_PATH_PACKET));
    net_at(n, 20 * SEC);
    assert_complete(n, 1, 1);
    net_free(n);
}

/* An engine that cannot continue has the fallback do it, and says so. */
static void parts_of_an_object_and_of_the_receivers__are_sessions(void **state) {
    for (uint32_t part = 0; part <= 2; part += 2) {
        net *n = by(state, 5, 1);
        net_knob(n)->path.accepted_size = 300 * FRAGMENT;
        net_knob(n)->part = part;
        net_knob(n)->loss = 0.02;
        net_send_all(n, 1, 1000 * FRAGMENT);
        net_at(n, 30 * SEC);
        assert_complete(n, 1, part);
        assert_true(net_events(n, 0, RS_EV_PATH_WANTED, ANYONE) >= 4);
        net_free(n);
    }
}

static void one_engine_alone__is_its_own_fallback(void **state) {
    const rs_engine *const *row = *state;
    rs_config alone = usual;
    if (!((*row)->path_kinds & 1u << RS_OPEN_NO_PATH))
        return; /* it goes by no path but some: it is no fallback */
    alone.engines = row;
    alone.engine_count = 1;
    net *n = net_new(3, &alone, 1);
    net_knob(n)->path.protocol = (rs_protocol)(*row)->id;
    net_knob(n)->loss = 0.02;
    rs_xfer xfer = net_send_all(n, 1, 4000 * FRAGMENT);
    net_at(n, 20 * MS);
    net_call(n, 0, rs_path_failed(net_node(n, 0), net_knob(n)->now, xfer, "the switch is gone"));
    net_at(n, 20 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    net_free(n);
}

static void memory_is_short__it_ends_and_nothing_leaks(void **state) {
    uint64_t made = 0;
    for (int64_t fail_at = -1; fail_at < (int64_t)made; fail_at++) {
        rs_peer to[] = {1, 2};
        rs_xfer xfer;
        net *n = by(state, 3, 1);
        net_knob(n)->loss = 0.1;
        net_allocations(n, fail_at);
        uint64_t before = net_allocated(n);
        rs_status status = net_send(n, 0, 1, 100 * FRAGMENT, 2, to, &xfer);
        net_at(n, 20 * SEC);
        made = fail_at < 0 ? net_allocated(n) - before : made;
        if (status == RS_OK && !net_event(n, 0, RS_EV_SEND_DONE, ANYONE))
            fail_msg("allocation %lld fails: the send does not end", (long long)fail_at);
        net_free(n);
    }
    assert_true(made > 5);
}

static void many_at_once__all_arrive(void **state) {
    net *n = by(state, 4, 1);
    net_knob(n)->loss = 0.01;
    for (uint64_t data = 1; data <= 8; data++)
        net_send_all(n, data, 500 * FRAGMENT);
    net_at(n, 20 * SEC);
    for (uint64_t data = 1; data <= 8; data++)
        for (rs_peer to = 1; to < 4; to++)
            assert_true(net_has(n, to, data));
    assert_int_equal(net_events(n, 0, RS_EV_SEND_DONE, ANYONE), 8);
    net_free(n);
}

static void a_stream__is_refused_or_complete(void **state) {
    const rs_engine *engine = *(const rs_engine *const *)*state;
    net *n = by(state, 3, 1);
    rs_peer to[] = {1, 2};
    rs_xfer xfer;
    uint64_t first, here, end, said = 0;
    if (!engine->stream) {
        assert_int_equal(net_send(n, 0, 1, RS_STREAM, 2, to, &xfer), RS_ERR_INVALID);
        net_free(n);
        return;
    }
    net_knob(n)->loss = 0.02;
    xfer = net_stream_all(n, 1, 5000);
    for (rs_time at = 0; at < 20 * SEC; at += 5 * MS) {
        net_at(n, at);
        if (said == 5000 * FRAGMENT || rs_stream_window(net_node(n, 0), xfer, &first, &here, &end) != RS_OK)
            continue;
        said = end < 5000 * FRAGMENT ? end : 5000 * FRAGMENT;
        net_call(n, 0, rs_stream_extend(net_node(n, 0), net_knob(n)->now, xfer, said, said == 5000 * FRAGMENT));
    }
    assert_complete(n, 1, 1);
    net_free(n);
}

/* Every row of the table with every one of these. */
int main(void) {
    static const struct CMUnitTest each[] = {
        cmocka_unit_test(nothing_is_lost__each_fragment_is_sent_once),
        cmocka_unit_test(sizes_at_the_edges__arrive),
        cmocka_unit_test(losses_late_and_doubled_packets__all_is_mended),
        cmocka_unit_test(packets_that_may_be_copies__are_taken_once),
        cmocka_unit_test(connections_are_cut__nothing_is_lost_for_good),
        cmocka_unit_test(a_slow_receiver__gets_all),
        cmocka_unit_test(a_late_receiver__gets_all),
        cmocka_unit_test(a_process_stands_still__all_arrives_after_it),
        cmocka_unit_test(a_receiver_dies__the_others_have_it),
        cmocka_unit_test(the_sender_dies__receivers_give_up),
        cmocka_unit_test(the_sender_cancels__receivers_hear_why),
        cmocka_unit_test(a_receiver_cancels__the_other_has_it),
        cmocka_unit_test(a_wrong_digest__is_told),
        cmocka_unit_test(a_wrong_piece__is_fetched_again),
        cmocka_unit_test(the_path_fails__the_rest_goes_by_unicast),
        cmocka_unit_test(the_path_moves__all_arrives),
        cmocka_unit_test(parts_of_an_object_and_of_the_receivers__are_sessions),
        cmocka_unit_test(one_engine_alone__is_its_own_fallback),
        cmocka_unit_test(memory_is_short__it_ends_and_nothing_leaks),
        cmocka_unit_test(many_at_once__all_arrive),
        cmocka_unit_test(a_stream__is_refused_or_complete),
    };
    static struct CMUnitTest tests[RS_ENGINES_MOST * sizeof each / sizeof each[0]];
    static char names[RS_ENGINES_MOST * sizeof each / sizeof each[0]][120];
    size_t count = 0;
    assert_true(rs_engine_count == 4 && rs_engine_name(7) != NULL);
    for (uint32_t row = 0; row < rs_engine_count; row++)
        for (size_t i = 0; i < sizeof each / sizeof each[0]; i++, count++) {
            snprintf(names[count], sizeof names[count], "%s: %s", rs_engines_known[row]->word, each[i].name);
            tests[count] = each[i];
            tests[count].name = names[count];
            tests[count].initial_state = (void *)(uintptr_t)&rs_engines_known[row];
        }
    return _cmocka_run_group_tests("engines", tests, count, NULL, NULL);
}
