/* Memory, from whom the caller named (rs_allocator). */
#ifndef RS_CORE_MEMORY_H
#define RS_CORE_MEMORY_H

#include <string.h>

#include "core/base/types.h"

/* Zeroed; NULL if it is short. */
static inline void *rs_memory_take(const rs_allocator *allocator, size_t size) {
    return allocator->alloc(allocator->context, size);
}

/* The same, beginning at a cache line: what is looked at together is there in as few as can be. */
#define RS_MEMORY_LINE 64u
static inline void *rs_memory_take_lines(const rs_allocator *allocator, size_t size) {
    uint8_t *all = allocator->alloc(allocator->context, size + RS_MEMORY_LINE + sizeof all);
    if (!all)
        return NULL;
    uint8_t *at = all + sizeof all;
    at += -(uintptr_t)at % RS_MEMORY_LINE;
    memcpy(at - sizeof all, &all, sizeof all); /* for who gives it back */
    return at;
}

static inline void rs_memory_give_lines(const rs_allocator *allocator, void *memory) {
    void *all;
    if (!memory)
        return;
    memcpy(&all, (uint8_t *)memory - sizeof all, sizeof all);
    allocator->release(allocator->context, all);
}

/* NULL is nothing. */
static inline void rs_memory_give(const rs_allocator *allocator, void *memory) {
    if (memory)
        allocator->release(allocator->context, memory);
}

#endif
