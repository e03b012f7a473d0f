#include "messages/messages.h"
#include "baselines/srm_groups.h"
#include "core/groups/engine.h"
#include "core/ricochet/options.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define VIA_GIVEN_UP 3
#define INCARNATION 1u            /* of every host: none is restarted */
#define SECOND_CHANNEL (1u << 24) /* added to the number of a group */
#define REGION_CHANNEL (1u << 25) /* added to the number of a region */
#define TELL UINT32_MAX           /* what engine_later is for: to publish, */
#define WORK (UINT32_MAX - 1)     /* or to go on, since the processor is free again */
#define KIND_TOKEN 17u            /* of QSM (core/qsm/wire.h) */
#define UNICAST_TURN 1u
#define MESSAGES_TURN 16u /* messages that the application is given before a datagram is read: as of an agent's turns */
#define PUBLISH_TURN 16u  /* datagrams and messages taken, and then the application may publish */

/* Packets as their publisher numbered them: when each was published. */
typedef struct {
    uint64_t key; /* host, group, + 1; 0 = none */
    rs_time *packets;
    uint32_t count, capacity;
} stream;

typedef struct {
    rs_messages_view view; /* without what follows */
    char protocol[32], options[RS_GROUP_OPTIONS_TEXT];
    uint32_t *members;
    bool tell_given_up;
    uint32_t *regions; /* as rs_messages_region has them */
    uint32_t region_count;
} group;

typedef struct {
    rs_messages_region view; /* without what follows */
    char protocol[32], options[RS_GROUP_OPTIONS_TEXT];
    uint32_t *nodes;
} region;

/* A datagram that waits for the processor. */
typedef struct waiting {
    struct waiting *next;
    rs_peer from;
    uint32_t length;
    uint8_t bytes[];
} waiting;

typedef struct message_engine message_engine;

struct sim_groups {
    sim *sim;
    group *groups;
    uint32_t group_count, group_capacity;
    region *regions;
    uint32_t region_count, region_capacity;
    message_engine **engines;
    uint32_t engine_count, engine_capacity;
    stream *streams; /* open hash */
    uint64_t stream_count, stream_slots;
    sim_recovery *recoveries;
    uint64_t recovery_count, recovery_capacity;
    sim_messages_stats stats;
    rs_time count_from, count_to;
};

struct message_engine {
    sim_engine base;
    sim_groups *all;
    rs_messages *node;
    rs_time give_up_plain;
    uint64_t random;
    uint32_t *own; /* groups subscribed to */
    uint32_t own_count, own_capacity;
    uint8_t *knows; /* bit: has a view of the group */
    uint32_t knows_groups;
    uint8_t *knows_regions; /* by number less one: it was looked at */
    uint32_t knows_regions_count;
    /* publishing */
    bool own_groups;
    double gap_ns;
    rs_time stop;
    uint8_t *message;
    uint32_t message_bytes;
    /* publishing to all groups in turn */
    bool floods;
    rs_time flood_from;
    uint32_t flood_next;
    /* the processor */
    sim_host_costs costs;
    rs_time busy_until; /* It is busy until then, */
    bool wakes;         /* and engine_later tells when it is not any more. */
    rs_time frozen_from, frozen_to;
    waiting *first, **last;   /* of its multicast socket, */
    waiting *one, **last_one; /* and of its unicast socket, which is served first: control is little */
    uint32_t waiting_bytes;
    uint32_t given; /* messages, to the application since a datagram was read */
    uint32_t taken; /* So many of both, since the application could publish, */
    uint32_t ones;  /* ... and of its unicast socket, since one of them. */
    uint32_t *warm; /* by group: which of the messages was its last one, of all that the host had */
    uint32_t warm_count, messages;
};

static message_engine *of(sim_engine *engine) {
    return (message_engine *)(void *)engine;
}

static void *grow(sim *s, void *array, uint64_t count, uint32_t *capacity, size_t each) {
    if (count < *capacity)
        return array;
    uint32_t more = *capacity ? 2 * *capacity : 8;
    void *grown = engine_take(s, more * each);
    if (count)
        memcpy(grown, array, count * each);
    engine_give(s, array);
    *capacity = more;
    return grown;
}

/* xorshift64*, as the simulator's own chance (engine/memory.c). */
static double uniform(message_engine *e) {
    e->random ^= e->random >> 12;
    e->random ^= e->random << 25;
    e->random ^= e->random >> 27;
    return (double)((e->random * UINT64_C(0x2545f4914f6cdd1d)) >> 11) / (double)(UINT64_C(1) << 53);
}

/* the processor */

static rs_time frozen_until(const message_engine *e, rs_time now) {
    return now >= e->frozen_from && now < e->frozen_to ? e->frozen_to : 0;
}

static bool is_busy(message_engine *e, rs_time now) {
    rs_time until = frozen_until(e, now) > e->busy_until ? frozen_until(e, now) : e->busy_until;
    if (until <= now)
        return false;
    if (!e->wakes) {
        e->wakes = true;
        engine_later(&e->base, until, WORK);
    }
    return true;
}

static void spend(message_engine *e, rs_time now, int64_t ns) {
    e->busy_until = (e->busy_until > now ? e->busy_until : now) + ns;
}

/* A message of a group: its state may have left the caches for that of others. */
static void spend_message(message_engine *e, rs_time now, uint32_t number) {
    const sim_host_costs *costs = &e->costs;
    if (costs->message_ns == 0)
        return;
    if (number >= e->warm_count) {
        uint32_t count = 2 * number + 16;
        uint32_t *grown = engine_take(e->base.sim, count * sizeof *grown);
        if (e->warm_count)
            memcpy(grown, e->warm, e->warm_count * sizeof *grown);
        engine_give(e->base.sim, e->warm);
        e->warm = grown;
        e->warm_count = count;
    }
    bool cold = e->warm[number] == 0 || e->messages - e->warm[number] >= costs->warm_groups;
    e->warm[number] = ++e->messages;
    spend(e, now, costs->message_ns + (cold ? costs->cold_ns : 0));
}

/* streams: when was what published */

static uint64_t mixed(uint64_t key) {
    key = (key ^ key >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ key >> 27) * UINT64_C(0x94d049bb133111eb);
    return key ^ key >> 31;
}

static stream *stream_place(stream *slots, uint64_t slot_count, uint64_t key) {
    uint64_t at = mixed(key) & (slot_count - 1);
    while (slots[at].key && slots[at].key != key)
        at = (at + 1) & (slot_count - 1);
    return &slots[at];
}

static stream *stream_of(sim_groups *all, uint32_t host, uint32_t number) {
    uint64_t key = ((uint64_t)host << 32 | number) + 1;
    if (2 * all->stream_count >= all->stream_slots) {
        uint64_t slots = all->stream_slots ? 2 * all->stream_slots : 1024;
        stream *grown = engine_take(all->sim, slots * sizeof *grown);
        for (uint64_t i = 0; i < all->stream_slots; i++)
            if (all->streams[i].key)
                *stream_place(grown, slots, all->streams[i].key) = all->streams[i];
        engine_give(all->sim, all->streams);
        all->streams = grown;
        all->stream_slots = slots;
    }
    stream *found = stream_place(all->streams, all->stream_slots, key);
    if (!found->key) {
        found->key = key;
        all->stream_count++;
    }
    return found;
}

static void stream_put(sim_groups *all, uint32_t host, uint32_t number, uint64_t sn, rs_time now) {
    stream *x = stream_of(all, host, number);
    while (x->count < sn) {
        x->packets = grow(all->sim, x->packets, x->count, &x->capacity, sizeof *x->packets);
        x->packets[x->count++] = now;
    }
}

static const rs_time *stream_packet(sim_groups *all, uint32_t host, uint32_t number, uint64_t sn) {
    const stream *x = stream_of(all, host, number);
    return sn - 1 < x->count ? &x->packets[sn - 1] : NULL;
}

static bool counts(const sim_groups *all, rs_time at) {
    return at >= all->count_from && at < all->count_to;
}

/* the engine at a host */

static void engine_free(sim_engine *engine) {
    message_engine *e = of(engine);
    sim *s = engine->sim;
    rs_messages_free(e->node);
    engine_give(s, e->own);
    engine_give(s, e->knows);
    engine_give(s, e->knows_regions);
    engine_give(s, e->message);
    engine_give(s, e->warm);
    *e->last = e->one;
    for (waiting *w = e->first, *next; w; w = next) {
        next = w->next;
        engine_give(s, w);
    }
    engine_give(s, e);
}

static void take_in(message_engine *e, rs_time now, rs_peer from, const uint8_t *bytes, size_t length) {
    bool token = length > 3 && bytes[3] == KIND_TOKEN;
    if (e->costs.receive_ns)
        spend(e, now, e->costs.receive_ns + (token ? e->costs.token_ns : 0));
    if (!rs_messages_receive(e->node, now, from, bytes, length))
        engine_fail(&e->base, "host %u finds a packet malformed", e->base.node);
}

static void engine_receive(sim_engine *engine, rs_time now, const rs_packet_in *packet, uint64_t payload_offset) {
    message_engine *e = of(engine);
    uint32_t length = (uint32_t)packet->header_length;
    (void)payload_offset;
    if (!e->first && !e->one && !is_busy(e, now)) {
        take_in(e, now, packet->peer, packet->header, length);
        return;
    }
    if (e->waiting_bytes + length > e->costs.buffer_bytes) {
        e->all->stats.buffer_lost++;
        return;
    }
    waiting *w = engine_take(engine->sim, sizeof *w + length);
    w->from = packet->peer;
    w->length = length;
    memcpy(w->bytes, packet->header, length);
    waiting ***last = packet->channel == RS_CH_GROUP ? &e->last : &e->last_one;
    **last = w;
    *last = &w->next;
    e->waiting_bytes += length;
}

static void engine_timeout(sim_engine *engine, rs_time now) {
    rs_messages_timeout(of(engine)->node, now);
}

/* Timers wait until the processor is free; then they and datagrams take turns (QSM Sec. 2.5). */
static rs_time engine_deadline(const sim_engine *engine) {
    const message_engine *e = (const message_engine *)(const void *)engine;
    rs_time due = rs_messages_deadline(e->node), frozen = frozen_until(e, due);
    if (e->wakes && due <= e->busy_until)
        due = e->busy_until + 1;
    return frozen > due && due != RS_NEVER ? frozen : due;
}

static bool engine_poll_tx(sim_engine *engine, rs_time now, rs_packet_out *out) {
    (void)engine;
    (void)now;
    (void)out;
    return false;
}

static bool engine_poll_bytes(sim_engine *engine, rs_time now, sim_bytes_out *out) {
    rs_messages_out packet;
    /* What comes of a datagram or a timer goes out with it: its time is spent after. */
    if (frozen_until(of(engine), now) || !rs_messages_poll_tx(of(engine)->node, now, &packet))
        return false;
    if (of(engine)->costs.send_ns)
        spend(of(engine), now, of(engine)->costs.send_ns);
    *out = (sim_bytes_out){
        .channel = packet.channel, .peer = packet.peer, .group = packet.group, .piece_count = packet.piece_count};
    for (uint32_t i = 0; i < packet.piece_count; i++) {
        out->bytes[i] = packet.piece[i].bytes;
        out->length[i] = packet.piece[i].length;
    }
    return true;
}

static void recovered(message_engine *e, rs_time late, rs_time known, uint32_t via) {
    sim_groups *all = e->all;
    if (all->recovery_count == all->recovery_capacity) {
        uint64_t capacity = all->recovery_capacity ? 2 * all->recovery_capacity : 4096;
        sim_recovery *grown = engine_take(all->sim, capacity * sizeof *grown);
        if (all->recovery_count)
            memcpy(grown, all->recoveries, all->recovery_count * sizeof *grown);
        engine_give(all->sim, all->recoveries);
        all->recoveries = grown;
        all->recovery_capacity = capacity;
    }
    all->recoveries[all->recovery_count++] = (sim_recovery){late, known, e->base.node, via};
}

static void delivered(message_engine *e, rs_time now, const rs_messages_event *event) {
    sim_messages_stats *stats = &e->all->stats;
    const rs_time *at = stream_packet(e->all, event->sender, event->group, event->sn);
    if (!at || event->length < sizeof *at || memcmp(event->bytes, at, sizeof *at)) {
        engine_fail(&e->base, "host %u is given a message that nobody published", e->base.node);
        return;
    }
    if (!counts(e->all, *at))
        return;
    uint64_t *counts[] = {&stats->by_data, &stats->by_repair, &stats->by_retransmit};
    ++*counts[event->via];
    if (event->via != RS_VIA_DATA)
        recovered(e, now - *at, event->late, event->via);
}

static void given_up(message_engine *e, rs_time now, const rs_messages_event *event) {
    const group *g = &e->all->groups[event->group - 1];
    for (uint64_t sn = event->sn; sn < event->sn + event->count; sn++) {
        const rs_time *at = stream_packet(e->all, event->sender, event->group, sn);
        if (!at || !counts(e->all, *at))
            continue;
        e->all->stats.lost++;
        if (g->tell_given_up && event->reason == RS_LOST_NETWORK)
            recovered(e, now - e->give_up_plain - *at, 0, VIA_GIVEN_UP);
    }
}

static bool flood(message_engine *e, rs_time now);

static void take_waiting(message_engine *e, rs_time now) {
    bool one = e->one && (e->ones > 0 || !e->first);
    waiting *w = one ? e->one : e->first;
    if (one) {
        e->one = w->next;
        e->last_one = e->one ? e->last_one : &e->one;
    } else {
        e->first = w->next;
        e->last = e->first ? e->last : &e->first;
    }
    e->waiting_bytes -= w->length;
    take_in(e, now, w->from, w->bytes, w->length);
    engine_give(e->base.sim, w);
}

/* What the processor does next: a few datagrams of the unicast socket; a multicast datagram, and some messages for the
 * application; publishing, if there is nothing else or its turn has come. Messages that waited for one that was missing
 * come many at once: nothing else waits for all of them, and they do not wait until nothing else comes. */
static bool engine_work_event(sim_engine *engine, rs_time now) {
    message_engine *e = of(engine);
    rs_messages_event event;
    if (is_busy(e, now))
        return false;
    if (e->one && e->ones++ < UNICAST_TURN) {
        take_waiting(e, now);
        return true;
    }
    e->ones = 0;
    if (e->floods && ++e->taken >= PUBLISH_TURN) {
        e->taken = 0;
        if (flood(e, now))
            return true;
    }
    if ((e->first && e->given >= MESSAGES_TURN) || !rs_messages_poll_event(e->node, &event)) {
        e->given = 0;
        if (!e->first && !e->one)
            return e->floods && flood(e, now);
        take_waiting(e, now);
        return true;
    }
    e->given++;
    if (event.kind == RS_MESSAGES_DELIVER) {
        spend_message(e, now, event.group);
        delivered(e, now, &event);
    } else if (event.kind == RS_MESSAGES_LOST)
        given_up(e, now, &event);
    return true;
}

/* publishing */

/* Of a region, by its number. */
static bool tell_region(message_engine *e, rs_time now, uint32_t number) {
    const region *r = &e->all->regions[number - 1];
    rs_messages_region view = r->view;
    view.protocol = r->protocol;
    view.options = r->options;
    view.nodes = r->nodes;
    return rs_messages_set_region(e->node, now, &view) == RS_OK ||
           sim_fail(e->base.sim, "host %u refuses region %u: %s", e->base.node, number, rs_messages_refusal(e->node));
}

static bool is_in_region(const message_engine *e, uint32_t number) {
    const region *r = &e->all->regions[number - 1];
    for (uint32_t i = 0; i < r->view.node_count; i++)
        if (r->nodes[i] == e->base.node)
            return true;
    return false;
}

/* Those that this host is not in, unless a group before this one had them, too. */
static bool tell_regions(message_engine *e, rs_time now, const group *g) {
    for (uint32_t i = 0; i < g->region_count; i++) {
        uint32_t number = g->regions[i];
        if (number > e->knows_regions_count) {
            uint8_t *grown = engine_take(e->base.sim, number);
            if (e->knows_regions_count)
                memcpy(grown, e->knows_regions, e->knows_regions_count);
            engine_give(e->base.sim, e->knows_regions);
            e->knows_regions = grown;
            e->knows_regions_count = number;
        }
        if (e->knows_regions[number - 1])
            continue;
        e->knows_regions[number - 1] = 1;
        if (!is_in_region(e, number) && !tell_region(e, now, number))
            return false;
    }
    return true;
}

static bool tell(message_engine *e, rs_time now, uint32_t number) {
    uint32_t at = number - 1;
    if (at >= e->knows_groups) {
        uint32_t groups = e->all->group_count;
        uint8_t *grown = engine_take(e->base.sim, groups / 8 + 1);
        if (e->knows_groups)
            memcpy(grown, e->knows, e->knows_groups / 8 + 1);
        engine_give(e->base.sim, e->knows);
        e->knows = grown;
        e->knows_groups = groups;
    }
    if (e->knows[at / 8] >> at % 8 & 1)
        return true;
    const group *g = &e->all->groups[at];
    const rs_group second = number + SECOND_CHANNEL;
    rs_messages_view view = g->view;
    view.protocol = g->protocol;
    view.options = g->options;
    view.more_channels = &second;
    view.more_count = 1;
    view.regions = g->regions;
    view.region_count = g->region_count;
    if (!tell_regions(e, now, g))
        return false;
    if (rs_messages_set_view(e->node, now, &view) != RS_OK)
        return sim_fail(e->base.sim, "host %u refuses group %u: %s", e->base.node, number,
                        rs_messages_refusal(e->node));
    e->knows[at / 8] = (uint8_t)(e->knows[at / 8] | 1u << at % 8);
    return true;
}

static void wait_for_next(message_engine *e, rs_time now) {
    rs_time next = now + 1 + (rs_time)(-log(1.0 - uniform(e)) * e->gap_ns);
    if (next < e->stop)
        engine_later(&e->base, next, TELL);
}

static void publish(message_engine *e, rs_time now, uint32_t number) {
    sim_engine *engine = &e->base;
    sim_groups *all = e->all;
    uint64_t sn;
    if (!tell(e, now, number)) {
        engine_fail(engine, "%s", sim_error(engine->sim));
        return;
    }
    spend_message(e, now, number);
    memcpy(e->message, &now, sizeof now);
    rs_status status = rs_messages_publish(e->node, now, number, e->message, e->message_bytes, &sn);
    if (status != RS_OK) {
        engine_fail(engine, "host %u cannot publish: %s", engine->node, rs_strerror(status));
        return;
    }
    stream_put(all, engine->node, number, sn, now);
    if (!counts(all, now))
        return;
    const group *g = &all->groups[number - 1];
    bool member = false;
    for (uint32_t i = 0; i < g->view.member_count && !member; i++)
        member = g->members[i] == engine->node;
    all->stats.published++;
    all->stats.expected += g->view.member_count - member;
}

/* The next group's turn, if all that was published before is with the engine. */
static bool flood(message_engine *e, rs_time now) {
    if (now < e->flood_from || now >= e->stop || e->own_count == 0 || rs_messages_unsent(e->node) > 0)
        return false;
    publish(e, now, e->own[e->flood_next++ % e->own_count]);
    return true;
}

static void engine_publish(sim_engine *engine, rs_time now, uint32_t what) {
    message_engine *e = of(engine);
    uint32_t among = e->own_groups ? e->own_count : e->all->group_count;
    if (what == WORK) {
        e->wakes = false;
        if (!is_busy(e, now) && rs_messages_deadline(e->node) <= now)
            rs_messages_timeout(e->node, now);
    }
    if (what == WORK || e->floods)
        return;
    wait_for_next(e, now);
    if (!among)
        return;
    uint32_t drawn = (uint32_t)(uniform(e) * among);
    publish(e, now, e->own_groups ? e->own[drawn] : drawn + 1);
}

static const sim_engine_ops MESSAGES = {.free = engine_free,
                                        .receive = engine_receive,
                                        .timeout = engine_timeout,
                                        .deadline = engine_deadline,
                                        .poll_tx = engine_poll_tx,
                                        .poll_bytes = engine_poll_bytes,
                                        .work_event = engine_work_event,
                                        .later = engine_publish};

/* the surface */

sim_groups *sim_groups_new(sim *s) {
    sim_groups *all = engine_take(s, sizeof *all);
    all->sim = s;
    all->count_to = SIM_FOREVER;
    return all;
}

void sim_groups_free(sim_groups *all) {
    sim *s = all->sim;
    for (uint32_t i = 0; i < all->group_count; i++) {
        engine_give(s, all->groups[i].members);
        engine_give(s, all->groups[i].regions);
    }
    for (uint32_t i = 0; i < all->region_count; i++)
        engine_give(s, all->regions[i].nodes);
    engine_give(s, all->regions);
    for (uint64_t i = 0; i < all->stream_slots; i++)
        engine_give(s, all->streams[i].packets);
    engine_give(s, all->groups);
    engine_give(s, all->streams);
    engine_give(s, all->engines);
    engine_give(s, all->recoveries);
    engine_give(s, all);
}

bool sim_use_messages(sim_groups *all, uint32_t host, const sim_messages_params *params) {
    sim *s = all->sim;
    const rs_ricochet_config ricochet = {params->kept_repairs, params->repair_buffers, params->flush_ns};
    const rs_group_engine_config engine = {"ricochet", &ricochet};
    static const rs_group_engine *const more[] = {&rs_group_engine_srm};
    rs_messages_config config = {.self = host,
                                 .incarnation = INCARNATION,
                                 .seed = params->seed,
                                 .packet_bytes = params->packet_bytes,
                                 .receive_bytes = params->receive_bytes,
                                 .send_bytes = params->send_bytes,
                                 .max_groups = params->max_groups,
                                 .max_streams = params->max_streams,
                                 .max_missing = params->max_missing,
                                 .window_packets = params->window_packets,
                                 .nak_delay = params->nak_delay_ns,
                                 .nak_retry = params->nak_retry_ns,
                                 .give_up = params->give_up_ns,
                                 .give_up_plain = params->give_up_plain_ns,
                                 .heartbeat = params->heartbeat_ns,
                                 .heartbeats = params->heartbeats,
                                 .engines = &engine,
                                 .engine_count = 1,
                                 .more_engines = more,
                                 .more_engine_count = 1};
    rs_allocator allocator = engine_allocator(s);
    rs_messages *node = rs_messages_new(&config, &allocator);
    if (!node)
        return sim_fail(s, "no such node can be: its parameters are out of range, or out of memory");
    message_engine *e = engine_take(s, sizeof *e);
    e->base.ops = &MESSAGES;
    e->all = all;
    e->node = node;
    e->last = &e->first;
    e->last_one = &e->one;
    e->give_up_plain = params->give_up_plain_ns ? params->give_up_plain_ns : 200 * INT64_C(1000000);
    e->random = mixed(params->seed + UINT64_C(0x9e3779b97f4a7c15) * (host + 1)) | 1;
    if (!sim_host_use(s, host, &e->base))
        return false;
    all->engines = grow(s, all->engines, all->engine_count, &all->engine_capacity, sizeof(message_engine *));
    all->engines[all->engine_count++] = e;
    return true;
}

uint32_t sim_message_group(sim_groups *all, const sim_group_params *params, const uint32_t *members, uint32_t count) {
    sim *s = all->sim;
    sim_run_stats run;
    sim_run_stats_get(s, &run);
    uint32_t *copy = engine_take(s, 2 * count * sizeof *copy + 1); /* who, then in which incarnation */
    memcpy(copy, members, count * sizeof *copy);
    for (uint32_t i = 0; i < count; i++)
        copy[count + i] = INCARNATION;
    all->groups = grow(s, all->groups, all->group_count, &all->group_capacity, sizeof *all->groups);
    uint32_t number = all->group_count + 1;
    all->groups[all->group_count++] = (group){.members = copy,
                                              .view = {.group = number,
                                                       .version = 1,
                                                       .channel = number,
                                                       .members = copy,
                                                       .member_count = count,
                                                       .incarnations = copy + count,
                                                       .open = true,
                                                       .order = (rs_messages_order)params->order},
                                              .tell_given_up = params->tell_given_up,
                                              .region_count = params->region_count};
    group *made = &all->groups[all->group_count - 1];
    made->regions = engine_take(s, (params->region_count + 1u) * sizeof *made->regions);
    for (uint32_t i = 0; i < params->region_count; i++) {
        made->regions[i] = params->regions[i] - REGION_CHANNEL;
        if (params->regions[i] <= REGION_CHANNEL || made->regions[i] > all->region_count) {
            sim_fail(s, "there is no region %u", params->regions[i]);
            return SIM_ERROR;
        }
    }
    snprintf(made->protocol, sizeof made->protocol, "%s", params->protocol ? params->protocol : "plain");
    snprintf(made->options, sizeof made->options, "%s", params->options ? params->options : "");
    for (uint32_t i = 0; i < count; i++) {
        message_engine *e = of(sim_host_engine(s, copy[i], &MESSAGES, "message groups"));
        if (!e || !tell(e, run.now, number))
            return SIM_ERROR;
        e->own = grow(s, e->own, e->own_count, &e->own_capacity, sizeof *e->own);
        e->own[e->own_count++] = number;
        sim_host_pump(s, copy[i]);
    }
    return number;
}

uint32_t sim_message_region(sim_groups *all, const sim_group_params *params, const uint32_t *nodes, uint32_t count) {
    sim *s = all->sim;
    uint32_t *copy = engine_take(s, count * sizeof *copy + 1);
    memcpy(copy, nodes, count * sizeof *copy);
    all->regions = grow(s, all->regions, all->region_count, &all->region_capacity, sizeof *all->regions);
    uint32_t number = ++all->region_count;
    region *made = &all->regions[number - 1];
    *made = (region){
        .nodes = copy,
        .view = {
            .region = number, .version = 1, .channel = number + REGION_CHANNEL, .node_count = count, .open = true}};
    snprintf(made->protocol, sizeof made->protocol, "%s", params->protocol ? params->protocol : "plain");
    snprintf(made->options, sizeof made->options, "%s", params->options ? params->options : "");
    for (uint32_t i = 0; i < count; i++) {
        message_engine *e = of(sim_host_engine(s, nodes[i], &MESSAGES, "message groups"));
        if (!e || !tell_region(e, sim_now(s), number))
            return SIM_ERROR;
    }
    return number + REGION_CHANNEL;
}

bool sim_message_costs(sim_groups *all, uint32_t host, const sim_host_costs *costs) {
    message_engine *e = of(sim_host_engine(all->sim, host, &MESSAGES, "message groups"));
    if (e)
        e->costs = *costs;
    return e != NULL;
}

bool sim_publish_all(sim_groups *all, uint32_t host, uint32_t bytes, int64_t start, int64_t stop) {
    message_engine *e = of(sim_host_engine(all->sim, host, &MESSAGES, "message groups"));
    if (!e)
        return false;
    if (bytes < sizeof(rs_time))
        return sim_fail(all->sim, "messages have at least 8 bytes");
    engine_give(all->sim, e->message);
    e->message = engine_take(all->sim, bytes);
    e->message_bytes = bytes;
    e->floods = true;
    e->flood_from = start;
    e->stop = stop;
    engine_later(&e->base, start, TELL);
    return true;
}

bool sim_message_freeze(sim_groups *all, uint32_t host, int64_t from, int64_t to) {
    message_engine *e = of(sim_host_engine(all->sim, host, &MESSAGES, "message groups"));
    if (!e)
        return false;
    e->frozen_from = from;
    e->frozen_to = to;
    engine_later(&e->base, to, WORK);
    return true;
}

uint64_t sim_messages_count(const sim_groups *all, uint32_t host, const char *name, const char *kind) {
    const message_engine *e = of(sim_host_engine(all->sim, host, &MESSAGES, "message groups"));
    return e ? rs_messages_count(e->node, name, *kind ? kind : NULL) : 0;
}

bool sim_publish(sim_groups *all, uint32_t host, bool own_groups, double per_s, uint32_t bytes, int64_t start,
                 int64_t stop) {
    message_engine *e = of(sim_host_engine(all->sim, host, &MESSAGES, "message groups"));
    if (!e)
        return false;
    if (!(per_s > 0) || per_s > 1e8 || bytes < sizeof(rs_time))
        return sim_fail(all->sim, "messages have at least 8 bytes, and come more often than never");
    engine_give(all->sim, e->message);
    e->message = engine_take(all->sim, bytes);
    e->message_bytes = bytes;
    e->own_groups = own_groups;
    e->gap_ns = 1e9 / per_s;
    e->stop = stop;
    wait_for_next(e, start);
    return true;
}

void sim_count_between(sim_groups *all, int64_t from, int64_t to) {
    all->count_from = from;
    all->count_to = to;
}

void sim_messages_stats_get(const sim_groups *all, sim_messages_stats *out) {
    *out = all->stats;
    for (uint32_t i = 0; i < all->engine_count; i++) {
        rs_messages_stats one;
        const rs_messages *node = all->engines[i]->node;
        rs_messages_stats_get(node, &one);
        out->discovered += one.discovered;
        out->data_sent += one.data_sent;
        out->repairs_sent += rs_messages_count(node, "repairs", "sent");
        out->naks_sent += one.naks_sent;
        out->retransmits_sent += one.retransmits_sent;
        out->heartbeats_sent += one.heartbeats_sent;
        out->data_received += one.data_received;
        out->repairs_received += rs_messages_count(node, "repairs", "received");
        out->repairs_used += rs_messages_count(node, "repairs", "used");
        out->repairs_useless += rs_messages_count(node, "repairs", "useless");
        out->repairs_combined += rs_messages_count(node, "repairs", "combined");
        out->xors += rs_messages_count(node, "xors", NULL);
        out->bad += one.bad;
        out->refused += one.refused;
        uint64_t regions = rs_messages_count(node, "regions", NULL), bins = rs_messages_count(node, "bins", NULL);
        out->regions_most = regions > out->regions_most ? regions : out->regions_most;
        out->bins_most = bins > out->bins_most ? bins : out->bins_most;
    }
}

const sim_recovery *sim_recoveries(const sim_groups *all, uint64_t *count) {
    *count = all->recovery_count;
    return all->recoveries;
}
