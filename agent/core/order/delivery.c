/* Guarantees of a group while a view holds: messages, whose turn it is, who has what, and what the application gets. */
#include "core/order/delivery.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/memory.h"
#include "core/base/xxh64.h"
#include "core/order/flush.h"

#define ACK 44u /* bytes */
#define ORDER_FIXED 40u
#define RUN 4u
#define NAK_FIXED 24u
#define NAK_RANGE 12u
#define CHECK_AT 4u
/* In agreed delivery nobody waits for acknowledgements but windows and buffers: one goes for so many messages or bytes,
 * or after a third of `again`. */
#define LAZY_MESSAGES 64u
#define PUT_OFF 4        /* times `again` */
#define PUT_OFF_AGAIN 32 /* a whole one that comes again takes as long, and engines give up after a second */
#define RUNS_AGAIN 64u   /* of the ORDER before, in the next one */
#define LAZY_BYTES (256u << 10)

/* ------------------------------------------------------------------------------------------------------- blocks */

rs_order_block *rs_order_block_new(rs_order *o, uint32_t length, rs_order_kind kind, uint64_t epoch) {
    rs_order_block *block = rs_memory_take(&o->allocator, sizeof *block + length);
    if (!block)
        return NULL;
    block->holders = 1;
    block->length = length;
    uint8_t *at = rs_le_put(block->bytes, RS_ORDER_MAGIC, 2);
    at = rs_le_put(at, RS_ORDER_VERSION, 1);
    at = rs_le_put(at, kind, 1);
    at = rs_le_put(at, 0, 4);
    at = rs_le_put(at, o->config.group, 4);
    rs_le_put(at, epoch, 8);
    return block;
}

void rs_order_block_drop(rs_order *o, rs_order_block *block) {
    if (block && --block->holders == 0)
        rs_memory_give(&o->allocator, block);
}

/* Of all but the check itself. */
static uint32_t check_of(const uint8_t *bytes, size_t length) {
    return (uint32_t)(rs_gm_xxh64(bytes + CHECK_AT + 4, length - CHECK_AT - 4, rs_le_get(bytes, CHECK_AT)));
}

void rs_order_seal(rs_order_block *block) {
    rs_le_put(block->bytes + CHECK_AT, check_of(block->bytes, block->length), 4);
}

/* Room for one more in a ring of so many; false: out of memory. */
static bool ring_room(rs_order *o, void **ring, uint64_t *room, uint64_t head, uint64_t tail, size_t size) {
    if (tail - head < *room)
        return true;
    uint64_t more = *room ? 2 * *room : 16;
    uint8_t *larger = rs_memory_take(&o->allocator, more * size);
    if (!larger)
        return false;
    for (uint64_t i = head; i != tail; i++)
        memcpy(larger + (i & (more - 1)) * size, (uint8_t *)*ring + (i & (*room - 1)) * size, size);
    rs_memory_give(&o->allocator, *ring);
    *ring = larger;
    *room = more;
    return true;
}

void rs_order_send(rs_order *o, rs_peer to, rs_order_block *block) {
    void *ring = o->out;
    bool fits = ring_room(o, &ring, &o->out_room, o->out_head, o->out_tail, sizeof *o->out);
    o->out = ring;
    if (!fits) { /* as good as lost on the way */
        rs_order_block_drop(o, block);
        return;
    }
    if (block->length > RS_ORDER_DATAGRAM)
        to = RS_NO_PEER;
    o->out[o->out_tail++ & (o->out_room - 1)] = (rs_order_leaving){to, block};
}

/* -------------------------------------------------------------------------------------------- to the application */

rs_status rs_order_push(rs_order *o, const rs_order_waiting *event) {
    void *ring = o->queue;
    bool fits = ring_room(o, &ring, &o->queue_room, o->queue_head, o->queue_tail, sizeof *o->queue);
    o->queue = ring;
    if (!fits)
        return RS_ERR_MEMORY;
    o->queue[o->queue_tail++ & (o->queue_room - 1)] = *event;
    if (event->kind == RS_ORDER_MESSAGE) {
        event->block->holders++;
        o->queue_messages++;
        o->queue_bytes += event->block->length;
    }
    return RS_OK;
}

/* False: out of memory, it is tried again. */
static bool push_message(rs_order *o, rs_order_sender *s, uint64_t seq, uint64_t number) {
    rs_order_block *block = rs_order_slot(s, seq);
    const rs_order_waiting event = {
        .kind = RS_ORDER_MESSAGE, .block = block, .sender = s->is.peer, .number = number, .view = o->epoch};
    bool pushed = block && rs_order_push(o, &event) == RS_OK;
    s->given = pushed ? seq : s->given;
    return pushed;
}

static void event_drop(rs_order *o, rs_order_waiting *event) {
    rs_order_block_drop(o, event->block);
    rs_memory_give(&o->allocator, event->peers);
    memset(event, 0, sizeof *event);
}

/* The application is so far behind that others have to wait. */
static bool is_behind(const rs_order *o) {
    return o->queue_messages >= o->config.window_messages || o->queue_bytes >= o->config.window_bytes;
}

static rs_time lazy(const rs_order *o) {
    return o->config.again / 3;
}

/* Agreed delivery: what has its place and is here. */
static void give_log(rs_order *o) {
    while (o->config.agreed && !o->frozen && o->given < o->complete && !is_behind(o)) {
        rs_order_sender *s = &o->senders[o->log[o->given & (o->log_room - 1)]];
        if (!push_message(o, s, s->given + 1, o->base + o->given + 1))
            return;
        o->given++;
    }
}

bool rs_order_poll_event(rs_order *o, rs_time now, rs_order_event *out) {
    (void)now;
    event_drop(o, &o->polled);
    if (o->queue_head == o->queue_tail)
        give_log(o);
    if (o->queue_head == o->queue_tail)
        return false;
    o->polled = o->queue[o->queue_head++ & (o->queue_room - 1)];
    const rs_order_waiting *e = &o->polled;
    *out = (rs_order_event){.kind = e->kind,
                            .sender = e->sender,
                            .number = e->number,
                            .view = e->view,
                            .members = e->peers,
                            .member_count = e->member_count,
                            .joined_count = e->joined_count,
                            .left_count = e->left_count,
                            .anew = e->anew,
                            .primary = e->primary};
    if (e->peers) {
        out->joined = e->peers + e->member_count;
        out->left = out->joined + e->joined_count;
    }
    if (e->kind == RS_ORDER_MESSAGE) {
        out->bytes = e->block->bytes + RS_ORDER_HEAD;
        out->length = e->block->length - RS_ORDER_HEAD;
        o->queue_messages--;
        o->queue_bytes -= e->block->length;
        o->stats.delivered++;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------- slots and log */

rs_order_block *rs_order_slot(const rs_order_sender *s, uint64_t seq) {
    if (seq <= s->committed || seq - s->committed > s->room)
        return NULL;
    return s->slots[seq & (s->room - 1)];
}

/* Takes the block over if it returns true. */
static bool slot_put(rs_order *o, rs_order_sender *s, uint64_t seq, rs_order_block *block) {
    if (seq - s->committed > s->room) {
        uint32_t room = s->room ? s->room : 16;
        while (room < seq - s->committed)
            room *= 2;
        rs_order_block **slots = rs_memory_take(&o->allocator, room * sizeof(rs_order_block *));
        if (!slots)
            return false;
        for (uint64_t i = s->committed + 1; i <= s->committed + s->room; i++)
            slots[i & (room - 1)] = s->slots[i & (s->room - 1)];
        rs_memory_give(&o->allocator, s->slots);
        s->slots = slots;
        s->room = room;
    }
    s->slots[seq & (s->room - 1)] = block;
    s->bytes += block->length;
    o->stats.kept_bytes += block->length;
    return true;
}

bool rs_order_log_room(rs_order *o, uint64_t known) {
    if (known - o->committed <= o->log_room)
        return true;
    uint64_t room = o->log_room ? o->log_room : 64;
    while (room < known - o->committed)
        room *= 2;
    uint16_t *log = rs_memory_take(&o->allocator, room * sizeof *log);
    if (!log)
        return false;
    for (uint64_t g = o->committed; g < o->known; g++)
        log[g & (room - 1)] = o->log[g & (o->log_room - 1)];
    rs_memory_give(&o->allocator, o->log);
    o->log = log;
    o->log_room = room;
    return true;
}

static bool coordinates(const rs_order *o) {
    return o->epoch && o->self == 0;
}

/* Without a view change, and with a view. */
static bool is_normal(const rs_order *o) {
    return o->epoch && !o->frozen;
}

/* The coordinator: whose messages are here without a gap has its turn. */
static void put_in_order(rs_order *o, uint32_t which) {
    rs_order_sender *s = &o->senders[which];
    uint64_t more = s->have - s->in_log;
    if (!coordinates(o) || !is_normal(o) || more == 0 || !rs_order_log_room(o, o->known + more))
        return;
    while (s->in_log < s->have) {
        o->log[o->known++ & (o->log_room - 1)] = (uint16_t)which;
        s->in_log++;
    }
}

static void acks_look(rs_order *o) {
    uint64_t least = o->senders[0].ack_complete;
    for (uint32_t i = 1; i < o->sender_count; i++)
        least = o->senders[i].ack_complete < least ? o->senders[i].ack_complete : least;
    if (least > o->committed)
        rs_order_commit_to(o, least);
}

void rs_order_advance(rs_order *o, rs_time now) {
    while (o->complete < o->known) {
        rs_order_sender *s = &o->senders[o->log[o->complete & (o->log_room - 1)]];
        if (s->in_complete >= s->have)
            break;
        s->in_complete++;
        o->complete++;
        const rs_order_block *block = rs_order_slot(s, s->in_complete);
        o->unacked_bytes += block ? block->length : 0;
    }
    (void)now;
    give_log(o);
    if (coordinates(o) && is_normal(o) && !is_behind(o)) {
        rs_order_sender *self = &o->senders[0];
        self->ack_known = o->known;
        self->ack_complete = o->complete;
        acks_look(o);
        self->ack_committed = o->committed;
    }
}

void rs_order_commit_to(rs_order *o, uint64_t to) {
    to = to < o->complete ? to : o->complete;
    while (o->committed < to) {
        uint16_t which = o->log[o->committed & (o->log_room - 1)];
        rs_order_sender *s = &o->senders[which];
        uint64_t seq = s->committed + 1;
        rs_order_block *block = rs_order_slot(s, seq);
        if (s->given < seq && !push_message(o, s, seq, o->config.total ? o->base + o->committed + 1 : 0))
            return;
        if (which == o->self)
            o->own_bytes -= block->length;
        s->bytes -= block->length;
        o->untold_bytes += block->length;
        o->stats.kept_bytes -= block->length;
        s->slots[seq & (s->room - 1)] = NULL;
        rs_order_block_drop(o, block);
        s->committed = seq;
        o->committed++;
        o->given = o->given > o->committed ? o->given : o->committed;
    }
}

/* Sender order: what is here without a gap. */
static void give_run(rs_order *o, rs_order_sender *s) {
    while (!o->config.total && s->given < s->have && push_message(o, s, s->given + 1, 0)) {
    }
}

/* `ahead`: what was missing first is here, so the gap that is left is another one. */
static void note_gap(rs_order *o, rs_time now, rs_order_sender *s, bool ahead) {
    if (s->have >= s->high) {
        s->gap_at = 0;
        s->tries = s->put_off = 0;
    } else if (s->gap_at == 0 || ahead) {
        s->gap_at = now;
        s->tries = s->put_off = 0;
        rs_time due = now + o->config.again / 4;
        o->tick_at = due < o->tick_at ? due : o->tick_at;
    }
}

/* A message is here; the block is taken over. */
static void store(rs_order *o, rs_time now, uint32_t which, uint64_t seq, rs_order_block *block) {
    rs_order_sender *s = &o->senders[which];
    if (!slot_put(o, s, seq, block)) {
        rs_order_block_drop(o, block);
        return;
    }
    const uint64_t had = s->have;
    s->high = seq > s->high ? seq : s->high;
    while (rs_order_slot(s, s->have + 1))
        s->have++;
    note_gap(o, now, s, s->have > had);
    if (!o->frozen)
        give_run(o, s);
    put_in_order(o, which);
    rs_order_advance(o, now);
    rs_order_install_look(o, now);
}

/* -------------------------------------------------------------------------------------------------- to the group */

static rs_order_block *data_block(rs_order *o, uint32_t which, uint64_t seq, const void *bytes, uint32_t length) {
    rs_order_block *block = rs_order_block_new(o, RS_ORDER_HEAD + length, RS_ORDER_KIND_DATA, o->epoch);
    if (!block)
        return NULL;
    uint8_t *at = rs_le_put(block->bytes + RS_ORDER_HEADER, which, 2);
    at = rs_le_put(at, 0, 2);
    at = rs_le_put(at, seq, 8);
    if (length)
        memcpy(at, bytes, length);
    return block;
}

rs_status rs_order_publish(rs_order *o, rs_time now, const void *bytes, uint32_t length) {
    if (length > o->config.message_bytes)
        return RS_ERR_INVALID;
    if (!is_normal(o))
        return RS_ERR_LIMIT;
    rs_order_sender *self = &o->senders[o->self];
    uint64_t waits = o->own - self->committed;
    if (waits >= o->config.window_messages || (waits > 0 && o->own_bytes + length > o->config.window_bytes))
        return RS_ERR_LIMIT;
    rs_order_block *block = data_block(o, o->self, o->own + 1, bytes, length);
    if (!block)
        return RS_ERR_MEMORY;
    rs_order_seal(block);
    if (waits == 0)
        o->own_at = now;
    o->own++;
    o->own_bytes += block->length;
    o->stats.published++;
    if (o->sender_count > 1) {
        block->holders++;
        rs_order_send(o, RS_NO_PEER, block);
    }
    rs_time due = now + o->config.again;
    o->tick_at = due < o->tick_at ? due : o->tick_at;
    store(o, now, o->self, o->own, block);
    return RS_OK;
}

static void relay(rs_order *o, rs_time now, rs_peer to, rs_order_block *block) {
    if (block->relayed_at && now - block->relayed_at < o->config.again / 2 && block->length > RS_ORDER_DATAGRAM)
        return;
    block->relayed_at = now ? now : 1;
    block->holders++;
    o->stats.relayed++;
    rs_order_send(o, to, block);
}

/* The log from `from` on, as far as one datagram (`most` runs) takes it, and what is committed. Returns its end. */
static uint64_t send_order(rs_order *o, rs_peer to, uint64_t from, uint32_t most) {
    uint32_t runs = 0;
    uint64_t end = from;
    while (end < o->known && runs < most) {
        uint16_t which = o->log[end & (o->log_room - 1)];
        uint32_t count = 0;
        for (; end < o->known && o->log[end & (o->log_room - 1)] == which && count < UINT16_MAX; end++)
            count++;
        runs++;
    }
    rs_order_block *block = rs_order_block_new(o, ORDER_FIXED + runs * RUN, RS_ORDER_KIND_ORDER, o->epoch);
    if (!block)
        return from;
    uint8_t *at = rs_le_put(block->bytes + RS_ORDER_HEADER, from, 8);
    at = rs_le_put(at, o->committed, 8);
    at = rs_le_put(at, runs, 4);
    for (uint64_t g = from; g < end;) {
        uint16_t which = o->log[g & (o->log_room - 1)];
        uint32_t count = 0;
        for (; g < end && o->log[g & (o->log_room - 1)] == which && count < UINT16_MAX; g++)
            count++;
        at = rs_le_put(at, which, 2);
        at = rs_le_put(at, count, 2);
    }
    rs_order_seal(block);
    rs_order_send(o, to, block);
    return end;
}

static void send_ack(rs_order *o, rs_time now) {
    rs_order_block *block = rs_order_block_new(o, ACK, RS_ORDER_KIND_ACK, o->epoch);
    if (!block)
        return;
    if (!is_behind(o))
        o->ack_complete = o->complete;
    o->ack_known = o->known;
    o->ack_committed = o->committed;
    o->ack_now = false;
    o->ack_at = now;
    o->unacked_bytes = 0;
    uint8_t *at = rs_le_put(block->bytes + RS_ORDER_HEADER, o->ack_known, 8);
    at = rs_le_put(at, o->ack_complete, 8);
    rs_le_put(at, o->ack_committed, 8);
    rs_order_seal(block);
    rs_order_send(o, o->senders[0].is.peer, block);
}

/* Where the next ORDER begins: what the last one told goes along, so that one that is lost costs nothing but the time
 * to the next, if that is short. */
static uint64_t told_again(const rs_order *o) {
    const uint64_t from = o->told_before > o->committed ? o->told_before : o->committed;
    uint32_t runs = 0;
    for (uint64_t g = from; g < o->told_known; g++)
        runs += g == from || o->log[g & (o->log_room - 1)] != o->log[(g - 1) & (o->log_room - 1)];
    return from < o->told_known && runs <= RUNS_AGAIN ? from : o->told_known;
}

/* What was told up to here a while ago. */
static void note_told(rs_order *o, rs_time now) {
    if (now - o->mark_at < o->config.again / 4)
        return;
    o->told_then = o->told_mark;
    o->told_mark = o->told_known;
    o->mark_at = now;
}

static void tell_order(rs_order *o, rs_time now) {
    const uint64_t before = o->told_known;
    note_told(o, now);
    o->told_known = send_order(o, RS_NO_PEER, told_again(o), RS_ORDER_RUNS_MOST);
    o->told_before = o->told_known > before ? before : o->told_before;
    o->told_committed = o->committed;
    o->untold_bytes = 0;
    o->told_at = now;
}

/* The coordinator has to tell of the log, or of what all have. */
static bool owes_order(const rs_order *o, rs_time now) {
    if (o->told_known < o->known)
        return true;
    if (o->told_committed >= o->committed)
        return false;
    return !o->config.agreed || o->committed - o->told_committed >= LAZY_MESSAGES || o->untold_bytes >= LAZY_BYTES ||
           now - o->told_at >= lazy(o);
}

/* A member has to tell what it has. */
static bool owes_ack(const rs_order *o, rs_time now) {
    bool more = o->ack_known < o->known || (o->ack_complete < o->complete && !is_behind(o));
    if (o->ack_now || (o->ack_committed < o->committed && now - o->ack_at >= o->config.again / 4))
        return true;
    return more && (!o->config.agreed || o->known - o->ack_known >= LAZY_MESSAGES || o->unacked_bytes >= LAZY_BYTES ||
                    now - o->ack_at >= lazy(o));
}

bool rs_order_poll_out(rs_order *o, rs_time now, rs_order_out *out) {
    rs_order_block_drop(o, o->sent);
    o->sent = NULL;
    if (is_normal(o) && o->sender_count > 1) {
        if (o->self == 0) {
            rs_order_advance(o, now);
            if (owes_order(o, now))
                tell_order(o, now);
        } else if (owes_ack(o, now)) {
            send_ack(o, now);
        }
    } else if (is_normal(o)) {
        rs_order_advance(o, now);
    }
    if (o->out_head == o->out_tail)
        return false;
    const rs_order_leaving *next = &o->out[o->out_head++ & (o->out_room - 1)];
    o->sent = next->block;
    *out = (rs_order_out){.peer = next->peer, .bytes = next->block->bytes, .length = next->block->length};
    return true;
}

/* ------------------------------------------------------------------------------------------------------- arrival */

static uint32_t sender_of(const rs_order *o, rs_peer peer) {
    for (uint32_t low = 0, high = o->sender_count; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        if (o->senders[middle].is.peer == peer)
            return middle;
        if (o->senders[middle].is.peer < peer)
            low = middle + 1;
        else
            high = middle;
    }
    return UINT32_MAX;
}

static bool receive_data(rs_order *o, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    if (length < RS_ORDER_HEAD || length - RS_ORDER_HEAD > o->config.message_bytes)
        return false;
    uint32_t which = (uint32_t)rs_le_get(bytes + RS_ORDER_HEADER, 2);
    uint64_t seq = rs_le_get(bytes + RS_ORDER_HEADER + 4, 8);
    if (which >= o->sender_count || seq == 0)
        return false;
    if (from == o->senders[0].is.peer) /* its messages come the way that its ORDER comes, which may wait behind them */
        o->heard_at = now;
    rs_order_sender *s = &o->senders[which];
    if (seq <= s->have || rs_order_slot(s, seq) || which == o->self)
        return true;
    if (seq - s->committed > 2 * (uint64_t)o->config.window_messages ||
        (seq > s->have + 1 && s->bytes + length > 2 * o->config.window_bytes + o->config.message_bytes)) {
        o->stats.refused++; /* it cannot be, or comes again when what is before it has come */
        return true;
    }
    rs_order_block *block = data_block(o, which, seq, bytes + RS_ORDER_HEAD, (uint32_t)(length - RS_ORDER_HEAD));
    if (!block)
        return true;
    memcpy(block->bytes, bytes, RS_ORDER_HEAD);
    store(o, now, which, seq, block);
    return true;
}

static bool receive_order(rs_order *o, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    if (length < ORDER_FIXED)
        return false;
    const uint8_t *at = bytes + RS_ORDER_HEADER;
    uint64_t first = rs_le_take(&at, 8), committed = rs_le_take(&at, 8);
    uint64_t runs = rs_le_take(&at, 4);
    if (runs != (length - ORDER_FIXED) / RUN || (length - ORDER_FIXED) % RUN || o->self == 0 ||
        from != o->senders[0].is.peer)
        return false;
    o->heard_at = now;
    if (o->frozen)
        return true;
    uint64_t had = o->known, had_committed = o->committed;
    if (first > o->known) {
        o->ack_now |= now - o->ack_at >= o->config.again / 4;
        return true;
    }
    uint64_t g = first, most = o->committed + 2 * (uint64_t)o->config.window_messages * o->sender_count;
    for (uint64_t i = 0; i < runs; i++) {
        uint32_t which = (uint32_t)rs_le_take(&at, 2);
        uint64_t count = rs_le_take(&at, 2);
        if (which >= o->sender_count)
            return false;
        uint64_t skip = o->known > g ? o->known - g : 0;
        skip = skip < count ? skip : count;
        g += count;
        count -= skip;
        if (count == 0)
            continue;
        if (o->known + count > most || !rs_order_log_room(o, o->known + count))
            break;
        rs_order_sender *s = &o->senders[which];
        for (uint64_t j = 0; j < count; j++)
            o->log[o->known++ & (o->log_room - 1)] = (uint16_t)which;
        s->in_log += count;
        s->high = s->in_log > s->high ? s->in_log : s->high;
        note_gap(o, now, s, false);
        if (which == o->self)
            o->own_at = now;
    }
    rs_order_advance(o, now);
    rs_order_commit_to(o, committed);
    o->ack_now |= o->known == had && o->committed == had_committed; /* nothing new: it lacks an answer */
    rs_time due = now + lazy(o);
    o->tick_at = due < o->tick_at ? due : o->tick_at;
    return true;
}

static bool receive_ack(rs_order *o, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    uint32_t which = sender_of(o, from);
    if (length != ACK)
        return false;
    if (o->self != 0 || which == UINT32_MAX || which == 0 || o->frozen)
        return true;
    const uint8_t *at = bytes + RS_ORDER_HEADER;
    uint64_t known = rs_le_take(&at, 8), complete = rs_le_take(&at, 8), committed = rs_le_take(&at, 8);
    rs_order_sender *s = &o->senders[which];
    if (known > o->known || complete > known || committed > o->committed)
        return false;
    s->heard_at = now;
    s->ack_known = known > s->ack_known ? known : s->ack_known;
    s->ack_complete = complete > s->ack_complete ? complete : s->ack_complete;
    s->ack_committed = committed > s->ack_committed ? committed : s->ack_committed;
    acks_look(o);
    note_told(o, now);
    bool missed = known < o->told_then || (known < o->told_known && now - o->told_at > o->config.again / 2);
    if (missed && known >= o->committed && now - s->resent_at > o->config.again / 2) {
        s->resent_at = now;
        send_order(o, from, known, (RS_ORDER_DATAGRAM - ORDER_FIXED) / RUN);
    }
    return true;
}

static bool receive_nak(rs_order *o, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    if (length < NAK_FIXED || (length - NAK_FIXED) % NAK_RANGE)
        return false;
    const uint8_t *at = bytes + RS_ORDER_HEADER;
    uint64_t count = rs_le_take(&at, 4), given = 0;
    if (count != (length - NAK_FIXED) / NAK_RANGE || count > RS_ORDER_NAK_RANGES)
        return false;
    if (sender_of(o, from) == UINT32_MAX)
        return true;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t which = (uint32_t)rs_le_take(&at, 2);
        uint64_t many = rs_le_take(&at, 2), seq = rs_le_take(&at, 8);
        if (which >= o->sender_count)
            return false;
        for (uint64_t j = 0; j < many && given < 256; j++) {
            rs_order_block *block = rs_order_slot(&o->senders[which], seq + j);
            if (block)
                relay(o, now, from, block);
            given += block != NULL;
        }
    }
    return true;
}

bool rs_order_receive(rs_order *o, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    bool good = length >= RS_ORDER_HEADER && rs_le_get(bytes, 2) == RS_ORDER_MAGIC && bytes[2] == RS_ORDER_VERSION &&
                rs_le_get(bytes + RS_ORDER_GROUP_AT, 4) == o->config.group &&
                rs_le_get(bytes + CHECK_AT, 4) == check_of(bytes, length);
    if (!good) {
        o->stats.bad++;
        return false;
    }
    rs_order_kind kind = (rs_order_kind)bytes[3];
    uint64_t epoch = rs_le_get(bytes + 12, 8);
    if (from == o->config.self)
        return true;
    if (kind == RS_ORDER_KIND_DATA || kind == RS_ORDER_KIND_ORDER)
        rs_order_implied(o, now, epoch);
    if (kind >= RS_ORDER_KIND_REQUEST)
        good = rs_order_flush_receive(o, now, from, kind, epoch, bytes, length);
    else if (epoch != o->epoch || epoch == 0)
        return true; /* of a view that is over, or not here yet: then it is asked for */
    else if (kind == RS_ORDER_KIND_DATA)
        good = receive_data(o, now, from, bytes, length);
    else if (kind == RS_ORDER_KIND_ORDER)
        good = receive_order(o, now, from, bytes, length);
    else if (kind == RS_ORDER_KIND_ACK)
        good = receive_ack(o, now, from, bytes, length);
    else
        good = kind == RS_ORDER_KIND_NAK && receive_nak(o, now, from, bytes, length);
    o->stats.bad += !good;
    return good;
}

/* -------------------------------------------------------------------------------------------------------- timers */

/* Who is asked for a message: its sender, then others in turn; of a view that ends, who is known to have it. */
static rs_peer whom_to_ask(const rs_order *o, uint32_t which) {
    const rs_order_sender *s = &o->senders[which];
    if (s->tries % 2 == 0)
        return o->install.epoch && o->install.survivor ? o->install.holders[which] : s->is.peer;
    return o->senders[(o->self + 1 + s->tries / 2 % (o->sender_count > 1 ? o->sender_count - 1 : 1)) % o->sender_count]
        .is.peer;
}

static void nak(rs_order *o, uint32_t which) {
    rs_order_sender *s = &o->senders[which];
    struct {
        uint64_t seq;
        uint32_t many;
    } ranges[RS_ORDER_NAK_RANGES];
    uint32_t count = 0;
    const uint64_t most = s->have + o->config.window_messages, last = s->high < most ? s->high : most;
    for (uint64_t seq = s->have + 1; seq <= last; seq++) {
        if (rs_order_slot(s, seq))
            continue;
        if (count > 0 && ranges[count - 1].seq + ranges[count - 1].many == seq) {
            ranges[count - 1].many++;
            continue;
        }
        if (count == RS_ORDER_NAK_RANGES)
            break;
        ranges[count].seq = seq;
        ranges[count++].many = 1;
    }
    rs_peer to = whom_to_ask(o, which);
    rs_order_block *block = count && to != o->config.self
                                ? rs_order_block_new(o, NAK_FIXED + count * NAK_RANGE, RS_ORDER_KIND_NAK, o->epoch)
                                : NULL;
    if (!block)
        return;
    uint8_t *at = rs_le_put(block->bytes + RS_ORDER_HEADER, count, 4);
    for (uint32_t i = 0; i < count; i++) {
        at = rs_le_put(at, which, 2);
        at = rs_le_put(at, ranges[i].many, 2);
        at = rs_le_put(at, ranges[i].seq, 8);
    }
    rs_order_seal(block);
    rs_order_send(o, to, block);
    o->stats.naks_sent++;
}

static rs_time nak_due(const rs_order *o, const rs_order_sender *s) {
    const rs_time first = s->tries ? o->config.again : o->config.again / 4,
                  later = o->config.again / 4 * (1 + s->put_off);
    return s->have < s->high ? s->gap_at + (first > later ? first : later) : RS_NEVER;
}

void rs_order_naks(rs_order *o, rs_time now) {
    for (uint32_t i = 0; i < o->sender_count; i++) {
        rs_order_sender *s = &o->senders[i];
        if (now < nak_due(o, s))
            continue;
        const rs_time most = (s->tries ? PUT_OFF_AGAIN : PUT_OFF) * o->config.again;
        if (now - s->gap_at < most && o->config.brings &&
            o->config.brings(o->config.context, o->config.group, s->is.peer)) {
            s->put_off = (uint32_t)((now - s->gap_at) / (o->config.again / 4));
            continue;
        }
        nak(o, i);
        s->tries++;
        s->put_off = 0;
        s->gap_at = now;
    }
}

static void coordinator_tick(rs_order *o, rs_time now) {
    uint64_t known = o->known, committed = o->committed;
    for (uint32_t i = 1; i < o->sender_count; i++) {
        known = o->senders[i].ack_known < known ? o->senders[i].ack_known : known;
        committed = o->senders[i].ack_committed < committed ? o->senders[i].ack_committed : committed;
    }
    bool owed = known < o->known || o->committed < o->known || committed < o->committed;
    if (now - o->told_at < (owed ? o->config.again : o->config.heartbeat))
        return;
    o->told_at = now;
    if (known < o->told_known && known >= o->committed)
        send_order(o, RS_NO_PEER, known, RS_ORDER_RUNS_MOST);
    else
        send_order(o, RS_NO_PEER, o->known, 0);
}

static void member_tick(rs_order *o, rs_time now) {
    rs_order_sender *self = &o->senders[o->self];
    if (self->in_log < o->own && now - o->own_at >= o->config.again) {
        rs_order_block *block = rs_order_slot(self, self->in_log + 1);
        if (block)
            relay(o, now, o->senders[0].is.peer, block);
        o->own_at = now;
    }
    if (o->ack_committed < o->committed)
        o->ack_now = true;
}

uint32_t rs_order_silent(const rs_order *o, rs_time now, rs_time bound, rs_peer *out, uint32_t most) {
    uint32_t count = 0;
    bool leads = rs_order_leads(o);
    if (leads && o->flush.epoch) {
        const rs_order_flush *f = &o->flush;
        for (uint32_t i = 0; i < o->wanted_count && now - f->since > bound; i++)
            if (o->wanted[i] != o->config.self && !(f->installing ? f->ready[i] : f->reports[i] != NULL) &&
                count < most)
                out[count++] = o->wanted[i];
    } else if (leads) {
        for (uint32_t i = 0; i < o->sender_count; i++)
            if (i != o->self && now - o->senders[i].heard_at > bound && count < most)
                out[count++] = o->senders[i].is.peer;
    } else if (o->wanted_count > 0 && most > 0 && now - o->heard_at > bound) {
        out[count++] = o->wanted[0];
    }
    return count;
}

/* By the rule of docs/guarantees.md: the coordinator hears from half of the view at least, a member from it. */
static bool seems_primary(const rs_order *o, rs_time now) {
    if (!o->epoch || o->sender_count < 2)
        return o->epoch != 0;
    if (o->self != 0 || o->frozen)
        return now - o->heard_at < o->config.silence;
    uint32_t heard = 1;
    for (uint32_t i = 1; i < o->sender_count; i++)
        heard += now - o->senders[i].heard_at < o->config.silence;
    return 2 * heard >= o->sender_count;
}

static void look_at_primary(rs_order *o, rs_time now) {
    if (now - o->ran_at > o->config.heartbeat) { /* this process did not run: its own pause is nobody's silence */
        rs_time paused = now - o->ran_at;
        o->heard_at += paused;
        for (uint32_t i = 0; i < o->sender_count; i++)
            o->senders[i].heard_at += paused;
        o->flush.since += paused;
    }
    o->ran_at = now;
    bool primary = seems_primary(o, now);
    if (primary == o->primary)
        return;
    const rs_order_waiting event = {.kind = RS_ORDER_PRIMARY, .primary = primary, .view = o->epoch};
    if (rs_order_push(o, &event) == RS_OK)
        o->primary = primary;
}

/* Something is not over: it is looked at often. */
static bool is_busy(const rs_order *o) {
    if (o->frozen || o->flush.epoch || o->install.epoch || o->epoch >> 8 != o->version)
        return true;
    if (!o->epoch)
        return false;
    if (o->committed < o->known || o->own > o->senders[o->self].committed || o->ack_committed < o->committed)
        return true;
    for (uint32_t i = 0; i < o->sender_count; i++) {
        const rs_order_sender *s = &o->senders[i];
        if (s->have < s->high || (o->self == 0 && s->ack_committed < o->committed))
            return true;
    }
    return false;
}

void rs_order_timeout(rs_order *o, rs_time now) {
    if (o->version == 0 || now < o->tick_at)
        return;
    look_at_primary(o, now);
    rs_order_flush_tick(o, now);
    if (o->epoch)
        rs_order_naks(o, now);
    if (is_normal(o) && o->sender_count > 1) {
        if (o->self == 0)
            coordinator_tick(o, now);
        else
            member_tick(o, now);
    }
    o->tick_at = now + (is_busy(o) ? o->config.again / 2 : o->config.heartbeat / 2);
    for (uint32_t i = 0; i < o->sender_count; i++) {
        const rs_time due = nak_due(o, &o->senders[i]);
        o->tick_at = due < o->tick_at ? due : o->tick_at;
    }
}

rs_time rs_order_deadline(const rs_order *o) {
    return o->version ? o->tick_at : RS_NEVER;
}

/* ---------------------------------------------------------------------------------------------------------- life */

void rs_order_stats_get(const rs_order *o, rs_order_stats *out) {
    *out = o->stats;
    out->waiting = o->queue_messages;
    out->kept_bytes += o->queue_bytes;
}

rs_order *rs_order_new(const rs_order_config *config, const rs_allocator *allocator) {
    rs_order_config c = *config;
    c.message_bytes = c.message_bytes ? c.message_bytes : 1u << 20;
    c.window_messages = c.window_messages ? c.window_messages : 4096;
    c.window_bytes = c.window_bytes ? c.window_bytes : UINT64_C(4) << 20;
    c.again = c.again ? c.again : 30000000;
    c.heartbeat = c.heartbeat ? c.heartbeat : 500000000;
    c.silence = c.silence ? c.silence : 3000000000;
    if (c.instance == 0 || c.self == RS_NO_PEER || c.window_messages > 1u << 20 || c.again < 8 || c.heartbeat < c.again)
        return NULL;
    rs_order *o = rs_memory_take(allocator, sizeof *o);
    if (!o)
        return NULL;
    o->config = c;
    o->allocator = *allocator;
    o->base = c.number;
    o->tick_at = RS_NEVER;
    return o;
}

void rs_order_view_free(rs_order *o) {
    for (uint32_t i = 0; i < o->sender_count; i++) {
        rs_order_sender *s = &o->senders[i];
        for (uint32_t j = 0; j < s->room; j++)
            if (s->slots[j]) {
                o->stats.kept_bytes -= s->slots[j]->length;
                rs_order_block_drop(o, s->slots[j]);
            }
        rs_memory_give(&o->allocator, s->slots);
    }
    rs_memory_give(&o->allocator, o->senders);
    rs_memory_give(&o->allocator, o->log);
    o->senders = NULL;
    o->sender_count = 0;
    o->log = NULL;
    o->log_room = o->known = o->complete = o->committed = o->given = o->own = o->own_bytes = 0;
    o->unacked_bytes = o->untold_bytes = 0;
    o->told_before = o->told_then = o->told_mark = 0;
    o->told_known = o->told_committed = o->ack_known = o->ack_complete = o->ack_committed = 0;
    o->ack_now = false;
    o->epoch = 0;
}

void rs_order_free(rs_order *o) {
    if (!o)
        return;
    const rs_allocator allocator = o->allocator;
    event_drop(o, &o->polled);
    while (o->queue_head != o->queue_tail)
        event_drop(o, &o->queue[o->queue_head++ & (o->queue_room - 1)]);
    rs_order_block_drop(o, o->sent);
    while (o->out_head != o->out_tail)
        rs_order_block_drop(o, o->out[o->out_head++ & (o->out_room - 1)].block);
    rs_order_flush_end(o);
    rs_order_install_free(o);
    rs_order_view_free(o);
    rs_memory_give(&allocator, o->queue);
    rs_memory_give(&allocator, o->out);
    rs_memory_give(&allocator, o->wanted);
    rs_memory_give(&allocator, o);
}
