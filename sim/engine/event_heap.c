/* What happens at a time and belongs to no link and no host's clock: a heap in order of time, then of making. */
#include "engine/state.h"

static bool earlier(const sim_event *a, const sim_event *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void event_put(sim *s, rs_time at, event_kind kind, uint32_t a, uint32_t b, packet *p) {
    uint64_t capacity = s->event_capacity;
    s->events_due = sim_grow(s, s->events_due, s->event_count, &capacity, sizeof *s->events_due);
    s->event_capacity = (uint32_t)capacity;
    sim_event new = {at, s->order++, kind, a, b, p};
    uint32_t spot = s->event_count++;
    for (; spot && earlier(&new, &s->events_due[(spot - 1) / 2]); spot = (spot - 1) / 2)
        s->events_due[spot] = s->events_due[(spot - 1) / 2];
    s->events_due[spot] = new;
}

static sim_event take(sim *s) {
    sim_event top = s->events_due[0], last = s->events_due[--s->event_count];
    uint32_t spot = 0;
    for (;;) {
        uint32_t child = 2 * spot + 1;
        if (child + 1 < s->event_count && earlier(&s->events_due[child + 1], &s->events_due[child]))
            child++;
        if (child >= s->event_count || !earlier(&s->events_due[child], &last))
            break;
        s->events_due[spot] = s->events_due[child];
        spot = child;
    }
    s->events_due[spot] = last;
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
    event_put(s, s->now + f->gap_ns, EVENT_FLOW, index, 0, NULL);
    if (s->places[f->from].crashed)
        packet_drop(s, p);
    else
        network_send(s, f->from, p);
}

void event_due(sim *s) {
    sim_event t = take(s);
    switch (t.kind) {
    case EVENT_ENGINE:
        if (!s->places[t.a].crashed)
            host_later(s, &s->hosts[s->places[t.a].host_index], t.b);
        break;
    case EVENT_CONNECT:
        connection_ready(s, t.a, t.b);
        break;
    case EVENT_AGAIN:
        connection_again(s, t.a, t.b);
        break;
    case EVENT_FLOW:
        flow_packet(s, t.a);
        break;
    case EVENT_RECEIVE:
        host_awake(s, t.a, t.b, t.packet);
        break;
    }
}
