/* Who must acknowledge what this node has, and what is sent to it again (Sec. 3.3, Packet Repair). A receiver watches
 * its successor in each ring and repairs by unicast; the sender watches its children all together, one of whom is
 * enough, and repairs by multicast.
 *
 * A packet is due for repair when it is here, passed here longer ago than the ACK timeout, and is not acknowledged;
 * or when the successor says that it was lost. One that comes here late is due for those behind at once: so repairs run
 * along a ring without waiting again at each hop. Repairs under way are bounded as TCP bounds segments. */
#include "core/rdcm/repair.h"

#include <string.h>

#include "core/transfer/engine.h"

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
#define EARLY_MOST 16      /* of a successor, at an object's end (rostrum sim run rdcm-goodput) */
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
            return f->assumed ? 0 : f->at;
    }
    return 0;
}

/* Until an answer is measured: an ACK's round trip and the answer's wait, twice. */
static rs_time first_answer(const rs_rdcm *r, rs_time timeout) {
    rs_time guess = r->min_rtt ? 2 * (r->min_rtt + RS_RDCM_ANSWER) : 2 * timeout;
    return guess < 2 * timeout ? guess : 2 * timeout;
}

/* All of an object has gone by here: nobody waits for anything but repairs. */
static bool is_over(const rs_rdcm *r) {
    return !r->transfer->sending && !r->transfer->stream.on && r->here.top == r->transfer->fragments;
}

/* A repair that was not acknowledged for so long is lost. At an object's end, where the last lost repair is what a
 * receiver waits for, some go again after a usual answer and an answer's wait, unless nothing at all is heard since, as
 * tail loss probes do (RFC 8985, 7.2). Before, that would only make doubles where queues grow. */
static rs_time answer_bound(const rs_node *node, const rs_rdcm *r, const rs_rdcm_watch *w) {
    rs_time timeout = rs_watch_timeout(node, w), late = rs_rtt_late(&w->answer, 2 * timeout);
    late = late < timeout / 2 ? timeout / 2 : late < TIMEOUT_MOST ? late : TIMEOUT_MOST;
    if (w->unanswered || w->early == EARLY_MOST || !is_over(r))
        return late;
    rs_time soon = w->answer.smoothed ? w->answer.smoothed + RS_RDCM_ANSWER : first_answer(r, timeout);
    return soon < late ? soon : late;
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

static bool landed_or_lost(const rs_rdcm *r, rs_rdcm_watch *w, const rs_flying *f, bool lost) {
    bool here = rs_rdcm_set_has(&w->acked, f->sn);
    if (!here && !lost)
        return false;
    if (!here) {
        w->early += w->early < EARLY_MOST && is_over(r);
        w->repaired[f->sn / 64 & w->acked.mask] &= ~(UINT64_C(1) << (f->sn % 64));
        w->out--;
    }
    w->head = (w->head + 1) % w->flying_room;
    w->count--;
    return true;
}

/* Repairs that went so long ago that this ACK would tell of them: they were lost too (as RFC 8985 finds it for TCP). */
static void find_lost_repairs(const rs_node *node, rs_time now, const rs_rdcm *r, rs_rdcm_watch *w) {
    while (w->count) {
        const rs_flying *f = &w->flying[w->head];
        if (!landed_or_lost(r, w, f, now - f->at > answer_bound(node, r, w)))
            break;
    }
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
    find_lost_repairs(node, now, r, w);
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
    rs_time again = RS_NEVER;
    while (w->count) {
        const rs_flying *f = &w->flying[w->head];
        rs_time bound = answer_bound(node, r, w);
        bool here = rs_rdcm_set_has(&w->acked, f->sn);
        if (!here && now < f->at + bound) {
            again = f->at + bound;
            break;
        }
        if (!here) {
            w->repaired[f->sn / 64 & w->acked.mask] &= ~(UINT64_C(1) << (f->sn % 64));
            w->out--;
            w->early += w->early < EARLY_MOST && is_over(r);
            if (!f->assumed && now - w->halved_at >= bound) {
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

static void fly(rs_time now, rs_rdcm_watch *w, uint64_t sn, bool assumed) {
    w->repaired[sn / 64 & w->acked.mask] |= UINT64_C(1) << (sn % 64);
    w->tried[sn / 64 & w->acked.mask] |= UINT64_C(1) << (sn % 64);
    w->flying[(w->head + w->count++) % w->flying_room] = (rs_flying){sn, now, assumed};
    w->out++;
    w->check_at = now;
    if (!w->asked_at && !assumed)
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
    fly(now, w, *sn, false);
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
    fly(now, w, *sn, false);
    return true;
}

void rs_watch_assume(rs_time now, rs_rdcm_watch *w, uint64_t sn) {
    if (w->state != RS_WATCH_KNOWN || w->count == w->flying_room || !rs_rdcm_set_fits(&w->acked, sn) ||
        rs_rdcm_set_has(&w->acked, sn) || w->repaired[sn / 64 & w->acked.mask] >> (sn % 64) & 1)
        return;
    fly(now, w, sn, true);
}
