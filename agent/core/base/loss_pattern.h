/* A pattern of losses on purpose that depends on nothing but a seed, a server's name and a fragment's number: a lab's
 * receivers and simulated ones lose the same fragments, however packets are timed (agent/io/lossy.c,
 * sim/engine/hosts.c; docs/sim.md, "Conformance").
 *
 * Lost is the first copy of a fragment, if it comes in its turn, higher than all before of its object: what a sender
 * repeats passes, so that repairs follow from the pattern alone. Multicast data packets of group messages are numbered
 * from 0 as they come, of all senders and groups that share a pattern. */
#ifndef RS_CORE_LOSS_PATTERN_H
#define RS_CORE_LOSS_PATTERN_H

#include "core/base/types.h"

#define RS_LOSS_RUN_MAX 64u

typedef struct {
    uint64_t seed;
    double start;   /* probability that a run of losses starts at a fragment */
    uint32_t run;   /* its fragments */
    bool begun;     /* of `object`, what follows has been seen */
    uint64_t nonce; /* one at a time: another one starts over */
    uint64_t next;  /* above all sn so far */
    uint64_t heard; /* data packets of messages so far */
    uint64_t lost;
} rs_loss_pattern;

/* The seed of one of several servers that share one: mixed with FNV-1a of its name. */
uint64_t rs_server_seed(uint64_t seed, const char *server);

/* `share` of all fragments (0 to 1), in runs of `run` (1 to RS_LOSS_RUN_MAX; those that overlap are longer). `seed`: of
 * the receiver. */
rs_loss_pattern rs_loss_pattern_of(uint64_t seed, double share, uint32_t run);

/* Whether the first copy of a fragment is lost: a run starts at sn if the (sn + 1)-th number of splitmix64 from the
 * seed, as a fraction of 2^64, is less than `start`. */
bool rs_loss_pattern_has(const rs_loss_pattern *pattern, uint64_t sn);

/* Whether to lose a datagram that came by multicast, by its first bytes: of the data channel by what comes before its
 * payload. Other things than data packets are kept. */
bool rs_loss_pattern_loses(rs_loss_pattern *pattern, const uint8_t *header, size_t length);

#endif
