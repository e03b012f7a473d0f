/* Guarantees of one group at one of its members, sans-IO, above any engine of groups: views in the stream of messages,
 * between two views the same messages at all who are in both (virtual synchrony), and one order for all (total).
 * docs/guarantees.md tells the protocol and its rules. Views come from whoever knows who is in the group (the manager);
 * what goes to the group is published by its engine, which may lose, double and reorder; time goes in.
 *
 * Use:  rs_order_new; rs_order_view with each view; rs_order_publish, rs_order_receive, rs_order_timeout as things
 *       happen, and after each (or a batch) rs_order_poll_event and rs_order_poll_out until they return false, then
 *       rs_order_deadline.
 *
 * What a poll gives out stays as it is until the next call of that poll, or of anything but the polls. An event that is
 * not polled is not lost: who polls late holds all others back, by a bounded window. */
#ifndef RS_CORE_ORDER_H
#define RS_CORE_ORDER_H

#include "core/base/types.h"

typedef struct rs_order rs_order;

#define RS_ORDER_MEMBERS_MOST 1024u
#define RS_ORDER_MAGIC \
    0x4f52 /* first two bytes, little endian, of all that it sends; the group is at RS_ORDER_GROUP_AT */
#define RS_ORDER_GROUP_AT 8u
#define RS_ORDER_HEAD 32u /* bytes in front of a message */

/* Zero in any field means its default, given in brackets. */
typedef struct {
    uint32_t group; /* its number, the same everywhere */
    rs_peer self;
    uint32_t instance;        /* another one each time this peer begins anew, never 0 */
    bool total;               /* one order for all; else each sender's own */
    bool agreed;              /* with `total`: a message is given out once its place in the order is known here, as by
                               * Totem's agreed delivery; else once all of the view have it (safe delivery) */
    uint32_t message_bytes;   /* largest message [1 MiB] */
    uint32_t window_messages; /* own ones that not all have yet, and such as wait for rs_order_poll_event [4096];
                               * the same at all members, as is the next */
    uint64_t window_bytes;    /* the same in bytes; one message may always go [4 MiB] */
    uint64_t number;          /* messages that this member has from before, on disk: numbers go on behind */
    rs_time again;            /* what has not come is asked for, or said, again after this [30 ms] */
    rs_time heartbeat;        /* of the coordinator when nothing happens [500 ms] */
    /* The engine is about to bring messages of that sender that are not here, or parts of them: they are asked for as a
     * whole later, after four times `again` at most, and then 32 times. NULL: it does not say. */
    bool (*brings)(void *context, uint32_t group, rs_peer sender);
    void *context;
    rs_time silence; /* so long without a step means: blocked, not in the primary part as far as known [3 s] */
} rs_order_config;

typedef struct {
    rs_peer peer; /* RS_NO_PEER: to the group, by its engine; else a datagram to that member, which may be lost */
    const uint8_t *bytes;
    uint32_t length;
} rs_order_out;

typedef enum {
    RS_ORDER_MESSAGE, /* `sender`, `number`, `bytes` */
    RS_ORDER_VIEW,    /* `members`, `joined`, `left`; who is in both views has the same messages up to here */
    RS_ORDER_PRIMARY  /* `primary` has changed */
} rs_order_event_kind;

typedef struct {
    rs_order_event_kind kind;
    rs_peer sender;
    uint64_t number; /* in total order: of the message, from 1, the same everywhere; of a view: messages before it */
    const uint8_t *bytes;
    uint32_t length;
    uint64_t view;          /* rises from view to view, the same everywhere */
    const rs_peer *members; /* ascending */
    const rs_peer *joined, *left;
    uint32_t member_count, joined_count, left_count;
    bool anew;    /* a view: this member is one of those who joined with it; what it had before does not count */
    bool primary; /* with PRIMARY; a view is always of the primary part */
} rs_order_event;

typedef struct {
    uint64_t published, delivered, views, refused, bad;
    uint64_t relayed, naks_sent; /* messages sent again for others; what was asked for */
    uint64_t flushes;            /* view changes that this member coordinated, attempts too */
    uint64_t waiting;            /* gauge: messages that wait for rs_order_poll_event */
    uint64_t kept_bytes;         /* gauge: messages not all have, or not polled */
} rs_order_stats;

/* NULL: out of memory, or the config is out of its ranges. The config is copied. */
rs_order *rs_order_new(const rs_order_config *config, const rs_allocator *allocator);
void rs_order_free(rs_order *order);
/* A view of the group by who knows; `members` has this member. Versions rise. RS_ERR_STATE: it is not newer;
 * RS_ERR_INVALID, RS_ERR_LIMIT, RS_ERR_MEMORY: nothing has changed. */
rs_status rs_order_view(rs_order *order, rs_time now, uint64_t version, const rs_peer *members, uint32_t count);
/* RS_ERR_LIMIT: later, when others have what was published before, or the view change is over. RS_ERR_INVALID. */
rs_status rs_order_publish(rs_order *order, rs_time now, const void *bytes, uint32_t length);
/* A message of the group, or a datagram of a member, from whom. False: it is malformed (counted). */
bool rs_order_receive(rs_order *order, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
void rs_order_timeout(rs_order *order, rs_time now);
rs_time rs_order_deadline(const rs_order *order); /* RS_NEVER: nothing is due */
bool rs_order_poll_out(rs_order *order, rs_time now, rs_order_out *out);
bool rs_order_poll_event(rs_order *order, rs_time now, rs_order_event *out);
/* Members that this one, or the view change that it coordinates, waits for, and of which nothing has come for `bound`:
 * of the coordinator the others, of others the coordinator. As many as fit; how many. */
uint32_t rs_order_silent(const rs_order *order, rs_time now, rs_time bound, rs_peer *out, uint32_t most);
void rs_order_stats_get(const rs_order *order, rs_order_stats *out);

#endif
