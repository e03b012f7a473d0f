/* Small datagrams that wait to be sent, and what was given out until the next call. */
#ifndef RS_CORE_GROUPS_OUTBOX_H
#define RS_CORE_GROUPS_OUTBOX_H

#include "core/groups/state.h"

/* One at the queue's end, for nobody yet; NULL: too many wait. */
rs_gm_small *rs_gm_small_new(rs_messages *node);
/* The same datagram, filled in, to a peer, or to a group's channel. */
void rs_gm_small_to_peer(rs_gm_small *small, rs_peer peer, uint32_t length);
void rs_gm_small_to_group(rs_gm_small *small, rs_group channel, uint32_t length);
bool rs_gm_poll_small(rs_messages *node, rs_messages_out *out);
/* What was given out is the node's again. */
void rs_gm_take_back(rs_messages *node);
void rs_gm_smalls_free(rs_messages *node);

#endif
