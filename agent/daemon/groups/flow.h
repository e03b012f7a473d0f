/* Flow control of group messages: how far a publisher may be ahead of those who take its packets.
 *
 * Receivers tell the sender how far they are, by a datagram for each RS_FLOW_STEPS-th of a window; of a large group
 * some do, chosen by their addresses. Only these count, of the members that the view lists, and only with a step
 * forward: who reports what cannot be is passed over. Who is alive but must not be overrun yet (its programs are
 * behind, or it misses something) says where it is again and again, every RS_FLOW_AGAIN: that counts for RS_FLOW_HOLD
 * after its last step. The sender's newest packet may be a window ahead of the slowest that has told something of late
 * (RS_FLOW_FRESH). Nobody is waited for longer: who is silent is not counted, and while all are silent a window goes
 * out every RS_FLOW_AGE. So a flood goes as fast as all (of RS_FLOW_REPORTERS) take it, but not slower than a step
 * every RS_FLOW_HOLD; a dead receiver costs one short pause, and no wait is without a bound. Messages that come slowly
 * never wait. */
#ifndef RS_DAEMON_GROUPS_FLOW_H
#define RS_DAEMON_GROUPS_FLOW_H

#include "core/groups/messages.h"

#define RS_FLOW_MAGIC 0x4652 /* first two bytes of a report, little endian */
#define RS_FLOW_BYTES 28
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
        rs_time at, step_at;        /* of its last report, and of the last that was a step forward */
    } reporters[RS_FLOW_REPORTERS]; /* by the newest view */
    uint32_t reporter_count;
    uint64_t refused; /* reports of others, and such as cannot be */
} rs_flow;

/* At a receiver: how far each stream is. Bounded; streams that share a place take turns. */
typedef struct {
    uint32_t sender, incarnation, group;
    bool held_back; /* a report is due, but the sender shall not go on yet */
    uint64_t newest, told;
    rs_time told_at;
} rs_flow_heard;
#define RS_FLOW_HEARD 4096u

typedef struct {
    uint32_t from, incarnation, group;
    uint64_t sn;
} rs_flow_report;

/* Packets of a window: what fits into the receivers' sockets for sure. */
uint32_t rs_flow_window(uint32_t packet_bytes);
void rs_flow_reset(rs_flow *flow);
/* A view: `members` are all that may report, `self` does not. */
void rs_flow_view(rs_flow *flow, uint32_t self, uint32_t group, const uint32_t *members, uint32_t count);
/* A message was published, in these packets: a receiver may say of each that it has come so far. */
void rs_flow_published(rs_flow *flow, uint64_t first, uint64_t last);
/* May another packet be published? */
bool rs_flow_open(rs_flow *flow, rs_time now, uint32_t window);
/* False: it does not count. */
bool rs_flow_reported(rs_flow *flow, rs_time now, uint32_t window, uint32_t address, uint64_t sn);
/* Is it this member who should report: one of the RS_FLOW_REPORTERS with the lowest hashes? */
bool rs_flow_chosen(uint32_t self, uint32_t group, const uint32_t *members, uint32_t count);

/* A data packet came from that address. Non-NULL: the stream has moved by a step since it was last told of. Only the
 * packet that was to be next is believed without a look at its check. */
rs_flow_heard *rs_flow_hear(rs_flow_heard *table, uint32_t source, const uint8_t *packet, size_t length,
                            uint32_t window);
/* `missing`, a packet that may still come (0: none), is so far back that the sender, if it went on, would soon have it
 * no more: a window of packets is under way, and a sender keeps RS_FLOW_KEPT bytes. */
bool rs_flow_too_far(const rs_flow_heard *heard, uint64_t missing, uint32_t window);
void rs_flow_encode(uint8_t out[RS_FLOW_BYTES], const rs_flow_report *report);
bool rs_flow_decode(const uint8_t *bytes, size_t length, rs_flow_report *out);

#endif
