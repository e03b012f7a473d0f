/* A receiver carries control messages between the sender and other receivers (docs/feedback.md, "Carried messages"):
 * what the sender tells several goes to each by a connection from here; of what they answer, what is the same is told
 * together. */
#ifndef RS_CORE_TRANSFER_RELAY_H
#define RS_CORE_TRANSFER_RELAY_H

#include "core/transfer/state.h"

void rs_carry_relay_free(rs_node *node, rs_receiving *x);
/* From the sender. */
rs_rx_verdict rs_carry_relay_told(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);  /* CARRY_TO */
rs_rx_verdict rs_carry_relay_carry(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m); /* CARRY */
/* From one that is carried to: CARRIED. */
rs_rx_verdict rs_carry_relay_answer(rs_node *node, rs_time now, rs_receiving *x, rs_peer from, const rs_message *m);
/* CARRY to the sender. */
bool rs_carry_relay_says(rs_time now, rs_node *node, rs_receiving *x, rs_message *m, bool *more);
rs_time rs_carry_relay_due(const rs_receiving *x);
void rs_carry_relay_timeout(rs_node *node, rs_time now, rs_receiving *x);

#endif
