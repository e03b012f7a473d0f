/* SRM: requests and repairs go to the whole group, by whoever's random timer fires first. Distances are those of each
 * pair, as session messages tell them (every message does here: all hosts have one clock); timers adapt (Sec. VII). */
#include "baselines/baseline.h"
#include "baselines/srm_law.h"

#include <string.h>

typedef enum { TIMER_REQUEST, TIMER_REPAIR, TIMER_SESSION } timer_kind;

typedef struct {
    rs_timer request, repair; /* the latter also ends a round in which this member might have repaired */
    rs_time ignore_until;     /* requests of others belong to the round that was backed off for */
    rs_time hold_until;
    rs_time missed_at, asked_at; /* since when it is missing; since when it is to be repaired, 0: it is not */
    float request_delay;         /* until the first request, in distances; negative: there was none */
    uint32_t sn, backoff, requests, repairs;
} srm_packet;

typedef struct {
    rs_timer session;
    uint32_t source;
    float *distances; /* by host, smoothed, ns; 0 = not heard yet */
    uint32_t known;   /* length of `distances` */
    srm_law request, repair;
    srm_packet packets[];
} srm;

static srm *state_of(baseline *b) {
    return b->state;
}

static void srm_begin(baseline *b, rs_time now) {
    srm *s = b->state = engine_take(b->base.sim, sizeof *s + b->count * sizeof s->packets[0]);
    s->source = b->base.node; /* until it is heard */
    s->request = srm_law_new(b->params.c1, b->params.c2, SRM_START_MOST, b->params.members);
    s->repair = srm_law_new(b->params.d1, b->params.d2, b->params.d1, b->params.members);
    s->session = (rs_timer){.kind = TIMER_SESSION};
    rs_timer_set(&b->timers, &s->session, now + (rs_time)(baseline_uniform(b, 0.5, 1) * (double)b->params.session_ns));
    for (uint32_t sn = 0; sn < b->count; sn++) {
        srm_packet *p = &s->packets[sn];
        p->sn = sn;
        p->request_delay = -1;
        p->request = (rs_timer){.kind = TIMER_REQUEST, .owner = p};
        p->repair = (rs_timer){.kind = TIMER_REPAIR, .owner = p};
    }
}

static double distance(baseline *b, uint32_t host) {
    const srm *s = state_of(b);
    bool heard = host < s->known && s->distances[host] > 0;
    return heard ? (double)s->distances[host] : (double)b->params.distance_ns;
}

static void measure(baseline *b, rs_time now, const message *m) {
    srm *s = state_of(b);
    if (m->origin >= s->known) {
        uint32_t known = m->origin + m->origin / 4 + 64;
        float *more = engine_take(b->base.sim, known * sizeof *more);
        if (s->known)
            memcpy(more, s->distances, s->known * sizeof *more);
        engine_give(b->base.sim, s->distances);
        s->distances = more;
        s->known = known;
    }
    float *d = &s->distances[m->origin], took = (float)(now - m->sent_at);
    *d = *d > 0 ? *d + (took - *d) / 8 : took > 1 ? took : 1;
}

/* The next request after U[c1, c1 + c2] x distance x 2^backoff. */
static void wait_to_ask(baseline *b, rs_time now, srm_packet *p) {
    srm *s = state_of(b);
    double chance = baseline_uniform(b, 0, 1);
    rs_time due = now + srm_law_wait(&s->request, chance, distance(b, s->source), p->backoff);
    p->ignore_until = p->backoff ? now + (due - now) / 2 : now;
    rs_timer_set(&b->timers, &p->request, due);
}

static void back_off(baseline *b, rs_time now, srm_packet *p) {
    p->backoff += p->backoff < b->params.backoff_limit;
    wait_to_ask(b, now, p);
}

static void srm_missing(baseline *b, rs_time now, uint32_t sn) {
    srm *s = state_of(b);
    s->packets[sn].missed_at = now;
    if (!b->params.fixed_timers)
        srm_law_adapt(&s->request);
    wait_to_ask(b, now, &s->packets[sn]);
}

static void srm_got(baseline *b, rs_time now, uint32_t sn) {
    (void)now;
    srm *s = state_of(b);
    srm_packet *p = &s->packets[sn];
    rs_timer_set(&b->timers, &p->request, RS_NEVER);
    if (p->requests) {
        srm_law_count(&s->request, p->requests - 1);
        srm_law_took(&s->request, (double)p->request_delay);
    }
}

/* Its own request, or another's. */
static void asked_for(baseline *b, rs_time now, srm_packet *p) {
    if (p->requests++ == 0)
        p->request_delay = (float)((double)(now - p->missed_at) / distance(b, state_of(b)->source));
}

static void requested(baseline *b, rs_time now, const message *m) {
    srm *s = state_of(b);
    srm_packet *p = &s->packets[m->sn];
    baseline_exists(b, now, m->sn + 1);
    if (!rs_seqset_has(&b->here, m->sn)) {
        asked_for(b, now, p);
        if (now >= p->ignore_until)
            back_off(b, now, p);
    } else if (!p->asked_at && now >= p->hold_until) {
        if (!b->params.fixed_timers)
            srm_law_adapt(&s->repair);
        p->asked_at = now;
        p->repairs = 0;
        double chance = baseline_uniform(b, 0, 1);
        rs_timer_set(&b->timers, &p->repair, now + srm_law_wait(&s->repair, chance, distance(b, m->origin), 0));
    }
}

/* A repair, of whoever, makes others' repairs superfluous for a while. */
static void hold(baseline *b, rs_time now, srm_packet *p) {
    srm *s = state_of(b);
    p->hold_until = now + (rs_time)(SRM_HOLD * distance(b, s->source));
    if (p->asked_at && p->repairs++ == 0)
        srm_law_took(&s->repair, (double)(now - p->asked_at) / distance(b, s->source));
    rs_timer_set(&b->timers, &p->repair, p->asked_at ? p->hold_until : RS_NEVER);
}

static void srm_heard(baseline *b, rs_time now, const message *m) {
    srm *s = state_of(b);
    measure(b, now, m);
    if (m->kind == MESSAGE_DATA)
        s->source = m->origin;
    if (m->kind == MESSAGE_REPAIR)
        hold(b, now, &s->packets[m->sn]);
    else if (m->kind == MESSAGE_REQUEST)
        requested(b, now, m);
}

static void say(baseline *b, rs_time now, message_kind kind, uint32_t sn) {
    message m = baseline_message(b, now, kind, sn);
    baseline_to_group(b, &m, b->params.group);
}

/* It is due, or its round has ended. */
static void repair_timer(baseline *b, rs_time now, srm_packet *p) {
    srm *s = state_of(b);
    if (p->repairs) {
        srm_law_count(&s->repair, p->repairs - 1);
        p->asked_at = 0;
        return;
    }
    say(b, now, MESSAGE_REPAIR, p->sn);
    if (!b->params.fixed_timers)
        srm_law_was_first(&s->repair);
    hold(b, now, p);
}

static void srm_timer(baseline *b, rs_time now, rs_timer *timer) {
    srm *s = state_of(b);
    srm_packet *p = timer->owner;
    switch ((timer_kind)timer->kind) {
    case TIMER_REQUEST:
        say(b, now, MESSAGE_REQUEST, p->sn);
        asked_for(b, now, p);
        if (!b->params.fixed_timers)
            srm_law_was_first(&s->request);
        back_off(b, now, p);
        break;
    case TIMER_REPAIR:
        repair_timer(b, now, p);
        break;
    case TIMER_SESSION:
        say(b, now, MESSAGE_SESSION, 0);
        rs_timer_set(&b->timers, timer, now + b->params.session_ns);
        break;
    }
}

/* Its session message tells at once how far the source got: the last packets' losses need not wait for a second. */
static void srm_sent_all(baseline *b, rs_time now) {
    say(b, now, MESSAGE_SESSION, 0);
}

static void srm_free(baseline *b) {
    if (b->state)
        engine_give(b->base.sim, state_of(b)->distances);
    engine_give(b->base.sim, b->state);
}

const protocol SRM = {.timers = 2,
                      .begin = srm_begin,
                      .missing = srm_missing,
                      .got = srm_got,
                      .heard = srm_heard,
                      .timer = srm_timer,
                      .sent_all = srm_sent_all,
                      .free = srm_free};
