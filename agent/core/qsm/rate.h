/* Rate control (Sec. 2.4): how fast new packets come, and how fast a sender may send. */
#ifndef RS_CORE_QSM_RATE_H
#define RS_CORE_QSM_RATE_H

#include "core/base/types.h"

#define RS_QSM_SAMPLES 10u /* k */

/* A moving average over k intervals that are over. */
typedef struct {
    rs_time interval, began; /* The interval that began then is not over yet. */
    uint32_t sample[RS_QSM_SAMPLES];
    uint32_t place, filled, current;
} rs_qsm_meter;

void rs_qsm_meter_add(rs_qsm_meter *meter, rs_time now, uint32_t packets);
uint32_t rs_qsm_meter_rate(rs_qsm_meter *meter, rs_time now); /* packets a second */

typedef enum {
    RS_QSM_RATE_OURS = 0, /* As the paper's, but growth is fast until the region falls behind, and what an application
                           * does not send is no reason to send slower. */
    RS_QSM_RATE_PAPER = 1
} rs_qsm_law;

typedef struct {
    rs_qsm_law law;
    double lambda;          /* growth coefficient, formula 2 */
    double least;           /* mu_min, packets a second */
    double rho;             /* inertia, formula 3 */
    double low, high, most; /* C_low, C_high and Delta_max of the credits, formula 4 */
    double target;          /* mu_snd */
    double alpha;           /* what the credits are recreated faster by than mu_snd, so that it is reached */
    double credits;
    rs_time refill_from,
        refill_at;       /* Credits are recreated from then on, and counted then; RS_NEVER: there are enough. */
    rs_time tuned_at;    /* alpha was adjusted then. */
    bool limited;        /* Credits, not the application, set the pace since then. */
    bool behind;         /* A receiver fell behind once. */
    rs_time cut_until;   /* What is told before is of the time before the last cut. */
    uint32_t calm;       /* So many reports came since then, and it grew. */
    rs_time grown_at;    /* The last growth. */
    rs_qsm_meter sent;   /* mu'_snd */
    rs_time sent_at;     /* The last packet was sent then. */
    uint32_t unreported; /* Packets sent since the last report of a whole round: what may wait on the way is bounded. */
    uint32_t turns;      /* Of so many rounds one is reported, as there are many senders. */
    rs_time round_most;  /* What a round takes at most if nothing waits. */
    rs_time interval;    /* between tokens */
    rs_time round_least; /* The shortest round of late; RS_NEVER: there was none; */
    rs_time round_before, round_from; /* ... that of the time before, and since when. */
} rs_qsm_control;

/* `lambda` and `least`: 0 is as usual. `interval`: between tokens; `round_most`: what a round
 * takes at most if nothing waits. */
void rs_qsm_control_init(rs_qsm_control *control, rs_qsm_law law, double lambda, double least, rs_time interval,
                         rs_time round_most, rs_time now);
bool rs_qsm_control_may_send(rs_qsm_control *control, rs_time now);
void rs_qsm_control_sent(rs_qsm_control *control, rs_time now);
/* A round is over, and what is told of it says nothing of the rate. */
void rs_qsm_control_round(rs_qsm_control *control, rs_time now, rs_time round, uint32_t turns);
/* What the region says of this sender, at the end of a round. */
typedef struct {
    uint32_t rate;    /* Its slowest node receives so many new packets of it a second. */
    uint32_t share;   /* mu_rec, formula 1 */
    uint32_t missing; /* The most packets that a node found missing in this round. */
    uint64_t behind;  /* The most packets that wait before a node. */
    rs_time round;    /* The time between rounds, or that this one took; 0: a node took no part in it. */
    bool early;       /* Of the nodes that the round has been at so far: it goes on. */
} rs_qsm_report;
void rs_qsm_control_told(rs_qsm_control *control, rs_time now, const rs_qsm_report *word);
/* When credits that are awaited come; RS_NEVER if there are some. */
rs_time rs_qsm_control_at(const rs_qsm_control *control);

#endif
