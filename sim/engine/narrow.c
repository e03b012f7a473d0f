#include "engine/narrow.h"

#include <math.h>
#include <stdlib.h>

#include "core/wan/congestion.h"
#include "core/wan/pulses.h"

#define MS INT64_C(1000000)
#define SECONDS_MOST 3600
#define STEPS 4          /* in a millisecond: a mark or a loss comes so late at most */
#define PACKET 1500.0    /* bytes */
#define BETA 0.7         /* RFC 9438, 4.6 */
#define NIC 1.25e6       /* bytes in a ms */
#define REPORTS_START 24 /* in a round trip, of ours, while it sends in pulses and asks for them */
/* BBR's, as net/ipv4/tcp_bbr.c of Linux has them: */
#define BW_ROUNDS 10       /* over which it keeps the most that came out */
#define HIGH_GAIN 2.89     /* in start-up */
#define PROBE_RTT 10000    /* ms */
#define PROBE_RTT_FOR 200  /* ms */
#define LEAST (4 * PACKET) /* its smallest window */

/* What was sent in one step. */
typedef struct {
    double there[2], lost[2]; /* bytes that the queue took, or had no room for */
    bool marked;              /* what it took */
} slice;

/* What comes back to the senders in one step. */
typedef struct {
    double acked[2], lost[2], marked[2];
    double waited; /* ms in the queue */
} word;

typedef enum { START_UP, DRAIN, PROBE_BW, PROBING_RTT } bbr_mode;

typedef struct {
    bool bbr, unpaced;
    double acked_now;              /* bytes */
    double train;                  /* bytes; HyStart ends slow start when acknowledgements of so many come in a row */
    double window, inflight, pace; /* bytes, and bytes in a millisecond */
    double rtt, least;             /* ms; the least of BBR's spell */
    bool started;                  /* slow start is over */
    double acked, heard, sent;     /* bytes, from the beginning; heard: those that were lost, too */
    double event_end;              /* losses of what was sent before are one event */
    int32_t events;
    double most, epoch, epoch_window, reno, prior; /* CUBIC */
    double *history;                               /* acked, by the step */
    bbr_mode mode;
    double bw, flat_bw;
    double rounds_bw[BW_ROUNDS];
    int round, flat, phase;
    double phase_at, round_end, least_at;
    double probe_end;            /* 0: what is under way is still more than it wants then */
    double idle_until;           /* what comes until then says nothing of the path */
    double conserve_until, kept; /* its window before losses, or before it looked for the least trip */
} tcp;

typedef struct {
    rs_wan_path path;
    double next, received, marked, sent; /* bytes */
    int report;                          /* ms between two statuses */
    double late_ms;                      /* as its place's */
    uint64_t random;
    rs_wan_pulse pulse;
    bool drains; /* it sends slower than its rate, to see the path without a queue */
} ours;

typedef struct {
    const sim_narrow_flow *how;
    bool is_tcp;
    tcp t;
    ours o;
} flow;

/* RFC 9438, 4: without its slow start (HyStart++), which ends earlier: it changes none of what is asserted here. */
static void cubic_heard(tcp *t, double now, double acked, double lost) {
    if (lost > 0 && t->heard > t->event_end + 1) {
        t->prior = t->window;
        t->most = t->window < t->most ? t->window * 0.85 : t->window;
        t->window *= BETA;
        t->epoch_window = t->reno = t->window;
        t->epoch = now;
        t->event_end = t->sent;
        t->started = true;
        t->events++;
    } else if (!t->started) {
        t->window += acked;
        if (t->unpaced && t->window > t->train) {
            t->started = true;
            t->most = t->epoch_window = t->reno = t->prior = t->window;
            t->epoch = now;
        }
    } else if (acked > 0) {
        double gap = t->most > t->epoch_window ? t->most - t->epoch_window : 0;
        double since = (now - t->epoch + t->rtt) / 1e3, k = cbrt(gap / PACKET / 0.4);
        double to = 0.4 * pow(since - k, 3) * PACKET + t->most;
        t->reno += (t->reno < t->prior ? 3 * 0.3 / 1.7 : 1) * acked / t->window * PACKET;
        to = to > t->reno ? to : t->reno;
        if (to > t->window)
            t->window += ((to < 1.5 * t->window ? to : 1.5 * t->window) - t->window) * acked / t->window;
    }
    t->pace = 1.2 * t->window / t->rtt;
}

static void bbr_measures(tcp *t, int step, double now, double acked) {
    int trip = (int)(t->rtt * STEPS), back = step > trip ? step - trip : 0;
    double came = (t->acked - t->history[back]) * STEPS / (step > back ? step - back : 1);
    double *here = &t->rounds_bw[t->round % BW_ROUNDS];
    *here = came > *here ? came : *here;
    t->bw = 10 * PACKET / t->rtt;
    for (int i = 0; i < BW_ROUNDS; i++)
        t->bw = t->rounds_bw[i] > t->bw ? t->rounds_bw[i] : t->bw;
    if (acked <= 0 || now < t->round_end || now < t->idle_until)
        return;
    t->round_end = now + t->rtt;
    t->rounds_bw[++t->round % BW_ROUNDS] = 0;
    if (t->started)
        return;
    bool grew = t->bw >= 1.25 * t->flat_bw;
    t->flat = grew ? 0 : t->flat + 1;
    t->flat_bw = grew ? t->bw : t->flat_bw;
    t->started = t->flat >= 3;
}

static void bbr_to(tcp *t, bbr_mode mode, double now) {
    t->mode = mode;
    t->phase = 2;
    t->phase_at = now;
    t->probe_end = 0;
}

/* The least round trip of ten seconds; then for a round trip and 0.2 s almost nothing is under way. */
static void bbr_looks_for_the_least_trip(tcp *t, double now, double acked) {
    bool over = t->least_at > 0 && now - t->least_at > PROBE_RTT;
    if (acked > 0 && (t->rtt <= t->least || over)) {
        t->least = t->rtt;
        t->least_at = now;
        if (over && t->mode != PROBING_RTT) {
            bbr_to(t, PROBING_RTT, now);
            t->kept = t->window > t->kept ? t->window : t->kept;
        }
    }
    if (t->mode != PROBING_RTT)
        return;
    t->idle_until = now + t->rtt;
    if (t->probe_end == 0 && t->inflight <= LEAST)
        t->probe_end = now + (t->rtt > PROBE_RTT_FOR ? t->rtt : PROBE_RTT_FOR);
    if (t->probe_end > 0 && now >= t->probe_end) {
        t->least_at = now;
        bbr_to(t, t->started ? PROBE_BW : START_UP, now);
    }
}

/* How much more than comes out is sent. */
static double bbr_gain(tcp *t, double now, double lost) {
    static const double gains[] = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
    double bdp = t->bw * t->least;
    if (t->mode == START_UP && t->started)
        bbr_to(t, DRAIN, now);
    if (t->mode == DRAIN && t->inflight <= bdp)
        bbr_to(t, PROBE_BW, now);
    if (t->mode != PROBE_BW)
        return t->mode == START_UP ? HIGH_GAIN : t->mode == DRAIN ? 1 / HIGH_GAIN : 1;
    double gain = gains[t->phase];
    bool over = now - t->phase_at > t->least;
    if (gain > 1)
        over = over && (lost > 0 || t->inflight >= gain * bdp);
    if (gain < 1)
        over = over || t->inflight <= bdp;
    if (over) {
        t->phase = (t->phase + 1) % 8;
        t->phase_at = now;
    }
    return gains[t->phase];
}

static void bbr_window(tcp *t, double now, double acked, double lost) {
    double target = (t->started ? 2 : HIGH_GAIN) * t->bw * t->least + 3 * PACKET;
    if (lost > 0 && t->heard > t->event_end + 1) { /* for a round trip no more is under way than now */
        t->kept = t->window > t->kept ? t->window : t->kept;
        t->window = t->inflight + acked;
        t->conserve_until = now + t->rtt;
        t->event_end = t->sent;
        t->events++;
    } else if (now < t->conserve_until) {
        t->window = t->window - lost > t->inflight + acked ? t->window - lost : t->inflight + acked;
    } else if (t->mode != PROBING_RTT) {
        t->window = (t->window > t->kept ? t->window : t->kept) + acked;
        t->window = t->started && t->window > target ? target : t->window; /* start-up has no bound */
        t->kept = 0;
    }
    t->window = t->window > LEAST && t->mode != PROBING_RTT ? t->window : LEAST;
}

static void bbr_heard(tcp *t, int step, double acked, double lost) {
    double now = (double)step / STEPS;
    bbr_measures(t, step, now, acked);
    bbr_looks_for_the_least_trip(t, now, acked);
    t->pace = bbr_gain(t, now, lost) * t->bw;
    bbr_window(t, now, acked, lost);
}

static void tcp_heard(tcp *t, int step, int rtt, const word *w, int which) {
    t->acked_now = w->acked[which];
    t->acked += w->acked[which];
    t->heard += w->acked[which] + w->lost[which];
    t->history[step] = t->acked;
    t->inflight -= w->acked[which] + w->lost[which];
    if (w->acked[which] > 0)
        t->rtt = rtt + w->waited;
    if (t->bbr)
        bbr_heard(t, step, w->acked[which], w->lost[which]);
    else
        cubic_heard(t, (double)step / STEPS, w->acked[which], w->lost[which] + w->marked[which]);
}

/* Exponential. */
static rs_time late(ours *o) {
    o->random = o->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth's, MMIX */
    return (rs_time)(-log(((double)(o->random >> 33) + 1) / 2147483648.0) * o->late_ms * (double)MS);
}

static void ours_heard(ours *o, int step, int rtt, const word *w, int which, int begins) {
    o->next += w->acked[which] + w->lost[which];
    o->received += w->acked[which];
    o->marked += w->marked[which];
    int report = o->path.found || rtt / REPORTS_START < 2 ? o->report : rtt / REPORTS_START;
    if (step <= begins * STEPS || step % (report * STEPS) != 0 || w->acked[which] <= 0)
        return;
    uint64_t next = (uint64_t)(o->next / PACKET);
    rs_time now = step * (MS / STEPS), trip = (rs_time)((rtt + w->waited) * 1e6), by = o->late_ms > 0 ? late(o) : 0;
    const rs_wan_sample s = {.now = now,
                             .rtt = trip + by,
                             .at = now + by,
                             .stamp = now - trip,
                             .next = next,
                             .received = next - (uint64_t)((o->next - o->received) / PACKET),
                             .marked = (uint64_t)(o->marked / PACKET),
                             .sent = (uint64_t)(o->sent / PACKET),
                             .pulse_end = o->pulse.end,
                             .limited = o->drains,
                             .sent_bps = o->path.rate_bps / (o->drains ? 10 : 7) * 7,
                             .part = 1};
    rs_wan_path_heard(&o->path, &s);
}

/* As agent/core/wan/sender.c. */
static double ours_sends(ours *o, rs_time now, int rtt) {
    o->drains = now < o->path.drain_end;
    double rate = (double)o->path.rate_bps * (o->drains ? 0.7 : 1);
    if (o->path.found)
        return rate;
    if (rs_wan_path_looks(&o->path))
        return rate;
    bool seen =
        rs_wan_pulse_ends(&o->pulse, now, (uint64_t)(o->sent / PACKET) + 1) && o->path.pulse_end == o->pulse.end;
    if (rs_wan_pulse_is_due(&o->pulse, now, seen, o->path.pulse_after))
        rs_wan_pulse_begin(&o->pulse, now, o->path.trip.least ? o->path.trip.least : rtt * MS,
                           rs_wan_path_known(&o->path), o->path.pulse_most, o->path.careful);
    return (double)rs_wan_pulse_rate(&o->pulse, now, o->path.rate_bps);
}

/* Bytes in that step. */
static double sends(flow *f, int step) {
    bool there = step >= f->how->begins_ms * STEPS && (f->how->ends_ms == 0 || step < f->how->ends_ms * STEPS);
    if (!f->is_tcp)
        return there ? ours_sends(&f->o, step * (MS / STEPS), (int)f->t.rtt) / 8e3 / STEPS : 0;
    double room = f->t.window - f->t.inflight, pace = f->t.pace / STEPS;
    if (f->t.unpaced) {
        pace = NIC / STEPS;
        if (room <= 0 && f->t.heard < f->t.event_end) /* RFC 6937: it goes back evenly, for a round trip */
            room = BETA * f->t.acked_now;
    }
    return room <= 0 || !there ? 0 : room < pace ? room : pace;
}

static void start(flow *f, const sim_narrow_flow *how, const sim_narrow_place *where, double *history) {
    int rtt = where->rtt_ms;
    f->how = how;
    f->is_tcp = how->kind == SIM_CUBIC || how->kind == SIM_BBR;
    f->t = (tcp){.bbr = how->kind == SIM_BBR,
                 .unpaced = where->unpaced && how->kind == SIM_CUBIC,
                 .train = where->link_bps / 8e3 * rtt / 2,
                 .window = 10 * PACKET,
                 .rtt = rtt,
                 .least = 1e9,
                 .pace = 10 * PACKET / rtt,
                 .history = history};
    f->o.late_ms = where->late_ms;
    f->o.report = rtt / 8 > 25 ? 25 : rtt / 8 < 2 ? 2 : rtt / 8;
    rs_wan_path_start(&f->o.path, how->kind == SIM_OWN ? RS_WAN_OWN : RS_WAN_FRIENDLY, (uint32_t)PACKET,
                      rs_wan_first_rate(rtt * MS, 3, 0, 0), INT64_C(100000000000));
}

/* The queue, and what of it has come out. */
typedef struct {
    slice *sent;
    word *back;
    int head, end;
    double queued;
} place;

static void take(place *p, const sim_narrow_place *where, double link, int now, const double rate[2]) {
    double all = rate[0] + rate[1], over = p->queued + all - link - where->queue;
    double lost = over > 0 && all > 0 ? (over < all ? over / all : 1) : 0;
    p->sent[now] = (slice){{rate[0] * (1 - lost), rate[1] * (1 - lost)},
                           {rate[0] * lost, rate[1] * lost},
                           where->mark > 0 && p->queued > where->mark};
    p->queued += all * (1 - lost);
}

/* What comes out, back at the senders after a round trip. */
static void let_out(place *p, int now, int rtt, double link) {
    int heard = now + rtt * STEPS;
    word *out = &p->back[heard < p->end ? heard : p->end];
    for (double left = link; p->head <= now; p->head++) {
        slice *s = &p->sent[p->head];
        double here = s->there[0] + s->there[1], part = here <= left ? 1 : left / here;
        for (int i = 0; i < 2; i++) {
            out->acked[i] += s->there[i] * part;
            out->marked[i] += s->marked ? s->there[i] * part : 0;
            out->lost[i] += s->lost[i];
            s->lost[i] = 0;
            s->there[i] *= 1 - part;
        }
        out->waited = (double)(now - p->head) / STEPS;
        p->queued -= here * part;
        left -= here * part;
        if (part < 1)
            break;
    }
}

bool sim_narrow_run(const sim_narrow_place *where, const sim_narrow_flow flows[2], int32_t seconds,
                    sim_narrow_result *out) {
    bool good = where->rtt_ms >= 1 && where->link_bps > 0 && seconds > 0 && seconds <= SECONDS_MOST;
    int end = (SIM_NARROW_WARM + (good ? seconds : 1) * 1000) * STEPS, rtt = where->rtt_ms;
    flow *f = calloc(2, sizeof *f);
    double *histories = calloc(2 * (size_t)end, sizeof *histories);
    place p = {
        .sent = calloc((size_t)end, sizeof *p.sent), .back = calloc((size_t)end + 1, sizeof *p.back), .end = end};
    good = good && f && histories && p.sent && p.back;
    *out = (sim_narrow_result){0};
    for (int i = 0; good && i < 2; i++)
        start(&f[i], &flows[i], where, histories + (size_t)i * (size_t)end);
    for (int now = 0; good && now < end; now++) {
        const word *w = &p.back[now];
        bool narrower = where->narrows_ms > 0 && now >= where->narrows_ms * STEPS;
        double link = where->link_bps / 8e3 / STEPS / (narrower ? 10 : 1), rate[2];
        bool counted = now > SIM_NARROW_WARM * STEPS, late = now >= end - SIM_NARROW_LATE * STEPS;
        for (int i = 0; i < 2; i++) {
            if (f[i].is_tcp && now >= flows[i].begins_ms * STEPS)
                tcp_heard(&f[i].t, now, rtt, w, i);
            else if (!f[i].is_tcp)
                ours_heard(&f[i].o, now, rtt, w, i, flows[i].begins_ms);
            rate[i] = sends(&f[i], now);
            f[i].t.inflight += rate[i];
            f[i].t.sent += rate[i];
            f[i].o.sent += rate[i];
            out->events[i] = counted ? out->events[i] : -f[i].t.events;
            out->carried[i] += counted ? w->acked[i] : 0;
            out->sent_for[i] += counted ? rate[i] : 0;
            out->late[i] += late ? w->acked[i] : 0;
            out->late_sent[i] += late ? rate[i] : 0;
        }
        take(&p, where, link, now, rate);
        let_out(&p, now, rtt, link);
    }
    for (int i = 0; good && i < 2; i++)
        out->events[i] += f[i].t.events;
    free(f);
    free(histories);
    free(p.sent);
    free(p.back);
    return good;
}
