/* Ways of packets to one host: shortest paths, shared among equal ones by a hash of source and destination. A pair's
 * way is found once, when its first packet goes; packets then carry their place on it. When the network changes, all
 * ways are found again, and what is under way goes on from where it is. */
#include "engine/state.h"

#include <string.h>

#define FAR UINT16_MAX
#define EQUAL_MAX 64

void routes_forget(sim *s) {
    s->route_epoch++;
    for (uint32_t i = 0; s->distances_known && i < s->place_count; i++) {
        sim_give(s, s->places[i].distance, s->places[i].distance_bytes);
        s->places[i].distance = NULL;
    }
    if (s->distances_known)
        sim_give(s, s->near, s->near_bytes);
    s->distances_known = false;
}

/* Who can send to whom, over links that are up and from nodes that are not down: for each node where its part of the
 * list begins, then the list. Links themselves are far too large to be searched. */
static void find_near(sim *s) {
    s->near_bytes = (s->place_count + 1 + s->link_count) * sizeof *s->near;
    s->near = sim_take(s, s->near_bytes);
    uint32_t end = s->place_count + 1;
    for (uint32_t node = 0; node < s->place_count; node++) {
        s->near[node] = end;
        for (uint32_t i = 0; i < s->places[node].link_count; i++) {
            const link *out = &s->links[s->places[node].links[i]];
            if (!s->places[out->to].crashed && out->reverse != SIM_NONE && s->links[out->reverse].up)
                s->near[end++] = out->to;
        }
    }
    s->near[s->place_count] = end;
    s->distances_known = true;
}

/* Distances of all nodes to `to`. */
static void find_distances(sim *s, uint32_t to) {
    uint32_t *queue = sim_take(s, s->place_count * sizeof *queue), head = 0, tail = 0;
    place *target = &s->places[to];
    if (!s->distances_known)
        find_near(s);
    target->distance_bytes = s->place_count * sizeof *target->distance;
    target->distance = sim_take(s, target->distance_bytes);
    memset(target->distance, 0xff, target->distance_bytes); /* FAR */
    target->distance[to] = 0;
    queue[tail++] = to;
    while (head < tail) {
        uint32_t node = queue[head++];
        for (uint32_t i = s->near[node]; i < s->near[node + 1]; i++) {
            if (target->distance[s->near[i]] != FAR)
                continue;
            target->distance[s->near[i]] = (uint16_t)(target->distance[node] + 1);
            queue[tail++] = s->near[i];
        }
    }
    sim_give(s, queue, s->place_count * sizeof *queue);
}

static uint32_t flow_hash(uint32_t from, uint32_t to, uint32_t node) {
    uint64_t key = (uint64_t)from << 32 | to;
    key = (key ^ ((uint64_t)node << 17)) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(key >> 33);
}

/* The link of the shortest path that this source and destination take; SIM_NONE if there is no way. */
static uint32_t next_link(sim *s, uint32_t node, uint32_t from, uint32_t to) {
    if (!s->places[to].distance)
        find_distances(s, to);
    const uint16_t *distance = s->places[to].distance;
    const place *here = &s->places[node];
    uint32_t equal[EQUAL_MAX], count = 0;
    for (uint32_t i = 0; i < here->link_count && count < EQUAL_MAX; i++) {
        const link *l = &s->links[here->links[i]];
        if (l->up && distance[l->to] != FAR && distance[l->to] + 1 == distance[node])
            equal[count++] = here->links[i];
    }
    return count ? equal[flow_hash(from, to, node) % count] : SIM_NONE;
}

static uint32_t slot_of(const sim *s, uint64_t key) {
    uint32_t mask = s->route_slots - 1;
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
    while (s->routes[at].key && s->routes[at].key != key)
        at = (at + 1) & mask;
    return at;
}

static void grow(sim *s) {
    uint32_t old = s->route_slots;
    route *slots = s->routes;
    s->route_slots = old ? old * 2 : 256;
    s->routes = sim_take(s, s->route_slots * sizeof *slots);
    for (uint32_t i = 0; i < old; i++)
        if (slots[i].key)
            s->routes[slot_of(s, slots[i].key)] = slots[i];
    sim_give(s, slots, old * sizeof *slots);
}

static route *between(sim *s, uint32_t from, uint32_t to) {
    if (s->route_count * 2 >= s->route_slots)
        grow(s);
    uint64_t key = ((uint64_t)from << 32 | to) + 1;
    route *r = &s->routes[slot_of(s, key)];
    s->route_count += r->key == 0;
    r->key = key;
    return r;
}

static void put_links(sim *s, route *r, const uint32_t *links, uint32_t count) {
    if (count > r->capacity) {
        sim_give(s, r->links, r->capacity * sizeof *links);
        r->links = sim_take(s, count * sizeof *links);
        r->capacity = count;
    }
    if (count)
        memcpy(r->links, links, count * sizeof *links);
    r->count = (uint16_t)count;
}

static void find(sim *s, route *r, uint32_t from, uint32_t to) {
    uint32_t links[HOPS_MAX], count = 0;
    for (uint32_t node = from; node != to; node = s->links[links[count++]].to) {
        uint32_t next = count < HOPS_MAX ? next_link(s, node, from, to) : SIM_NONE;
        if (next == SIM_NONE) {
            count = 0;
            break;
        }
        links[count] = next;
    }
    put_links(s, r, links, count);
    r->epoch = s->route_epoch;
}

bool route_pin(sim *s, uint32_t from, uint32_t to, const uint32_t *links, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (links[i] >= s->link_count || s->links[links[i]].from != (i ? s->links[links[i - 1]].to : from))
            return sim_fail(s, "the links of a way from node %u to node %u do not follow each other", from, to);
    if (from >= s->place_count || to >= s->place_count || (count && s->links[links[count - 1]].to != to) ||
        count > HOPS_MAX)
        return sim_fail(s, "no such way is possible from node %u to node %u", from, to);
    route *r = between(s, from, to);
    s->route_epoch++; /* nothing that is under way has its place on the old one */
    put_links(s, r, links, count);
    r->pinned = count > 0;
    return true;
}

uint32_t route_begin(sim *s, packet *p) {
    if (p->to == p->from)
        return SIM_NONE;
    route *r = between(s, p->from, p->to);
    if (r->epoch != s->route_epoch) {
        if (r->pinned)
            r->epoch = s->route_epoch;
        else
            find(s, r, p->from, p->to);
    }
    p->way = r->links;
    p->way_left = r->count;
    p->way_epoch = s->route_epoch;
    return p->way_left ? (p->way_left--, *p->way++) : SIM_NONE;
}

uint32_t route_next(sim *s, uint32_t node, packet *p) {
    if (p->way_epoch == s->route_epoch)
        return p->way_left ? (p->way_left--, *p->way++) : SIM_NONE;
    return next_link(s, node, p->from, p->to);
}

void routes_free(sim *s) {
    routes_forget(s);
    for (uint32_t i = 0; i < s->route_slots; i++)
        sim_give(s, s->routes[i].links, s->routes[i].capacity * sizeof *s->routes[i].links);
    sim_give(s, s->routes, s->route_slots * sizeof *s->routes);
}
