/* SRM's random waits, and how they adapt (Floyd et al., "A reliable multicast framework for light-weight sessions and
 * application level framing", 1997, Sec. III-B and VII-A). SRM of one object (srm.c) and SRM of message groups
 * (srm_groups.c) both wait by them. Private to sim/baselines. */
#ifndef SIM_SRM_LAW_H
#define SIM_SRM_LAW_H

#include "core/base/types.h"

#define SRM_HOLD 3         /* distances for which requests are not answered after a repair (Sec. III-B) */
#define SRM_BACKOFF_MOST 5 /* doublings of a request's wait */
#define SRM_START_MOST 2   /* distances before the first request, however many duplicates there are (Sec. VII-A) */

/* Requests, or repairs: a wait is uniform in [start, start + width] distances. */
typedef struct {
    double start, width; /* now */
    double start_most;   /* `start` stays below it */
    double width_most;   /* and `width` below this one: the members */
    double duplicates;   /* of a round in the mean, of late */
    double delay;        /* from when it was called for until the first one of a round, distances, of late */
} srm_law;

/* Waits as they are at first, and between what they stay. `members`: of the group. */
srm_law srm_law_new(double start, double width, double start_most, uint32_t members);
/* Before a new wait: many duplicates widen the timers, few narrow them where they also take long. */
void srm_law_adapt(srm_law *law);
/* This member was first: it is near, and should be first again. */
void srm_law_was_first(srm_law *law);
/* A round had so many duplicates, */
void srm_law_count(srm_law *law, double duplicates);
/* and its first message came after so many distances. */
void srm_law_took(srm_law *law, double delay);
/* The wait, ns; `chance`: uniform in [0, 1); `distance`, ns, one way. */
rs_time srm_law_wait(const srm_law *law, double chance, double distance, uint32_t backoff);

#endif
