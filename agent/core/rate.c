#include "core/rate.h"

#define LOSS_PPM 20000         /* above the baseline by so much: cut */
#define DROP_PPM 2000          /* the same when the receiver says its socket dropped them */
#define FUTILE_CUTS 2          /* so many cuts in a row that changed nothing: not congestion */
#define PLATEAU_TIME 500000000 /* a second cut within 0.5 s: that is the capacity, stay near it */

static int64_t scaled(int64_t rate, uint32_t ppm) {
    return rate / 1000000 * ppm + rate % 1000000 * ppm / 1000000;
}

void rs_rate_start(rs_rate *r, rs_time now, int64_t ceiling_bps, rs_time epoch) {
    if (ceiling_bps < 1)
        ceiling_bps = 1;
    *r = (rs_rate){.ceiling_bps = ceiling_bps,
                   .found_bps = ceiling_bps,
                   .floor_bps = ceiling_bps / 32 + 1,
                   .epoch = epoch,
                   .epoch_end = now + epoch,
                   .cut_at = RS_NEVER};
}

int64_t rs_rate_bps(const rs_rate *r) {
    int64_t rate = r->found_bps;
    if (r->share_bps && r->share_bps < rate)
        rate = r->share_bps;
    if (r->ceiling_bps < rate)
        rate = r->ceiling_bps;
    return rate > r->floor_bps ? rate : r->floor_bps;
}

static bool recently_cut(const rs_rate *r, rs_time now) {
    return r->cut_at != RS_NEVER && now - r->cut_at < PLATEAU_TIME;
}

static bool cut(rs_rate *r, rs_time now) {
    int64_t base = rs_rate_bps(r);
    bool again = recently_cut(r, now);
    if (again && r->cut_ppm && r->worst_ppm / 6 >= r->cut_ppm / 10 && r->clean == 0)
        r->futile++;
    else
        r->futile = 0;
    if (r->futile == 0)
        r->before_cut_bps = base;
    if (r->futile >= FUTILE_CUTS && !r->dropped) {
        r->baseline_ppm = r->worst_ppm;
        r->found_bps = r->before_cut_bps;
        r->cut_ppm = 0;
        r->got_through_bps = 0;
        return true;
    }
    uint32_t lost = r->worst_ppm - (r->dropped || r->worst_ppm < r->baseline_ppm ? 0 : r->baseline_ppm);
    int64_t got_through = scaled(base, 1000000 - lost);
    r->got_through_bps = again ? got_through : 0;
    r->found_bps = scaled(got_through, 970000);
    if (r->found_bps < base / 8)
        r->found_bps = base / 8;
    if (r->found_bps < r->floor_bps)
        r->found_bps = r->floor_bps;
    r->cut_ppm = r->worst_ppm;
    r->cut_at = now;
    return true;
}

bool rs_rate_feedback(rs_rate *r, rs_time now, uint64_t expected, uint64_t lost, bool dropped) {
    uint32_t ppm = expected ? (uint32_t)((lost < expected ? lost : expected) * 1000000 / expected) : 0;
    if (ppm > r->worst_ppm)
        r->worst_ppm = ppm;
    r->dropped |= dropped;
    if (!(r->worst_ppm > r->baseline_ppm + LOSS_PPM || (r->dropped && r->worst_ppm > DROP_PPM)))
        return false;
    cut(r, now);
    r->worst_ppm = 0;
    r->dropped = false;
    r->clean = 0;
    r->epoch_end = now + r->epoch;
    return true;
}

/* Far from what got through last: in steps that double every other epoch. Near it: slowly (the plateau of a cubic). */
static int64_t step(const rs_rate *r) {
    int64_t near = r->got_through_bps / 16;
    if (r->got_through_bps && r->found_bps > r->got_through_bps - near && r->found_bps < r->got_through_bps + near)
        return r->found_bps / 256 + 1;
    uint32_t doublings = r->clean / 2 < 4 ? r->clean / 2 : 4;
    return (r->found_bps / 32 + 1) << doublings;
}

bool rs_rate_tick(rs_rate *r, rs_time now) {
    if (now < r->epoch_end)
        return false;
    int64_t before = rs_rate_bps(r);
    if (r->worst_ppm < r->baseline_ppm)
        r->baseline_ppm -= (r->baseline_ppm - r->worst_ppm) / 8;
    r->worst_ppm = 0;
    r->dropped = false;
    r->epoch_end = now + r->epoch;
    r->clean++;
    if (r->found_bps < r->ceiling_bps)
        r->found_bps += step(r);
    if (r->found_bps > r->ceiling_bps)
        r->found_bps = r->ceiling_bps;
    return rs_rate_bps(r) != before;
}
