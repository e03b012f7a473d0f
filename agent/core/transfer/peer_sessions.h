/* Connections to peers: what is to be said and sent on them, in what order; and what goes out on data channels. */
#ifndef RS_CORE_TRANSFER_PEER_SESSIONS_H
#define RS_CORE_TRANSFER_PEER_SESSIONS_H

#include "core/transfer/state.h"

/* ---- connections to peers */
void rs_peer_session_attach(rs_peer_session *link, const rs_talk *talk, rs_peer_state *peer, rs_transfer *transfer,
                            rs_time now);
void rs_peer_session_end(rs_node *node, rs_peer_session *link);
/* From now on what is said goes by the connection to that one; NULL: by its own. */
void rs_peer_session_go_by(rs_node *node, rs_time now, rs_peer_session *link, rs_peer_state *via);
/* The bit that is said next, of RS_CONTROL_*; 0: none. */
uint32_t rs_peer_session_next(const rs_peer_session *link);
/* Makes the message for a bit. False: it no longer matters. */
bool rs_peer_session_makes(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what, rs_message *m, bool *more);
const char *rs_peer_session_cause(const rs_peer_session *link); /* its text, never NULL */
void rs_control_set_pending(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what);
void rs_control_clear(rs_node *node, rs_time now, rs_peer_session *link, uint32_t what);
void rs_patch_ready(rs_node *node, rs_time now, rs_peer_session *link, bool ready);
void rs_unknown_transfer_answer(rs_node *node, rs_time now, rs_peer peer, const rs_message *about, rs_message_type type,
                                const char *cause);
void rs_peer_timeout(rs_node *node, rs_time now, rs_peer_state *peer);
void rs_ping(rs_node *node, rs_time now, rs_peer_session *link);
void rs_on_ping(rs_node *node, rs_time now, rs_peer_session *link, const rs_message *m);
void rs_on_pong(rs_time now, rs_peer_session *link, const rs_message *m);

/* ---- the data channel's output */
/* It sends next at `due`: it is among the ready, or its timer is set. */
void rs_data_schedule(rs_node *node, rs_time now, rs_sending *x, rs_time due);
void rs_data_stop(rs_node *node, rs_sending *x);
void rs_data_packet(const rs_sending *x, const rs_data_header *header, rs_packet_out *out); /* to the group */
rs_time rs_data_deadline(const rs_node *node);
uint32_t rs_wire_bytes(const rs_packet_out *out); /* what it costs on an Ethernet wire */

#endif
