/* Region views at a node, and what follows from their nodes alone: partitions, rings, leaders (Sec. 2.1, 2.3.1). */
#ifndef RS_CORE_QSM_REGIONS_H
#define RS_CORE_QSM_REGIONS_H

#include "core/qsm/state.h"

rs_qsm_view *rs_qsm_view_find(const rs_qsm *own, uint32_t region, uint64_t version);
/* The newest one; NULL if the region has ended. */
rs_qsm_view *rs_qsm_view_current(const rs_qsm *own, uint32_t region);
/* In no table yet. NULL: out of memory. `nodes` ascending. */
rs_qsm_view *rs_qsm_view_new(rs_qsm *own, uint32_t region, uint64_t version, rs_group channel, const rs_peer *nodes,
                             uint32_t count, const uint32_t *option);
void rs_qsm_view_free(rs_qsm_view *view);
/* It is the current one from now on; if it is here already, and was left, that one is: what it sent is kept, and its
 * numbers go on. Takes `view`. */
void rs_qsm_view_install(rs_qsm_view *view);
void rs_qsm_view_retire(rs_qsm_view *view);
void rs_qsm_view_remove(rs_qsm_view *view); /* out of the table, and freed */
void rs_qsm_view_wake(rs_qsm_view *view);
uint32_t rs_qsm_place_of(const rs_qsm_view *view, rs_peer peer);
bool rs_qsm_is_alive(const rs_qsm_view *view, uint32_t place);
/* A place on the token's way. Phase 0: on the way round a partition; 1: back at its leader; 2: at the region's. */
typedef struct {
    uint32_t place, phase;
} rs_qsm_hop;
rs_qsm_hop rs_qsm_next_hop(const rs_qsm_view *view, uint32_t leader, rs_qsm_hop at);
uint32_t rs_qsm_region_leader(const rs_qsm_view *view); /* RS_QSM_NOWHERE: all are gone */
uint32_t rs_qsm_partition_leader(const rs_qsm_view *view, uint32_t partition);

#endif
