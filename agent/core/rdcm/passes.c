#include "core/rdcm/passes.h"

#define FEW 16 /* packets that tell no rate (a bound) */

static const rs_pass *back(const rs_passes *p, uint32_t steps) {
    return &p->ring[(p->newest + RS_PASSES - steps) % RS_PASSES];
}

void rs_passes_note(rs_passes *p, rs_time now, uint64_t top, rs_time grain) {
    rs_pass *newest = &p->ring[p->newest];
    if (p->count && now - newest->first < grain) {
        newest->top = top;
        newest->at = now;
        return;
    }
    if (p->count == RS_PASSES)
        p->forgotten = back(p, RS_PASSES - 1)->top;
    else
        p->count++;
    p->newest = (p->newest + 1) % RS_PASSES;
    p->ring[p->newest] = (rs_pass){.top = top, .first = now, .at = now};
}

uint64_t rs_passes_by(const rs_passes *p, rs_time at) {
    for (uint32_t i = 0; i < p->count; i++)
        if (back(p, i)->at <= at)
            return back(p, i)->top;
    return p->forgotten;
}

rs_time rs_passes_when(const rs_passes *p, uint64_t sn) {
    rs_time when = RS_NEVER;
    for (uint32_t i = 0; i < p->count; i++) {
        if (back(p, i)->top <= sn)
            return when;
        when = back(p, i)->at;
    }
    return sn < p->forgotten ? INT64_MIN : when;
}

rs_time rs_passes_oldest(const rs_passes *p) {
    return p->count ? back(p, p->count - 1)->at : INT64_MIN;
}

rs_time rs_passes_time(const rs_passes *p, uint32_t packets, rs_time otherwise) {
    uint64_t many = p->count > 1 ? back(p, 0)->top - back(p, p->count - 1)->top : 0;
    return many < FEW ? otherwise : (back(p, 0)->at - back(p, p->count - 1)->at) / (rs_time)many * (rs_time)packets;
}
