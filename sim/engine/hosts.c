/* Hosts: a protocol engine is fed with packets, time and answers, and what it puts out goes to the network. */
#include "engine/state.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define STUCK 64 /* turns at one time without the deadline moving: the engine hangs */

bool sim_host_use(sim *s, uint32_t node, sim_engine *engine) {
    bool is_host = node < s->place_count && s->places[node].host;
    engine->sim = s;
    engine->node = node;
    if (!is_host || s->hosts[s->places[node].host_index].engine) {
        engine->ops->free(engine);
        return sim_fail(s, is_host ? "host %u has an engine already" : "node %u is no host", node);
    }
    s->hosts[s->places[node].host_index].engine = engine;
    return true;
}

sim_engine *sim_host_engine(sim *s, uint32_t node, const sim_engine_ops *ops, const char *what) {
    bool is_host = node < s->place_count && s->places[node].host;
    sim_engine *engine = is_host ? s->hosts[s->places[node].host_index].engine : NULL;
    if (engine && engine->ops == ops)
        return engine;
    sim_fail(s, "node %u is no host with %s", node, what);
    return NULL;
}

rs_time sim_now(const sim *s) {
    return s->now;
}

void sim_host_pump(sim *s, uint32_t node) {
    host_pump(s, &s->hosts[s->places[node].host_index]);
}

void engine_note(sim_engine *engine, sim_note_kind kind, uint32_t peer, uint32_t transfer, uint64_t value) {
    sim *s = engine->sim;
    s->notes = sim_grow(s, s->notes, s->note_count, &s->note_capacity, sizeof *s->notes);
    s->notes[s->note_count++] = (sim_note){
        .at = s->now, .value = value, .host = engine->node, .peer = peer, .kind = kind, .transfer = transfer};
    s->noted[kind]++;
}

void engine_later(sim_engine *engine, rs_time at, uint32_t what) {
    event_put(engine->sim, at, EVENT_ENGINE, engine->node, what, NULL);
}

void engine_connect(sim_engine *engine, rs_peer peer) {
    connection_open(engine->sim, engine->node, peer);
}

uint32_t engine_rack(const sim *s, uint32_t node) {
    return node < s->place_count ? s->places[node].rack : 0;
}

void engine_fail(sim_engine *engine, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(engine->sim->error, sizeof engine->sim->error, format, arguments);
    va_end(arguments);
    engine->sim->failed = true;
}

static void *engine_alloc(void *context, size_t size) {
    sim *s = context;
    size_t *memory = calloc(1, sizeof(max_align_t) + size);
    if (!memory)
        return NULL;
    *memory = size;
    s->stats.engine_bytes += size;
    return (char *)memory + sizeof(max_align_t);
}

static void engine_release(void *context, void *memory) {
    sim *s = context;
    if (!memory)
        return;
    size_t *whole = (size_t *)(void *)((char *)memory - sizeof(max_align_t));
    s->stats.engine_bytes -= *whole;
    free(whole);
}

void *engine_take(sim *s, size_t bytes) {
    void *memory = engine_alloc(s, bytes);
    if (!memory) {
        fprintf(stderr, "rostrum sim: no memory for %zu bytes more\n", bytes);
        abort();
    }
    return memory;
}

void engine_give(sim *s, void *memory) {
    engine_release(s, memory);
}

rs_allocator engine_allocator(sim *s) {
    return (rs_allocator){.alloc = engine_alloc, .release = engine_release, .context = s};
}

static void put_out(sim *s, host *h, const rs_packet_out *out) {
    packet_kind kind = out->channel == RS_CH_GROUP           ? PACKET_GROUP
                       : out->channel == RS_CH_PEER_RELIABLE ? PACKET_CONTROL
                                                             : PACKET_DATAGRAM;
    packet *p = packet_new(s, kind, out->header_length);
    memcpy(p->header, out->header, out->header_length);
    p->from = h->place;
    p->payload_length = out->payload_length;
    p->payload_offset = out->payload_offset;
    p->wire_bytes = out->header_length + out->payload_length +
                    (kind == PACKET_CONTROL ? (uint32_t)SIM_TCP_OVERHEAD : (uint32_t)SIM_UDP_OVERHEAD);
    if (kind == PACKET_GROUP) {
        p->group = out->group;
        network_send(s, h->place, p);
        return;
    }
    p->to = out->peer;
    if (kind == PACKET_CONTROL)
        connection_send(s, h->place, out->peer, p);
    else
        network_send(s, h->place, p);
}

static void put_bytes(sim *s, host *h, const sim_bytes_out *out) {
    uint32_t length = 0;
    for (uint32_t i = 0; i < out->piece_count; i++)
        length += out->length[i];
    if (length > SIM_HEADER_MOST) {
        engine_fail(h->engine, "host %u sends %u bytes, more than the simulator carries", h->place, length);
        return;
    }
    packet *p = packet_new(s, out->channel == RS_CH_GROUP ? PACKET_GROUP : PACKET_DATAGRAM, length);
    uint8_t *to = p->header;
    for (uint32_t i = 0; i < out->piece_count; i++) {
        memcpy(to, out->bytes[i], out->length[i]);
        to += out->length[i];
    }
    p->from = h->place;
    p->group = out->group;
    if (p->kind != PACKET_GROUP)
        p->to = out->peer;
    p->payload_length = 0;
    p->payload_offset = 0;
    p->wire_bytes = length + (uint32_t)SIM_UDP_OVERHEAD;
    network_send(s, h->place, p);
}

static uint32_t index_of(const sim *s, const host *h) {
    return s->places[h->place].host_index;
}

static rs_time exponential(sim *s, rs_time mean) {
    return (rs_time)(-log(1 - sim_random(s)) * (double)mean);
}

void host_stalls(sim *s, host *h, rs_time every, rs_time length) {
    h->stall_every = every;
    h->stall_length = length;
    h->stall_at = s->now + exponential(s, every);
    h->awake_at = h->stall_at + exponential(s, length);
}

/* Its process stands still now. */
static bool stalled(sim *s, host *h) {
    while (h->stall_every && h->awake_at <= s->now) {
        h->stall_at = h->awake_at + exponential(s, h->stall_every);
        h->awake_at = h->stall_at + exponential(s, h->stall_length);
    }
    return h->stall_every && h->stall_at <= s->now;
}

static void set_clock(sim *s, host *h) {
    calendar_set(&s->calendar, source_of_host(index_of(s, h)), h->engine->ops->deadline(h->engine));
}

void host_pump(sim *s, host *h) {
    rs_packet_out out; /* large: engines fill what they use, nobody clears it */
    sim_bytes_out bytes;
    sim_engine *e = h->engine;
    if (s->places[h->place].crashed)
        return;
    for (bool any = true; any;) {
        any = false;
        for (; e->ops->work_event(e, s->now); any = true)
            ;
        for (; e->ops->poll_tx(e, s->now, &out); any = true)
            put_out(s, h, &out);
        for (; e->ops->poll_bytes && e->ops->poll_bytes(e, s->now, &bytes); any = true)
            put_bytes(s, h, &bytes);
    }
    set_clock(s, h);
}

void host_due(sim *s, host *h) {
    sim_engine *e = h->engine;
    if (stalled(s, h)) {
        calendar_set(&s->calendar, source_of_host(index_of(s, h)), h->awake_at);
        return;
    }
    for (int turns = 0; e->ops->deadline(e) <= s->now; turns++) {
        if (turns == STUCK) {
            engine_fail(e, "the engine of host %u does not move past its deadline", h->place);
            return;
        }
        e->ops->timeout(e, s->now);
        host_pump(s, h);
    }
    set_clock(s, h);
}

void host_receive(sim *s, host *h, packet *p) {
    static const rs_channel channels[] = {RS_CH_GROUP, RS_CH_PEER_DATAGRAM, RS_CH_PEER_RELIABLE};
    rs_packet_in in = {.channel = channels[p->kind],
                       .peer = p->kind == PACKET_GROUP ? RS_NO_PEER : p->from,
                       .group = p->group,
                       .header = p->header,
                       .header_length = p->header_length,
                       .payload_length = p->payload_length};
    if (!h->engine)
        return;
    if (stalled(s, h)) {
        p->references++;
        event_put(s, h->awake_at, EVENT_RECEIVE, index_of(s, h), (uint32_t)((h->awake_at - s->now) / 1000), p);
        return;
    }
    if (h->losses && p->kind == PACKET_GROUP && rs_loss_pattern_loses(h->losses, p->header, p->header_length))
        return;
    h->engine->ops->receive(h->engine, s->now, &in, p->payload_offset);
    host_pump(s, h);
}

void host_awake(sim *s, uint32_t index, uint32_t waited_us, packet *p) {
    host *h = &s->hosts[index];
    h->engine->waited = (rs_time)waited_us * 1000;
    if (!s->places[h->place].crashed)
        host_receive(s, h, p);
    h->engine->waited = 0;
    packet_drop(s, p);
}

void host_later(sim *s, host *h, uint32_t what) {
    h->engine->ops->later(h->engine, s->now, what);
    host_pump(s, h);
}
