#include "core/rate/pacer.h"

rs_time rs_wire_time(uint64_t bytes, int64_t rate_bps) {
    uint64_t rate = rate_bps > 0 ? (uint64_t)rate_bps : 1;
    uint64_t bits = bytes * 8;
    /* bytes is a packet's: bits * 1e9 < 2^50 */
    uint64_t time = (bits * UINT64_C(1000000000) + rate / 2) / rate;
    return time ? (rs_time)time : 1;
}

void rs_pacer_start(rs_pacer *p, rs_time now, int64_t rate_bps) {
    *p = (rs_pacer){.rate_bps = rate_bps, .tat = now, .wake = now, .depth_most = RS_PACER_DEPTH_MOST};
}

bool rs_pacer_ready(const rs_pacer *p, rs_time now) {
    return now >= p->wake;
}

rs_time rs_pacer_due(const rs_pacer *p) {
    return p->wake;
}

void rs_pacer_resume(rs_pacer *p, rs_time now) {
    p->lost += p->tat < now ? now - p->tat : 0;
    p->tat = p->tat > now ? p->tat : now;
}

void rs_pacer_sent(rs_pacer *p, rs_time now, uint32_t wire_bytes) {
    rs_time cost = rs_wire_time(wire_bytes, p->rate_bps);
    rs_time depth = rs_wire_time(RS_PACER_DEPTH_BITS / 8, p->rate_bps);
    depth = depth < RS_PACER_DEPTH_LEAST ? RS_PACER_DEPTH_LEAST : depth > p->depth_most ? p->depth_most : depth;
    rs_time quantum = cost * RS_PACER_BURST < RS_PACER_QUANTUM ? cost * RS_PACER_BURST : RS_PACER_QUANTUM;
    p->lost += p->tat < now - depth ? now - depth - p->tat : 0;
    p->tat = (p->tat > now - depth ? p->tat : now - depth) + cost;
    /* Sent ahead of its time no further than now: the bucket may be filled while idle (tat in the past, down to now -
     * depth), never owed. */
    p->wake = p->tat > now ? p->tat + (quantum > cost ? quantum - cost : 0) : now;
}
