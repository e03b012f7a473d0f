/* Who must acknowledge what this node has, and what is sent to it again (Sec. 3.3, Packet Repair). A receiver watches
 * its successor in each ring and repairs by unicast; the sender watches its children all together, one of whom is
 * enough, and repairs by multicast.
 *
 * A packet is due for repair when it is here, passed here longer ago than the ACK timeout, and is not acknowledged;
 * or when the successor says that it was lost. One that comes here late is due for those behind at
 * once: so repairs run along a ring without waiting again at each hop. Repairs under way are bounded as TCP bounds
 * segments. */
#include "core/rdcm/rdcm.h"

#include <string.h>

#define TIMEOUT_MOST (50 * RS_MS)
#define PAUSE_MOST (100 * RS_MS)
#define FLYING_FIRST 32
/* Doublings of a timeout until a round trip is measured again (RFC 6298): a multicast too many costs the whole tree; a
 * successor below a failed link, whose packets are all repaired, must not wait. */
#define STRETCH_SENDER 6
#define STRETCH_RING 1
#define LEAST_FOR (10000 * RS_MS)
#define LATE_MANY 3 /* timeouts */
/* A failure is told again while it goes on, so that the manager sees that this is no moment of work: after so many
 * failure bounds, then after more each time, but within the second in which a manager forgets it; so often in all, by
 * when the sender itself has given such a receiver up. */
#define TELL_AGAIN 5
#define TELL_SLOWEST 15
#define TELL_TIMES 32
#define UNANSWERED_LEAST 3 /* times in a row, before a successor is told failed */
#define PROBES 4           /* by time-outs alone, in one time-out, of one to whom the tree brings packets */
#define SUSPECT_LEAST 16   /* packets in a row that came by repair, before a link is suspected */
/* That is told again while it goes on: the word may have met a manager that was away. After about what a manager takes
 * to weigh it, then after twice as long each time, so often in all. */
#define SUSPECT_AGAIN (500 * RS_MS)
#define SUSPECT_TIMES 8

#define AHEAD_LEAST 16 /* packets that a successor is ahead of what came here by the tree */
#define ACKS_LEAST 3   /* in a row: one may have waited in a socket, before packets that wait in another */

rs_time rs_watch_timeout(const rs_node *node, const rs_rdcm_watch *w) {
    const rs_rdcm_config *c = rs_rdcm_options(node);
    if (c->ack_timeout)
        return c->ack_timeout;
    rs_time late =
        (rs_rtt_late(&w->trip, c->ack_timeout_first) << w->stretch) + c->ack_delay; /* trips are the newest's */
    return late < c->ack_timeout_least ? c->ack_timeout_least : late > TIMEOUT_MOST ? TIMEOUT_MOST : late;
}

bool rs_watch_start(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, rs_peer peer) {
    uint64_t words = r->capacity / 64, flying = r->capacity < RS_RDCM_FLYING ? r->capacity : RS_RDCM_FLYING;
    uint64_t *memory = rs_memory_take(&node->allocator, 3 * words * sizeof *memory + flying * sizeof *w->flying);
    if (!memory)
        return false;
    *w = (rs_rdcm_watch){.peer = peer, .in_use = true, .look_at = RS_NEVER, .heard_at = now, .tree_at = now};
    rs_rdcm_set_init(&w->acked, r->transfer->fragments, memory, words);
    w->repaired = memory + words;
    w->tried = memory + 2 * words;
    w->flying = (rs_flying *)(memory + 3 * words);
    w->flying_room = (uint32_t)flying;
    w->flying_most = FLYING_FIRST < flying ? FLYING_FIRST : (uint32_t)flying;
    w->known = r->here.top == 0;
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
    w->look_at = now;
    if (!r->transfer->sending)
        rs_list_keep(&node->mending, &r->transfer->in_mending, true);
}

void rs_watch_grown(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w) {
    if (w->look_at != RS_NEVER)
        return;
    w->look_at = now + rs_watch_timeout(node, w);
    rs_rdcm_wake(node, r, w->look_at);
}

/* ------------------------------------------------------------------------------------------------- what it has */

typedef struct {
    uint64_t fresh, by_repair, tried;
    uint64_t newest, newest_repair; /* one past; 0 = none */
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
    /* The usual trip would not do: below a failed link it is that of repairs upon repairs, and none of their answers
     * would count as one. */
    bool soon = at && now - at < (r->trip_least ? r->trip_least : w->trip.smoothed) / 2;
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
    rs_time most = 2 * rs_watch_timeout(node, w), trip = now - when;
    rs_rtt_sample(&w->trip, trip < most ? trip : most);
    w->stretch = 0;
    if (r->trip_least == 0 || trip < r->trip_least || now - r->trip_least_at > LEAST_FOR) {
        r->trip_least = trip > 1 ? trip : 1;
        r->trip_least_at = now;
    }
}

/* Where acknowledgements take long (busy hosts), failure is told from lateness only after longer. */
static rs_time busy_bound(const rs_node *node, const rs_rdcm_watch *w, rs_time bound) {
    rs_time late = LATE_MANY * rs_watch_timeout(node, w);
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
    w->known = true;
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
    if (!w->known)
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
    w->look_at = now;
    if (!w->asked_at)
        w->asked_at = now;
}

/* Nothing is known of a new successor: the newest packet makes it speak. */
static bool introduce(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, uint64_t *sn) {
    rs_time at = w->heard_at + 2 * rs_watch_timeout(node, w);
    *sn = r->here.top - 1;
    if (r->here.top == 0 || w->count || now < at) {
        w->look_at = r->here.top == 0 ? RS_NEVER : w->count ? w->look_at : at;
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

bool rs_watch_next(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, uint64_t *sn) {
    if (now < w->look_at)
        return false;
    rs_time again = expire(node, now, r, w);
    w->look_at = again;
    if (w->pause_until > now) {
        w->look_at = w->pause_until < again ? w->pause_until : again;
        return false;
    }
    if (w->out >= (w->pause ? 1 : w->flying_most) || w->count == w->flying_room)
        return false;
    if (!w->known)
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
    if (!overtaken && w->by_tree && !r->transfer->sending && due < w->probed_at + rs_watch_timeout(node, w) / PROBES)
        due = w->probed_at + rs_watch_timeout(node, w) / PROBES;
    if (now < due) {
        w->look_at = due < again ? due : again;
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
        if (w->in_use && rs_watch_next(node, now, r, w, &sn)) {
            repair_packet(r, w, sn, out);
            return true;
        }
    }
    return false;
}

/* ----------------------------------------------------------------------------- a receiver that the tree leaves out
 *
 * Sec. 3.4, Link Failure. Ours: a receiver to whom nothing comes by the tree knows that before its predecessor can
 * infer it from repairs, which are few where hosts are busy. The ACKs of its successors show that packets come to them
 * by the tree, while to itself none does: then its own ACKs say so, and the predecessor, who has the packets by the
 * tree, reports it.
 *
 * A single failed link cuts off one of a leaf ring, or all of it. In the first case its successor there has a tree; in
 * the second only that of the proxy, in the ring above. */

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
