/* Links: a wire with a rate and a delay, a queue in front of it, and losses on it. */
#include "engine/state.h"

#include <string.h>

static void note_due(sim *s, uint32_t index) {
    const link *l = &s->links[index];
    rs_time due = l->air.count ? l->air.items[l->air.head].at : RS_NEVER;
    if (l->classes && (l->waiting[0].count || l->waiting[1].count) && l->free_at < due)
        due = l->free_at;
    calendar_set(&s->calendar, source_of_link(index), due);
}

/* Gilbert, "Capacity of a burst-noise channel" (1960), all lost in the bad state: left with 1 / burst, entered so
 * that p are lost in the mean. */
static bool gilbert(sim *s, loss_state *loss, double leave_good, double leave_bad) {
    loss->bad = sim_random(s) < (loss->bad ? 1 - leave_bad : leave_good);
    return loss->bad;
}

/* While nothing is sent the states change as they would under packets like this one: a bad spell of a link that is
 * seldom used does not wait for the next packets. */
static void pass_idle(sim *s, loss_state *loss, double leave_good, double leave_bad, rs_time idle, rs_time took) {
    rs_time steps = idle / took;
    double stays = 1, factor = 1 - leave_good - leave_bad;
    for (; steps && stays > 1e-9; steps >>= 1, factor *= factor)
        stays *= steps & 1 ? factor : 1;
    double p = leave_good / (leave_good + leave_bad);
    loss->bad = sim_random(s) < p + ((loss->bad ? 1 : 0) - p) * stays;
}

bool link_lose(sim *s, link *l, rs_time idle, rs_time took) {
    loss_state *loss = &l->loss;
    switch (loss->model) {
    case SIM_LOSS_BERNOULLI:
        return sim_random(s) < loss->p;
    case SIM_LOSS_GILBERT:
        if (idle >= took)
            pass_idle(s, loss, loss->leave_good, loss->leave_bad, idle, took);
        return gilbert(s, loss, loss->leave_good, loss->leave_bad);
    case SIM_LOSS_MARKOV:
        return gilbert(s, loss, loss->leave_good, loss->leave_bad);
    case SIM_LOSS_BURSTY:
        if (loss->left == 0 && sim_random(s) < loss->p / (loss->burst * (1 - loss->p) + loss->p))
            loss->left = (uint32_t)loss->burst;
        if (loss->left == 0)
            return false;
        loss->left--;
        return true;
    default:
        return false;
    }
}

static bool dark(sim *s, const link *l, const packet *p) {
    if (p->kind != PACKET_GROUP)
        return false;
    return s->now < l->dark_until || (s->now < l->ringing_until && sim_random(s) < l->ringing_loss);
}

/* Onto the wire now, which is free. */
static void transmit(sim *s, link *l, packet *p) {
    rs_time start = l->free_at > s->now ? l->free_at : s->now, idle = start - l->free_at;
    rs_time took = l->byte_ns ? (rs_time)p->wire_bytes * (rs_time)l->byte_ns : rs_wire_time(p->wire_bytes, l->rate_bps);
    l->free_at = start + took;
    l->stats.packets++;
    l->stats.bytes += p->wire_bytes;
    if (p->payload_length || p->kind == PACKET_FLOW) {
        if (l->stats.data_packets++ == 0)
            l->stats.first_data_at = start;
        l->stats.data_bytes += p->wire_bytes;
    }
    if (p->kind == PACKET_GROUP) {
        l->stats.group_packets++;
        l->stats.group_bytes += p->wire_bytes;
    }
    if (dark(s, l, p) || link_lose(s, l, idle, took)) {
        l->stats.lost++;
        network_lost(s, p);
        return;
    }
    flights_put(s, &l->air, p, l->free_at + l->delay_ns);
}

static int class_of(const packet *p) {
    return p->kind == PACKET_GROUP ? 0 : 1;
}

/* One class needs no queue of its own: what waits is what the wire has not got to yet. */
static uint64_t waiting(const sim *s, const link *l, const packet *p) {
    if (l->classes)
        return l->waiting_bytes[class_of(p)];
    if (l->free_at <= s->now)
        return 0;
    return (uint64_t)((double)(l->free_at - s->now) * (double)l->rate_bps / 8e9);
}

/* What a host says by connections waits in their sockets while its own link is busy: nothing of it is lost there. */
static bool waits_in_socket(const link *l, const packet *p) {
    return p->kind == PACKET_CONTROL && p->from == l->from;
}

void link_put(sim *s, uint32_t index, packet *p) {
    link *l = &s->links[index];
    bool idle = l->free_at <= s->now && !(l->classes && l->waiting[0].count + l->waiting[1].count);
    if (!l->up || (!idle && !waits_in_socket(l, p) && waiting(s, l, p) + p->wire_bytes > l->queue_bytes)) {
        l->stats.overflow++;
        network_lost(s, p);
        return;
    }
    bool known = l->air.count && !l->classes; /* when the first one arrives, and nothing else is to happen here */
    if (idle || !l->classes) {
        transmit(s, l, p);
    } else {
        flights_put(s, &l->waiting[class_of(p)], p, s->now);
        l->waiting_bytes[class_of(p)] += p->wire_bytes;
    }
    if (!known)
        note_due(s, index);
}

/* A packet has arrived at the far end, or the wire is free for the next. */
void link_due(sim *s, uint32_t index) {
    link *l = &s->links[index];
    if (l->classes && l->free_at <= s->now && (l->waiting[0].count || l->waiting[1].count)) {
        packet *p = flights_take(&l->waiting[l->waiting[0].count ? 0 : 1]).packet;
        l->waiting_bytes[class_of(p)] -= p->wire_bytes;
        transmit(s, l, p);
    }
    if (l->air.count && l->air.items[l->air.head].at <= s->now) {
        packet *p = flights_take(&l->air).packet;
        note_due(s, index);
        network_deliver(s, l->to, index, p);
        return;
    }
    note_due(s, index);
}

void link_cut(sim *s, uint32_t index) {
    link *l = &s->links[index];
    l->free_at = s->now;
    l->waiting_bytes[0] = l->waiting_bytes[1] = 0;
    while (l->air.count)
        network_lost(s, flights_take(&l->air).packet);
    for (int class = 0; class < 2; class ++)
        while (l->waiting[class].count)
            network_lost(s, flights_take(&l->waiting[class]).packet);
    note_due(s, index);
}

/* Links, packets and hosts are spread over much more memory than caches hold, and each is found through the one before:
 * they are fetched one step at a time, while the events before theirs are worked off. */

static const link *link_ahead(const sim *s, uint32_t many) {
    uint32_t source = calendar_ahead(&s->calendar, many);
    return source % 2 == 0 && source < 2 * s->link_count ? &s->links[source / 2] : NULL;
}

static const packet *packet_ahead(const sim *s, uint32_t many) {
    const link *l = link_ahead(s, many);
    return l && l->air.count ? l->air.items[l->air.head].packet : NULL;
}

void links_fetch(const sim *s) {
    enum { HOST = 2, NEXT = 5, PACKET = 9, QUEUE = 13, LINK = 17 };
    const link *l = link_ahead(s, LINK);
    if (l)
        __builtin_prefetch(l);
    l = link_ahead(s, QUEUE);
    if (l && l->air.count)
        __builtin_prefetch(&l->air.items[l->air.head]);
    const packet *p = packet_ahead(s, PACKET);
    if (p)
        __builtin_prefetch(p);
    p = packet_ahead(s, NEXT);
    if (p && p->kind == PACKET_GROUP) {
        __builtin_prefetch(p->header);
        forwarding_fetch(s, link_ahead(s, NEXT)->to, p->group);
    } else if (p && p->way_left && p->way_epoch == s->route_epoch) {
        const char *next = (const char *)&s->links[*p->way];
        for (int line = 0; line < 3; line++)
            __builtin_prefetch(next + line * SIM_LINE, 1);
        __builtin_prefetch(&s->calendar.entries[source_of_link(*p->way)], 1);
    } else if (p) {
        __builtin_prefetch(p->header);
        __builtin_prefetch(p->header + SIM_LINE);
        __builtin_prefetch(&s->places[p->to]);
    }
    p = packet_ahead(s, HOST);
    if (p && p->kind != PACKET_GROUP && p->way_left == 0)
        __builtin_prefetch(&s->hosts[s->places[p->to].host_index]);
}
