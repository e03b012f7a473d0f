/* A small set of disjoint sn intervals with a fixed cap, in increasing order. When the cap is reached, the two
 * intervals with the narrowest gap between them become one: the set then names more than was put in, never less. */
#ifndef RS_CORE_RANGES_H
#define RS_CORE_RANGES_H

#include "core/base/types.h"

#define RS_RANGES_CAP 64

typedef struct {
    uint64_t from, to; /* [from, to) */
} rs_range;

typedef struct {
    uint32_t count;
    rs_range range[RS_RANGES_CAP];
} rs_ranges;

void rs_ranges_add(rs_ranges *set, uint64_t from, uint64_t to); /* nothing if from >= to */
bool rs_ranges_has(const rs_ranges *set, uint64_t sn);
bool rs_ranges_pop_sn(rs_ranges *set, uint64_t *sn); /* takes the least sn out; false if empty */
/* Takes one out; false if it is not in. One that would leave two intervals where only one fits stays in. */
bool rs_ranges_remove(rs_ranges *set, uint64_t sn);
/* Takes the first interval out; `at` = 0 is the first, count - 1 the last. */
rs_range rs_ranges_take(rs_ranges *set, uint32_t at);

#endif
