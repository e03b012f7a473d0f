/* Sec. 3.4, Link Failure. Ours: a receiver to whom nothing comes by the tree knows that before its predecessor can
 * infer it from repairs, which are few where hosts are busy. The ACKs of its successors show that packets come to them
 * by the tree, while to itself none does: then its own ACKs say so, and the predecessor, who has the packets by the
 * tree, reports it.
 *
 * A single failed link cuts off one of a leaf ring, or all of it. In the first case its successor there has a tree; in
 * the second only that of the proxy, in the ring above. */
#include "core/rdcm/rdcm.h"

#define AHEAD_LEAST 16 /* packets that a successor is ahead of what came here by the tree */
#define ACKS_LEAST 3   /* in a row: one may have waited in a socket, before packets that wait in another */

void rs_rdcm_starved_look(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind) {
    const rs_rdcm_watch *w = &r->rings[kind].successor, *leaf = &r->rings[RS_RING_LEAF].successor;
    rs_rdcm_starving *s = &r->starving[kind];
    rs_time bound = rs_rdcm_options(node)->link_bound;
    /* An old word does not count: of one that is cut off too, nothing comes that would take it back. */
    bool leaf_has = kind == RS_RING_PROXY && leaf->in_use && leaf->by_tree && now - leaf->heard_at < bound;
    if (leaf_has || s->version != r->version || r->tree_at > s->since)
        *s = (rs_rdcm_starving){.since = now, .version = r->version};
    if (leaf_has || !w->by_tree || w->acked.top < r->tree_top + AHEAD_LEAST)
        return;
    s->acks++;
    if (s->told || s->acks < ACKS_LEAST || now - s->since < bound)
        return;
    s->told = true;
    rs_rdcm_say_all(node, r, kind);
}

bool rs_rdcm_starves(const rs_rdcm *r, rs_ring_kind kind) {
    const rs_rdcm_starving *s = &r->starving[kind];
    return s->told && s->version == r->version && r->tree_at <= s->since;
}
