/* The XOR of pieces of an object: what a coded repair carries, and how a receiver takes its fragment out of it. */
#ifndef RS_DAEMON_COMBINE_H
#define RS_DAEMON_COMBINE_H

#include "core/base/types.h"

/* out ^= the pieces, which lie in the object's mapping; each has at most `length` bytes, shorter ones are taken for
 * filled up with zeros. */
void rs_combine_xor(uint8_t *out, uint32_t length, const uint8_t *map, const rs_combine *pieces);

/* out = the XOR of the pieces, the longest of `length` bytes. False: the mapped file was shortened. Between
 * rs_guard_start and rs_guard_stop. */
bool rs_combine_make(uint8_t *out, uint32_t length, const uint8_t *map, const rs_combine *pieces);

#endif
