/* When each of many sources has something to do next. Every source is in it at most once. Equal times: the smaller
 * source first.
 *
 * A timing wheel of several levels (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987) whose slots are
 * lists through the sources' own entries: setting and taking out touch a few words, however much is waiting. What a
 * slot of some nanoseconds holds is sorted once, when its time comes; so it is known what comes after the next one
 * (calendar_ahead), whose memory can be fetched meanwhile. Only what is set for the present slot itself goes through a
 * small heap. */
#ifndef SIM_CALENDAR_H
#define SIM_CALENDAR_H

#include "core/base/types.h"

#define CALENDAR_LEVELS 5
#define CALENDAR_SLOTS 4096
#define CALENDAR_NOBODY UINT32_MAX

typedef struct {
    rs_time at;
    uint32_t next, previous; /* in its slot's list; in the heap or the run, `next` is its place there */
    uint32_t where;          /* 0: nowhere */
} calendar_entry;

typedef struct {
    uint32_t head[CALENDAR_SLOTS];
    uint64_t used[CALENDAR_SLOTS / 64], any; /* slots with a list; words of `used` that are not 0 */
} calendar_level;

typedef struct {
    rs_time at;
    uint32_t source;
} calendar_due;

typedef struct {
    calendar_entry *entries; /* of each source */
    uint64_t *run, *spare;   /* what the present slot held, in order: time in the slot and source; NOBODY: taken out */
    calendar_due *heap;      /* what was set for it since */
    uint32_t run_at, run_end, due, sources;
    rs_time run_clock;
    uint64_t clock; /* the present slot: everything before its end is in the run or the heap */
    calendar_level *levels;
} calendar;

/* Room for sources 0 ... sources - 1. False if out of memory. */
bool calendar_reserve(calendar *c, uint32_t sources);
void calendar_free(calendar *c);
/* `at` from 0; RS_NEVER takes the source out. */
void calendar_set(calendar *c, uint32_t source, rs_time at);
/* RS_NEVER if there is none up to `limit` (from 0); it may tell one that comes a little later. Nothing is to be set
 * before `limit` after that, but for what comes of the one told. */
rs_time calendar_first(calendar *c, rs_time limit, uint32_t *source);
/* What probably comes so many later than the first, for fetching it early; CALENDAR_NOBODY: unknown. */
static inline uint32_t calendar_ahead(const calendar *c, uint32_t many) {
    return c->run_end - c->run_at > many ? (uint32_t)c->run[c->run_at + many] : CALENDAR_NOBODY;
}

#endif
