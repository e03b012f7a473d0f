/* xxh3-128 of a stream of bytes, with the widest vectors this processor has. The result is the canonical form. */
#ifndef RS_XXH3_H
#define RS_XXH3_H

#include <stddef.h>
#include <stdint.h>

#define RS_XXH3_BYTES 16

/* One way of computing it; the stream is made by one way only. */
typedef struct {
    void *(*create)(void); /* NULL: out of memory */
    void (*release)(void *stream);
    void (*begin)(void *stream);
    void (*add)(void *stream, const uint8_t *data, size_t length);
    void (*end)(const void *stream, uint8_t out[RS_XXH3_BYTES]);
    void (*whole)(const uint8_t *data, size_t length, uint8_t out[RS_XXH3_BYTES]);
} rs_xxh3;

/* The fastest way here. */
const rs_xxh3 *rs_xxh3_best(void);

extern const rs_xxh3 rs_xxh3_plain;
extern const rs_xxh3 rs_xxh3_avx2; /* where the compiler is for x86-64 */

#endif
