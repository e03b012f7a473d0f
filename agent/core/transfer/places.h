/* Receivers of a transfer rack by rack, for trees by which they report (feedback/tree.h): who is where. */
#ifndef RS_CORE_TRANSFER_PLACES_H
#define RS_CORE_TRANSFER_PLACES_H

#include "core/feedback/tree.h"
#include "core/transfer/state.h"

typedef struct {
    rs_wire_place at; /* Address and port. */
    uint64_t rack;    /* What servers of a rack have in common. */
    uint32_t place;   /* Among the sending's recipients. */
} rs_ordered;

/* Where a peer is reached, for others. RS_NO_PEER: this node itself. False: not known. */
bool rs_place_on_wire(const rs_node *node, rs_peer peer, rs_wire_place *out);
/* Its agent knows REPORT_TO. */
bool rs_knows_tree(const rs_node *node, const rs_recipient *r);
/* Those of whom `takes` holds, by racks. The sender's own rack comes last, so that its head is above no other rack's:
 * what it repaired for them would share the rack's way out with the data. NULL: not all are where others can be told of
 * them, or out of memory. To be given back to the node's allocator. */
rs_ordered *rs_order_by_racks(rs_node *node, const rs_sending *x,
                              bool (*takes)(const rs_node *node, const rs_sending *x, const rs_recipient *r),
                              uint32_t *count);
/* Their tree. Where each rack begins is put in `starts`: room for `count`, to be kept as long as the tree. */
rs_tree rs_tree_by_racks(const rs_node *node, const rs_ordered *order, uint32_t count, uint32_t *starts);

#endif
