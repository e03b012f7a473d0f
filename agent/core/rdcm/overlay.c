/* Views of the backup overlay (Sec. 3.2), and moving from one to the next without loss (Sec. 3.4, Repair Window
 * Management when Switching Overlay Rings): a receiver goes on acknowledging to its old predecessor, which so keeps
 * what it lacks, until the new one says that it can repair; then it tells the old one that it has left. */
#include "core/rdcm/overlay.h"

#include <string.h>

#include "core/rdcm/receiver.h"
#include "core/rdcm/repair.h"
#include "core/rdcm/sender.h"
#include "core/transfer/engine.h"

/* Where no other source is named: docs/rdcm.md. */
#define READY_TRIES 64                 /* a bound */
#define OLD_SILENT (1000 * RS_MS)      /* an old successor silent for so long is let go */
#define TAIL_TIME (2 * RS_RDCM_ANSWER) /* nothing came by the tree for so long: it is over */
#define TAIL_TRIES 12  /* what lacks is said again so often, each time RS_RDCM_ANSWER later than before */
#define LATE_MANY 4    /* time-outs: an answer that takes longer is none (test_rdcm) */
#define AHEAD_PARTS 16 /* expectations are told in steps of so many to a window, so that the slowest can know its own */

/* What needs memory, made before anything is changed. */
typedef struct {
    rs_rdcm_watch watch[2];  /* Its successors, by ring. */
    rs_rdcm_child *children; /* Its overlay children. */
    uint64_t *subtree;       /* What it and all below it have. */
} made;

static void unmake(rs_node *node, made *m) {
    rs_watch_end(node, &m->watch[0]);
    rs_watch_end(node, &m->watch[1]);
    rs_memory_give(&node->allocator, m->children);
    rs_memory_give(&node->allocator, m->subtree);
}

static bool keeps_successor(const rs_rdcm_ring *ring, const rs_ring_place *place) {
    return ring->successor.state != RS_WATCH_OFF && ring->successor.peer == place->successor;
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

static void leave(rs_rdcm_ring *ring) {
    ring->predecessor = ring->parent = RS_NO_PEER;
    ring->left = false;
}

/* Who is next to this node in the new view, too, in whichever ring, is no old neighbour: it may have no new view, and a
 * word that its ring is left would be about the present one. */
static void forget_old(rs_node *node, rs_rdcm *r, const rs_view *v) {
    for (int i = 2; i < RS_RDCM_RINGS; i++) {
        rs_rdcm_ring *old = &r->rings[i];
        rs_peer before = old->predecessor, after = old->successor.peer;
        if (before != RS_NO_PEER && (before == v->leaf.predecessor || before == v->proxy.predecessor))
            leave(old);
        if (after != RS_NO_PEER && (after == v->leaf.successor || after == v->proxy.successor))
            rs_watch_end(node, &old->successor);
    }
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
    if (ring->successor.state != RS_WATCH_OFF) {
        rs_watch_end(node, &old->successor);
        old->successor = ring->successor;
    }
    ring->successor = *fresh;
    *fresh = (rs_rdcm_watch){.peer = RS_NO_PEER};
    if (ring->successor.state == RS_WATCH_OFF)
        ring->successor.peer = RS_NO_PEER;
}

/* All new predecessors can repair: the old rings are left. */
static void maybe_used(rs_node *node, rs_rdcm *r) {
    if (r->view != RS_RDCM_VIEW_GIVEN || !r->rings[0].ready || !r->rings[1].ready)
        return;
    r->view = RS_RDCM_VIEW_USED;
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
    if (r->view != RS_RDCM_NO_VIEW && v->version <= r->version)
        return RS_OK;
    bool first = r->view == RS_RDCM_NO_VIEW;
    made m;
    if (!make(node, now, r, v, &m)) {
        unmake(node, &m);
        return RS_ERR_MEMORY;
    }
    r->view = RS_RDCM_VIEW_GIVEN;
    r->version = v->version;
    const rs_ring_place *places[2] = {&v->leaf, &v->proxy};
    for (int kind = 0; kind < 2; kind++) {
        change_predecessor(r, kind, places[kind], first);
        change_successor(node, r, kind, places[kind], &m.watch[kind]);
        if (r->here.top && r->rings[kind].successor.state != RS_WATCH_OFF)
            rs_watch_look(node, now, r, &r->rings[kind].successor);
    }
    forget_old(node, r, v);
    take_children(node, now, r, v, &m);
    r->ready_tries = READY_TRIES;
    if (x->state != RS_RX_OFFERED) {
        rs_rdcm_say_all(node, r, RS_RING_LEAF);
        rs_rdcm_say_all(node, r, RS_RING_PROXY);
        rs_rdcm_request_moved(node, now, x);
    }
    maybe_used(node, r);
    if (r->view != RS_RDCM_VIEW_USED) {
        r->ready_due = now + 2 * rs_watch_timeout(node, &r->rings[0].successor);
        rs_rdcm_wake(node, r, r->ready_due);
    }
    return RS_OK;
}

/* The new predecessors have not said yet that they can repair: asked again, each time after twice as long. */
void rs_rdcm_ready_look(rs_node *node, rs_time now, rs_rdcm *r) {
    r->ready_due = RS_NEVER;
    if (r->view != RS_RDCM_VIEW_GIVEN || r->ready_tries == 0)
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
        bool successor = ring->successor.state != RS_WATCH_OFF && ring->successor.peer == peer;
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
        if (r->rings[i].successor.state != RS_WATCH_OFF && now - r->rings[i].successor.heard_at > OLD_SILENT)
            rs_watch_end(node, &r->rings[i].successor);
}

/* From rs_send_open on, as the manager may tell the view before the path; but not once a session began without RDCM, or
 * goes on without: nothing would use it. */
rs_status rs_rdcm_sender_view(rs_node *node, rs_time now, rs_sending *x, const rs_view *v) {
    bool begun = x->t.engine == &rs_engine_rdcm;
    if (x->sessions > 0 && !begun)
        return RS_ERR_STATE;
    rs_rdcm *r = x->t.own ? x->t.own : rs_rdcm_new(node, &x->t);
    if (!r)
        return RS_ERR_MEMORY;
    if (r->view != RS_RDCM_NO_VIEW && v->version <= r->version)
        return RS_OK;
    if (!rs_rdcm_take_children(node, now, x, v->children, v->child_count))
        return RS_ERR_MEMORY;
    r->view = RS_RDCM_VIEW_USED;
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

/* ------------------------------------------------------------------------------------------------
 * Acknowledgements going out (Sec. 3.3): what came here, to predecessor and parent in the leaf ring; what some child
 * has, to predecessor and parent in the proxy ring. Ours: a proxy counts as its own child even if it is not in the ring
 * below: a packet that is anywhere below a branching node reaches all below it by the rings there, so there is nothing
 * to repair from above. With them goes up to which sequence number the sender may go as far
 * as those below are concerned, the least of all (Sec. 3.5). There is no queue: an ACK is made from the state when it
 * can be sent, and stands for all packets since the last one. So a receiver sends and gets as many in a large group as
 * in a small one. */

static uint64_t own_expected(const rs_rdcm *r) {
    if (r->leaving != RS_RDCM_STAYS || r->here.cum == r->transfer->fragments)
        return RS_RDCM_NO_LIMIT;
    uint64_t step = 1, by_window = r->here.top + r->bic.window - 1;
    while (step * 2 * AHEAD_PARTS <= r->bic.window)
        step *= 2;
    by_window -= by_window % step;
    /* The sender of a stream keeps half a window for requests: it must not go further beyond what is missing here, its
     * probes (an eighth) included. There is room for them: their ACKs show that all is well while nothing is taken. */
    uint64_t kept = r->transfer->stream.on ? r->capacity / 8 * 5 : 64, room = rs_rdcm_low(r) + r->capacity - kept - 1;
    return by_window < room ? by_window : room;
}

/* Whoever has nothing of what passed here long ago joins under way: it has no say before something came. */
uint64_t rs_rdcm_expected_of(const rs_rdcm *r, const rs_ack *ack) {
    bool nothing = ack->cum == 0 && ack->words == 0;
    return nothing && r->here.top > 2 * RS_BIC_FIRST ? RS_RDCM_NO_LIMIT : ack->expected;
}

/* In a proxy ring. Who is no proxy any more stays in the old one until the new one is ready: nobody is below it then,
 * and to say so would let the sender go on without it. */
static bool speaks_for_itself(const rs_rdcm *r) {
    return r->own_child || r->child_count == 0;
}

/* Silence is measured from packets that ask for an answer, not against other children: there may be none, or they may
 * be gone too. */
void rs_rdcm_note_owed(rs_rdcm *r, rs_time now, rs_time timeout) {
    rs_time bound = LATE_MANY * timeout > r->silent ? LATE_MANY * timeout : r->silent;
    if (now - r->owed[r->owed_parts] < bound / r->owed_parts)
        return;
    memmove(r->owed, r->owed + 1, r->owed_parts * sizeof *r->owed);
    r->owed[r->owed_parts] = now;
}

bool rs_rdcm_is_silent(const rs_rdcm *r, const rs_rdcm_child *child) {
    return child->heard_at < r->owed[0];
}

/* Where all those below are silent, its own word is the only one there is. */
uint64_t rs_rdcm_expected(const rs_rdcm *r, rs_ring_kind kind) {
    if (kind == RS_RING_LEAF)
        return own_expected(r);
    uint64_t least = RS_RDCM_NO_LIMIT;
    bool any = false;
    for (uint32_t i = 0; i < r->child_count; i++) {
        if (rs_rdcm_is_silent(r, &r->children[i]))
            continue;
        any = true;
        least = r->children[i].expected < least ? r->children[i].expected : least;
    }
    if (any && !speaks_for_itself(r))
        return least;
    uint64_t own = own_expected(r);
    return own < least ? own : least;
}

static uint32_t bits_of(const rs_rdcm_ring *ring, uint32_t i) {
    uint32_t bits = ring->predecessor != RS_NO_PEER ? 1u << (2 * i) : 0;
    if (ring->parent != RS_NO_PEER && ring->parent != ring->predecessor)
        bits |= 2u << (2 * i);
    return bits;
}

void rs_rdcm_say_all(rs_node *node, rs_rdcm *r, rs_ring_kind kind) {
    rs_rdcm_news *news = &r->news[kind];
    news->unacked = 0;
    news->due = RS_NEVER;
    news->expected = rs_rdcm_expected(r, kind);
    rs_rdcm_say(node, r, bits_of(&r->rings[kind], kind) | bits_of(&r->rings[kind + 2], kind + 2u));
}

/* What comes by the tree comes in order. Nothing comes after the last packets of an object: these are lost if the last
 * one came by another way, which took longer. */
static uint64_t own_settled(const rs_rdcm *r) {
    uint64_t later = r->tree_report ? 0 : RS_RDCM_OVERTAKEN, fragments = r->transfer->fragments;
    if (r->tail_over)
        return fragments;
    if (r->here.top == fragments && fragments - r->tree_top <= RS_RDCM_OVERTAKEN)
        return fragments;
    return r->tree_top > later ? r->tree_top - later : 0;
}

static rs_time heard_last(const rs_rdcm *r) {
    rs_time newest = INT64_MIN;
    for (uint32_t i = 0; i < r->child_count; i++)
        newest = r->children[i].heard_at > newest ? r->children[i].heard_at : newest;
    return newest;
}

static bool counts(const rs_rdcm *r, const rs_rdcm_child *child, rs_time newest) {
    return newest - child->heard_at < RS_RDCM_SILENT_LEAST && !rs_rdcm_is_silent(r, child);
}

uint64_t rs_rdcm_least_settled(const rs_rdcm *r) {
    uint64_t least = RS_RDCM_NO_LIMIT;
    rs_time newest = heard_last(r);
    for (uint32_t i = 0; i < r->child_count; i++)
        if (r->children[i].settled < least && counts(r, &r->children[i], newest))
            least = r->children[i].settled;
    return least;
}

static bool half_say(const rs_rdcm *r, rs_time newest, uint64_t sn) {
    uint32_t all = 0, many = 0;
    for (uint32_t i = 0; i < r->child_count; i++) {
        bool one = counts(r, &r->children[i], newest);
        all += one;
        many += one && r->children[i].settled >= sn;
    }
    return 2 * many >= all;
}

/* Up to where half of its children say that what they miss is lost: of many ACKs one is always lost itself. */
static uint64_t half_settled(const rs_rdcm *r) {
    uint64_t low = rs_rdcm_least_settled(r), step = low == RS_RDCM_NO_LIMIT ? 0 : r->capacity;
    rs_time newest = heard_last(r);
    for (; step; step /= 2)
        if (half_say(r, newest, low + step))
            low += step;
    return low;
}

/* The furthest that any child says so. */
static uint64_t most_settled(const rs_rdcm *r) {
    uint64_t most = 0;
    rs_time newest = heard_last(r);
    for (uint32_t i = 0; i < r->child_count; i++)
        if (r->children[i].settled > most && counts(r, &r->children[i], newest))
            most = r->children[i].settled;
    return most;
}

/* In a proxy ring: none of those below has what is below it, unless it says so. Ours: it was lost above them all if
 * half of the children miss it, or if this node and one child do. */
static uint64_t settled(const rs_rdcm *r, rs_ring_kind kind) {
    uint64_t own = own_settled(r), below = kind == RS_RING_PROXY ? half_settled(r) : own;
    if (kind == RS_RING_LEAF)
        return own;
    if (r->tail_over)
        return r->transfer->fragments;
    if (below != RS_RDCM_NO_LIMIT) {
        uint64_t most = most_settled(r), two = own < most ? own : most;
        below = two > below ? two : below;
    }
    bool alone = speaks_for_itself(r) || below == RS_RDCM_NO_LIMIT; /* all those below are silent */
    return alone && own < below ? own : below;
}

/* Ours: a loss is told at once to those who mend it, and to the parent, who tells it on when all its children miss the
 * packet. So the time-out is only for what nothing came after. */
void rs_rdcm_say_lost(rs_node *node, rs_rdcm *r) {
    rs_rdcm_say(node, r, bits_of(&r->rings[RS_RING_LEAF], RS_RING_LEAF));
    rs_rdcm_settled_moved(node, r);
}

static bool lacks(const rs_rdcm_set *set, uint64_t from, uint64_t to) {
    for (uint64_t index = from / 64; index * 64 < to; index++) {
        uint64_t absent = ~rs_rdcm_set_word(set, index);
        if (index == from / 64)
            absent &= UINT64_MAX << (from % 64);
        if (to - index * 64 < 64)
            absent &= (UINT64_C(1) << (to - index * 64)) - 1;
        if (absent)
            return true;
    }
    return false;
}

void rs_rdcm_settled_moved(rs_node *node, rs_rdcm *r) {
    uint64_t now_settled = settled(r, RS_RING_PROXY),
             most = r->here.top > r->subtree.top ? r->here.top : r->subtree.top;
    uint64_t to = now_settled < most ? now_settled : most;
    uint64_t from = r->subtree.cum > r->settled_told ? r->subtree.cum : r->settled_told;
    if (r->rings[RS_RING_PROXY].predecessor == RS_NO_PEER || to <= from)
        return;
    r->settled_told = to;
    if (lacks(&r->subtree, from, to))
        rs_rdcm_say_all(node, r, RS_RING_PROXY);
}

/* A repair came: those who would repair the same packet again, because they think that it is still missed, are told in
 * time. Whoever sent it waits for the answer, but not as urgently: repairs of a run come together and have one. The
 * parent has time: somebody in the ring has the packet, or it would not have come from there. */
void rs_rdcm_say_repaired(rs_node *node, rs_time now, rs_rdcm *r, rs_peer by) {
    for (uint32_t i = 0; i < RS_RDCM_RINGS; i++) {
        uint32_t bit = bits_of(&r->rings[i], i) & 1u << (2 * i);
        if (r->rings[i].predecessor == by)
            r->later |= bit;
        else if (i % 2 == RS_RING_LEAF || r->own_child)
            rs_rdcm_say(node, r, bit);
    }
    if (r->later_due != RS_NEVER || !r->later)
        return;
    r->later_due = now + RS_RDCM_ANSWER;
    rs_rdcm_wake(node, r, r->later_due);
}

/* Ours: nothing comes after the last packets of an object that would make a lost ACK good. Who lacks something then,
 * or whose successor has the last packet while nothing comes by the tree any more, says so again, ever more rarely. */
void rs_rdcm_tail_look(rs_node *node, rs_time now, rs_rdcm *r) {
    const rs_receiving *x = rs_rdcm_receiving(r);
    uint64_t fragments = r->transfer->fragments;
    bool lacks_some = x->state == RS_RX_RECEIVING && r->leaving == RS_RDCM_STAYS && r->here.cum < fragments;
    bool last = r->here.top == fragments;
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        last |= r->rings[i].successor.state == RS_WATCH_KNOWN && r->rings[i].successor.acked.top == fragments;
    if (!lacks_some || !last || x->t.size == RS_STREAM || r->tail_tries == TAIL_TRIES) {
        r->tail_due = RS_NEVER;
        return;
    }
    if (now < r->tail_due) {
        if (r->tail_due != RS_NEVER)
            return;
    } else {
        r->tail_over |= now - r->tree_at >= TAIL_TIME;
        r->tail_tries++;
        rs_rdcm_say_all(node, r, RS_RING_LEAF);
        rs_rdcm_say_all(node, r, RS_RING_PROXY);
        rs_rdcm_settled_moved(node, r);
    }
    r->tail_due = now + RS_RDCM_ANSWER * (1 + (rs_time)r->tail_tries);
    rs_rdcm_wake(node, r, r->tail_due);
}

void rs_rdcm_say_later(rs_node *node, rs_time now, rs_rdcm *r) {
    if (now < r->later_due)
        return;
    r->later_due = RS_NEVER;
    rs_rdcm_say(node, r, r->later);
}

/* It repaired what is here: an ACK to it was lost, or is late. */
void rs_rdcm_say_to(rs_node *node, rs_rdcm *r, rs_peer predecessor) {
    for (uint32_t i = 0; i < RS_RDCM_RINGS; i++)
        if (r->rings[i].predecessor == predecessor)
            rs_rdcm_say(node, r, bits_of(&r->rings[i], i) & 1u << (2 * i));
}

static void gathered(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind, bool at_once) {
    rs_rdcm_news *news = &r->news[kind];
    if (at_once || news->unacked >= rs_rdcm_ack_every(node, r, kind)) {
        rs_rdcm_say_all(node, r, kind);
    } else if (news->due == RS_NEVER) {
        news->due = now + rs_rdcm_ack_delay(node, r);
        rs_rdcm_wake(node, r, news->due);
    }
}

void rs_rdcm_news_of(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind, uint64_t sn, bool at_once) {
    rs_rdcm_news *news = &r->news[kind];
    news->unacked++;
    if (sn < news->low)
        news->low = sn;
    gathered(node, now, r, kind, at_once);
    if (kind == RS_RING_LEAF && r->subtree.words && rs_rdcm_set_add(&r->subtree, sn))
        rs_rdcm_news_of(node, now, r, RS_RING_PROXY, sn, at_once);
}

/* Nothing new to acknowledge, but the sender may go further, or not as far. */
void rs_rdcm_expected_moved(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind) {
    uint64_t expected = rs_rdcm_expected(r, kind), said = r->news[kind].expected;
    if (expected == said)
        return;
    gathered(node, now, r, kind, expected < said || expected - said >= rs_rdcm_ack_every(node, r, kind));
}

/* The words that tell most: all above `cum`, if they fit; otherwise from the lowest news on, or the newest. */
static void fill_map(const rs_rdcm_set *set, uint64_t low, rs_ack *ack) {
    uint64_t from = set->cum / 64, to = (set->top + 63) / 64;
    if (to > from + RS_ACK_WORDS) {
        uint64_t newest = to - RS_ACK_WORDS;
        from = low / 64 <= from ? from : low / 64 < newest ? low / 64 : newest;
    }
    ack->base = from * 64;
    ack->words = 0;
    for (uint64_t index = from; index < to && ack->words < RS_ACK_WORDS; index++)
        ack->map[ack->words++] = rs_rdcm_set_word(set, index);
    if (set->cum == set->top)
        ack->words = 0;
}

static void remember_said(rs_rdcm *r, uint64_t expected) {
    if (expected == r->said[r->said_at])
        return;
    r->said_at = (r->said_at + 1) % RS_RDCM_SAID;
    r->said[r->said_at] = expected;
}

static void fill(rs_rdcm *r, rs_ring_kind kind, rs_ack *ack) {
    const rs_rdcm_set *set = kind == RS_RING_LEAF ? &r->here : &r->subtree;
    ack->nonce = r->transfer->nonce;
    ack->version = r->version;
    ack->cum = set->cum;
    ack->settled = settled(r, kind);
    ack->expected = rs_rdcm_expected(r, kind);
    fill_map(set, r->news[kind].low, ack);
    remember_said(r, own_expected(r));
}

/* The ACK for the lowest bit of what is to be said. */
static bool next_ack(rs_rdcm *r, rs_peer *to, rs_ack *ack) {
    uint32_t bit = r->say & (~r->say + 1);
    r->say &= ~bit;
    r->later &= ~bit;
    if (bit == RS_RDCM_NOT_PREDECESSOR) {
        fill(r, RS_RING_LEAF, ack);
        ack->flags = RS_ACK_TO_PREDECESSOR | RS_ACK_LEFT;
        *to = r->not_predecessor;
        return *to != RS_NO_PEER;
    }
    int place = __builtin_ctz(bit), i = place < 2 * RS_RDCM_RINGS ? place / 2 : place - 8;
    rs_rdcm_ring *ring = &r->rings[i];
    fill(r, (rs_ring_kind)(i % 2), ack);
    ack->flags = 0;
    if (bit >= RS_RDCM_READY) {
        ack->flags = RS_ACK_READY;
        ack->words = 0;
        *to = ring->successor.peer;
        return *to != RS_NO_PEER;
    }
    bool up = place % 2;
    *to = up ? ring->parent : ring->predecessor;
    ack->flags |= up ? RS_ACK_TO_PARENT : RS_ACK_TO_PREDECESSOR;
    if (!up && ring->parent == ring->predecessor)
        ack->flags |= RS_ACK_TO_PARENT;
    if (!up && !ring->ready)
        ack->flags |= RS_ACK_WANTS_READY;
    if (!up && ring->left)
        ack->flags |= RS_ACK_LEFT;
    if (!up && i < 2 && r->leaving == RS_RDCM_STAYS && rs_rdcm_starves(r, (rs_ring_kind)i))
        ack->flags |= RS_ACK_STARVED;
    if (!up && r->leaving == RS_RDCM_GOES)
        ack->flags |= RS_ACK_GOES;
    bool worth = *to != RS_NO_PEER;
    if (!up && ring->left)
        leave(ring);
    return worth;
}

bool rs_rdcm_poll_ack(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out) {
    rs_rdcm *r = x->t.own;
    rs_ack ack;
    bool worth = r->say && next_ack(r, &out->peer, &ack);
    if (worth && !(ack.flags & RS_ACK_STARVED) && now - r->tree_at < rs_rdcm_options(node)->link_bound / 4)
        ack.flags |= RS_ACK_BY_TREE;
    if (!(r->say & 0x33)) /* both kinds of news: bits 0, 1, 4, 5 and 2, 3, 6, 7 */
        r->news[RS_RING_LEAF].low = UINT64_MAX;
    if (!(r->say & 0xcc))
        r->news[RS_RING_PROXY].low = UINT64_MAX;
    if (!r->say)
        rs_list_remove(&x->t.in_acking);
    if (!worth)
        return false;
    out->channel = RS_CH_PEER_DATAGRAM;
    out->group = RS_NO_GROUP;
    out->xfer = x->t.id;
    out->payload_offset = 0;
    out->payload_length = 0;
    out->combine.count = 0;
    out->header_length = (uint16_t)rs_ack_encode(&ack, out->header);
    x->stats.acks_sent++;
    return true;
}

/* --------------------------------------------------------------------------------------------- repairs going out */

static void repair_packet(rs_rdcm *r, rs_peer to, uint64_t sn, bool neighbours_too, rs_packet_out *out) {
    rs_transfer *t = r->transfer;
    rs_data_header header = {.session = t->session, .engine = RS_PROTOCOL_RDCM, .nonce = t->nonce, .sn = sn};
    if (sn == 0) {
        header.flags = RS_DATA_FIRST;
        header.aux = t->size;
    }
    header.flags |= neighbours_too ? RS_DATA_REPORT : 0;
    rs_wire_encode_data(&header, out->header);
    out->header_length = RS_DATA_HEADER;
    out->channel = RS_CH_PEER_DATAGRAM;
    out->peer = to;
    out->group = RS_NO_GROUP;
    out->xfer = t->id;
    out->payload_offset = sn * t->fragment_size;
    out->payload_length = rs_fragment_length(t, sn);
    out->combine.count = 0;
    rs_rdcm_receiving(r)->stats.peer_repairs_sent++;
}

/* Ours: what came here by repair and was lost above all the ring below does not run along the ring alone, hop upon hop:
 * this node, their parent, sends it to SEED_PARTS members at most, who bring it to those behind them. A node does
 * so once for a packet, when it is stored, and not to whom it came from; so a packet ends even where views are at odds,
 * and where a child is the parent in another ring (which the paper's overlays have). */
#define SEED_PARTS 8 /* of a ring (rostrum sim run rdcm-goodput) */

static uint32_t seed_step(const rs_rdcm *r) {
    return (r->child_count + SEED_PARTS - 1) / SEED_PARTS;
}

void rs_rdcm_seed(rs_node *node, rs_time now, rs_rdcm *r, uint64_t sn, rs_peer from) {
    const rs_rdcm_ring *ring = &r->rings[RS_RING_PROXY];
    bool above = from == ring->predecessor || from == ring->parent, off = rs_rdcm_options(node)->rings_only;
    uint32_t many = 0;
    for (uint32_t i = 0; i < r->child_count; i++)
        many += r->children[i].settled > sn && !rs_rdcm_is_silent(r, &r->children[i]);
    if (off || r->child_count < 2 || (many == 0 && !above) || r->transfer->stream.on || r->seed_count == RS_RDCM_SEEDS)
        return;
    r->seeds[r->seed_count++] = (rs_rdcm_seeding){.sn = sn, .from = from};
    if ((!r->own_child && 2 * many >= r->child_count) || seed_step(r) == 1) /* from there it comes to the leaf ring */
        rs_watch_assume(now, &r->rings[RS_RING_LEAF].successor, sn);
    rs_list_keep(&node->mending, &r->transfer->in_mending, true);
}

/* Who of its children comes after this node in the ring below, if it is in that itself: it is not among them. */
static uint32_t first_after(const rs_rdcm *r) {
    rs_peer after = r->rings[RS_RING_LEAF].successor.peer;
    for (uint32_t i = 0; r->own_child && i < r->child_count; i++)
        if (r->children[i].peer == after)
            return i;
    return 0;
}

static bool next_seed(rs_rdcm *r, rs_packet_out *out) {
    while (r->seed_count) {
        rs_rdcm_seeding *s = &r->seeds[0];
        uint32_t step = seed_step(r), from = first_after(r), first = r->own_child ? step - 1 : 0;
        while (first + s->done * step < r->child_count) {
            const rs_rdcm_child *child = &r->children[(from + first + s->done++ * step) % r->child_count];
            if (rs_rdcm_is_silent(r, child) || child->peer == s->from)
                continue;
            repair_packet(r, child->peer, s->sn, step == 1, out);
            return true;
        }
        r->seed_count--;
        for (uint32_t i = 0; i < r->seed_count; i++)
            r->seeds[i] = r->seeds[i + 1];
    }
    return false;
}

/* One repair to a successor, or to a child. */
bool rs_rdcm_poll_repair(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out) {
    rs_rdcm *r = x->t.own;
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        rs_rdcm_watch *w = &r->rings[i].successor;
        uint64_t sn;
        if (w->state != RS_WATCH_OFF && rs_watch_next(node, now, r, w, &sn)) {
            repair_packet(r, w->peer, sn, false, out);
            return true;
        }
    }
    return next_seed(r, out);
}
