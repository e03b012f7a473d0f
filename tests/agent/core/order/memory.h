/* Memory for the order's tests: zeroed, from the heap, so that ASan sees what is not given back. */
#ifndef TEST_ORDER_MEMORY_H
#define TEST_ORDER_MEMORY_H

#include <stdlib.h>

#include "core/base/types.h"

static void *take(void *context, size_t size) {
    (void)context;
    return calloc(1, size);
}

static void give(void *context, void *memory) {
    (void)context;
    free(memory);
}

static const rs_allocator MEMORY = {take, give, NULL};

#endif
