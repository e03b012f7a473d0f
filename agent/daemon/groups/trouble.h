/* Who holds a group with guarantees up: programs here that do not take its messages, members that are silent. The
 * manager is told when it changes, and again each second while it is so. */
#ifndef RS_DAEMON_GROUPS_TROUBLE_H
#define RS_DAEMON_GROUPS_TROUBLE_H

#include "daemon/groups/groups.h"

void rs_groups_tell_trouble(rs_groups *groups);
rs_time rs_groups_trouble_deadline(const rs_groups *groups);

#endif
