/* What the manager says of groups, and the servers that its views name. */
#ifndef RS_DAEMON_GROUPS_VIEWS_H
#define RS_DAEMON_GROUPS_VIEWS_H

#include "daemon/groups/state.h"

/* Callbacks of the link to the manager; context: the agent. */
void rs_groups_peer(void *agent, const rs_manager_group_peer *peer);
void rs_groups_region(void *agent, const rs_manager_group_region *view);
void rs_group_regions_free(rs_groups *groups);
void rs_groups_view(void *agent, const rs_manager_group_view *view);
void rs_groups_refused(void *agent, const char *group, const char *reason);

void rs_group_leave_channels(rs_groups *groups, rs_local_group *group, bool linger);

/* NULL: no memory, or RS_GROUP_PEERS_MOST. */
rs_group_peer *rs_group_peer_learn(rs_groups *groups, const rs_manager_group_peer *peer);
rs_group_peer *rs_group_peer_by_id(const rs_groups *groups, int32_t id);
rs_group_peer *rs_group_peer_by_address(const rs_groups *groups, uint32_t address);
/* NULL: no view named it. This server itself is made if it is not known. */
rs_group_peer *rs_group_peer_at(rs_groups *groups, uint32_t address);
void rs_group_peers_free(rs_groups *groups);

#endif
