/* Pieces of an object whose digest is wrong: a receiver fetches them once more. */
#ifndef RS_CORE_TRANSFER_PIECES_H
#define RS_CORE_TRANSFER_PIECES_H

#include "core/transfer/state.h"

bool rs_pieces_wait(const rs_receiving *x); /* for the sender */
bool rs_leaf_request(const rs_receiving *x, rs_message *m);
rs_rx_result rs_on_leaves(rs_node *node, rs_receiving *x, const rs_message *m);
void rs_again_free(rs_node *node, rs_receiving *x);
void rs_again_ask(rs_node *node, rs_time now, rs_receiving *x);
/* PTCH_REQ for [from, to), named in the ring of the object. Returns its end: all of a ring has no name of its own. */
uint64_t rs_request_object(const rs_transfer *t, uint64_t from, uint64_t to, rs_message *m);
bool rs_again_pending(const rs_receiving *x);
bool rs_again_request(rs_receiving *x, rs_message *m);
rs_rx_result rs_again_patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn);
rs_rx_verdict rs_on_leaf_req(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m);
bool rs_leaves_said(const rs_sending *x, const rs_recipient *r, rs_message *m);

#endif
