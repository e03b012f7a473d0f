/* Views of the backup overlay (Sec. 3.2), and moving from one to the next without loss (Sec. 3.4, Repair Window
 * Management when Switching Overlay Rings): a receiver goes on acknowledging to its old predecessor, which so keeps
 * what it lacks, until the new one says that it can repair; then it tells the old one that it has left. */
#include "core/rdcm/overlay.h"

#include <string.h>

#include "core/rdcm/receiver.h"
#include "core/rdcm/sender.h"
#include "core/transfer/engine.h"

/* Where no other source is named: docs/rdcm.md. */
#define READY_TRIES 64            /* a bound */
#define OLD_SILENT (1000 * RS_MS) /* an old successor silent for so long is let go */
#define LATE_MANY 4               /* time-outs: an answer that takes longer is none (test_rdcm) */
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

/* In a proxy ring: none of those below has what is below it, unless it says so. */
static uint64_t settled(const rs_rdcm *r, rs_ring_kind kind) {
    uint64_t own = own_settled(r), below = kind == RS_RING_PROXY ? half_settled(r) : own;
    if (kind == RS_RING_LEAF)
        return own;
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

static void leave(rs_rdcm_ring *ring) {
    ring->predecessor = ring->parent = RS_NO_PEER;
    ring->left = false;
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

/* Who must acknowledge what this node has, and what is sent to it again (Sec. 3.3, Packet Repair). A receiver watches
 * its successor in each ring and repairs by unicast; the sender watches its children all together, one of whom is
 * enough, and repairs by multicast.
 *
 * A packet is due for repair when it is here, passed here longer ago than the ACK timeout, and is not acknowledged;
 * or when the successor says that it was lost. One that comes here late is due for those behind at once: so repairs run
 * along a ring without waiting again at each hop. Repairs under way are bounded as TCP bounds segments. */

/* Where no other source is named: docs/rdcm.md. */
#define TIMEOUT_MOST (50 * RS_MS)
#define PAUSE_MOST (100 * RS_MS) /* a bound */
#define FLYING_FIRST 32
/* Doublings of a timeout until a round trip is measured again (RFC 6298): a multicast too many costs the whole tree; a
 * successor below a failed link, whose packets are all repaired, must not wait. */
#define STRETCH_SENDER 6
#define STRETCH_RING 1
#define LEAST_FOR (10000 * RS_MS) /* then a least round trip is forgotten (draft-ietf-ccwg-bbr has as long) */
#define TIMEOUTS_LATE 3           /* timeouts */
/* A failure is told again while it goes on, so that the manager sees that this is no moment of work: after so many
 * failure bounds, then after more each time, but within the second in which a manager forgets it; so often in all, by
 * when the sender itself has given such a receiver up. */
#define TELL_AGAIN 5       /* test_repair */
#define TELL_SLOWEST 15    /* test_repair */
#define TELL_TIMES 32      /* test_repair */
#define UNANSWERED_LEAST 3 /* times in a row, before a successor is told failed */
#define PROBES 4           /* by time-outs alone, in one time-out, of one to whom the tree brings packets */
#define SUSPECT_LEAST 16   /* packets in a row that came by repair, before a link is suspected */
/* That is told again while it goes on: the word may have met a manager that was away. After about what a manager takes
 * to weigh it, then after twice as long each time, so often in all. */
#define SUSPECT_AGAIN (500 * RS_MS) /* rostrum lab run rdcm-failure */
#define SUSPECT_TIMES 8

rs_time rs_watch_timeout(const rs_node *node, const rs_rdcm_watch *w) {
    const rs_rdcm_config *c = rs_rdcm_options(node);
    if (c->ack_timeout)
        return c->ack_timeout;
    rs_time delay = w->delay && w->delay < c->ack_delay ? w->delay : c->ack_delay; /* samples are the newest's */
    rs_time late = (rs_rtt_late(&w->rtt, c->ack_timeout_first) << w->stretch) + delay;
    return late < c->ack_timeout_least ? c->ack_timeout_least : late > TIMEOUT_MOST ? TIMEOUT_MOST : late;
}

bool rs_watch_start(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, rs_peer peer) {
    uint64_t words = r->capacity / 64, flying = r->capacity < RS_RDCM_FLYING ? r->capacity : RS_RDCM_FLYING;
    uint64_t *memory = rs_memory_take(&node->allocator, 3 * words * sizeof *memory + flying * sizeof *w->flying);
    if (!memory)
        return false;
    *w = (rs_rdcm_watch){.peer = peer, .check_at = RS_NEVER, .heard_at = now, .tree_at = now};
    rs_rdcm_set_init(&w->acked, r->transfer->fragments, memory, words);
    w->repaired = memory + words;
    w->tried = memory + 2 * words;
    w->flying = (rs_flying *)(memory + 3 * words);
    w->flying_room = (uint32_t)flying;
    w->flying_most = FLYING_FIRST < flying ? FLYING_FIRST : (uint32_t)flying;
    w->state = r->here.top == 0 ? RS_WATCH_KNOWN : RS_WATCH_UNKNOWN;
    return true;
}

void rs_watch_end(rs_node *node, rs_rdcm_watch *w) {
    rs_memory_give(&node->allocator, w->acked.words);
    *w = (rs_rdcm_watch){.peer = RS_NO_PEER};
}

static int ring_of(const rs_rdcm *r, const rs_rdcm_watch *w) {
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        if (w == &r->rings[i].successor)
            return i;
    return -1; /* the sender's */
}

void rs_watch_look(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w) {
    w->check_at = now;
    if (!r->transfer->sending)
        rs_list_keep(&node->mending, &r->transfer->in_mending, true);
}

void rs_watch_grown(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w) {
    if (w->check_at != RS_NEVER)
        return;
    w->check_at = now + rs_watch_timeout(node, w);
    rs_rdcm_wake(node, r, w->check_at);
}

/* ------------------------------------------------------------------------------------------------- what it has */

typedef struct {
    uint64_t fresh, by_repair, tried; /* Packets newly acknowledged; by repair; those tried. */
    uint64_t newest, newest_repair;   /* one past; 0 = none */
} learned;

static uint64_t past_highest(uint64_t index, uint64_t bits) {
    return index * 64 + 64 - (uint64_t)__builtin_clzll(bits);
}

static void take(rs_rdcm_watch *w, uint64_t index, uint64_t bits, learned *l) {
    uint64_t fresh = rs_rdcm_set_or(&w->acked, index, bits);
    if (fresh == 0)
        return;
    uint64_t *repaired = &w->repaired[index & w->acked.mask];
    uint64_t mended = fresh & *repaired;
    *repaired &= ~fresh;
    l->tried += rs_rdcm_bits(fresh & w->tried[index & w->acked.mask]);
    w->tried[index & w->acked.mask] &= ~fresh;
    l->fresh += rs_rdcm_bits(fresh);
    if (mended) {
        uint32_t many = rs_rdcm_bits(mended);
        w->out -= many;
        l->by_repair += many;
        l->newest_repair = past_highest(index, mended);
    }
    if (fresh & ~mended)
        l->newest = past_highest(index, fresh & ~mended);
}

/* When it was repaired last; 0 if that is forgotten. */
static rs_time repaired_at(const rs_rdcm_watch *w, uint64_t sn) {
    for (uint32_t i = w->count; i > 0; i--) {
        const rs_flying *f = &w->flying[(w->head + i - 1) % w->flying_room];
        if (f->sn == sn)
            return f->at;
    }
    return 0;
}

/* A repair that was not acknowledged for so long is lost. */
static rs_time answer_bound(const rs_node *node, const rs_rdcm_watch *w) {
    rs_time timeout = rs_watch_timeout(node, w), late = rs_rtt_late(&w->answer, 2 * timeout);
    return late < timeout / 2 ? timeout / 2 : late < TIMEOUT_MOST ? late : TIMEOUT_MOST;
}

/* ACK round trips are those of packets that were not repaired (Karn), and of those whose ACK came too soon after a
 * repair to be its answer: without these a timeout once too short would stay so. Only of the newest packets, and none
 * that takes much longer than usual: those were lost, and another mended them. */
static void measure(const rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, uint64_t top_before, learned *l) {
    uint64_t sn = l->newest > top_before ? l->newest : 0;
    rs_time at = l->newest_repair ? repaired_at(w, l->newest_repair - 1) : 0;
    /* The usual RTT would not do: below a failed link it is that of repairs upon repairs, and none of their answers
     * would count as one. */
    bool soon = at && now - at < (r->min_rtt ? r->min_rtt : w->rtt.smoothed) / 2;
    if (at && !soon)
        rs_rtt_sample(&w->answer, now - at);
    if (soon && sn == 0) {
        sn = l->newest_repair;
        l->by_repair--;
        l->tried--;
    }
    rs_time when = sn ? rs_passes_when(&r->passes, sn - 1) : RS_NEVER;
    if (when == RS_NEVER || when == INT64_MIN)
        return;
    rs_time most = 2 * rs_watch_timeout(node, w), rtt = now - when;
    rs_rtt_sample(&w->rtt, rtt < most ? rtt : most);
    w->stretch = 0;
    if (r->min_rtt == 0 || rtt < r->min_rtt || now - r->min_rtt_at > LEAST_FOR) {
        r->min_rtt = rtt > 1 ? rtt : 1;
        r->min_rtt_at = now;
    }
}

/* Where acknowledgements take long (busy hosts), failure is told from lateness only after longer. */
static rs_time busy_bound(const rs_node *node, const rs_rdcm_watch *w, rs_time bound) {
    rs_time late = TIMEOUTS_LATE * rs_watch_timeout(node, w);
    return late > bound ? late : bound;
}

/* Sec. 3.4: a successor that gets everything by repair, of packets that came here by the tree, has a failed link above
 * it. Ours: it says itself if anything came to it by the tree. Where hosts are busy, acknowledgements are so late that
 * everything has been repaired before, needed or not; that says nothing. */
static void suspect(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, const learned *l, bool starved) {
    rs_time bound = rs_rdcm_options(node)->link_bound;
    int ring = ring_of(r, w);
    if (w->by_tree) {
        w->by_repair = 0;
        if (w->suspected && ring >= 0 && ring < 2)
            rs_rdcm_emit(node, r, RS_EV_LINK_WORKS, w->peer, (rs_ring_kind)ring);
        w->suspected = 0;
        return;
    }
    if ((l->tried == 0 && !starved) || ring < 0 || ring >= 2)
        return;
    if (w->by_repair == 0)
        w->tree_at = now;
    w->by_repair += (uint32_t)l->tried;
    if (w->suspected == SUSPECT_TIMES || now - r->tree_at > (starved ? bound : bound / 2))
        return;
    if (w->suspected && now - w->suspected_at < SUSPECT_AGAIN << (w->suspected - 1))
        return;
    if (!starved && (w->by_repair < SUSPECT_LEAST || now - w->tree_at < bound))
        return;
    w->suspected++;
    w->suspected_at = now;
    rs_rdcm_emit(node, r, RS_EV_LINK_SUSPECTED, w->peer, (rs_ring_kind)ring);
}

static void heard(rs_time now, rs_rdcm_watch *w) {
    w->heard_at = now;
    w->asked_at = w->pause = w->pause_until = 0;
    w->unanswered = 0;
    w->failed = 0;
}

/* What it had before the ring was joined is no news. */
static void get_to_know(rs_rdcm_watch *w, uint64_t cum) {
    uint64_t words = w->acked.mask + 1;
    memset(w->acked.words, 0, 3 * words * sizeof *w->acked.words); /* `repaired` and `tried` lie behind them */
    w->acked.cum = w->acked.top = 0;
    w->head = w->count = w->out = 0;
    rs_rdcm_set_raise(&w->acked, cum);
    w->state = RS_WATCH_KNOWN;
}

static bool landed_or_lost(rs_rdcm_watch *w, const rs_flying *f, bool lost) {
    bool here = rs_rdcm_set_has(&w->acked, f->sn);
    if (!here && !lost)
        return false;
    if (!here) {
        w->repaired[f->sn / 64 & w->acked.mask] &= ~(UINT64_C(1) << (f->sn % 64));
        w->out--;
    }
    w->head = (w->head + 1) % w->flying_room;
    w->count--;
    return true;
}

/* Repairs that went so long ago that this ACK would tell of them: they were lost too (as RFC 8985 finds it for TCP). */
static void find_lost_repairs(const rs_node *node, rs_time now, rs_rdcm_watch *w) {
    rs_time late = answer_bound(node, w);
    while (w->count && landed_or_lost(w, &w->flying[w->head], now - w->flying[w->head].at > late))
        ;
}

uint64_t rs_watch_learn(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, const rs_ack *ack) {
    learned l = {0};
    uint64_t top = w->acked.top;
    bool waits = w->pause_until > now || w->count;
    heard(now, w);
    uint64_t cum = ack->cum < w->acked.end ? ack->cum : w->acked.end;
    if (w->state != RS_WATCH_KNOWN)
        get_to_know(w, cum);
    w->settled = ack->settled > w->settled ? ack->settled : w->settled;
    for (uint64_t index = w->acked.cum / 64, first = index; index * 64 < cum && index - first <= w->acked.mask; index++)
        take(w, index, cum - index * 64 >= 64 ? UINT64_MAX : (UINT64_C(1) << (cum - index * 64)) - 1, &l);
    rs_rdcm_set_raise(&w->acked, cum);
    for (uint32_t i = 0; i < ack->words; i++)
        take(w, ack->base / 64 + i, ack->map[i], &l);
    rs_rdcm_set_settle(&w->acked);
    uint64_t grown = w->flying_most + l.by_repair;
    w->flying_most = grown < w->flying_room ? (uint32_t)grown : w->flying_room;
    measure(node, now, r, w, top, &l);
    w->delay = rs_rdcm_ack_delay(node, r) / 2 * 3;
    w->by_tree = ack->flags & RS_ACK_BY_TREE;
    suspect(node, now, r, w, &l, ack->flags & RS_ACK_STARVED);
    if (ring_of(r, w) == RS_RING_LEAF || ring_of(r, w) == RS_RING_PROXY)
        rs_rdcm_starved_look(node, now, r, (rs_ring_kind)ring_of(r, w));
    find_lost_repairs(node, now, w);
    if (waits || l.by_repair || w->settled > w->acked.cum)
        rs_watch_look(node, now, r, w);
    return l.fresh;
}

/* ------------------------------------------------------------------------------------------------ what it lacks */

static void has_failed(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w) {
    int ring = ring_of(r, w);
    rs_time pause = TELL_AGAIN * w->failed < TELL_SLOWEST ? TELL_AGAIN * w->failed : TELL_SLOWEST;
    if (w->failed == TELL_TIMES || (w->failed && now - w->failed_at < pause * rs_rdcm_options(node)->failure_bound) ||
        w->unanswered < UNANSWERED_LEAST || !w->asked_at ||
        now - w->asked_at < busy_bound(node, w, rs_rdcm_options(node)->failure_bound) || ring < 0)
        return;
    w->failed++;
    w->failed_at = now;
    if (ring < 2)
        rs_rdcm_emit(node, r, RS_EV_RECEIVER_FAILED, w->peer, (rs_ring_kind)ring);
}

/* Repairs that were not acknowledged in time are due again: fewer at a time, and with pauses if nothing at all comes
 * from there. Returns when the next one is to be looked at. */
static rs_time expire(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w) {
    rs_time bound = answer_bound(node, w), again = RS_NEVER;
    while (w->count) {
        const rs_flying *f = &w->flying[w->head];
        bool here = rs_rdcm_set_has(&w->acked, f->sn);
        if (!here && now < f->at + bound) {
            again = f->at + bound;
            break;
        }
        if (!here) {
            w->repaired[f->sn / 64 & w->acked.mask] &= ~(UINT64_C(1) << (f->sn % 64));
            w->out--;
            if (now - w->halved_at >= bound) {
                w->halved_at = now;
                w->unanswered++;
                w->flying_most = w->flying_most > 1 ? w->flying_most / 2 : 1;
                if (w->asked_at && w->unanswered > 1) {
                    w->pause = w->pause ? 2 * w->pause : 2 * rs_watch_timeout(node, w);
                    w->pause = w->pause < PAUSE_MOST ? w->pause : PAUSE_MOST;
                    w->pause_until = now + w->pause;
                }
            }
        }
        w->head = (w->head + 1) % w->flying_room;
        w->count--;
    }
    has_failed(node, now, r, w);
    return again;
}

/* The first packet below `top` that is here, not acknowledged and not under way; `top` if there is none. */
static uint64_t first_lacking(const rs_rdcm *r, const rs_rdcm_watch *w, uint64_t top) {
    uint64_t first = w->acked.cum / 64;
    for (uint64_t index = first; index * 64 < top && index - first <= w->acked.mask; index++) {
        uint64_t lacking = rs_rdcm_set_word(&r->here, index) & ~rs_rdcm_set_word(&w->acked, index) &
                           ~w->repaired[index & w->acked.mask];
        if (lacking) {
            uint64_t sn = index * 64 + (uint64_t)__builtin_ctzll(lacking);
            return sn < top ? sn : top;
        }
    }
    return top;
}

/* Of the last packets of an object the last one: with it the others are known to be lost. */
static uint64_t last_if_near(const rs_rdcm *r, const rs_rdcm_watch *w, uint64_t sn) {
    uint64_t last = r->here.top - 1;
    bool near = r->here.top == r->transfer->fragments && last - sn < RS_RDCM_OVERTAKEN;
    if (!near || rs_rdcm_set_has(&w->acked, last) || w->repaired[last / 64 & w->acked.mask] >> (last % 64) & 1)
        return sn;
    return last;
}

static void fly(rs_time now, rs_rdcm_watch *w, uint64_t sn) {
    w->repaired[sn / 64 & w->acked.mask] |= UINT64_C(1) << (sn % 64);
    w->tried[sn / 64 & w->acked.mask] |= UINT64_C(1) << (sn % 64);
    w->flying[(w->head + w->count++) % w->flying_room] = (rs_flying){sn, now};
    w->out++;
    w->check_at = now;
    if (!w->asked_at)
        w->asked_at = now;
}

/* Nothing is known of a new successor: the newest packet makes it speak. */
static bool introduce(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, uint64_t *sn) {
    rs_time at = w->heard_at + 2 * rs_watch_timeout(node, w);
    *sn = r->here.top - 1;
    if (r->here.top == 0 || w->count || now < at) {
        w->check_at = r->here.top == 0 ? RS_NEVER : w->count ? w->check_at : at;
        return false;
    }
    if (!rs_rdcm_set_fits(&w->acked, *sn))
        rs_rdcm_set_raise(&w->acked, *sn / 64 * 64);
    fly(now, w, *sn);
    return true;
}

/* Whether what it said last tells that it lacks a packet. Of one that was silent since nothing is known: it may only be
 * busy, and repairs to it would keep it so. One of them makes it speak, as a tail loss probe does (RFC 8985). Nor is it
 * known of one to whom the tree brings packets: what these overtook it tells itself, the others may wait in its
 * socket. */
static bool spoke_since(const rs_node *node, const rs_rdcm *r, const rs_rdcm_watch *w, rs_time passed) {
    rs_time at = passed == INT64_MIN || passed == RS_NEVER ? rs_passes_oldest(&r->passes) : passed;
    return !w->by_tree && w->heard_at >= at + rs_watch_timeout(node, w) / 2;
}

/* Once an object's last packet passed: nothing comes after it that would show losses (RFC 8985, 7.2). */
static rs_time tail_due(const rs_node *node, const rs_rdcm_watch *w, rs_time passed, rs_time due) {
    rs_time late = rs_rtt_late(&w->rtt, rs_watch_timeout(node, w)) + RS_RDCM_ANSWER;
    return passed != RS_NEVER && passed + late < due ? passed + late : due;
}

bool rs_watch_next(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, uint64_t *sn) {
    if (now < w->check_at)
        return false;
    rs_time again = expire(node, now, r, w);
    w->check_at = again;
    if (w->pause_until > now) {
        w->check_at = w->pause_until < again ? w->pause_until : again;
        return false;
    }
    if (w->out >= (w->pause ? 1 : w->flying_most) || w->count == w->flying_room)
        return false;
    if (w->state != RS_WATCH_KNOWN)
        return introduce(node, now, r, w, sn);
    *sn = first_lacking(r, w, r->here.top);
    if (*sn >= r->here.top)
        return false;
    bool overtaken = *sn < w->settled;
    if (!overtaken)
        *sn = last_if_near(r, w, *sn);
    rs_time passed = rs_passes_when(&r->passes, *sn);
    if (w->out && !overtaken && !spoke_since(node, r, w, passed))
        return false; /* until the answer comes, or `again` */
    rs_time due = passed == INT64_MIN || passed == RS_NEVER || overtaken ? now : passed + rs_watch_timeout(node, w);
    if (!overtaken && due > now && r->here.top == r->transfer->fragments && !r->transfer->sending)
        due = tail_due(node, w, rs_passes_when(&r->passes, r->here.top - 1), due);
    if (!overtaken && w->by_tree && !r->transfer->sending && due < w->probed_at + rs_watch_timeout(node, w) / PROBES)
        due = w->probed_at + rs_watch_timeout(node, w) / PROBES;
    if (now < due) {
        w->check_at = due < again ? due : again;
        return false;
    }
    uint32_t most = r->transfer->sending ? STRETCH_SENDER : STRETCH_RING;
    if (!overtaken && w->stretch < most && now - w->stretched_at >= rs_watch_timeout(node, w)) {
        w->stretch++;
        w->stretched_at = now;
    }
    if (!overtaken)
        w->probed_at = now;
    fly(now, w, *sn);
    return true;
}

static void repair_packet(rs_rdcm *r, rs_rdcm_watch *w, uint64_t sn, rs_packet_out *out) {
    rs_transfer *t = r->transfer;
    rs_data_header header = {.session = t->session, .engine = RS_PROTOCOL_RDCM, .nonce = t->nonce, .sn = sn};
    if (sn == 0) {
        header.flags = RS_DATA_FIRST;
        header.aux = t->size;
    }
    rs_wire_encode_data(&header, out->header);
    out->header_length = RS_DATA_HEADER;
    out->channel = RS_CH_PEER_DATAGRAM;
    out->peer = w->peer;
    out->group = RS_NO_GROUP;
    out->xfer = t->id;
    out->payload_offset = sn * t->fragment_size;
    out->payload_length = rs_fragment_length(t, sn);
    out->combine.count = 0;
    rs_rdcm_receiving(r)->stats.peer_repairs_sent++;
}

/* One repair to a successor. */
bool rs_rdcm_poll_repair(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out) {
    rs_rdcm *r = x->t.own;
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        rs_rdcm_watch *w = &r->rings[i].successor;
        uint64_t sn;
        if (w->state != RS_WATCH_OFF && rs_watch_next(node, now, r, w, &sn)) {
            repair_packet(r, w, sn, out);
            return true;
        }
    }
    return false;
}
