/* RATE at the sender: its rate follows what receivers report. */
#ifndef RS_CORE_REPUBLIC_FEEDBACK_SENDER_H
#define RS_CORE_REPUBLIC_FEEDBACK_SENDER_H

#include "core/feedback/report.h"
#include "core/republic/state.h"

/* Switches give control a fiftieth of each port (docs/operating.md, "Egress queues"), of the sender's own too. More
 * reports than fit wait there, and tell ever older positions: so they are a 64th of the data. */
#define RS_REPORT_WIRE 192u /* on the wire, with the headers of TCP (wire) */
#define RS_REPORT_PART 64   /* docs/operating.md */

bool rs_holds_back(const rs_sending *x, const rs_recipient *r, rs_time now); /* others wait for it */
void rs_rate_recompute(rs_node *node, rs_time now, rs_sending *x);           /* others count than before */
void rs_rate_begin(rs_sending *x, rs_time now);                              /* high rate begins */
rs_time rs_reports_least(const rs_sending *x);    /* between two packets that ask for reports */
uint64_t rs_report_interval(const rs_sending *x); /* packets between them */
/* A collected report, and the position of the one that is furthest behind. */
void rs_report_taken(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_report *report,
                     uint64_t least);
rs_rx_verdict rs_on_rate(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
void rs_rate_apply(rs_sending *x);

#endif
