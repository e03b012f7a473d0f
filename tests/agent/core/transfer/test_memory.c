/* Allocations that fail, each in turn: a call says so or a transfer is refused, nothing crashes, nothing leaks, and
 * what was not hit goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net.h"

static int64_t left;
static uint64_t outstanding;

static void *failing_alloc(void *context, size_t size) {
    (void)context;
    if (left-- == 0)
        return NULL;
    outstanding++;
    return calloc(1, size);
}

static void counted_release(void *context, void *memory) {
    (void)context;
    outstanding--;
    free(memory);
}

static void node_new__each_allocation_fails(void **state) {
    (void)state;
    const rs_allocator allocator = {.alloc = failing_alloc, .release = counted_release};
    rs_node *node = NULL;
    for (int64_t at = 0; !node; at++) {
        left = at;
        node = rs_node_new(&(rs_config){0}, &allocator);
        assert_true(at < 20);
        if (!node)
            assert_int_equal(outstanding, 0);
    }
    rs_node_free(node);
    assert_int_equal(outstanding, 0);
}

static void transfer__each_allocation_fails(void **state) {
    (void)state;
    const rs_config config = {.fragment_size = 1000, .nic_rate_bps = 1000000000};
    uint64_t before = 0, all = 1;
    for (int64_t at = 0; (uint64_t)at <= all; at++) {
        net *n = net_new(4, &config, 1);
        const rs_peer to[] = {1, 2, 3};
        rs_xfer xfer;
        before = net_allocated(n);
        net_knob(n)->path.accepted_size = 30000;
        net_allocations(n, at);
        rs_status status = net_send(n, 0, 1, 100000, 3, to, &xfer);
        if (status != RS_OK) {
            assert_int_equal(status, RS_ERR_MEMORY);
            net_allocations(n, -1);
            assert_int_equal(net_send(n, 0, 1, 100000, 3, to, &xfer),
                             RS_OK); /* nothing changed, so it can be tried again */
        }
        net_at(n, 20 * SEC);
        all = net_allocated(n) - before;
        assert_int_equal(net_events(n, 0, RS_EV_SEND_DONE, ANYONE), 1);
        uint32_t whole = 0;
        for (rs_peer p = 1; p < 4; p++) {
            bool failed = net_event(n, 0, RS_EV_PEER_FAILED, p) != NULL;
            assert_true(failed != net_has(n, p, 1)); /* each has it, or the sender knows why not */
            if (failed)
                assert_non_null(strstr(net_event(n, 0, RS_EV_PEER_FAILED, p)->event.cause, "memory"));
            whole += net_has(n, p, 1);
        }
        assert_true(whole >= 2); /* one failed allocation harms one receiver at most */
        net_free(n);
    }
    assert_true(all > 8);
}

static void config__out_of_range_is_refused(void **state) {
    (void)state;
    const rs_allocator allocator = {.alloc = failing_alloc, .release = counted_release};
    const rs_config bad[] = {{.fragment_size = 65001},      {.light_confirm = 256},   {.attempt_interval = -1},
                             {.nic_rate_bps = -1},          {.max_transfers = 40000}, {.patch_timeout = -5},
                             {.receiver_silence_bound = -1}};
    left = -1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_null(rs_node_new(&bad[i], &allocator));
    assert_int_equal(outstanding, 0);
}

static void caps__are_kept(void **state) {
    (void)state;
    rs_config config = {.fragment_size = 1000, .max_transfers = 3, .max_receivers = 2};
    net *n = net_new(4, &config, 1);
    const rs_peer to[] = {1, 2, 3};
    rs_xfer xfer;
    assert_int_equal(net_send(n, 0, 1, 10, 3, to, &xfer), RS_ERR_LIMIT);
    for (uint64_t object = 1; object <= 3; object++)
        assert_int_equal(net_send(n, 0, object, 10, 1, to, &xfer), RS_OK);
    assert_int_equal(net_send(n, 0, 4, 10, 1, to, &xfer), RS_ERR_LIMIT);
    net_at(n, 1 * SEC);
    assert_int_equal(net_send(n, 0, 4, 10, 1, to, &xfer), RS_OK); /* there is room again */
    net_at(n, 2 * SEC);
    assert_true(net_has(n, 1, 4));
    net_free(n);
}

static void many_transfers_in_turn__old_ones_are_forgotten(void **state) {
    (void)state;
    rs_config config = {.fragment_size = 1000};
    net *n = net_new(2, &config, 1);
    const rs_peer to[] = {1};
    net_knob(n)->quiet = true;
    uint32_t done = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        rs_xfer xfer;
        assert_int_equal(net_send(n, 0, 1 + i % 8, 5000, 1, to, &xfer), RS_OK);
        net_at(n, net_now(n) + 20 * MS);
        done = net_events(n, 0, RS_EV_SEND_DONE, ANYONE);
        assert_int_equal(done, i + 1);
    }
    net_free(n);
}

/* What a node keeps does not grow with what is lost, and with the object by some bits for a fragment only. The first
 * 0.3 s of an object of 10 GB to 256 receivers, every 20th packet lost. */
static void memory__is_bounded_whatever_the_object_the_receivers_and_the_losses(void **state) {
    (void)state;
    const rs_config config = {.nic_rate_bps = INT64_C(10000000000)};
    net *n = net_new(257, &config, 3);
    net_knobs *k = net_knob(n);
    k->path.rate_bps = 0;
    k->loss = 0.05;
    k->quiet = true;
    k->control_rate_bps = INT64_C(1000000000);
    for (rs_peer p = 1; p < 257; p++)
        net_room(n, p, 16 << 20);
    rs_xfer xfer = net_send_all(n, 1, UINT64_C(10000000000));
    uint64_t sender = 0, receiver = 0;
    net_at(n, 300 * MS);
    assert_true(net_stats(n, 0, xfer).packets_sent > 2000);
    sender = net_memory_most(n, 0);
    for (rs_peer p = 1; p < 257; p++)
        receiver = net_memory_most(n, p) > receiver ? net_memory_most(n, p) : receiver;
    print_message("at most %.1f MB at the sender, %.1f MB at a receiver\n", (double)sender / 1e6,
                  (double)receiver / 1e6);
    assert_true(sender < 4 << 20);
    assert_true(receiver < 2 << 20);
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_new__each_allocation_fails),
        cmocka_unit_test(transfer__each_allocation_fails),
        cmocka_unit_test(config__out_of_range_is_refused),
        cmocka_unit_test(caps__are_kept),
        cmocka_unit_test(memory__is_bounded_whatever_the_object_the_receivers_and_the_losses),
        cmocka_unit_test(many_transfers_in_turn__old_ones_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
