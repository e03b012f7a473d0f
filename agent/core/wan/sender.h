/* The sender's side of the engine for wide areas: what goes out, in which order, how fast, how long it is kept. */
#ifndef RS_CORE_WAN_SENDER_H
#define RS_CORE_WAN_SENDER_H

#include "core/wan/state.h"

const char *rs_wan_begin(rs_node *node, rs_time now, rs_sending *x);
bool rs_wan_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);
rs_rx_verdict rs_wan_on_status(rs_node *node, rs_time now, rs_sending *x, const rs_packet_in *packet);
rs_rx_verdict rs_wan_on_request(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
void rs_wan_sender_timeout(rs_node *node, rs_time now, rs_sending *x);
rs_time rs_wan_sender_due(const rs_sending *x);
void rs_wan_sender_news(rs_node *node, rs_time now, rs_sending *x, const rs_news *news);
void rs_wan_sender_stop(rs_node *node, rs_sending *x);
void rs_wan_sender_free(rs_node *node, rs_sending *x);
void rs_wan_sender_stats(const rs_sending *x, rs_xfer_stats *out);

#endif
