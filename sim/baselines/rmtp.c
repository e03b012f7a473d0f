/* RMTP: reports of what is here go to the region's designated receiver (of the highest regions: to the sender) at
 * regular times; it mends what they show to be missing. */
#include "baselines/repairer.h"

#include <string.h>

#define TIMER_STATUS 0
#define LAST_REPORTS 3 /* after all is here: a lost one would make the parent mend in vain */

typedef struct {
    rs_timer status;
    uint32_t last;
    uint32_t highest[BASELINE_CHILDREN]; /* of each child's last report */
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

static void report(baseline *b, rs_time now) {
    uint32_t base = (uint32_t)rs_seqset_next_absent(&b->here, NULL, 0, b->count);
    message m = baseline_message(b, now, MESSAGE_STATUS, base);
    uint32_t words = b->highest > base ? (b->highest - base + 31) / 32 : 0;
    m.listed = words < LIST_MAX ? words : LIST_MAX;
    memset(m.list, 0, m.listed * sizeof m.list[0]);
    for (uint32_t i = 0; i < 32 * m.listed; i++)
        m.list[i / 32] |= (uint32_t)rs_seqset_has(&b->here, base + i) << (i % 32);
    baseline_to_peer(b, &m, b->params.parent);
}

/* What a child misses below the highest it has; and above, if nothing at all came to it since its last report. */
static void reported(baseline *b, rs_time now, const message *m) {
    rmtp *s = b->state;
    uint32_t child = repairer_child(b, now, m);
    if (child == BASELINE_CHILDREN)
        return;
    uint32_t end = m->highest == s->highest[child] ? b->end : m->highest;
    end = end < m->sn + 32 * LIST_MAX ? end : m->sn + 32 * LIST_MAX;
    s->highest[child] = m->highest;
    for (uint32_t sn = m->sn; sn < end; sn++) {
        uint32_t at = sn - m->sn;
        bool there = at / 32 < m->listed && (m->list[at / 32] >> (at % 32) & 1);
        if (!there)
            repairer_ask(b, now, child, sn, m->sent_at);
    }
}

static void rmtp_heard(baseline *b, rs_time now, const message *m) {
    if (m->kind == MESSAGE_STATUS)
        reported(b, now, m);
}

static void rmtp_timer(baseline *b, rs_time now, rs_timer *timer) {
    rmtp *s = b->state;
    if (timer->kind == TIMER_MEND) {
        repairer_mend(b, now, timer);
        return;
    }
    report(b, now);
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
