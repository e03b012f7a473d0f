/* A receiver that reports by a tree: it collects the reports of a few others, merges them with its own, and passes one
 * on. Reports are made when a data packet asks for them: whoever collects waits for those below it, for a time that
 * grows with their levels, so that what the sender reads is as new as the network allows. Nothing is kept of a report
 * but the newest of each child. No engine's: the caller says what it saw itself. */
#ifndef RS_CORE_FEEDBACK_REPORTER_H
#define RS_CORE_FEEDBACK_REPORTER_H

#include "core/feedback/report.h"

/* Where no other source is named: docs/feedback.md. */
#define RS_REPORT_CHILDREN 32u /* at most collects one receiver (a bound) */
#define RS_REPORT_LOSSES 4096  /* packets that a receiver counts its losses over (a bound) */
#define RS_REPORT_SILENT_MARKS 3u
#define RS_REPORT_SILENT (10 * INT64_C(1000000)) /* who answers none of so many marks for so long holds nobody back */

typedef struct {
    rs_peer peer;      /* Who it is. */
    uint32_t address;  /* Its IPv4 address, host order. */
    bool heard, late;  /* Something was heard of it; its answer to the newest mark is awaited. */
    bool tell_over;    /* It is to hear that the session's data are over. */
    rs_time heard_at;  /* Its newest report came then, or it became a child... */
    uint64_t marks;    /* ...when so many marks had come. */
    rs_report said;    /* Its newest report. */
    rs_ranges wanted;  /* Fragments that it asked for; */
    rs_ranges awaited; /* those that were not here: it has them when they come. */
    rs_ranges came;    /* They came, and go to it. */
} rs_reporter_child;

typedef struct {
    rs_peer parent;  /* To whom it reports. */
    uint32_t height; /* levels below */
    uint32_t child_count;
    rs_reporter_child *children; /* Those that report to it. */
    uint64_t first, end;         /* the session's ring */
    bool done;                   /* This receiver itself is not waited for; */
    bool complete;               /* it misses nothing. */
    rs_report own;               /* With RS_REPORT_OWN: what it saw when the newest mark came. */
    uint64_t moved;              /* So many fragments further than at the mark before. */
    uint64_t marks;              /* Packets that asked for a report. */
    rs_time marked_at;           /* The newest came then, */
    rs_time mark_every;          /* and the one before so long before. */
    rs_time due;                 /* The next report goes then. */
    rs_time made_at;             /* The last one went then: */
    bool made;                   /* one of the newest mark. */
    uint32_t silent_turn;
} rs_reporter;

void rs_reporter_session(rs_reporter *r, uint64_t first, uint64_t end); /* what was said before means nothing */
rs_reporter_child *rs_reporter_child_of(rs_reporter *r, rs_peer peer);  /* NULL: it is none */
/* A data packet asked for a report; `own` is what this receiver saw. */
void rs_reporter_mark(rs_reporter *r, rs_time now, const rs_report *own);
/* It is not waited for any more: its part is over; `whole`: it misses nothing, either. */
void rs_reporter_done(rs_reporter *r, rs_time now, bool complete);
/* A report of a child. False: it is none of its reports. */
bool rs_reporter_heard(rs_reporter *r, rs_time now, rs_peer peer, const rs_report *report);
bool rs_reporter_due(const rs_reporter *r, rs_time now);
void rs_reporter_make(rs_reporter *r, rs_time now, rs_report *out);
/* The session's data are over: whoever of the children may miss something is to hear it, one each time. False: none. */
void rs_reporter_over(rs_reporter *r);
bool rs_reporter_tell_over(rs_reporter *r, rs_report *out, rs_peer *to);
bool rs_reporter_served(const rs_reporter *r); /* nobody it collects from misses anything */

#endif
