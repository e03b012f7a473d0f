/* Deadlines of one node: a binary heap of timers embedded in what they belong to. Equal deadlines fire in the order
 * they were set. */
#ifndef RS_CORE_TIMERS_H
#define RS_CORE_TIMERS_H

#include "core/base/types.h"

typedef struct {
    rs_time due;
    uint64_t order;
    uint32_t at; /* place in the heap + 1; 0 = not set */
    uint8_t kind;
    void *owner;
} rs_timer;

typedef struct {
    rs_timer **heap;
    uint32_t count, capacity;
    uint64_t order;
} rs_timers;

/* Makes room for `capacity` timers in all. RS_ERR_MEMORY leaves it as it was. */
rs_status rs_timers_reserve(rs_timers *timers, const rs_allocator *allocator, uint32_t capacity);
void rs_timers_free(rs_timers *timers, const rs_allocator *allocator);
/* RS_NEVER unsets. Room must have been reserved. */
void rs_timer_set(rs_timers *timers, rs_timer *timer, rs_time due);
rs_time rs_earliest(const rs_time *dues, size_t count); /* RS_NEVER if there is none */
rs_timer *rs_timers_first(const rs_timers *timers);     /* NULL if none */

#endif
