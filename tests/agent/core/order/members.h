/* Members of a group with guarantees, in virtual time: what one says is there at once, unless a test loses it. */
#ifndef TEST_ORDER_MEMBERS_H
#define TEST_ORDER_MEMBERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/heap.h"
#include "core/order/order.h"

#define MILLISECOND ((rs_time)1000000)
#define SECOND (1000 * MILLISECOND)
#define MEMBERS 3 /* peers 1, 2 and 3 */

typedef struct net net;
struct net {
    rs_order *member[MEMBERS]; /* NULL: its agent does not know the group yet */
    rs_time now;
    bool unread[MEMBERS]; /* its program takes nothing */
    /* Of a test, whose own begins with this; NULL: nothing is lost, and nobody looks at what is given out. */
    bool (*is_lost)(net *n, uint32_t from, uint32_t to, const rs_order_out *out);
    void (*said)(net *n, uint32_t from, const rs_order_out *out);
    void (*give)(net *n, uint32_t to, const rs_order_event *event);
};

static inline void net_member(net *n, uint32_t i, rs_order_config config) {
    config.group = 7;
    config.self = i + 1;
    config.instance = config.instance ? config.instance : 100 + i;
    n->member[i] = rs_order_new(&config, &rs_heap);
    assert_non_null(n->member[i]);
}

static inline void net_pass(net *n, uint32_t from, const rs_order_out *out) {
    if (n->said)
        n->said(n, from, out);
    for (uint32_t to = 0; to < MEMBERS; to++)
        if (to != from && n->member[to] && (out->peer == RS_NO_PEER || out->peer == to + 1) &&
            !(n->is_lost && n->is_lost(n, from, to, out)))
            assert_true(rs_order_receive(n->member[to], n->now, from + 1, out->bytes, out->length));
}

/* All that can happen at this moment. */
static inline void net_settle(net *n) {
    rs_order_event event;
    rs_order_out out;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < MEMBERS; i++) {
            while (n->member[i] && !n->unread[i] && rs_order_poll_event(n->member[i], n->now, &event)) {
                if (n->give)
                    n->give(n, i, &event);
                more = true;
            }
            while (n->member[i] && rs_order_poll_out(n->member[i], n->now, &out)) {
                net_pass(n, i, &out);
                more = true;
            }
        }
    }
}

static inline void net_run(net *n, rs_time how_long) {
    for (rs_time end = n->now + how_long; n->now < end; n->now += MILLISECOND) {
        net_settle(n);
        for (uint32_t i = 0; i < MEMBERS; i++)
            if (n->member[i])
                rs_order_timeout(n->member[i], n->now);
        net_settle(n);
    }
}

/* To member `i` alone: the first so many are in it. */
static inline void net_tell(net *n, uint32_t i, uint64_t version, uint32_t members) {
    const rs_peer peers[MEMBERS] = {1, 2, 3};
    assert_int_equal(rs_order_view(n->member[i], n->now, version, peers, members), RS_OK);
}

/* All are in a view. */
static inline void net_begin(net *n, rs_order_config config) {
    n->now = SECOND;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        net_member(n, i, config);
        net_tell(n, i, 1, MEMBERS);
    }
    net_run(n, SECOND);
}

static inline int net_over(void **state) {
    net *n = *state;
    for (uint32_t i = 0; i < MEMBERS; i++)
        rs_order_free(n->member[i]);
    free(n);
    return 0;
}

#endif
