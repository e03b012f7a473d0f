/* SRM: requests and repairs go to the whole group, by whoever's random timer fires first. */
#include "baselines/baseline.h"

#define HOLD 3 /* distances of the source for which requests are not answered after a repair (Sec. III-B) */

typedef enum { TIMER_REQUEST, TIMER_REPAIR, TIMER_SESSION } timer_kind;

typedef struct {
    rs_timer request, repair;
    rs_time ignore_until; /* requests of others belong to the round that was backed off for */
    rs_time hold_until;
    uint32_t sn, backoff;
} srm_packet;

typedef struct {
    rs_timer session;
    double distance; /* of the others, smoothed, ns: all messages tell, for repairs make queues */
    srm_packet packets[];
} srm;

static srm *state_of(baseline *b) {
    return b->state;
}

static void srm_begin(baseline *b, rs_time now) {
    srm *s = b->state = engine_take(b->base.sim, sizeof *s + b->count * sizeof s->packets[0]);
    s->distance = (double)b->params.distance_ns;
    s->session = (rs_timer){.kind = TIMER_SESSION};
    rs_timer_set(&b->timers, &s->session, now + (rs_time)(baseline_uniform(b, 0.5, 1) * (double)b->params.session_ns));
    for (uint32_t sn = 0; sn < b->count; sn++) {
        srm_packet *p = &s->packets[sn];
        p->sn = sn;
        p->request = (rs_timer){.kind = TIMER_REQUEST, .owner = p};
        p->repair = (rs_timer){.kind = TIMER_REPAIR, .owner = p};
    }
}

/* The next request after U[c1, c1 + c2] x distance x 2^backoff. */
static void wait_to_ask(baseline *b, rs_time now, srm_packet *p) {
    double wait = baseline_uniform(b, b->params.c1, b->params.c2) * state_of(b)->distance;
    rs_time due = now + (rs_time)(wait * (double)(UINT64_C(1) << p->backoff));
    p->ignore_until = p->backoff ? now + (due - now) / 2 : now;
    rs_timer_set(&b->timers, &p->request, due);
}

static void back_off(baseline *b, rs_time now, srm_packet *p) {
    p->backoff += p->backoff < b->params.backoff_limit;
    wait_to_ask(b, now, p);
}

static void srm_missing(baseline *b, rs_time now, uint32_t sn) {
    wait_to_ask(b, now, &state_of(b)->packets[sn]);
}

static void srm_got(baseline *b, rs_time now, uint32_t sn) {
    (void)now;
    rs_timer_set(&b->timers, &state_of(b)->packets[sn].request, RS_NEVER);
}

static void requested(baseline *b, rs_time now, const message *m) {
    srm_packet *p = &state_of(b)->packets[m->sn];
    baseline_exists(b, now, m->sn + 1);
    if (!rs_seqset_has(&b->here, m->sn)) {
        if (now >= p->ignore_until)
            back_off(b, now, p);
    } else if (!p->repair.at && now >= p->hold_until) {
        double wait = baseline_uniform(b, b->params.d1, b->params.d2) * (double)(now - m->sent_at);
        rs_timer_set(&b->timers, &p->repair, now + (rs_time)wait);
    }
}

/* A repair, of whoever, makes others' repairs superfluous for a while. */
static void hold(baseline *b, rs_time now, srm_packet *p) {
    rs_timer_set(&b->timers, &p->repair, RS_NEVER);
    p->hold_until = now + (rs_time)(HOLD * state_of(b)->distance);
}

static void srm_heard(baseline *b, rs_time now, const message *m) {
    srm *s = state_of(b);
    s->distance += ((double)(now - m->sent_at) - s->distance) / 8;
    if (m->kind == MESSAGE_REPAIR)
        hold(b, now, &s->packets[m->sn]);
    else if (m->kind == MESSAGE_REQUEST)
        requested(b, now, m);
}

static void say(baseline *b, rs_time now, message_kind kind, uint32_t sn) {
    message m = baseline_message(b, now, kind, sn);
    baseline_to_group(b, &m, b->params.group);
}

static void srm_timer(baseline *b, rs_time now, rs_timer *timer) {
    srm_packet *p = timer->owner;
    switch ((timer_kind)timer->kind) {
    case TIMER_REQUEST:
        say(b, now, MESSAGE_REQUEST, p->sn);
        back_off(b, now, p);
        break;
    case TIMER_REPAIR:
        say(b, now, MESSAGE_REPAIR, p->sn);
        hold(b, now, p);
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
