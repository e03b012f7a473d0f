/* A deterministic discrete-event network in virtual time that runs the agent's protocol engines (agent/core)
 * unchanged.
 *
 * Nodes are hosts (able to forward, most with a protocol engine: engine/engine.h) or switches; links are directed,
 * with rate, delay, a
 * queue in bytes, strict priority if wanted, and a loss model. Group packets follow forwarding entries given by the
 * caller; everything else takes shortest paths, shared among equal ones by a hash of source and destination. The
 * control channel is reliable and in order: a lost packet of it is sent again after a time-out; acknowledgements of
 * TCP are not modelled.
 *
 * Times are int64 nanoseconds from 0, rates bits per second. Same calls, same seed: same results, bit for bit.
 * Functions that make something return its number, or SIM_ERROR with the reason in sim_error. This file is also read by
 * Python (cffi): plain declarations only. */
#ifndef ROSTRUM_SIM_H
#define ROSTRUM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)

#define SIM_ERROR 0xffffffff
#define SIM_FOREVER 0x7fffffffffffffff

typedef struct sim sim;

typedef enum {
    SIM_LOSS_NONE,
    SIM_LOSS_BERNOULLI, /* each packet with probability p */
    SIM_LOSS_GILBERT,   /* two states, lost in the bad one: p of all in the mean, runs of `burst` in the mean, back to
                           back; time without packets counts as if there were some */
    SIM_LOSS_BURSTY,    /* runs of exactly `burst` packets, p of all in the mean */
    SIM_LOSS_MARKOV     /* as Gilbert, but `burst` is the mean length of good runs too: p sets only where it starts */
} sim_loss_model;

typedef struct {
    int64_t rate_bps;
    int64_t delay_ns;
    uint64_t queue_bytes; /* waiting, of each class, beside the packet on the wire; what does not fit is lost */
    uint32_t classes;     /* 1 = first in, first out; 2 = group packets before all others */
} sim_link_params;

/* As rs_rdcm_config. */
typedef struct {
    bool no_congestion_control;
    uint32_t ack_every;
    int64_t ack_delay_ns;
    int64_t ack_timeout_ns, ack_timeout_least_ns, ack_timeout_first_ns;
    int64_t loss_delay_ns;
    int64_t failure_ns, link_ns, request_ns, view_ns;
    uint32_t window_packets;
} sim_rdcm_params;

/* As rostrumd sets the engine. */
void sim_rdcm_of_agents(sim_rdcm_params *out);

/* Zero = default of the engine, as in agent/core/transfer/node.h. */
typedef struct {
    uint64_t seed;
    uint32_t fragment_size;
    int64_t nic_rate_bps;
    int64_t attempt_interval_ns;
    uint32_t light_confirm;
    bool start_on_first;
    bool patches_only; /* losses are mended point to point, as in Republic's paper */
    bool carries;      /* of many receivers some carry control messages for the others */
    uint32_t max_transfers;
    uint32_t max_receivers;
    uint32_t direct_receivers, feedback_arity;
    int64_t receiver_silence_ns;
    int64_t sender_silence_ns;
    sim_rdcm_params rdcm;
    uint64_t room_bytes; /* that may wait at its socket, as it tells senders; nothing waits here, hosts are quick */
} sim_host_params;

/* As a size: always more, until sim_stream_end; by RDCM. */
#define SIM_STREAM 0xffffffffffffffff

typedef struct {
    uint64_t object, size;
    const uint32_t *receivers; /* nodes */
    uint32_t count;
    const char *options; /* of the path's engine, NAME=VALUE joined by commas; NULL: its defaults */
} sim_send_params;

/* What the manager answers a sender that wants a path. */
typedef struct {
    uint32_t group;
    uint32_t engine; /* the protocol, by its number: sim_engine_number */
    bool circuit;
    int64_t reconfiguration_ns;
    int64_t rate_bps;
    int64_t light_bound_ns;
    uint64_t accepted_bytes; /* 0 = all */
    int64_t manager_delay_ns;
} sim_path_params;

/* A host's place in a transfer's backup overlay, as rs_view; SIM_ERROR = nobody. */
typedef struct {
    uint64_t version;
    uint32_t leaf_predecessor, leaf_successor, leaf_parent;
    uint32_t proxy_predecessor, proxy_successor, proxy_parent;
    const uint32_t *children;
    uint32_t child_count;
} sim_view;

typedef enum {
    SIM_NOTE_PHASE = 1, /* value: rs_phase */
    SIM_NOTE_FIRST_LIGHT,
    SIM_NOTE_PEER_DONE,
    SIM_NOTE_PEER_FAILED,
    SIM_NOTE_SEND_DONE,    /* value: receivers done */
    SIM_NOTE_RECEIVE_DONE, /* value: 1 = whole */
    SIM_NOTE_COMPLETE,
    SIM_NOTE_PATH_WANTED,
    SIM_NOTE_PATH_DONE,
    SIM_NOTE_RECEIVER_FAILED, /* RDCM: peer = the successor, value: rs_ring_kind */
    SIM_NOTE_LINK_SUSPECTED,  /* the same */
    SIM_NOTE_VIEW_USED,       /* RDCM, value: version */
    SIM_NOTE_LAST = SIM_NOTE_VIEW_USED
} sim_note_kind;

/* Something a protocol engine told its application. */
typedef struct {
    int64_t at;
    uint64_t value;
    uint32_t host, peer; /* peer: SIM_ERROR = none */
    uint32_t kind;       /* sim_note_kind */
    uint32_t transfer;
} sim_note;

typedef struct {
    uint64_t packets, bytes; /* put on the wire, with Ethernet's overhead */
    uint64_t group_packets, group_bytes;
    uint64_t data_packets, data_bytes; /* of these, those with a payload: what is not control traffic */
    uint64_t lost;                     /* by the loss model */
    uint64_t overflow;                 /* no room in the queue */
    int64_t first_data_at;             /* the first with a payload began to go */
} sim_link_stats;

typedef struct {
    bool sending;
    uint32_t phase;
    uint64_t size, bytes_present, fragments;
    uint64_t packets_sent, packets_attempt, packets_redundant, patches_sent, patches_received;
    uint64_t packets_received, packets_old, lost;
    int64_t rate_bps;
    uint32_t receivers, receivers_done, receivers_failed;
    int64_t granted_at, high_rate_at, data_done_at;
    /* RDCM */
    uint64_t view, acks_sent, acks_received, peer_repairs_sent, peer_repairs_received, peer_repairs_old;
    uint64_t requests_sent, losses, window;
} sim_transfer_stats;

typedef struct {
    int64_t now;
    uint64_t events;  /* arrivals, departures, timers, and the like that were worked off */
    uint64_t packets; /* made by hosts and flows */
    uint64_t bytes;   /* of memory that the simulator itself has taken, without the engines' */
    uint64_t engine_bytes;
    uint64_t control_packets, control_bytes, control_again; /* of the control channel; sent again */
} sim_run_stats;

sim *sim_new(uint64_t seed);
void sim_free(sim *s);
const char *sim_error(const sim *s);

uint32_t sim_add_switch(sim *s);
/* A host without an engine: it only forwards, until one of sim_use_... gives it one. */
uint32_t sim_add_server(sim *s);
/* A host with the agent's engine. */
void sim_set_rack(sim *s, uint32_t node, uint32_t rack); /* below 65,536; usually all hosts are in one */
uint32_t sim_add_host(sim *s, const sim_host_params *params);
/* The agent's engine at a host that has none. */
bool sim_use_node(sim *s, uint32_t host, const sim_host_params *params);
uint32_t sim_add_link(sim *s, uint32_t from, uint32_t to, const sim_link_params *params);
uint32_t sim_link_count(const sim *s);
uint32_t sim_link_between(const sim *s, uint32_t from, uint32_t to);

bool sim_set_loss(sim *s, uint32_t link, uint32_t model, double p, double burst);
/* A host loses `p` of a group's data packets in runs of `run`: those that the agent of `server` loses with this --seed
 * and --loss pattern:P:RUN (core/base/loss_pattern.h). */
bool sim_set_loss_pattern(sim *s, uint32_t host, const char *server, uint64_t seed, double p, uint32_t run);
/* How many that were. */
uint64_t sim_losses(const sim *s, uint32_t host);
/* The link carries nothing until it is up again; what is under way on it is lost. Routes adapt at once. */
bool sim_set_up(sim *s, uint32_t link, bool up);
/* Group packets do not get through before `until` (a circuit that is being set), nor, with probability `ringing_loss`,
 * before `ringing_until`. */
bool sim_set_dark(sim *s, uint32_t link, int64_t until, int64_t ringing_until, double ringing_loss);
/* The server is gone without a message; a host that forwards stops forwarding. */
bool sim_crash(sim *s, uint32_t host);
/* The host's process stands still again and again, for `length` after running for `every` ns (means; exponential):
 * what comes meanwhile waits at its socket, and its timers are late. every = 0: never. */
bool sim_set_stalls(sim *s, uint32_t host, int64_t every, int64_t length);

/* Forwarding of a group: node `node` copies what it gets of it to `links` (all of them from `node`; never back where
 * it came from). Replaces what was there; no links and not `member` = forgotten. `member`: the host takes the packets
 * too. */
bool sim_set_group(sim *s, uint32_t node, uint32_t group, const uint32_t *links, uint32_t count, bool member);

/* Packets of one host to another take these links, one after the other, whatever happens to them; no links = shortest
 * paths again. */
bool sim_set_route(sim *s, uint32_t from, uint32_t to, const uint32_t *links, uint32_t count);

/* Constant-rate datagrams of `packet_bytes` on the wire from one node to another, from `start` to `stop`. */
uint32_t sim_add_flow(sim *s, uint32_t from, uint32_t to, int64_t rate_bps, uint32_t packet_bytes, int64_t start,
                      int64_t stop);

/* The number of an engine of objects by its report ("republic", "rdcm"); SIM_ERROR: there is none of that name. */
uint32_t sim_engine_number(const char *word);
void sim_set_path(sim *s, uint32_t host, const sim_path_params *params);
/* The engine's number of the new transfer at the sender. */
uint32_t sim_send(sim *s, uint32_t host, const sim_send_params *params);

/* What the manager tells a host of the overlay of the transfer of an object: the newest is kept until that begins. */
bool sim_set_view(sim *s, uint32_t host, uint64_t object, const sim_view *view);
/* While a receiver is `absent` nobody there wants an object: it is offered, and not accepted before that ends. */
bool sim_set_absent(sim *s, uint32_t host, uint64_t object, bool absent);
/* A receiver wants it no more; it is there for others until the manager has an overlay without it. */
bool sim_leave(sim *s, uint32_t host, uint64_t object);
/* A stream ends with what has been sent of it. */
bool sim_stream_end(sim *s, uint32_t host, uint64_t object);

/* To that time, or until nothing is left to happen. False: something that must never happen happened (sim_error). */
bool sim_run(sim *s, int64_t until);
/* As sim_run, but returns after the step in which the `count`-th note of that kind, from the beginning, came. */
bool sim_run_until_noted(sim *s, uint32_t kind, uint64_t count, int64_t until);
/* The same, of the next SIM_NOTE_SEND_DONE. */
bool sim_run_until_sent(sim *s, int64_t until);

const sim_note *sim_notes(const sim *s, uint64_t *count);
bool sim_link_stats_get(const sim *s, uint32_t link, sim_link_stats *out);
bool sim_transfer_stats_get(const sim *s, uint32_t host, uint32_t transfer, sim_transfer_stats *out);
/* The transfer that `host` is receiving, or received last, of an object; 0 = none. */
uint32_t sim_receiving(const sim *s, uint32_t host, uint64_t object);
void sim_run_stats_get(const sim *s, sim_run_stats *out);
/* JSON lines of every packet that arrives somewhere, from now on; NULL ends it. */
bool sim_trace(sim *s, const char *path);

#pragma GCC visibility pop

#endif
