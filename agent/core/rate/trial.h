/* Is this loss congestion? Loss is asked by an experiment: the sender does less (a lower rate, a shorter queue), and
 * looks whether less is lost. If so, it was congestion; if not, it is what this path loses whatever is sent (a dim
 * circuit, a bad cable), is remembered as usual, and what was done is taken back. Ours: TCP takes any loss for
 * congestion (RFC 5681), BBR (draft-ietf-ccwg-bbr) none below 2 % of a round trip's packets. */
#ifndef RS_CORE_TRIAL_H
#define RS_CORE_TRIAL_H

#include "core/base/types.h"

/* Packets that one cause takes together (half of RS_PACER_BURST): losses come in runs, so a sample's share scatters
 * like that of so many times fewer packets. */
#define RS_LOSS_RUN 16

/* All zero at first. */
typedef struct {
    double usual;  /* Share of packets that is lost whatever is sent, as trials have shown; it fades where less is. */
    double before; /* Share that was lost when the trial began; 0 = no trial is under way. */
} rs_loss_trial;

typedef enum {
    RS_TRIAL_MORE,   /* Too few packets to tell: go on with this sample. All others end it. */
    RS_TRIAL_FINE,   /* No more than usual. */
    RS_TRIAL_BEGINS, /* More than usual: do less. What was sent before that does not count. */
    RS_TRIAL_HELPED, /* Less was lost: leave it so. */
    RS_TRIAL_FUTILE  /* As much was lost: take back what was done. */
} rs_trial_verdict;

/* `lost` of `packets` of the present sample. `may_begin`: a trial could be told from other things now. */
rs_trial_verdict rs_loss_trial_judge(rs_loss_trial *trial, uint64_t packets, uint64_t lost, bool may_begin);
/* Another's trial begins, of which this loss can be judged, too: true if it is more than usual and known well enough.
 * When what was done for that is taken back, rs_loss_trial_left says what `lost` of `packets` meanwhile was. */
bool rs_loss_trial_join(rs_loss_trial *trial, uint64_t packets, uint64_t lost);
rs_trial_verdict rs_loss_trial_left(rs_loss_trial *trial, uint64_t packets, uint64_t lost);
/* Congestion that lost `share` is seen to be less once the rate is that `part` of what it was. */
bool rs_loss_trial_would_show(double share, double part);
/* The loss was found to be something else: no trial is under way. */
void rs_loss_trial_drop(rs_loss_trial *trial);

#endif
