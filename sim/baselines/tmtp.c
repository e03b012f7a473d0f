/* TMTP: domain managers form a tree. Whoever misses a packet says so to its domain, after a random wait that suppresses
 * what others would say; the manager mends by multicast in the domain. Regular acknowledgements to the manager, and of
 * managers to theirs, show what nobody asked for: the last packets. */
#include "baselines/repairer.h"

typedef enum { TIMER_NACK, TIMER_ACK } timer_kind;

#define NACK_WAIT 8    /* distances, within which the first NACK of a domain is heard by most (tests/sim) */
#define LAST_ACKS 3    /* after all is here: a lost one would make the parent mend in vain */
#define DOMAIN_RTTS 4  /* from a NACK until the next, if nothing came; doubles */
#define BACKOFF_MOST 5 /* doublings */

typedef struct {
    rs_timer nack;
    uint32_t sn, tries;
} tmtp_packet;

typedef struct {
    rs_timer ack;
    uint32_t last;
    double distance; /* of the domain's members, smoothed, ns */
    tmtp_packet packets[];
} tmtp;

static tmtp *state_of(baseline *b) {
    return b->state;
}

static void tmtp_begin(baseline *b, rs_time now) {
    tmtp *s = b->state = engine_take(b->base.sim, sizeof *s + b->count * sizeof s->packets[0]);
    repairer_begin(b);
    s->distance = (double)b->params.collect_ns;
    s->ack = (rs_timer){.kind = TIMER_ACK};
    for (uint32_t sn = 0; sn < b->count; sn++) {
        s->packets[sn] = (tmtp_packet){.sn = sn};
        s->packets[sn].nack = (rs_timer){.kind = TIMER_NACK, .owner = &s->packets[sn]};
    }
    rs_time jitter = (rs_time)(baseline_uniform(b, 0, 0.5) * (double)b->params.collect_ns);
    if (b->params.parent != SIM_ERROR)
        rs_timer_set(&b->timers, &s->ack, now + b->params.status_ns + jitter);
}

static void tmtp_missing(baseline *b, rs_time now, uint32_t sn) {
    tmtp *s = state_of(b);
    if (b->params.parent != SIM_ERROR)
        rs_timer_set(&b->timers, &s->packets[sn].nack,
                     now + (rs_time)(baseline_uniform(b, 0, NACK_WAIT) * s->distance));
}

static void tmtp_got(baseline *b, rs_time now, uint32_t sn) {
    rs_timer_set(&b->timers, &state_of(b)->packets[sn].nack, RS_NEVER);
    repairer_got(b, now, sn);
}

/* It was asked for, here or by a neighbour: the manager has so long. */
static void wait_for_repair(baseline *b, rs_time now, tmtp_packet *p) {
    tmtp *s = state_of(b);
    double wait = (DOMAIN_RTTS + baseline_uniform(b, 0, 1)) * 2 * s->distance + (double)b->params.collect_ns;
    rs_timer_set(&b->timers, &p->nack, now + (rs_time)(wait * (double)(UINT64_C(1) << p->tries)));
    p->tries += p->tries < BACKOFF_MOST;
}

static void nacked(baseline *b, rs_time now, const message *m) {
    tmtp *s = state_of(b);
    uint32_t child = repairer_child(b, now, m);
    for (uint32_t i = 0; i < m->listed; i++) {
        if (child != BASELINE_CHILDREN)
            repairer_ask(b, now, child, m->list[i], m->sent_at);
        else if (s->packets[m->list[i]].nack.at)
            wait_for_repair(b, now, &s->packets[m->list[i]]);
    }
    s->distance += ((double)(now - m->sent_at) - s->distance) / 8;
}

static void tmtp_heard(baseline *b, rs_time now, const message *m) {
    if (m->kind == MESSAGE_STATUS)
        repairer_reported(b, now, m);
    else if (m->kind == MESSAGE_REQUEST)
        nacked(b, now, m);
}

/* In one message what is due now or soon. */
static void nack(baseline *b, rs_time now, tmtp_packet *p) {
    message m = baseline_message(b, now, MESSAGE_REQUEST, p->sn);
    for (;;) {
        m.list[m.listed++] = p->sn;
        wait_for_repair(b, now, p);
        const rs_timer *first = rs_timers_first(&b->timers);
        if (m.listed == LIST_MAX || first->kind != TIMER_NACK || first->due > now + b->params.gap_ns)
            break;
        p = first->owner;
    }
    baseline_to_group(b, &m, b->params.domain);
}

static void tmtp_timer(baseline *b, rs_time now, rs_timer *timer) {
    tmtp *s = state_of(b);
    if (timer->kind == TIMER_MEND) {
        repairer_mend(b, now, timer);
    } else if (timer->kind == TIMER_NACK) {
        nack(b, now, timer->owner);
    } else {
        repairer_report(b, now);
        if (!baseline_complete(b) || ++s->last < LAST_ACKS)
            rs_timer_set(&b->timers, timer, now + b->params.status_ns);
    }
}

static void tmtp_sent_all(baseline *b, rs_time now) {
    (void)b;
    (void)now;
}

static void tmtp_free(baseline *b) {
    repairer_free(b);
    engine_give(b->base.sim, b->state);
}

const protocol TMTP = {.timers = 2,
                       .begin = tmtp_begin,
                       .missing = tmtp_missing,
                       .got = tmtp_got,
                       .heard = tmtp_heard,
                       .timer = tmtp_timer,
                       .sent_all = tmtp_sent_all,
                       .free = tmtp_free};
