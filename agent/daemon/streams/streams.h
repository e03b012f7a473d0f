/* Continuing streams of programs (docs/agent.md): bytes that one program writes into a socket come out of sockets of
 * programs on many servers, by RDCM. What is kept of one is a window. */
#ifndef RS_DAEMON_STREAMS_H
#define RS_DAEMON_STREAMS_H

#include "daemon/agent.h"

#define RS_STREAM_BYTES (UINT64_C(16) << 20) /* kept of each stream at most, here and at each receiver */
#define RS_STREAMS_MOST 64u                  /* of each direction */

/* ---- streams/send.c: a program's bytes go out. Calls may end in rs_sending_cancel; the core tells of it later. */

/* Takes `fd` over. NULL: memory is short (`fd` is closed). */
rs_stream_source *rs_stream_source_new(rs_agent *agent, rs_sending *sending, int fd);
void rs_stream_source_free(rs_stream_source *source);
/* Where a fragment lies that the core sends. */
const uint8_t *rs_stream_source_at(const rs_stream_source *source, uint64_t offset);
uint64_t rs_stream_source_bytes(const rs_stream_source *source); /* of the program, so far */
/* The core has begun, or its window has moved. */
void rs_stream_source_moved(rs_stream_source *source);
rs_time rs_stream_source_deadline(const rs_stream_source *source);
void rs_stream_source_timeout(rs_stream_source *source);
/* STREAM_END of a program. */
void rs_stream_end_api(void *agent, const rs_api_call *call, const rs_object_id *id, uint64_t bytes);

/* ---- receive.c: bytes go to a program. The transfer may have begun or not, and the program be there or not. */

/* A stream is coming in. NULL with words in `cause`: it cannot be taken. rs_stream_sink_begin when the core has it. */
rs_stream_sink *rs_stream_sink_new(rs_agent *agent, const rs_incoming *info, char *cause, size_t size);
void rs_stream_sink_begin(rs_stream_sink *sink, rs_xfer xfer);
/* `cause`: why there is no more of it, for the program that reads it, if that has not had all. */
void rs_stream_sink_free(rs_stream_sink *sink, const char *cause);
uint8_t *rs_stream_sink_at(const rs_stream_sink *sink, uint64_t offset);
uint64_t rs_stream_sink_bytes(const rs_stream_sink *sink); /* that the program had */
void rs_stream_sink_moved(rs_stream_sink *sink);
/* All of it is here. */
void rs_stream_sink_complete(rs_stream_sink *sink);
/* STREAM_RECEIVE of a program. */
void rs_stream_take_api(void *agent, const rs_api_take *take);

/* Of all streams. */
rs_time rs_streams_deadline(const rs_agent *agent);
void rs_streams_timeout(rs_agent *agent);
/* The agent ends: programs that wait are told. */
void rs_streams_free(rs_agent *agent);

#endif
