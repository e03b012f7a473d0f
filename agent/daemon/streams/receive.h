/* Continuing streams, at a receiver: bytes go to a program. The transfer may have begun or not, and the program be
 * there or not. */
#ifndef RS_DAEMON_STREAMS_RECEIVE_H
#define RS_DAEMON_STREAMS_RECEIVE_H

#include "daemon/agent.h"
#include "daemon/streams/ring.h"

typedef struct rs_stream_sink rs_stream_sink;

/* A stream is coming in. NULL with the reason in `cause`: it cannot be taken. rs_stream_sink_begin when the core has
 * it. */
rs_stream_sink *rs_stream_sink_new(rs_agent *agent, const rs_incoming *info, char *cause, size_t size);
void rs_stream_sink_begin(rs_stream_sink *sink, rs_xfer xfer);
/* The program wants no more of it; it is still there for others, and freed when its transfer ends. */
void rs_stream_sink_leave(rs_stream_sink *sink);
/* Of a stream that comes in here, or has lately, for others who have joined it. */
bool rs_stream_sink_kept(rs_agent *agent, const rs_object_id *id, rs_stream_kept *out);
/* `cause`: why there is no more of it, for the program that reads it, if that has not had all. */
void rs_stream_sink_free(rs_stream_sink *sink, const char *cause);
uint8_t *rs_stream_sink_at(const rs_stream_sink *sink, uint64_t offset);
/* Whether a fragment is as it was sealed: of `payload`, or where it belongs if that is NULL. */
/* An opened fragment of the transfer of that nonce is signed by that key. */
bool rs_stream_is_signed(rs_agent *agent, const uint8_t *signer, uint64_t nonce, uint64_t sn, const uint8_t *at);
bool rs_stream_sink_is_right(const rs_stream_sink *sink, uint64_t offset, const uint8_t *payload, uint32_t length);
uint64_t rs_stream_sink_bytes(const rs_stream_sink *sink); /* that the program had */
void rs_stream_sink_moved(rs_stream_sink *sink);
/* All of it is here. */
void rs_stream_sink_complete(rs_stream_sink *sink);
/* STREAM_RECEIVE of a program. */
void rs_stream_take_api(void *agent, const rs_api_take *take);

/* Of all streams, those that are sent too. */
rs_time rs_streams_deadline(const rs_agent *agent);
void rs_streams_timeout(rs_agent *agent);
/* The agent ends: programs that wait are told. */
void rs_streams_free(rs_agent *agent);

#endif
