/* A sender over a wide area: sections flow one after the other, those with losses are repaired between the packets of
 * later ones, and are freed when everybody who counts has said that it has them. The rate is that of the slowest
 * receiver that counts. */
#include "core/wan/sender.h"

#include "core/wan/nack_tree.h"
#include "core/wan/wan.h"

/* Where no other source is named: docs/wan.md. */
#define ACCEPT_MOST (1000 * RS_MS)  /* who has not accepted by then is not waited for, if others have (a bound) */
#define ACCEPT_SPREAD (50 * RS_MS)  /* a bound */
#define EARLY_TRIP 16               /* data go so much of a round trip after OPEN, (a bound) */
#define EARLY_MOST 2                /* round trips' of the first rate go so at most (a bound) */
#define EARLY_TRIPS_LEAST 4         /* times that; otherwise it is not worth it (a bound) */
#define EARLY_LEAST (2 * RS_MS)     /* and this at least: it is accepted meanwhile (a bound) */
#define GATHER_LEAST (2 * RS_MS)    /* a bound */
#define SILENT_LEAST (1000 * RS_MS) /* who says nothing for so long, and eight round trips, holds nothing up */
#define PROBE_LEAST (20 * RS_MS)    /* a bound */
#define PROBE_MOST (1000 * RS_MS)   /* a bound */
#define PROBES_MOST 10
#define UNHEARD_MOST (250 * RS_MS) /* and two round trips: hosts stand still for less (a bound) */
#define UNHEARD_DOWN (50 * RS_MS)  /* and a round trip, where the connection has ended, too */
#define SLOW_FOR (1000 * RS_MS)    /* and ten round trips: it is not a moment's trouble */
#define APART_TIMES 4              /* that: beside others the rates alone count then (a bound) */
#define PULSES_SEEN_MOST 3         /* round trips in which a pulse is seen by all, or is not waited for (a bound) */
#define ASKED_MOST 32              /* receivers that are asked for a status at once (a bound) */
#define TRIAL_PACKETS 64           /* of a trial that tells; what one receiver more than another got in it (a bound) */
#define PART_LEAST 0.2             /* at the end of an object, when only repairs go, to others (rostrum lab run wan) */
#define TAIL_PART 64               /* of an object: so much goes twice at most, while nothing else is to be sent */
#define TAIL_XOR_PART 8            /* and of so much go XORs at most, (a bound) */
#define TAIL_XOR_LEAST 128         /* but of so many fragments, and of a round trip's, if there are any (a bound) */
#define NEED_RTTS 3 /* round trips from a packet's first sending to its section's end: NACK, repair, word */
#define NEED_MORE (100 * RS_MS)

static uint32_t wire_bytes(const rs_sending *x) {
    return x->t.fragment_size + RS_DATA_HEADER + RS_WIRE_OVERHEAD;
}

static uint64_t next_sn(const rs_sending *x) {
    return x->first + x->pos;
}

static rs_wan_peer *peer_of(const rs_sending *x, const rs_recipient *r) {
    return &rs_wan_sender_of(&x->t)->peers[r - x->recipients];
}

static bool is_member(const rs_recipient *r) {
    return rs_is_active(r) && r->member && r->light != RS_LIGHT_DEMOTED;
}

static rs_time longest_silence(const rs_wan_sender *w) {
    return SILENT_LEAST + 8 * w->grtt;
}

/* The group's rate and its sections wait for it. */
static bool counts(const rs_sending *x, const rs_recipient *r, rs_time now) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    const rs_wan_peer *p = peer_of(x, r);
    if (!is_member(r) || !rs_has_accepted(r))
        return false;
    rs_time since = p->heard_at > w->counts_from ? p->heard_at : w->counts_from;
    bool joined_late = r->accepted_at > w->counts_from && p->cum < w->sections.freed * RS_WAN_SECTION;
    return now - since < longest_silence(w) && !joined_late;
}

/* --------------------------------------------------------------------------------------------- begin and end */

/* All before `sn` are there. Sections are freed whole; memory fragment by fragment, for a transfer's part of it may be
 * less than a section. */
static void release(rs_node *node, rs_sending *x, uint64_t sn) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint64_t there = sn < next_sn(x) ? sn : next_sn(x);
    rs_wan_sections_release(&w->sections, &node->allocator, sn >= x->end ? w->sections.count : sn / RS_WAN_SECTION);
    if (there <= w->given_to)
        return;
    rs_wan_pool_give(&w->memory, (there - w->given_to) * x->t.fragment_size);
    w->given_to = there;
}

void rs_wan_sender_stop(rs_node *node, rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (!w)
        return;
    rs_wan_sections_free(&w->sections, &node->allocator);
    rs_wan_gaps_free(&w->gaps, &node->allocator);
    rs_wan_pool_leave(&w->memory);
    w->look_due = w->over_due = w->begin_due = w->early_due = RS_NEVER;
    w->early = false;
}

void rs_wan_sender_free(rs_node *node, rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    rs_wan_sender_stop(node, x);
    rs_wan_tree_free(node, w);
    rs_memory_give(&node->allocator, w->peers);
    rs_memory_give(&node->allocator, w);
}

static void data_done(rs_node *node, rs_time now, rs_sending *x) {
    rs_data_stop(node, x);
    rs_wan_sender_stop(node, x);
    x->stats.data_done_at = now;
    x->path_done_due = x->fnsd_due = now + RS_DRAIN;
    rs_sender_phase(node, x, RS_PHASE_PATCHING);
    rs_sender_arm(node, x);
}

/* The longest round trip that the caller has measured to its receivers; 0: OPEN cannot have gone to each of them, or
 * one's is not known, or one may have something of it already. Where it is known data go right behind OPEN: whoever has
 * not accepted it when they come says later that they are missing. */
static rs_time early_trip(const rs_sending *x) {
    rs_time longest = 0;
    if (rs_is_unicast(&x->grant) || x->source || x->first > 0 || x->t.session > 0)
        return 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        if (!is_member(r) || rs_has_accepted(r) || !rs_peer_is_up(r->link.peer) || r->link.peer->measured == 0)
            return 0;
        longest = r->link.peer->measured > longest ? r->link.peer->measured : longest;
    }
    return longest;
}

const char *rs_wan_begin(rs_node *node, rs_time now, rs_sending *x) {
    rs_wan_node *shared = rs_wan_node_of(node);
    rs_engine_drop(node, &x->t); /* of the session before; or a view came, for another engine */
    rs_wan_sender *w = rs_memory_take(&node->allocator, sizeof *w);
    rs_wan_peer *peers = rs_memory_take(&node->allocator, x->recipient_count * sizeof *peers);
    if (!w || !peers || !rs_wan_sections_start(&w->sections, &node->allocator, x->end, x->recipient_count)) {
        rs_memory_give(&node->allocator, w);
        rs_memory_give(&node->allocator, peers);
        return "out of memory";
    }
    w->peers = peers;
    rs_engine_take(&x->t, &rs_engine_wan, w);
    x->t.engine = &rs_engine_wan;
    w->sections.coded = rs_wan_config_of(node, x)->coded && !rs_is_unicast(&x->grant);
    w->sections.freed = x->first / RS_WAN_SECTION;
    w->given_to = x->first;
    rs_wan_pool_join(&shared->pool, &w->memory, UINT64_C(2) * RS_WAN_SECTION * x->t.fragment_size);
    w->opened_at = now;
    w->begin_due = now + ACCEPT_MOST;
    w->over_due = w->look_due = RS_NEVER;
    w->early_due = now;
    rs_sender_open_members(node, now, x);
    rs_sender_phase(node, x, RS_PHASE_ATTEMPT);
    rs_sender_want_path(node, now, x);
    rs_sender_arm(node, x);
    return NULL;
}

/* Its round trip, as opening it has shown; the last retransmission of a lost OPEN makes it too long at worst. */
static rs_time first_rtt(const rs_sending *x, const rs_recipient *r) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    const rs_peer_state *p = r->link.peer;
    rs_time from = p->up_at != RS_NEVER && p->up_at > w->opened_at ? p->up_at : w->opened_at;
    rs_time rtt = p->rtt.smoothed ? p->rtt.smoothed : r->accepted_at - from;
    return rtt > RS_MS / 2 ? rtt : RS_MS / 2;
}

/* By unicast: the receiver may have the beginning, from another server. Whole sections are kept account of. */
static void begin_where_it_is(rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint64_t cum = UINT64_MAX;
    for (uint32_t i = 0; i < x->recipient_count; i++)
        if (is_member(&x->recipients[i]) && w->peers[i].cum < cum)
            cum = w->peers[i].cum;
    uint64_t first = cum / RS_WAN_SECTION * RS_WAN_SECTION;
    if (!rs_is_unicast(&x->grant) || cum > x->end || first <= x->first)
        return;
    x->pos = first - x->first;
    w->sections.freed = first / RS_WAN_SECTION;
    w->given_to = first;
}

/* Who is asked for a status says what it misses, too, and not by a tree. */
static bool may_ask(const rs_sending *x) {
    return x->recipient_count <= ASKED_MOST && !rs_wan_sender_of(&x->t)->places;
}

/* What comes of each of its steps is told by itself. */
static void pulse_goes_on(rs_sending *x, rs_time now) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    int64_t rate = rs_wan_pulse_rate(&w->pulse, now, w->rate_bps), most = w->peers[0].path.most_bps;
    if (rs_wan_pulse_on(&w->pulse, now))
        x->pacer.rate_bps = rate < most ? rate : most;
    rs_time change = rs_wan_pulse_change(&w->pulse, now);
    w->report |= change != w->pulse_change && may_ask(x);
    w->pulse_change = change;
    w->look_due = change < w->look_due ? change : w->look_due;
}

static void begin_pulse(rs_sending *x, rs_time now, rs_time trip, const rs_wan_path *path) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    int64_t known = rs_wan_path_known(path);
    rs_wan_pulse_begin(&w->pulse, now, trip, known > w->rate_bps ? known : w->rate_bps, path->pulse_most,
                       path->careful);
    pulse_goes_on(x, now);
}

/* Who counts is known: those that have accepted. */
static void all_are_here(rs_node *node, rs_time now, rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (rs_wan_tree_begin(node, now, x) && !rs_wan_sections_merge(&w->sections, &node->allocator))
        w->sections.receivers = UINT32_MAX; /* repairs go by multicast all the same */
    w->begin_due = w->early_due = RS_NEVER;
    w->early = false;
    w->counts_from = now;
}

/* `early`: nobody has accepted yet. */
static void high_rate(rs_node *node, rs_time now, rs_sending *x, bool early) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    const rs_wan_config *c = rs_wan_config_of(node, x);
    uint32_t members = 0;
    int64_t most = rs_rate_bps(&x->rate);
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_recipient *r = &x->recipients[i];
        members += is_member(r);
        if (is_member(r) && rs_has_accepted(r))
            w->grtt = first_rtt(x, r) > w->grtt ? first_rtt(x, r) : w->grtt;
    }
    w->grtt = early ? early_trip(x) : w->grtt ? w->grtt : RS_MS;
    w->shortest = w->grtt;
    double mean_path = members ? (double)x->grant.path_links / members : 0;
    int64_t first = c->congestion == RS_WAN_FIXED ? c->fixed_bps
                                                  : rs_wan_first_rate(w->grtt, members, x->grant.tree_links, mean_path);
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_wan_path_start(&w->peers[i].path, c->congestion, wire_bytes(x), first, most);
        w->peers[i].part = 1;
    }
    begin_where_it_is(x);
    if (!early)
        all_are_here(node, now, x);
    w->early = early;
    w->early_due = RS_NEVER;
    w->early_end = x->first + (uint64_t)(first / 8000) * (uint64_t)(w->grtt / 1000000 + 1) * EARLY_MOST / wire_bytes(x);
    w->sections.gather = GATHER_LEAST;
    w->look_due = now + RS_WAN_REPORT_LEAST;
    w->sent_since = now;
    x->stats.high_rate_at = now;
    rs_sender_phase(node, x, RS_PHASE_HIGH_RATE);
    w->counts_from = now;
    rs_pacer_start(&x->pacer, now, first < most ? first : most);
    x->pacer.depth_most = RS_WAN_QUEUE_MOST;
    w->rate_bps = x->pacer.rate_bps;
    if (c->congestion == RS_WAN_OWN)
        begin_pulse(x, now, w->grtt, &w->peers[0].path);
}

static void schedule(rs_node *node, rs_time now, rs_sending *x);

/* All that are there have accepted, or were waited for long enough; or nobody is left in this session. */
static void advance(rs_node *node, rs_time now, rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint32_t members = 0, accepted = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        members += is_member(&x->recipients[i]);
        accepted += is_member(&x->recipients[i]) && rs_has_accepted(&x->recipients[i]) &&
                    (w->peers[i].heard_at || !rs_is_unicast(&x->grant) || now >= w->begin_due);
    }
    if (x->phase == RS_PHASE_HIGH_RATE && members == 0) {
        data_done(node, now, x);
        return;
    }
    if (x->phase != RS_PHASE_ATTEMPT && !w->early)
        return;
    if (accepted && accepted < members) { /* the others are waited for as long again */
        rs_time due = now + (now - w->opened_at) + ACCEPT_SPREAD;
        w->begin_due = due < w->begin_due ? due : w->begin_due;
        rs_sender_arm(node, x);
    }
    if (members && (accepted == 0 || (accepted < members && now < w->begin_due)))
        return;
    if (w->early)
        all_are_here(node, now, x);
    else
        high_rate(node, now, x, false);
    w->look_due = now;
    schedule(node, now, x);
    rs_sender_arm(node, x);
}

/* ------------------------------------------------------------------------------------------- the data channel */

/* The only receiver has said nothing for longer than it would: what it gets next is a probe, since all that goes to one
 * that is dead goes again to who follows it. */
static bool is_unheard(const rs_sending *x, rs_time now) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (w->unheard == 0)
        return false;
    bool up = rs_peer_is_up(x->recipients[0].link.peer);
    return now - w->unheard > (up ? UNHEARD_MOST + 2 * w->grtt : UNHEARD_DOWN + w->grtt);
}

/* The next fragment for the first time; x->end: there is none now. */
static uint64_t next_here(const rs_node *node, const rs_sending *x, rs_time now) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint64_t sn = next_sn(x);
    if (sn >= x->end || is_unheard(x, now) || (w->early && sn >= w->early_end))
        return x->end;
    uint64_t here = rs_wan_gaps_next(&w->gaps, node, x, sn, x->end);
    return here < x->end && rs_wan_pool_may(&w->memory, (here + 1 - sn) * x->t.fragment_size) ? here : x->end;
}

/* When there is something to send; RS_NEVER: a status must come first. */
static rs_time work_due(const rs_node *node, const rs_sending *x, rs_time now) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (next_here(node, x, now) < x->end || rs_wan_gaps_late(&w->gaps, node, x) != UINT64_MAX || w->again ||
        rs_wan_tail_left(&w->tail) || w->tail_at > w->tail_first)
        return now;
    rs_time mend = rs_wan_sections_due(&w->sections, now);
    rs_time probe = x->pos && !w->early ? w->probe_due : RS_NEVER; /* a probe is the last packet once more */
    return mend < probe ? mend : probe;
}

static void schedule(rs_node *node, rs_time now, rs_sending *x) {
    rs_data_stop(node, x);
    if (x->phase != RS_PHASE_HIGH_RATE)
        return;
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (next_sn(x) == x->end && x->first == x->end) { /* what follows is an event: it waits for the timer */
        w->over_due = now;
        rs_sender_arm(node, x);
        return;
    }
    rs_time due = work_due(node, x, now), paced = rs_pacer_due(&x->pacer);
    if (next_sn(x) >= x->available && rs_wan_gaps_next(&w->gaps, node, x, next_sn(x), x->end) == x->end)
        w->starved_at = now;
    if (due > now && paced < due) {
        w->held = true;
        rs_pacer_resume(&x->pacer, now);
        paced = rs_pacer_due(&x->pacer);
    }
    due = paced > due ? paced : due;
    if (due > now)
        rs_timer_set(&node->data_timers, &x->data_timer, due);
    else
        rs_list_append(&node->ready, &x->in_ready);
}

static rs_time probe_after(const rs_wan_sender *w) {
    rs_time after = w->grtt / 2 > PROBE_LEAST ? w->grtt / 2 : PROBE_LEAST;
    after <<= w->probes < 6 ? w->probes : 6;
    return after < PROBE_MOST ? after : PROBE_MOST;
}

static void header(const rs_sending *x, rs_time now, uint64_t sn, bool repair, rs_packet_out *out) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    const rs_wan_word word = {.stamp_us = (uint64_t)(now / 1000) & ((UINT64_C(1) << RS_WAN_STAMP_BITS) - 1),
                              .grtt = w->grtt,
                              .group = x->recipient_count,
                              .repair = repair};
    const rs_data_header h = {.flags = RS_DATA_LIMIT,
                              .engine = RS_PROTOCOL_WAN,
                              .session = x->t.session,
                              .nonce = x->t.nonce,
                              .sn = sn,
                              .aux = rs_wan_pack(&word)};
    rs_data_packet(x, &h, out);
    if (!rs_is_unicast(&x->grant))
        return;
    out->channel = RS_CH_PEER_DATAGRAM;
    out->peer = x->recipients[0].link.peer->id;
}

static void coded(rs_sending *x, const uint64_t *member, uint32_t count, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    rs_repair_header h = {.engine = RS_PROTOCOL_WAN, .session = x->t.session, .nonce = x->t.nonce, .count = count};
    w->number = w->number % RS_REPAIR_NUMBERS + 1;
    h.number = w->number;
    *out = (rs_packet_out){.channel = RS_CH_GROUP, .peer = RS_NO_PEER, .group = x->grant.group, .xfer = x->t.id};
    out->header_length = RS_REPAIR_HEADER;
    out->combine.count = count > 1 ? count : 0;
    for (uint32_t i = 0; i < count; i++) {
        h.member[i] = member[i];
        out->combine.offset[i] = member[i] * x->t.fragment_size;
        out->combine.length[i] = rs_fragment_length(&x->t, member[i]);
    }
    out->payload_offset = out->combine.offset[0];
    out->payload_length = out->combine.length[0]; /* only the object's last fragment may be shorter */
    rs_wire_encode_repair(&h, out->header);
    x->stats.repairs_sent++;
}

/* False: who needed it is gone. */
static bool repair(rs_time now, rs_sending *x, const rs_wan_mend *m, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (m->unicast && (m->bit >= x->recipient_count || !is_member(&x->recipients[m->bit])))
        return false;
    if (m->count > 1) {
        coded(x, m->member, m->count, out);
        return true;
    }
    header(x, now, m->sn, true, out);
    if (m->unicast) {
        out->channel = RS_CH_PEER_DATAGRAM;
        out->peer = x->recipients[m->bit].link.peer->id;
        out->group = RS_NO_GROUP;
        x->stats.peer_repairs_sent++;
        w->alone_bytes += rs_wire_bytes(out);
        w->peers[m->bit].repair_bytes += rs_wire_bytes(out);
    }
    x->stats.packets_sent += !m->unicast;
    return true;
}

/* If that is lost, so that it must be asked for again, it comes when all else is there. */
static bool near_end(const rs_sending *x) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    double left = (double)(x->end - next_sn(x)) * wire_bytes(x) * 8e9;
    return left <= (double)x->pacer.rate_bps * (double)(w->grtt + w->grtt / 2);
}

/* The next packet of a repair; false: none is due. */
static bool mend(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    rs_wan_mend m;
    while (rs_wan_sections_mend(&w->sections, &node->allocator, now, &m)) {
        if (!repair(now, x, &m, out))
            continue;
        if (near_end(x)) {
            w->end_repairs[w->again_at++ % RS_WAN_END_REPAIRS] = m;
            w->again += w->again < RS_WAN_END_REPAIRS;
        }
        return true;
    }
    return false;
}

/* The second time, of the object's end. */
static bool mend_again(rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    while (w->again)
        if (repair(now, x, &w->end_repairs[(w->again_at - w->again--) % RS_WAN_END_REPAIRS], out))
            return true;
    return false;
}

/* The XOR of the last fragments, before anybody has missed one. */
static bool ahead_of_losses(const rs_node *node, rs_sending *x, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint32_t count = rs_wan_config_of(node, x)->proactive;
    uint64_t member[RS_COMBINE_MAX];
    if (count == 0 || w->unpaired < count || rs_is_unicast(&x->grant) || x->source)
        return false;
    for (uint32_t i = 0; i < count; i++)
        member[i] = next_sn(x) - count + i;
    w->unpaired = 0;
    coded(x, member, count, out);
    return true;
}

/* As many go in that time. */
static uint64_t packets_in(const rs_sending *x, rs_time time) {
    return (uint64_t)((double)x->pacer.rate_bps * (double)time / 8e9) / wire_bytes(x);
}

/* All was sent. What is lost of the last round trip, and of the section before, would be asked for after the end: it
 * goes again before a NACK of it can be here, as XORs; where a part of the object is not here, or by unicast, as
 * fragments of the last half round trip, the newest first. */
static void begin_tail(rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint64_t all = x->end - x->first, count = packets_in(x, w->grtt / 2), most = all / TAIL_PART;
    w->tail_at = w->tail_first = x->end;
    if (rs_is_unicast(&x->grant) || x->source || w->gaps.passed.count) {
        w->tail_first = x->end - (count < most ? count : most);
        return;
    }
    double lost = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        double usually = w->peers[i].path.lost_usually;
        lost = is_member(&x->recipients[i]) && usually > lost ? usually : lost;
    }
    uint64_t trip = packets_in(x, w->grtt), least = trip > TAIL_XOR_LEAST ? trip : TAIL_XOR_LEAST;
    count = packets_in(x, w->grtt + w->sections.gather) + RS_WAN_SECTION;
    most = all / TAIL_XOR_PART > least ? all / TAIL_XOR_PART : least < all ? least : all;
    rs_wan_tail_begin(&w->tail, x->end - (count < most ? count : most), x->end, lost);
}

static bool tail(rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint64_t member[RS_COMBINE_MAX];
    uint32_t count = rs_wan_tail_next(&w->tail, member);
    if (count > 1) {
        coded(x, member, count, out);
        return true;
    }
    while (w->tail_at > w->tail_first && rs_wan_gaps_has(&w->gaps, w->tail_at - 1))
        w->tail_at--;
    if (count == 0 && w->tail_at <= w->tail_first)
        return false;
    header(x, now, count ? member[0] : --w->tail_at, true, out);
    x->stats.packets_sent++;
    return true;
}

static bool next_data(const rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint64_t sn = next_sn(x), here = next_here(node, x, now);
    if (here >= x->end || !rs_wan_gaps_pass(&w->gaps, node, x, sn, here) ||
        !rs_wan_pool_take(&w->memory, (here + 1 - sn) * x->t.fragment_size))
        return false;
    header(x, now, here, false, out);
    if (w->report)
        out->header[3] |= RS_DATA_REPORT;
    w->report = false;
    if (rs_is_unicast(&x->grant) && w->unheard == 0)
        w->unheard = now;
    x->pos += here + 1 - sn;
    if (next_sn(x) == x->end)
        begin_tail(x);
    x->stats.packets_sent++;
    w->unpaired++;
    w->probes = 0;
    w->probe_due = now + probe_after(w);
    return true;
}

/* What was not here at its turn. */
static bool late(const rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint64_t sn = rs_wan_gaps_late(&w->gaps, node, x);
    if (sn == UINT64_MAX)
        return false;
    rs_wan_gaps_went(&w->gaps, now, sn);
    header(x, now, sn, true, out);
    x->stats.packets_sent++;
    return true;
}

/* The last packet again: whoever has missed it learns that there was one, and all say what they have. */
static bool probe(rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (now < w->probe_due || x->pos == 0 || w->early)
        return false;
    header(x, now, next_sn(x) - 1, true, out);
    out->header[3] |= RS_DATA_REPORT;
    w->probes++;
    w->probe_due = now + probe_after(w);
    x->stats.packets_sent++;
    return true;
}

bool rs_wan_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (x->phase != RS_PHASE_HIGH_RATE || !rs_pacer_ready(&x->pacer, now)) {
        schedule(node, now, x);
        return false;
    }
    bool any = !w->repaired && mend(node, now, x, out);
    w->repaired = any;
    any = any || ahead_of_losses(node, x, out) || late(node, now, x, out) || next_data(node, now, x, out) ||
          mend(node, now, x, out) || tail(now, x, out) || mend_again(now, x, out) || probe(now, x, out);
    if (any) {
        uint32_t bytes = rs_wire_bytes(out);
        out->markable = true;
        w->sent_bytes += bytes;
        rs_pacer_sent(&node->nic, now, bytes);
        rs_pacer_sent(&x->pacer, now, bytes);
    }
    schedule(node, now, x);
    return any;
}

/* --------------------------------------------------------------------------------------------- what they say */

static void patch_runs(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_wan_nack *n) {
    for (uint32_t i = 0; i < n->bits; i++) {
        uint32_t from = i;
        while (i < n->bits && (n->map[i / 8] >> i % 8 & 1))
            i++;
        if (i > from)
            rs_sender_patch(node, now, r, n->base + from, n->base + i);
        if (rs_is_finished(&x->t) || !rs_is_active(r))
            return;
    }
}

/* `came`: when the status was here. */
static void take_sample(rs_sending *x, rs_time now, rs_time came, rs_wan_peer *p, const rs_wan_status *s) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint64_t mask = (UINT64_C(1) << RS_WAN_STAMP_BITS) - 1;
    bool starved = w->starved_at && now - w->starved_at < 2 * w->grtt + 10 * RS_MS;
    rs_time ago = (rs_time)(((uint64_t)(came / 1000) - s->stamp_us) & mask) * 1000;
    rs_time rtt = ago - (rs_time)s->waited_us * 1000;
    const rs_wan_sample sample = {.now = now,
                                  .rtt = rtt > 0 && rtt < 60000 * RS_MS ? rtt : 0,
                                  .at = (rs_time)s->at,
                                  .stamp = came - ago,
                                  .next = s->next - p->gaps,
                                  .received = s->received,
                                  .repairs = s->repairs,
                                  .marked = s->marked,
                                  .dropped = s->dropped,
                                  .sent = next_sn(x) - w->gaps.passed.count,
                                  .part = p->part,
                                  .pulse_end = w->pulse.end,
                                  .limited = w->held || starved || x->pacer.rate_bps < p->path.rate_bps / 10 * 9,
                                  .sent_bps = w->sent_bps};
    if (s->next == 0 || s->next < p->gaps_to || sample.stamp <= w->resumed_at)
        return;
    if (now < w->trial_until && p->path.found) { /* it goes too fast for this one, for the others' sake */
        rs_wan_path_offered(&p->path, &sample);
        return;
    }
    if (rs_wan_path_heard(&p->path, &sample) && p->path.rate_bps < w->rate_bps && w->trial_until <= now)
        w->look_due = now; /* sooner than usual */
}

rs_rx_verdict rs_wan_on_status(rs_node *node, rs_time now, rs_sending *x, const rs_packet_in *packet) {
    rs_recipient *r = rs_recipient_of(x, packet->peer);
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    rs_wan_status s;
    if (!rs_wan_decode_status(packet->header, packet->header_length, &s) || packet->payload_length)
        return RS_RX_BAD;
    if (!w || !r || s.session != x->t.session || !is_member(r) || !rs_has_accepted(r))
        return RS_RX_NONE;
    if (s.next > next_sn(x) || s.cum > x->t.fragments || s.received > x->stats.packets_sent + x->t.fragments)
        return RS_RX_BAD;
    for (uint32_t i = 0; i < s.nack_count; i++)
        if (s.nacks[i].base < x->first || s.nacks[i].base + s.nacks[i].bits > next_sn(x))
            return RS_RX_BAD; /* never sent */
    rs_wan_peer *p = peer_of(x, r);
    bool first = p->heard_at == 0;
    p->heard_at = r->link.heard_at = now;
    r->progress_at = s.cum > p->cum ? now : r->progress_at;
    p->cum = s.cum > p->cum ? s.cum : p->cum;
    p->next = s.next > p->next ? s.next : p->next;
    p->received = s.received > p->received ? s.received : p->received;
    if (p->next > p->gaps_to) {
        p->gaps += rs_wan_gaps_count(&w->gaps, p->gaps_to, p->next);
        p->gaps_to = p->next;
    }
    x->stats.acks_received++;
    w->probes = 0;
    bool silent = is_unheard(x, now);
    w->unheard = 0;
    bool over = x->phase != RS_PHASE_HIGH_RATE;
    if (x->phase == RS_PHASE_ATTEMPT && rs_is_unicast(&x->grant))
        advance(node, now, x);
    for (uint32_t i = 0; i < s.nack_count && rs_is_active(r) && !rs_is_finished(&x->t); i++) {
        if (over || s.nacks[i].base / RS_WAN_SECTION < w->sections.freed) {
            if (s.receivers == 1) /* the others ask again, by themselves */
                patch_runs(node, now, x, r, &s.nacks[i]);
        } else {
            rs_wan_gaps_excuse(&w->gaps, now, w->grtt, &s.nacks[i]);
            rs_wan_sections_nack(&w->sections, &node->allocator, now, (uint32_t)(r - x->recipients), &s.nacks[i]);
        }
    }
    if (over || rs_is_finished(&x->t))
        return RS_RX_NONE;
    take_sample(x, now, now - packet->waited, p, &s);
    if (p->cum >= x->end || first)
        w->look_due = now;
    if (s.nack_count || silent)
        schedule(node, now, x);
    rs_sender_arm(node, x);
    return RS_RX_NONE;
}

/* By the control channel: of what the data channel has not brought. */
rs_rx_verdict rs_wan_on_request(rs_node *node, rs_time now, rs_sending *x, rs_recipient *r, const rs_message *m) {
    if (m->type != RS_MSG_PTCH_REQ)
        return RS_RX_NONE;
    uint64_t start = m->ptch_req.start, end = m->ptch_req.end;
    if (start >= x->t.fragments || end >= x->t.fragments ||
        (m->session != RS_SESSION_OBJECT && m->session != RS_SESSION_DEMOTED))
        return RS_RX_BAD;
    rs_sender_patch(node, now, r, start + 1 == x->t.fragments ? 0 : start + 1, end == 0 ? x->t.fragments : end);
    return RS_RX_NONE;
}

/* --------------------------------------------------------------------------------- looking at the receivers */

/* Start-up has found one receiver's rate while most of the others may take more: it goes on for them. Whether that was
 * worth it is seen when theirs are found. */
static void try_the_others(rs_sending *x, rs_time now) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    uint32_t all = 0, found = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        bool it = counts(x, &x->recipients[i], now);
        all += it;
        found += it && w->peers[i].path.found;
    }
    if (found == 0)
        return;
    if (w->trial_until == 0) {
        w->trial_until = found * 2 <= all ? now + 12 * w->grtt : now;
        for (uint32_t i = 0; i < x->recipient_count; i++)
            w->peers[i].tried_at = w->peers[i].received;
    } else if (found == all && now < w->trial_until)
        w->trial_until = now;
}

/* No crying baby (Holbrook et al.): a receiver that takes less than half of what half of the others take leaves the
 * data channel, and gets all by unicast, at its own pace. True: receivers changed. */
static bool demote_slowest(rs_node *node, rs_time now, rs_sending *x, rs_recipient *slowest) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    rs_wan_peer *p = peer_of(x, slowest);
    uint32_t others = 0, faster = 0, took_more = 0, took_twice = 0, found = 0;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        if (&x->recipients[i] == slowest || !counts(x, &x->recipients[i], now))
            continue;
        others++;
        took_more += w->peers[i].received - w->peers[i].tried_at > 2 * (p->received - p->tried_at) + TRIAL_PACKETS;
        faster += w->peers[i].path.rate_bps / 2 > p->path.rate_bps;
        found += w->peers[i].path.found && w->peers[i].path.rate_bps / 2 > p->path.rate_bps;
        took_twice += rs_wan_path_took_half(&p->path, &w->peers[i].path);
        if (p->slow_since == 0)
            w->peers[i].slow_since = 0;
        if (p->apart_since == 0)
            w->peers[i].apart_since = 0;
    }
    bool is_slow = others && faster * 2 >= others && p->path.found;
    p->apart_since = !is_slow || found * 2 < others ? 0 : p->apart_since ? p->apart_since : now;
    bool alone = !rs_wan_path_is_beside(&p->path, now) ||
                 (p->apart_since > 0 && now - p->apart_since > APART_TIMES * (SLOW_FOR + 10 * w->grtt));
    is_slow = is_slow && (alone || took_twice * 2 >= others);
    if (!is_slow || rs_wan_config_of(node, x)->wait) {
        p->slow_since = 0;
        return false;
    }
    if (p->slow_since == 0)
        p->slow_since = now;
    bool at_start = p->slow_since <= w->trial_until && now - x->stats.high_rate_at < 40 * w->grtt;
    /* The trial was offered to all alike. Its round trip is that of its own queue, which would be waited for. */
    bool shown = at_start && took_more * 2 >= others;
    if (!shown && now - p->slow_since < (at_start ? SLOW_FOR / 4 + 6 * w->grtt : SLOW_FOR + 10 * w->grtt))
        return false;
    rs_event log = {.kind = RS_EV_LOG, .xfer = x->t.id, .peer = slowest->link.peer->id, .session = x->t.session};
    rs_format(log.cause, sizeof log.cause, "takes %lld Mb/s, less than half of what others take: %s",
              (long long)(p->path.rate_bps / 1000000),
              x->stragglers == RS_STRAGGLERS_EVICT ? "it is given up" : "the rest goes to it by unicast");
    if (x->stragglers == RS_STRAGGLERS_EVICT) {
        rs_sender_fail(node, now, slowest, true, log.cause);
        rs_sender_settle(node, now, x);
    } else {
        rs_emit(node, &log);
        rs_sender_demote(node, now, x, slowest);
    }
    return true;
}

static void measure_own_rate(rs_sending *x, rs_time now) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (now - w->sent_since < w->grtt + 10 * RS_MS)
        return;
    w->sent_bps = (int64_t)((double)w->sent_bytes * 8e9 / (double)(now - w->sent_since));
    for (uint32_t i = 0; i < x->recipient_count && w->sent_bytes > 0; i++) {
        rs_wan_peer *p = &w->peers[i];
        double part = 1 - (double)(w->alone_bytes - p->repair_bytes) / (double)w->sent_bytes;
        p->part = part > PART_LEAST ? part : PART_LEAST;
        p->repair_bytes = 0;
    }
    w->sent_bytes = w->alone_bytes = 0;
    w->sent_since = now;
    w->held = false;
}

static void set_gathering(rs_wan_sender *w) {
    rs_time gather = w->grtt - w->shortest + GATHER_LEAST + w->grtt / 16 + (w->sections.mended ? w->grtt / 8 : 0);
    w->sections.moot = w->grtt;
    w->sections.gather = gather < w->grtt ? gather : w->grtt > GATHER_LEAST ? w->grtt : GATHER_LEAST;
}

/* Whether all whose rates are still to be found have told of the newest pulse. */
static bool pulse_seen(const rs_sending *x, rs_time now) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (w->early || now - w->pulse.from > PULSES_SEEN_MOST * w->grtt)
        return !w->early;
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        const rs_wan_path *path = &w->peers[i].path;
        if (counts(x, &x->recipients[i], now) && !path->found && path->pulse_end != w->pulse.end)
            return false;
    }
    return true;
}

/* The rate is the slowest one's; while that is not found pulses show more of it. */
static void set_rate(rs_sending *x, rs_time now, const rs_wan_path *slowest) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    w->rate_bps = slowest->rate_bps;
    x->pacer.rate_bps = now < slowest->drain_end ? w->rate_bps / 10 * 7 : w->rate_bps;
    if (slowest->found || slowest->law == RS_WAN_FIXED)
        return;
    if (rs_wan_path_looks(slowest)) {
        w->report |= may_ask(x);
        return;
    }
    bool seen = rs_wan_pulse_ends(&w->pulse, now, next_sn(x) - w->gaps.passed.count) && pulse_seen(x, now);
    if (rs_wan_pulse_is_due(&w->pulse, now, seen, slowest->pulse_after) && next_sn(x) < x->end)
        begin_pulse(x, now, slowest->trip.least ? slowest->trip.least : w->grtt, slowest);
    else
        pulse_goes_on(x, now);
}

/* Nobody can be judged yet. */
static void early_look(rs_node *node, rs_time now, rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    w->look_due = now + RS_WAN_REPORT_MOST;
    set_rate(x, now, &w->peers[0].path);
    schedule(node, now, x);
}

/* Rate, round trips, what can be freed, who is too slow; all is there. */
static void look(rs_node *node, rs_time now, rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    rs_recipient *slowest = NULL;
    uint64_t low = UINT64_MAX;
    uint32_t counted = 0, waiting = 0;
    rs_time longest = 0, shortest = RS_NEVER;
    if (w->early) {
        early_look(node, now, x);
        return;
    }
    try_the_others(x, now);
    for (uint32_t i = 0; i < x->recipient_count; i++) {
        rs_recipient *r = &x->recipients[i];
        const rs_wan_peer *p = &w->peers[i];
        waiting += is_member(r) && p->cum < x->end;
        if (!counts(x, r, now))
            continue;
        counted++;
        low = p->cum < low ? p->cum : low;
        longest = p->path.rtt > longest ? p->path.rtt : longest;
        shortest = p->path.rtt && p->path.rtt < shortest ? p->path.rtt : shortest;
        bool tried = now < w->trial_until && p->path.found;
        if (!tried && p->cum < x->end && (!slowest || p->path.rate_bps < peer_of(x, slowest)->path.rate_bps))
            slowest = r;
    }
    rs_time every = w->grtt / 16 < RS_WAN_REPORT_LEAST  ? RS_WAN_REPORT_LEAST
                    : w->grtt / 16 > RS_WAN_REPORT_MOST ? RS_WAN_REPORT_MOST
                                                        : w->grtt / 16;
    w->look_due = now + every;
    bool unheard = is_unheard(x, now) && w->probes >= PROBES_MOST; /* perhaps only datagrams do not get through */
    bool lost = counted == 0 || w->probes >= PROBES_MOST;
    if (waiting == 0 || unheard || (lost && next_sn(x) == x->end)) {
        data_done(node, now, x);
        return;
    }
    if (longest) {
        w->grtt = longest;
        w->shortest = shortest;
        set_gathering(w);
    }
    measure_own_rate(x, now);
    release(node, x, counted ? low : next_sn(x));
    if (slowest && now >= w->trial_until && demote_slowest(node, now, x, slowest)) {
        w->look_due = now;
        return;
    }
    if (slowest)
        set_rate(x, now, &peer_of(x, slowest)->path);
    uint64_t under_way = (uint64_t)(w->rate_bps / 8000) * (uint64_t)((NEED_RTTS * w->grtt + NEED_MORE) / 1000000);
    rs_wan_pool_need(&w->memory, under_way + UINT64_C(2) * RS_WAN_SECTION * x->t.fragment_size);
    schedule(node, now, x);
}

static void begin_early(rs_node *node, rs_time now, rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    rs_time trip = early_trip(x), after = trip / EARLY_TRIP > EARLY_LEAST ? trip / EARLY_TRIP : EARLY_LEAST;
    if (trip == 0 || w->early_from == 0) {
        w->early_from = trip ? now : 0;
        w->early_due = trip ? now + after : now - w->opened_at < ACCEPT_MOST ? now + EARLY_LEAST : RS_NEVER;
        return;
    }
    w->early_due = RS_NEVER;
    if (trip < EARLY_TRIPS_LEAST * after)
        return;
    high_rate(node, now, x, true);
    schedule(node, now, x);
}

void rs_wan_sender_timeout(rs_node *node, rs_time now, rs_sending *x) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (now >= w->begin_due) {
        w->begin_due = now; /* for advance */
        advance(node, now, x);
        if (x->phase == RS_PHASE_ATTEMPT || w->early)
            w->begin_due = now + ACCEPT_MOST;
    }
    if (now >= w->early_due && x->phase == RS_PHASE_ATTEMPT)
        begin_early(node, now, x);
    if (now >= w->over_due) {
        w->over_due = RS_NEVER;
        data_done(node, now, x);
    }
    if (x->phase == RS_PHASE_HIGH_RATE && now >= w->look_due)
        look(node, now, x);
    else if (x->phase != RS_PHASE_HIGH_RATE)
        w->look_due = RS_NEVER;
}

rs_time rs_wan_sender_due(const rs_sending *x) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    rs_time due = w->begin_due < w->over_due ? w->begin_due : w->over_due;
    due = due < w->early_due ? due : w->early_due;
    return due < w->look_due ? due : w->look_due;
}

void rs_wan_sender_news(rs_node *node, rs_time now, rs_sending *x, const rs_news *news) {
    rs_wan_sender *w = rs_wan_sender_of(&x->t);
    if (!w)
        return;
    if (news->what == RS_NEWS_GROWN)
        rs_wan_gaps_grown(&w->gaps);
    if (news->what == RS_NEWS_DATA_TIMER || news->what == RS_NEWS_GROWN) {
        schedule(node, now, x);
    } else if (news->what == RS_NEWS_ACCEPTED || news->what == RS_NEWS_RECEIVERS) {
        advance(node, now, x);
    } else if (news->what == RS_NEWS_REMOVED || news->what == RS_NEWS_LEFT) {
        if (news->receiver->state != RS_RECIPIENT_DONE) /* at the end hardly anything comes by the tree */
            rs_wan_tree_without(node, now, x, news->receiver);
        if (x->phase == RS_PHASE_HIGH_RATE) {
            w->look_due = now;
            rs_sender_arm(node, x);
        }
    } else if (news->what == RS_NEWS_RESUMED) {
        rs_pacer_resume(&x->pacer, now);
        for (uint32_t i = 0; i < x->recipient_count; i++) {
            rs_wan_path_resume(&w->peers[i].path);
            w->peers[i].heard_at = now;
        }
        w->unheard = 0;
        w->resumed_at = now;
    }
}

void rs_wan_sender_stats(const rs_sending *x, rs_xfer_stats *out) {
    const rs_wan_sender *w = rs_wan_sender_of(&x->t);
    out->rate_bps = x->phase == RS_PHASE_HIGH_RATE ? x->pacer.rate_bps : out->rate_bps;
    out->window = w->memory.used;
}
