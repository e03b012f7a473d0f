/* Memory from the heap, for whoever runs a core and has no bound of its own. */
#ifndef RS_CORE_HEAP_H
#define RS_CORE_HEAP_H

#include <stdlib.h>

#include "core/base/types.h"

/* Zeroed; NULL if it is short. */
static inline void *rs_heap_take(void *context, size_t size) {
    (void)context;
    return calloc(1, size);
}

static inline void rs_heap_give(void *context, void *memory) {
    (void)context;
    free(memory);
}

static const rs_allocator rs_heap = {.alloc = rs_heap_take, .release = rs_heap_give};

#endif
