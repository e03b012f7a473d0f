/* Continuing streams by RDCM: what has left the window, and where the end is. */
#include "core/rdcm/rdcm.h"
#include "core/transfer/engine.h"

void rs_rdcm_stream_moved(rs_node *node, rs_rdcm *r) {
    uint64_t low = rs_rdcm_low(r);
    if (r->transfer->sending) { /* half of the window stays, for requests */
        uint64_t cum = r->all.acked.cum;
        low = cum > r->capacity / 2 ? cum - r->capacity / 2 : 0;
    }
    rs_stream_released(node, r->transfer, low);
}

bool rs_rdcm_lacks(const rs_receiving *x, uint64_t sn) {
    return sn < rs_stream_past(&x->t) && !rs_rdcm_set_has(&rs_rdcm_of(&x->t)->here, sn);
}

void rs_rdcm_stream_taken(rs_node *node, rs_time now, rs_receiving *x) {
    rs_rdcm *r = x->t.own;
    rs_rdcm_stream_moved(node, r);
    rs_rdcm_expected_moved(node, now, r, RS_RING_LEAF);
    if (r->own_child)
        rs_rdcm_expected_moved(node, now, r, RS_RING_PROXY);
}

void rs_rdcm_stream_grown(rs_node *node, rs_time now, rs_sending *x) {
    rs_rdcm *r = x->t.own;
    if (x->t.stream.available > x->pos)
        r->progress_at = now > r->progress_at ? now : r->progress_at;
    if (x->t.engine != &rs_engine_rdcm)
        return;
    rs_rdcm_advance(node, now, x);
    rs_rdcm_schedule(node, now, x);
    rs_sender_arm(node, x);
}
