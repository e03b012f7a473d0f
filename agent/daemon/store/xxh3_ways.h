/* The functions of one rs_xxh3, compiled once for each set of vector instructions: the hash is all in xxhash's header,
 * which takes what the compiler may use. */
#ifndef RS_XXH3_WAYS_H
#define RS_XXH3_WAYS_H

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/store/xxh3.h"

static void *create(void) {
    return XXH3_createState();
}

static void release(void *stream) {
    XXH3_freeState(stream);
}

static void begin(void *stream) {
    XXH3_128bits_reset(stream);
}

static void add(void *stream, const uint8_t *data, size_t length) {
    XXH3_128bits_update(stream, data, length);
}

static void write_out(XXH128_hash_t hash, uint8_t out[RS_XXH3_BYTES]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(out, canonical.digest, RS_XXH3_BYTES);
}

static void end(const void *stream, uint8_t out[RS_XXH3_BYTES]) {
    write_out(XXH3_128bits_digest(stream), out);
}

static void whole(const uint8_t *data, size_t length, uint8_t out[RS_XXH3_BYTES]) {
    write_out(XXH3_128bits(data, length), out);
}

#define RS_XXH3_WAY \
    { create, release, begin, add, end, whole }

#endif
