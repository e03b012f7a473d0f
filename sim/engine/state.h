/* What the simulator remembers. Private to sim/engine. */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include "core/loss_pattern.h"
#include "core/pacer.h"
#include "core/wire.h"
#include "engine/calendar.h"
#include "engine/engine.h"
#include "engine/sim.h"

#include <stddef.h>
#include <stdio.h>

#define SIM_NONE UINT32_MAX
#define HOPS_MAX 64 /* of a way */
#define SIM_PACKET_SIZES 3
#define SIM_HEADER_MOST 2048 /* bytes of a packet that matter */
#define SIM_PACKET_SIZES 3
#define SIM_UDP_OVERHEAD RS_WIRE_OVERHEAD
#define SIM_TCP_OVERHEAD (20 + 32 + 18 + 20) /* IPv4, TCP with timestamps, Ethernet with preamble and gap */

typedef enum { PACKET_GROUP, PACKET_DATAGRAM, PACKET_CONTROL, PACKET_FLOW } packet_kind;

/* Shared by all places that it is on its way to. */
typedef struct packet {
    uint32_t references;
    uint16_t header_length, size; /* size: which of the free lists it goes to */
    packet_kind kind;
    uint32_t from, to; /* hosts; `to` SIM_NONE for a group */
    uint32_t group;
    uint32_t wire_bytes, payload_length;
    uint64_t payload_offset;
    uint64_t number;     /* on its connection */
    struct route *route; /* of a packet to one host, and its place on it: valid in that epoch */
    uint32_t route_epoch, hop;
    struct packet *next_free;
    uint8_t header[];
} packet;

typedef struct {
    packet *packet;
    rs_time at;
} flight;

/* A queue that grows; first in, first out. */
typedef struct {
    flight *items;
    uint32_t head, count, capacity;
} flights;

typedef struct {
    uint32_t model;
    double p, burst;
    bool bad;
    uint32_t left; /* of the present run */
} loss_state;

typedef struct {
    uint32_t from, to, reverse;
    bool up;
    rs_time free_at; /* the wire is free then */
    flights air;     /* on their way, in order of arrival */
    sim_link_params params;
    flights waiting[2]; /* per class, when there are classes */
    uint64_t waiting_bytes[2];
    rs_time dark_until, ringing_until;
    double ringing_loss;
    loss_state loss;
    sim_link_stats stats;
} link;

typedef struct {
    bool host, crashed;
    uint32_t *links; /* out of here */
    uint32_t link_count, link_capacity;
    uint16_t *distance; /* of every node to here; NULL = not known */
    size_t distance_bytes;
    uint32_t host_index;
} place;

typedef struct {
    uint32_t place;
    sim_engine *engine;      /* NULL: only forwards */
    rs_loss_pattern *losses; /* of group packets on purpose; NULL: none */
} host;

typedef struct {
    uint64_t key; /* from, to */
    bool up, full;
    uint64_t sent, delivered; /* packet numbers */
    uint64_t outstanding;     /* bytes under way */
    flights early;            /* came before their turn */
} connection;

#define FORWARDING_NEAR 10

/* Of a group at a node; on a cache line of its own while it has few links. */
typedef struct {
    uint64_t key; /* node, group, + 1; 0 = none */
    uint32_t count;
    bool member;
    union {
        uint32_t near[FORWARDING_NEAR];
        uint32_t *far;
    } links;
    uint32_t unused;
} forwarding;

typedef struct route {
    uint64_t key; /* from, to */
    uint32_t *links;
    uint32_t count, capacity, epoch;
    bool pinned;
} route;

typedef struct {
    uint32_t from, to;
    int64_t gap_ns;
    uint32_t wire_bytes;
    rs_time next, stop;
} flow;

typedef enum { THING_ENGINE, THING_CONNECT, THING_AGAIN, THING_FLOW } thing_kind;

/* What happens at a time and belongs to no link and no host's clock. */
typedef struct {
    rs_time at;
    uint64_t order;
    thing_kind kind;
    uint32_t a, b;
    packet *packet;
} thing;

struct sim {
    rs_time now;
    uint64_t random, order;
    char error[256];
    bool failed;
    uint64_t noted[SIM_NOTE_LAST + 1]; /* notes of each kind */

    place *places;
    uint32_t place_count, place_capacity;
    host *hosts;
    uint32_t host_count, host_capacity;
    link *links;
    uint32_t link_count, link_capacity;
    flow *flows;
    uint32_t flow_count, flow_capacity;

    calendar calendar; /* links, then hosts: see source_of_link, source_of_host */
    thing *things;     /* heap */
    uint32_t thing_count, thing_capacity;

    connection **connections; /* open hash */
    uint32_t connection_count, connection_slots;
    forwarding *forwardings; /* open hash */
    uint32_t forwarding_count, forwarding_slots;
    route **routes; /* open hash */
    uint32_t route_count, route_slots, route_epoch;
    bool distances_known;

    packet *free_packets[SIM_PACKET_SIZES];
    sim_note *notes;
    uint64_t note_count, note_capacity;
    sim_run_stats stats;
    FILE *trace;
};

/* memory.c */
void *sim_take(sim *s, size_t bytes); /* zeroed; ends the program if there is none: a simulation cannot go on */
void *sim_grow(sim *s, void *array, uint64_t count, uint64_t *capacity, size_t each);
void sim_give(sim *s, void *memory, size_t bytes);
packet *packet_new(sim *s, packet_kind kind, uint32_t header_length);
void packet_drop(sim *s, packet *p); /* one reference less */
void packets_free(sim *s);
void flights_put(sim *s, flights *f, packet *p, rs_time at);
flight flights_take(flights *f);
void flights_free(sim *s, flights *f);
double sim_random(sim *s); /* [0, 1) */

/* links.c */
bool link_lose(sim *s, link *l, rs_time idle, rs_time took); /* a packet that takes that long, after so long without */
void link_put(sim *s, uint32_t index, packet *p);            /* takes over a reference */
void link_due(sim *s, uint32_t index);
void link_cut(sim *s, uint32_t index);

/* network.c */
void network_deliver(sim *s, uint32_t node, uint32_t from_link, packet *p);
void network_send(sim *s, uint32_t node, packet *p); /* from a host or a flow's source */
void network_lost(sim *s, packet *p);                /* a link could not carry it: takes over the reference */

/* routes.c */
void routes_forget(sim *s);
void routes_free(sim *s);
bool route_pin(sim *s, uint32_t from, uint32_t to, const uint32_t *links, uint32_t count);
uint32_t route_begin(sim *s, packet *p);               /* the first link of its way; SIM_NONE: there is none */
uint32_t route_next(sim *s, uint32_t node, packet *p); /* the next one */

/* forwardings.c */
const forwarding *forwarding_of(const sim *s, uint32_t node, uint32_t group); /* NULL = nothing is known of it */
void forwarding_set(sim *s, uint32_t node, uint32_t group, const uint32_t *links, uint32_t count, bool member);
void forwardings_free(sim *s);
static inline const uint32_t *forwarding_links(const forwarding *f) {
    return f->count > FORWARDING_NEAR ? f->links.far : f->links.near;
}

/* connections.c: the control channel */
void connection_open(sim *s, uint32_t from, uint32_t to);
void connection_ready(sim *s, uint32_t from, uint32_t to);
void connection_send(sim *s, uint32_t from, uint32_t to, packet *p);
void connection_arrived(sim *s, packet *p);
void connection_lost(sim *s, packet *p);

/* hosts.c */
void host_receive(sim *s, host *h, packet *p);
void host_due(sim *s, host *h);
void host_pump(sim *s, host *h);
void host_later(sim *s, host *h, uint32_t what);

/* things.c */
void thing_put(sim *s, rs_time at, thing_kind kind, uint32_t a, uint32_t b, packet *p);
void thing_due(sim *s);

static inline uint32_t source_of_link(uint32_t index) {
    return index * 2;
}

static inline uint32_t source_of_host(uint32_t index) {
    return index * 2 + 1;
}

#endif
