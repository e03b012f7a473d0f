/* What plane.c and regions.c share. */
#ifndef RS_CORE_MESSAGES_REGIONS_H
#define RS_CORE_MESSAGES_REGIONS_H

#include "core/ricochet/plane.h"

#define RS_LEC_BUCKETS 2048u

void rs_lec_peer_free(rs_messages *node, rs_lec_peer *peer);

#endif
