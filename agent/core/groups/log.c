#include "core/groups/log.h"

#include "core/base/memory.h"

rs_status rs_gm_log_init(rs_gm_log *log, uint64_t size, const rs_allocator *allocator) {
    log->size = 1;
    while (log->size < size)
        log->size *= 2;
    log->head = log->told = 0;
    log->allocator = allocator;
    log->bytes = rs_memory_take(allocator, (size_t)log->size);
    return log->bytes ? RS_OK : RS_ERR_MEMORY;
}

uint32_t rs_gm_log_span(uint32_t datagram_bytes) {
    return (uint32_t)(sizeof(rs_gm_record) + datagram_bytes + RS_GM_ALIGN - 1) / RS_GM_ALIGN * RS_GM_ALIGN;
}

/* Bytes left until the ring's end. */
static uint64_t rest(const rs_gm_log *log) {
    return log->size - (log->head & (log->size - 1));
}

uint64_t rs_gm_log_after(const rs_gm_log *log, uint32_t datagram_bytes) {
    uint32_t bytes = rs_gm_log_span(datagram_bytes);
    return log->head + bytes + (rest(log) < bytes ? rest(log) : 0);
}

static void tell_soon(rs_gm_log *log, uint64_t most) {
    uint64_t left = log->size - log->told, more = left < most ? left : most;
    if (log->allocator->soon)
        log->allocator->soon(log->allocator->context, log->bytes + log->told, (size_t)more);
    log->told += more;
}

void rs_gm_log_prepare(rs_gm_log *log) {
    if (!rs_gm_log_is_prepared(log))
        tell_soon(log, RS_GM_LOG_STEP);
}

uint64_t rs_gm_log_append(rs_gm_log *log, uint32_t datagram_bytes) {
    uint32_t bytes = rs_gm_log_span(datagram_bytes);
    if (rest(log) < bytes) {
        uint64_t left = rest(log);
        /* The end may be too short for a whole record: only its first two words are written. */
        rs_gm_record *filler = rs_gm_log_record(log, log->head);
        filler->stream = RS_GM_NO_STREAM;
        filler->span = (uint32_t)left;
        log->head += left;
    }
    uint64_t at = log->head;
    log->head += bytes;
    while (log->told < log->size && log->told < log->head)
        tell_soon(log, RS_GM_LOG_SOON);
    rs_gm_log_record(log, at)->span = bytes;
    /* The next one's place is fetched while others work: a ring is larger than caches. */
    const uint8_t *next = log->bytes + (log->head & (log->size - 1));
    for (uint32_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(next + i, 1);
    return at;
}
