/* Streams: one sender in one group, and which of its newest packets are here, missing or given up. */
#ifndef RS_CORE_GROUPS_STREAMS_H
#define RS_CORE_GROUPS_STREAMS_H

#include "core/groups/state.h"

rs_gm_stream *rs_gm_stream_find(const rs_messages *node, rs_peer sender, rs_message_group group);
/* NULL if no stream ever had that number; it may be out of use (group == NULL). */
rs_gm_stream *rs_gm_stream_numbered(const rs_messages *node, uint32_t number);
bool rs_gm_streams_init(rs_messages *node);
/* A stream of that id, made or made again if need be; NULL if the view does not list the sender, the id is of another
 * incarnation than the sender's, or there is no room. `own_report`: the sender says so itself, and is believed if its
 * incarnation is not known yet. `*fresh`: nothing was heard of it before. */
rs_gm_stream *rs_gm_stream_get(rs_messages *node, rs_gm_group *group, const rs_gm_id *id, bool own_report, bool *fresh);
/* Like new from `sn` on: what was missing of it is forgotten. */
void rs_gm_stream_restart(rs_messages *node, rs_gm_stream *stream, uint64_t sn);
/* All up to `sn` is out of reach, and told as lost. */
void rs_gm_stream_jump(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn);
/* The group's view has changed from what it was: streams of who is not in it any more are kept a while, and used no
 * more. */
void rs_gm_streams_view(rs_messages *node, rs_time now, rs_gm_group *group, const rs_gm_group *was);
/* Windows that are larger than what came of late needs become smaller. */
void rs_gm_streams_timeout(rs_messages *node, rs_time now);
void rs_gm_stream_free(rs_messages *node, rs_gm_stream *stream);
/* Nothing before `sn` matters. For a stream of which nothing is known yet. */
void rs_gm_stream_start(rs_gm_stream *stream, uint64_t sn);
/* Packet `sn` of this stream told of these views: what was sent since this node joined matters too. */
void rs_gm_stream_settle_base(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn,
                              const rs_gm_views *views);
/* This node was out of the group, and is in it anew: what is missing of before is told as lost, and what is here goes
 * on. Where the stream goes on, packets tell: each is shown to rs_gm_stream_go_on while `rejoined`. */
void rs_gm_stream_rejoin(rs_messages *node, rs_time now, rs_gm_stream *stream);
void rs_gm_stream_go_on(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, const rs_gm_views *views);
/* While `rejoined` its sender says that `sn` is the last packet, of these views: what it published before it knew of
 * this node's return is told as lost. */
void rs_gm_stream_place(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, const rs_gm_views *views);
/* A packet of it is about to come: what will be looked at is on its way into the caches while other work is done. With
 * many groups nothing of a stream is there, and each place is found by the one before: asked in this order. */
typedef enum { RS_GM_SOON_PLACE, RS_GM_SOON_STREAM, RS_GM_SOON_GROUP } rs_gm_soon;
void rs_gm_stream_soon(const rs_messages *node, rs_peer sender, rs_message_group group, rs_gm_soon what);
/* Its sender has `returned`, and its packet `sn` told of these views: of what it sent before it heard of that, by views
 * that nobody else had any more, what is missing is not waited for as long as else. */
void rs_gm_stream_hurry(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, const rs_gm_views *views);
/* The stream is known to go up to `sn`: what is not here of it is missing, but `sn` itself if it is `here`. */
void rs_gm_stream_reach(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn, bool here);

#endif
