/* When each of many sources has something to do next. Every source is in it at most once. Equal times: the smaller
 * source first.
 *
 * A timing wheel of several levels (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987) whose slots are
 * lists through the sources' own entries: setting and taking out touch a few words, however much is waiting. Only what
 * is due within the present slot of some nanoseconds is kept in order, in a small heap. */
#ifndef SIM_CALENDAR_H
#define SIM_CALENDAR_H

#include "core/types.h"

#define CALENDAR_LEVELS 5
#define CALENDAR_SLOTS 4096

typedef struct {
    rs_time at;
    uint32_t next, previous; /* in its slot's list; in the heap, `next` is its place there */
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
    calendar_due *heap;      /* what is due before the end of the present slot */
    uint32_t due, sources;
    uint64_t clock; /* the present slot: everything before its end is in the heap */
    calendar_level *levels;
} calendar;

/* Room for sources 0 ... sources - 1. False if memory is short. */
bool calendar_reserve(calendar *c, uint32_t sources);
void calendar_free(calendar *c);
/* `at` from 0; RS_NEVER takes the source out. */
void calendar_set(calendar *c, uint32_t source, rs_time at);
/* RS_NEVER if there is none. */
rs_time calendar_first(calendar *c, uint32_t *source);

#endif
