/* XOR of packet bodies, in vectors of 32 bytes: AVX2 where the processor has it, else what the build allows (SSE2,
 * NEON). */
#ifndef RS_CORE_MESSAGES_XOR_H
#define RS_CORE_MESSAGES_XOR_H

#include <stddef.h>
#include <stdint.h>

void rs_gm_xor(uint8_t *into, const uint8_t *from, size_t length);

/* The same where `into` has `*into_length` bytes and stands for zeros behind them; it grows if `from` is longer. */
void rs_gm_xor_grow(uint8_t *into, uint32_t *into_length, const uint8_t *from, uint32_t length);

#endif
