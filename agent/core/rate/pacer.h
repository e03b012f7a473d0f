/* A token bucket in nanoseconds (the generic cell rate algorithm): packets leave at a rate, in bursts the caller can
 * batch.
 *
 * After running dry it stays shut until a quantum's worth of packets may go, so that a caller that sleeps between
 * deadlines sends batches; a caller that oversleeps catches up, but never by more than the depth. */
#ifndef RS_CORE_PACER_H
#define RS_CORE_PACER_H

#include "core/base/types.h"

/* Where no other source is named: test_pacer. */
#define RS_PACER_QUANTUM 250000 /* 0.25 ms */
/* What a late caller may catch up: about what fits into the queue that a path is held at (path_model.c). */
#define RS_PACER_DEPTH_BITS (256000 * 8) /* test_pace */
#define RS_PACER_DEPTH_LEAST 1000000     /* 1 ms */
#define RS_PACER_DEPTH_MOST 4000000
#define RS_PACER_BURST 32 /* packets of a quantum, however fast */

typedef struct {
    int64_t rate_bps;   /* Bits a second on the wire. */
    rs_time tat;        /* theoretical arrival time: what was sent so far is paid for at this time */
    rs_time wake;       /* shut until then */
    rs_time depth_most; /* what a late caller catches up at most; RS_PACER_DEPTH_MOST, if nobody says otherwise */
    rs_time lost;       /* time for which nothing will be sent any more: a late caller, nothing to send */
} rs_pacer;

void rs_pacer_start(rs_pacer *pacer, rs_time now, int64_t rate_bps);
bool rs_pacer_ready(const rs_pacer *pacer, rs_time now);
void rs_pacer_sent(rs_pacer *pacer, rs_time now, uint32_t wire_bytes);
/* There was nothing to send until now, so there is nothing to catch up. */
void rs_pacer_resume(rs_pacer *pacer, rs_time now);
/* When it is ready next; in the past if it is ready. */
rs_time rs_pacer_due(const rs_pacer *pacer);

/* Time that many bytes take at that rate, at least 1 ns. */
rs_time rs_wire_time(uint64_t bytes, int64_t rate_bps);

#endif
