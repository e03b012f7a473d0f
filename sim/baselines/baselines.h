/* Reliable multicast protocols that RDCM is compared with (its paper, Sec. 4.1 and 6), as engines for simulated hosts:
 * SRM, RMTP, LBRM, TMTP. One object, one sender, no congestion control; nothing of the product uses them. This file is
 * also read by Python (cffi): plain declarations only. */
#ifndef ROSTRUM_SIM_BASELINES_H
#define ROSTRUM_SIM_BASELINES_H

#include "engine/sim.h"

#pragma GCC visibility push(default)

typedef enum {
    /* Floyd et al., "A reliable multicast framework for light-weight sessions and application level framing" (1997):
     * whoever misses a packet asks all, whoever has it answers all, after random waits that suppress duplicates. */
    BASELINE_SRM = 1,
    /* Paul et al., "Reliable multicast transport protocol" (1997): receivers report what they have, again and again, to
     * a designated receiver of their region, up a hierarchy to the sender; each repairs its own region. */
    BASELINE_RMTP,
    /* Holbrook et al., "Log-based receiver-reliable multicast" (1995): receivers find gaps, by heartbeats too, and ask
     * the logging server of their site; that asks the primary one, which is at the sender. */
    BASELINE_LBRM,
    /* Yavatkar et al., "A reliable dissemination protocol for interactive collaborative applications" (1995): members
     * of a domain say to it what they miss, one for all; its manager mends by multicast there, its own manager the
     * manager's losses, up a tree to the sender. Regular acknowledgements show the rest. */
    BASELINE_TMTP
} baseline_protocol;

/* Who reports to a host, or asks it: at most BASELINE_CHILDREN of them. */
#define BASELINE_CHILDREN 0x100
typedef struct {
    uint32_t node;
    uint32_t hops;  /* links of the way to it */
    uint32_t group; /* of this child and of those beside it in the list with the same number */
    uint32_t links; /* of that group's tree; 0 = there is no such group: unicast only */
} baseline_child;

/* Zero = default, in brackets. */
typedef struct {
    uint64_t seed;
    uint32_t protocol, group;
    uint32_t fragment_size; /* [1024] */
    int64_t rate_bps;       /* of new data, on the wire; sender */

    /* SRM: timers uniform in [c1, c1 + c2] x distance of the source, and [d1, d1 + d2] x distance of who asks; they
     * adapt from there on */
    double c1, c2, d1, d2;  /* [2, 2, and log10 of the members, 1 at least, twice] */
    bool fixed_timers;      /* they do not */
    uint32_t members;       /* of the group */
    uint32_t backoff_limit; /* doublings of a request's wait [5] */
    int64_t session_ns;     /* between a member's session messages [1 s] */
    int64_t distance_ns;    /* of another, until its packets tell [100 us] */

    /* RMTP, LBRM, TMTP: who mends whom, and what it costs */
    uint32_t parent; /* SIM_ERROR: none */
    const baseline_child *children;
    uint32_t child_count;
    uint32_t domain;      /* TMTP: the group of the domain whose member it is */
    int64_t status_ns;    /* RMTP, TMTP: between reports [250 us] */
    int64_t collect_ns;   /* requests for a packet are waited for so long, to mend all in the cheaper way [30 us] */
    int64_t gap_ns;       /* LBRM, TMTP: what is due within it is asked for together [10 us] */
    int64_t heartbeat_ns; /* LBRM: after the last packet, doubling [100 us], to heartbeat_most_ns [1 s] */
    int64_t heartbeat_most_ns;
} baseline_params;

typedef struct {
    bool complete;
    uint64_t packets_sent;                         /* of new data */
    uint64_t repairs_multicast, repairs_unicast;   /* sent */
    uint64_t requests_sent, requests_received;     /* packets that ask, or report */
    uint64_t reports_sent;                         /* of these, that report */
    uint64_t received, repaired, duplicates, lost; /* distinct packets; of these by repair; already there; gaps */
} baseline_stats;

/* Puts an engine at a host that has none. Sender: sim_send. A receiver's end is a note SIM_NOTE_COMPLETE. */
bool baseline_use(sim *s, uint32_t host, const baseline_params *params);
bool baseline_stats_get(sim *s, uint32_t host, baseline_stats *out);

#pragma GCC visibility pop

#endif
