/* A receiver: packets of the tree and from peers, losses and the window (Sec. 3.5), what is asked of the sender
 * (Sec. 3.4). */
#ifndef RS_CORE_RDCM_RECEIVER_H
#define RS_CORE_RDCM_RECEIVER_H

#include "core/rdcm/rdcm.h"

/* one handler per packet */
bool rs_rdcm_accept(rs_node *node, rs_time now, rs_receiving *x);
rs_rx_result rs_rdcm_tree_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h);
rs_rx_result rs_rdcm_receiver_datagram(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet);
void rs_rdcm_refused(rs_node *node, rs_time now, rs_receiving *x, rs_peer from, uint64_t sn);
rs_rx_result rs_rdcm_patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn);
void rs_rdcm_leaves(rs_node *node, rs_rdcm *r); /* nobody repairs to it any more */
void rs_rdcm_verified(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_ended(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_receiver_stats(const rs_node *node, const rs_receiving *x, rs_xfer_stats *out);
rs_rx_verdict rs_rdcm_open_again(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
void rs_rdcm_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x); /* it may have ended after this */
rs_time rs_rdcm_receiver_due(const rs_node *node, const rs_receiving *x);
void rs_rdcm_receiver_finished(rs_node *node, rs_receiving *x); /* keeps what answers late repairs, if it has all */

/* losses on the tree and the window (Sec. 3.5) */
void rs_rdcm_congestion_start(rs_receiving *x);
void rs_rdcm_congestion_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h, bool fresh);
void rs_rdcm_congestion_look(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_rdcm_congestion_due(const rs_node *node, const rs_rdcm *r);

/* what nobody repairs is asked of the sender (Sec. 3.4) */
void rs_rdcm_request_look(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_request_moved(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_request_refused(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn); /* its bytes were wrong */
bool rs_rdcm_says(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);

/* who is left out by the tree */
void rs_rdcm_starved_look(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind); /* its successor has spoken */
bool rs_rdcm_starves(const rs_rdcm *r, rs_ring_kind kind);

#endif
