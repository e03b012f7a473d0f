/* What is kept of a continuing stream: a ring of fragments, of which each has a head that says how many bytes of the
 * program it carries (docs/protocol.md, Streams). So a program that writes little is not waited for until a fragment is
 * full, and what was changed on the way is found before a program sees it. */
#ifndef RS_DAEMON_STREAM_RING_H
#define RS_DAEMON_STREAM_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/base/types.h"
#include "daemon/seal/sign.h"

#define RS_STREAM_HEAD 8u /* check u32, bytes u16, u16: 1 if a stamp follows, else 0; little-endian */

typedef struct {
    uint8_t *bytes;
    uint64_t slots;
    uint32_t fragment; /* bytes, head included */
    uint32_t stamp;    /* RS_SIGN_STAMP where fragments are signed, between head and bytes; else 0 */
} rs_stream_ring;

/* What is kept of a stream: fragments from `first` to before `here`, unless these were overwritten since. */
typedef struct {
    const rs_stream_ring *ring;
    uint64_t first, here;
    uint64_t size; /* of all fragments; RS_STREAM: not known yet */
} rs_stream_kept;

/* False: out of memory, or no fragment of that size can be of a stream. */
bool rs_stream_ring_make(rs_stream_ring *ring, uint32_t fragment, uint64_t slots);
void rs_stream_ring_free(rs_stream_ring *ring);

/* Where fragment `sn` lies; it is there until `sn` + slots takes its place. */
static inline uint8_t *rs_stream_ring_at(const rs_stream_ring *ring, uint64_t sn) {
    return ring->bytes + sn % ring->slots * ring->fragment;
}

/* Bytes of the program that fit into a fragment. */
static inline uint32_t rs_stream_ring_room(const rs_stream_ring *ring) {
    return ring->fragment - RS_STREAM_HEAD - ring->stamp;
}

/* Where the program's bytes of a fragment are, and its stamp, NULL if it has none. */
static inline uint8_t *rs_stream_fragment_stamp(const uint8_t *at) {
    return at[6] == 1 ? (uint8_t *)(uintptr_t)at + RS_STREAM_HEAD : NULL;
}

static inline uint8_t *rs_stream_fragment_bytes(const uint8_t *at) {
    return (uint8_t *)(uintptr_t)at + RS_STREAM_HEAD + (at[6] == 1 ? RS_SIGN_STAMP : 0);
}

/* What is signed of a fragment with a stamp, of the transfer of that nonce. */
rs_signed rs_stream_signed(const uint8_t *at, uint64_t nonce, uint64_t sn);

/* Writes the head of a fragment that carries `used` bytes; what is behind them becomes zero. One that is to be signed
 * has its check by rs_stream_ring_close, once it is. */
void rs_stream_ring_seal(const rs_stream_ring *ring, uint64_t sn, uint32_t used);
void rs_stream_ring_close(const rs_stream_ring *ring, uint64_t sn);
/* How many bytes of the program a fragment of `length` bytes carries; -1: it is not as it was sealed. Anywhere, and in
 * the ring. */
int32_t rs_stream_fragment_used(const uint8_t *at, uint64_t sn, uint32_t length);
int32_t rs_stream_ring_open(const rs_stream_ring *ring, uint64_t sn, uint32_t length);

#endif
