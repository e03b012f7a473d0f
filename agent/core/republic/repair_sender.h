/* Repairs by multicast, at the sender. */
#ifndef RS_CORE_REPUBLIC_REPAIR_SENDER_H
#define RS_CORE_REPUBLIC_REPAIR_SENDER_H

#include "core/republic/state.h"

void rs_repair_begin_session(rs_node *node, rs_sending *x);
void rs_repair_high_rate(rs_sending *x);
void rs_repair_asked(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, uint64_t from, uint64_t to);
rs_rx_verdict rs_on_ptch_map(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
/* It is done, failed, or its connection is down. */
void rs_repair_on_receiver_removed(rs_time now, rs_sending *x, const rs_recipient *r);
bool rs_repair_poll(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);
void rs_repair_data_sent(rs_sending *x);
/* The round is over. True: the path is kept, and rs_sender_data_over follows. */
bool rs_repair_tail(rs_node *node, rs_time now, rs_sending *x);
void rs_repair_timeout(rs_node *node, rs_time now, rs_sending *x);
void rs_repair_end(rs_node *node, rs_sending *x);

/* There is something to send in the tail. */
static inline bool rs_repair_tail_sends(const rs_sending *x) {
    const rs_repairing *p = &rs_republic_sender_of(x)->repair;
    return rs_repair_in_tail(p) && (p->marks || p->tail_due == RS_NEVER);
}

#endif
