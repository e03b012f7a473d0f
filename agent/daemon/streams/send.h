/* Continuing streams of programs (docs/agent.md), at the sender: a program's bytes go out. They come out of sockets of
 * programs on many servers, by RDCM. What is kept of a stream is a window. Calls may end in rs_sending_cancel; the core
 * tells of it later. */
#ifndef RS_DAEMON_STREAMS_SEND_H
#define RS_DAEMON_STREAMS_SEND_H

#include "daemon/data/sending.h"
#include "daemon/streams/ring.h"

#define RS_STREAM_BYTES (UINT64_C(16) << 20) /* kept of each stream at most, here and at each receiver */
#define RS_STREAMS_MOST 64u                  /* of each direction */

typedef struct rs_stream_source rs_stream_source;

/* Takes `fd` over. NULL: out of memory (`fd` is closed). */
rs_stream_source *rs_stream_source_new(rs_agent *agent, rs_send_state *sending, int fd);
void rs_stream_source_free(rs_stream_source *source);
/* Where a fragment lies that the core sends. */
const uint8_t *rs_stream_source_at(const rs_stream_source *source, uint64_t offset);
uint64_t rs_stream_source_bytes(const rs_stream_source *source); /* of the program, so far */
/* Of a stream that is sent from here, for others who have joined it. */
bool rs_stream_source_kept(const rs_agent *agent, const rs_object_id *id, rs_stream_kept *out);
/* The core has begun, or its window has moved. */
void rs_stream_source_moved(rs_stream_source *source);
rs_time rs_stream_source_deadline(const rs_stream_source *source);
void rs_stream_source_timeout(rs_stream_source *source);
/* STREAM_END of a program. */
void rs_stream_end_api(void *agent, const rs_api_call *call, const rs_object_id *id, uint64_t bytes);

#endif
