#include "daemon/store/reserve.h"

#include <stddef.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define HUGE (UINT64_C(2) << 20)

static uint64_t whole(uint64_t bytes) {
    return (bytes + HUGE - 1) / HUGE * HUGE;
}

bool rs_reserve_open(rs_reserve *reserve, uint64_t size) {
    *reserve = (rs_reserve){0};
    if (size == 0)
        return true;
    size = whole(size);
    void *map = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    (void)madvise(map, (size_t)size, MADV_HUGEPAGE); /* a wish */
    *reserve = (rs_reserve){.map = map, .size = size};
    return true;
}

void rs_reserve_close(rs_reserve *reserve) {
    if (reserve->map)
        munmap(reserve->map, (size_t)reserve->size);
    *reserve = (rs_reserve){0};
}

bool rs_reserve_fill(rs_reserve *reserve, uint64_t bytes) {
    uint64_t left = reserve->size - reserve->filled;
    uint64_t part = whole(bytes) < left ? whole(bytes) : left;
    if (part == 0)
        return false;
    if (madvise(reserve->map + reserve->filled, (size_t)part, MADV_POPULATE_WRITE) < 0)
        return false;
    reserve->filled += part;
    return reserve->filled < reserve->size;
}

void rs_reserve_give(rs_reserve *reserve, uint64_t bytes) {
    uint64_t part = whole(bytes) < reserve->filled ? whole(bytes) : reserve->filled;
    if (part == 0)
        return;
    reserve->filled -= part;
    (void)madvise(reserve->map + reserve->filled, (size_t)part, MADV_DONTNEED);
}
