/* Round-trip time to a peer over the control channel, smoothed as TCP does (RFC 6298). */
#ifndef RS_CORE_RTT_H
#define RS_CORE_RTT_H

#include "core/base/types.h"

typedef struct {
    rs_time smoothed, variance; /* 0 = no sample yet */
} rs_rtt;

void rs_rtt_sample(rs_rtt *rtt, rs_time sample);
/* A time after which an answer is late: smoothed + 4 * variance, or `otherwise` without samples. */
rs_time rs_rtt_late(const rs_rtt *rtt, rs_time otherwise);

#endif
