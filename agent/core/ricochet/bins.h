/* Repairs being made. */
#ifndef RS_CORE_RICOCHET_BINS_H
#define RS_CORE_RICOCHET_BINS_H

#include "core/groups/engine.h"
#include "core/ricochet/regions.h"

rs_status rs_ricochet_bins_init(rs_ricochet *own);
void rs_ricochet_bins_free(rs_ricochet *own);
/* A data packet came by multicast. */
void rs_ricochet_bins_received(rs_ricochet *own, rs_time now, rs_gm_group *group, const uint8_t *datagram,
                               uint32_t length);
void rs_ricochet_bins_timeout(rs_ricochet *own, rs_time now);
rs_time rs_ricochet_bins_deadline(const rs_ricochet *own);
bool rs_ricochet_poll_repair(rs_ricochet *own, rs_messages_out *out);
/* Repairs that were given out are free again. */
void rs_ricochet_bins_take_back(rs_ricochet *own);
/* An instance's repair begins: how many are to get it, and who, is drawn (Sec. 4.2.5). */
void rs_ricochet_bin_arm(rs_ricochet *own, rs_lec_bin *bin, rs_lec_instance *instance);
/* The bin goes away: what is in it is sent. */
void rs_ricochet_bin_empty(rs_ricochet *own, rs_lec_bin *bin);

#endif
