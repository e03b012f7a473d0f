/* XXH64 (xxHash, 64 bits), as its specification has it: portable, a few bytes a cycle without any special instruction.
 * For the checks of group messages (wire.h). */
#ifndef RS_CORE_MESSAGES_XXH64_H
#define RS_CORE_MESSAGES_XXH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t rs_gm_xxh64(const uint8_t *bytes, size_t length, uint64_t seed);

#endif
