/* When which position of the data channel was sent, and which packets ask for a report (RS_DATA_REPORT).
 *
 * Reports are asked for by the clock, so that the control loop sees the path several times in what is under way, and
 * never more often than all receivers together may answer. The sending time of a position gives round trips and the
 * time over which what was delivered had been sent. Ours; the paper has no feedback while data flows. */
#ifndef RS_CORE_MARKS_H
#define RS_CORE_MARKS_H

#include "core/base/types.h"

#define RS_MARKS 64

typedef struct {
    uint64_t pos;
    rs_time at;
} rs_mark;

typedef struct {
    rs_time least; /* never two reports asked for within this time */
    rs_time every; /* between two of them; at least `least` */
    rs_time due;
    uint64_t count; /* ever made; the newest RS_MARKS are kept */
    rs_mark ring[RS_MARKS];
} rs_marks;

void rs_marks_start(rs_marks *marks, rs_time now, rs_time least, rs_time every);
void rs_marks_least(rs_marks *marks, rs_time least);
void rs_marks_every(rs_marks *marks, rs_time every);
/* A packet is being sent; `last`: none may follow for a while. True if it asks for a report. Positions increase. */
bool rs_marks_packet(rs_marks *marks, rs_time now, uint64_t pos, bool last);
/* When the next packet may ask for a report at the earliest. */
rs_time rs_marks_may(const rs_marks *marks);
/* The newest mark at or before the position that is still remembered, NULL if there is none. */
const rs_mark *rs_marks_at(const rs_marks *marks, uint64_t pos);
/* When the position was sent, between two marks in proportion; RS_NEVER if that is forgotten. */
rs_time rs_marks_time(const rs_marks *marks, uint64_t pos);

#endif
