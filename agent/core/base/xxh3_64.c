#include "core/base/xxh3_64.h"

#include "core/base/xxh3_64_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t rs_xxh3_64(const uint8_t *bytes, size_t length) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return rs_xxh3_64_avx2(bytes, length);
#endif
    return XXH3_64bits(bytes, length);
}
