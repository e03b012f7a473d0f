#include "core/rate/rtt.h"

void rs_rtt_sample(rs_rtt *rtt, rs_time sample) {
    if (sample < 0)
        return;
    if (sample == 0)
        sample = 1;
    if (rtt->smoothed == 0) {
        rtt->smoothed = sample;
        rtt->variance = sample / 2;
        return;
    }
    rs_time error = sample > rtt->smoothed ? sample - rtt->smoothed : rtt->smoothed - sample;
    rtt->variance += (error - rtt->variance) / 4;
    rtt->smoothed += (sample - rtt->smoothed) / 8;
}

rs_time rs_rtt_late(const rs_rtt *rtt, rs_time otherwise) {
    return rtt->smoothed ? rtt->smoothed + 4 * rtt->variance : otherwise;
}
