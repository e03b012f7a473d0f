#include "core/wan/gaps.h"

#include "core/transfer/tables.h"
#include "core/wan/state.h"
#include "core/wan/wan.h"

void rs_wan_gaps_free(rs_wan_gaps *g, const rs_allocator *allocator) {
    rs_memory_give(allocator, g->words);
    *g = (rs_wan_gaps){0};
}

/* The transfer by which it comes, in the same fragments; NULL: it does not, or not any more. By multicast all goes in
 * order: on a network as near as that it is soon there, and a member that follows the server keeps what has no gap. */
static const rs_receiving *source_of(const rs_node *node, const rs_sending *x) {
    bool wanted = x->source && x->available < x->t.fragments && rs_is_unicast(&x->grant);
    const rs_transfer *t = wanted ? rs_by_id(node, x->source) : NULL;
    if (!t || t->sending || rs_is_finished(t) || t->engine != &rs_engine_wan || !t->own || t->size != x->t.size ||
        t->fragment_size != x->t.fragment_size)
        return NULL;
    const rs_receiving *from = (const rs_receiving *)t;
    return from->present.words ? from : NULL;
}

uint64_t rs_wan_gaps_next(const rs_wan_gaps *g, const rs_node *node, const rs_sending *x, uint64_t sn, uint64_t end) {
    if (sn >= end || sn < x->available)
        return sn;
    const rs_receiving *from = g->off ? NULL : source_of(node, x);
    uint64_t most = x->available + UINT64_C(1) * RS_WAN_GAP_SECTIONS * RS_WAN_SECTION;
    most = most < end ? most : end;
    uint64_t here = from && sn < most ? rs_seqset_next_present(&from->present, NULL, sn, most) : most;
    return here < most ? here : end;
}

bool rs_wan_gaps_pass(rs_wan_gaps *g, const rs_node *node, const rs_sending *x, uint64_t sn, uint64_t here) {
    size_t words = rs_seqset_words(x->t.fragments);
    if (sn == here)
        return true;
    if (!g->words) {
        g->words = rs_memory_take(&node->allocator, 2 * words * sizeof *g->words);
        g->off = g->words == NULL;
        if (g->off)
            return false;
        rs_seqset_init(&g->passed, x->t.fragments, g->words);
        rs_seqset_init(&g->left, x->t.fragments, g->words + words);
        g->from = g->look_from = sn;
    }
    rs_seqset_add_range(&g->passed, sn, here);
    rs_seqset_add_range(&g->left, sn, here);
    g->end = here;
    return true;
}

void rs_wan_gaps_grown(rs_wan_gaps *g) {
    if (g->words)
        g->look_from = g->from = rs_seqset_next_present(&g->left, NULL, g->from, g->end);
}

uint64_t rs_wan_gaps_late(rs_wan_gaps *g, const rs_node *node, const rs_sending *x) {
    if (g->left.count == 0 || g->look_from >= g->end)
        return UINT64_MAX;
    const rs_receiving *from = source_of(node, x);
    uint64_t sn = rs_seqset_next_present(&g->left, NULL, g->look_from, g->end);
    while (sn < g->end && sn >= x->available && !(from && rs_seqset_has(&from->present, sn)))
        sn = rs_seqset_next_present(&g->left, NULL, sn + 1, g->end);
    g->look_from = sn;
    return sn < g->end ? sn : UINT64_MAX;
}

void rs_wan_gaps_went(rs_wan_gaps *g, rs_time now, uint64_t sn) {
    rs_seqset_remove(&g->left, sn);
    g->recent[g->recent_count % RS_WAN_GAP_RECENT].sn = sn;
    g->recent[g->recent_count++ % RS_WAN_GAP_RECENT].when = now;
}

bool rs_wan_gaps_has(const rs_wan_gaps *g, uint64_t sn) {
    return g->left.count > 0 && rs_seqset_has(&g->left, sn);
}

uint64_t rs_wan_gaps_count(const rs_wan_gaps *g, uint64_t from, uint64_t end) {
    uint64_t count = 0;
    end = end < g->end ? end : g->end;
    while (g->words && from < end) {
        from = rs_seqset_next_present(&g->passed, NULL, from, end);
        uint64_t to = from < end ? rs_seqset_next_absent(&g->passed, NULL, from, end) : end;
        count += to - from;
        from = to;
    }
    return count;
}

static bool went_of_late(const rs_wan_gaps *g, rs_time now, rs_time moot, uint64_t sn) {
    uint64_t count = g->recent_count < RS_WAN_GAP_RECENT ? g->recent_count : RS_WAN_GAP_RECENT;
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t at = (g->recent_count - i) % RS_WAN_GAP_RECENT;
        if (now - g->recent[at].when >= moot)
            return false;
        if (g->recent[at].sn == sn)
            return true;
    }
    return false;
}

void rs_wan_gaps_excuse(const rs_wan_gaps *g, rs_time now, rs_time moot, rs_wan_nack *nack) {
    uint64_t end = nack->base + nack->bits;
    end = end < g->end ? end : g->end;
    for (uint64_t sn = nack->base; g->words && sn < end; sn++) {
        sn = rs_seqset_next_present(&g->passed, NULL, sn, end);
        if (sn < end && (rs_seqset_has(&g->left, sn) || went_of_late(g, now, moot, sn)))
            nack->map[(sn - nack->base) / 8] &= (uint8_t) ~(1u << (sn - nack->base) % 8);
    }
}
