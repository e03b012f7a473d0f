/* Mends the packets of a few children, as designated receivers (RMTP), domain managers (TMTP) and logging servers
 * (LBRM) do: what is asked for is collected for a moment, then goes to each that asked or to all, whichever takes fewer
 * links (TMTP: always to all). Private to sim/baselines. */
#ifndef SIM_REPAIRER_H
#define SIM_REPAIRER_H

#include "baselines/baseline.h"

#define TIMER_MEND 100 /* kind; owner: the packet */

void repairer_begin(baseline *b); /* one timer per packet */
void repairer_free(baseline *b);
/* The child's number; BASELINE_CHILDREN if it is none. `m` tells how far away it is. */
uint32_t repairer_child(baseline *b, rs_time now, const message *m);
/* The child misses `sn`, as it said in a message that left it at `said_at`. */
void repairer_ask(baseline *b, rs_time now, uint32_t child, uint32_t sn, rs_time said_at);
void repairer_got(baseline *b, rs_time now, uint32_t sn);
void repairer_mend(baseline *b, rs_time now, rs_timer *timer);      /* TIMER_MEND is due */
void repairer_report(baseline *b, rs_time now);                     /* RMTP, TMTP: to the parent, what is here */
void repairer_reported(baseline *b, rs_time now, const message *m); /* by a child: what it misses is asked for */

#endif
