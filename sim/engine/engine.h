/* What a simulated host runs: a protocol engine, sans-IO, behind one small surface.
 *
 * An implementation embeds `sim_engine` as its first member and fills a table of functions: node_engine.c does so for
 * the agent's rs_node, sim/baselines for protocols to compare with. sim_host_use puts one at a host. Whatever goes in
 * (a packet, a deadline, an answer) is followed by work_event and poll_tx until both say false, then by deadline.
 * Peers are the simulator's node numbers, groups its group numbers. What a packet carries is its header: payloads are
 * only lengths and offsets. Private to sim/. */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include "core/base/types.h"
#include "engine/sim.h"

typedef struct sim_engine sim_engine;

/* A datagram of bytes that matter, from several pieces. */
typedef struct {
    rs_channel channel; /* not RS_CH_PEER_RELIABLE */
    uint32_t peer, group;
    uint32_t piece_count;
    const uint8_t *bytes[2];
    uint32_t length[2];
} sim_bytes_out;

typedef struct {
    void (*free)(sim_engine *engine);
    /* A packet of any channel. `payload_offset`: as its sender gave it, to check what the engine makes of it. */
    void (*receive)(sim_engine *engine, rs_time now, const rs_packet_in *packet, uint64_t payload_offset);
    void (*timeout)(sim_engine *engine, rs_time now);
    rs_time (*deadline)(const sim_engine *engine); /* RS_NEVER if nothing is due */
    bool (*poll_tx)(sim_engine *engine, rs_time now, rs_packet_out *out);
    bool (*work_event)(sim_engine *engine, rs_time now); /* does what its application would; false: there is none */

    /* NULL if there is nothing of the kind. */
    bool (*poll_bytes)(sim_engine *engine, rs_time now, sim_bytes_out *out); /* arrives as a header without payload */
    bool (*send)(sim_engine *engine, rs_time now, const sim_send_params *params, uint32_t *transfer);
    void (*later)(sim_engine *engine, rs_time now, uint32_t what); /* engine_later's time has come */
    bool (*stats)(const sim_engine *engine, uint32_t transfer, sim_transfer_stats *out);
    uint32_t (*receiving)(const sim_engine *engine, uint64_t object);
    /* The control channel (RS_CH_PEER_RELIABLE), which comes up when engine_connect asks for it. */
    bool (*peer_up)(sim_engine *engine, rs_time now, rs_peer peer); /* false: out of memory */
    void (*peer_down)(sim_engine *engine, rs_time now, rs_peer peer, const char *cause);
    void (*peer_writable)(sim_engine *engine, rs_time now, rs_peer peer, bool writable);
} sim_engine_ops;

struct sim_engine {
    const sim_engine_ops *ops;
    sim *sim;
    uint32_t node;  /* of its host */
    rs_time waited; /* What is received now waited so long at the host's socket. */
};

/* hosts.c: what a host offers to its engine. */
/* Takes the engine over; false (and the engine freed) if `node` is no host or has one already. */
bool sim_host_use(sim *s, uint32_t node, sim_engine *engine);
/* The engine at a host that was made with `ops`; NULL, and sim_error says so, if there is none. */
sim_engine *sim_host_engine(sim *s, uint32_t node, const sim_engine_ops *ops, const char *what);
rs_time sim_now(const sim *s);
/* Work off what a call from outside brought about. */
void sim_host_pump(sim *s, uint32_t node);
void engine_note(sim_engine *engine, sim_note_kind kind, uint32_t peer, uint32_t transfer, uint64_t value);
void engine_later(sim_engine *engine, rs_time at, uint32_t what);
void engine_connect(sim_engine *engine, rs_peer peer);
uint32_t engine_rack(const sim *s, uint32_t node);
/* Sets sim_error; false. */
bool sim_fail(sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The engine did what it must never do: the run ends with this text. */
void engine_fail(sim_engine *engine, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Memory, zeroed, counted as the engines'; never NULL from engine_take. */
void *engine_take(sim *s, size_t bytes);
void engine_give(sim *s, void *memory);
rs_allocator engine_allocator(sim *s);

#endif
