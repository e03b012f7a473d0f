/* From packets to messages: order, large messages, and the events that tell the subscriber what came and what not. */
#ifndef RS_CORE_GROUPS_DELIVER_H
#define RS_CORE_GROUPS_DELIVER_H

#include "core/groups/state.h"

/* A packet is in its slot: delivers it, or what order allows now. */
void rs_gm_deliver(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn);
/* FIFO: what order allows after something was given up. */
void rs_gm_deliver_run(rs_messages *node, rs_time now, rs_gm_stream *stream);
void rs_gm_lost(rs_messages *node, const rs_gm_stream *stream, uint64_t sn, uint64_t count, rs_messages_reason reason);
/* The message that packet was part of cannot become whole. */
void rs_gm_assembly_broken(rs_messages *node, rs_gm_stream *stream, uint64_t sn);
void rs_gm_assembly_free(rs_messages *node, rs_gm_assembly *assembly);
void rs_gm_deliver_timeout(rs_messages *node, rs_time now);
rs_time rs_gm_deliver_deadline(const rs_messages *node);
/* Waiting events of a group that is forgotten are dropped. */
void rs_gm_events_forget(rs_messages *node, rs_message_group group);

#endif
