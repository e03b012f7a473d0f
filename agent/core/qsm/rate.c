#include "core/qsm/rate.h"

#include <string.h>

#define SECOND INT64_C(1000000000)
#define MS INT64_C(1000000)
#define LEAST 1000.0 /* mu_min, packets a second */
#define BEGIN 5000.0 /* ours begins with so many */
#define GROWTH 0.5   /* lambda of ours until a receiver falls behind, at each report of the region, and after that */
#define SLOW_GROWTH 0.005
#define CALM 16u          /* rounds, after which it grows twice as fast, */
#define CALMEST 2u        /* ... so often, */
#define UNFAIR 4.0        /* ... and so much faster if others have more */
#define USED 0.5          /* of the target rate is sent, in the mean of 40 ms: else the application sets the pace; */
#define USED_AT_FIRST 0.2 /* ... until a receiver falls behind the target grows faster than that mean can */
#define PAPER_GROWTH 0.05
#define LOSING 0.1       /* of the packets of a round, which a receiver finds missing: the network takes no more */
#define CATCH_UP 0.9     /* of the share of what it receives is sent to a region that falls behind, */
#define CUT 0.8          /* ... but not less than that of what was sent before, once the rate was found, */
#define SETTLE (10 * MS) /* ... and the next look at it is so long, and two rounds, after */
#define BURST 0.004      /* seconds of credits, */
#define BURST_LEAST 8.0
#define BURST_MOST 64.0
#define SLACK 0.015       /* seconds: what waits longer before a node is too much */
#define MOST 5e6          /* packets a second */
#define AHEAD 3.0         /* rounds' packets, at the target rate, that are sent without a report, */
#define AHEAD_LEAST 256.0 /* ... and so many at least; more would wait before something on the way, tokens behind it */
#define ROUND_WINDOW (5000 * MS) /* The shortest round counts for so long, or twice. */
#define FAR 0.5                  /* alpha stays within [1 - FAR, 1 + 2 FAR] */

/* Intervals that are over become samples. */
static void roll(rs_qsm_meter *meter, rs_time now) {
    if (meter->began == 0)
        meter->began = now;
    if (now - meter->began > (rs_time)(2 * RS_QSM_SAMPLES) * meter->interval) {
        memset(meter->sample, 0, sizeof meter->sample);
        meter->filled = RS_QSM_SAMPLES;
        meter->current = 0;
        meter->began = now - now % meter->interval;
    }
    while (now - meter->began >= meter->interval) {
        meter->sample[meter->place] = meter->current;
        meter->place = (meter->place + 1) % RS_QSM_SAMPLES;
        meter->filled += meter->filled < RS_QSM_SAMPLES;
        meter->current = 0;
        meter->began += meter->interval;
    }
}

void rs_qsm_meter_add(rs_qsm_meter *meter, rs_time now, uint32_t packets) {
    roll(meter, now);
    meter->current += packets;
}

uint32_t rs_qsm_meter_rate(rs_qsm_meter *meter, rs_time now) {
    uint64_t sum = 0;
    roll(meter, now);
    for (uint32_t i = 0; i < meter->filled; i++)
        sum += meter->sample[i];
    if (meter->filled == 0)
        return 0;
    uint64_t rate = sum * (uint64_t)SECOND / (meter->filled * (uint64_t)meter->interval);
    return rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
}

void rs_qsm_control_init(rs_qsm_control *c, rs_qsm_law law, double lambda, double least, rs_time interval,
                         rs_time round_most, rs_time now) {
    bool paper = law == RS_QSM_RATE_PAPER;
    *c = (rs_qsm_control){.law = law,
                          .lambda = lambda > 0 ? lambda
                                    : paper    ? PAPER_GROWTH
                                               : GROWTH,
                          .least = least > 0 ? least : LEAST,
                          .rho = 0.5,
                          .low = 32,
                          .high = 64,
                          .most = 64,
                          .alpha = 1,
                          .credits = 64,
                          .refill_from = now,
                          .refill_at = RS_NEVER,
                          .tuned_at = now,
                          .turns = 1,
                          .interval = interval,
                          .round_most = round_most,
                          .round_least = RS_NEVER,
                          .round_before = RS_NEVER,
                          .round_from = now};
    c->target = paper || c->least > BEGIN ? c->least : BEGIN;
    c->sent.interval = paper ? SECOND : 4 * MS;
}

static double rate(const rs_qsm_control *c) {
    return c->alpha * c->target;
}

/* Formula 4. */
static void set_timer(rs_qsm_control *c, rs_time now) {
    double missing = c->high - c->credits;
    missing = missing < c->most ? missing : c->most;
    c->refill_at = now + 1 + (rs_time)(missing / rate(c) * (double)SECOND);
}

static void refill(rs_qsm_control *c, rs_time now) {
    if (c->refill_at == RS_NEVER || now < c->refill_at)
        return;
    /* What elapsed while this process did not run is no reason for a burst. */
    double more = (double)(now - c->refill_from) / (double)SECOND * rate(c);
    c->credits += more < c->most ? more : c->most;
    c->refill_from = now;
    c->refill_at = RS_NEVER;
    if (c->credits >= c->high)
        c->credits = c->high;
    else
        set_timer(c, now);
}

/* Formula 3: once a second at most. */
static void tune(rs_qsm_control *c, rs_time now) {
    if (c->law != RS_QSM_RATE_PAPER || now - c->tuned_at < SECOND)
        return;
    double measured = (double)rs_qsm_meter_rate(&c->sent, now);
    if (c->limited && measured > 0) {
        c->alpha += c->rho * (c->target / measured - 1);
        c->alpha = c->alpha < 1 - FAR ? 1 - FAR : c->alpha > 1 + 2 * FAR ? 1 + 2 * FAR : c->alpha;
    }
    c->tuned_at = now;
    c->limited = false;
}

/* Tokens wait where packets do: without the end of a round only a few more are sent, then mu_min of them. */
static bool is_held(const rs_qsm_control *c) {
    rs_time least = c->round_before < c->round_least ? c->round_before : c->round_least;
    least = least == RS_NEVER ? c->interval : least < c->round_most ? least : c->round_most;
    double round = (double)least / (double)SECOND;
    double most = AHEAD * c->target * round;
    return c->law == RS_QSM_RATE_OURS && c->unreported >= c->turns * (most > AHEAD_LEAST ? most : AHEAD_LEAST);
}

static rs_time held_until(const rs_qsm_control *c) {
    return c->sent_at + (rs_time)((double)SECOND / c->least);
}

bool rs_qsm_control_may_send(rs_qsm_control *c, rs_time now) {
    refill(c, now);
    tune(c, now);
    if (c->credits >= 1)
        return !is_held(c) || now >= held_until(c);
    c->limited = true;
    return false;
}

void rs_qsm_control_sent(rs_qsm_control *c, rs_time now) {
    c->credits -= 1;
    c->sent_at = now;
    c->unreported++;
    rs_qsm_meter_add(&c->sent, now, 1);
    if (c->credits < c->low && c->refill_at == RS_NEVER) {
        c->refill_from = now;
        set_timer(c, now);
    }
}

void rs_qsm_control_round(rs_qsm_control *c, rs_time now, rs_time round, uint32_t turns) {
    if (now - c->round_from >= ROUND_WINDOW) {
        c->round_before = c->round_least;
        c->round_least = round;
        c->round_from = now;
    }
    c->round_least = round < c->round_least ? round : c->round_least;
    c->unreported = 0;
    c->turns = turns;
}

void rs_qsm_control_told(rs_qsm_control *c, rs_time now, const rs_qsm_report *word) {
    double next = c->target, sent = (double)rs_qsm_meter_rate(&c->sent, now), receives = (double)word->rate;
    rs_time round = word->round > 0 ? word->round : c->interval;
    double in_round = receives * (double)round / (double)SECOND;
    bool waits = (double)word->behind > BURST_MOST && (double)word->behind > receives * SLACK;
    bool loses = (double)word->missing > BURST_MOST / 4 && (double)word->missing > LOSING * in_round;
    if (word->early && (c->law == RS_QSM_RATE_PAPER || c->behind))
        return;
    if (word->early)
        c->unreported = 0;
    if (c->law == RS_QSM_RATE_PAPER)
        next = (1 + c->lambda) * (double)word->share;
    else if ((waits || loses) && sent > c->least) {
        if (now >= c->cut_until) {
            /* Of several senders those that have more than their part of what it receives give way. */
            double part = (double)word->share < receives ? (double)word->share : receives;
            next = CATCH_UP * part < c->target ? CATCH_UP * part : c->target;
            next = next > CUT * c->target || !c->behind ? next : CUT * c->target;
            c->cut_until = now + 2 * round + SETTLE;
        }
        c->behind = true;
        c->limited = false;
        c->calm = 0;
    } else if (c->limited && sent > c->target * (c->behind ? USED : USED_AT_FIRST) &&
               (!word->early || now - c->grown_at >= c->interval)) {
        double growth = SLOW_GROWTH * (double)(1u << c->calm / CALM);
        growth *= c->target < (double)word->share ? UNFAIR : 1;
        next = c->target * (1 + (c->behind && growth < c->lambda ? growth : c->lambda));
        c->limited = false;
        c->grown_at = now;
        c->calm += c->calm < CALMEST * CALM;
    }
    c->target = next < c->least ? c->least : next > MOST ? MOST : next;
    if (c->law == RS_QSM_RATE_OURS) { /* Slow senders send short bursts. */
        double burst = c->target * BURST;
        c->high = c->most = burst < BURST_LEAST ? BURST_LEAST : burst > BURST_MOST ? BURST_MOST : burst;
        c->low = c->high / 2;
    }
}

rs_time rs_qsm_control_at(const rs_qsm_control *c) {
    if (c->credits < 1)
        return c->refill_at;
    return is_held(c) ? held_until(c) : RS_NEVER;
}
