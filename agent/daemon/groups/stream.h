/* Streams: a program's end of a group, at a socket of its own. */
#ifndef RS_DAEMON_GROUPS_STREAM_H
#define RS_DAEMON_GROUPS_STREAM_H

#include "daemon/groups/state.h"
#include "daemon/manager/client.h"

/* NULL: no memory. It waits until rs_stream_open or rs_stream_refuse. */
rs_group_stream *rs_stream_new(rs_groups *groups, rs_local_group *group, const rs_api_join *join, rs_time deadline);
bool rs_stream_waits(const rs_group_stream *stream);
bool rs_stream_receives(const rs_group_stream *stream);
rs_time rs_stream_deadline(const rs_group_stream *stream);
rs_group_stream *rs_stream_next(const rs_group_stream *stream);
/* What the program asked for; protocol "" = as the group is. */
const rs_manager_group_options *rs_stream_options(const rs_group_stream *stream);
/* The program gets its end. */
void rs_stream_open(rs_group_stream *stream);
/* A waiting stream: the program is told; an open one: it reads the words last. The stream is gone then. */
void rs_stream_refuse(rs_group_stream *stream, rostrum_code code, const char *text);
/* A program gets a socket for channels, or is told why not. */
void rs_streams_channels(rs_groups *groups, const rs_api_join *join);
/* Who asked is told why not. */
void rs_stream_refuse_join(rs_groups *groups, const rs_api_join *join, rostrum_code code, const char *text);
/* Own packets of the group up to `sn` are complete, but for so many that were given up. */
void rs_stream_complete(rs_group_stream *stream, uint64_t sn, uint64_t given_up);
bool rs_stream_wants_completion(const rs_group_stream *stream);
/* The engine is asked for what the stream wants to know; again after the group is new to it. RS_ERR_INVALID: it cannot
 * say. */
rs_status rs_stream_ask_completion(const rs_group_stream *stream);
void rs_stream_message(rs_group_stream *stream, const rs_messages_event *event);
void rs_stream_lost(rs_group_stream *stream, const rs_messages_event *event);
/* What groups with guarantees give out goes to programs, as fast as the slowest takes it if the group waits for such.
 * True: there is more. */
bool rs_streams_take_ordered(rs_groups *groups);
/* The policy is another: may the program still do what it joined for? */
bool rs_stream_may(rs_group_stream *stream);
/* Sends what was put into streams since. */
void rs_streams_flush(rs_groups *groups);
/* Publishes of those that waited for room, as many as go. */
void rs_streams_resume(rs_groups *groups);
/* Sockets that carry channels are closed. */
void rs_streams_end(rs_groups *groups);
/* Whether the program holds its group up, or loses messages of it, and how; texts are valid as long as the stream. */
bool rs_stream_is_slow(const rs_group_stream *stream, rs_time now, rs_manager_slow *out);
/* A subscriber of the group has much unread, and is reading. */
bool rs_stream_is_catching_up(const rs_group_stream *stream, rs_time now);
/* Before that is asked: sees whether its program has read of a socket that is full. */
void rs_stream_look(rs_group_stream *stream, rs_time now);

#endif
