/* Two nodes, and every datagram between them in the test's hands. */
#ifndef TEST_MESSAGES_PAIR_H
#define TEST_MESSAGES_PAIR_H

#include "check.h"
#include "core/groups/messages.h"
#include "core/groups/wire.h"
#include "core/ricochet/wire.h"

#define MS INT64_C(1000000)
#define SENDER 1u
#define RECEIVER 2u
#define GROUP 5u

typedef struct {
    uint8_t bytes[65536];
    uint32_t length;
    rs_channel channel;
    rs_peer peer;
} datagram;

/* Memory that may fail: the call after `pair_fail_after` more, and all behind it. */
extern uint64_t pair_fail_after;
rs_allocator pair_allocator(void);

/* A node with small buffers; NULL fields of `config` as in rs_messages_config. */
rs_messages *pair_node(rs_peer self, rs_messages_config config);
/* GROUP, with both (and `more` others) as members. */
void pair_view(rs_messages *node, uint64_t version, const rs_messages_view *like, uint32_t more);
/* GROUP, with these members and publishers and their incarnations (0 ends them). */
typedef struct {
    rs_peer peer;
    uint32_t incarnation;
    bool publishes; /* only */
} pair_server;
void pair_view_of(rs_messages *node, uint64_t version, const rs_messages_view *like, const pair_server *servers,
                  uint32_t count);
/* Questions of members for how far publishers are: else pair_take leaves them out. */
extern bool pair_takes_queries;
/* Takes what the node wants to send: the number of datagrams, at most `most`. */
uint32_t pair_take(rs_messages *node, rs_time now, datagram *out, uint32_t most);
/* A message whose every byte is `value`. */
rs_status pair_publish(rs_messages *node, rs_time now, uint8_t value, uint32_t length);
/* From who it says that made it. */
void pair_give(rs_messages *node, rs_time now, const datagram *d);
/* From somebody. */
void pair_give_from(rs_messages *node, rs_time now, rs_peer from, const datagram *d);
/* The next event is the delivery of such a message. */
void pair_expect(rs_messages *node, uint8_t value, uint32_t length);
void pair_expect_lost(rs_messages *node, uint64_t sn, uint64_t count, rs_messages_reason reason);
void pair_expect_nothing(rs_messages *node);
rs_messages_stats pair_stats(const rs_messages *node);

#endif
