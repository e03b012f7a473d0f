/* The rate of one transfer on the data channel: from the path's and NIC's rate down to what the receivers take, and up
 * again.
 *
 * Losses are reported by receivers (RATE). A cut goes straight to the rate that got through. Loss that cuts do not
 * lessen is not congestion (a dim circuit, say): it becomes that receiver's baseline and the cuts are undone; patches
 * make up for it. Ours; the paper sends at line rate. */
#ifndef RS_CORE_RATE_H
#define RS_CORE_RATE_H

#include "core/types.h"

#define RS_RATE_SAMPLE 64 /* packets; of fewer, losses say little */

typedef struct {
    int64_t ceiling_bps; /* path and NIC */
    int64_t share_bps;   /* the least any receiver's NIC has left for this transfer; 0 = unknown */
    int64_t floor_bps;   /* never below: a straggler slower than this is finished by patches, not waited for by all */
    int64_t found_bps;   /* what loss feedback allows */
    int64_t got_through_bps; /* at the last of several cuts: the capacity, it seems; 0 = unknown */
    uint32_t plateau, climb; /* clean epochs near it, and away from it */
    rs_time epoch, epoch_end, cut_at;
} rs_rate;

/* What is known of the losses of one receiver. */
typedef struct {
    uint32_t baseline_ppm, proven_ppm; /* loss that does not depend on the rate: its average; what it may be at most */
    uint32_t cut_ppm, sum_ppm;         /* at the last cut for it; over the present row of cuts */
    uint32_t futile;                   /* cuts in a row that lessened nothing */
    int64_t before_bps;                /* rate before that row */
} rs_loss_watch;

void rs_rate_start(rs_rate *rate, rs_time now, int64_t ceiling_bps, rs_time epoch);
int64_t rs_rate_bps(const rs_rate *rate);
/* `lost` of `expected` packets to one receiver, some of them `dropped` at its socket. True if the rate was changed:
 * what was sent before says nothing of the new rate. */
bool rs_rate_feedback(rs_rate *rate, rs_time now, rs_loss_watch *watch, uint64_t expected, uint64_t lost, bool dropped);
/* Raises the rate when an epoch went by without a cut. To be called now and then while data flows; true if the rate
 * changed. */
bool rs_rate_tick(rs_rate *rate, rs_time now);

#endif
