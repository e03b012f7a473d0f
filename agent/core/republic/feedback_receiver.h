/* RATE at a receiver: what it reports, and when. */
#ifndef RS_CORE_REPUBLIC_FEEDBACK_RECEIVER_H
#define RS_CORE_REPUBLIC_FEEDBACK_RECEIVER_H

#include "core/republic/state.h"

void rs_report_own(const rs_node *node, rs_time now, const rs_receiving *x, rs_message *m); /* what it saw so far */
void rs_report_fill(const rs_node *node, rs_time now, rs_receiving *x, rs_message *m);
/* Between two reports or maps that nobody asked for; `least` if that is more. */
rs_time rs_report_least(const rs_receiving *x, rs_time least);
void rs_report_asked(rs_node *node, rs_time now, rs_receiving *x); /* by a packet */
void rs_report_soon(rs_node *node, rs_time now, rs_receiving *x);
void rs_report_activity(rs_node *node, rs_time now, rs_receiving *x);
void rs_report_timeout(rs_node *node, rs_time now, rs_receiving *x);

#endif
