/* Who must acknowledge what this node has, and what is sent to them again (Sec. 3.3, Packet Repair). */
#ifndef RS_CORE_RDCM_REPAIR_H
#define RS_CORE_RDCM_REPAIR_H

#include "core/rdcm/rdcm.h"

bool rs_watch_start(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, rs_peer peer);
void rs_watch_end(rs_node *node, rs_rdcm_watch *w);
rs_time rs_watch_timeout(const rs_node *node, const rs_rdcm_watch *w);
/* An acknowledgement came. Returns how many packets are new in it. */
uint64_t rs_watch_learn(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, const rs_ack *ack);
/* The next packet to repair, which counts as sent; false: none now, and `check_at` says when to ask again. */
bool rs_watch_next(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w, uint64_t *sn);
void rs_watch_look(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w);  /* something may be due */
void rs_watch_grown(rs_node *node, rs_time now, rs_rdcm *r, rs_rdcm_watch *w); /* there is more to acknowledge */
/* Another has sent it this packet, as if this node had. */
void rs_watch_assume(rs_time now, rs_rdcm_watch *w, uint64_t sn);

#endif
