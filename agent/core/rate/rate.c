#include "core/rate/rate.h"

#define LOSS_PPM 20000    /* above the baseline and its noise by so much: cut */
#define DROP_PPM 2000     /* the same when the receiver says its socket dropped them */
#define BURST 16          /* packets that may well be lost together, without congestion */
#define SAMPLE_MOST 16384 /* packets; then it is as sure as it gets */
#define SAMPLE_TRIED 2048 /* packets after a cut, to see what it did */
#define TRIED_TIME 1000000000
#define PLATEAU_TIME 500000000 /* a second cut within 0.5 s: that is the capacity, stay near it */
#define PLATEAU_EPOCHS 10      /* then try whether it still is */

static int64_t scaled(int64_t rate, uint32_t ppm) {
    return rate / 1000000 * ppm + rate % 1000000 * ppm / 1000000;
}

void rs_rate_start(rs_rate *r, rs_time now, int64_t ceiling_bps, rs_time epoch) {
    if (ceiling_bps < 1)
        ceiling_bps = 1;
    *r = (rs_rate){.ceiling_bps = ceiling_bps,
                   .found_bps = ceiling_bps,
                   .epoch = epoch,
                   .epoch_end = now + epoch,
                   .cut_at = RS_NEVER};
}

int64_t rs_rate_bps(const rs_rate *r) {
    int64_t rate = r->found_bps;
    if (r->share_bps && r->share_bps < rate)
        rate = r->share_bps;
    if (r->model_bps && r->model_bps < rate)
        rate = r->model_bps;
    if (r->ceiling_bps < rate)
        rate = r->ceiling_bps;
    int64_t least = r->ceiling_bps < RS_RATE_LEAST ? r->ceiling_bps : RS_RATE_LEAST;
    return rate > least ? rate : least;
}

static uint64_t root(uint64_t square) {
    uint64_t low = 0, high = UINT64_C(1) << 20;
    while (low < high) {
        uint64_t middle = (low + high + 1) / 2;
        if (middle * middle <= square)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Three standard deviations of the loss seen in `expected` packets when it is `ppm` on average and comes in BURSTs. */
static uint32_t noise(uint32_t ppm, uint64_t expected) {
    return (uint32_t)(3 * root(BURST * (uint64_t)ppm * (1000000 - ppm) / expected));
}

static void cut(rs_rate *r, rs_time now, uint32_t lost_ppm) {
    int64_t base = rs_rate_bps(r), got_through = scaled(base, 1000000 - lost_ppm);
    bool again = r->cut_at != RS_NEVER && now - r->cut_at < PLATEAU_TIME;
    r->got_through_bps = again ? got_through : 0;
    r->found_bps = scaled(got_through, 970000);
    if (r->found_bps < base / 8)
        r->found_bps = base / 8;
    r->cut_at = now;
    r->plateau = r->climb = 0;
    r->epoch_end = now + r->epoch;
}

/* The cut for this receiver changed nothing: take it back, and its loss as given. */
static void take_back(rs_rate *r, rs_time now, rs_loss_watch *w, uint32_t ppm) {
    w->baseline_ppm = (w->cut_ppm + ppm) / 2;
    w->proven_ppm = w->baseline_ppm / 4 * 5;
    if (w->proven_ppm > 900000)
        w->proven_ppm = 900000;
    if (w->before_bps > r->found_bps)
        r->found_bps = w->before_bps;
    r->got_through_bps = 0;
    r->cut_at = RS_NEVER;
    r->epoch_end = now + r->epoch;
}

/* One cut for losses at a time, and none before it is known what the last one did. */
static bool is_trying_other(const rs_rate *r, rs_time now, const rs_loss_watch *w) {
    return r->trying && r->trying != w && now - r->cut_at < TRIED_TIME;
}

static rs_loss_verdict tried(rs_rate *r, rs_time now, rs_loss_watch *w, uint32_t ppm) {
    bool futile = ppm / 6 >= w->cut_ppm / 10;
    r->trying = NULL;
    if (futile)
        take_back(r, now, w, ppm);
    w->cut_ppm = 0;
    return futile ? RS_LOSS_CUT : RS_LOSS_FINE;
}

rs_loss_verdict rs_rate_feedback(rs_rate *r, rs_time now, rs_loss_watch *w, uint64_t expected, uint64_t lost,
                                 bool dropped) {
    if (expected < RS_RATE_SAMPLE)
        return RS_LOSS_UNSURE;
    uint32_t ppm = (uint32_t)((lost < expected ? lost : expected) * 1000000 / expected);
    if (w->cut_ppm && !dropped)
        return expected < SAMPLE_TRIED ? RS_LOSS_UNSURE : tried(r, now, w, ppm);
    uint32_t usual = w->baseline_ppm > ppm ? w->baseline_ppm : ppm;
    bool much = ppm > w->baseline_ppm + LOSS_PPM + noise(usual, expected);
    if (!much && !(dropped && ppm > DROP_PPM)) {
        if (expected < SAMPLE_MOST)
            return RS_LOSS_UNSURE;
        w->baseline_ppm = (uint32_t)((int64_t)w->baseline_ppm + ((int64_t)ppm - (int64_t)w->baseline_ppm) / 16);
        if (w->baseline_ppm > w->proven_ppm)
            w->baseline_ppm = w->proven_ppm;
        return RS_LOSS_FINE;
    }
    if (!dropped && is_trying_other(r, now, w))
        return RS_LOSS_FINE;
    w->before_bps = rs_rate_bps(r);
    cut(r, now, dropped || ppm < w->baseline_ppm ? ppm : ppm - w->baseline_ppm);
    w->cut_ppm = dropped ? 0 : ppm;
    r->trying = dropped ? NULL : w;
    return RS_LOSS_CUT;
}

/* Near what got through last: slowly (the plateau of a cubic), for a while. Else in steps that double every other
 * epoch. */
static int64_t step(rs_rate *r) {
    int64_t near = r->got_through_bps / 16;
    if (r->got_through_bps && r->plateau < PLATEAU_EPOCHS && r->found_bps > r->got_through_bps - near &&
        r->found_bps < r->got_through_bps + near) {
        r->plateau++;
        return r->found_bps / 256 + 1;
    }
    uint32_t doublings = r->climb / 2 < 3 ? r->climb / 2 : 3;
    r->climb++;
    return (r->found_bps / 32 + 1) << doublings;
}

bool rs_rate_tick(rs_rate *r, rs_time now) {
    if (now < r->epoch_end)
        return false;
    int64_t before = rs_rate_bps(r);
    r->epoch_end = now + r->epoch;
    if (r->found_bps < r->ceiling_bps)
        r->found_bps += step(r);
    if (r->found_bps > r->ceiling_bps)
        r->found_bps = r->ceiling_bps;
    return rs_rate_bps(r) != before;
}
