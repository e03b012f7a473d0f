/* Repairs received. */
#ifndef RS_CORE_RICOCHET_PENDING_REPAIRS_H
#define RS_CORE_RICOCHET_PENDING_REPAIRS_H

#include "core/ricochet/state.h"

rs_status rs_ricochet_pending_init(rs_ricochet *own);
void rs_ricochet_pending_free(rs_ricochet *own);
bool rs_ricochet_receive_repair(rs_ricochet *own, rs_time now, rs_peer from, const uint8_t *bytes, size_t length);
/* The packet `missing` stood for is here: repairs that waited for it need one less. */
void rs_ricochet_pending_found(rs_ricochet *own, rs_gm_missing *missing, const uint8_t *body, uint32_t length);
/* It will not come: repairs with it are of no use. */
void rs_ricochet_pending_lost(rs_ricochet *own, rs_gm_missing *missing);
/* Decodes what has become usable. */
void rs_ricochet_pending_work(rs_ricochet *own, rs_time now);
/* A repair that was kept needs this packet and one other, and that one was asked for: its answer brings both. */
bool rs_ricochet_comes_with_another(const rs_ricochet *own, const rs_gm_missing *missing);

#endif
