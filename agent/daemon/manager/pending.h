/* What the link must not lose in an outage: requests without a final answer, and calls to be told after a reconnect. */
#ifndef RS_DAEMON_MANAGER_KEPT_H
#define RS_DAEMON_MANAGER_KEPT_H

#include "daemon/manager/codec.h"

typedef struct {
    char *id;
    rs_manager_frame frame;
    rs_time held_since; /* RS_NEVER while a connection carries it */
} rs_manager_pending;

/* Together they and hello fit the output buffer. */
#define RS_PENDING_BYTES_MAX (RS_MANAGER_OUTPUT_MAX / 4)
#define RS_DEFERRED_BYTES_MAX (RS_MANAGER_OUTPUT_MAX / 4)

/* Requests, in the order they were made; at most RS_MANAGER_REQUESTS_MAX. */
typedef struct {
    rs_manager_pending *items;
    uint32_t count, size;
    size_t bytes;
} rs_manager_pending_list;

/* Takes the frame over if it returns RS_OK; else RS_ERR_EXISTS, RS_ERR_LIMIT, RS_ERR_MEMORY. */
rs_status rs_pending_add(rs_manager_pending_list *list, const char *id, rs_manager_frame frame, rs_time held_since);
bool rs_pending_has(const rs_manager_pending_list *list, const char *id);
bool rs_pending_remove(rs_manager_pending_list *list, const char *id);
/* The connection broke: those it carried are held from now on. */
void rs_pending_hold(rs_manager_pending_list *list, rs_time now);
/* When the first held one is due; RS_NEVER if none is held. */
rs_time rs_pending_deadline(const rs_manager_pending_list *list, rs_time hold);
/* Removes the first that is held for `hold` and gives its id (free it); NULL if none is due. */
char *rs_pending_expire(rs_manager_pending_list *list, rs_time now, rs_time hold);
void rs_pending_clear(rs_manager_pending_list *list);

typedef struct {
    rs_manager_frame frame;
    rs_time sent_at; /* RS_NEVER: not yet */
} rs_manager_deferred_call;

/* Calls to repeat, the oldest first; at most RS_MANAGER_DEFERRED_MAX. */
typedef struct {
    rs_manager_deferred_call items[RS_MANAGER_DEFERRED_MAX];
    uint32_t first, count;
    size_t bytes;
    uint64_t dropped;
} rs_manager_deferred;

/* Takes the frame over. Drops the oldest when full. */
void rs_deferred_add(rs_manager_deferred *kept, rs_manager_frame frame, rs_time sent_at);
rs_manager_deferred_call *rs_deferred_at(rs_manager_deferred *kept, uint32_t index);
/* Forgets the calls at the front that were sent before `before`: if the connection still stands, they have arrived. */
void rs_deferred_prune(rs_manager_deferred *kept, rs_time before);
void rs_deferred_clear(rs_manager_deferred *kept);

#endif
