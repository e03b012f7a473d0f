/* From node to node: groups by their forwarding entries, everything else along shortest paths. */
#include "engine/state.h"

#include <inttypes.h>
#include <stdio.h>

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

static void to_group(sim *s, uint32_t node, uint32_t from_link, packet *p) {
    const forwarding *f = forwarding_of(s, node, p->group);
    uint32_t back = from_link == SIM_NONE ? SIM_NONE : s->links[from_link].reverse;
    const uint32_t *links = f ? forwarding_links(f) : NULL;
    for (uint32_t i = 0; f && i < f->count; i++) {
        if (links[i] == back)
            continue;
        p->references++;
        link_put(s, links[i], p);
    }
    if (f && f->member && from_link != SIM_NONE)
        host_receive(s, &s->hosts[s->places[node].host_index], p);
    packet_drop(s, p);
}

void network_send(sim *s, uint32_t node, packet *p) {
    if (p->kind == PACKET_GROUP) {
        to_group(s, node, SIM_NONE, p);
        return;
    }
    uint32_t next = p->from == node ? route_begin(s, p) : route_next(s, node, p);
    if (next == SIM_NONE)
        network_lost(s, p);
    else
        link_put(s, next, p);
}

void network_deliver(sim *s, uint32_t node, uint32_t from_link, packet *p) {
    if (s->trace)
        trace(s, node, p);
    if (s->any_crashed && s->places[node].crashed) {
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
