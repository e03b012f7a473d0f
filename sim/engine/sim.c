/* Building a network, running it, and reading what came of it. */
#include "engine/sim.h"
#include "engine/state.h"

#include <stdlib.h>
#include <string.h>

#define NODES_MAX 65000 /* distances are 16 bits wide */

sim *sim_new(uint64_t seed) {
    sim *s = calloc(1, sizeof *s);
    if (s)
        s->random = seed * 2 + UINT64_C(88172645463325253);
    return s;
}

void sim_free(sim *s) {
    if (!s)
        return;
    routes_free(s);
    for (uint32_t i = 0; i < s->host_count; i++) {
        if (s->hosts[i].engine)
            s->hosts[i].engine->ops->free(s->hosts[i].engine);
        free(s->hosts[i].losses);
    }
    for (uint32_t i = 0; i < s->link_count; i++) {
        flights_free(s, &s->links[i].air);
        flights_free(s, &s->links[i].waiting[0]);
        flights_free(s, &s->links[i].waiting[1]);
    }
    for (uint32_t i = 0; i < s->place_count; i++)
        free(s->places[i].links);
    for (uint32_t i = 0; i < s->connection_slots; i++) {
        if (s->connections[i]) {
            flights_free(s, &s->connections[i]->early);
            free(s->connections[i]->missing);
        }
        free(s->connections[i]);
    }
    forwardings_free(s);
    for (uint32_t i = 0; i < s->event_count; i++)
        if (s->events_due[i].packet)
            packet_drop(s, s->events_due[i].packet);
    packets_free(s);
    sim_trace(s, NULL);
    calendar_free(&s->calendar);
    free(s->connections);
    free(s->events_due);
    free(s->flows);
    free(s->links);
    free(s->hosts);
    free(s->places);
    free(s->notes);
    free(s);
}

const char *sim_error(const sim *s) {
    return s->error;
}

static bool reserve_sources(sim *s) {
    uint32_t most = s->link_count > s->host_count ? s->link_count : s->host_count;
    return calendar_reserve(&s->calendar, 2 * most) || sim_fail(s, "no memory for more nodes and links");
}

static uint32_t add_place(sim *s) {
    if (s->place_count == NODES_MAX) {
        sim_fail(s, "a network has %u nodes at most", NODES_MAX);
        return SIM_ERROR;
    }
    uint64_t capacity = s->place_capacity;
    routes_forget(s);
    s->places = sim_grow(s, s->places, s->place_count, &capacity, sizeof *s->places);
    s->place_capacity = (uint32_t)capacity;
    return s->place_count++;
}

uint32_t sim_add_switch(sim *s) {
    return add_place(s);
}

uint32_t sim_add_server(sim *s) {
    uint32_t at = add_place(s);
    if (at == SIM_ERROR)
        return SIM_ERROR;
    uint64_t capacity = s->host_capacity;
    s->hosts = sim_grow(s, s->hosts, s->host_count, &capacity, sizeof *s->hosts);
    s->host_capacity = (uint32_t)capacity;
    s->places[at].host = true;
    s->places[at].host_index = s->host_count;
    s->hosts[s->host_count++] = (host){.place = at};
    return reserve_sources(s) ? at : SIM_ERROR;
}

uint32_t sim_add_host(sim *s, const sim_host_params *params) {
    uint32_t at = sim_add_server(s);
    return at != SIM_ERROR && sim_use_node(s, at, params) ? at : SIM_ERROR;
}

void sim_set_rack(sim *s, uint32_t node, uint32_t rack) {
    if (node < s->place_count)
        s->places[node].rack = rack & 0xffff;
}

uint32_t sim_link_count(const sim *s) {
    return s->link_count;
}

uint32_t sim_link_between(const sim *s, uint32_t from, uint32_t to) {
    for (uint32_t i = 0; from < s->place_count && i < s->places[from].link_count; i++)
        if (s->links[s->places[from].links[i]].to == to)
            return s->places[from].links[i];
    return SIM_ERROR;
}

uint32_t sim_add_link(sim *s, uint32_t from, uint32_t to, const sim_link_params *params) {
    if (from >= s->place_count || to >= s->place_count || from == to || sim_link_between(s, from, to) != SIM_ERROR) {
        sim_fail(s, "no link can be from node %u to node %u: no such node, or one is there already", from, to);
        return SIM_ERROR;
    }
    if (params->rate_bps < 1 || params->delay_ns < 0 || params->classes < 1 || params->classes > 2) {
        sim_fail(s, "a link has a rate of 1 bit/s or more, no negative delay, and 1 or 2 classes");
        return SIM_ERROR;
    }
    uint64_t capacity = s->link_capacity;
    s->links = sim_grow(s, s->links, s->link_count, &capacity, sizeof *s->links);
    s->link_capacity = (uint32_t)capacity;
    int64_t byte_ns = INT64_C(8000000000) % params->rate_bps ? 0 : INT64_C(8000000000) / params->rate_bps;
    s->links[s->link_count] = (link){.from = from,
                                     .to = to,
                                     .byte_ns = byte_ns <= UINT16_MAX ? (uint16_t)byte_ns : 0,
                                     .classes = params->classes > 1,
                                     .delay_ns = params->delay_ns,
                                     .queue_bytes = params->queue_bytes,
                                     .rate_bps = params->rate_bps,
                                     .up = true,
                                     .reverse = sim_link_between(s, to, from)};
    if (s->links[s->link_count].reverse != SIM_NONE)
        s->links[s->links[s->link_count].reverse].reverse = s->link_count;
    place *p = &s->places[from];
    capacity = p->link_capacity;
    p->links = sim_grow(s, p->links, p->link_count, &capacity, sizeof *p->links);
    p->link_capacity = (uint32_t)capacity;
    p->links[p->link_count++] = s->link_count++;
    routes_forget(s);
    return reserve_sources(s) ? s->link_count - 1 : SIM_ERROR;
}

static link *link_of(sim *s, uint32_t index) {
    if (index < s->link_count)
        return &s->links[index];
    sim_fail(s, "there is no link %u", index);
    return NULL;
}

bool sim_set_loss(sim *s, uint32_t index, uint32_t model, double p, double burst) {
    link *l = link_of(s, index);
    if (!l)
        return false;
    if (model > SIM_LOSS_MARKOV || !(p >= 0 && p < 1) || !(burst >= 1 || model <= SIM_LOSS_BERNOULLI))
        return sim_fail(s, "losses have a share p in [0, 1) and runs of 1 packet or more");
    l->loss = (loss_state){.model = model, .p = p, .burst = burst};
    l->loss.leave_bad = model >= SIM_LOSS_GILBERT ? 1 / burst : 0;
    l->loss.leave_good = model == SIM_LOSS_GILBERT ? p / (1 - p) / burst : l->loss.leave_bad;
    l->loss.bad = model == SIM_LOSS_MARKOV && sim_random(s) < p;
    return true;
}

bool sim_set_loss_pattern(sim *s, uint32_t node, const char *server, uint64_t seed, double p, uint32_t run) {
    if (node >= s->place_count || !s->places[node].host)
        return sim_fail(s, "node %u is no host", node);
    if (!(p >= 0 && p <= 1) || run < 1 || run > RS_LOSS_RUN_MAX)
        return sim_fail(s, "a pattern has a share p in [0, 1] and runs of 1 to %u packets", RS_LOSS_RUN_MAX);
    host *h = &s->hosts[s->places[node].host_index];
    if (!h->losses)
        h->losses = sim_take(s, sizeof *h->losses);
    *h->losses = rs_loss_pattern_of(rs_server_seed(seed, server), p, run);
    return true;
}

uint64_t sim_losses(const sim *s, uint32_t node) {
    if (node >= s->place_count || !s->places[node].host)
        return 0;
    const host *h = &s->hosts[s->places[node].host_index];
    return h->losses ? h->losses->lost : 0;
}

bool sim_set_up(sim *s, uint32_t index, bool up) {
    link *l = link_of(s, index);
    if (!l)
        return false;
    if (l->up && !up)
        link_cut(s, index);
    l->up = up;
    routes_forget(s);
    return true;
}

bool sim_set_dark(sim *s, uint32_t index, int64_t until, int64_t ringing_until, double ringing_loss) {
    link *l = link_of(s, index);
    if (!l)
        return false;
    l->dark_until = until;
    l->ringing_until = ringing_until;
    l->ringing_loss = ringing_loss;
    return true;
}

bool sim_crash(sim *s, uint32_t node) {
    if (node >= s->place_count || !s->places[node].host)
        return sim_fail(s, "node %u is no host", node);
    s->places[node].crashed = s->any_crashed = true;
    calendar_set(&s->calendar, source_of_host(s->places[node].host_index), RS_NEVER);
    routes_forget(s);
    return true;
}

bool sim_set_stalls(sim *s, uint32_t node, int64_t every, int64_t length) {
    if (node >= s->place_count || !s->places[node].host || every < 0 || length < 0)
        return sim_fail(s, "node %u is no host, or a time is below 0", node);
    host_stalls(s, &s->hosts[s->places[node].host_index], every, length);
    return true;
}

bool sim_set_group(sim *s, uint32_t node, uint32_t group, const uint32_t *links, uint32_t count, bool member) {
    if (node >= s->place_count || (member && !s->places[node].host))
        return sim_fail(s, "node %u is not there, or a switch, which cannot be a member", node);
    for (uint32_t i = 0; i < count; i++)
        if (links[i] >= s->link_count || s->links[links[i]].from != node)
            return sim_fail(s, "link %u does not leave node %u", links[i], node);
    forwarding_set(s, node, group, links, count, member);
    return true;
}

bool sim_set_route(sim *s, uint32_t from, uint32_t to, const uint32_t *links, uint32_t count) {
    return route_pin(s, from, to, links, count);
}

uint32_t sim_add_flow(sim *s, uint32_t from, uint32_t to, int64_t rate_bps, uint32_t packet_bytes, int64_t start,
                      int64_t stop) {
    if (from >= s->place_count || to >= s->place_count || rate_bps < 1 || packet_bytes < 64 || start < s->now) {
        sim_fail(s, "a flow has two nodes, a rate, packets of 64 bytes or more, and begins now or later");
        return SIM_ERROR;
    }
    uint64_t capacity = s->flow_capacity;
    s->flows = sim_grow(s, s->flows, s->flow_count, &capacity, sizeof *s->flows);
    s->flow_capacity = (uint32_t)capacity;
    s->flows[s->flow_count] = (flow){.from = from,
                                     .to = to,
                                     .gap_ns = rs_wire_time(packet_bytes, rate_bps),
                                     .wire_bytes = packet_bytes,
                                     .stop = stop};
    event_put(s, start, EVENT_FLOW, s->flow_count, 0, NULL);
    return s->flow_count++;
}

static host *host_of(const sim *s, uint32_t node) {
    return node < s->place_count && s->places[node].host ? &s->hosts[s->places[node].host_index] : NULL;
}

uint32_t sim_send(sim *s, uint32_t node, const sim_send_params *params) {
    host *h = host_of(s, node);
    uint32_t transfer = 0;
    if (!h || !h->engine || !h->engine->ops->send) {
        sim_fail(s, "node %u is no host that can send", node);
        return SIM_ERROR;
    }
    if (!h->engine->ops->send(h->engine, s->now, params, &transfer))
        return SIM_ERROR;
    host_pump(s, h);
    return transfer;
}

/* The next thing that happens; false if that is later than `until` or nothing is left. */
static bool step(sim *s, int64_t until) {
    uint32_t source = 0;
    rs_time other = s->event_count ? s->events_due[0].at : RS_NEVER;
    rs_time next = calendar_first(&s->calendar, other < until ? other : until, &source);
    rs_time at = next < other ? next : other;
    if (at == RS_NEVER || at > until)
        return false;
    if (at > s->now)
        s->now = at;
    s->stats.events++;
    links_fetch(s);
    if (other <= next)
        event_due(s);
    else if (source % 2)
        host_due(s, &s->hosts[source / 2]);
    else
        link_due(s, source / 2);
    return true;
}

bool sim_run(sim *s, int64_t until) {
    while (!s->failed && step(s, until))
        ;
    if (!s->failed && until != SIM_FOREVER && s->now < until)
        s->now = until;
    return !s->failed;
}

bool sim_run_until_noted(sim *s, uint32_t kind, uint64_t count, int64_t until) {
    if (kind > SIM_NOTE_LAST)
        return sim_fail(s, "there is no note of kind %u", kind);
    while (!s->failed && s->noted[kind] < count && step(s, until))
        ;
    return !s->failed;
}

bool sim_run_until_sent(sim *s, int64_t until) {
    return sim_run_until_noted(s, SIM_NOTE_SEND_DONE, s->noted[SIM_NOTE_SEND_DONE] + 1, until);
}

const sim_note *sim_notes(const sim *s, uint64_t *count) {
    *count = s->note_count;
    return s->notes;
}

bool sim_link_stats_get(const sim *s, uint32_t index, sim_link_stats *out) {
    if (index >= s->link_count)
        return false;
    *out = s->links[index].stats;
    return true;
}

bool sim_transfer_stats_get(const sim *s, uint32_t node, uint32_t transfer, sim_transfer_stats *out) {
    const host *h = host_of(s, node);
    return h && h->engine && h->engine->ops->stats && h->engine->ops->stats(h->engine, transfer, out);
}

uint32_t sim_receiving(const sim *s, uint32_t node, uint64_t object) {
    const host *h = host_of(s, node);
    return h && h->engine && h->engine->ops->receiving ? h->engine->ops->receiving(h->engine, object) : 0;
}

void sim_run_stats_get(const sim *s, sim_run_stats *out) {
    *out = s->stats;
    out->now = s->now;
}

bool sim_trace(sim *s, const char *path) {
    if (s->trace)
        fclose(s->trace);
    s->trace = path ? fopen(path, "we") : NULL;
    return !path || s->trace || sim_fail(s, "%s cannot be written", path);
}
