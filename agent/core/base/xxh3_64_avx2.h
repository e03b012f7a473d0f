/* XXH3 of 64 bits with 256-bit vectors, where the compiler is for x86-64; only for processors that have them. */
#ifndef RS_CORE_XXH3_64_AVX2_H
#define RS_CORE_XXH3_64_AVX2_H

#include <stddef.h>
#include <stdint.h>

uint64_t rs_xxh3_64_avx2(const uint8_t *bytes, size_t length);

#endif
