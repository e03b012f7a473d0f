/* What this node sends to regions, ACKs and NAKs for it, and all output. */
#ifndef RS_CORE_QSM_SEND_H
#define RS_CORE_QSM_SEND_H

#include "core/qsm/state.h"

/* Nodes that it has to bring packets to. */
uint32_t rs_qsm_out_others(const rs_qsm_view *view);
rs_qsm_out *rs_qsm_out_of(rs_qsm_view *view, rs_time now); /* made if need be; NULL: out of memory */
void rs_qsm_out_free(rs_qsm_view *view);
/* Whether a message of this length may be added. `packets`: new ones that it needs in views asked before, counted on:
 * all of a node's packets have one bound. */
bool rs_qsm_out_has_room(const rs_qsm_view *view, uint32_t length, uint32_t *packets);
bool rs_qsm_out_add(rs_qsm_view *view, rs_time now, const rs_qsm_inner *inner);
/* Collective: all have it, and all that cache it. */
void rs_qsm_out_acked(rs_qsm_view *view, rs_time now, uint64_t stable, uint64_t cached);
/* What else the region says with an ACK: rate control. */
void rs_qsm_out_told(rs_qsm_view *view, rs_time now, const rs_qsm_ack *ack);
const rs_qsm_own_packet *rs_qsm_out_packet(const rs_qsm_view *view, uint64_t sn);
bool rs_qsm_receive_ack(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
bool rs_qsm_receive_nak(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
void rs_qsm_out_timeout(rs_qsm_view *view, rs_time now);
rs_time rs_qsm_out_deadline(const rs_qsm_view *view);
bool rs_qsm_poll(void *own, rs_time now, rs_messages_out *out);
/* When small datagrams, or packets to be forwarded, that wait may go; RS_NEVER: none wait. */
rs_time rs_qsm_control_deadline(const rs_qsm *own);
/* Room for a small datagram to that peer; NULL: too many wait, or out of memory. */
uint8_t *rs_qsm_small_new(rs_qsm *own, rs_peer to, uint32_t length);
/* The packet goes to a peer that misses it, if it is here. */
void rs_qsm_forward_to(rs_qsm_view *view, rs_peer sender, uint64_t sn, rs_peer peer);
void rs_qsm_forwards_forget(rs_qsm *own, const rs_qsm_view *view);
void rs_qsm_take_back(void *own);

#endif
