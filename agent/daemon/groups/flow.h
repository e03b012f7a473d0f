/* Flow control of group messages: how far a publisher may be ahead of those who take its packets.
 *
 * Receivers tell the sender how far they are, by a datagram for each RS_FLOW_STEPS-th of a window; of a large group
 * some do, chosen by their addresses. Only these count, of the members that the view lists, and only with a step
 * forward: who reports what cannot be is passed over. Who is alive but must not be overrun yet (its programs are
 * behind, or it misses something) says where it is again and again, every RS_FLOW_AGAIN: that counts for RS_FLOW_HOLD
 * after its last step. The sender's newest packet may be a window ahead of the slowest that has told something of late
 * (RS_FLOW_FRESH). Nobody is waited for longer: who is silent is not counted, and while all are silent a window goes
 * out every RS_FLOW_AGE. So a flood goes as fast as all (of RS_FLOW_REPORTERS) take it, but not slower than a step (of
 * many groups: about half their share, below) every RS_FLOW_HOLD; a dead receiver costs one short pause, and no wait is
 * without a bound. Messages that come slowly never wait.
 *
 * All groups of a sender together have one window under way, or more where some take it all and others have their small
 * shares: what of a group is older than RS_FLOW_AGE to twice that does not count here, so none stops others for good.
 * Groups in which somebody is further behind have their shares of two windows that may be ahead of who takes them.
 *
 * Of a sender's packets in many groups receivers therefore report sooner than by steps of each: by a step of all, in
 * one datagram for up to RS_FLOW_LIST streams. Agents of before take reports of one stream only: so receivers begin
 * with such, and a sender that takes lists answers one by a list of none. */
#ifndef RS_DAEMON_GROUPS_FLOW_H
#define RS_DAEMON_GROUPS_FLOW_H

#include "core/base/list.h"
#include "core/groups/messages.h"

#define RS_FLOW_MAGIC 0x4652 /* first two bytes of a report, little endian */
#define RS_FLOW_BYTES 28
#define RS_FLOW_LIST 52u /* streams in a report of several, at most: it fits into a datagram's head (io/datagrams.h) */
#define RS_FLOW_LIST_BYTES(count) (20 + 12 * (size_t)(count))
#define RS_FLOW_REPORTERS 32u
#define RS_FLOW_STEPS 8u
#define RS_FLOW_KEPT (UINT64_C(32) << 20)
#define RS_FLOW_MISSING 3u /* windows */
/* What a program has not read yet, in bytes: more holds its agent's reports back; so much it is given while it reads,
 * namely what holds them back and all that may still come then; and so much if it reads nothing. */
#define RS_UNREAD_HOLD ((size_t)1 << 20)
#define RS_UNREAD_MOST ((size_t)RS_FLOW_KEPT)
#define RS_UNREAD_STUCK ((size_t)8 << 20)
#define RS_FLOW_FRESH ((rs_time)100000000)
#define RS_FLOW_AGAIN ((rs_time)25000000)
#define RS_FLOW_HOLD ((rs_time)1000000000) /* as long as a packet is asked for before it is given up */
#define RS_FLOW_AGE ((rs_time)50000000)    /* nobody reports: what is older is not under way any more */

/* At the sender, of one group. */
typedef struct {
    uint64_t newest, floor; /* sn published: last, and RS_FLOW_AGE to twice that ago */
    uint64_t mark;          /* the next floor */
    rs_time mark_at;
    struct {
        uint32_t address;
        uint64_t sn;                /* 0: it has reported nothing yet */
        uint64_t step;              /* its last report that was a step forward */
        rs_time at, step_at;        /* of its last report, and of that one */
    } reporters[RS_FLOW_REPORTERS]; /* by the newest view */
    uint32_t reporter_count;
    uint64_t refused;   /* reports of others, and such as cannot be */
    uint64_t ahead;     /* of the slowest that reports */
    uint64_t under_way; /* of that, in the sum */
    rs_list busy;       /* in the sum, while something is ahead */
} rs_flow;

/* At the sender, of all groups: packets under way, and those that have some ahead. */
typedef struct {
    rs_list busy;
    bool unread; /* what is under way waits in programs' buffers, not in sockets: messages of groups in regions */
    uint32_t busy_count;
    uint64_t under_way;
    uint64_t packets, bytes; /* published of late: packets of many groups are smaller than they may be */
    rs_time aged_at;
} rs_flow_sum;
#define RS_FLOW_SHARE 1u /* packets of a group that may be under way while others have a window, at least */

/* At a receiver: how far each stream is. Bounded; streams that share a place take turns. */
typedef struct {
    uint32_t sender, incarnation, group;
    bool held_back;         /* a report is due, but the sender shall not go on yet */
    uint16_t before, after; /* in its sender's line: places, from 1; it is not in it: 0 */
    uint32_t unseen;        /* packets since a report of it was last thought of */
    uint64_t newest, told;
    rs_time told_at;
} rs_flow_heard;
#define RS_FLOW_HEARD 4096u
#define RS_FLOW_PLACES 4u    /* where a stream may be */
#define RS_FLOW_SENDERS 256u /* those that share a place are as one */
#define RS_FLOW_EACH 32u     /* packets for a report, at least: of all streams of a sender together */
#define RS_FLOW_DUE 16u      /* of these streams at a time, at most, where each needs a datagram */

typedef struct {
    rs_flow_heard streams[RS_FLOW_HEARD];
    struct {
        uint16_t first, last; /* streams with unseen packets, the first for the longest time */
        uint32_t unseen;      /* packets of them all, since reports of several were last thought of */
    } senders[RS_FLOW_SENDERS];
} rs_flow_ears;

typedef struct {
    uint32_t from, incarnation, group;
    uint64_t sn;
} rs_flow_report;

/* Of several streams of a sender; of none, `from` and `incarnation` are a sender's that takes such. */
typedef struct {
    uint32_t from, incarnation, count;
    struct {
        uint32_t group;
        uint64_t sn;
    } stream[RS_FLOW_LIST];
} rs_flow_list;

/* Packets of a window: what fits into the receivers' sockets for sure. */
uint32_t rs_flow_window(uint32_t packet_bytes);
void rs_flow_sum_init(rs_flow_sum *sum, bool unread);
void rs_flow_reset(rs_flow *flow);
/* As rs_flow_reset; it may be in the sum. */
void rs_flow_end(rs_flow_sum *sum, rs_flow *flow);
/* A view: `members` are all that may report, `self` does not. */
void rs_flow_view(rs_flow *flow, uint32_t self, uint32_t group, const uint32_t *members, uint32_t count);
/* A message of so many bytes was published, in these packets: a receiver may say of each that it has come so far.
 * `sum`, here and below: NULL for a group that is not bounded with others. */
void rs_flow_published(rs_flow_sum *sum, rs_flow *flow, uint64_t first, uint64_t last, uint32_t bytes);
/* May another packet be published? */
bool rs_flow_open(rs_flow_sum *sum, rs_flow *flow, rs_time now, uint32_t window);
/* False: it does not count. */
bool rs_flow_reported(rs_flow_sum *sum, rs_flow *flow, rs_time now, uint32_t window, uint32_t address, uint64_t sn);
/* Is it this member who should report: one of the RS_FLOW_REPORTERS with the lowest hashes? */
bool rs_flow_chosen(uint32_t self, uint32_t group, const uint32_t *members, uint32_t count);

/* A data packet came from that address. Non-NULL: the stream has moved by a step since it was last told of. Only the
 * packet that was to be next is believed without a look at its check. */
rs_flow_heard *rs_flow_hear(rs_flow_ears *ears, uint32_t source, const uint8_t *packet, size_t length, uint32_t window);
/* The same where no packets are seen: what comes of a group in regions is given out up to that number. */
rs_flow_heard *rs_flow_given(rs_flow_ears *ears, uint32_t sender, uint32_t incarnation, uint32_t group, uint64_t sn,
                             uint32_t window);
/* After these, of a packet or message of that length: all streams of this sender together have moved by a step. */
bool rs_flow_is_due(const rs_flow_ears *ears, uint32_t source, size_t length, uint32_t window);
/* Then: those of them that should be reported, by lists (all that have moved, or as many as fit) or one by one; how
 * many. */
uint32_t rs_flow_due(rs_flow_ears *ears, uint32_t source, size_t length, uint32_t window, bool lists,
                     rs_flow_heard *due[RS_FLOW_LIST]);
/* `missing`, a packet that may still come (0: none), is so far back that the sender, if it went on, would soon have it
 * no more: a window of packets is under way, and a sender keeps RS_FLOW_KEPT bytes. */
bool rs_flow_too_far(const rs_flow_heard *heard, uint64_t missing, uint32_t window);
void rs_flow_encode(uint8_t out[RS_FLOW_BYTES], const rs_flow_report *report);
bool rs_flow_decode(const uint8_t *bytes, size_t length, rs_flow_report *out);
/* Into RS_FLOW_LIST_BYTES(count) bytes. */
size_t rs_flow_list_encode(uint8_t *out, const rs_flow_list *list);
bool rs_flow_list_decode(const uint8_t *bytes, size_t length, rs_flow_list *out);

#endif
