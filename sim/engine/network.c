/* From node to node: groups by their forwarding entries, everything else along shortest paths. */
#include "engine/state.h"

#include <inttypes.h>
#include <string.h>

#define FAR UINT16_MAX

static void trace(sim *s, uint32_t node, const packet *p) {
    static const char *const kinds[] = {"group", "datagram", "control", "flow"};
    fprintf(s->trace, "{\"ns\": %" PRId64 ", \"node\": %u, \"kind\": \"%s\", \"from\": %u, ", s->now, node,
            kinds[p->kind], p->from);
    if (p->kind == PACKET_GROUP)
        fprintf(s->trace, "\"group\": %u, ", p->group);
    else
        fprintf(s->trace, "\"to\": %u, ", p->to);
    fprintf(s->trace, "\"bytes\": %u, \"payload_offset\": %" PRIu64 ", \"payload\": %u}\n", p->wire_bytes,
            p->payload_offset, p->payload_length);
}

uint32_t forwarding_slot(const sim *s, uint64_t key) {
    uint32_t mask = s->forwarding_slots - 1;
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
    while (s->forwardings[at] && s->forwardings[at]->key != key)
        at = (at + 1) & mask;
    return at;
}

static void to_group(sim *s, uint32_t node, uint32_t from_link, packet *p) {
    uint64_t key = (uint64_t)node << 32 | p->group;
    const forwarding *f = s->forwarding_slots ? s->forwardings[forwarding_slot(s, key)] : NULL;
    uint32_t back = from_link == SIM_NONE ? SIM_NONE : s->links[from_link].from;
    for (uint32_t i = 0; f && i < f->count; i++) {
        if (s->links[f->links[i]].to == back)
            continue;
        p->references++;
        link_put(s, f->links[i], p);
    }
    const place *here = &s->places[node];
    if (f && f->member && here->host && from_link != SIM_NONE)
        host_receive(s, &s->hosts[here->host_index], p);
    packet_drop(s, p);
}

/* Distances of all nodes to `to`, over links that are up and nodes that are not down. */
static void find_distances(sim *s, uint32_t to) {
    uint32_t *queue = sim_take(s, s->place_count * sizeof *queue), head = 0, tail = 0;
    place *target = &s->places[to];
    if (!target->distance)
        target->distance = sim_take(s, s->place_count * sizeof *target->distance);
    for (uint32_t i = 0; i < s->place_count; i++)
        target->distance[i] = FAR;
    target->distance[to] = 0;
    queue[tail++] = to;
    while (head < tail) {
        uint32_t node = queue[head++];
        /* Links come in pairs; the way back is the one from a neighbour to here. */
        for (uint32_t i = 0; i < s->places[node].link_count; i++) {
            uint32_t neighbour = s->links[s->places[node].links[i]].to;
            uint32_t towards = sim_link_between(s, neighbour, node);
            if (target->distance[neighbour] != FAR || s->places[neighbour].crashed || towards == SIM_ERROR ||
                !s->links[towards].up)
                continue;
            target->distance[neighbour] = (uint16_t)(target->distance[node] + 1);
            queue[tail++] = neighbour;
        }
    }
    sim_give(s, queue, s->place_count * sizeof *queue);
}

static uint32_t flow_hash(const packet *p, uint32_t node) {
    uint64_t key = (uint64_t)p->from << 32 | p->to;
    key = (key ^ ((uint64_t)node << 17)) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(key >> 33);
}

/* The link of the shortest path that this source and destination take; SIM_NONE if there is no way. */
static uint32_t next_link(sim *s, uint32_t node, const packet *p) {
    if (!s->places[p->to].distance)
        find_distances(s, p->to);
    const uint16_t *distance = s->places[p->to].distance;
    const place *here = &s->places[node];
    uint32_t equal[64], count = 0;
    for (uint32_t i = 0; i < here->link_count && count < 64; i++) {
        const link *l = &s->links[here->links[i]];
        if (l->up && distance[l->to] != FAR && distance[l->to] + 1 == distance[node])
            equal[count++] = here->links[i];
    }
    return count ? equal[flow_hash(p, node) % count] : SIM_NONE;
}

void network_send(sim *s, uint32_t node, packet *p) {
    if (p->kind == PACKET_GROUP) {
        to_group(s, node, SIM_NONE, p);
        return;
    }
    uint32_t next = p->to == node ? SIM_NONE : next_link(s, node, p);
    if (next == SIM_NONE)
        network_lost(s, p);
    else
        link_put(s, next, p);
}

void network_deliver(sim *s, uint32_t node, uint32_t from_link, packet *p) {
    if (s->trace)
        trace(s, node, p);
    if (s->places[node].crashed) {
        network_lost(s, p);
    } else if (p->kind == PACKET_GROUP) {
        to_group(s, node, from_link, p);
    } else if (p->to != node) {
        network_send(s, node, p);
    } else if (p->kind == PACKET_CONTROL) {
        connection_arrived(s, p);
    } else {
        if (p->kind == PACKET_DATAGRAM)
            host_receive(s, &s->hosts[s->places[node].host_index], p);
        packet_drop(s, p);
    }
}

void network_lost(sim *s, packet *p) {
    if (p->kind == PACKET_CONTROL)
        connection_lost(s, p);
    else
        packet_drop(s, p);
}

void network_forget_routes(sim *s) {
    for (uint32_t i = 0; i < s->place_count; i++) {
        sim_give(s, s->places[i].distance, s->place_count * sizeof *s->places[i].distance);
        s->places[i].distance = NULL;
    }
}
