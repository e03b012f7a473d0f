/* Streams whose path fails, or leads nowhere: they go on to each receiver by its control channel, in windows as before;
 * receivers mend each other as before. And receivers that are stopped: the stream waits for them up to their bound. */
#include "check.h"

#include <stdio.h>

#include "core/rdcm/options.h"
#include "rdcm/overlay.h"

#define FRAGMENT 1000
#define ALL 4000
#define RECEIVERS 8
#define WINDOW 512

typedef struct {
    net *n;
    rs_xfer xfer;
    uint64_t given;
    bool dark; /* nothing gets to anybody by the tree */
    rs_time at;
} world;

static void run(world *w, rs_time time) {
    w->at += time;
    net_at(w->n, w->at);
}

static bool by_the_tree(net *n, rs_peer to, const rs_data_header *h, void *context) {
    const world *w = context;
    (void)n, (void)to, (void)h;
    return w->dark;
}

static void begin_with(world *w, rs_peer receivers, uint64_t seed) {
    static overlay o;
    static rs_rdcm_config options;
    options = (rs_rdcm_config){.stream_bytes = WINDOW * FRAGMENT};
    rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .options[RS_PROTOCOL_RDCM] = &options};
    *w = (world){.n = net_new(receivers + 1, &c, seed)};
    overlay_make(&o, receivers, seed, NULL);
    net_knobs *k = net_knob(w->n);
    k->path.protocol = RS_PROTOCOL_RDCM;
    k->quiet = true;
    k->drop = by_the_tree;
    k->drop_context = w;
    w->xfer = net_stream_all(w->n, 1, ALL);
    run(w, 5 * MS);
    overlay_tell(w->n, &o, receivers, w->xfer, 1);
}

static void begin(world *w, uint64_t seed) {
    begin_with(w, RECEIVERS, seed);
}

/* The program gives what there is room for, 40 fragments at most. */
static void extend_to(world *w, uint64_t until) {
    uint64_t first, here, past;
    rs_node *node = net_node(w->n, 0);
    assert_int_equal(rs_stream_window(node, w->xfer, &first, &here, &past), RS_OK);
    assert_true(past - first <= WINDOW * FRAGMENT);
    uint64_t next = w->given + 40 < past / FRAGMENT ? w->given + 40 : past / FRAGMENT;
    w->given = next < until ? next : until;
    bool last = w->given == ALL;
    net_call(w->n, 0,
             rs_stream_extend(node, net_knob(w->n)->now, w->xfer, w->given * FRAGMENT - (last ? 400 : 0), last));
}

static void give(world *w, uint64_t until, rs_time bound) {
    for (rs_time end = w->at + bound; w->given < until && w->at < end;) {
        extend_to(w, until);
        run(w, MS);
    }
    assert_int_equal(w->given, until);
}

static void fails(world *w) {
    w->dark = true;
    net_call(w->n, 0, rs_path_failed(net_node(w->n, 0), net_knob(w->n)->now, w->xfer, "a test"));
}

static void all_have_it(world *w, rs_peer but, rs_peer receivers) {
    run(w, 20 * SEC);
    const net_told *done = net_event(w->n, 0, RS_EV_SEND_DONE, ANYONE);
    if (!done)
        net_show(w->n);
    assert_non_null(done);
    assert_int_equal(done->event.ok, but == 0);
    for (rs_peer i = 1; i <= receivers; i++)
        if (i != but && !net_has(w->n, i, 1))
            fail_msg("%d lacks some of it: %s", (int)i, done->event.cause);
    assert_int_equal(net_events(w->n, 0, RS_EV_PEER_FAILED, ANYONE), but != 0);
    net_free(w->n);
}

static void its_path_fails__all_get_all(void **state) {
    (void)state;
    static const uint64_t after[] = {0, 1, 300, 2000, ALL - 1, ALL};
    for (uint64_t seed = 1; seed <= 6; seed++) {
        world w;
        begin(&w, seed);
        give(&w, after[seed - 1], 5 * SEC);
        fails(&w);
        give(&w, ALL, 20 * SEC);
        assert_true(net_events(w.n, 0, RS_EV_LOG, ANYONE) > 0);
        assert_true(net_memory_most(w.n, 0) < 160 * 1024); /* as by the tree */
        all_have_it(&w, 0, RECEIVERS);
    }
}

static void its_tree_leads_nowhere__all_get_all(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        world w;
        begin(&w, seed);
        give(&w, 500 * seed, 5 * SEC);
        w.dark = true; /* and nobody says so */
        give(&w, ALL, 30 * SEC);
        all_have_it(&w, 0, RECEIVERS);
    }
}

static void its_path_fails__who_reads_slowly_holds_it_back(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        world w;
        begin(&w, seed);
        give(&w, 300, 5 * SEC);
        rs_peer slow = 1 + (rs_peer)seed % RECEIVERS;
        rs_xfer in = net_receiving(w.n, slow);
        uint64_t first, here, end;
        net_call(w.n, slow, rs_stream_taken(net_node(w.n, slow), net_knob(w.n)->now, in, 0));
        fails(&w);
        uint64_t before = w.given;
        for (rs_time at = 0; at < 4000; at += 5) { /* takes nothing: no more is given than there is room for */
            extend_to(&w, ALL - 1);
            run(&w, 5 * MS);
            assert_int_equal(rs_stream_window(net_node(w.n, slow), in, &first, &here, &end), RS_OK);
            assert_true(here <= (300 + WINDOW) * FRAGMENT);
        }
        assert_in_range(w.given - before, 1, 2 * WINDOW);
        for (int i = 0; i < 4000 && w.given < ALL; i++) {
            if (rs_stream_window(net_node(w.n, slow), in, &first, &here, &end) == RS_OK)
                net_call(w.n, slow, rs_stream_taken(net_node(w.n, slow), net_knob(w.n)->now, in, here));
            extend_to(&w, ALL);
            run(&w, 5 * MS);
        }
        for (int i = 0; i < 400 && rs_stream_window(net_node(w.n, slow), in, &first, &here, &end) == RS_OK; i++) {
            net_call(w.n, slow, rs_stream_taken(net_node(w.n, slow), net_knob(w.n)->now, in, here));
            run(&w, 5 * MS);
        }
        assert_int_equal(w.given, ALL);
        all_have_it(&w, 0, RECEIVERS);
    }
}

static void its_path_fails_and_one_dies__others_get_all(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world w;
        begin(&w, seed);
        give(&w, 700, 5 * SEC);
        fails(&w);
        give(&w, 1000, 5 * SEC);
        net_kill(w.n, (rs_peer)seed);
        give(&w, ALL, 60 * SEC);
        all_have_it(&w, (rs_peer)seed, RECEIVERS);
    }
}

/* A fragment now and then. */
static void drip(world *w, rs_time time) {
    for (rs_time end = w->at + time; w->at < end; run(w, 50 * MS))
        extend_to(w, w->given + 1);
}

/* At any time of a stream; then bytes are given as long as there is room: all of them, if nobody held them back. */
static void one_is_stopped__within_its_bound_all_get_all(void **state) {
    (void)state;
    static const rs_time lengths[] = {500 * MS, 2400 * MS, 2600 * MS, 4 * SEC, 4700 * MS};
    uint64_t seed = 1;
    for (rs_peer receivers = 1; receivers <= RECEIVERS; receivers += RECEIVERS - 1)
        for (rs_peer who = 1; who <= receivers; who++)
            for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++, seed++) {
                world w;
                begin_with(&w, receivers, seed);
                drip(&w, (rs_time)(seed % 12) * 500 * MS);
                give(&w, w.given + seed % 7 * 130, 5 * SEC);
                net_pause(w.n, who, lengths[l]);
                give(&w, ALL, 20 * SEC);
                run(&w, 5 * SEC);
                const net_told *failed = net_event(w.n, 0, RS_EV_PEER_FAILED, ANYONE);
                if (failed)
                    fail_msg("%d of %d stopped for %lld ms, seed %d: %s", (int)who, (int)receivers,
                             (long long)(lengths[l] / MS), (int)seed, failed->event.cause);
                assert_true(net_memory_most(w.n, 0) < 160 * 1024);
                all_have_it(&w, 0, receivers);
            }
}

static void one_is_stopped__beyond_its_bound_it_fails_alone(void **state) {
    (void)state;
    for (rs_peer who = 1; who <= RECEIVERS; who++) {
        world w;
        begin_with(&w, RECEIVERS, 70 + who);
        drip(&w, (rs_time)who * 700 * MS);
        give(&w, w.given + 500, 5 * SEC);
        net_pause(w.n, who, 9 * SEC);
        give(&w, ALL, 30 * SEC);
        all_have_it(&w, who, RECEIVERS);
    }
}

/* At any time of it, whoever it is: nobody waits for it, and nothing fails; with losses, and with a manager that takes
 * a while to make an overlay without it. */
static void one_leaves__the_others_get_all_and_do_not_wait(void **state) {
    (void)state;
    rs_time all = 0;
    for (rs_peer who = 0; who <= RECEIVERS; who++) {
        static overlay others;
        bool without[RECEIVERS + 1] = {false};
        without[who] = who > 0;
        world w;
        begin_with(&w, RECEIVERS, 90);
        net_knob(w.n)->loss = 0.002;
        give(&w, 200 + who * 300, 5 * SEC);
        if (who)
            net_call(w.n, who, rs_receive_leave(net_node(w.n, who), net_knob(w.n)->now, net_receiving(w.n, who)));
        give(&w, w.given + 300, 5 * SEC);
        overlay_make(&others, RECEIVERS, 90, without);
        overlay_tell(w.n, &others, RECEIVERS, w.xfer, 2);
        give(&w, ALL, 5 * SEC);
        rs_time took = w.at;
        all = who ? all : took;
        if (took > all + 10 * MS)
            fail_msg("%d left: given after %lld ms, with it after %lld", (int)who, (long long)(took / MS),
                     (long long)(all / MS));
        run(&w, 20 * SEC);
        assert_true(net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE)->event.ok);
        assert_int_equal(net_events(w.n, 0, RS_EV_PEER_LEFT, who ? who : ANYONE), who != 0);
        assert_int_equal(net_events(w.n, 0, RS_EV_PEER_FAILED, ANYONE), 0);
        for (rs_peer i = 1; i <= RECEIVERS; i++) {
            assert_int_equal(net_has(w.n, i, 1), i != who);
            assert_int_equal(net_events(w.n, i, RS_EV_RECEIVER_FAILED, ANYONE), 0);
        }
        net_free(w.n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_path_fails__all_get_all),
        cmocka_unit_test(its_tree_leads_nowhere__all_get_all),
        cmocka_unit_test(its_path_fails__who_reads_slowly_holds_it_back),
        cmocka_unit_test(its_path_fails_and_one_dies__others_get_all),
        cmocka_unit_test(one_is_stopped__within_its_bound_all_get_all),
        cmocka_unit_test(one_is_stopped__beyond_its_bound_it_fails_alone),
        cmocka_unit_test(one_leaves__the_others_get_all_and_do_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
