/* A receiver that reports by a tree (docs/feedback.md): its own reports, those of others that it collects, what it
 * asks of the one it reports to instead of the sender, and what others ask of it. */
#ifndef RS_CORE_REPUBLIC_TREE_RECEIVER_H
#define RS_CORE_REPUBLIC_TREE_RECEIVER_H

#include "core/republic/state.h"

bool rs_tree_is_on(const rs_receiving *x);
/* It asks the one it reports to, not the sender, for what it misses: now; or ever. */
bool rs_tree_asks(const rs_receiving *x);
bool rs_tree_has_parent(const rs_receiving *x);
/* It says RATE so often all the same. Drawn, from half to one and a half of what was told: they began together. */
rs_time rs_tree_sample_time(rs_node *node, const rs_receiving *x);

rs_rx_verdict rs_tree_told(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m); /* REPORT_TO */
void rs_tree_session(rs_receiving *x);                                                        /* another one begins */
void rs_tree_mark(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn); /* a packet asks for a report */
void rs_tree_done(rs_node *node, rs_time now, rs_receiving *x);              /* it is not waited for any more */
void rs_tree_over(rs_node *node, rs_time now, rs_receiving *x); /* the session's data are: those below hear it here */
void rs_tree_stored(rs_node *node, rs_receiving *x, uint64_t sn, bool to_all);
void rs_tree_request(rs_node *node, rs_receiving *x); /* something to be asked for is there */
void rs_tree_retry(rs_time now, rs_receiving *x);
rs_time rs_tree_request_timeout(const rs_receiving *x); /* a request is answered within it, or is lost */
rs_rx_result rs_tree_datagram(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet);
bool rs_tree_poll(rs_node *node, rs_time now, rs_receiving *x, bool repairs, rs_packet_out *out);
void rs_tree_verified(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_tree_due(const rs_receiving *x);
void rs_tree_timeout(rs_node *node, rs_time now, rs_receiving *x); /* the transfer may have ended after this */
void rs_tree_receiver_free(rs_node *node, rs_receiving *x);

#endif
