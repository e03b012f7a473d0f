/* RDCM while the overlay changes under way: who leaves, and what the others do then. */
#include "check.h"

#include <string.h>

#include "core/rdcm/options.h"
#include "rdcm/overlay.h"

#define FRAGMENT 1000
#define RECEIVERS 12
#define FRAGMENTS 6000

static double dice(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xd1b54a32d192ed03) + c * UINT64_C(0x8cb92ba72f3d8dd7);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) / (double)(UINT64_C(1) << 53);
}

typedef struct {
    const overlay *o;
    uint64_t seed;
} losses;

/* A packet is lost on a link of the tree, one in a hundred: for all below it. */
static bool on_the_tree(net *n, rs_peer to, const rs_data_header *h, void *context) {
    const losses *l = context;
    (void)h;
    for (uint32_t at = l->o->node_of[to]; at; at = l->o->parent[at])
        if (dice(l->seed, net_knob(n)->data_packets, at) < 0.01)
            return true;
    return false;
}

static bool same_place(const overlay_place *a, const overlay_place *b) {
    return memcmp(&a->leaf, &b->leaf, sizeof a->leaf) == 0 && memcmp(&a->proxy, &b->proxy, sizeof a->proxy) == 0 &&
           a->child_count == b->child_count &&
           memcmp(a->children, b->children, a->child_count * sizeof *a->children) == 0;
}

/* As the manager does it: only those hear of a change whom it concerns. */
static void tell_changed(net *n, const overlay *before, const overlay *now, rs_xfer sending, uint64_t version,
                         rs_peer gone) {
    for (rs_peer i = 0; i <= RECEIVERS; i++)
        if (i != gone && !same_place(&before->at[i], &now->at[i]))
            overlay_tell_one(n, now, i, i ? net_receiving(n, i) : sending, version);
}

/* Sec. 3.4: a receiver leaves while packets are lost. The rings close behind it at once: nobody has to ask the sender
 * for what neighbours have, and nobody takes another for dead. */
static void a_receiver_leaves__neighbours_go_on_repairing(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        rs_rdcm_config options = {.no_congestion_control = true};
        rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .options[RS_PROTOCOL_RDCM] = &options};
        static overlay before, now;
        bool without[OVERLAY_SERVERS] = {false};
        rs_peer leaver = 1 + (rs_peer)(seed % RECEIVERS);
        without[leaver] = true;
        net *n = net_new(RECEIVERS + 1, &c, seed);
        overlay_make(&before, RECEIVERS, seed, NULL);
        overlay_make(&now, RECEIVERS, seed, without);
        losses l = {&before, seed};
        net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
        net_knob(n)->path.rate_bps = 500000000;
        net_knob(n)->quiet = true;
        net_knob(n)->drop = on_the_tree;
        net_knob(n)->drop_context = &l;
        rs_xfer xfer = net_send_all(n, 1, FRAGMENTS * FRAGMENT);
        net_at(n, 5 * MS);
        overlay_tell(n, &before, RECEIVERS, xfer, 1);
        net_at(n, 40 * MS);
        net_call(n, leaver, rs_receive_leave(net_node(n, leaver), net_knob(n)->now, net_receiving(n, leaver)));
        net_at(n, 41 * MS);
        tell_changed(n, &before, &now, xfer, 2, leaver);
        net_at(n, 2 * SEC);
        for (rs_peer i = 1; i <= RECEIVERS; i++) {
            if (i == leaver)
                continue;
            rs_xfer_stats s = net_stats(n, i, net_receiving(n, i));
            if (!net_has(n, i, 1) || s.requests_sent)
                fail_msg("seed %llu: %u leaves; %u asked the sender for %llu runs", (unsigned long long)seed, leaver, i,
                         (unsigned long long)s.requests_sent);
            assert_int_equal(net_events(n, i, RS_EV_RECEIVER_FAILED, ANYONE), 0);
        }
        net_free(n);
    }
}

/* When all but `joiner` have all. It has nothing before 41 ms: then it gets packets of the tree, and a view. */
static rs_time others_take(uint64_t seed, rs_peer joiner, bool joins) {
    rs_rdcm_config options = {0};
    rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .options[RS_PROTOCOL_RDCM] = &options};
    static overlay before, now;
    bool without[OVERLAY_SERVERS] = {false};
    without[joiner] = true;
    net *n = net_new(RECEIVERS + 1, &c, seed);
    overlay_make(&before, RECEIVERS, seed, without);
    overlay_make(&now, RECEIVERS, seed, NULL);
    net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
    net_knob(n)->path.rate_bps = 500000000;
    net_knob(n)->quiet = true;
    net_dark_until(n, joiner, joins ? 41 * MS : RS_NEVER);
    rs_xfer xfer = net_send_all(n, 1, FRAGMENTS * FRAGMENT);
    net_at(n, 5 * MS);
    tell_changed(n, &(overlay){0}, &before, xfer, 1, joiner);
    net_at(n, 41 * MS);
    if (joins)
        tell_changed(n, &before, &now, xfer, 2, RS_NO_PEER);
    net_at(n, 2 * SEC);
    rs_time last = 0;
    for (rs_peer i = 1; i <= RECEIVERS; i++) {
        const net_told *complete = net_event(n, i, RS_EV_COMPLETE, ANYONE);
        if (i == joiner && !joins)
            continue;
        if (!complete)
            fail_msg("seed %llu: %u joins, %u has not all", (unsigned long long)seed, joiner, i);
        if (i != joiner && complete->at > last)
            last = complete->at;
    }
    net_free(n);
    return last;
}

/* Sec. 3.5: who joins under way has nothing yet, and its first window is none of packets that went by long ago: the
 * sender goes on meanwhile. In the mean of these trees the others have all 0.1 ms later (0.2 where it did not). */
static void a_receiver_joins__the_sender_does_not_stop(void **state) {
    (void)state;
    rs_time later = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        rs_peer joiner = 1 + (rs_peer)(seed % RECEIVERS);
        later += others_take(seed, joiner, true) - others_take(seed, joiner, false);
    }
    if (later > 12 * MS / 10)
        fail_msg("all together %lld us later", (long long)(later / US));
}

/* ------------------------------------------------------------------------------------------- where nobody makes any */

/* How long an object takes by a path without overlay, to three. */
static rs_time takes(uint64_t size, bool (*drop)(net *n, rs_peer to, const rs_data_header *h, void *context)) {
    rs_rdcm_config options = rs_rdcm_of_agents();
    rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .options[RS_PROTOCOL_RDCM] = &options};
    net *n = net_new(4, &c, 1);
    net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
    net_knob(n)->path.no_overlay = true;
    net_knob(n)->drop = drop;
    net_send_all(n, 1, size);
    net_at(n, 5000 * MS);
    const net_told *done = net_event(n, 0, RS_EV_SEND_DONE, ANYONE);
    assert_non_null(done);
    assert_true(done->event.ok);
    assert_null(net_event(n, 0, RS_EV_LOG, ANYONE));
    for (rs_peer i = 1; i < 4; i++)
        assert_true(net_has(n, i, 1));
    rs_time took = done->at - NET_START;
    net_free(n);
    return took;
}

/* None is waited for (500 ms), and objects of one fragment, or of a few more than a power of two less 64, do not wait
 * for the probe of a shut window (10 ms). */
static void no_overlay__objects_of_any_size_go_at_once(void **state) {
    (void)state;
    static const uint64_t sizes[] = {0, 1, 2, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 194};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        rs_time before = takes(sizes[i] * FRAGMENT, NULL), after = takes(sizes[i] * FRAGMENT + 1, NULL);
        rs_time least = 2 * MS + (rs_time)sizes[i] * 20000;
        if (before > least + 4 * MS || after > least + 4 * MS)
            fail_msg("%llu fragments take %lld us, and a byte more %lld", (unsigned long long)sizes[i],
                     (long long)before / 1000, (long long)after / 1000);
    }
}

static bool the_last(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)n, (void)context;
    return to == 2 && h->sn == 7;
}

static bool one_within(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)n, (void)context;
    return to == 2 && h->sn == 2;
}

static bool the_only(net *n, rs_peer to, const rs_data_header *h, void *context) {
    (void)context;
    return to == 2 && h->sn == 0 && net_knob(n)->data_packets < 3;
}

/* There are no neighbours that could mend it: nobody waits for them (200 ms). */
static void no_overlay__what_is_lost_is_asked_of_the_sender_soon(void **state) {
    (void)state;
    assert_in_range(takes(8 * FRAGMENT, the_last), 0, 12 * MS);
    assert_in_range(takes(8 * FRAGMENT, one_within), 0, 12 * MS);
    assert_in_range(takes(FRAGMENT, the_only), 0, 12 * MS);
}

static bool loses_five(net *n, rs_peer to, const rs_data_header *h, void *context) {
    uint32_t *count = context;
    (void)n, (void)h;
    return to == 2 && *count > 0 && (*count)--;
}

/* Of a stream nothing more comes for now: one that lost the last packet, and others after it, gets it soon. */
static void no_overlay__the_last_packet_of_a_stream_for_now(void **state) {
    (void)state;
    rs_rdcm_config options = rs_rdcm_of_agents();
    rs_config c = {.fragment_size = FRAGMENT, .nic_rate_bps = 1000000000, .options[RS_PROTOCOL_RDCM] = &options};
    for (uint32_t before = 1; before <= 40; before += 13) {
        net *n = net_new(4, &c, 1);
        uint64_t first, here, end;
        uint32_t lost = 0;
        net_knob(n)->path.protocol = RS_PROTOCOL_RDCM;
        net_knob(n)->path.no_overlay = true;
        net_knob(n)->drop = loses_five;
        net_knob(n)->drop_context = &lost;
        rs_xfer xfer = net_stream_all(n, 1, 100);
        net_at(n, 20 * MS);
        for (uint32_t i = 1; i <= before; i++) {
            lost = i == before ? 3 : 0;
            net_call(n, 0, rs_stream_extend(net_node(n, 0), net_knob(n)->now, xfer, i * FRAGMENT, false));
            net_at(n, 20 * MS + i * 5 * MS);
        }
        net_at(n, 500 * MS);
        for (rs_peer i = 1; i < 4; i++) {
            assert_int_equal(rs_stream_window(net_node(n, i), net_receiving(n, i), &first, &here, &end), RS_OK);
            assert_int_equal(here, before * FRAGMENT);
        }
        uint64_t packets = net_knob(n)->data_packets;
        net_at(n, 4000 * MS);
        assert_int_equal(net_knob(n)->data_packets, packets); /* all have it: it is not sent any more */
        net_free(n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_overlay__the_last_packet_of_a_stream_for_now),
        cmocka_unit_test(no_overlay__objects_of_any_size_go_at_once),
        cmocka_unit_test(no_overlay__what_is_lost_is_asked_of_the_sender_soon),
        cmocka_unit_test(a_receiver_leaves__neighbours_go_on_repairing),
        cmocka_unit_test(a_receiver_joins__the_sender_does_not_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
