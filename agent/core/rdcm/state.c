/* What all parts of RDCM ask of its state, and say. */
#include "core/rdcm/state.h"

#include "core/rdcm/rdcm.h"

rs_receiving *rs_rdcm_receiving(const rs_rdcm *r) {
    return r->transfer->sending ? NULL : (rs_receiving *)r->transfer;
}

rs_sending *rs_rdcm_sending(const rs_rdcm *r) {
    return r->transfer->sending ? (rs_sending *)r->transfer : NULL;
}

void rs_rdcm_wake(rs_node *node, rs_rdcm *r, rs_time due) {
    if (due < r->transfer->timer.due && !rs_is_finished(r->transfer))
        rs_timer_set(&node->timers, &r->transfer->timer, due);
}

void rs_rdcm_say(rs_node *node, rs_rdcm *r, uint32_t bits) {
    r->say |= bits;
    if (r->say)
        rs_list_keep(&node->acking, &r->transfer->in_acking, true);
}

void rs_rdcm_emit(rs_node *node, const rs_rdcm *r, rs_event_kind kind, rs_peer peer, rs_ring_kind ring) {
    rs_emit(node, &(rs_event){.kind = kind,
                              .xfer = r->transfer->id,
                              .peer = peer,
                              .ring = ring,
                              .version = r->version,
                              .session = r->transfer->session});
}

/* Sec. 3.3, Repair Window: received here, which counts as a child's ACK (overlay.c), and acknowledged by the successor
 * in each ring. Who has failed is not waited for. Of a stream, what the caller here has not taken is needed, too. */
uint64_t rs_rdcm_low(const rs_rdcm *r) {
    uint64_t low = r->here.cum < r->transfer->stream.taken ? r->here.cum : r->transfer->stream.taken;
    for (int i = 0; i < RS_RDCM_RINGS; i++) {
        const rs_rdcm_watch *w = &r->rings[i].successor;
        if (w->state != RS_WATCH_OFF && !w->failed && w->acked.cum < low)
            low = w->acked.cum;
    }
    return low;
}

#define FEW 4 /* packets: to tell of fewer makes the sender send fewer at once (rostrum sim run rdcm-congestion) */

/* Who passes on what those below expect does so as often as the slowest needs it, not by its own window. */
uint32_t rs_rdcm_ack_every(const rs_node *node, const rs_rdcm *r, rs_ring_kind kind) {
    uint64_t said = r->news[kind].expected, ahead = said > r->here.top ? said - r->here.top : 0;
    uint32_t given = rs_rdcm_options(node)->ack_every, part = r->bic.window / 4;
    if (kind == RS_RING_PROXY && ahead < r->bic.window)
        part = (uint32_t)(ahead / 2 < FEW ? ahead / 2 : ahead / 4 < FEW ? FEW : ahead / 4);
    part = part ? part : 1;
    return given < part || rs_rdcm_options(node)->no_congestion_control ? given : part;
}

/* Where packets come fast enough, twice as long as `ack_every` of them take: after that nothing comes for the moment
 * that it could wait for. */
rs_time rs_rdcm_ack_delay(const rs_node *node, const rs_rdcm *r) {
    const rs_rdcm_config *c = rs_rdcm_options(node);
    rs_time usual = 2 * rs_passes_time(&r->passes, c->ack_every, c->ack_delay);
    usual = usual > RS_RDCM_ANSWER ? usual : RS_RDCM_ANSWER;
    return usual < c->ack_delay ? usual : c->ack_delay;
}
