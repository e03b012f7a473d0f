/* Republic's receiver (Sec. III-A2, III-A3): light, losses, and asking for what is missing. */
#ifndef RS_CORE_REPUBLIC_RECEIVER_H
#define RS_CORE_REPUBLIC_RECEIVER_H

#include "core/republic/state.h"

bool rs_republic_begin(rs_node *node, rs_time now, rs_receiving *x);
rs_rx_result rs_republic_data(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h,
                              const rs_packet_in *packet);
void rs_republic_receiver_message(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
void rs_republic_connected(rs_node *node, rs_time now, rs_receiving *x);
void rs_republic_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_republic_receiver_due(const rs_receiving *x);
bool rs_republic_say(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);

/* ---- for the other ways in which a fragment comes, or is asked for */
rs_rx_result rs_republic_store(rs_node *node, rs_receiving *x, uint64_t sn, bool to_all);
void rs_republic_check_complete(rs_node *node, rs_time now, rs_receiving *x); /* if it is */
void rs_request_schedule(rs_node *node, rs_time now, rs_receiving *x);
uint32_t rs_due_ranges(const rs_receiving *x, rs_range out[3]); /* where what is not here should be, in order */
void rs_request_restart(rs_node *node, rs_time now, rs_receiving *x, rs_asks how); /* forgets what was asked for */
/* Requests or patches may be lost: once more for all that is due. */
void rs_request_repeat(rs_node *node, rs_time now, rs_receiving *x);
/* The data channel is over: what is not here is due, and asked for. */
void rs_request_rest(rs_node *node, rs_time now, rs_receiving *x);
/* What is due as ranges of the object, for the one it reports to; returns how many. */
uint32_t rs_next_ranges(rs_time now, rs_receiving *x, rs_range *out, uint32_t most);

#endif
