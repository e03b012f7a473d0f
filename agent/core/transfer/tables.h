/* Who is who: transfers by id, object and nonce; peers. */
#ifndef RS_CORE_TRANSFER_TABLES_H
#define RS_CORE_TRANSFER_TABLES_H

#include "core/transfer/state.h"

rs_peer_state *rs_find_peer(const rs_node *node, rs_peer id);
rs_peer_state *rs_make_peer(rs_node *node, rs_peer id); /* finds or makes; NULL if out of memory */
void rs_drop_peer_if_idle(rs_node *node, rs_peer_state *peer);
void rs_free_peer(rs_node *node, rs_peer_state *peer);
rs_status rs_enter(rs_node *node,
                   rs_transfer *t); /* gives it an id, a place in the tables, room for timers and events */
void rs_leave(rs_node *node, rs_transfer *t);
void rs_retire(rs_node *node, rs_transfer *t); /* finished: kept a while, no longer counted */
rs_transfer *rs_by_id(const rs_node *node, rs_xfer id);
rs_sending *rs_find_sending(const rs_node *node, const rs_object_id *object);
rs_receiving *rs_find_receiving(const rs_node *node, const rs_object_id *object);
rs_transfer *rs_find_nonce(const rs_node *node, uint64_t nonce, bool sending);
uint64_t rs_random(rs_node *node);
uint64_t rs_fragments(uint64_t size, uint32_t fragment_size);
uint32_t rs_fragment_length(const rs_transfer *t, uint64_t sn);
/* Who is to end so that a transfer of that peer, or of this node (NULL), has a place; NULL: nobody. */
rs_receiving *rs_gives_place(const rs_node *node, const rs_peer_state *newcomer);

#endif
