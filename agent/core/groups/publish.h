/* The sender: messages become packets (rs_messages_publish), and packets go out. */
#ifndef RS_CORE_GROUPS_PUBLISH_H
#define RS_CORE_GROUPS_PUBLISH_H

#include "core/groups/state.h"

/* A new view holds for what is published from now on. */
void rs_gm_publish_view(rs_gm_group *group);
/* What packet `sn`, the newest, tells of the views it and those before it were published under. */
rs_gm_views rs_gm_publish_views(const rs_gm_group *group, uint64_t sn);
bool rs_gm_poll_data(rs_messages *node, rs_time now, rs_messages_out *out);
/* How far this node was in a group that it has forgotten, for one of its members then; 0: not known. */
uint64_t rs_gm_publish_forgotten(const rs_messages *node, rs_message_group group, rs_peer asker, rs_gm_views *views);
/* The group is about to be forgotten: its numbers will go on where they are. */
void rs_gm_publish_end(rs_messages *node, const rs_gm_group *group);

#endif
