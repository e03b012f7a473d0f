/* When each of many sources has something to do next: an indexed four-ary heap. Every source is in it at most once,
 * so it stays as small as the network, however many packets are under way. Equal times: the smaller source first. */
#ifndef SIM_CALENDAR_H
#define SIM_CALENDAR_H

#include "core/types.h"

typedef struct {
    rs_time at;
    uint32_t source;
} calendar_entry;

typedef struct {
    calendar_entry *heap;
    uint32_t *place; /* of each source, + 1; 0 = not in the heap */
    uint32_t count, sources;
} calendar;

/* Room for sources 0 ... sources - 1. False if memory is short. */
bool calendar_reserve(calendar *c, uint32_t sources);
void calendar_free(calendar *c);
/* RS_NEVER takes the source out. */
void calendar_set(calendar *c, uint32_t source, rs_time at);
/* RS_NEVER if there is none. */
rs_time calendar_first(const calendar *c, uint32_t *source);

#endif
