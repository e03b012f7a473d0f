/* When which position of the data channel was sent, and which packets ask for a report (RS_DATA_REPORT).
 *
 * Reports are asked for by the clock, so that the control loop sees the path several times in what is under way, and
 * never more often than all receivers together may answer. The sending time of a position gives round trips and the
 * time over which what was delivered had been sent. Ours; the paper has no feedback while data flows. */
#ifndef RS_CORE_SENT_TIMES_H
#define RS_CORE_SENT_TIMES_H

#include "core/base/types.h"

/* Bounds: others of that order would do. */
#define RS_SENT_TIMES 64
#define RS_SENT_TIMES_MOST (INT64_C(100) * 1000000) /* passes at most between two, however slow packets go */

typedef struct {
    uint64_t pos; /* the position */
    rs_time at;   /* when it was sent */
} rs_sent_time;

typedef struct {
    rs_time least; /* never two reports asked for within this time */
    rs_time every; /* between two of them; at least `least` */
    /* Positions between two of them, unless it is the last packet for a while, or RS_SENT_TIMES_MOST went by. */
    uint64_t interval;
    /* What the slowest that is waited for has told, and how long its answers may take. While they take longer they wait
     * for one another on their way, and no more are asked for. */
    uint64_t answered;
    rs_time timeout; /* answers may take so long */
    rs_time due;     /* the next one is asked for then */
    uint64_t count;  /* ever made; the newest RS_SENT_TIMES are kept */
    rs_sent_time ring[RS_SENT_TIMES];
} rs_sent_times;

void rs_sent_times_start(rs_sent_times *sent, rs_time now, rs_time least, rs_time every);
void rs_sent_times_least(rs_sent_times *sent, rs_time least);
void rs_sent_times_every(rs_sent_times *sent, rs_time every);
/* A packet is being sent; `last`: none may follow for a while. True if it asks for a report. Positions increase. */
bool rs_sent_times_add(rs_sent_times *sent, rs_time now, uint64_t pos, bool last);
/* When the next packet may ask for a report at the earliest. */
/* What passes between two reports that are asked for, when a packet takes so long. */
rs_time rs_sent_times_interval(const rs_sent_times *m, rs_time packet);
rs_time rs_sent_times_next_report(const rs_sent_times *sent);
/* The newest remembered position at or before the position that is still remembered, NULL if there is none. */
const rs_sent_time *rs_sent_times_at(const rs_sent_times *sent, uint64_t pos);
/* When the position was sent, between two that are remembered in proportion; RS_NEVER if that is forgotten. */
rs_time rs_sent_times_time(const rs_sent_times *sent, uint64_t pos);

#endif
