/* xxh3-128 with the vectors every processor of this kind has, and the choice. */
#include "daemon/store/xxh3.h"

#include "daemon/store/xxh3_ways.h"

const rs_xxh3 rs_xxh3_plain = RS_XXH3_WAY;

const rs_xxh3 *rs_xxh3_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return &rs_xxh3_avx2;
#endif
    return &rs_xxh3_plain;
}
