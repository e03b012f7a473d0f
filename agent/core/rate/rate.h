/* The rate of one transfer on the data channel: the least of what circuit, NICs and the paths to receivers take
 * (path_model.h), and of what loss feedback allows.
 *
 * Paths show congestion by the queue it makes. What has too little room for a queue, or a receiver's socket, shows it
 * by loss alone: a cut goes straight to the rate that got through. Loss that cuts do not lessen is not congestion (a
 * dim circuit, say): it becomes that receiver's baseline and the cuts are undone; patches make up for it. Ours; the
 * paper sends at line rate. */
#ifndef RS_CORE_RATE_H
#define RS_CORE_RATE_H

#include "core/rate/trial.h"

#define RS_RATE_SAMPLE 64     /* packets; of fewer, losses say nothing (test_rate) */
#define RS_RATE_LEAST 1000000 /* bit/s: never below, or the transfer would not end (a bound) */

/* What is known of the losses of one receiver. */
typedef struct {
    rs_loss_trial trial; /* Whether a lower rate lessens them. */
    int64_t before_bps;  /* Rate when that trial began. */
    bool joined;         /* It is another's trial, and judged for this one, too. */
} rs_loss_watch;

typedef struct {
    int64_t ceiling_bps;     /* path and NIC */
    int64_t share_bps;       /* the least any receiver's NIC has left for this transfer; 0 = unknown */
    int64_t model_bps;       /* the least any path takes; 0 = unknown */
    int64_t found_bps;       /* what loss feedback allows */
    int64_t got_through_bps; /* at the last cut: the capacity, it seems; 0 = unknown */
    uint32_t climb;          /* clean epochs above it */
    rs_time epoch, epoch_end, cut_at;
    uint64_t from_pos;           /* what was sent before this position says nothing of the present rate */
    const rs_loss_watch *trying; /* whom the last cut was for, while it is not known what it did */
    int64_t tried_bps;           /* the rate before that cut */
} rs_rate;

void rs_rate_start(rs_rate *rate, rs_time now, int64_t ceiling_bps, rs_time epoch);
int64_t rs_rate_bps(const rs_rate *rate);
/* What a sample of losses says: */
typedef enum {
    RS_LOSS_UNSURE, /* nothing yet: add more packets to the sample */
    RS_LOSS_FINE,   /* begin another one */
    RS_LOSS_CUT     /* the rate was changed: what was sent before says nothing of the new rate */
} rs_loss_verdict;

/* `lost` of `expected` packets to one receiver, some of them `dropped` at its socket. */
rs_loss_verdict rs_rate_feedback(rs_rate *rate, rs_time now, rs_loss_watch *watch, uint64_t expected, uint64_t lost,
                                 bool dropped);
/* A sample ended without a verdict, as the rate was changed for another's sake. One cut tells of all whose losses it
 * would lessen: if it did not, those are usual for each of them, and none is tried again by itself. */
void rs_rate_changed(rs_rate *rate, rs_loss_watch *watch, uint64_t expected, uint64_t lost);
/* Raises the rate when an epoch went by without a cut. To be called now and then while data flows; true if the rate
 * changed. */
bool rs_rate_tick(rs_rate *rate, rs_time now);

#endif
