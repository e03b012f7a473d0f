/* RDCM's options, for rs_config.options. */
#ifndef RS_CORE_RDCM_OPTIONS_H
#define RS_CORE_RDCM_OPTIONS_H

#include "core/base/types.h"

/* RDCM's parameters (docs/rdcm.md). Zero in any field means its default, given in brackets. */
typedef struct {
    bool no_congestion_control; /* as a sender: send as fast as the path, whatever receivers expect (Sec. 4.1, 5.2) */
    bool rings_only;            /* as in Sec. 3.3 repairs run along rings alone, and no parent sends them to children */
    uint32_t ack_every;         /* packets an ACK may wait for [8; fewer while the congestion window is small] */
    rs_time ack_delay;          /* and for how long at most [0.25 ms] */
    rs_time ack_timeout;        /* fixed (the paper's testbed: 4 ms); 0 = adaptive, from measured ACK round trips */
    rs_time ack_timeout_least;  /* bounds of the adaptive one [1 ms] */
    rs_time ack_timeout_first;  /* until there are samples [4 ms] */
    rs_time loss_delay;      /* a gap is told to congestion control after this (Fig. 12) [when 3 later packets came] */
    rs_time failure_bound;   /* a successor that acknowledges nothing, repairs included, so long has failed [50 ms] */
    rs_time link_bound;      /* one that got all by repair, so long, has a failed link above it [30 ms] */
    rs_time request_bound;   /* what nobody repaired so long is asked of the sender [200 ms] */
    rs_time view_bound;      /* a sender waits so long for its view, then goes without overlay [500 ms] */
    uint32_t window_packets; /* packets between the oldest still needed and the newest [65536]; rounded up to 2^n */
    uint64_t stream_bytes;   /* of a stream at most so many are kept, but 256 packets at least [window_packets] */
} rs_rdcm_config;

/* What agents set, the one place for it: rostrumd, and the simulator's studies by agents' constants. Hosts take longer
 * to answer than the core's tests have it (Sec. 5.2: 4 ms on the testbed), and an ACK costs a host more than a packet:
 * a quarter of the window decides how many there are. Times in ns. */
static inline rs_rdcm_config rs_rdcm_of_agents(void) {
    return (rs_rdcm_config){.ack_every = 64, .ack_delay = 8 * 1000000, .ack_timeout_least = 4 * 1000000};
}

#endif
