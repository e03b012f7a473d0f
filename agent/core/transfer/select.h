/* Which engine a transfer goes by. */
#ifndef RS_CORE_TRANSFER_SELECT_H
#define RS_CORE_TRANSFER_SELECT_H

#include "core/transfer/engine.h"

const rs_engine *rs_engine_of(const rs_node *node, uint32_t id); /* NULL: there is none */
void rs_engine_take(rs_transfer *t, const rs_engine *engine, void *own);
void rs_engine_drop(rs_node *node, rs_transfer *t); /* what an engine remembers; the transfer goes by the fallback */
void rs_engine_notify(rs_node *node, rs_time now, rs_transfer *t, rs_news_kind what);
void rs_engine_stop(rs_node *node, rs_transfer *t);
/* Sets the transfer's timer to the earliest of `dues` and of its engine's. */
void rs_transfer_arm(rs_node *node, rs_transfer *t, const rs_time *dues, size_t count);
void rs_engine_stats(const rs_node *node, const rs_transfer *t, rs_xfer_stats *out);
/* Of a stream: its path is lost, and it goes on over the control channels; `cause`: why, for a person. */
void rs_stream_unicast(rs_node *node, rs_time now, rs_sending *x, const char *cause);

/* Options of this send, which rs_send_options_good has found good. False: out of memory. */
bool rs_engine_keep_options(rs_node *node, rs_sending *x, const rs_engine *engine, const char *options);

#endif
