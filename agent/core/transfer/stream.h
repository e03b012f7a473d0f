/* Streams: transfers without a known end, and the window that moves along them. */
#ifndef RS_CORE_TRANSFER_STREAM_H
#define RS_CORE_TRANSFER_STREAM_H

#include "core/transfer/state.h"

void rs_stream_released(rs_node *node, rs_transfer *t, uint64_t low); /* below, nobody needs anything from here */
uint64_t rs_stream_past(const rs_transfer *t);                        /* one past what there is room for */
/* Of a packet of the data channel, of an object or a stream: it is a fragment that is here, or is no fragment. */
bool rs_receiving_has(const rs_node *node, const rs_packet_in *packet);

#endif
