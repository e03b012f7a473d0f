/* Messages of groups that are kept for replay (core/order/history.h, replay.h): in memory, or in files that are mapped,
 * one a segment: "<--to-disk>/groups/g.<group>/<first number, 16 hex digits>.kept". */
#ifndef RS_DAEMON_GROUPS_KEPT_H
#define RS_DAEMON_GROUPS_KEPT_H

#include "daemon/groups/state.h"

/* What of the group is kept here, from an earlier run too, if its facts say so and it is not there yet. Without memory
 * for it nothing is kept, which is logged. */
void rs_kept_begin(rs_groups *groups, rs_local_group *group);
/* This server is in the group no more; `deleted`: nobody is, nor will be. */
void rs_kept_end(rs_groups *groups, rs_local_group *group, bool deleted);
/* What the group gave out: messages, with the name of the sender's server, and views. */
void rs_kept_event(rs_groups *groups, rs_local_group *group, const rs_order_event *event, const char *sender);
/* A datagram from that address. */
void rs_kept_receive(rs_groups *groups, rs_local_group *group, uint32_t from, const uint8_t *bytes, size_t length);
rs_time rs_kept_deadline(const rs_groups *groups);
void rs_kept_timeout(rs_groups *groups);
/* What a group keeps here. */
typedef struct {
    const char *group;    /* its name */
    uint64_t bytes;       /* that its segments take, in memory or on disk */
    uint64_t first, last; /* numbers of the oldest and the newest message; 0: none is kept yet */
} rs_kept_facts;

/* Of groups that keep messages, `most` at most; how many. */
uint32_t rs_kept_list(const rs_groups *groups, rs_kept_facts *out, uint32_t most);
/* Bytes that all groups' segments take. */
uint64_t rs_kept_bytes(const rs_groups *groups);
/* NULL: the group keeps nothing here. */
rs_replay *rs_kept_replay(const rs_local_group *group);
rs_history *rs_kept_history(const rs_local_group *group);
/* Wall clock, ns. */
uint64_t rs_kept_clock(void);

#endif
