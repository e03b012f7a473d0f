/* Republic's sender (Sec. III-A1): attempt sending until receivers have light, high rate for one whole round of each.
 * One function for each operation of the engine, and one for each message of Table III that is its. */
#ifndef RS_CORE_REPUBLIC_SENDER_H
#define RS_CORE_REPUBLIC_SENDER_H

#include "core/republic/state.h"

const char *rs_republic_path_granted(rs_node *node, rs_time now, rs_sending *x);
void rs_republic_advance(rs_node *node, rs_time now, rs_sending *x); /* a light, an answer, the position has changed */
void rs_republic_sender_timeout(rs_node *node, rs_time now, rs_sending *x);
rs_time rs_republic_sender_due(const rs_sending *x);
void rs_republic_sender_news(rs_node *node, rs_time now, rs_sending *x, const rs_news *news);
void rs_republic_sender_stop(rs_node *node, rs_sending *x);
bool rs_republic_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);
rs_rx_verdict rs_republic_sender_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r,
                                         const rs_message *m);
/* The path is not needed any more; `complete`: nobody misses anything, as far as is known. */
void rs_sender_data_over(rs_node *node, rs_time now, rs_sending *x, bool complete);

#endif
