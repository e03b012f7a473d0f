/* How a member of a group in total order gets the messages that were given out before it was in, from members that keep
 * them (history.h), and gives them to others; sans-IO. docs/guarantees.md, Replay, tells the rules.
 *
 * Datagrams, little-endian: magic u16, version u8, kind u8, the low half of XXH64 of all behind it u32, group u32,
 * token u32 (of the question, repeated in the answer), then
 *   ASK    number u64 (0: of none)
 *   HAVE   first u64, last u64 (0: nothing, or not yet), joined u64, held u64, at u64, view u64, view's first number
 *          u64, digest u64, settled u32
 *   PULL   number u64, ranges u32 (1 to 16), each from u32, to u32: of the bytes of the records from that number on
 *   PIECE  number u64, total u32 (0: it is not there), offset u32, bytes
 *
 * Use as core/order: views and datagrams go in, then rs_replay_poll_out until it returns false, rs_replay_sent, and
 * rs_replay_deadline. A member answers without state of whoever asks; what it has under way of its own is one run of
 * records. */
#ifndef RS_CORE_ORDER_REPLAY_H
#define RS_CORE_ORDER_REPLAY_H

#include "core/order/history.h"
#include "core/order/order.h"

typedef struct rs_replay rs_replay;

#define RS_REPLAY_MAGIC 0x5952    /* first two bytes, little endian; the group is at RS_ORDER_GROUP_AT */
#define RS_REPLAY_PIECE 1100u     /* bytes of records in a datagram */
#define RS_REPLAY_RUN (64u << 10) /* bytes of records that are asked for at once, if not one is longer */
#define RS_REPLAY_WINDOW 64u      /* datagrams that answer one PULL */
#define RS_REPLAY_RANGES 16u
#define RS_REPLAY_ADDRESSED 12u /* bytes before the token */

/* Zero in any field means its default, given in brackets. */
typedef struct {
    uint32_t group;
    rs_peer self;
    uint32_t message_bytes; /* largest message [1 MiB] */
    rs_time again;          /* what is not answered is asked again after this, then twice as long [30 ms] */
    uint64_t seed;          /* of tokens */
} rs_replay_config;

typedef struct {
    rs_peer peer;
    const uint8_t *bytes;
    uint32_t length;
} rs_replay_out;

typedef enum {
    RS_REPLAY_HERE,  /* it is kept here */
    RS_REPLAY_WAITS, /* others may have it: ask again when time has passed, or datagrams came */
    RS_REPLAY_GONE   /* no member has it; `number` of the record: the next that there is */
} rs_replay_answer;

typedef struct {
    uint64_t pulled, served; /* records that came from others; datagrams with records that went to them */
    uint64_t refused, bad;   /* members that did not give what they said they have; malformed datagrams */
} rs_replay_stats;

/* NULL: out of memory. The history is the caller's, which also puts in what is given out. */
rs_replay *rs_replay_new(const rs_replay_config *config, rs_history *history, const rs_allocator *allocator);
void rs_replay_free(rs_replay *replay);
/* A view of the group's guarantees. With one that this member joined with, what it has from before is compared with
 * what others have, and cut where it differs. */
void rs_replay_view(rs_replay *replay, rs_time now, const rs_order_event *view);
/* False: it is malformed (counted). `wall`: the wall clock, ns. */
bool rs_replay_receive(rs_replay *replay, rs_time now, uint64_t wall, rs_peer from, const uint8_t *bytes,
                       size_t length);
/* Where the message of that number is; `given`: the last that was given out here. `out` is filled for HERE and GONE. */
rs_replay_answer rs_replay_at(rs_replay *replay, uint64_t number, uint64_t given, rs_history_record *out);
/* All that others have and that is kept here has come, or nobody has more. */
bool rs_replay_is_complete(const rs_replay *replay);
/* What a program still wants: from there on it stays (rs_history_add). UINT64_MAX: nobody waits. */
void rs_replay_pin(rs_replay *replay, uint64_t number);
uint64_t rs_replay_pinned(const rs_replay *replay);
void rs_replay_timeout(rs_replay *replay, rs_time now);
rs_time rs_replay_deadline(const rs_replay *replay);
/* What was polled stays as it is until rs_replay_sent: many go together. */
bool rs_replay_poll_out(rs_replay *replay, rs_replay_out *out);
void rs_replay_sent(rs_replay *replay);
void rs_replay_stats_get(const rs_replay *replay, rs_replay_stats *out);

#endif
