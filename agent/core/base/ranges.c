#include "core/base/ranges.h"

#include <string.h>

static void erase(rs_ranges *set, uint32_t at, uint32_t many) {
    memmove(&set->range[at], &set->range[at + many], (set->count - at - many) * sizeof set->range[0]);
    set->count -= many;
}

static void merge_nearest(rs_ranges *set) {
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < set->count; i++) {
        uint64_t gap = set->range[i + 1].from - set->range[i].to;
        if (gap < set->range[best + 1].from - set->range[best].to)
            best = i;
    }
    set->range[best].to = set->range[best + 1].to;
    erase(set, best + 1, 1);
}

void rs_ranges_add(rs_ranges *set, uint64_t from, uint64_t to) {
    if (from >= to)
        return;
    uint32_t at = 0;
    if (set->count && set->range[set->count - 1].to < from)
        at = set->count; /* the usual case: losses are found in increasing order */
    while (at < set->count && set->range[at].to < from)
        at++;
    uint32_t last = at;
    while (last < set->count && set->range[last].from <= to) {
        if (set->range[last].from < from)
            from = set->range[last].from;
        if (set->range[last].to > to)
            to = set->range[last].to;
        last++;
    }
    if (last > at) {
        set->range[at] = (rs_range){from, to};
        erase(set, at + 1, last - at - 1);
        return;
    }
    if (set->count == RS_RANGES_CAP) {
        merge_nearest(set);
        rs_ranges_add(set, from, to); /* there is room now: at most one level deep */
        return;
    }
    memmove(&set->range[at + 1], &set->range[at], (set->count - at) * sizeof set->range[0]);
    set->range[at] = (rs_range){from, to};
    set->count++;
}

bool rs_ranges_has(const rs_ranges *set, uint64_t sn) {
    uint32_t at = 0;
    while (at < set->count && set->range[at].to <= sn)
        at++;
    return at < set->count && sn >= set->range[at].from;
}

bool rs_ranges_pop_sn(rs_ranges *set, uint64_t *sn) {
    if (set->count == 0)
        return false;
    *sn = set->range[0].from++;
    if (set->range[0].from == set->range[0].to)
        erase(set, 0, 1);
    return true;
}

rs_range rs_ranges_take(rs_ranges *set, uint32_t at) {
    rs_range taken = set->range[at];
    erase(set, at, 1);
    return taken;
}

bool rs_ranges_remove(rs_ranges *set, uint64_t sn) {
    uint32_t at = 0;
    while (at < set->count && set->range[at].to <= sn)
        at++;
    if (at == set->count || sn < set->range[at].from)
        return false;
    rs_range *r = &set->range[at];
    if (r->to - r->from == 1) {
        erase(set, at, 1);
    } else if (sn == r->from) {
        r->from++;
    } else if (sn + 1 == r->to) {
        r->to--;
    } else if (set->count < RS_RANGES_CAP) {
        memmove(r + 1, r, (set->count - at) * sizeof *r);
        set->count++;
        r[0].to = sn;
        r[1].from = sn + 1;
    }
    return true;
}
