#include "core/rate/rate.h"

/* Where no other source is named: test_rate. */
#define DROPPED \
    0.002 /* share lost, when the receiver says its socket dropped packets: there is no doubt whose loss it is */
#define TRIED_TIME INT64_C(1000000000) /* who says nothing for so long keeps no trial from others (a bound) */
#define DRAINS 0.97 /* of what got through: what stands in the queue drains within some 30 round trips (test_pace) */
#define CUT_MOST 8  /* a bound */
/* Binary increase (BIC: Xu, Harfoush, Rhee, INFOCOM 2004): half the way to what got through, then away from it in steps
 * that double; S_min and S_max as shares of the rate, for the window is not in packets here. */
#define STEP_LEAST 256
#define STEP_MOST 4

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

static void cut(rs_rate *r, rs_time now, double lost) {
    int64_t base = rs_rate_bps(r);
    r->got_through_bps = (int64_t)((double)base * (1 - lost));
    r->found_bps = (int64_t)((double)r->got_through_bps * DRAINS);
    if (r->found_bps < base / CUT_MOST)
        r->found_bps = base / CUT_MOST;
    r->cut_at = now;
    r->climb = 0;
    r->epoch_end = now + r->epoch;
}

/* The cut for this receiver changed nothing. */
static void take_back(rs_rate *r, rs_time now, const rs_loss_watch *w) {
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

static double share_of(uint64_t expected, uint64_t lost) {
    return (double)(lost < expected ? lost : expected) / (double)expected;
}

rs_loss_verdict rs_rate_feedback(rs_rate *r, rs_time now, rs_loss_watch *w, uint64_t expected, uint64_t lost,
                                 bool dropped) {
    if (expected < RS_RATE_SAMPLE)
        return RS_LOSS_UNSURE;
    if (dropped && share_of(expected, lost) > DROPPED) {
        rs_loss_trial_drop(&w->trial);
        w->joined = false;
        r->trying = r->trying == w ? NULL : r->trying;
        cut(r, now, share_of(expected, lost));
        return RS_LOSS_CUT;
    }
    bool other = is_trying_other(r, now, w);
    if (w->joined && other)
        return RS_LOSS_UNSURE;
    if (w->joined) { /* that trial helped */
        rs_loss_trial_left(&w->trial, expected, lost);
        w->joined = false;
        return RS_LOSS_FINE;
    }
    if (other)
        return RS_LOSS_FINE;
    switch (rs_loss_trial_judge(&w->trial, expected, lost, true)) {
    case RS_TRIAL_MORE:
        return RS_LOSS_UNSURE;
    case RS_TRIAL_BEGINS:
        w->before_bps = r->tried_bps = rs_rate_bps(r);
        cut(r, now, w->trial.before - w->trial.usual);
        r->trying = w;
        return RS_LOSS_CUT;
    case RS_TRIAL_FUTILE:
        take_back(r, now, w);
        r->trying = NULL;
        return RS_LOSS_CUT;
    case RS_TRIAL_HELPED:
        r->trying = NULL;
        return RS_LOSS_FINE;
    case RS_TRIAL_FINE:
        break;
    }
    return RS_LOSS_FINE;
}

void rs_rate_changed(rs_rate *r, rs_loss_watch *w, uint64_t expected, uint64_t lost) {
    if (expected == 0)
        return;
    if (w->joined) {
        rs_loss_trial_left(&w->trial, expected, lost);
        w->joined = false;
    } else if (r->trying && r->trying != w) {
        double part = (double)rs_rate_bps(r) / (double)r->tried_bps;
        w->joined =
            rs_loss_trial_would_show(share_of(expected, lost), part) && rs_loss_trial_join(&w->trial, expected, lost);
    }
}

static int64_t step(rs_rate *r) {
    int64_t least = r->found_bps / STEP_LEAST + 1, most = r->found_bps / STEP_MOST + 1, want;
    if (r->found_bps < r->got_through_bps)
        want = (r->got_through_bps - r->found_bps) / 2;
    else
        want = least << (r->climb++ % 32);
    return want < least ? least : want < most ? want : most;
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
