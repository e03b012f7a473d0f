#include "baselines/baseline.h"
#include "core/base/wire.h"
#include "core/rate/pacer.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

struct outgoing {
    bool group;
    uint32_t to;
};

static baseline *of(sim_engine *engine) {
    return (baseline *)(void *)engine;
}

static const baseline *of_const(const sim_engine *engine) {
    return (const baseline *)(const void *)engine;
}

/* xorshift64*, as the simulator's own chance (engine/memory.c). */
double baseline_uniform(baseline *b, double low, double width) {
    b->random ^= b->random >> 12;
    b->random ^= b->random << 25;
    b->random ^= b->random >> 27;
    double drawn = (double)((b->random * UINT64_C(0x2545f4914f6cdd1d)) >> 11) / (double)(UINT64_C(1) << 53);
    return low + width * drawn;
}

message baseline_message(const baseline *b, rs_time now, message_kind kind, uint32_t sn) {
    message m;
    memset(&m, 0, offsetof(message, list));
    m.kind = kind;
    m.origin = b->base.node;
    m.size = b->size;
    m.fragment_size = b->fragment_size;
    m.sent_at = now;
    m.sn = sn;
    m.highest = b->highest;
    return m;
}

static void put_out(baseline *b, const message *m, bool group, uint32_t to) {
    if (b->out_count == b->out_capacity) {
        uint32_t capacity = b->out_capacity ? 2 * b->out_capacity : 16;
        message *outbox = engine_take(b->base.sim, capacity * sizeof *outbox);
        struct outgoing *whither = engine_take(b->base.sim, capacity * sizeof *whither);
        for (uint32_t i = 0; i < b->out_count; i++) {
            outbox[i] = b->outbox[(b->out_head + i) % b->out_capacity];
            whither[i] = b->whither[(b->out_head + i) % b->out_capacity];
        }
        engine_give(b->base.sim, b->outbox);
        engine_give(b->base.sim, b->whither);
        b->outbox = outbox;
        b->whither = whither;
        b->out_head = 0;
        b->out_capacity = capacity;
    }
    uint32_t at = (b->out_head + b->out_count++) % b->out_capacity;
    b->outbox[at] = *m;
    b->whither[at] = (struct outgoing){group, to};
}

void baseline_to_group(baseline *b, const message *m, uint32_t group) {
    put_out(b, m, true, group);
}

void baseline_to_peer(baseline *b, const message *m, rs_peer peer) {
    put_out(b, m, false, peer);
}

static uint32_t payload_of(const baseline *b, const message *m) {
    if (m->kind != MESSAGE_DATA && m->kind != MESSAGE_REPAIR)
        return 0;
    uint64_t left = b->size - (uint64_t)m->sn * b->fragment_size;
    return left < b->fragment_size ? (uint32_t)left : b->fragment_size;
}

static void fill(const baseline *b, const message *m, rs_packet_out *out) {
    out->header_length = (uint16_t)(offsetof(message, list) + m->listed * sizeof m->list[0]);
    memcpy(out->header, m, out->header_length);
    out->payload_length = payload_of(b, m);
    out->payload_offset = out->payload_length ? (uint64_t)m->sn * b->fragment_size : 0;
}

/* The object's size is known: by sim_send, or by the first message about it. */
static void begin(baseline *b, rs_time now, uint64_t size, uint32_t fragment_size) {
    b->size = size;
    b->fragment_size = fragment_size;
    b->count = (uint32_t)((size + fragment_size - 1) / fragment_size);
    uint64_t *words = engine_take(b->base.sim, rs_seqset_words(b->count) * sizeof *words);
    rs_seqset_init(&b->here, b->count, words);
    if (rs_timers_reserve(&b->timers, &b->allocator, b->count * b->protocol->timers + 4) != RS_OK)
        engine_fail(&b->base, "no memory for the timers of host %u", b->base.node);
    b->protocol->begin(b, now);
}

void baseline_exists(baseline *b, rs_time now, uint32_t highest) {
    while (b->highest < highest) {
        uint32_t sn = b->highest++;
        if (rs_seqset_has(&b->here, sn))
            continue;
        b->stats.lost++;
        b->protocol->missing(b, now, sn);
    }
}

static void take(baseline *b, rs_time now, const message *m) {
    if (!rs_seqset_add(&b->here, m->sn)) {
        b->stats.duplicates++;
        return;
    }
    b->end = b->end > m->sn ? b->end : m->sn + 1;
    b->stats.received++;
    b->stats.repaired += m->kind == MESSAGE_REPAIR;
    b->protocol->got(b, now, m->sn);
    if (baseline_complete(b)) {
        b->stats.complete = true;
        engine_note(&b->base, SIM_NOTE_COMPLETE, m->origin, 1, 0);
    }
}

static void baseline_receive(sim_engine *engine, rs_time now, const rs_packet_in *packet, uint64_t payload_offset) {
    baseline *b = of(engine);
    message m;
    if (packet->header_length < offsetof(message, list) || packet->header_length > sizeof m) {
        engine_fail(engine, "host %u finds a packet malformed", engine->node);
        return;
    }
    memcpy(&m, packet->header, packet->header_length);
    if (!b->count)
        begin(b, now, m.size, m.fragment_size);
    /* What its source sends comes in order, so it tells of gaps; others may be ahead of what is still on its way. */
    if (m.kind == MESSAGE_DATA || m.kind == MESSAGE_SESSION)
        baseline_exists(b, now, m.kind == MESSAGE_DATA ? m.sn : m.highest);
    bool payload = m.kind == MESSAGE_DATA || m.kind == MESSAGE_REPAIR;
    if (payload && payload_offset != (uint64_t)m.sn * b->fragment_size)
        engine_fail(engine, "host %u finds a fragment at the wrong place", engine->node);
    if (payload)
        take(b, now, &m);
    if (m.kind == MESSAGE_DATA)
        baseline_exists(b, now, m.sn + 1);
    b->stats.requests_received += m.kind == MESSAGE_REQUEST || m.kind == MESSAGE_STATUS;
    b->protocol->heard(b, now, &m);
}

static void baseline_timeout(sim_engine *engine, rs_time now) {
    baseline *b = of(engine);
    for (rs_timer *t; (t = rs_timers_first(&b->timers)) && t->due <= now;) {
        rs_timer_set(&b->timers, t, RS_NEVER);
        b->protocol->timer(b, now, t);
    }
}

static bool sending(const baseline *b) {
    return b->sender && b->next < b->count;
}

static rs_time baseline_deadline(const sim_engine *engine) {
    const baseline *b = of_const(engine);
    const rs_timer *first = rs_timers_first(&b->timers);
    rs_time due = first ? first->due : RS_NEVER;
    return sending(b) && b->next_at < due ? b->next_at : due;
}

static bool new_data(baseline *b, rs_time now, rs_packet_out *out) {
    if (!sending(b) || b->next_at > now)
        return false;
    uint32_t sn = b->next++;
    message m = baseline_message(b, now, MESSAGE_DATA, sn);
    m.highest = sn + 1;
    out->channel = RS_CH_GROUP;
    out->group = b->params.group;
    fill(b, &m, out);
    b->highest = b->end = sn + 1;
    b->stats.packets_sent++;
    rs_seqset_add(&b->here, sn);
    b->protocol->got(b, now, sn);
    uint32_t bytes = out->header_length + out->payload_length + RS_WIRE_OVERHEAD;
    b->next_at = (b->next_at > now ? b->next_at : now) + rs_wire_time(bytes, b->params.rate_bps);
    if (b->next == b->count)
        b->protocol->sent_all(b, now);
    return true;
}

static bool baseline_poll_tx(sim_engine *engine, rs_time now, rs_packet_out *out) {
    baseline *b = of(engine);
    if (!b->out_count)
        return new_data(b, now, out);
    const message *m = &b->outbox[b->out_head];
    const struct outgoing *whither = &b->whither[b->out_head];
    out->channel = whither->group ? RS_CH_GROUP : RS_CH_PEER_DATAGRAM;
    out->group = whither->group ? whither->to : RS_NO_GROUP;
    out->peer = whither->group ? RS_NO_PEER : whither->to;
    fill(b, m, out);
    if (m->kind == MESSAGE_REPAIR)
        *(whither->group ? &b->stats.repairs_multicast : &b->stats.repairs_unicast) += 1;
    b->stats.requests_sent += m->kind == MESSAGE_REQUEST || m->kind == MESSAGE_STATUS;
    b->stats.reports_sent += m->kind == MESSAGE_STATUS;
    b->out_head = (b->out_head + 1) % b->out_capacity;
    b->out_count--;
    return true;
}

static bool baseline_work_event(sim_engine *engine, rs_time now) {
    (void)engine;
    (void)now;
    return false;
}

static bool baseline_send(sim_engine *engine, rs_time now, const sim_send_params *params, uint32_t *transfer) {
    baseline *b = of(engine);
    if (b->count || params->size == 0 || b->params.rate_bps < 1)
        return sim_fail(engine->sim, "host %u sends one object, not empty, at a rate of 1 bit/s or more", engine->node);
    b->sender = true;
    b->next_at = now;
    begin(b, now, params->size, b->params.fragment_size);
    *transfer = 1;
    return true;
}

static void baseline_free(sim_engine *engine) {
    baseline *b = of(engine);
    sim *s = engine->sim;
    b->protocol->free(b);
    rs_timers_free(&b->timers, &b->allocator);
    engine_give(s, b->here.words);
    engine_give(s, b->outbox);
    engine_give(s, b->whither);
    engine_give(s, (void *)(uintptr_t)b->params.children);
    engine_give(s, b);
}

static const sim_engine_ops BASELINE = {.free = baseline_free,
                                        .receive = baseline_receive,
                                        .timeout = baseline_timeout,
                                        .deadline = baseline_deadline,
                                        .poll_tx = baseline_poll_tx,
                                        .work_event = baseline_work_event,
                                        .send = baseline_send};

static baseline_child *copied(sim *s, const baseline_child *children, uint32_t count) {
    baseline_child *copy = engine_take(s, count * sizeof *copy);
    if (count)
        memcpy(copy, children, count * sizeof *copy);
    return copy;
}

static void fill_defaults(baseline_params *p) {
    if (p->c1 + p->c2 + p->d1 + p->d2 == 0) {
        p->c1 = p->c2 = 2;
        p->d1 = p->d2 = p->members > 10 ? log10(p->members) : 1;
    }
    p->fragment_size = p->fragment_size ? p->fragment_size : 1024;
    p->backoff_limit = p->backoff_limit ? p->backoff_limit : 5;
    int64_t *const times[] = {&p->session_ns, &p->distance_ns,  &p->status_ns,        &p->collect_ns,
                              &p->gap_ns,     &p->heartbeat_ns, &p->heartbeat_most_ns};
    static const int64_t defaults[] = {1000000000, 100000, 250000, 30000, 10000, 100000, 1000000000};
    for (int i = 0; i < 7; i++)
        *times[i] = *times[i] ? *times[i] : defaults[i];
}

bool baseline_use(sim *s, uint32_t node, const baseline_params *params) {
    static const protocol *const protocols[] = {NULL, &SRM, &RMTP, &LBRM, &TMTP};
    if (params->protocol < BASELINE_SRM || params->protocol > BASELINE_TMTP || params->child_count > BASELINE_CHILDREN)
        return sim_fail(s, "there is no such protocol, or a host has more than %d children", BASELINE_CHILDREN);
    baseline *b = engine_take(s, sizeof *b);
    b->base = (sim_engine){.ops = &BASELINE, .sim = s};
    b->protocol = protocols[params->protocol];
    b->params = *params;
    b->params.children = copied(s, params->children, params->child_count);
    fill_defaults(&b->params);
    b->allocator = engine_allocator(s);
    b->random = params->seed * 2 + UINT64_C(88172645463325253);
    return sim_host_use(s, node, &b->base);
}

bool baseline_stats_get(sim *s, uint32_t node, baseline_stats *out) {
    sim_engine *engine = sim_host_engine(s, node, &BASELINE, "a baseline protocol");
    if (engine)
        *out = of(engine)->stats;
    return engine != NULL;
}
