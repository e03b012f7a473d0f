/* Streams that are joined under way, by a server that is none of their receivers: it hears their packets, and gets
 * what it missed from those receivers, who keep a window of it. The transfer does not know of it, so nobody waits for
 * it: who is slower than that window fails here. */
#ifndef RS_DAEMON_STREAMS_LATE_H
#define RS_DAEMON_STREAMS_LATE_H

#include "daemon/agent.h"
#include "daemon/pieces/wire.h"

/* STREAM_JOIN of a program. */
void rs_late_api(void *agent, const rs_api_take *take);
/* A program wants no more of it. False: none of that id is joined here. */
bool rs_late_leave(rs_agent *agent, const rs_object_id *id);

/* A data packet of no transfer to this server: where its payload belongs, if a joined stream hears it; else NULL. The
 * second: all such payloads are in their places. */
uint8_t *rs_late_packet(rs_agent *agent, rs_group group, const uint8_t *header, size_t header_length,
                        uint32_t payload_length);
void rs_late_delivered(rs_agent *agent);

/* rs_piece_server_config.runs: of what is sent from here as rs_sending_runs; of a stream that comes in, its sender. */
uint32_t rs_late_runs(void *agent, const rs_object_id *id, const char *name, rs_piece_message *out, uint32_t most);
/* For others, of a stream that is sent from here, or received: RS_PIECE_STREAM, what is kept of it. False: none. */
bool rs_late_kept(void *agent, const rs_object_id *id, rs_piece_message *out);
/* So many fragments from there on as are kept, `most` at most, behind each other at `out`, which has room for `room`
 * bytes. Returns the bytes; 0: that one is not here, or not any more. */
uint32_t rs_late_run(void *agent, const rs_object_id *id, uint64_t sn, uint32_t most, uint8_t *out, uint32_t room);

rs_time rs_late_deadline(const rs_agent *agent);
void rs_late_timeout(rs_agent *agent);
void rs_late_free(rs_agent *agent);

/* Whether a stream whose packets have that nonce is being joined. */
bool rs_late_hears(const rs_agent *agent, uint64_t nonce);

#endif
