/* Continuing streams: no end until it is told, and a window of bounded size at all. */
#include "core/rdcm.h"

void rs_rdcm_stream_moved(rs_node *node, rs_rdcm *r) {
    uint64_t low = rs_rdcm_low(r);
    if (r->transfer->sending) { /* half of the window stays, for requests */
        uint64_t cum = r->all.acked.cum;
        low = cum > r->capacity / 2 ? cum - r->capacity / 2 : 0;
    }
    r->released = low > r->released ? low : r->released;
    if (r->moved_told)
        return;
    r->moved_told = true;
    rs_rdcm_emit(node, r, RS_EV_STREAM_MOVED, RS_NO_PEER, RS_RING_LEAF);
}

bool rs_rdcm_stream_lacks(const rs_rdcm *r, uint64_t sn) {
    return sn < r->released + r->capacity - 64 && !rs_rdcm_set_has(&r->here, sn);
}

static rs_rdcm *stream(const rs_node *node, rs_xfer xfer) {
    rs_transfer *t = rs_by_id(node, xfer);
    rs_rdcm *r = !t || t->finished ? NULL : t->sending ? ((rs_sending *)t)->rdcm : ((rs_receiving *)t)->rdcm;
    return r && r->streams ? r : NULL;
}

rs_status rs_stream_window(rs_node *node, rs_xfer xfer, uint64_t *first, uint64_t *here, uint64_t *end) {
    rs_rdcm *r = stream(node, xfer);
    if (!r)
        return RS_ERR_UNKNOWN;
    uint64_t each = r->transfer->fragment_size, past = r->released + r->capacity - 64;
    uint64_t size = r->transfer->size;
    r->moved_told = false;
    *first = r->released * each;
    *here = r->here.cum * each < size ? r->here.cum * each : size;
    *end = past * each < size ? past * each : size;
    return RS_OK;
}

rs_status rs_stream_taken(rs_node *node, rs_time now, rs_xfer xfer, uint64_t bytes) {
    rs_rdcm *r = stream(node, xfer);
    rs_receiving *x = r ? rs_rdcm_receiving(r) : NULL;
    if (!x)
        return RS_ERR_UNKNOWN;
    uint64_t taken = bytes == x->t.size ? x->t.fragments : bytes / x->t.fragment_size;
    if (taken > r->here.cum)
        return RS_ERR_INVALID;
    r->taken = taken;
    if (x->state == RS_RX_VERIFYING)
        x->verify_due = now + node->config.no_path_bound;
    rs_rdcm_stream_moved(node, r);
    rs_rdcm_expected_moved(node, now, r, RS_RING_LEAF);
    if (r->own_child)
        rs_rdcm_expected_moved(node, now, r, RS_RING_PROXY);
    rs_receiver_arm(node, x);
    return RS_OK;
}

/* Of a node's sets, where the end is known now. */
static void end_at(rs_rdcm *r, uint64_t fragments) {
    r->here.end = r->subtree.end = r->all.acked.end = fragments;
    for (int i = 0; i < RS_RDCM_RINGS; i++)
        r->rings[i].successor.acked.end = fragments;
}

rs_status rs_stream_extend(rs_node *node, rs_time now, rs_xfer xfer, uint64_t bytes, bool last) {
    rs_rdcm *r = stream(node, xfer);
    rs_sending *x = r ? rs_rdcm_sending(r) : NULL;
    if (!x)
        return RS_ERR_UNKNOWN;
    uint64_t each = x->t.fragment_size, fragments = rs_fragments(bytes, x->t.fragment_size);
    if (x->t.size != RS_STREAM)
        return RS_ERR_STATE;
    if ((!last && bytes % each) || bytes < r->available * each)
        return RS_ERR_INVALID;
    if (fragments > r->released + r->capacity - 64)
        return RS_ERR_LIMIT;
    r->available = bytes == 0 && !last ? 0 : fragments;
    if (r->available > x->pos)
        r->progress_at = now > r->progress_at ? now : r->progress_at;
    if (last) {
        x->t.size = bytes;
        x->t.fragments = x->end = fragments;
        end_at(r, fragments);
        for (uint32_t i = 0; i < x->recipient_count && x->sessions; i++)
            if (x->recipients[i].state == RS_RECIPIENT_ACTIVE)
                rs_say(node, now, &x->recipients[i].link, RS_SAY_OPEN);
    }
    if (x->by_rdcm) {
        rs_rdcm_advance(node, now, x);
        rs_rdcm_schedule(node, now, x);
        rs_sender_arm(node, x);
    }
    return RS_OK;
}

bool rs_rdcm_stream_ends(rs_node *node, rs_time now, rs_receiving *x, uint64_t size) {
    uint64_t fragments = rs_fragments(size, x->t.fragment_size);
    if (x->rdcm->here.top > fragments)
        return false;
    x->t.size = size;
    x->t.fragments = fragments;
    end_at(x->rdcm, fragments);
    rs_rdcm_ended(node, now, x);
    return true;
}
