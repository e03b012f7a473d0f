/* LBRM: gaps are asked for at the site's logging server; heartbeats of the source, ever rarer, show the last ones. */
#include "baselines/repairer.h"

typedef enum { TIMER_ASK, TIMER_HEARTBEAT } timer_kind;

#define RETRY_FIRST_NS 1000000 /* until an answer has been timed */
#define RETRY_MOST_NS 20000000

typedef struct {
    rs_timer ask;
    rs_time asked_at;
    uint32_t sn, tries;
} lbrm_packet;

typedef struct {
    rs_timer heartbeat;
    rs_time heartbeat_ns;
    double answer;   /* time to one, smoothed; 0 = none yet */
    rs_time timeout; /* until what was not answered is asked for again; doubles, as TCP's does, without answers */
    rs_time doubled_at;
    lbrm_packet packets[];
} lbrm;

static lbrm *state_of(baseline *b) {
    return b->state;
}

static void lbrm_begin(baseline *b, rs_time now) {
    (void)now;
    lbrm *s = b->state = engine_take(b->base.sim, sizeof *s + b->count * sizeof s->packets[0]);
    repairer_begin(b);
    s->heartbeat = (rs_timer){.kind = TIMER_HEARTBEAT};
    s->timeout = RETRY_FIRST_NS;
    s->heartbeat_ns = b->params.heartbeat_ns;
    for (uint32_t sn = 0; sn < b->count; sn++) {
        s->packets[sn] = (lbrm_packet){.sn = sn};
        s->packets[sn].ask = (rs_timer){.kind = TIMER_ASK, .owner = &s->packets[sn]};
    }
}

static void lbrm_missing(baseline *b, rs_time now, uint32_t sn) {
    if (b->params.parent != SIM_ERROR)
        rs_timer_set(&b->timers, &state_of(b)->packets[sn].ask, now + b->params.gap_ns);
}

static void lbrm_got(baseline *b, rs_time now, uint32_t sn) {
    lbrm *s = state_of(b);
    lbrm_packet *p = &s->packets[sn];
    rs_timer_set(&b->timers, &p->ask, RS_NEVER);
    if (p->tries == 1) { /* else it is not known to which request this is the answer */
        s->answer += s->answer > 0 ? ((double)(now - p->asked_at) - s->answer) / 8 : (double)(now - p->asked_at);
        s->timeout = 2 * (rs_time)s->answer + b->params.collect_ns;
    }
    repairer_got(b, now, sn);
}

static void lbrm_heard(baseline *b, rs_time now, const message *m) {
    uint32_t child = m->kind == MESSAGE_REQUEST ? repairer_child(b, now, m) : BASELINE_CHILDREN;
    for (uint32_t i = 0; child != BASELINE_CHILDREN && i < m->listed; i++)
        repairer_ask(b, now, child, m->list[i], m->sent_at);
}

/* In one message what is due now or soon. */
static void ask(baseline *b, rs_time now, lbrm_packet *p) {
    lbrm *s = state_of(b);
    message m = baseline_message(b, now, MESSAGE_REQUEST, p->sn);
    if (p->tries && now - s->doubled_at > s->timeout) {
        s->timeout = 2 * s->timeout < RETRY_MOST_NS ? 2 * s->timeout : RETRY_MOST_NS;
        s->doubled_at = now;
    }
    for (;;) {
        p->asked_at = now;
        m.list[m.listed++] = p->sn;
        rs_timer_set(&b->timers, &p->ask, now + s->timeout);
        p->tries++;
        const rs_timer *first = rs_timers_first(&b->timers);
        if (m.listed == LIST_MAX || first->kind != TIMER_ASK || first->due > now + b->params.gap_ns)
            break;
        p = first->owner;
    }
    baseline_to_peer(b, &m, b->params.parent);
}

static void heartbeat(baseline *b, rs_time now) {
    lbrm *s = state_of(b);
    message m = baseline_message(b, now, MESSAGE_SESSION, 0);
    baseline_to_group(b, &m, b->params.group);
    rs_timer_set(&b->timers, &s->heartbeat, now + s->heartbeat_ns);
    s->heartbeat_ns =
        2 * s->heartbeat_ns < b->params.heartbeat_most_ns ? 2 * s->heartbeat_ns : b->params.heartbeat_most_ns;
}

static void lbrm_timer(baseline *b, rs_time now, rs_timer *timer) {
    if (timer->kind == TIMER_MEND)
        repairer_mend(b, now, timer);
    else if (timer->kind == TIMER_HEARTBEAT)
        heartbeat(b, now);
    else
        ask(b, now, timer->owner);
}

static void lbrm_sent_all(baseline *b, rs_time now) {
    rs_timer_set(&b->timers, &state_of(b)->heartbeat, now + b->params.heartbeat_ns);
}

static void lbrm_free(baseline *b) {
    repairer_free(b);
    engine_give(b->base.sim, b->state);
}

const protocol LBRM = {.timers = 2,
                       .begin = lbrm_begin,
                       .missing = lbrm_missing,
                       .got = lbrm_got,
                       .heard = lbrm_heard,
                       .timer = lbrm_timer,
                       .sent_all = lbrm_sent_all,
                       .free = lbrm_free};
