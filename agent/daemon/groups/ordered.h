/* Groups with guarantees (docs/guarantees.md): core/order between a group's engine and its programs. */
#ifndef RS_DAEMON_GROUPS_ORDERED_H
#define RS_DAEMON_GROUPS_ORDERED_H

#include "daemon/groups/state.h"

/* A view of a group of which this server is a member; its guarantees begin with the first. */
rs_status rs_ordered_view(rs_groups *groups, rs_local_group *group, const rs_peer *members, uint32_t count);
/* This server is no member any more; nothing if it was none. */
void rs_ordered_forget(rs_groups *groups, rs_local_group *group);
/* A message of the group's engine. */
void rs_ordered_take(rs_groups *groups, rs_local_group *group, rs_peer from, const uint8_t *bytes, uint32_t length);
/* RS_ERR_LIMIT: later. */
rs_status rs_ordered_publish(rs_groups *groups, rs_local_group *group, const uint8_t *bytes, uint32_t length);
rs_time rs_ordered_deadline(const rs_groups *groups);
void rs_ordered_timeout(rs_groups *groups);

#endif
