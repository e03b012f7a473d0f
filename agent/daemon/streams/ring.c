#include "daemon/streams/ring.h"

#include <string.h>
#include <sys/mman.h>

#include "daemon/store/xxh3.h"

#define FRAGMENT_MOST UINT16_MAX

bool rs_stream_ring_make(rs_stream_ring *ring, uint32_t fragment, uint64_t slots) {
    if (fragment <= RS_STREAM_HEAD || fragment > FRAGMENT_MOST || slots == 0)
        return false;
    void *bytes = mmap(NULL, (size_t)(slots * fragment), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return false;
    *ring = (rs_stream_ring){.bytes = bytes, .slots = slots, .fragment = fragment};
    return true;
}

void rs_stream_ring_free(rs_stream_ring *ring) {
    if (ring->bytes)
        munmap(ring->bytes, (size_t)(ring->slots * ring->fragment));
    ring->bytes = NULL;
}

static void put(uint8_t *at, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get(const uint8_t *at, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)at[i] << 8 * i;
    return value;
}

/* Of the bytes behind the check, and of the place in the stream: a fragment of a round before is none of this. */
static uint32_t check(const uint8_t *at, uint32_t used, uint64_t sn) {
    uint8_t hash[RS_XXH3_BYTES];
    rs_xxh3_best()->whole(at + 4, (size_t)(rs_stream_fragment_bytes(at) - at) - 4 + used, hash);
    return get(hash, 4) ^ (uint32_t)sn ^ (uint32_t)(sn >> 32);
}

void rs_stream_ring_seal(const rs_stream_ring *ring, uint64_t sn, uint32_t used) {
    uint8_t *at = rs_stream_ring_at(ring, sn);
    put(at + 4, used, 2);
    put(at + 6, ring->stamp > 0, 2);
    memset(rs_stream_fragment_bytes(at) + used, 0, rs_stream_ring_room(ring) - used);
    if (ring->stamp == 0)
        put(at, check(at, used, sn), 4);
}

void rs_stream_ring_close(const rs_stream_ring *ring, uint64_t sn) {
    uint8_t *at = rs_stream_ring_at(ring, sn);
    put(at, check(at, get(at + 4, 2), sn), 4);
}

rs_signed rs_stream_signed(const uint8_t *at, uint64_t nonce, uint64_t sn) {
    rs_signed one = {.head = at + 4,
                     .head_length = RS_STREAM_HEAD - 4,
                     .rest = rs_stream_fragment_bytes(at),
                     .rest_length = get(at + 4, 2),
                     .stamp = rs_stream_fragment_stamp(at)};
    for (unsigned i = 0; i < 8; i++) {
        one.context[i] = (uint8_t)(nonce >> 8 * i);
        one.context[8 + i] = (uint8_t)(sn >> 8 * i);
    }
    return one;
}

int32_t rs_stream_fragment_used(const uint8_t *at, uint64_t sn, uint32_t length) {
    if (length < RS_STREAM_HEAD)
        return -1;
    uint32_t used = get(at + 4, 2), stamped = get(at + 6, 2);
    uint32_t head = RS_STREAM_HEAD + (stamped ? RS_SIGN_STAMP : 0);
    if (stamped > 1 || length < head || used > length - head || get(at, 4) != check(at, used, sn))
        return -1;
    return (int32_t)used;
}

int32_t rs_stream_ring_open(const rs_stream_ring *ring, uint64_t sn, uint32_t length) {
    return length > ring->fragment ? -1 : rs_stream_fragment_used(rs_stream_ring_at(ring, sn), sn, length);
}
