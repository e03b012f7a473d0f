/* Views of the backup overlay (Sec. 3.2), and moving from one to the next without loss (Sec. 3.4, Repair Window
 * Management when Switching Overlay Rings): a receiver goes on acknowledging to its old predecessor, which so keeps
 * what it lacks, until the new one says that it can repair; then it tells the old one that it has left. */
#include "core/rdcm/rdcm.h"
#include "core/transfer/engine.h"

#include <string.h>

#define READY_TRIES 64
#define OLD_SILENT (1000 * RS_MS) /* an old successor that says nothing for so long is not repaired any more */

/* -------------------------------------------------------------------------------------------------- at a receiver */

/* What needs memory, made before anything is changed. */
typedef struct {
    rs_rdcm_watch watch[2];
    rs_rdcm_child *children;
    uint64_t *subtree;
} made;

static void unmake(rs_node *node, made *m) {
    rs_watch_end(node, &m->watch[0]);
    rs_watch_end(node, &m->watch[1]);
    rs_memory_give(&node->allocator, m->children);
    rs_memory_give(&node->allocator, m->subtree);
}

static bool keeps_successor(const rs_rdcm_ring *ring, const rs_ring_place *place) {
    return ring->successor.in_use && ring->successor.peer == place->successor;
}

static bool make(rs_node *node, rs_time now, rs_rdcm *r, const rs_view *v, made *m) {
    const rs_ring_place *places[2] = {&v->leaf, &v->proxy};
    *m = (made){0};
    for (int kind = 0; kind < 2; kind++)
        if (places[kind]->successor != RS_NO_PEER && !keeps_successor(&r->rings[kind], places[kind]) &&
            !rs_watch_start(node, now, r, &m->watch[kind], places[kind]->successor))
            return false;
    if (v->child_count && !(m->children = rs_memory_take(&node->allocator, v->child_count * sizeof *m->children)))
        return false;
    bool parent = v->child_count || (v->leaf.predecessor != RS_NO_PEER && v->leaf.parent == RS_NO_PEER);
    if (parent && !r->subtree.words &&
        !(m->subtree = rs_memory_take(&node->allocator, r->capacity / 64 * sizeof *m->subtree)))
        return false;
    return true;
}

static const rs_rdcm_child *known_child(const rs_rdcm *r, rs_peer peer) {
    for (uint32_t i = 0; i < r->child_count; i++)
        if (r->children[i].peer == peer)
            return &r->children[i];
    return NULL;
}

static void take_children(rs_node *node, rs_time now, rs_rdcm *r, const rs_view *v, made *m) {
    for (uint32_t i = 0; i < v->child_count; i++) {
        const rs_rdcm_child *before = known_child(r, v->children[i]);
        m->children[i] =
            before
                ? *before
                : (rs_rdcm_child){.peer = v->children[i], .expected = r->here.top + RS_BIC_FIRST - 1, .heard_at = now};
    }
    rs_memory_give(&node->allocator, r->children);
    r->children = m->children;
    r->child_count = v->child_count;
    if (m->subtree)
        rs_rdcm_set_init(&r->subtree, r->transfer->fragments, m->subtree, r->capacity / 64);
    r->own_child = v->leaf.predecessor != RS_NO_PEER && v->leaf.parent == RS_NO_PEER;
    m->children = NULL;
    m->subtree = NULL;
    if (!r->subtree.words || r->here.top == 0)
        return;
    rs_rdcm_set_raise(&r->subtree, r->here.cum);
    for (uint64_t index = r->here.cum / 64; index * 64 < r->here.top; index++)
        rs_rdcm_set_or(&r->subtree, index, rs_rdcm_set_word(&r->here, index));
    rs_rdcm_set_settle(&r->subtree);
}

/* The predecessor that was before stays until the new one can repair; if there is one already that waits so, the one in
 * between never could. */
static void change_predecessor(rs_rdcm *r, int kind, const rs_ring_place *place, bool first) {
    rs_rdcm_ring *ring = &r->rings[kind], *old = &r->rings[kind + 2];
    bool same = ring->predecessor == place->predecessor;
    if (!first && !same && ring->predecessor != RS_NO_PEER && old->predecessor == RS_NO_PEER && ring->ready) {
        old->predecessor = ring->predecessor;
        old->parent = ring->parent;
    }
    ring->ready = first || place->predecessor == RS_NO_PEER || (same && ring->ready);
    ring->predecessor = place->predecessor;
    ring->parent = place->parent;
}

static void change_successor(rs_node *node, rs_rdcm *r, int kind, const rs_ring_place *place, rs_rdcm_watch *fresh) {
    rs_rdcm_ring *ring = &r->rings[kind], *old = &r->rings[kind + 2];
    if (keeps_successor(ring, place)) {
        ring->successor.suspected = 0;
        ring->successor.by_repair = 0;
        return;
    }
    if (ring->successor.in_use) {
        rs_watch_end(node, &old->successor);
        old->successor = ring->successor;
    }
    ring->successor = *fresh;
    *fresh = (rs_rdcm_watch){.peer = RS_NO_PEER};
    if (!ring->successor.in_use)
        ring->successor.peer = RS_NO_PEER;
}

/* All new predecessors can repair: the old rings are left. */
static void maybe_used(rs_node *node, rs_rdcm *r) {
    if (r->used || !r->rings[0].ready || !r->rings[1].ready)
        return;
    r->used = true;
    r->ready_due = RS_NEVER;
    for (int i = 2; i < RS_RDCM_RINGS; i++)
        if (r->rings[i].predecessor != RS_NO_PEER) {
            r->rings[i].left = true;
            rs_rdcm_say(node, r, 1u << (2 * i));
        }
    rs_rdcm_emit(node, r, RS_EV_VIEW_USED, RS_NO_PEER, RS_RING_LEAF);
}

rs_status rs_rdcm_receiver_view(rs_node *node, rs_time now, rs_receiving *x, const rs_view *v) {
    rs_rdcm *r = x->t.own ? x->t.own : rs_rdcm_new(node, &x->t);
    if (!r)
        return RS_ERR_MEMORY;
    if (r->has_view && v->version <= r->version)
        return RS_OK;
    bool first = !r->has_view;
    made m;
    if (!make(node, now, r, v, &m)) {
        unmake(node, &m);
        return RS_ERR_MEMORY;
    }
    r->has_view = true;
    r->version = v->version;
    r->used = false;
    const rs_ring_place *places[2] = {&v->leaf, &v->proxy};
    for (int kind = 0; kind < 2; kind++) {
        change_predecessor(r, kind, places[kind], first);
        change_successor(node, r, kind, places[kind], &m.watch[kind]);
        if (r->here.top && r->rings[kind].successor.in_use)
            rs_watch_look(node, now, r, &r->rings[kind].successor);
    }
    take_children(node, now, r, v, &m);
    r->ready_tries = READY_TRIES;
    if (x->state != RS_RX_OFFERED) {
        rs_rdcm_say_all(node, r, RS_RING_LEAF);
        rs_rdcm_say_all(node, r, RS_RING_PROXY);
        rs_rdcm_request_moved(node, now, x);
    }
    maybe_used(node, r);
    if (!r->used) {
        r->ready_due = now + 2 * rs_watch_timeout(node, &r->rings[0].successor);
        rs_rdcm_wake(node, r, r->ready_due);
    }
    return RS_OK;
}

/* The new predecessors have not said yet that they can repair: asked again, each time after twice as long. */
void rs_rdcm_ready_look(rs_node *node, rs_time now, rs_rdcm *r) {
    r->ready_due = RS_NEVER;
    if (r->used || r->ready_tries == 0)
        return;
    rs_time pause = 2 * rs_watch_timeout(node, &r->rings[0].successor) * (1 + READY_TRIES - r->ready_tries--);
    r->ready_due = now + pause;
    for (int i = 0; i < 2; i++)
        if (!r->rings[i].ready)
            rs_rdcm_say(node, r, 1u << (2 * i));
}

/* Whether what it lacks is still here: of an object all that ever came, of a stream what is not released. */
static bool can_repair(const rs_rdcm *r, const rs_ack *ack) {
    return !r->transfer->stream.on || ack->cum >= r->transfer->stream.released;
}

void rs_rdcm_ack_of_view(rs_node *node, rs_time now, rs_rdcm *r, rs_peer peer, const rs_ack *ack) {
    (void)now;
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        rs_rdcm_ring *ring = &r->rings[i];
        bool successor = ring->successor.in_use && ring->successor.peer == peer;
        if ((ack->flags & RS_ACK_WANTS_READY) && successor && i < 2 && can_repair(r, ack))
            rs_rdcm_say(node, r, (uint32_t)RS_RDCM_READY << i);
        if ((ack->flags & RS_ACK_LEFT) && successor && (i >= 2 || ack->version > r->version))
            rs_watch_end(node, &ring->successor);
        if ((ack->flags & RS_ACK_READY) && i < 2 && ring->predecessor == peer)
            ring->ready = true;
    }
    if (ack->flags & RS_ACK_READY)
        maybe_used(node, r);
}

void rs_rdcm_old_rings_look(rs_node *node, rs_time now, rs_rdcm *r) {
    for (int i = 2; i < RS_RDCM_RINGS; i++)
        if (r->rings[i].successor.in_use && now - r->rings[i].successor.heard_at > OLD_SILENT)
            rs_watch_end(node, &r->rings[i].successor);
}

/* -------------------------------------------------------------------------------------------------- at the sender */

/* From rs_send_open on, as the manager may tell the view before the path; but not once a session began without RDCM, or
 * goes on without: nothing would use it. */
rs_status rs_rdcm_sender_view(rs_node *node, rs_time now, rs_sending *x, const rs_view *v) {
    bool begun = x->t.engine == &rs_engine_rdcm;
    if (x->sessions > 0 && !begun)
        return RS_ERR_STATE;
    rs_rdcm *r = x->t.own ? x->t.own : rs_rdcm_new(node, &x->t);
    if (!r)
        return RS_ERR_MEMORY;
    if (r->has_view && v->version <= r->version)
        return RS_OK;
    if (!rs_rdcm_take_children(node, now, x, v->children, v->child_count))
        return RS_ERR_MEMORY;
    r->has_view = r->used = true;
    r->version = v->version;
    rs_rdcm_emit(node, r, RS_EV_VIEW_USED, RS_NO_PEER, RS_RING_LEAF);
    if (begun) {
        rs_rdcm_find_limit(x);
        rs_rdcm_advance(node, now, x);
        rs_rdcm_schedule(node, now, x);
        rs_sender_arm(node, x);
    }
    return RS_OK;
}
