/* What this node sends to regions: messages of many groups share packets; each is kept until those that cache it have
 * it (Sec. 2.2); new ones go out as rate control permits, and what is due besides goes before them, at a fixed rate. */
#include "core/qsm/send.h"

#include <string.h>

#include "core/qsm/completion.h"
#include "core/qsm/regions.h"
#include "core/qsm/streams.h"
#include "core/qsm/token.h"

#define MS INT64_C(1000000)
#define POSITION_LEAST (30 * MS)
#define POSITION_MOST (1000 * MS)
#define AGAIN_LEAST (4 * MS) /* a packet is not multicast again sooner */
#define RING_LEAST 16u
#define CONTROL_BURST 256.0
#define ROUND_MOST (30 * MS) /* What a round takes if nothing waits: processors that have other things to do, too, */
#define ROUND_NODE (MS / 5)  /* ... and that of each node (results/qsm-costs.json, and a third more) */
#define STOOD (200 * MS)     /* Nothing became stable so long, and four rounds: a node stood still, it was not slow. */

/* --------------------------------------------------------------------------------------------------- own packets */

static rs_qsm_left *find_left(const rs_qsm *own, uint32_t region) {
    for (uint32_t i = 0; i < own->left_count; i++)
        if (own->left[i].region == region)
            return &own->left[i];
    return NULL;
}

/* A publisher that comes again, while the region's nodes are the same, goes on with its numbers: those that it used are
 * old there. Of a region that has a newer view they never come again. */
static void remember(const rs_qsm_view *view) {
    rs_qsm *own = view->own;
    if (view->out->next == 1 || rs_qsm_view_current(own, view->region))
        return;
    rs_qsm_left *place = find_left(own, view->region);
    if (!own->left)
        own->left = rs_memory_take(&own->node->allocator, RS_QSM_LEFT * sizeof *own->left);
    if (!own->left)
        return;
    if (!place && own->left_count < RS_QSM_LEFT)
        place = &own->left[own->left_count++];
    else if (!place) /* the one that was put there first gives way */
        place = &own->left[own->left_next++ % RS_QSM_LEFT];
    *place = (rs_qsm_left){view->region, view->version, view->out->next};
}

static uint64_t first_number(const rs_qsm_view *view) {
    const rs_qsm_left *left = find_left(view->own, view->region);
    return left && left->version == view->version ? left->next : 1;
}

rs_qsm_out *rs_qsm_out_of(rs_qsm_view *view, rs_time now) {
    if (view->out)
        return view->out;
    uint64_t first = first_number(view), before = first - 1;
    const rs_allocator *allocator = &view->own->node->allocator;
    rs_qsm_out *out = rs_memory_take(allocator, sizeof *out);
    if (!out)
        return NULL;
    *out = (rs_qsm_out){.kept = first,
                        .sent = first,
                        .next = first,
                        .stable = before,
                        .cached = before,
                        .told = before,
                        .spread = before,
                        .position_at = RS_NEVER,
                        .view = view};
    rs_list_init(&out->waiting);
    rs_qsm_control_init(&out->control, view->option[RS_QSM_OPTION_RATE] ? RS_QSM_RATE_PAPER : RS_QSM_RATE_OURS,
                        (double)view->option[RS_QSM_OPTION_LAMBDA] / 1000,
                        (double)view->option[RS_QSM_OPTION_LEAST] / 1000, view->interval,
                        view->interval + ROUND_MOST + view->count * ROUND_NODE, now);
    view->out = out;
    return out;
}

static rs_qsm_own_packet *packet_at(const rs_qsm_out *out, uint64_t sn) {
    return &out->ring[sn & (out->room - 1)];
}

static void release(rs_qsm_out *out, uint64_t sn) {
    rs_qsm *own = out->view->own;
    rs_qsm_own_packet *packet = packet_at(out, sn);
    if (packet->bytes)
        own->out_bytes -= packet->room;
    rs_memory_give(&own->node->allocator, packet->bytes);
    packet->bytes = NULL;
}

void rs_qsm_out_free(rs_qsm_view *view) {
    rs_qsm_out *out = view->out;
    if (!out)
        return;
    remember(view);
    for (uint64_t sn = out->kept; sn < out->next; sn++) {
        if (sn > out->cached)
            rs_qsm_completion_packet(view->own, packet_at(out, sn), true);
        release(out, sn);
    }
    rs_list_remove(&out->waiting);
    rs_memory_give(&view->own->node->allocator, out->ring);
    rs_memory_give(&view->own->node->allocator, out);
    view->out = NULL;
}

uint32_t rs_qsm_out_others(const rs_qsm_view *view) {
    return view->count - (view->self != RS_QSM_NOWHERE);
}

static bool fits_last(const rs_qsm_out *out, uint32_t length) {
    return out->next > out->sent && out->turn == 0 &&
           packet_at(out, out->next - 1)->length + RS_QSM_INNER + length <= out->view->own->node->config.packet_bytes;
}

/* A receiver that misses packets keeps what came after them, of all senders, and what it missed when that comes: both
 * must have room, and a quarter of it is for what it has not given out yet. */
static bool is_too_far_ahead(const rs_qsm_out *out, uint32_t span) {
    uint64_t room = out->view->own->node->config.receive_bytes / 4 * 3 / (out->senders ? out->senders : 1);
    return out->ahead > 0 && out->ahead + out->owed + out->owed_before + span > room;
}

static uint32_t span_of(uint32_t length) {
    return (uint32_t)rs_gm_log_span(RS_GM_HEADER + length);
}

bool rs_qsm_out_has_room(const rs_qsm_view *view, uint32_t length, uint32_t *packets) {
    const rs_qsm_out *out = view->out;
    const rs_qsm *own = view->own;
    if (rs_qsm_out_others(view) == 0)
        return true;
    if (out && is_too_far_ahead(out, span_of(length)))
        return false;
    if (out && fits_last(out, length))
        return true;
    if (out && (out->next - out->sent >= RS_QSM_UNSENT || out->next - out->kept >= RS_QSM_SEND_WINDOW))
        return false;
    ++*packets;
    return own->out_bytes == 0 ||
           own->out_bytes + (uint64_t)*packets * own->node->config.packet_bytes <= own->node->config.send_bytes;
}

static bool reserve(rs_qsm_out *out) {
    if (out->next - out->kept < out->room)
        return true;
    const rs_allocator *allocator = &out->view->own->node->allocator;
    uint32_t room = out->room ? 2 * out->room : RING_LEAST;
    rs_qsm_own_packet *ring = rs_memory_take(allocator, room * sizeof *ring);
    if (!ring)
        return false;
    for (uint64_t sn = out->kept; sn < out->next; sn++)
        ring[sn & (room - 1)] = *packet_at(out, sn);
    rs_memory_give(allocator, out->ring);
    out->ring = ring;
    out->room = room;
    return true;
}

bool rs_qsm_out_add(rs_qsm_view *view, rs_time now, const rs_qsm_inner *inner) {
    rs_qsm *own = view->own;
    if (rs_qsm_out_others(view) == 0)
        return true;
    rs_qsm_out *out = rs_qsm_out_of(view, now);
    if (!out)
        return false;
    if (fits_last(out, inner->length))
        own->stats.packed++;
    else {
        uint8_t *bytes = reserve(out) ? rs_memory_take(&own->node->allocator, own->node->config.packet_bytes) : NULL;
        if (!bytes)
            return false;
        rs_qsm_head head = {own->node->config.self, own->node->config.incarnation, view->region, view->version};
        rs_qsm_put_head(bytes, RS_QSM_KIND_DATA, &head);
        rs_qsm_put_sn(bytes, out->next);
        *packet_at(out, out->next) =
            (rs_qsm_own_packet){.bytes = bytes, .length = RS_QSM_DATA_HEAD, .room = own->node->config.packet_bytes};
        out->next++;
        own->out_bytes += own->node->config.packet_bytes;
    }
    rs_qsm_own_packet *packet = packet_at(out, out->next - 1);
    rs_qsm_put_inner(packet->bytes + packet->length, inner);
    packet->length += RS_QSM_INNER + inner->length;
    packet->span += span_of(inner->length);
    out->ahead += span_of(inner->length);
    rs_list_keep(&own->sending, &out->waiting, true);
    rs_qsm_view_wake(view);
    return true;
}

const rs_qsm_own_packet *rs_qsm_out_packet(const rs_qsm_view *view, uint64_t sn) {
    const rs_qsm_out *out = view->out;
    if (!out || sn < out->kept || sn >= out->sent)
        return NULL;
    const rs_qsm_own_packet *packet = packet_at(out, sn);
    return packet->bytes ? packet : NULL;
}

/* When the region is asked to tell how far it is, because it does not. */
static void set_position(rs_qsm_out *out, rs_time now) {
    rs_time wait = 3 * out->view->interval > POSITION_LEAST ? 3 * out->view->interval : POSITION_LEAST;
    uint32_t doubled = out->positions < 6 ? out->positions : 6;
    wait = wait << doubled > POSITION_MOST && wait < POSITION_MOST ? POSITION_MOST : wait << doubled;
    out->position_at = out->stable + 1 < out->sent ? now + wait : RS_NEVER;
}

/* Stops buffering: packets of other partitions once all who cache them have them; those that this node caches itself,
 * once all have them. */
void rs_qsm_out_acked(rs_qsm_view *view, rs_time now, uint64_t stable, uint64_t cached) {
    rs_qsm_out *out = view->out;
    if (!out || stable >= out->sent || cached < stable)
        return; /* of what was not sent: a lie, or of another life */
    cached = cached < out->sent ? cached : out->sent - 1;
    for (uint64_t sn = out->cached + 1; sn <= cached; sn++) {
        rs_qsm_own_packet *packet = packet_at(out, sn);
        rs_qsm_completion_packet(view->own, packet, false);
        view->own->stats.acked++;
        view->own->stats.ack_us += (uint64_t)(now - packet->sent_at) / 1000;
        if (view->self == RS_QSM_NOWHERE || sn % view->partitions != view->partition)
            release(out, sn);
    }
    out->cached = cached > out->cached ? cached : out->cached;
    if (stable > out->stable) {
        for (uint64_t sn = out->kept; sn <= stable; sn++) {
            out->ahead -= packet_at(out, sn)->span;
            release(out, sn);
        }
        out->stable = stable;
        out->stable_at = now;
        out->kept = stable + 1;
    }
    out->positions = 0;
    set_position(out, now);
}

/* -------------------------------------------------------------------------------------------- reports of the region */

/* What a node misses takes room there once more. Of many senders each is told now and then only. */
static void count_owed(rs_qsm_out *out, const rs_qsm_ack *ack) {
    uint64_t kept = out->next - out->kept, each = kept ? out->ahead / kept : 0;
    if (out->stable >= out->epoch) {
        out->owed_before = out->owed;
        out->owed = 0;
        out->epoch = out->sent - 1;
    }
    uint64_t most = out->view->own->node->config.receive_bytes;
    out->owed += (ack->missing < kept ? ack->missing : kept) * each * rs_qsm_ack_turns(ack->senders);
    out->owed = out->owed < most ? out->owed : most;
}

void rs_qsm_out_told(rs_qsm_view *view, rs_time now, const rs_qsm_ack *ack) {
    rs_qsm_out *out = view->out;
    rs_qsm_report word = {.rate = ack->rate,
                          .share = ack->share,
                          .missing = ack->missing,
                          .behind = ack->behind,
                          .early = ack->interval_us == RS_QSM_GOES_ON};
    if (word.early) {
        rs_qsm_control_told(&out->control, now, &word);
        return;
    }
    count_owed(out, ack);
    word.round = (rs_time)(ack->interval_us < 60000000 ? ack->interval_us : 60000000) * 1000;
    /* To a single other node packets go by unicast, as tokens do, and both wait together: rounds take longer. */
    rs_time waited = rs_qsm_out_others(view) == 1 && word.round > view->interval ? word.round - view->interval : 0;
    uint64_t behind = (uint64_t)((double)waited / 1e9 * ack->rate);
    word.behind = behind > word.behind ? behind : word.behind;
    out->senders = ack->senders;
    if (word.round > 0)
        rs_qsm_control_round(&out->control, now, word.round, rs_qsm_ack_turns(ack->senders));
    rs_time stood = 4 * (word.round > view->interval ? word.round : view->interval);
    if (out->stable + 1 < out->sent && now - out->stable_at >= (stood > STOOD ? stood : STOOD))
        out->excused = out->sent - 1;
    if (out->stable >= out->excused || out->control.law == RS_QSM_RATE_PAPER)
        rs_qsm_control_told(&out->control, now, &word);
}

/* The view of a datagram that one of its nodes sent to this sender; NULL: it is of no interest. */
static rs_qsm_view *for_sender(rs_qsm *own, rs_peer from, const uint8_t *bytes, size_t length,
                               const rs_qsm_head *head) {
    rs_qsm_view *view = rs_qsm_view_find(own, head->region, head->version);
    if (!view || !view->out || rs_qsm_place_of(view, head->who) == RS_QSM_NOWHERE) {
        own->stats.foreign++;
        return NULL;
    }
    return rs_gm_is_from(own->node, from, head->who) && rs_gm_intact(own->node, bytes, length) ? view : NULL;
}

bool rs_qsm_receive_ack(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_qsm_head head;
    rs_qsm_ack ack;
    if (!rs_qsm_get_head(bytes, length, &head) || !rs_qsm_get_ack(bytes, length, &ack))
        return false;
    rs_qsm_view *view = for_sender(own, from, bytes, length, &head);
    if (!view || head.incarnation != own->node->config.incarnation)
        return true;
    rs_qsm_out_acked(view, now, ack.stable, ack.cached);
    rs_qsm_out_told(view, now, &ack);
    return true;
}

bool rs_qsm_receive_nak(rs_qsm *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    rs_qsm_head head;
    rs_qsm_ranges ranges;
    rs_peer sender;
    uint32_t incarnation, partition;
    (void)now;
    if (!rs_qsm_get_head(bytes, length, &head) ||
        !rs_qsm_get_list(bytes, length, &sender, &incarnation, &partition, &ranges))
        return false;
    rs_qsm_view *view = for_sender(own, from, bytes, length, &head);
    if (!view || sender != own->node->config.self || incarnation != own->node->config.incarnation ||
        partition >= view->partitions || ranges.count == 0)
        return true;
    rs_qsm_out *out = view->out;
    if (out->naked_range < out->naked.count)
        return true; /* Others are on their way; who still misses these says so again. */
    out->naked = ranges;
    out->naked_partition = partition;
    out->naked_by = head.who;
    out->naked_range = 0;
    out->naked_q = ranges.range[0].first;
    rs_list_keep(&own->sending, &out->waiting, true);
    return true;
}

/* ------------------------------------------------------------------------------------------------ small datagrams */

uint8_t *rs_qsm_small_new(rs_qsm *own, rs_peer to, uint32_t length) {
    if (own->small_count >= RS_QSM_OUTBOX)
        return NULL;
    rs_qsm_small *small = rs_memory_take(&own->node->allocator, sizeof *small + length);
    if (!small)
        return NULL;
    small->peer = to;
    small->length = length;
    rs_list_init(&small->order);
    rs_list_append(&own->smalls, &small->order);
    own->small_count++;
    return small->bytes;
}

/* The bit of a packet for a peer. Who misses much asks for the same packets each round, until they come. */
static uint64_t *mark_of(const rs_qsm *own, const rs_qsm_forward *f, uint64_t *bit) {
    uint64_t mark = rs_mix(f->sn ^ rs_mix((uint64_t)f->sender << 32 | f->peer) ^ f->region) % RS_QSM_FORWARD_MARKS;
    *bit = UINT64_C(1) << mark % 64;
    return &own->forward_marks[mark / 64];
}

void rs_qsm_forward_to(rs_qsm_view *view, rs_peer sender, uint64_t sn, rs_peer peer) {
    rs_qsm *own = view->own;
    const rs_allocator *allocator = &own->node->allocator;
    if (own->forward_tail - own->forward_head >= RS_QSM_OUTBOX)
        return;
    if (!own->forwards)
        own->forwards = rs_memory_take(allocator, RS_QSM_OUTBOX * sizeof *own->forwards);
    if (!own->forward_marks)
        own->forward_marks = rs_memory_take(allocator, RS_QSM_FORWARD_MARKS / 8);
    if (!own->forwards || !own->forward_marks)
        return;
    const rs_qsm_forward forward = {view, view->region, sender, peer, sn};
    uint64_t bit, *marks = mark_of(own, &forward, &bit);
    if (*marks & bit)
        return;
    *marks |= bit;
    own->forwards[own->forward_tail++ % RS_QSM_OUTBOX] = forward;
}

void rs_qsm_forwards_forget(rs_qsm *own, const rs_qsm_view *view) {
    for (uint32_t i = own->forward_head; i != own->forward_tail; i++)
        if (own->forwards[i % RS_QSM_OUTBOX].view == view)
            own->forwards[i % RS_QSM_OUTBOX].view = NULL;
}

void rs_qsm_take_back(void *of_node) {
    rs_qsm *own = of_node;
    while (!rs_list_empty(&own->handed)) {
        rs_qsm_small *small = RS_HOLDER(rs_qsm_small, order, own->handed.next);
        rs_list_remove(&small->order);
        rs_memory_give(&own->node->allocator, small);
    }
}

/* --------------------------------------------------------------------------------------------------------- output */

static void to_peer(rs_messages_out *out, rs_peer peer, const uint8_t *bytes, uint32_t length) {
    *out = (rs_messages_out){.channel = RS_CH_PEER_DATAGRAM,
                             .peer = peer,
                             .group = RS_NO_GROUP,
                             .piece_count = 1,
                             .piece = {{bytes, length}}};
}

/* Control has a fixed rate (end of Sec. 2.3.3): tokens, lists and ACKs go first; what is forwarded waits for them. */
static void refill(rs_qsm *own, rs_time now) {
    double more = (double)(now - own->control_at) * RS_QSM_CONTROL_RATE / 1e9;
    own->control_at = now;
    own->control_credits = own->control_credits + more < CONTROL_BURST ? own->control_credits + more : CONTROL_BURST;
}

rs_time rs_qsm_control_deadline(const rs_qsm *own) {
    double least = rs_list_empty(&own->smalls) ? 1 : 1 - CONTROL_BURST;
    bool waits = rs_list_empty(&own->smalls) ? own->forward_head != own->forward_tail : own->control_credits < least;
    if (!waits)
        return RS_NEVER;
    return own->control_at + 1 + (rs_time)((least - own->control_credits) * 1e9 / RS_QSM_CONTROL_RATE);
}

static bool poll_forward(rs_qsm *own, rs_messages_out *out) {
    while (own->forward_head != own->forward_tail && own->control_credits >= 1) {
        const rs_qsm_forward *f = &own->forwards[own->forward_head++ % RS_QSM_OUTBOX];
        uint64_t bit, *marks = mark_of(own, f, &bit);
        *marks &= ~bit;
        if (!f->view)
            continue;
        if (f->sender == own->node->config.self) {
            const rs_qsm_own_packet *packet = rs_qsm_out_packet(f->view, f->sn);
            if (!packet)
                continue;
            to_peer(out, f->peer, packet->bytes, packet->length);
        } else {
            const rs_qsm_stream *stream = rs_qsm_stream_find(f->view, f->sender);
            const rs_qsm_packet *packet = stream ? rs_qsm_stream_packet(stream, f->sn) : NULL;
            if (!packet)
                continue;
            to_peer(out, f->peer, packet->bytes, packet->length);
        }
        own->control_credits -= 1;
        own->stats.forwards_sent++;
        return true;
    }
    return false;
}

/* Where a packet goes: one multicast; a region of one other node, or without an address, by unicast (Sec. 2.1). The
 * last one of it is out: true. */
static bool address(rs_qsm_out *o, rs_messages_out *out, const rs_qsm_own_packet *packet) {
    const rs_qsm_view *view = o->view;
    if (view->channel != RS_NO_GROUP && rs_qsm_out_others(view) > 1) {
        *out = (rs_messages_out){.channel = RS_CH_GROUP,
                                 .peer = RS_NO_PEER,
                                 .group = view->channel,
                                 .piece_count = 1,
                                 .piece = {{packet->bytes, packet->length}}};
        return true;
    }
    o->turn += o->turn == view->self;
    to_peer(out, view->nodes[o->turn++], packet->bytes, packet->length);
    o->turn += o->turn == view->self;
    if (o->turn < view->count)
        return false;
    o->turn = 0;
    return true;
}

/* What a whole partition missed, by multicast: whoever else misses it has it, too. If that was missed as well, or may
 * be (nobody listens for ever at the address of a view that is over), who asks has it alone: the ring passes it on. */
static bool poll_again(rs_qsm_out *o, rs_time now, rs_messages_out *out) {
    const rs_qsm_view *view = o->view;
    bool alone = rs_qsm_out_others(view) == 1 || view->channel == RS_NO_GROUP || !view->current;
    while (o->naked_range < o->naked.count && o->turn == 0) {
        uint64_t first = o->naked.range[o->naked_range].first, end = first + o->naked.range[o->naked_range].count;
        uint64_t q = o->naked_q < first ? first : o->naked_q, sn = rs_qsm_sn_of(view, o->naked_partition, q);
        if (q >= end || sn >= o->sent) {
            o->naked_range++;
            continue;
        }
        o->naked_q = q + 1;
        const rs_qsm_own_packet *packet = rs_qsm_out_packet(view, sn);
        if (!packet || now - packet->sent_at < AGAIN_LEAST)
            continue;
        packet_at(o, sn)->sent_at = now;
        rs_qsm_control_sent(&o->control, now);
        view->own->stats.again_sent++;
        if (packet_at(o, sn)->again++ > 0 || alone)
            to_peer(out, o->naked_by, packet->bytes, packet->length);
        else
            address(o, out, packet);
        return true;
    }
    return false;
}

/* Nothing is added to it any more. */
static void shrink(rs_qsm_out *o, rs_qsm_own_packet *packet) {
    rs_qsm *own = o->view->own;
    uint32_t room = own->node->config.packet_bytes;
    uint8_t *bytes = packet->length < room / 2 ? rs_memory_take(&own->node->allocator, packet->length) : NULL;
    if (!bytes)
        return;
    memcpy(bytes, packet->bytes, packet->length);
    rs_memory_give(&own->node->allocator, packet->bytes);
    packet->bytes = bytes;
    own->out_bytes -= room - packet->length;
    packet->room = packet->length;
}

static bool poll_new(rs_qsm_out *o, rs_time now, rs_messages_out *out) {
    if (o->sent == o->next)
        return false;
    rs_qsm_own_packet *packet = packet_at(o, o->sent);
    if (o->turn == 0) {
        shrink(o, packet);
        rs_gm_seal(packet->bytes, packet->length);
        packet->sent_at = now;
        o->stable_at = o->stable + 1 == o->sent ? now : o->stable_at;
        rs_qsm_control_sent(&o->control, now);
        o->view->own->stats.data_sent++;
    }
    if (address(o, out, packet))
        o->sent++;
    if (o->position_at == RS_NEVER)
        set_position(o, now);
    if (o->view->self != RS_QSM_NOWHERE)
        rs_qsm_token_wake(o->view, now);
    return true;
}

bool rs_qsm_poll(void *of_node, rs_time now, rs_messages_out *out) {
    rs_qsm *own = of_node;
    bool any = !rs_list_empty(&own->smalls) || own->forward_head != own->forward_tail;
    if (any)
        refill(own, now);
    if (!rs_list_empty(&own->smalls) && own->control_credits >= 1 - CONTROL_BURST) {
        own->control_credits -= 1;
        rs_qsm_small *small = RS_HOLDER(rs_qsm_small, order, own->smalls.next);
        rs_list_append(&own->handed, &small->order);
        own->small_count--;
        to_peer(out, small->peer, small->bytes, small->length);
        return true;
    }
    if (own->forward_head != own->forward_tail && poll_forward(own, out))
        return true;
    /* Regions take turns. */
    for (rs_list *at = own->sending.next, *after; at != &own->sending; at = after) {
        after = at->next;
        rs_qsm_out *o = RS_HOLDER(rs_qsm_out, waiting, at);
        if (o->sent == o->next && o->naked_range >= o->naked.count) {
            rs_list_remove(at);
            continue;
        }
        if (o->turn == 0 && !rs_qsm_control_may_send(&o->control, now))
            continue;
        if (poll_again(o, now, out) || poll_new(o, now, out)) {
            rs_list_append(&own->sending, at);
            return true;
        }
    }
    return false;
}

/* --------------------------------------------------------------------------------------------------------- timers */

void rs_qsm_out_timeout(rs_qsm_view *view, rs_time now) {
    rs_qsm_out *out = view->out;
    if (!out || now < out->position_at)
        return;
    uint32_t leader = rs_qsm_region_leader(view), place = leader;
    for (uint32_t i = 0; place != RS_QSM_NOWHERE && i < out->positions / 2 % view->count; i++)
        place = (place + 1) % view->count; /* the leader does not answer */
    if (leader != view->self && place != RS_QSM_NOWHERE && place != view->self)
        rs_qsm_tell_position(view, now, place, view->own->node->config.self, view->own->node->config.incarnation,
                             out->sent - 1);
    out->positions++;
    set_position(out, now);
}

rs_time rs_qsm_out_deadline(const rs_qsm_view *view) {
    const rs_qsm_out *out = view->out;
    if (!out)
        return RS_NEVER;
    bool waits = out->sent < out->next || out->naked_range < out->naked.count;
    return rs_qsm_earlier(out->position_at, waits ? rs_qsm_control_at(&out->control) : RS_NEVER);
}
