/* How one view ends and the next begins. */
#ifndef RS_CORE_ORDER_FLUSH_H
#define RS_CORE_ORDER_FLUSH_H

#include "core/order/state.h"

/* Whether this member coordinates what the membership wants. */
bool rs_order_leads(const rs_order *o);
void rs_order_flush_begin(rs_order *o, rs_time now, uint64_t epoch);
void rs_order_flush_end(rs_order *o);
void rs_order_install_free(rs_order *o);
/* Messages of the kinds from REQUEST on. False: malformed. */
bool rs_order_flush_receive(rs_order *o, rs_time now, rs_peer from, rs_order_kind kind, uint64_t epoch,
                            const uint8_t *bytes, size_t length);
/* Something came that says that the view of that number holds. */
void rs_order_implied(rs_order *o, rs_time now, uint64_t epoch);
/* What came may be all that the install waited for. */
void rs_order_install_look(rs_order *o, rs_time now);
void rs_order_flush_tick(rs_order *o, rs_time now);

#endif
