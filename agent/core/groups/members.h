/* Who is known: groups and the servers that views name, in which incarnation each runs, and what may be given to it. */
#ifndef RS_CORE_GROUPS_MEMBERS_H
#define RS_CORE_GROUPS_MEMBERS_H

#include "core/groups/state.h"

/* NULL: there is no view of it. */
rs_gm_group *rs_gm_group_find(const rs_messages *node, rs_message_group id);
void rs_gm_group_add(rs_messages *node, rs_gm_group *group);
void rs_gm_group_remove(rs_messages *node, rs_gm_group *group);

/* NULL: no view names it. */
rs_gm_peer *rs_gm_peer_find(const rs_messages *node, rs_peer peer);
/* Those that `next` lists and `group` does not are known from now on. False: no memory, all is as it was. */
bool rs_gm_peers_hold(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next);
/* Those that `group` lists and `next` does not are of no interest for this group any more. */
void rs_gm_peers_let_go(rs_messages *node, const rs_gm_group *group, const rs_gm_group *next);
void rs_gm_peers_free(rs_messages *node);
/* Ascending numbers, for qsort. */
int rs_gm_by_number(const void *a, const void *b);
bool rs_gm_is_member(const rs_gm_group *group, rs_peer peer);
bool rs_gm_may_publish(const rs_gm_group *group, rs_peer peer);
/* The view lists the sender, and as far as is known it runs with that incarnation. */
bool rs_gm_believes(const rs_messages *node, const rs_gm_group *group, rs_peer sender, uint32_t incarnation);
/* A packet, or a heartbeat, that goes round once more may be of these views, and have been delivered to an earlier life
 * of this node, or of its stream here: where packets are sealed it begins none. */
bool rs_gm_is_before(const rs_messages *node, const rs_gm_group *group, const rs_gm_views *views);
/* So many bytes may be sent to it because it asked: in all not much more than was multicast before it. */
bool rs_gm_peer_gets(rs_messages *node, rs_peer peer, uint32_t bytes);

#endif
