/* RDCM's parts to each other and to the node. Private to agent/core. Section numbers are the paper's. */
#ifndef RS_CORE_RDCM_H
#define RS_CORE_RDCM_H

#include "core/rdcm/options.h"
#include "core/rdcm/state.h"
#include "core/transfer/engine.h"

#define RS_RDCM_SILENT_LEAST (20 * RS_MS) /* a child that answers nothing for so long holds nobody back */
#define RS_RDCM_OVERTAKEN 3               /* by so many later packets of the tree: lost rather than late (RFC 5681) */
#define RS_RDCM_NO_LIMIT ((uint64_t)INT64_MAX / 4)

/* rdcm.c: making and ending; memory; timers; the row in the table of engines */
extern const rs_engine rs_engine_rdcm;
static inline rs_rdcm *rs_rdcm_of(const rs_transfer *t) {
    return t->own;
}
static inline const rs_rdcm_config *rs_rdcm_options(const rs_node *node) {
    return node->options[RS_PROTOCOL_RDCM];
}
rs_rdcm *rs_rdcm_new(rs_node *node, rs_transfer *transfer); /* hangs it off the transfer */
void rs_rdcm_free(rs_node *node, rs_transfer *t);
rs_receiving *rs_rdcm_receiving(const rs_rdcm *r);
rs_sending *rs_rdcm_sending(const rs_rdcm *r);
void rs_rdcm_wake(rs_node *node, rs_rdcm *r, rs_time due); /* no later than then */
void rs_rdcm_emit(rs_node *node, const rs_rdcm *r, rs_event_kind kind, rs_peer peer, rs_ring_kind ring);
uint64_t rs_rdcm_low(const rs_rdcm *r); /* of the repair window (Sec. 3.3): below, nobody needs anything from here */

/* rdcm/repair.c: who must acknowledge, and what is sent to it again (Sec. 3.3, Packet Repair) */
bool rs_watch_start(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, rs_peer peer);
void rs_watch_end(rs_node *node, rs_rdcm_watch *w);
rs_time rs_watch_timeout(const rs_node *node, const rs_rdcm_watch *w);
/* An acknowledgement came. Returns how many packets are new in it. */
uint64_t rs_watch_learn(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, const rs_ack *ack);
/* The next packet to repair, which counts as sent; false: none now, and `look_at` says when to ask again. */
bool rs_watch_next(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, uint64_t *sn);
void rs_watch_look(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w);  /* something may be due */
void rs_watch_grown(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w); /* there is more to acknowledge */
bool rs_rdcm_poll_repair(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out);

/* overlay.c: acknowledgements (Sec. 3.3, Packet Acknowledgement) and expectations (Sec. 3.5) going out */
void rs_rdcm_news_of(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind, uint64_t sn, bool at_once);
void rs_rdcm_say_all(rs_node *node, rs_rdcm *r, rs_ring_kind kind);
void rs_rdcm_say_lost(rs_node *node, rs_rdcm *r); /* something on the tree, here */
void rs_rdcm_say_to(rs_node *node, rs_rdcm *r, rs_peer predecessor);
void rs_rdcm_say_repaired(rs_node *node, rs_time now, rs_rdcm *r, rs_peer by);
void rs_rdcm_say_later(rs_node *node, rs_time now, rs_rdcm *r); /* what was put off, if its time has come */
void rs_rdcm_settled_moved(rs_node *node, rs_rdcm *r);          /* of a child, or here */
uint64_t rs_rdcm_least_settled(const rs_rdcm *r);               /* of its children */
void rs_rdcm_say(rs_node *node, rs_rdcm *r, uint32_t bits);
/* A packet passed here, or was sent, which children answer. `timeout`: what their answers usually take at most. */
void rs_rdcm_note_owed(rs_rdcm *r, rs_time now, rs_time timeout);
bool rs_rdcm_is_silent(const rs_rdcm *r, const rs_rdcm_child *child);
uint64_t rs_rdcm_expected(const rs_rdcm *r, rs_ring_kind kind);
void rs_rdcm_expected_moved(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind);
bool rs_rdcm_poll_ack(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out);

/* rdcm/receiver.c: one handler per packet */
bool rs_rdcm_accept(rs_node *node, rs_time now, rs_receiving *x);
rs_rx_result rs_rdcm_tree_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h);
rs_rx_result rs_rdcm_receiver_datagram(rs_node *node, rs_time now, rs_receiving *x, const rs_packet_in *packet);
void rs_rdcm_refused(rs_node *node, rs_time now, rs_receiving *x, rs_peer from, uint64_t sn);
rs_rx_result rs_rdcm_patch(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn);
void rs_rdcm_verified(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_ended(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_receiver_stats(const rs_node *node, const rs_receiving *x, rs_xfer_stats *out);
rs_rx_verdict rs_rdcm_open_again(rs_node *node, rs_time now, rs_receiving *x, const rs_message *m);
void rs_rdcm_receiver_timeout(rs_node *node, rs_time now, rs_receiving *x); /* it may have ended after this */
rs_time rs_rdcm_receiver_due(const rs_node *node, const rs_receiving *x);
void rs_rdcm_receiver_finished(rs_node *node, rs_receiving *x); /* keeps what answers late repairs, if it has all */

/* rdcm/congestion.c: losses on the tree and the window (Sec. 3.5) */
void rs_rdcm_congestion_start(rs_receiving *x);
void rs_rdcm_congestion_packet(rs_node *node, rs_time now, rs_receiving *x, const rs_data_header *h, bool fresh);
void rs_rdcm_congestion_look(rs_node *node, rs_time now, rs_receiving *x);
rs_time rs_rdcm_congestion_due(const rs_node *node, const rs_rdcm *r);

/* receiver.c: what nobody repairs is asked of the sender (Sec. 3.4) */
void rs_rdcm_request_look(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_request_moved(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_request_refused(rs_node *node, rs_time now, rs_receiving *x, uint64_t sn); /* its bytes were wrong */
bool rs_rdcm_says(rs_node *node, rs_time now, rs_receiving *x, uint32_t what, rs_message *m, bool *more);

/* rdcm/overlay.c: views (Sec. 3.4, Repair Window Management when Switching Overlay Rings) */
void rs_rdcm_ack_of_view(rs_node *node, rs_time now, rs_rdcm *r, rs_peer peer, const rs_ack *ack);
void rs_rdcm_ready_look(rs_node *node, rs_time now, rs_rdcm *r);
rs_status rs_rdcm_sender_view(rs_node *node, rs_time now, rs_sending *x, const rs_view *view);
rs_status rs_rdcm_receiver_view(rs_node *node, rs_time now, rs_receiving *x, const rs_view *view);
void rs_rdcm_old_rings_look(rs_node *node, rs_time now, rs_rdcm *r);

/* rdcm/sender.c */
const char *rs_rdcm_begin(rs_node *node, rs_time now, rs_sending *x);
void rs_rdcm_advance(rs_node *node, rs_time now, rs_sending *x);
void rs_rdcm_schedule(rs_node *node, rs_time now, rs_sending *x);
bool rs_rdcm_poll_data(rs_node *node, rs_time now, rs_sending *x, rs_packet_out *out);
rs_rx_verdict rs_rdcm_sender_datagram(rs_node *node, rs_time now, rs_sending *x, const rs_packet_in *packet);
rs_rx_verdict rs_rdcm_message(rs_node *node, rs_time now, rs_sending *x, rs_recipient *from, const rs_message *m);
void rs_rdcm_sender_timeout(rs_node *node, rs_time now, rs_sending *x);
/* Its overlay children; NULL: all receivers. False: memory is short, nothing has changed. */
bool rs_rdcm_take_children(rs_node *node, rs_time now, rs_sending *x, const rs_peer *children, uint32_t count);
void rs_rdcm_find_limit(rs_sending *x);
void rs_rdcm_left(rs_node *node, rs_time now, rs_recipient *r); /* done or failed */
rs_time rs_rdcm_sender_due(const rs_node *node, const rs_sending *x);
void rs_rdcm_sender_stats(const rs_node *node, const rs_sending *x, rs_xfer_stats *out);

/* repair.c: who is left out by the tree */
void rs_rdcm_starved_look(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind); /* its successor has spoken */
bool rs_rdcm_starves(const rs_rdcm *r, rs_ring_kind kind);

/* rdcm.c: streams */
void rs_rdcm_stream_moved(rs_node *node, rs_rdcm *r);
bool rs_rdcm_lacks(const rs_receiving *x, uint64_t sn); /* it is not here, and there is room for it */
void rs_rdcm_stream_taken(rs_node *node, rs_time now, rs_receiving *x);
void rs_rdcm_stream_lost_path(rs_node *node, rs_time now, rs_sending *x);
void rs_rdcm_stream_grown(rs_node *node, rs_time now, rs_sending *x);

#endif
