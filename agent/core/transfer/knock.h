/* Of many receivers that are told the same some answer late, as the message was lost that tells them, or their answer.
 * TCP finds out soon when something later has come (RFC 8985); a last message alone waits for its time-out, of 20 ms at
 * best, for which all would wait. So who has not answered when most have is said something more. */
#ifndef RS_CORE_TRANSFER_KNOCK_H
#define RS_CORE_TRANSFER_KNOCK_H

#include "core/transfer/state.h"

/* OPEN goes out to those of the present session. */
void rs_knock_begin(rs_time now, rs_sending *x);
void rs_knock_timeout(rs_node *node, rs_time now, rs_sending *x);

#endif
