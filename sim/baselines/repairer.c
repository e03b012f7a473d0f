#include "baselines/repairer.h"

#define REPAIR_TRIPS 4 /* of a message, that a repair may take: it is longer, and waits behind data */

typedef struct {
    rs_timer timer;
    uint64_t asked; /* by which children */
    uint32_t sn;
} mended;

struct repairer {
    double trip[BASELINE_CHILDREN];
    rs_time *repaired; /* [child][sn]: when it was last mended; 0 = never */
    mended packets[];
};

void repairer_begin(baseline *b) {
    struct repairer *r = engine_take(b->base.sim, sizeof *r + b->count * sizeof r->packets[0]);
    r->repaired = engine_take(b->base.sim, (size_t)b->params.child_count * b->count * sizeof *r->repaired);
    for (uint32_t sn = 0; sn < b->count; sn++) {
        r->packets[sn] = (mended){.sn = sn};
        r->packets[sn].timer = (rs_timer){.kind = TIMER_MEND, .owner = &r->packets[sn]};
    }
    for (uint32_t i = 0; i < b->params.child_count; i++)
        r->trip[i] = (double)b->params.distance_ns;
    b->mends = r;
}

void repairer_free(baseline *b) {
    if (b->mends)
        engine_give(b->base.sim, b->mends->repaired);
    engine_give(b->base.sim, b->mends);
}

uint32_t repairer_child(baseline *b, rs_time now, const message *m) {
    for (uint32_t i = 0; i < b->params.child_count; i++)
        if (b->params.children[i] == m->origin) {
            b->mends->trip[i] += ((double)(now - m->sent_at) - b->mends->trip[i]) / 8;
            return i;
        }
    return BASELINE_CHILDREN;
}

static rs_time *repaired_at(baseline *b, uint32_t child, uint32_t sn) {
    return &b->mends->repaired[(size_t)child * b->count + sn];
}

void repairer_ask(baseline *b, rs_time now, uint32_t child, uint32_t sn, rs_time said_at) {
    rs_time last = *repaired_at(b, child, sn);
    if (last && said_at < last + REPAIR_TRIPS * (rs_time)b->mends->trip[child]) /* it cannot know of the repair yet */
        return;
    mended *p = &b->mends->packets[sn];
    p->asked |= UINT64_C(1) << child;
    if (rs_seqset_has(&b->here, sn) && !p->timer.at)
        rs_timer_set(&b->timers, &p->timer, now + b->params.collect_ns);
}

void repairer_got(baseline *b, rs_time now, uint32_t sn) {
    mended *p = &b->mends->packets[sn];
    if (p->asked)
        rs_timer_set(&b->timers, &p->timer, now);
}

void repairer_mend(baseline *b, rs_time now, rs_timer *timer) {
    mended *p = timer->owner;
    message m = baseline_message(b, now, MESSAGE_REPAIR, p->sn);
    uint32_t hops = 0;
    for (uint32_t i = 0; i < b->params.child_count; i++)
        hops += p->asked >> i & 1 ? b->params.child_hops[i] : 0;
    bool to_all = b->params.repair_links && b->params.repair_links < hops;
    for (uint32_t i = 0; i < b->params.child_count; i++) {
        if (!to_all && !(p->asked >> i & 1))
            continue;
        *repaired_at(b, i, p->sn) = now;
        if (!to_all)
            baseline_to_peer(b, &m, b->params.children[i]);
    }
    if (to_all)
        baseline_to_group(b, &m, b->params.repair_group);
    p->asked = 0;
}
