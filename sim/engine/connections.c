/* The control channel between two hosts: messages in order, each sent again until it has come. When one is missed is
 * as Linux does it (RFC 8985: RACK, tail loss probe), with the options that agents set and a clock of 1 ms: a later
 * one that has come shows it. Without, if two or more were under way, a probe does, and a lone one waits for the
 * time-out. Flow control is a limit on what is under way; acknowledgements come as fast as what they are for, are never
 * lost, and congestion control is not modelled. */
#include "engine/state.h"

#include <string.h>

#define FULL_BYTES (256u << 10)
#define MS INT64_C(1000000)
#define TIMEOUT_NS (5 * MS) /* the least: control.c, RETRANSMIT_LEAST_US */
#define TIMER_NS (2 * MS)   /* more, of any other timer: tcp.h, TCP_TIMEOUT_MIN_US */
#define LATER_MANY 3        /* so many have come that were sent later: it is lost, RFC 8985 6.2 step 4 */
#define TRIP_SHARE 8        /* of a new sample in the smoothed trip, RFC 6298 */
#define CONNECT_NS (100 * INT64_C(1000))
#define REFUSED_NS (1000 * INT64_C(1000000)) /* to learn that nobody answers */

static uint64_t key_of(uint32_t from, uint32_t to) {
    return (uint64_t)from << 32 | to;
}

static uint32_t slot_of(connection *const *slots, uint32_t count, uint64_t key) {
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (count - 1);
    while (slots[at] && slots[at]->key != key)
        at = (at + 1) & (count - 1);
    return at;
}

static void grow(sim *s) {
    uint32_t count = s->connection_slots ? s->connection_slots * 2 : 256;
    connection **slots = sim_take(s, count * sizeof(connection *));
    for (uint32_t i = 0; i < s->connection_slots; i++)
        if (s->connections[i])
            slots[slot_of(slots, count, s->connections[i]->key)] = s->connections[i];
    sim_give(s, s->connections, s->connection_slots * sizeof(connection *));
    s->connections = slots;
    s->connection_slots = count;
}

static connection *between(sim *s, uint32_t from, uint32_t to) {
    if (s->connection_count * 2 >= s->connection_slots)
        grow(s);
    uint32_t at = slot_of(s->connections, s->connection_slots, key_of(from, to));
    if (!s->connections[at]) {
        s->connections[at] = sim_take(s, sizeof(connection));
        s->connections[at]->key = key_of(from, to);
        s->connection_count++;
    }
    return s->connections[at];
}

static host *host_at(sim *s, uint32_t node) {
    return &s->hosts[s->places[node].host_index];
}

/* There is somebody who takes connections. */
static bool answers(const sim *s, uint32_t node) {
    if (node >= s->place_count || !s->places[node].host || s->places[node].crashed)
        return false;
    const sim_engine *engine = s->hosts[s->places[node].host_index].engine;
    return engine && engine->ops->peer_up;
}

void connection_open(sim *s, uint32_t from, uint32_t to) {
    event_put(s, s->now + (answers(s, to) ? CONNECT_NS : REFUSED_NS), EVENT_CONNECT, from, to, NULL);
}

/* The answer to a connection attempt. */
void connection_ready(sim *s, uint32_t from, uint32_t to) {
    host *a = host_at(s, from);
    if (s->places[from].crashed)
        return;
    if (!answers(s, to)) {
        a->engine->ops->peer_down(a->engine, s->now, to, "no answer");
        host_pump(s, a);
        return;
    }
    host *b = host_at(s, to);
    if (between(s, from, to)->up)
        return;
    between(s, from, to)->up = between(s, to, from)->up = true;
    if (!a->engine->ops->peer_up(a->engine, s->now, to) || !b->engine->ops->peer_up(b->engine, s->now, from)) {
        s->failed = true;
        sim_fail(s, "hosts %u and %u do not take their connection: out of memory", from, to);
        return;
    }
    host_pump(s, a);
    host_pump(s, b);
}

static void tell_writable(sim *s, uint32_t from, uint32_t to, bool writable) {
    sim_engine *engine = host_at(s, from)->engine;
    engine->ops->peer_writable(engine, s->now, to, writable);
}

static void stamp(const sim *s, connection *c, packet *p) {
    p->sent_at = (uint32_t)s->now;
    c->sent_at = s->now;
}

/* So long ago. */
static rs_time age(const sim *s, const packet *p) {
    return (rs_time)((uint32_t)s->now - p->sent_at);
}

void connection_send(sim *s, uint32_t from, uint32_t to, packet *p) {
    connection *c = between(s, from, to);
    p->number = c->sent++;
    c->outstanding += p->wire_bytes;
    stamp(s, c, p);
    s->stats.control_packets++;
    s->stats.control_bytes += p->wire_bytes;
    if (!c->full && c->outstanding >= FULL_BYTES) {
        c->full = true;
        tell_writable(s, from, to, false);
    }
    network_send(s, from, p);
}

static void hand_over(sim *s, connection *c, packet *p) {
    c->delivered++;
    c->outstanding -= p->wire_bytes;
    uint32_t from = p->from, to = p->to;
    if (!s->places[to].crashed)
        host_receive(s, host_at(s, to), p);
    packet_drop(s, p);
    if (c->full && c->outstanding < FULL_BYTES / 2 && !s->places[from].crashed) {
        c->full = false;
        tell_writable(s, from, to, true);
        host_pump(s, host_at(s, from));
    }
}

/* Of those that came early, the one whose turn it is. */
static packet *take_turn(connection *c) {
    for (uint32_t i = 0; i < c->early.count; i++) {
        uint32_t at = (c->early.head + i) & (c->early.capacity - 1);
        if (c->early.items[at].packet->number != c->delivered)
            continue;
        flight first = c->early.items[c->early.head], found = c->early.items[at];
        c->early.items[at] = first;
        flights_take(&c->early);
        return found.packet;
    }
    return NULL;
}

static void due_by(sim *s, const packet *p, missing *m, rs_time due) {
    if (due >= m->due)
        return;
    m->due = due;
    event_put(s, due, EVENT_AGAIN, p->from, p->to, NULL);
}

/* One has come: its sender hears that in half a trip, and misses those before it (RFC 8985 6.2). */
static void acknowledge(sim *s, connection *c, const packet *p) {
    rs_time there = age(s, p), trip = 2 * there, heard_at = s->now + there;
    c->trip = c->trip ? c->trip + (trip - c->trip) / TRIP_SHARE : trip;
    for (uint64_t i = 0; i < c->missing_count; i++) {
        missing *m = &c->missing[i];
        rs_time before = age(s, m->packet) - there, window = trip / 4;
        if (before < 0 || (before == 0 && p->number < m->packet->number))
            continue; /* it was sent earlier */
        bool sure = before >= window || ++m->later >= LATER_MANY;
        due_by(s, p, m, sure ? heard_at : heard_at + window + TIMER_NS);
    }
}

void connection_arrived(sim *s, packet *p) {
    connection *c = between(s, p->from, p->to);
    acknowledge(s, c, p);
    if (p->number != c->delivered) {
        flights_put(s, &c->early, p, s->now);
        return;
    }
    for (packet *next = p; next; next = take_turn(c))
        hand_over(s, c, next);
}

/* A link lost it: its sender notices after a while. */
void connection_lost(sim *s, packet *p) {
    if (s->places[p->from].crashed || s->places[p->to].crashed) {
        packet_drop(s, p);
        return;
    }
    connection *c = between(s, p->from, p->to);
    rs_time trip = c->trip ? c->trip : CONNECT_NS;
    bool lone = c->sent - c->delivered - c->early.count == 1, last = p->number + 1 == c->sent;
    rs_time probed = c->sent_at + 2 * trip + (lone ? TIMEOUT_NS : TIMER_NS) + (last ? 0 : trip);
    s->stats.control_again++;
    c->missing = sim_grow(s, c->missing, c->missing_count, &c->missing_capacity, sizeof *c->missing);
    c->missing[c->missing_count++] = (missing){.packet = p, .due = RS_NEVER};
    for (uint64_t i = 0; i < c->missing_count; i++)
        due_by(s, p, &c->missing[i], probed > s->now ? probed : s->now);
}

/* It is time for some that were lost. */
void connection_again(sim *s, uint32_t from, uint32_t to) {
    connection *c = between(s, from, to);
    uint64_t left = 0, count = c->missing_count;
    bool gone = s->places[from].crashed;
    for (uint64_t i = 0; i < count; i++) {
        missing m = c->missing[i];
        if (gone) {
            packet_drop(s, m.packet);
        } else if (m.due <= s->now) {
            stamp(s, c, m.packet);
            network_send(s, from, m.packet);
        } else {
            c->missing[left++] = m;
        }
    }
    /* Whatever a link lost at once is behind them. */
    uint64_t more = c->missing_count - count;
    memmove(c->missing + left, c->missing + count, more * sizeof *c->missing);
    c->missing_count = left + more;
}
