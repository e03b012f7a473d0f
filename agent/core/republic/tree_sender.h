/* The sender's side of collected reports (docs/feedback.md): by which tree receivers report, and who takes the place of
 * one that fails or lies. */
#ifndef RS_CORE_REPUBLIC_TREE_SENDER_H
#define RS_CORE_REPUBLIC_TREE_SENDER_H

#include "core/republic/state.h"

/* A path was granted: whether and by which tree the session's receivers report. False: out of memory, and what is
 * sent cannot follow anybody's reports. */
bool rs_tree_begin(rs_node *node, rs_time now, rs_sending *x);
/* It has light while others are served: until it reports it counts as one of them. */
void rs_tree_late(const rs_sending *x, rs_recipient *r);
void rs_tree_accepted(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r);
/* By a connection of its own: what was told to it by another one may not have come. */
void rs_tree_connected(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r);
/* It is done, failed, out of reach, or off the data channel. */
void rs_tree_on_receiver_removed(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r);
bool rs_tree_tell(const rs_node *node, const rs_sending *x, const rs_recipient *r, uint32_t what, rs_message *m);
rs_rx_verdict rs_tree_report(rs_node *node, rs_time now, rs_sending *x, const rs_packet_in *packet);
/* RATE of one that is no speaker: does it agree with what was said for it? `pos`, and losses, are what it says. */
void rs_tree_sample(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r, uint64_t pos, uint32_t lossy_ppm);
void rs_tree_sender_free(rs_node *node, rs_sending *x);

#endif
