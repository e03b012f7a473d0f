/* The backup overlay: views, acknowledgements and expectations in its rings (Sec. 3.2 to 3.5). */
#ifndef RS_CORE_RDCM_OVERLAY_H
#define RS_CORE_RDCM_OVERLAY_H

#include "core/rdcm/rdcm.h"

/* acknowledgements (Sec. 3.3, Packet Acknowledgement) and expectations (Sec. 3.5) going out */
void rs_rdcm_news_of(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind, uint64_t sn, bool at_once);
void rs_rdcm_say_all(rs_node *node, rs_rdcm *r, rs_ring_kind kind);

void rs_rdcm_say_lost(rs_node *node, rs_rdcm *r); /* something on the tree, here */
void rs_rdcm_say_to(rs_node *node, rs_rdcm *r, rs_peer predecessor);
void rs_rdcm_say_repaired(rs_node *node, rs_time now, rs_rdcm *r, rs_peer by);
void rs_rdcm_tail_look(rs_node *node, rs_time now, rs_rdcm *r); /* the object's last packet may have gone */
void rs_rdcm_say_later(rs_node *node, rs_time now, rs_rdcm *r); /* what was put off, if its time has come */
void rs_rdcm_settled_moved(rs_node *node, rs_rdcm *r);          /* of a child, or here */
uint64_t rs_rdcm_least_settled(const rs_rdcm *r);               /* of its children */
/* A packet passed here, or was sent, which children answer. `timeout`: what their answers usually take at most. */
void rs_rdcm_note_owed(rs_rdcm *r, rs_time now, rs_time timeout);
bool rs_rdcm_is_silent(const rs_rdcm *r, const rs_rdcm_child *child);
uint64_t rs_rdcm_expected(const rs_rdcm *r, rs_ring_kind kind);
uint64_t rs_rdcm_expected_of(const rs_rdcm *r, const rs_ack *ack); /* a child's, as far as it counts */
void rs_rdcm_expected_moved(rs_node *node, rs_time now, rs_rdcm *r, rs_ring_kind kind);
bool rs_rdcm_poll_ack(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out);

/* repairs going out, to successors and children */
void rs_rdcm_seed(rs_node *node, rs_time now, rs_rdcm *r, uint64_t sn, rs_peer from); /* children lacked it */
bool rs_rdcm_poll_repair(rs_node *node, rs_time now, rs_receiving *x, rs_packet_out *out);

/* views (Sec. 3.4, Repair Window Management when Switching Overlay Rings) */
void rs_rdcm_ack_of_view(rs_node *node, rs_time now, rs_rdcm *r, rs_peer peer, const rs_ack *ack);
void rs_rdcm_ready_look(rs_node *node, rs_time now, rs_rdcm *r);
rs_status rs_rdcm_sender_view(rs_node *node, rs_time now, rs_sending *x, const rs_view *view);
rs_status rs_rdcm_receiver_view(rs_node *node, rs_time now, rs_receiving *x, const rs_view *view);
void rs_rdcm_old_rings_look(rs_node *node, rs_time now, rs_rdcm *r);

#endif
