/* Guarantees of a group (core/order) above an engine of groups, in virtual time, with members that crash, pause and
 * come back, networks that lose, double, delay and part, and a membership that is away: what survivors were given is
 * compared. One run is one seed. This file is also read by Python (cffi): plain declarations only. */
#ifndef ROSTRUM_SIM_GUARANTEES_H
#define ROSTRUM_SIM_GUARANTEES_H

#include "engine/sim.h"

#pragma GCC visibility push(default)

typedef struct {
    uint64_t seed;
    const char *protocol; /* NULL: the seed says which */
    uint32_t members;     /* 0: the seed says how many */
    uint32_t order;       /* 0: the seed says which; 1: of each sender; 2: total; 3: agreed */
    bool calm;            /* nothing fails */
} sim_guarantees_params;

typedef struct {
    uint32_t members, total, agreed; /* `total`: one order for all, agreed ones too */
    uint64_t published, deliveries, views, crashes, pauses, partitions, lost, absences;
    uint64_t flushes, relayed, asked;
    uint64_t checks; /* sequences that were compared */
    uint64_t disagreements;
    uint64_t stuck;        /* members that had not all at the end, when all was well again */
    int64_t view_ns_worst; /* from a view of the membership to when it held at a member, at worst */
    char text[256];        /* the first disagreement */
} sim_guarantees_result;

/* False: out of memory, or there is no such engine; SIM_ERROR's text is not set. */
bool sim_guarantees_run(const sim_guarantees_params *params, sim_guarantees_result *out);

#pragma GCC visibility pop

#endif
