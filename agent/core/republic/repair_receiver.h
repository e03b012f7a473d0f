/* Repairs by multicast, at a receiver: repair packets, and telling by maps what is missing. */
#ifndef RS_CORE_REPUBLIC_REPAIR_RECEIVER_H
#define RS_CORE_REPUBLIC_REPAIR_RECEIVER_H

#include "core/republic/state.h"

rs_rx_result rs_receiver_repair(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet);
void rs_map_soon(rs_node *node, rs_time now, rs_receiving *x);
void rs_map_timeout(rs_node *node, rs_time now, rs_receiving *x);
void rs_next_map(rs_time now, rs_receiving *x, rs_message *m);

#endif
