/* Paths that serve some of the receivers only: the others follow with sessions of their own, in the same transfer. */
#include "check.h"
#include "net.h"

#define FRAGMENT 1000

static const rs_config usual = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};

/* A transfer of 1,000 fragments to all others, which waits for its first path. */
static net *asking(uint32_t nodes, uint64_t seed, rs_xfer *xfer) {
    net *n = net_new(nodes, &usual, seed);
    net_knob(n)->grant = false;
    *xfer = net_send_all(n, 1, 1000 * FRAGMENT);
    net_at(n, 5 * MS);
    return n;
}

static void expect_wanted(net *n, rs_xfer xfer, uint32_t servers, uint32_t wanted) {
    for (rs_peer peer = 1; peer < servers; peer++)
        assert_int_equal(rs_path_wants(net_node(n, 0), xfer, peer), wanted >> peer & 1);
}

static void others__follow_in_the_same_transfer(void **state) {
    (void)state;
    rs_xfer xfer;
    net *n = asking(5, 1, &xfer);
    expect_wanted(n, xfer, 5, 0x1e);
    rs_path_grant grant = net_part(n, 1000 * FRAGMENT, 2, (const rs_peer[]){1, 3});
    net_grant(n, 0, xfer, &grant);
    expect_wanted(n, xfer, 5, 1 << 2 | 1 << 4); /* at once */
    assert_int_equal(net_event_nth(n, 0, RS_EV_PATH_WANTED, 1)->event.bytes, 1000 * FRAGMENT);
    net_at(n, 1 * SEC);
    assert_true(net_has(n, 1, 1) && net_has(n, 3, 1));
    assert_int_equal(net_messages(n, 0, 2, RS_MSG_OPEN), 0); /* nobody knocks before there is a path */
    assert_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
    rs_xfer_stats stats = net_stats(n, 0, xfer);
    assert_int_equal(stats.receivers_done, 2);
    assert_int_equal(stats.bytes_present, 500 * FRAGMENT); /* half of what is to be sent */
    grant = net_part(n, 1000 * FRAGMENT, 2, (const rs_peer[]){4, 2});
    net_grant(n, 0, xfer, &grant);
    net_at(n, 2 * SEC);
    assert_true(net_has(n, 2, 1) && net_has(n, 4, 1));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_WANTED, ANYONE), 2);
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 2);
    assert_int_equal(net_message(n, 0, 2, RS_MSG_OPEN, 0)->message.session, 1);
    assert_int_equal(net_messages(n, 0, 1, RS_MSG_OPEN), 1);
    net_free(n);
}

static void parts_that_have_come_equally_far__are_one_again(void **state) {
    (void)state;
    rs_xfer xfer;
    net *n = asking(4, 2, &xfer);
    rs_path_grant grant = net_part(n, 400 * FRAGMENT, 1, (const rs_peer[]){2});
    net_grant(n, 0, xfer, &grant);
    expect_wanted(n, xfer, 4, 1 << 1 | 1 << 3); /* those who are behind come first */
    net_at(n, 200 * MS);
    grant = net_part(n, 400 * FRAGMENT, 2, (const rs_peer[]){1, 3});
    net_grant(n, 0, xfer, &grant);
    expect_wanted(n, xfer, 4, 0xe);
    assert_int_equal(net_event_nth(n, 0, RS_EV_PATH_WANTED, 2)->event.bytes, 600 * FRAGMENT);
    net_at(n, 400 * MS);
    grant = net_part(n, 600 * FRAGMENT, 0, NULL);
    net_grant(n, 0, xfer, &grant);
    net_at(n, 1 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    for (rs_peer peer = 1; peer < 4; peer++)
        assert_true(net_has(n, peer, 1));
    const net_said *open = net_message(n, 0, 2, RS_MSG_OPEN, 1);
    assert_int_equal(open->message.session, 2);
    assert_int_equal(open->message.open.first, 400);
    assert_int_equal(net_stats(n, 0, xfer).bytes_present, 1000 * FRAGMENT);
    net_free(n);
}

static void losses_of_a_part__are_mended_while_the_next_is_served(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 3);
    net_knob(n)->grant = false;
    net_knob(n)->loss = 0.05;
    net_knob(n)->control_rate_bps = 20000000; /* patches take long */
    rs_xfer xfer = net_send_all(n, 1, 5000 * FRAGMENT);
    net_at(n, 5 * MS);
    rs_path_grant grant = net_part(n, 5000 * FRAGMENT, 1, (const rs_peer[]){1});
    net_grant(n, 0, xfer, &grant);
    grant = net_part(n, 5000 * FRAGMENT, 1, (const rs_peer[]){2});
    net_grant(n, 0, xfer, &grant); /* while the first is used: it begins when that is over */
    net_at(n, 10 * SEC);
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    net_free(n);
}

static void part_denied__the_others_go_on(void **state) {
    (void)state;
    rs_xfer xfer;
    net *n = asking(4, 4, &xfer);
    rs_path_grant grant = net_part(n, 400 * FRAGMENT, 1, (const rs_peer[]){2});
    net_grant(n, 0, xfer, &grant);
    net_at(n, 10 * MS);
    net_call(n, 0, rs_path_denied(net_node(n, 0), net_knob(n)->now, xfer, "rack 9 is down"));
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 2);
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 3)->event.cause, "rack 9 is down"));
    expect_wanted(n, xfer, 4, 1 << 2); /* it has more to come */
    net_at(n, 200 * MS);
    grant = net_part(n, 600 * FRAGMENT, 0, NULL);
    net_grant(n, 0, xfer, &grant);
    net_at(n, 1 * SEC);
    assert_true(net_has(n, 2, 1));
    const rs_event *done = &net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event;
    assert_false(done->ok);
    assert_int_equal(done->bytes, 1);
    net_free(n);
}

static void no_answer_for_a_part__fails_that_part(void **state) {
    (void)state;
    rs_config config = usual;
    config.no_path_bound = 2 * SEC;
    net *n = net_new(3, &config, 5);
    net_knob(n)->grant = false;
    rs_xfer xfer = net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 5 * MS);
    rs_path_grant grant = net_part(n, 100 * FRAGMENT, 1, (const rs_peer[]){2});
    net_grant(n, 0, xfer, &grant);
    net_at(n, 4 * SEC);
    assert_true(net_has(n, 2, 1));
    assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, 1)->event.cause, "no answer to the path request"));
    assert_non_null(net_event(n, 0, RS_EV_SEND_DONE, ANYONE));
    net_free(n);
}

static void path_of_a_part_failed__that_part_goes_by_unicast(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 6);
    net_knob(n)->grant = false;
    rs_xfer xfer = net_send_all(n, 1, 5000 * FRAGMENT);
    net_at(n, 5 * MS);
    rs_path_grant grant = net_part(n, 5000 * FRAGMENT, 2, (const rs_peer[]){1, 2});
    net_grant(n, 0, xfer, &grant);
    net_at(n, 25 * MS);
    assert_int_equal(net_stats(n, 0, xfer).phase, RS_PHASE_HIGH_RATE);
    net_call(n, 0, rs_path_failed(net_node(n, 0), net_knob(n)->now, xfer, "cross-connect 12->31 in FAULT"));
    uint64_t sent = net_knob(n)->data_packets;
    net_at(n, 5 * SEC);
    assert_int_equal(net_knob(n)->data_packets, sent);
    assert_true(net_has(n, 1, 1) && net_has(n, 2, 1));
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, ANYONE), 0);
    expect_wanted(n, xfer, 4, 1 << 3);
    grant = net_part(n, 5000 * FRAGMENT, 0, NULL);
    net_grant(n, 0, xfer, &grant);
    net_at(n, 6 * SEC);
    assert_true(net_has(n, 3, 1));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    assert_true(net_event(n, 0, RS_EV_PEER_DONE, 1)->event.bytes > 2000);
    assert_int_equal(net_event(n, 0, RS_EV_PEER_DONE, 3)->event.bytes, 0);
    net_free(n);
}

/* The receiver of a part that is over crashes and comes back with nothing, while another part is served. */
static void part_is_over__its_receiver_starts_over(void **state) {
    (void)state;
    rs_xfer xfer;
    net *n = asking(3, 7, &xfer);
    rs_path_grant grant = net_part(n, 500 * FRAGMENT, 1, (const rs_peer[]){1});
    net_grant(n, 0, xfer, &grant);
    net_at(n, 200 * MS);
    grant = net_part(n, 1000 * FRAGMENT, 1, (const rs_peer[]){2});
    net_grant(n, 0, xfer, &grant);
    net_restart(n, 1);
    net_at(n, 2 * SEC);
    assert_true(net_has(n, 2, 1));
    grant = net_part(n, 500 * FRAGMENT, 0, NULL);
    net_grant(n, 0, xfer, &grant);
    net_at(n, 4 * SEC);
    assert_true(net_has(n, 1, 1));
    assert_true(net_event(n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
    net_free(n);
}

/* A path that comes when all it was for have failed is given back. */
static void nobody_left_for_it__goes_back(void **state) {
    (void)state;
    net *n = net_new(3, &usual, 8);
    net_knob(n)->grant = false;
    rs_xfer xfer = net_send_all(n, 1, 5000 * FRAGMENT);
    net_at(n, 5 * MS);
    rs_path_grant grant = net_part(n, 100 * FRAGMENT, 1, (const rs_peer[]){1});
    net_grant(n, 0, xfer, &grant);
    grant = net_part(n, 5000 * FRAGMENT, 0, NULL);
    net_grant(n, 0, xfer, &grant);
    net_application(n, 2, APP_REFUSES);
    net_at(n, 100 * MS);
    assert_int_equal(net_events(n, 0, RS_EV_PEER_FAILED, 2), 1);
    net_at(n, 200 * MS);
    expect_wanted(n, xfer, 3, 1 << 1); /* the session that was for it alone is over */
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 2);
    grant = net_part(n, 5000 * FRAGMENT, 0, NULL);
    net_grant(n, 0, xfer, &grant);
    net_at(n, 1 * SEC);
    assert_true(net_has(n, 1, 1));
    assert_int_equal(net_events(n, 0, RS_EV_PATH_DONE, ANYONE), 3);
    net_free(n);
}

static void grant_for_nobody_it_was_wanted_for__is_refused(void **state) {
    (void)state;
    net *n = net_new(4, &usual, 9);
    net_knob(n)->grant = false;
    rs_xfer xfer = net_send_all(n, 1, 100 * FRAGMENT);
    net_at(n, 5 * MS);
    rs_path_grant grant = net_part(n, 100 * FRAGMENT, 1, (const rs_peer[]){99});
    assert_int_equal(rs_path_granted(net_node(n, 0), net_knob(n)->now, xfer, &grant), RS_ERR_INVALID);
    expect_wanted(n, xfer, 4, 0xe); /* as before */
    net_call(n, 0, rs_send_cancel(net_node(n, 0), net_knob(n)->now, xfer, "test"));
    expect_wanted(n, xfer, 4, 0);
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others__follow_in_the_same_transfer),
        cmocka_unit_test(parts_that_have_come_equally_far__are_one_again),
        cmocka_unit_test(losses_of_a_part__are_mended_while_the_next_is_served),
        cmocka_unit_test(part_denied__the_others_go_on),
        cmocka_unit_test(no_answer_for_a_part__fails_that_part),
        cmocka_unit_test(path_of_a_part_failed__that_part_goes_by_unicast),
        cmocka_unit_test(part_is_over__its_receiver_starts_over),
        cmocka_unit_test(nobody_left_for_it__goes_back),
        cmocka_unit_test(grant_for_nobody_it_was_wanted_for__is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
