/* XXH3 of 64 bits, seed 0, with the widest vectors this processor has. */
#ifndef RS_CORE_XXH3_64_H
#define RS_CORE_XXH3_64_H

#include <stddef.h>
#include <stdint.h>

uint64_t rs_xxh3_64(const uint8_t *bytes, size_t length);

#endif
