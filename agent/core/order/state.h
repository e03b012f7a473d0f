/* What the files of a group's guarantees share: messages, the log of the view that holds, the change to the next. */
#ifndef RS_CORE_ORDER_STATE_H
#define RS_CORE_ORDER_STATE_H

#include "core/order/order.h"

#define RS_ORDER_VERSION 1u
#define RS_ORDER_HEADER 20u      /* of what is no message */
#define RS_ORDER_DATAGRAM 1200u  /* what is longer goes by the engine, which cuts it */
#define RS_ORDER_RUNS_MOST 8192u /* in one ORDER */
#define RS_ORDER_NAK_RANGES 32u  /* in one NAK */
#define RS_ORDER_ATTEMPTS 255u   /* of one version of the membership */

typedef enum {
    RS_ORDER_KIND_DATA = 1,
    RS_ORDER_KIND_ORDER = 2,   /* the coordinator: whose message is next, and up to where all have them */
    RS_ORDER_KIND_ACK = 3,     /* a member: up to where it has what is ordered */
    RS_ORDER_KIND_NAK = 4,     /* a member lacks these */
    RS_ORDER_KIND_REQUEST = 5, /* the coordinator: a view begins; say what you have */
    RS_ORDER_KIND_REPORT = 6,
    RS_ORDER_KIND_INSTALL = 7, /* the coordinator: how the view before ends, and who is in the next */
    RS_ORDER_KIND_READY = 8,   /* a member has all that the view before ends with */
    RS_ORDER_KIND_COMMIT = 9   /* the coordinator: all are ready, the view holds */
} rs_order_kind;

/* A message or a datagram as it travels; several places may hold it. */
typedef struct {
    uint32_t holders, length;
    rs_time relayed_at;
    uint8_t bytes[];
} rs_order_block;

/* Who is in a view: the same peer with another instance is another member. */
typedef struct {
    rs_peer peer;
    uint32_t instance;
    bool survivor; /* of a view to come: it was in the one before */
} rs_order_member;

/* A member of the view that holds, and its messages, numbered from 1 in each view. */
typedef struct {
    rs_order_member is;
    uint64_t have, high;  /* here without a gap up to; known to be there up to */
    uint64_t in_log;      /* so many of them are in the log, ... */
    uint64_t in_complete; /* ... in the part of it whose messages are all here, ... */
    uint64_t committed;   /* ... and in the part that all have: these are kept no more */
    uint64_t given;       /* put into the queue for the application */
    rs_order_block **slots;
    uint32_t room; /* a power of two */
    uint64_t bytes;
    rs_time gap_at; /* a gap was found, or asked for, last; 0: there is none */
    uint32_t tries;
    uint32_t put_off; /* the next one, by so many quarters of `again`, for what the engine brings */
    /* At the coordinator: what it told. */
    uint64_t ack_known, ack_complete, ack_committed;
    rs_time heard_at, resent_at;
} rs_order_sender;

/* Waits for rs_order_poll_event. */
typedef struct {
    rs_order_event_kind kind;
    rs_order_block *block; /* a message */
    rs_peer sender;
    uint64_t number, view;
    rs_peer *peers; /* of a view: members, joined, left */
    uint32_t member_count, joined_count, left_count;
    bool anew, primary;
} rs_order_waiting;

typedef struct {
    rs_peer peer;
    rs_order_block *block;
} rs_order_leaving;

/* How the view before ends, and who is in the next: what a member was told by INSTALL. */
typedef struct {
    uint64_t epoch, before; /* the view to come; the one that survivors were in */
    uint64_t base;          /* messages before it */
    rs_order_member *members;
    uint32_t count;
    bool survivor, ready; /* this member is one; it has all */
    uint64_t final;       /* length of the log at its end */
    uint32_t *holders;    /* of each member of the view before: whose peer number has all of its messages that count */
} rs_order_install;

/* A view change that this member coordinates. */
typedef struct {
    uint64_t epoch; /* 0: none */
    bool installing;
    rs_order_block **reports; /* of each member of the membership's view */
    bool *ready;
    rs_order_block *proposal;
    rs_time again_at, since;
} rs_order_flush;

struct rs_order {
    rs_order_config config;
    rs_allocator allocator;
    /* the membership */
    uint64_t version;
    rs_peer *wanted; /* ascending */
    uint32_t wanted_count;
    /* the view that holds */
    uint64_t epoch; /* version << 8 | attempt; 0: none yet */
    uint64_t base;  /* messages before it, in all views of this group */
    rs_order_sender *senders;
    uint32_t sender_count, self; /* place among the senders */
    uint16_t *log;               /* whose message is next: a ring */
    uint64_t log_room, known, complete, committed;
    uint64_t given; /* with `agreed`: so many of the log are in the queue for the application, or beyond it */
    uint64_t own;   /* messages published in this view */
    uint64_t own_bytes;
    rs_time own_at; /* the oldest of them that is not in the log was sent (again) last */
    uint32_t turn;
    /* the coordinator: what was told of the log */
    uint64_t told_known, told_committed, untold_bytes; /* `untold_bytes`: committed since, with `agreed` */
    rs_time told_at;
    uint64_t told_before;          /* the last ORDER that told something new did so from there on */
    uint64_t told_then, told_mark; /* told up to there a while ago; and at `mark_at` */
    rs_time mark_at;
    /* a member: what it told the coordinator */
    uint64_t ack_known, ack_complete, ack_committed, unacked_bytes; /* `unacked_bytes`: complete since, with `agreed` */
    bool ack_now;
    rs_time ack_at;
    /* view changes */
    uint64_t promised; /* nothing of an older one counts */
    bool frozen;       /* what this member has was reported: nothing more is given out or acknowledged */
    rs_order_install install;
    rs_order_flush flush;
    rs_time report_at, ready_at;
    rs_peer early_from; /* asked last for a view that this member was not told of yet: that one */
    uint64_t early_epoch;
    /* in and out */
    rs_order_waiting *queue;
    uint64_t queue_head, queue_tail, queue_room;
    uint64_t queue_messages, queue_bytes;
    rs_order_waiting polled; /* what the last poll gave out */
    rs_order_leaving *out;
    uint64_t out_head, out_tail, out_room;
    rs_order_block *sent; /* what the last poll gave out */
    rs_time tick_at, ran_at, heard_at;
    bool primary;
    rs_order_stats stats;
};

#endif
