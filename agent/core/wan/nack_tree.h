/* At the sender: the tree by which many receivers' NACKs come (docs/wan.md, "Many receivers"). Who stands where, and
 * what receivers are told of it (REPORT_TO). */
#ifndef RS_CORE_WAN_NACK_TREE_H
#define RS_CORE_WAN_NACK_TREE_H

#include "core/wan/state.h"

/* Made of those that have accepted, if they are more than rs_config.direct_receivers. False: all report directly. */
bool rs_wan_tree_begin(rs_node *node, rs_time now, rs_sending *x);
bool rs_wan_tree_tell(const rs_node *node, const rs_sending *x, const rs_recipient *r, uint32_t what, rs_message *m);
/* It passes nothing on any more: those below it say it to the one above it. */
void rs_wan_tree_without(rs_node *node, rs_time now, rs_sending *x, const rs_recipient *r);
void rs_wan_tree_free(rs_node *node, rs_wan_sender *w);

#endif
