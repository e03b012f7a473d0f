/* Two agents' pools of control connections over loopback, for tests of them. */
#ifndef TEST_CONTROL_WORLD_H
#define TEST_CONTROL_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/transfer/node.h"
#include "daemon/control/control.h"

#define WAIT (5 * RS_SECOND)
#define FRAGMENT 8896u
#define FRAGMENTS 400u

/* One end: a pool and what it told. */
typedef struct {
    rs_peers peers;
    rs_control *control;
    uint32_t address;
    unsigned ups, downs, messages, unwritable, writable;
    uint64_t payload_bytes;
    uint8_t last_type;
    uint64_t patches_in_order;
    bool reject;
    char cause[200];
    rs_tls_identity *identity;
    char shown[3][128]; /* files */
    const bool *matters;
} end;

typedef struct {
    rs_loop *loop;
    uint16_t port;
    end h1, h2;
    bool matters; /* to whom messages go: what they know */
    uint8_t *object;
    int object_fd;
    char folder[64]; /* of certificates; "" = no TLS */
} world;

/* The end shows that certificate from now on. */
void show(const world *w, end *e, const char *certificate);
/* Zeroes in `options` mean what is usual here. */
void open_end(world *w, end *e, const char *name, uint32_t address, uint64_t boot, rs_control_options options);
void close_end(end *e);
void open_both(world *w); /* h1 at 127.0.0.1, h2 at 127.0.0.2 */
rs_peer know(end *e, const char *name, uint32_t address, uint16_t port);
void turn_both(world *w);
bool send_message(end *e, rs_peer peer, rs_message message);
bool send_patch(world *w, end *e, rs_peer peer, uint64_t sn);
int set_up(void **state);
int tear_down(void **state);

#define wait_until(w, condition)                            \
    do {                                                    \
        rs_time until_ = rs_loop_refresh((w)->loop) + WAIT; \
        while (!(condition)) {                              \
            if (rs_loop_now((w)->loop) > until_)            \
                fail_msg("waited in vain for " #condition); \
            turn_both(w);                                   \
        }                                                   \
    } while (0)

#define with_world(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
