#include "core/transfer/places.h"

#include <stdlib.h>

bool rs_place_on_wire(const rs_node *node, rs_peer peer, rs_wire_place *out) {
    const rs_directory *d = &node->config.directory;
    return d->place_of(d->context, peer, &out->address, &out->port) && out->address && out->port;
}

bool rs_knows_tree(const rs_node *node, const rs_recipient *r) {
    const rs_directory *d = &node->config.directory;
    return !d->knows_tree || d->knows_tree(d->context, r->link.peer->id);
}

static int by_rack(const void *a, const void *b) {
    const rs_ordered *one = a, *other = b;
    if (one->rack != other->rack)
        return one->rack < other->rack ? -1 : 1;
    return one->at.address < other->at.address ? -1 : one->at.address > other->at.address;
}

/* Its number, or where none is told the upper bits of the addresses. */
static uint64_t rack_of(const rs_directory *d, rs_peer peer, uint32_t address) {
    uint32_t rack = d->rack_of ? d->rack_of(d->context, peer) : 0;
    return rack ? UINT64_C(1) << 32 | rack : address >> d->host_bits;
}

rs_ordered *rs_order_by_racks(rs_node *node, const rs_sending *x,
                              bool (*takes)(const rs_node *node, const rs_sending *x, const rs_recipient *r),
                              uint32_t *count) {
    const rs_directory *d = &node->config.directory;
    rs_wire_place own;
    uint64_t own_rack = rs_place_on_wire(node, RS_NO_PEER, &own) ? rack_of(d, RS_NO_PEER, own.address) : 0;
    rs_ordered *order = rs_memory_take(&node->allocator, x->recipient_count * sizeof *order);
    *count = 0;
    for (uint32_t i = 0; order && i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        if (!takes(node, x, r))
            continue;
        rs_ordered *next = &order[(*count)++];
        if (!rs_place_on_wire(node, r->link.peer->id, &next->at)) {
            rs_memory_give(&node->allocator, order);
            return NULL;
        }
        uint64_t rack = rack_of(d, r->link.peer->id, next->at.address);
        next->rack = rack == own_rack ? UINT64_MAX : rack;
        next->place = i;
    }
    if (order)
        qsort(order, *count, sizeof *order, by_rack);
    return order;
}

rs_tree rs_tree_by_racks(const rs_node *node, const rs_ordered *order, uint32_t count, uint32_t *starts) {
    uint32_t racks = 0, arity = node->config.feedback_arity;
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || order[i].rack != order[i - 1].rack)
            starts[racks++] = i;
    return (rs_tree){.starts = starts,
                     .rack_count = racks,
                     .count = count,
                     .tops = arity < RS_TREE_TOPS ? arity : RS_TREE_TOPS,
                     .arity = arity};
}
