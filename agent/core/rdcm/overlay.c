/* Views of the backup overlay (Sec. 3.2), and moving from one to the next without loss (Sec. 3.4, Repair Window
 * Management when Switching Overlay Rings): a receiver goes on acknowledging to its old predecessor, which so keeps
 * what it lacks, until the new one says that it can repair; then it tells the old one that it has left. */
#include "core/rdcm/rdcm.h"
#include "core/transfer/engine.h"

#include <string.h>

#define READY_TRIES 64
#define OLD_SILENT (1000 * RS_MS) /* an old successor that says nothing for so long is not repaired any more */

#define ANSWER_TIME (RS_MS / 8) /* in which repairs are acknowledged */
#define LATE_MANY 4             /* time-outs: an answer that takes longer is none */
#define AHEAD_PARTS 16 /* expectations are told in steps of so many to a window, so that the slowest can know its own */

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

/* ------------------------------------------------------------------------------------------------ acknowledgements
 *
 * Acknowledgements going out (Sec. 3.3): what came here, to predecessor and parent in the leaf ring; what some child
 * has, to predecessor and parent in the proxy ring. Ours: a proxy counts as its own child even if it is not in the ring
 * below: a packet that is anywhere below a branching node reaches all below it by the rings there, so there is nothing
 * to repair from above. With them goes up to which sequence number the sender may go as far
 * as those below are concerned, the least of all (Sec. 3.5). There is no queue: an ACK is made from the state when it
 * can be sent, and stands for all packets since the last one. So a receiver sends and gets as many in a large group as
 * in a small one. */

static uint64_t own_expected(const rs_rdcm *r) {
    if (r->here.cum == r->transfer->fragments)
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

void rs_rdcm_say(rs_node *node, rs_rdcm *r, uint32_t bits) {
    r->say |= bits;
    if (r->say)
        rs_list_keep(&node->acking, &r->transfer->in_acking, true);
}

static uint32_t bits_of(const rs_rdcm_ring *ring, uint32_t i) {
    uint32_t bits = ring->predecessor != RS_NO_PEER ? 1u << (2 * i) : 0;
    if (ring->parent != RS_NO_PEER && ring->parent != ring->predecessor)
        bits |= 2u << (2 * i);
    return bits;
}

void rs_rdcm_say_all(rs_node *node, rs_rdcm *r, rs_ring_kind kind) {
    rs_rdcm_news *news = &r->news[kind];
    news->unsaid = 0;
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

uint64_t rs_rdcm_least_settled(const rs_rdcm *r) {
    uint64_t least = RS_RDCM_NO_LIMIT;
    rs_time newest = INT64_MIN;
    for (uint32_t i = 0; i < r->child_count; i++)
        newest = r->children[i].heard_at > newest ? r->children[i].heard_at : newest;
    for (uint32_t i = 0; i < r->child_count; i++)
        if (r->children[i].settled < least && newest - r->children[i].heard_at < RS_RDCM_SILENT_LEAST &&
            !rs_rdcm_is_silent(r, &r->children[i]))
            least = r->children[i].settled;
    return least;
}

/* In a proxy ring: none of those below has what is below it, unless it says so. */
static uint64_t settled(const rs_rdcm *r, rs_ring_kind kind) {
    uint64_t own = own_settled(r), below = rs_rdcm_least_settled(r);
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
    r->later_due = now + ANSWER_TIME;
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

static uint32_t every(const rs_node *node, const rs_rdcm *r) {
    uint32_t quarter = r->bic.window / 4 ? r->bic.window / 4 : 1, given = rs_rdcm_options(node)->ack_every;
    return given < quarter || rs_rdcm_options(node)->no_congestion_control ? given : quarter;
}

static void gathered(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind, bool at_once) {
    rs_rdcm_news *news = &r->news[kind];
    if (at_once || news->unsaid >= every(node, r)) {
        rs_rdcm_say_all(node, r, kind);
    } else if (news->due == RS_NEVER) {
        news->due = now + rs_rdcm_options(node)->ack_delay;
        rs_rdcm_wake(node, r, news->due);
    }
}

void rs_rdcm_news_of(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind, uint64_t sn, bool at_once) {
    rs_rdcm_news *news = &r->news[kind];
    news->unsaid++;
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
    gathered(node, now, r, kind, expected < said || expected - said >= every(node, r));
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
    if (bit == RS_RDCM_STRAY) {
        fill(r, RS_RING_LEAF, ack);
        ack->flags = RS_ACK_TO_PREDECESSOR | RS_ACK_LEFT;
        *to = r->stray;
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
    if (!up && i < 2 && rs_rdcm_starves(r, (rs_ring_kind)i))
        ack->flags |= RS_ACK_STARVED;
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
