/* RMTP: reports of what is here go to the region's designated receiver (of the highest regions: to the sender) at
 * regular times; it mends what they show to be missing. */
#include "baselines/repairer.h"

#define TIMER_STATUS 0
#define LAST_REPORTS 3 /* after all is here: a lost one would make the parent mend in vain */

typedef struct {
    rs_timer status;
    uint32_t last;
} rmtp;

static void rmtp_begin(baseline *b, rs_time now) {
    rmtp *s = b->state = engine_take(b->base.sim, sizeof *s);
    repairer_begin(b);
    s->status = (rs_timer){.kind = TIMER_STATUS};
    /* All of a region report at about the same time: what they miss together can be mended together. */
    rs_time jitter = (rs_time)(baseline_uniform(b, 0, 0.5) * (double)b->params.collect_ns);
    if (b->params.parent != SIM_ERROR)
        rs_timer_set(&b->timers, &s->status, now + b->params.status_ns + jitter);
}

static void rmtp_missing(baseline *b, rs_time now, uint32_t sn) {
    (void)b;
    (void)now;
    (void)sn;
}

static void rmtp_heard(baseline *b, rs_time now, const message *m) {
    if (m->kind == MESSAGE_STATUS)
        repairer_reported(b, now, m);
}

static void rmtp_timer(baseline *b, rs_time now, rs_timer *timer) {
    rmtp *s = b->state;
    if (timer->kind == TIMER_MEND) {
        repairer_mend(b, now, timer);
        return;
    }
    repairer_report(b, now);
    if (!baseline_complete(b) || ++s->last < LAST_REPORTS)
        rs_timer_set(&b->timers, timer, now + b->params.status_ns);
}

static void rmtp_sent_all(baseline *b, rs_time now) {
    (void)b;
    (void)now;
}

static void rmtp_free(baseline *b) {
    repairer_free(b);
    engine_give(b->base.sim, b->state);
}

const protocol RMTP = {.timers = 1,
                       .begin = rmtp_begin,
                       .missing = rmtp_missing,
                       .got = repairer_got,
                       .heard = rmtp_heard,
                       .timer = rmtp_timer,
                       .sent_all = rmtp_sent_all,
                       .free = rmtp_free};
