/* What the simulator remembers. Private to sim/engine. */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include "core/base/loss_pattern.h"
#include "core/base/wire.h"
#include "core/rate/pacer.h"
#include "engine/calendar.h"
#include "engine/engine.h"
#include "engine/sim.h"

#include <stddef.h>
#include <stdio.h>

#define SIM_NONE UINT32_MAX
#define HOPS_MAX 64 /* of a way */
#define SIM_PACKET_SIZES 5
#define SIM_HEADER_MOST 2048 /* bytes of a packet that matter */
#define SIM_LINE 64          /* of the cache, in bytes */
#define SIM_UDP_OVERHEAD RS_WIRE_OVERHEAD
#define SIM_TCP_OVERHEAD (20 + 32 + 18 + 20) /* IPv4, TCP with timestamps, Ethernet with preamble and gap */

typedef enum { PACKET_GROUP, PACKET_DATAGRAM, PACKET_CONTROL, PACKET_FLOW } packet_kind;

/* Shared by all places that it is on its way to. What the network needs of it is one line of the cache. */
typedef struct packet {
    uint32_t references;
    uint16_t header_length;
    uint8_t size, kind; /* size: which of the free lists it goes to; kind: packet_kind */
    uint32_t from, to;  /* hosts; `to` SIM_NONE for a group */
    uint32_t group;
    uint32_t wire_bytes, payload_length;
    uint32_t way_left; /* of a packet to one host: links still to take, valid in `way_epoch` */
    uint64_t payload_offset;
    const uint32_t *way; /* the next of them */
    uint32_t way_epoch;
    uint32_t sent_at; /* of a connection's, in ns modulo 2^32 */
    union {
        uint64_t number; /* on its connection */
        struct packet *next_free;
    };
    uint8_t header[];
} packet;

typedef struct {
    void *memory;
    size_t bytes;
} slab_place;

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
    uint32_t left; /* of the present run */
    bool bad;
    double p, burst;
    double leave_good, leave_bad; /* of two states, for each packet */
} loss_state;

/* Most of them are touched once for a packet or not at all, in no order that a cache could foresee: what each packet
 * needs comes first, then what it needs where there are losses. */
typedef struct {
    _Alignas(SIM_LINE) uint32_t from;
    uint32_t to, reverse;
    uint16_t byte_ns; /* that a byte takes; 0: no whole number */
    bool up, classes; /* more than one */
    rs_time free_at;  /* the wire is free then */
    flights air;      /* on their way, in order of arrival */
    rs_time delay_ns;
    uint64_t queue_bytes;
    sim_link_stats stats;
    loss_state loss;
    int64_t rate_bps;
    flights waiting[2]; /* per class, when there are classes */
    uint64_t waiting_bytes[2];
    rs_time dark_until, ringing_until;
    double ringing_loss;
} link;

typedef struct {
    bool host, crashed;
    uint32_t rack;
    uint32_t host_index;
    uint32_t *links; /* out of here */
    uint32_t link_count, link_capacity;
    uint16_t *distance; /* of every node to here; NULL = not known */
    size_t distance_bytes;
} place;

typedef struct {
    uint32_t place;
    sim_engine *engine;                /* NULL: only forwards */
    rs_loss_pattern *losses;           /* of group packets on purpose; NULL: none */
    rs_time stall_every, stall_length; /* means; 0: its process always runs */
    rs_time stall_at, awake_at;        /* it stands still from the one to the other; the next time, if that is past */
} host;

/* Lost on its way, and to be sent again. */
typedef struct {
    packet *packet;
    rs_time due;
    uint32_t later; /* so many that were sent after it have come */
} missing;

typedef struct {
    uint64_t key; /* from, to */
    bool up, full;
    uint64_t sent, delivered; /* packet numbers */
    uint64_t outstanding;     /* bytes under way */
    flights early;            /* came before their turn */
    rs_time trip;             /* there and back, smoothed */
    rs_time sent_at;          /* the last one, also again */
    missing *missing;
    uint64_t missing_count, missing_capacity;
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

typedef struct {
    uint64_t key; /* from, to, + 1; 0 = none */
    uint32_t *links;
    uint32_t capacity, epoch;
    uint16_t count;
    bool pinned;
} route;

typedef struct {
    uint32_t from, to;
    int64_t gap_ns;
    uint32_t wire_bytes;
    rs_time next, stop;
} flow;

typedef enum { EVENT_ENGINE, EVENT_CONNECT, EVENT_AGAIN, EVENT_FLOW, EVENT_RECEIVE } event_kind;

/* What happens at a time and belongs to no link and no host's clock. */
typedef struct {
    rs_time at;
    uint64_t order;
    event_kind kind;
    uint32_t a, b;
    packet *packet;
} sim_event;

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

    calendar calendar;     /* links, then hosts: see source_of_link, source_of_host */
    sim_event *events_due; /* heap */
    uint32_t event_count, event_capacity;

    connection **connections; /* open hash */
    uint32_t connection_count, connection_slots;
    forwarding *forwardings; /* open hash */
    uint32_t forwarding_count, forwarding_slots;
    route *routes; /* open hash */
    uint32_t route_count, route_slots, route_epoch;
    bool distances_known, any_crashed;
    uint32_t *near; /* routes.c */
    size_t near_bytes;

    packet *free_packets[SIM_PACKET_SIZES];
    slab_place *slabs; /* where packets are */
    uint32_t slab_count, slab_capacity;
    size_t slab_bytes[SIM_PACKET_SIZES]; /* of the last one */
    sim_note *notes;
    uint64_t note_count, note_capacity;
    sim_run_stats stats;
    FILE *trace;
};

/* memory.c */
void *sim_take(sim *s, size_t bytes);       /* zeroed; ends the program if there is none: a simulation cannot go on */
void *sim_take_lines(sim *s, size_t bytes); /* the same, from the beginning of a line of the cache on */
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
void links_fetch(const sim *s); /* what the next events will need */

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
void forwarding_fetch(const sim *s, uint32_t node, uint32_t group);           /* will be asked for soon */
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
void connection_again(sim *s, uint32_t from, uint32_t to);

/* hosts.c */
void host_receive(sim *s, host *h, packet *p);
void host_awake(sim *s, uint32_t index, uint32_t waited_us,
                packet *p); /* what came while it stood still; takes over the reference */
void host_stalls(sim *s, host *h, rs_time every, rs_time length);
void host_due(sim *s, host *h);
void host_pump(sim *s, host *h);
void host_later(sim *s, host *h, uint32_t what);

/* event_heap.c */
void event_put(sim *s, rs_time at, event_kind kind, uint32_t a, uint32_t b, packet *p);
void event_due(sim *s);

static inline uint32_t source_of_link(uint32_t index) {
    return index * 2;
}

static inline uint32_t source_of_host(uint32_t index) {
    return index * 2 + 1;
}

#endif
