/* A sender: its path, what it sends and how far ahead, its overlay children. */
#ifndef RS_CORE_RDCM_SENDER_H
#define RS_CORE_RDCM_SENDER_H

#include "core/rdcm/rdcm.h"

const char *rs_rdcm_begin(rs_node *node, rs_time now, rs_sending *x);
void rs_rdcm_advance(rs_node *node, rs_time now, rs_sending *x);
void rs_rdcm_schedule(rs_node *node, rs_time now, rs_sending *x);
bool rs_rdcm_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);
rs_rx_verdict rs_rdcm_sender_datagram(rs_node *node, rs_time now, rs_sending *x, const rs_packet_in *packet);
rs_rx_verdict rs_rdcm_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *from, const rs_message *m);
void rs_rdcm_sender_timeout(rs_node *node, rs_time now, rs_sending *x);
/* Its overlay children; NULL: all receivers. False: out of memory, nothing has changed. */
bool rs_rdcm_take_children(rs_node *node, rs_time now, rs_sending *x, const rs_peer *children, uint32_t count);
void rs_rdcm_find_limit(rs_sending *x);
void rs_rdcm_on_receiver_removed(rs_node *node, rs_time now, rs_recipient *r); /* done or failed */
rs_time rs_rdcm_sender_due(const rs_node *node, const rs_sending *x);
void rs_rdcm_sender_stats(const rs_node *node, const rs_sending *x, rs_xfer_stats *out);
void rs_rdcm_stream_lost_path(rs_node *node, rs_time now, rs_sending *x);

#endif
