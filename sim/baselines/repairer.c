#include "baselines/repairer.h"

#include <string.h>

#define REPAIR_RTTS 4 /* of a message, that a repair may take: it is longer, and waits behind data */

typedef struct {
    rs_timer timer;
    uint64_t asked[BASELINE_CHILDREN / 64]; /* by which children */
    bool any;
    uint32_t sn;
} mended;

struct repairer {
    double *rtt;                         /* to each child, smoothed, ns */
    rs_time *repaired;                   /* [child][sn]: when it was last mended; 0 = never */
    uint32_t highest[BASELINE_CHILDREN]; /* of each child's last report */
    mended packets[];
};

void repairer_begin(baseline *b) {
    struct repairer *r = engine_take(b->base.sim, sizeof *r + b->count * sizeof r->packets[0]);
    r->repaired = engine_take(b->base.sim, (size_t)b->params.child_count * b->count * sizeof *r->repaired);
    r->rtt = engine_take(b->base.sim, b->params.child_count * sizeof *r->rtt);
    for (uint32_t sn = 0; sn < b->count; sn++) {
        r->packets[sn] = (mended){.sn = sn};
        r->packets[sn].timer = (rs_timer){.kind = TIMER_MEND, .owner = &r->packets[sn]};
    }
    for (uint32_t i = 0; i < b->params.child_count; i++)
        r->rtt[i] = (double)b->params.distance_ns;
    b->mends = r;
}

void repairer_free(baseline *b) {
    if (!b->mends)
        return;
    engine_give(b->base.sim, b->mends->repaired);
    engine_give(b->base.sim, b->mends->rtt);
    engine_give(b->base.sim, b->mends);
}

uint32_t repairer_child(baseline *b, rs_time now, const message *m) {
    for (uint32_t i = 0; i < b->params.child_count; i++)
        if (b->params.children[i].node == m->origin) {
            b->mends->rtt[i] += ((double)(now - m->sent_at) - b->mends->rtt[i]) / 8;
            return i;
        }
    return BASELINE_CHILDREN;
}

static rs_time *repaired_at(baseline *b, uint32_t child, uint32_t sn) {
    return &b->mends->repaired[(size_t)child * b->count + sn];
}

void repairer_ask(baseline *b, rs_time now, uint32_t child, uint32_t sn, rs_time said_at) {
    rs_time last = *repaired_at(b, child, sn);
    if (last && said_at < last + REPAIR_RTTS * (rs_time)b->mends->rtt[child]) /* it cannot know of the repair yet */
        return;
    mended *p = &b->mends->packets[sn];
    p->asked[child / 64] |= UINT64_C(1) << (child % 64);
    p->any = true;
    if (rs_seqset_has(&b->here, sn) && !p->timer.at)
        rs_timer_set(&b->timers, &p->timer, now + b->params.collect_ns);
}

void repairer_got(baseline *b, rs_time now, uint32_t sn) {
    mended *p = &b->mends->packets[sn];
    if (p->any)
        rs_timer_set(&b->timers, &p->timer, now);
}

static bool asked(const mended *p, uint32_t child) {
    return p->asked[child / 64] >> (child % 64) & 1;
}

/* The children [from, end) are one group. */
static void mend_group(baseline *b, rs_time now, const mended *p, uint32_t from, uint32_t end) {
    const baseline_child *children = b->params.children;
    message m = baseline_message(b, now, MESSAGE_REPAIR, p->sn);
    uint32_t hops = 0;
    for (uint32_t i = from; i < end; i++)
        hops += asked(p, i) ? children[i].hops : 0;
    bool fewer = children[from].links < hops || b->params.protocol == BASELINE_TMTP;
    bool to_all = children[from].links && hops && fewer;
    for (uint32_t i = from; i < end; i++) {
        if (!to_all && !asked(p, i))
            continue;
        *repaired_at(b, i, p->sn) = now;
        if (!to_all)
            baseline_to_peer(b, &m, children[i].node);
    }
    if (to_all)
        baseline_to_group(b, &m, children[from].group);
}

void repairer_mend(baseline *b, rs_time now, rs_timer *timer) {
    mended *p = timer->owner;
    for (uint32_t from = 0, end; from < b->params.child_count; from = end) {
        for (end = from + 1; end < b->params.child_count; end++)
            if (b->params.children[end].group != b->params.children[from].group)
                break;
        mend_group(b, now, p, from, end);
    }
    memset(p->asked, 0, sizeof p->asked);
    p->any = false;
}

void repairer_report(baseline *b, rs_time now) {
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
void repairer_reported(baseline *b, rs_time now, const message *m) {
    struct repairer *r = b->mends;
    uint32_t child = repairer_child(b, now, m);
    if (child == BASELINE_CHILDREN)
        return;
    uint32_t end = m->highest == r->highest[child] ? b->end : m->highest;
    end = end < m->sn + 32 * LIST_MAX ? end : m->sn + 32 * LIST_MAX;
    r->highest[child] = m->highest;
    for (uint32_t sn = m->sn; sn < end; sn++) {
        uint32_t at = sn - m->sn;
        bool there = at / 32 < m->listed && (m->list[at / 32] >> (at % 32) & 1);
        if (!there)
            repairer_ask(b, now, child, sn, m->sent_at);
    }
}
