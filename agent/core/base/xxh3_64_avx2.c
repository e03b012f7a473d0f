#include "core/base/xxh3_64_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t rs_xxh3_64_avx2(const uint8_t *bytes, size_t length) {
    return XXH3_64bits(bytes, length);
}
