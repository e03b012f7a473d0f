#include "core/base/timers.h"

#include "core/base/memory.h"

#include <string.h>

rs_status rs_timers_reserve(rs_timers *t, const rs_allocator *allocator, uint32_t capacity) {
    if (capacity <= t->capacity)
        return RS_OK;
    if (capacity < t->capacity * 2)
        capacity = t->capacity * 2;
    rs_timer **heap = rs_memory_take(allocator, capacity * sizeof(rs_timer *));
    if (!heap)
        return RS_ERR_MEMORY;
    if (t->count)
        memcpy(heap, t->heap, t->count * sizeof(rs_timer *));
    rs_memory_give(allocator, t->heap);
    t->heap = heap;
    t->capacity = capacity;
    return RS_OK;
}

void rs_timers_free(rs_timers *t, const rs_allocator *allocator) {
    rs_memory_give(allocator, t->heap);
    *t = (rs_timers){0};
}

static bool before(const rs_timer *a, const rs_timer *b) {
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void place(rs_timers *t, uint32_t at, rs_timer *timer) {
    t->heap[at] = timer;
    timer->at = at + 1;
}

static void sift(rs_timers *t, uint32_t at) {
    rs_timer *timer = t->heap[at];
    while (at > 0 && before(timer, t->heap[(at - 1) / 2])) {
        place(t, at, t->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < t->count && before(t->heap[child + 1], t->heap[child]))
            child++;
        if (child >= t->count || !before(t->heap[child], timer))
            break;
        place(t, at, t->heap[child]);
        at = child;
    }
    place(t, at, timer);
}

void rs_timer_set(rs_timers *t, rs_timer *timer, rs_time due) {
    if (due == RS_NEVER) {
        if (timer->at == 0)
            return;
        uint32_t at = timer->at - 1;
        timer->at = 0;
        timer->due = RS_NEVER;
        rs_timer *last = t->heap[--t->count];
        if (last != timer) {
            place(t, at, last);
            sift(t, at);
        }
        return;
    }
    if (timer->at && timer->due == due)
        return;
    timer->due = due;
    timer->order = t->order++;
    if (timer->at == 0)
        place(t, t->count++, timer);
    sift(t, timer->at - 1);
}

rs_time rs_earliest(const rs_time *dues, size_t count) {
    rs_time due = RS_NEVER;
    for (size_t i = 0; i < count; i++)
        due = dues[i] < due ? dues[i] : due;
    return due;
}

rs_timer *rs_timers_first(const rs_timers *t) {
    return t->count ? t->heap[0] : NULL;
}
