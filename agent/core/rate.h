/* The rate of one transfer on the data channel: from the path's and NIC's rate down to what the receivers take, and up again.
 *
 * Losses are reported by receivers (RATE). A cut goes straight to the rate that got through. Loss that a cut does not lessen is not congestion (a dim
 * circuit, a ringing one): it becomes the baseline and the cut is undone; patches make up for it. Ours; the paper sends at line rate. */
#ifndef RS_CORE_RATE_H
#define RS_CORE_RATE_H

#include "core/types.h"

typedef struct {
    int64_t ceiling_bps; /* path and NIC */
    int64_t share_bps;   /* the least any receiver's NIC has left for this transfer; 0 = unknown */
    int64_t floor_bps;   /* never below: a straggler slower than this is finished by patches, not waited for by all */
    int64_t found_bps;   /* what loss feedback allows */
    int64_t got_through_bps;
    int64_t before_cut_bps;
    uint32_t worst_ppm, baseline_ppm, cut_ppm;
    bool dropped;
    uint32_t futile, clean;
    rs_time epoch, epoch_end, cut_at;
} rs_rate;

void rs_rate_start(rs_rate *rate, rs_time now, int64_t ceiling_bps, rs_time epoch);
int64_t rs_rate_bps(const rs_rate *rate);
/* Of one receiver: `lost` of `expected` packets (at least RS_RATE_SAMPLE), some of them dropped at its socket. True if the rate was cut: what was sent
 * before says nothing of the new rate. */
bool rs_rate_feedback(rs_rate *rate, rs_time now, uint64_t expected, uint64_t lost, bool dropped);
/* Raises the rate when an epoch was clean. To be called now and then while data flows; true if the rate changed. */
bool rs_rate_tick(rs_rate *rate, rs_time now);

#define RS_RATE_SAMPLE 48

#endif
