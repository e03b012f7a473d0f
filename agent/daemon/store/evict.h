/* Makes room in a store: received objects that were read longest ago go, unless they are pinned or in use. Which will
 * go is told some time before (`notice`); one that is read, pinned or used meanwhile stays. Added objects never go.
 *
 * Room is made when a place is more than 9/10 full, or the list of objects is, down to 8/10 (of what pinned and added
 * objects leave), and when something did not fit: that is refused, and fits after the notice. No clock of its own. */
#ifndef RS_STORE_EVICT_H
#define RS_STORE_EVICT_H

#include "daemon/store/store.h"

typedef struct rs_evict rs_evict;

typedef struct {
    rs_store *store;
    rs_time notice;
    /* It goes in `in`, or it stays after all (RS_NEVER), or it is gone (0; its room is free). */
    void (*tell)(void *context, const rs_object *object, rs_time in);
    void *context;
} rs_evict_config;

typedef struct {
    uint64_t objects, bytes; /* that went */
    uint64_t going, going_bytes;
    uint64_t short_of; /* bytes of room that nothing can be made for: all else is pinned, in use, or was added */
} rs_evict_stats;

/* NULL: out of memory. */
rs_evict *rs_evict_new(const rs_evict_config *config);
void rs_evict_free(rs_evict *evict);
/* To be called every some 100 ms. True: something went, and its memory is to be freed (rs_store_work). */
bool rs_evict_look(rs_evict *evict, rs_time now);
rs_evict_stats rs_evict_stats_get(const rs_evict *evict);
/* What helps who lacks so many bytes, as text; `makes`: room is made here. */
const char *rs_evict_to_do(const rs_store *store, bool disk, bool makes, uint64_t lacks);

#endif
