/* A receiving transfer, from INCOMING to RECEIVE_DONE: packets and messages, waits that end. */
#ifndef RS_CORE_TRANSFER_RECEIVER_H
#define RS_CORE_TRANSFER_RECEIVER_H

#include "core/transfer/state.h"

/* ---- data packets and one handler per message */
rs_rx_result rs_receiver_data(rs_node *node, rs_time now, const rs_packet_in *packet);
rs_receiving *rs_receiving_of_packet(rs_node *node, uint64_t nonce);
rs_rx_result rs_receiver_store(rs_receiving *x, uint64_t sn);
rs_rx_result rs_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m,
                                 const rs_packet_in *packet);
/* The session's data channel is over, says its sender, or who was told by it. */
rs_rx_verdict rs_on_data_fnsd(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
/* Of that peer, as `by` says: itself, or who carries. */
rs_rx_verdict rs_on_open(rs_node *node, rs_time now, rs_peer peer, rs_peer by, const rs_message *m);

/* ---- from INCOMING to RECEIVE_DONE */
void rs_receiver_finish(rs_node *node, rs_time now, rs_receiving *x, uint32_t final_control, const char *cause);
/* OPEN of a further session: where its data channel is. */
void rs_receiver_next_session(rs_node *node, rs_receiving *x, const rs_message *m);
void rs_receiver_end(rs_node *node, rs_time now, rs_receiving *x, bool ok, uint32_t final_control, const char *cause);
#define RS_LEFT "this receiver left"
void rs_receiver_left(rs_node *node, rs_time now, rs_receiving *x);     /* it has left, and nobody needs it any more */
void rs_receiver_complete(rs_node *node, rs_time now, rs_receiving *x); /* it is */
/* The sender's answer to who asked it by a datagram (transfer/proof.h). False: it is none. */
bool rs_receiver_told(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet);
/* All is here: the caller checks the digest, and tells what it finds. */
void rs_receiver_await_check(rs_node *node, rs_time now, rs_receiving *x);
/* What the sender says comes by that peer: while it has no connection of its own here, so do answers. */
void rs_receiver_carried(rs_node *node, rs_time now, rs_receiving *x, rs_peer by);
/* A message of the sender by who carries: whatever is false in it costs time, not the object. */
rs_rx_verdict rs_receiver_hearsay(rs_node *node, rs_time now, rs_receiving *x, rs_peer by, const rs_message *m);
void rs_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_receiver_request_timeout(const rs_receiving *x); /* until what was asked for is asked for again */
void rs_receiver_arm(rs_node *node, rs_receiving *x);
void rs_receiver_free(rs_node *node, rs_transfer *t);
void rs_receiver_make_place(rs_node *node, rs_time now,
                            const rs_peer_state *newcomer); /* NULL: for a transfer that this node sends */
void rs_receiver_stats(const rs_node *node, const rs_receiving *x, rs_xfer_stats *out);
/* Of a stream: its end is known. False: it went further. */
bool rs_stream_ends(rs_node *node, rs_time now, rs_receiving *x, uint64_t size);

#endif
