/* Numbers that look random, the same ones from the same seed: splitmix64 (Steele, Lea, Flood: Fast Splittable
 * Pseudorandom Number Generators, OOPSLA 2014). */
#ifndef RS_CORE_RANDOM_H
#define RS_CORE_RANDOM_H

#include <stdint.h>

/* Every bit of the result depends on every bit of `z`: for hash tables too. */
static inline uint64_t rs_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#define RS_RANDOM_STEP UINT64_C(0x9e3779b97f4a7c15)

/* The next number of the sequence that `state`, any value at first, stands in. */
static inline uint64_t rs_random_next(uint64_t *state) {
    *state += RS_RANDOM_STEP;
    return rs_mix(*state);
}

/* From 0 to below 1. */
static inline double rs_random_part(uint64_t number) {
    return (double)(number >> 11) * 0x1p-53;
}

#endif
