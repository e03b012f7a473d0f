/* Republic's operations (docs/republic.md), for its row in the table of engines. */
#ifndef RS_CORE_REPUBLIC_REPUBLIC_H
#define RS_CORE_REPUBLIC_REPUBLIC_H

#include "core/transfer/engine.h"

extern const rs_engine rs_engine_republic;

/* Attempt sending, high rate, the stop rule: sender_session.c */
const char *rs_republic_path_granted(rs_node *node, rs_time now, rs_sending *x);
void rs_republic_advance(rs_node *node, rs_time now, rs_sending *x); /* a light, an answer, the position has changed */
void rs_republic_lit(rs_time now, rs_sending *x);
void rs_republic_sender_timeout(rs_node *node, rs_time now, rs_sending *x);
rs_time rs_republic_sender_due(const rs_sending *x);
void rs_republic_sender_news(rs_node *node, rs_time now, rs_sending *x, const rs_news *news);
void rs_republic_sender_stop(rs_node *node, rs_sending *x);

/* transmit.c */
void rs_republic_schedule(rs_node *node, rs_time now, rs_sending *x); /* among the ready, or its timer is set */
bool rs_republic_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);

/* republic/sender.c */
rs_rx_verdict rs_republic_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r,
                                         const rs_message *m);

/* republic/receiver.c */
bool rs_republic_begin(rs_node *node, rs_time now, rs_receiving *x);
rs_rx_result rs_republic_data(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                              const rs_packet_in *packet);
void rs_republic_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
void rs_republic_connected(rs_node *node, rs_time now, rs_receiving *x);
void rs_republic_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_republic_receiver_due(const rs_receiving *x);
void rs_republic_whole(rs_node *node, rs_time now, rs_receiving *x); /* if it is */
bool rs_republic_say(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);

#endif
