/* A data packet's way through the node, whether it came by multicast, out of a repair or because it was asked for. */
#ifndef RS_CORE_GROUPS_ARRIVE_H
#define RS_CORE_GROUPS_ARRIVE_H

#include "core/groups/state.h"

/* A whole datagram of a data packet that was checked, for a stream that takes it. */
void rs_gm_arrive(rs_messages *node, rs_time now, rs_gm_stream *stream, const rs_gm_id *id, const uint8_t *datagram,
                  uint32_t length, rs_messages_via via);
bool rs_gm_receive_data(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
/* A data packet that came in a datagram of an engine's own (engine.h: carry), which checked whom it is of. */
bool rs_gm_receive_carried(rs_messages *node, rs_time now, rs_peer sender, const uint8_t *bytes, size_t length,
                           rs_messages_via via);
/* The group has a new view: packets that waited for it are received. */
void rs_gm_early_look(rs_messages *node, rs_time now, const rs_gm_group *group);

#endif
