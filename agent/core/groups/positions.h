/* How far publishers are: they say so themselves (heartbeats), and are asked if nothing is heard of them. */
#ifndef RS_CORE_GROUPS_POSITIONS_H
#define RS_CORE_GROUPS_POSITIONS_H

#include "core/groups/state.h"

/* Something was published to the group just now. */
void rs_gm_heartbeats_begin(rs_messages *node, rs_time now, rs_gm_group *group);
/* The group has another view: who may publish under it is asked for its position, unless it is heard. */
void rs_gm_query_view(rs_messages *node, rs_time now, rs_gm_group *group);
void rs_gm_positions_timeout(rs_messages *node, rs_time now);
rs_time rs_gm_positions_deadline(const rs_messages *node);
/* Sealed: a packet or word of a sender does not fit what is known of it (`stream`; NULL: nothing). One of them is a
 * lie, or comes once more: the sender is asked, seldom, and what it answers holds. */
void rs_gm_doubt(rs_messages *node, rs_time now, const rs_gm_group *group, rs_peer sender, rs_gm_stream *stream);
/* Neither is due any more. */
void rs_gm_positions_end(rs_messages *node, rs_gm_group *group);
bool rs_gm_receive_state(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
bool rs_gm_receive_query(rs_messages *node, rs_peer from, const uint8_t *bytes, size_t length);

#endif
