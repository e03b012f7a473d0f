/* The receiver's side of the engine for wide areas: what it says of sections, and when. */
#ifndef RS_CORE_WAN_RECEIVER_H
#define RS_CORE_WAN_RECEIVER_H

#include "core/wan/state.h"

bool rs_wan_accept(rs_node *node, rs_time now, rs_receiving *x);
rs_rx_result rs_wan_data(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                         const rs_packet_in *packet);
rs_rx_result rs_wan_repair_datagram(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet);
/* REPORT_TO: its place in the tree of NACKs. */
rs_rx_verdict rs_wan_told(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
rs_rx_verdict rs_wan_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
bool rs_wan_poll_status(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out);
bool rs_wan_request(rs_node *node, rs_time now, rs_receiving *x, rs_message *m, bool *more);
void rs_wan_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_wan_receiver_due(const rs_receiving *x);
void rs_wan_connected(rs_node *node, rs_time now, rs_receiving *x);
void rs_wan_receiver_free(rs_node *node, rs_receiving *x);

#endif
