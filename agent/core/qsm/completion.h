/* Completion (Sec. 2.2, Fig. 20): how far a group's own packets have come to all members, for applications that want to
 * know. A packet of a group is complete when each of its regions has acknowledged the request made of it: when all who
 * cache that have it, from where every other node gets it. */
#ifndef RS_CORE_QSM_COMPLETION_H
#define RS_CORE_QSM_COMPLETION_H

#include "core/qsm/state.h"

/* From the next packet on it is told, or not any more. RS_ERR_MEMORY. */
rs_status rs_qsm_completion_tell(void *of_node, rs_gm_group *group, bool tell);
void rs_qsm_completion_end(rs_qsm *own, rs_gm_group *group);
/* The group's packet `sn` became so many requests; of each of them one of these two is called in the end. */
void rs_qsm_completion_begin(rs_qsm *own, rs_gm_group *group, uint64_t sn, uint32_t requests);
/* All messages in a packet of a region, for an end: it was acknowledged, or given up. */
void rs_qsm_completion_packet(rs_qsm *own, const rs_qsm_own_packet *packet, bool given_up);
/* The engine's `completed`. */
bool rs_qsm_completion_poll(void *of_node, rs_messages_event *out);

#endif
