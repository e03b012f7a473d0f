/* What is kept of a continuing stream: a ring of fragments, of which each has a head that says how many bytes of the
 * program it carries (docs/protocol.md, Streams). So a program that writes little is not waited for until a fragment is
 * full, and what was changed on the way is found before a program sees it. */
#ifndef RS_DAEMON_STREAM_RING_H
#define RS_DAEMON_STREAM_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/base/types.h"

#define RS_STREAM_HEAD 8u /* check u32, bytes u16, zero u16; little-endian */

typedef struct {
    uint8_t *bytes;
    uint64_t slots;
    uint32_t fragment; /* bytes, head included */
} rs_stream_ring;

/* What is kept of a stream: fragments from `first` to before `here`, unless these were overwritten since. */
typedef struct {
    const rs_stream_ring *ring;
    uint64_t first, here;
    uint64_t size; /* of all fragments; RS_STREAM: not known yet */
} rs_stream_kept;

/* False: memory is short, or no fragment of that size can be of a stream. */
bool rs_stream_ring_make(rs_stream_ring *ring, uint32_t fragment, uint64_t slots);
void rs_stream_ring_free(rs_stream_ring *ring);

/* Where fragment `sn` lies; it is there until `sn` + slots takes its place. */
static inline uint8_t *rs_stream_ring_at(const rs_stream_ring *ring, uint64_t sn) {
    return ring->bytes + sn % ring->slots * ring->fragment;
}

/* Bytes of the program that fit into a fragment. */
static inline uint32_t rs_stream_ring_room(const rs_stream_ring *ring) {
    return ring->fragment - RS_STREAM_HEAD;
}

/* Writes the head of a fragment that carries `used` bytes; what is behind them becomes zero. */
void rs_stream_ring_seal(const rs_stream_ring *ring, uint64_t sn, uint32_t used);
/* How many bytes of the program a fragment of `length` bytes carries; -1: it is not as it was sealed. Anywhere, and in
 * the ring. */
int32_t rs_stream_fragment_used(const uint8_t *at, uint64_t sn, uint32_t length);
int32_t rs_stream_ring_open(const rs_stream_ring *ring, uint64_t sn, uint32_t length);

#endif
