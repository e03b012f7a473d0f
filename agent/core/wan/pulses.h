/* Start-up towards all receivers of a send at once (docs/wan.md, "Start"): for a small part of a round trip the sender
 * goes at twice, four, eight times what is known to be carried. What of that comes through is known when statuses of it
 * are here. A queue gets less of it than of a rate that is too high for a whole round trip. */
#ifndef RS_CORE_WAN_PULSES_H
#define RS_CORE_WAN_PULSES_H

#include "core/base/types.h"

typedef struct {
    rs_time from;     /* The newest one began then. */
    rs_time step;     /* It goes at each of its rates for so long, */
    uint32_t steps;   /* of which there are so many. */
    int64_t base_bps; /* They are 2, 4, 8 times that. */
    uint64_t end;     /* Fragments sent when it was over; 0: it goes on. */
    rs_time due;      /* The next one is due then; 0: this one has not been seen yet. */
} rs_wan_pulse;

/* `most`: bytes, which only its first step may be more than; 0: any. `careful`: the last one went beyond what is
 * carried. */
void rs_wan_pulse_begin(rs_wan_pulse *pulse, rs_time now, rs_time trip, int64_t base_bps, uint64_t most, bool careful);
/* `sent` fragments were sent so far. True: it is over, and may be seen. False: there was none yet, too. */
bool rs_wan_pulse_ends(rs_wan_pulse *pulse, rs_time now, uint64_t sent);
/* True: the next one may begin, `after` the newest one was first `seen`, or the first one was first asked for. */
bool rs_wan_pulse_is_due(rs_wan_pulse *pulse, rs_time now, bool seen, rs_time after);
bool rs_wan_pulse_on(const rs_wan_pulse *pulse, rs_time now);
/* What is sent at then, where `rate` is between pulses. */
int64_t rs_wan_pulse_rate(const rs_wan_pulse *pulse, rs_time now, int64_t rate);
/* When that is another one; RS_NEVER: no pulse is on. */
rs_time rs_wan_pulse_change(const rs_wan_pulse *pulse, rs_time now);

#endif
