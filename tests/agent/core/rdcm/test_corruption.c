/* Bytes that change in somebody's memory, or are forged: whoever repairs others with them, or sends them. All others
 * end with the right ones, and nobody is taken for dead. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "rdcm/overlay.h"

#define FRAGMENT 1000
#define RECEIVERS 7
#define FROM 120
#define TO 140 /* fragments that the holder's memory changes, and that all others miss on the tree */

typedef struct {
    net *n;
    overlay o;
    rs_peer holder;
    rs_xfer xfer;
    uint64_t end;
    uint64_t wrong_repairs; /* that arrived, of these fragments */
} world;

static bool is_spoilt(const world *w, uint64_t sn) {
    return (sn >= FROM && sn < TO) || sn + 1 == w->end;
}

static bool only_the_holder_hears(net *n, rs_peer to, const rs_data_header *h, void *context) {
    const world *w = context;
    (void)n;
    return to != w->holder && is_spoilt(w, h->sn);
}

static void see(net *n, bool arrives, rs_channel channel, rs_peer from, rs_peer to, const uint8_t *header,
                size_t length, void *context) {
    world *w = context;
    rs_data_header h;
    (void)n, (void)to;
    if (arrives && channel == RS_CH_PEER_DATAGRAM && from == w->holder && rs_wire_decode_data(header, length, &h))
        w->wrong_repairs += h.sn >= FROM && h.sn < TO;
}

static void make(world *w, uint64_t seed) {
    const rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000};
    *w = (world){.n = net_new(RECEIVERS + 1, &c, seed), .holder = 1 + (rs_peer)(seed % RECEIVERS)};
    overlay_make(&w->o, RECEIVERS, seed, NULL);
    net_digest(w->n, (rs_digest){.algorithm = 1, .length = 16, .value = {1}}); /* of objects */
    net_knobs *k = net_knob(w->n);
    k->path.protocol = RS_PROTOCOL_RDCM;
    k->drop = only_the_holder_hears;
    k->watch = see;
    k->drop_context = k->watch_context = w;
}

static void extend(world *w, uint64_t fragments, bool last) {
    net_call(w->n, 0, rs_stream_extend(net_node(w->n, 0), net_knob(w->n)->now, w->xfer, fragments * FRAGMENT, last));
}

static void all_have_it(world *w, uint64_t seed) {
    const net_told *done = net_event(w->n, 0, RS_EV_SEND_DONE, ANYONE);
    if (!done || !done->event.ok) {
        net_show(w->n);
        fail_msg("seed %llu: the holder is %u", (unsigned long long)seed, w->holder);
    }
    for (rs_peer i = 1; i <= RECEIVERS; i++) {
        assert_true(net_has(w->n, i, 1));
        assert_int_equal(net_wrong(w->n, i, 1), 0);
        assert_int_equal(net_events(w->n, i, RS_EV_RECEIVER_FAILED, ANYONE), 0);
    }
}

/* A stream cannot be mended later: what is wrong is dropped as it comes, whoever repaired is told that it is still
 * missing, and the sender is asked. The last of these packets comes before a pause: nothing follows that would show
 * that it is missing but the wrong repair itself. */
static void a_stream__whoever_repairs_it_has_wrong_bytes(void **state) {
    (void)state;
    uint64_t refused = 0;
    for (uint64_t seed = 1; seed <= 25; seed++) {
        world w;
        make(&w, seed);
        w.xfer = net_stream_all(w.n, 1, 1000);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &w.o, RECEIVERS, w.xfer, 1);
        net_spoils(w.n, w.holder, FROM, TO);
        w.end = 0;
        extend(&w, TO, false);
        net_at(w.n, 1500 * MS);
        for (rs_peer i = 1; i <= RECEIVERS; i++) {
            uint64_t first, here, end;
            assert_int_equal(rs_stream_window(net_node(w.n, i), net_receiving(w.n, i), &first, &here, &end), RS_OK);
            if (here != TO * FRAGMENT)
                net_show(w.n);
            assert_int_equal(here, TO * FRAGMENT);
            rs_xfer_stats s = net_stats(w.n, i, net_receiving(w.n, i));
            refused += s.fragments_refused;
            assert_true(s.fragments_refused <= 500); /* nothing is repaired with them for ever */
        }
        uint64_t so_far = w.wrong_repairs;
        extend(&w, 400, true);
        net_at(w.n, 3 * SEC);
        assert_true(w.wrong_repairs <= so_far + 40);
        const net_told *done = net_event(w.n, 0, RS_EV_SEND_DONE, ANYONE);
        assert_true(done && done->event.ok && done->event.bytes == RECEIVERS);
        for (rs_peer i = 1; i <= RECEIVERS; i++) {
            assert_int_equal(net_events(w.n, i, RS_EV_RECEIVER_FAILED, ANYONE), 0);
            assert_int_equal(net_wrong(w.n, i, 1), i == w.holder ? TO - FROM : 0);
        }
        net_free(w.n);
    }
    assert_true(refused > 0);
}

/* What the sender itself has changed is wrong each time: its receivers fail soon, with that cause. */
static void a_stream__its_sender_has_wrong_bytes(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        world w;
        make(&w, seed);
        net_knob(w.n)->drop = NULL;
        w.xfer = net_stream_all(w.n, 1, 1000);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &w.o, RECEIVERS, w.xfer, 1);
        net_spoils(w.n, 0, 30, 31);
        extend(&w, 60, false);
        net_at(w.n, 5 * SEC);
        for (rs_peer i = 1; i <= RECEIVERS; i++) {
            const net_told *told = net_event(w.n, i, RS_EV_RECEIVE_DONE, ANYONE);
            if (!told)
                net_show(w.n);
            assert_non_null(told);
            assert_false(told->event.ok);
            assert_non_null(strstr(told->event.cause, "fragment 30 of the stream was changed by its sender"));
            assert_true(net_stats(w.n, i, net_receiving(w.n, i)).fragments_refused < 200);
        }
        net_free(w.n);
    }
}

/* An object is mended at its end, piece by piece: by whom it was spoilt too. */
static void an_object__whoever_repairs_it_has_wrong_bytes(void **state) {
    (void)state;
    uint32_t others = 0;
    for (uint64_t seed = 1; seed <= 25; seed++) {
        world w;
        make(&w, seed);
        w.end = 1000;
        net_spoils(w.n, w.holder, FROM, TO);
        w.xfer = net_send_all(w.n, 1, 1000 * FRAGMENT);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &w.o, RECEIVERS, w.xfer, 1);
        net_at(w.n, 3 * SEC);
        all_have_it(&w, seed);
        for (rs_peer i = 1; i <= RECEIVERS; i++) {
            others += i != w.holder && net_fetches(w.n, i) > 0;
            assert_true(net_fetches(w.n, i) <= 2); /* these lie in two pieces */
        }
        net_free(w.n);
    }
    assert_true(others > 0);
}

/* Nothing came by the tree, all by patches, and its memory changed some of these. */
static void an_object__patches_that_came_late_are_changed(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        world w;
        make(&w, seed);
        net_knob(w.n)->drop = NULL;
        net_mute(w.n, w.holder, true);
        net_dark_until(w.n, w.holder, RS_NEVER);
        net_spoils(w.n, w.holder, FROM, TO);
        w.xfer = net_send_all(w.n, 1, 1000 * FRAGMENT);
        net_at(w.n, 5 * MS);
        overlay_tell(w.n, &w.o, RECEIVERS, w.xfer, 1);
        net_at(w.n, 10 * SEC);
        assert_int_equal(net_fetches(w.n, w.holder), 2);
        assert_int_equal(net_wrong(w.n, w.holder, 1), 0);
        assert_true(net_has(w.n, w.holder, 1));
        net_free(w.n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream__whoever_repairs_it_has_wrong_bytes),
        cmocka_unit_test(a_stream__its_sender_has_wrong_bytes),
        cmocka_unit_test(an_object__whoever_repairs_it_has_wrong_bytes),
        cmocka_unit_test(an_object__patches_that_came_late_are_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
