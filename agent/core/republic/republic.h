/* Republic's operations (docs/republic.md), for its row in the table of engines. */
#ifndef RS_CORE_REPUBLIC_REPUBLIC_H
#define RS_CORE_REPUBLIC_REPUBLIC_H

#include "core/transfer/state.h"

extern const rs_engine rs_engine_republic;

/* Attempt sending, high rate, the stop rule: sender_session.c */
const char *rs_republic_begin(rs_node *node, rs_time now, rs_sending *x);
void rs_republic_path_moved(rs_node *node, rs_time now, rs_sending *x, rs_path_kind kind);
void rs_republic_resume(rs_node *node, rs_time now, rs_sending *x);
void rs_republic_advance(rs_node *node, rs_time now, rs_sending *x);

/* transmit.c */
void rs_republic_schedule(rs_node *node, rs_time now, rs_sending *x);
bool rs_republic_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);

/* republic/sender.c */
rs_rx_verdict rs_republic_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);

/* republic/receiver.c */
void rs_republic_accepted(rs_node *node, rs_time now, rs_receiving *x);
rs_rx_result rs_republic_data(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h);
rs_rx_result rs_republic_patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn);
void rs_republic_data_over(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
bool rs_republic_says(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);

#endif
