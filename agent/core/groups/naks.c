/* When missing packets are asked for, and of whom (NAKs, Sec. 4.2.7). The paper asks the sender 100 ms after discovery
 * and every 50 ms again; that is too late where repairs come sooner, and too much where the network is what loses
 * packets: then requests and their answers make it lose more. So here (docs/ricochet.md, NAKs):
 *   - the first request waits for as long as repairs take of late, at most those 100 ms, and no longer than bins take
 *     to fill: what no repair has brought by then, none will;
 *   - each further one half as long again as the one before, beginning with the measured time of an answer;
 *   - one server is asked at a time: the sender, then other members in turn;
 *   - a budget of packets a second, of the node and of each group, grows with each answer and shrinks with each that
 *     does not come, so that where nine of ten requests are in vain few are sent.
 * In a flood the rings last for less than these times: waits are a part of what a ring lasts, and budgets at least a
 * part of the packets that arrive. */
#include <string.h>

#include "core/groups/naks.h"

#include "core/groups/members.h"
#include "core/groups/outbox.h"
#include "core/groups/streams.h"

#define MS INT64_C(1000000)
#define S (1000 * MS)
#define OPEN 32u                     /* NAKs being put together */
#define BATCH 8192u                  /* packets asked for in one go; the rest at once after that */
#define GATHER MS                    /* what is due so soon is asked for now: fewer datagrams */
#define WAIT_MOST (500 * MS)         /* for an answer */
#define NODE_START 512u              /* packets a second that a node asks for before it knows more */
#define NODE_LEAST 16u               /* ... and however few are answered */
#define GROUP_LEAST 4u               /* the same of a group, which starts like the node */
#define BUDGET_MOST 200000u          /* however many are answered */
#define BUDGET_MORE 16u              /* an answer */
#define BUDGET_LESS 32u              /* none: this part less */
#define BUDGET_CALM (NODE_START / 2) /* from here on the network is not what loses packets: two servers may be asked */
#define ROUND_OF_TWO 4u
#define BURST (125 * MS) /* what was not used of a budget in this time is left */
#define BURST_LEAST 4    /* packets */
#define HOPE_ALL 65536u
#define HOPE_LEAST (2 * GATHER)
#define PACE_WINDOW (5 * MS)
#define RING_FIRST 8u /* the first request is sent before this part of a ring is written again, */
#define RING_AGAIN 4u /* a further one this part later, */
#define PACE_ASKED 8u /* and so large a part of what arrives may be asked for, */
#define PACE_ALONE 2u /* ... or this one where nothing else brings it */

bool rs_gm_naks_init(rs_messages *node) {
    node->asks.per_s = NODE_START;
    node->hope = HOPE_ALL;
    return rs_timers_reserve(&node->nak_timers, &node->allocator, node->config.max_missing) == RS_OK;
}

/* measures */

static rs_time between(rs_time least, rs_time value, rs_time most) {
    return value < least ? least : value < most ? value : most;
}

static void check_pace(rs_messages *node, rs_time now) {
    rs_gm_pace *pace = &node->pace;
    uint64_t took_ms = (uint64_t)(now - pace->at) / MS;
    if (now - pace->at < PACE_WINDOW)
        return;
    pace->bytes_per_ms = (node->in.head - pace->bytes) / took_ms;
    pace->packets_per_ms = (node->stats.data_received - pace->packets) / took_ms;
    pace->at = now;
    pace->bytes = node->in.head;
    pace->packets = node->stats.data_received;
}

/* What arrives takes so long to fill that part of a ring; at least RS_GM_NAK_LEAST. */
static rs_time ring_time(const rs_messages *node, uint32_t part) {
    if (node->pace.bytes_per_ms == 0)
        return RS_NEVER;
    rs_time time = (rs_time)(node->in.size / part / node->pace.bytes_per_ms) * MS;
    return time > RS_GM_NAK_LEAST ? time : RS_GM_NAK_LEAST;
}

static void check_group_pace(rs_gm_group *group, rs_time now) {
    uint64_t came = group->passed - group->pace.passed;
    if (now - group->pace.at < PACE_WINDOW)
        return;
    group->pace.each = came ? (now - group->pace.at) / (rs_time)came : 0;
    group->pace.at = now;
    group->pace.passed = group->passed;
}

/* After so long the engine brings a packet no more. Servers that are busy send and read repairs later than that: at
 * least what nearly all have taken of late, and RS_GM_NAK_LEAST where they take longer, or none has come yet. */
static rs_time hope_time(const rs_messages *node, const rs_gm_group *group) {
    uint32_t packets = group->engine->hope_packets ? group->engine->hope_packets(group) : 0;
    if (packets == 0 || group->pace.each == 0 || group->pace.each > S)
        return RS_NEVER;
    rs_time time = (rs_time)packets * group->pace.each;
    rs_time least = between(HOPE_LEAST, rs_rtt_late(&node->repair, RS_GM_NAK_LEAST), RS_GM_NAK_LEAST);
    return time > least ? time : least;
}

/* Repairs that are to come have come by then, nearly all. */
static rs_time first_wait(const rs_messages *node, rs_time now, rs_gm_group *group) {
    rs_time most = node->config.nak_delay, least = most / 4, wait = most;
    if (group->policy.alone)
        return RS_GM_NAK_LEAST;
    check_group_pace(group, now);
    rs_time ring = ring_time(node, RING_FIRST), hope = hope_time(node, group);
    if (node->hope < HOPE_ALL / 4)
        wait = least;
    else if (node->repair.smoothed)
        wait = between(least, rs_rtt_late(&node->repair, 0), most);
    wait = wait < ring ? wait : ring;
    return wait < hope ? wait : hope;
}

/* For the answer to the request of this round, from 1. */
static rs_time round_wait(const rs_messages *node, uint32_t round) {
    rs_time wait = node->config.nak_retry, most = ring_time(node, RING_AGAIN);
    most = most < WAIT_MOST ? most : WAIT_MOST;
    if (node->answer.smoothed)
        wait = between(RS_GM_NAK_LEAST, rs_rtt_late(&node->answer, 0), WAIT_MOST);
    for (uint32_t i = 1; i < round && wait < most; i++)
        wait += wait / 2;
    return wait < most ? wait : most;
}

/* budgets */

static rs_time interval(const rs_messages *node, const rs_gm_budget *budget, const rs_gm_group *group) {
    uint64_t least = node->pace.packets_per_ms * 1000 / (group->policy.alone ? PACE_ALONE : PACE_ASKED);
    return S / (rs_time)(budget->per_s > least ? budget->per_s : least);
}

static void take(const rs_messages *node, rs_gm_budget *budget, const rs_gm_group *group, rs_time now) {
    rs_time each = interval(node, budget, group), burst = each * BURST_LEAST > BURST ? each * BURST_LEAST : BURST;
    budget->next = (budget->next < now - burst ? now - burst : budget->next) + each;
}

static void answered(rs_gm_budget *budget) {
    budget->per_s = budget->per_s + BUDGET_MORE < BUDGET_MOST ? budget->per_s + BUDGET_MORE : BUDGET_MOST;
}

static void unanswered(rs_gm_budget *budget, uint64_t least) {
    uint64_t less = budget->per_s - budget->per_s / BUDGET_LESS - 1;
    budget->per_s = less > least ? less : least;
}

/* It is the packet's turn, or will be at its new time. */
static bool affordable(rs_messages *node, rs_time now, rs_gm_missing *missing) {
    rs_gm_budget *of_group = &missing->stream->group->asks;
    if (missing->nak == RS_GM_NAK_RESERVED) {
        missing->nak = RS_GM_NAK_LATER;
        return true;
    }
    if (of_group->per_s == 0)
        of_group->per_s = NODE_START;
    rs_time turn = of_group->next > node->asks.next ? of_group->next : node->asks.next;
    rs_time again = now + (node->config.nak_retry > 2 * GATHER ? node->config.nak_retry : 2 * GATHER);
    if (turn <= again) {
        take(node, of_group, missing->stream->group, now);
        take(node, &node->asks, missing->stream->group, now);
        missing->nak = turn > now + GATHER ? RS_GM_NAK_RESERVED : RS_GM_NAK_LATER;
        again = turn;
    }
    if (turn <= now + GATHER)
        return true;
    rs_timer_set(&node->nak_timers, &missing->ask, again);
    return false;
}

bool rs_messages_brings(const rs_messages *node, rs_peer sender, rs_message_group group) {
    const rs_gm_stream *stream = rs_gm_stream_find(node, sender, group);
    if (!stream)
        return false;
    const rs_group_policy *policy = &stream->group->policy;
    return (policy->alone && stream->missing > 0) ||
           ((policy->naks || policy->silent) && !rs_list_empty(&stream->assemblies));
}

static uint32_t asking_at(rs_peer sender) {
    return (uint32_t)rs_mix(sender) % RS_GM_ASKING;
}

/* All senders share the budget: those of which few packets are missing, of those that are, are not to blame for it. */
bool rs_messages_is_behind(const rs_messages *node, rs_peer sender, rs_message_group id) {
    const uint64_t all = node->nak_timers.count, own = node->asking[asking_at(sender)];
    const rs_gm_group *group = own > 0 ? rs_gm_group_find(node, id) : NULL;
    if (!group || !group->policy.naks)
        return false;
    const uint64_t blamed = own * 2 * node->asking_senders >= all ? all : own;
    return (rs_time)blamed * interval(node, &node->asks, group) > node->config.give_up;
}

/* requests */

/* NAKs of one go that are being put together, by whom they go to. */
typedef struct {
    rs_messages *node;
    uint32_t most; /* items in a datagram */
    struct {
        rs_gm_small *small;
        uint32_t count;
        rs_gm_nak_item last;
    } open[OPEN];
} naks;

static void send_nak(naks *n, uint32_t at) {
    rs_gm_small *small = n->open[at].small;
    if (!small)
        return;
    n->open[at].small = NULL;
    uint32_t count = n->open[at].count;
    rs_gm_put_nak_item(small->bytes + RS_GM_NAK + (count - 1) * RS_GM_NAK_ITEM, &n->open[at].last);
    small->length = RS_GM_NAK + count * RS_GM_NAK_ITEM;
    rs_gm_put_nak(small->bytes, n->node->config.self, count);
    rs_gm_seal(small->bytes, small->length);
    n->node->stats.naks_sent++;
}

static void ask(naks *n, rs_peer peer, const rs_gm_missing *missing) {
    uint32_t at = (uint32_t)rs_mix(peer) % OPEN;
    rs_gm_id id = {missing->stream->sender, missing->stream->incarnation, missing->stream->group->id, missing->sn};
    n->node->stats.asked++;
    if (n->open[at].small && n->open[at].small->peer != peer)
        send_nak(n, at);
    if (n->open[at].small) {
        rs_gm_nak_item *last = &n->open[at].last;
        uint64_t ahead = id.sn - last->id.sn - 1;
        if (last->id.group == id.group && last->id.sender == id.sender && last->id.incarnation == id.incarnation &&
            ahead < 32) {
            last->mask |= UINT32_C(1) << ahead;
            return;
        }
        if (n->open[at].count == n->most)
            send_nak(n, at);
        else
            rs_gm_put_nak_item(n->open[at].small->bytes + RS_GM_NAK + (n->open[at].count - 1) * RS_GM_NAK_ITEM, last);
    }
    if (!n->open[at].small) {
        n->open[at].small = rs_gm_small_new(n->node);
        if (!n->open[at].small)
            return;
        n->open[at].small->channel = RS_CH_PEER_DATAGRAM;
        n->open[at].small->peer = peer;
        n->open[at].count = 0;
    }
    n->open[at].count++;
    n->open[at].last = (rs_gm_nak_item){id, 0};
}

/* Another member, the next one in each round; RS_NO_PEER if there is none. */
static rs_peer helper(const rs_messages *node, const rs_gm_missing *missing) {
    const rs_gm_group *group = missing->stream->group;
    uint64_t first = rs_mix(missing->sn ^ (uint64_t)node->config.self << 32) + missing->rounds;
    for (uint32_t i = 0; i < group->member_count && i < 3; i++) {
        rs_peer peer = group->members[(first + i) % group->member_count];
        if (peer != node->config.self && peer != missing->stream->sender)
            return peer;
    }
    return RS_NO_PEER;
}

static void ask_round(naks *n, rs_time now, rs_gm_missing *missing) {
    rs_messages *node = n->node;
    if (missing->rounds < UINT16_MAX)
        missing->rounds++;
    rs_peer other = missing->rounds > 1 ? helper(node, missing) : RS_NO_PEER;
    bool two = missing->rounds >= ROUND_OF_TWO && node->asks.per_s >= BUDGET_CALM;
    if (two || other == RS_NO_PEER || missing->rounds % 3 == 1)
        ask(n, missing->stream->sender, missing);
    if (other != RS_NO_PEER && (two || missing->rounds % 3 != 1))
        ask(n, other, missing);
    missing->nak = RS_GM_ASKED;
    missing->asked = now;
    rs_timer_set(&node->nak_timers, &missing->ask, now + round_wait(node, missing->rounds));
}

static bool comes_with_another(const rs_messages *node, const rs_gm_missing *missing) {
    const rs_group_engine *engine = missing->stream->group->engine;
    return engine->comes_with_another && engine->comes_with_another(rs_gm_engine_own(node, engine), missing);
}

/* A missing packet's time has come. */
static void turn(naks *n, rs_time now, rs_gm_missing *missing) {
    rs_messages *node = n->node;
    if (missing->nak == RS_GM_ASKED) {
        missing->nak = RS_GM_NAK_LATER;
        unanswered(&missing->stream->group->asks, GROUP_LEAST);
        unanswered(&node->asks, NODE_LEAST);
    }
    if (missing->rounds == 0 && !missing->put_off && comes_with_another(node, missing)) {
        missing->put_off = true;
        rs_timer_set(&node->nak_timers, &missing->ask, now + round_wait(node, 1));
    } else if (affordable(node, now, missing))
        ask_round(n, now, missing);
}

void rs_gm_nak_timeout(rs_messages *node, rs_time now) {
    const rs_timer *first = rs_timers_first(&node->nak_timers);
    if (!first || first->due > now)
        return;
    uint32_t fit = (node->config.packet_bytes - RS_GM_NAK) / RS_GM_NAK_ITEM;
    naks n = {.node = node, .most = fit < RS_GM_NAK_ITEMS ? fit : RS_GM_NAK_ITEMS};
    for (uint32_t i = 0; i < BATCH && first && first->due <= now + GATHER; i++) {
        turn(&n, now, RS_HOLDER(rs_gm_missing, ask, first));
        first = rs_timers_first(&node->nak_timers);
    }
    for (uint32_t i = 0; i < OPEN; i++)
        send_nak(&n, i);
}

void rs_gm_nak_schedule(rs_messages *node, rs_time now, rs_gm_missing *missing) {
    check_pace(node, now);
    missing->rounds = 0;
    missing->nak = RS_GM_NAK_LATER;
    missing->put_off = false;
    rs_timer_set(&node->nak_timers, &missing->ask, now + first_wait(node, now, missing->stream->group));
    if (missing->ask.at)
        node->asking_senders += node->asking[asking_at(missing->stream->sender)]++ == 0;
}

void rs_gm_nak_end(rs_messages *node, rs_gm_missing *missing) {
    if (missing->ask.at)
        node->asking_senders -= --node->asking[asking_at(missing->stream->sender)] == 0;
    rs_timer_set(&node->nak_timers, &missing->ask, RS_NEVER);
}

/* When the first of them were missed it was not known yet how fast packets come now: a flood began. */
void rs_gm_nak_pace(rs_messages *node, rs_time now, rs_gm_group *group) {
    if (now - group->pace.at < PACE_WINDOW)
        return;
    rs_time before = hope_time(node, group);
    check_pace(node, now);
    check_group_pace(group, now);
    rs_time hope = hope_time(node, group);
    if (hope > before / 2)
        return;
    for (rs_list *at = node->missing_order.next; at != &node->missing_order; at = at->next) {
        rs_gm_missing *missing = RS_HOLDER(rs_gm_missing, order, at);
        rs_time due = missing->discovered + hope;
        if (missing->stream->group == group && missing->ask.at && missing->rounds == 0 && due < missing->ask.due)
            rs_timer_set(&node->nak_timers, &missing->ask, due > now ? due : now);
    }
}

void rs_gm_nak_advance(rs_messages *node, rs_time now, const rs_gm_stream *stream, uint64_t sn) {
    rs_time wait = first_wait(node, now, stream->group) - node->config.heartbeat;
    sn = sn > stream->base ? sn : stream->base;
    if (sn <= stream->high && stream->high - sn >= stream->capacity) /* nothing is known of what is older */
        sn = stream->high - stream->capacity + 1;
    for (; sn <= stream->high; sn++) {
        const rs_gm_slot *slot = rs_gm_slot_of(stream, sn);
        if (!slot || !rs_gm_slot_is(*slot, RS_GM_MISSING))
            continue;
        rs_gm_missing *missing = rs_gm_missing_at(node, *slot);
        if (missing->ask.at && missing->rounds == 0)
            rs_timer_set(&node->nak_timers, &missing->ask, now + (wait > 0 ? wait : 0));
    }
}

void rs_gm_nak_answered(rs_messages *node, rs_time now, const rs_gm_missing *missing, rs_messages_via via) {
    if (!missing->stream->group->policy.naks)
        return;
    if (via == RS_VIA_REPAIR && now > missing->discovered) {
        rs_rtt_sample(&node->repair, now - missing->discovered);
        node->hope += (HOPE_ALL - node->hope) / 16;
    }
    if (via != RS_VIA_RETRANSMIT || missing->rounds == 0)
        return;
    if (!missing->stream->group->policy.alone)
        node->hope -= node->hope / 16;
    /* Of a further request too, though this may be the answer to the one before: the time is too short then, and the
     * more so the more requests there were, so that it grows until the first answers come before the second request. */
    rs_rtt_sample(&node->answer, now - missing->asked);
    if (missing->nak == RS_GM_ASKED) {
        answered(&missing->stream->group->asks);
        answered(&node->asks);
    }
}

/* ----------------------------------------------------------------------------------------------------- answers
 * Packets that others ask for: members of its group alone are answered, at the address that they asked from, and in all
 * with no more than twice what was published and heard here since they are known. A packet is not given to the same
 * asker twice within the time that it waits before it asks again: requests that piled up somewhere, or were doubled on
 * the way, are answered once. */

static bool answered_just_now(rs_messages *node, rs_time now, const rs_gm_retransmit *again) {
    uint64_t mixed = rs_mix(again->at << 1 | again->own) ^ rs_mix(again->peer);
    rs_gm_answered *last = &node->answered[mixed & (RS_GM_ANSWERED - 1)];
    if (last->used && last->at == again->at && last->own == again->own && last->peer == again->peer &&
        now - last->when < RS_GM_NAK_LEAST)
        return true;
    *last = (rs_gm_answered){again->at, now, again->peer, again->own, true};
    return false;
}

/* Members alone may have a group's data. */
static void send_again(rs_messages *node, rs_time now, const rs_gm_id *id, rs_peer peer) {
    const rs_gm_stream *stream = rs_gm_stream_find(node, id->sender, id->group);
    if (!stream || stream->incarnation != id->incarnation)
        return;
    if (!rs_gm_is_member(stream->group, peer)) {
        node->stats.naks_refused++;
        return;
    }
    const rs_gm_slot *slot = rs_gm_slot_of(stream, id->sn);
    bool unsent = slot && stream->own && rs_gm_slot_at(*slot) >= node->sent; /* it comes, and has no check yet */
    if (!slot || unsent || !rs_gm_slot_kept(node, stream, *slot) ||
        node->retransmit_tail - node->retransmit_head == RS_GM_RETRANSMITS)
        return;
    rs_gm_retransmit again = {.at = rs_gm_slot_at(*slot), .own = stream->own, .peer = peer};
    if (answered_just_now(node, now, &again)) {
        node->stats.naks_repeated++;
        return;
    }
    const uint8_t *body = rs_gm_log_datagram(rs_gm_log_of(node, stream), again.at) + RS_GM_HEADER;
    again.length = RS_GM_BODY + rs_gm_body_length(body);
    if (!rs_gm_peer_gets(node, peer, RS_GM_HEADER + again.length)) {
        node->stats.naks_over++;
        return;
    }
    node->asked_here += stream->own;
    rs_gm_put_header(again.header, RS_GM_KIND_AGAIN, id);
    node->retransmits[node->retransmit_tail++ & (RS_GM_RETRANSMITS - 1)] = again;
}

bool rs_gm_receive_nak(rs_messages *node, rs_time now, rs_peer source, const uint8_t *bytes, size_t length) {
    rs_peer from;
    uint32_t count = rs_gm_get_nak(bytes, length, &from);
    if (count == 0)
        return false;
    if (!rs_gm_is_from(node, source, from) || !rs_gm_intact(node, bytes, length))
        return true;
    node->stats.naks_received++;
    for (uint32_t i = 0; i < count; i++) {
        rs_gm_nak_item item;
        rs_gm_get_nak_item(bytes, i, &item);
        send_again(node, now, &item.id, from);
        for (; item.mask; item.mask &= item.mask - 1) {
            rs_gm_id id = item.id;
            id.sn += 1 + (uint64_t)__builtin_ctz(item.mask);
            send_again(node, now, &id, from);
        }
    }
    return true;
}

bool rs_gm_poll_retransmit(rs_messages *node, rs_messages_out *out) {
    while (node->retransmit_head != node->retransmit_tail) {
        rs_gm_retransmit *again = &node->retransmits[node->retransmit_head++ & (RS_GM_RETRANSMITS - 1)];
        const rs_gm_log *log = again->own ? &node->out : &node->in;
        if (!rs_gm_log_has(log, again->at))
            continue;
        *out = (rs_messages_out){
            .channel = RS_CH_PEER_DATAGRAM, .peer = again->peer, .group = RS_NO_GROUP, .piece_count = 2};
        out->piece[0].bytes = again->header;
        out->piece[0].length = RS_GM_HEADER;
        out->piece[1].bytes = rs_gm_log_datagram(log, again->at) + RS_GM_HEADER;
        out->piece[1].length = again->length;
        node->stats.retransmits_sent++;
        return true;
    }
    return false;
}
