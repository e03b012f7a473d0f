/* Memory, from whom the caller named (rs_allocator). */
#ifndef RS_CORE_MEMORY_H
#define RS_CORE_MEMORY_H

#include "core/base/types.h"

/* Zeroed; NULL if it is short. */
static inline void *rs_memory_take(const rs_allocator *allocator, size_t size) {
    return allocator->alloc(allocator->context, size);
}

/* NULL is nothing. */
static inline void rs_memory_give(const rs_allocator *allocator, void *memory) {
    if (memory)
        allocator->release(allocator->context, memory);
}

#endif
