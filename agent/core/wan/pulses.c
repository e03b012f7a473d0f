#include "core/wan/pulses.h"

#define STEP_TRIP 24                /* a step is that part of a round trip (rostrum sim run wan), */
#define STEP_LEAST INT64_C(4000000) /* ns: hosts delay packets by about as much (rostrum lab run wan), */
#define STEP_NEAR INT64_C(2000000)  /* nearer by not so much (a bound) */
#define STEPS_MOST 3                /* to 8 times (rostrum sim run wan) */

/* More than its base it sends no more than goes at that in a round trip. */
void rs_wan_pulse_begin(rs_wan_pulse *p, rs_time now, rs_time trip, int64_t base_bps, uint64_t most, bool careful) {
    rs_time least = trip / 4 < STEP_NEAR ? STEP_NEAR : trip / 4 < STEP_LEAST ? trip / 4 : STEP_LEAST;
    rs_time step = trip / STEP_TRIP > least ? trip / STEP_TRIP : least;
    *p = (rs_wan_pulse){.from = now, .base_bps = base_bps};
    double bytes = (double)base_bps / 8e9 * (double)step;
    if (!careful)
        for (rs_time more = 1, all = 1; p->steps < STEPS_MOST && all * step <= trip; all += more = 2 * more + 1) {
            p->steps++;
            if (most > 0 && (double)((4 << p->steps) - 2) * bytes > (double)most)
                break;
        }
    if (p->steps > 0) {
        p->step = step;
        return;
    }
    p->steps = 1;
    p->step = step < trip / 2 ? step : trip > 2 ? trip / 2 : 1;
}

bool rs_wan_pulse_ends(rs_wan_pulse *p, rs_time now, uint64_t sent) {
    if (p->steps == 0 || rs_wan_pulse_on(p, now))
        return false;
    p->end = p->end ? p->end : sent;
    return p->end > 0;
}

bool rs_wan_pulse_is_due(rs_wan_pulse *p, rs_time now, bool seen, rs_time after) {
    seen |= p->steps == 0;
    if (seen && p->due == 0)
        p->due = now + after;
    return seen && now >= p->due;
}

bool rs_wan_pulse_on(const rs_wan_pulse *p, rs_time now) {
    return now < p->from + p->steps * p->step;
}

int64_t rs_wan_pulse_rate(const rs_wan_pulse *p, rs_time now, int64_t rate) {
    if (!rs_wan_pulse_on(p, now))
        return rate;
    int64_t to = p->base_bps << (1 + (now - p->from) / p->step);
    return to > rate ? to : rate;
}

rs_time rs_wan_pulse_change(const rs_wan_pulse *p, rs_time now) {
    return rs_wan_pulse_on(p, now) ? p->from + ((now - p->from) / p->step + 1) * p->step : RS_NEVER;
}
