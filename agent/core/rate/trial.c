#include "core/rate/trial.h"

/* Where no other source is named: test_trial. */
/* Loss above what is usual that is worth a trial. Less than that costs less in repairs than trials do: each takes some
 * of the rate, or of the queue, for TRIED packets. */
#define MUCH 0.005
#define SIGMAS 3 /* it is no chance, and not often taken for one: samples are judged as they grow */
/* A trial ends after 2,048 packets: in runs of 16 a share of 5 % is known to 2 % then, two deviations. Without one a
 * sample ends after four times as many, half that deviation. */
#define TRIED 2048
#define WHOLE (4 * TRIED)
#define JOINED (TRIED / 2) /* of another's trial: reports come a quarter of it apart at most, and begin and end it */
#define HELPED 0.5         /* so much of it is left, or less */
#define USUAL_MOST 0.5     /* a bound */
#define FADES 16 /* whole samples in which most of the usual loss is forgotten where it does not come any more */

static bool is_much(double usual, double share, uint64_t packets) {
    double above = share - 1.25 * usual - MUCH; /* the usual loss is known no better than by a quarter */
    return above > 0 && above * above > SIGMAS * SIGMAS * RS_LOSS_RUN * share * (1 - share) / (double)packets;
}

static double share_of(uint64_t packets, uint64_t lost) {
    return packets ? (double)(lost < packets ? lost : packets) / (double)packets : 0;
}

static rs_trial_verdict end(rs_loss_trial *t, double share) {
    bool futile = share > t->before * HELPED;
    if (futile)
        t->usual = share < USUAL_MOST ? share : USUAL_MOST;
    t->before = 0;
    return futile ? RS_TRIAL_FUTILE : RS_TRIAL_HELPED;
}

rs_trial_verdict rs_loss_trial_judge(rs_loss_trial *t, uint64_t packets, uint64_t lost, bool may_begin) {
    double share = share_of(packets, lost);
    if (t->before > 0)
        return packets < TRIED ? RS_TRIAL_MORE : end(t, share);
    if (may_begin && packets > RS_LOSS_RUN && is_much(t->usual, share, packets)) {
        t->before = share;
        return RS_TRIAL_BEGINS;
    }
    if (packets < WHOLE)
        return RS_TRIAL_MORE;
    if (share < t->usual)
        t->usual -= (t->usual - share) / FADES;
    return RS_TRIAL_FINE;
}

bool rs_loss_trial_join(rs_loss_trial *t, uint64_t packets, uint64_t lost) {
    double share = share_of(packets, lost);
    if (t->before > 0 || packets < JOINED || share <= 1.25 * t->usual + MUCH)
        return false;
    t->before = share;
    return true;
}

rs_trial_verdict rs_loss_trial_left(rs_loss_trial *t, uint64_t packets, uint64_t lost) {
    if (packets >= JOINED)
        return end(t, share_of(packets, lost));
    t->before = 0;
    return RS_TRIAL_MORE;
}

bool rs_loss_trial_would_show(double share, double part) {
    return 1 - (1 - share) / part <= share * HELPED;
}

void rs_loss_trial_drop(rs_loss_trial *t) {
    t->before = 0;
}
