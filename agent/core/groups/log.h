/* A ring of packets: what is written last pushes out what was written first. A packet is known by its place in all that
 * was ever written, so a place that was overwritten is told from one that is still there without any bookkeeping. */
#ifndef RS_CORE_MESSAGES_LOG_H
#define RS_CORE_MESSAGES_LOG_H

#include "core/groups/messages.h"

#define RS_GM_ALIGN 16u
#define RS_GM_NO_STREAM UINT32_MAX /* a record that only fills the ring's end */

/* In front of each datagram. */
typedef struct {
    uint32_t stream; /* its number at this node */
    uint32_t span;   /* bytes up to the next record */
    uint64_t sn;
    uint32_t late_us, via; /* of a received packet: rs_messages_event */
} rs_gm_record;

_Static_assert(sizeof(rs_gm_record) == 24, "24 bytes, then 24 of a data packet's header: the body is aligned to 16");

typedef struct {
    uint8_t *bytes;
    uint64_t size; /* a power of two */
    uint64_t head; /* bytes ever written */
    uint64_t told; /* of the first round: bytes that rs_allocator.soon was told of */
    bool wanted;   /* packets will come: all of it is told of, whether or not they have come yet */
    const rs_allocator *allocator;
} rs_gm_log;

/* Told of together: to make the pages of so much at once takes little longer than to make one. */
#define RS_GM_LOG_SOON (UINT64_C(256) << 10)
/* Of a ring that is wanted, or of which so much was written, the rest is told of ahead, a step at a time. */
#define RS_GM_LOG_USED (UINT64_C(64) << 10)
#define RS_GM_LOG_STEP (UINT64_C(128) << 10)

/* `allocator` stays where it is. */
rs_status rs_gm_log_init(rs_gm_log *log, uint64_t size, const rs_allocator *allocator);
/* Bytes of a record and its datagram. */
uint32_t rs_gm_log_span(uint32_t datagram_bytes);
/* Where the head is after a datagram of so many bytes. */
uint64_t rs_gm_log_after(const rs_gm_log *log, uint32_t datagram_bytes);
/* Room for a datagram at the head, its record's span filled in; it is less than half the ring. */
uint64_t rs_gm_log_append(rs_gm_log *log, uint32_t datagram_bytes);

/* There is nothing to tell ahead. */
static inline bool rs_gm_log_is_prepared(const rs_gm_log *log) {
    return log->told == log->size || (!log->wanted && log->head < RS_GM_LOG_USED) || !log->allocator->soon;
}

/* Tells of the next step. */
void rs_gm_log_prepare(rs_gm_log *log);

static inline bool rs_gm_log_has(const rs_gm_log *log, uint64_t at) {
    return log->head - at <= log->size;
}

static inline rs_gm_record *rs_gm_log_record(const rs_gm_log *log, uint64_t at) {
    return (rs_gm_record *)(void *)(log->bytes + (at & (log->size - 1)));
}

static inline uint8_t *rs_gm_log_datagram(const rs_gm_log *log, uint64_t at) {
    return log->bytes + (at & (log->size - 1)) + sizeof(rs_gm_record);
}

#endif
