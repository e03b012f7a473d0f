/* NAKs: when missing packets are asked for, and of whom; and what is given to those who ask. */
#ifndef RS_CORE_GROUPS_NAKS_H
#define RS_CORE_GROUPS_NAKS_H

#include "core/groups/state.h"

bool rs_gm_naks_init(rs_messages *node);
/* The packet was found missing just now. */
void rs_gm_nak_schedule(rs_messages *node, rs_time now, rs_gm_missing *missing);
/* It is missing no more. */
void rs_gm_nak_end(rs_messages *node, rs_gm_missing *missing);
/* Packets of the group come: those that are missing, and were not asked for yet, are asked for sooner if these come
 * faster than was known. */
void rs_gm_nak_pace(rs_messages *node, rs_time now, rs_gm_group *group);
/* What is missing of the stream from `sn` on was found so by a heartbeat: repairs had their time. */
void rs_gm_nak_advance(rs_messages *node, rs_time now, const rs_gm_stream *stream, uint64_t sn);
void rs_gm_nak_answered(rs_messages *node, rs_time now, const rs_gm_missing *missing, rs_messages_via via);
void rs_gm_nak_timeout(rs_messages *node, rs_time now);

bool rs_gm_receive_nak(rs_messages *node, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
bool rs_gm_poll_retransmit(rs_messages *node, rs_messages_out *out);

#endif
