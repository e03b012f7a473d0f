/* What happens at a time and belongs to no link and no host's clock: a heap in order of time, then of making. */
#include "engine/state.h"

static bool earlier(const thing *a, const thing *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void thing_put(sim *s, rs_time at, thing_kind kind, uint32_t a, uint32_t b, packet *p) {
    uint64_t capacity = s->thing_capacity;
    s->things = sim_grow(s, s->things, s->thing_count, &capacity, sizeof *s->things);
    s->thing_capacity = (uint32_t)capacity;
    thing new = {at, s->order++, kind, a, b, p};
    uint32_t spot = s->thing_count++;
    for (; spot && earlier(&new, &s->things[(spot - 1) / 2]); spot = (spot - 1) / 2)
        s->things[spot] = s->things[(spot - 1) / 2];
    s->things[spot] = new;
}

static thing take(sim *s) {
    thing top = s->things[0], last = s->things[--s->thing_count];
    uint32_t spot = 0;
    for (;;) {
        uint32_t child = 2 * spot + 1;
        if (child + 1 < s->thing_count && earlier(&s->things[child + 1], &s->things[child]))
            child++;
        if (child >= s->thing_count || !earlier(&s->things[child], &last))
            break;
        s->things[spot] = s->things[child];
        spot = child;
    }
    s->things[spot] = last;
    return top;
}

static void flow_packet(sim *s, uint32_t index) {
    flow *f = &s->flows[index];
    if (s->now >= f->stop)
        return;
    packet *p = packet_new(s, PACKET_FLOW, 0);
    p->from = f->from;
    p->to = f->to;
    p->wire_bytes = f->wire_bytes;
    p->payload_length = 0;
    p->payload_offset = 0;
    thing_put(s, s->now + f->gap_ns, THING_FLOW, index, 0, NULL);
    if (s->places[f->from].crashed)
        packet_drop(s, p);
    else
        network_send(s, f->from, p);
}

void thing_due(sim *s) {
    thing t = take(s);
    switch (t.kind) {
    case THING_ENGINE:
        if (!s->places[t.a].crashed)
            host_later(s, &s->hosts[s->places[t.a].host_index], t.b);
        break;
    case THING_CONNECT:
        connection_ready(s, t.a, t.b);
        break;
    case THING_AGAIN:
        if (s->places[t.a].crashed)
            packet_drop(s, t.packet);
        else
            network_send(s, t.a, t.packet);
        break;
    case THING_FLOW:
        flow_packet(s, t.a);
        break;
    }
}
