/* Messages, whose turn it is, and who has what, while a view holds: for how it ends (flush.h). */
#ifndef RS_CORE_ORDER_DELIVERY_H
#define RS_CORE_ORDER_DELIVERY_H

#include "core/order/state.h"

rs_order_block *rs_order_block_new(rs_order *o, uint32_t length, rs_order_kind kind, uint64_t epoch);
void rs_order_block_drop(rs_order *o, rs_order_block *block);
void rs_order_seal(rs_order_block *block);
/* To a member (RS_NO_PEER: to all others); takes the block over. */
void rs_order_send(rs_order *o, rs_peer to, rs_order_block *block);
/* For the application; RS_ERR_MEMORY. */
rs_status rs_order_push(rs_order *o, const rs_order_waiting *event);
bool rs_order_log_room(rs_order *o, uint64_t known);
rs_order_block *rs_order_slot(const rs_order_sender *s, uint64_t seq);
/* What is here of the log is counted, up to its end. */
void rs_order_advance(rs_order *o, rs_time now);
/* Up to there all have it. */
void rs_order_commit_to(rs_order *o, uint64_t to);
/* The state of a view is forgotten; nothing holds. */
void rs_order_view_free(rs_order *o);
void rs_order_naks(rs_order *o, rs_time now);

#endif
