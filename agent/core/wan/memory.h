/* One bound of memory for all transfers by this engine at an agent: bytes that were sent and may be needed again.
 * Sec. V: "dynamic memory allocation for each stream with further re-allocation of available memory among other
 * streams". */
#ifndef RS_CORE_WAN_MEMORY_H
#define RS_CORE_WAN_MEMORY_H

#include "core/base/list.h"
#include "core/wan/options.h"

typedef struct {
    uint64_t bound;     /* All transfers may have so many bytes. */
    uint64_t used;      /* They have so many, */
    uint64_t used_most; /* and had so many at most. */
    uint64_t wanted;    /* All their needs together. */
    uint32_t count;     /* There are so many transfers. */
} rs_wan_pool;

/* A transfer's part in it. */
typedef struct {
    rs_wan_pool *pool; /* NULL: it has no part. */
    uint64_t used;     /* It has so many bytes. */
    uint64_t least;    /* It can always have so many, if that many for all fit. */
    uint64_t need;     /* It could use so many now: rate x (round trips), and what is unrepaired. */
} rs_wan_user;

void rs_wan_pool_join(rs_wan_pool *pool, rs_wan_user *user, uint64_t least);
void rs_wan_pool_leave(rs_wan_user *user);
/* What it could use from now on. */
void rs_wan_pool_need(rs_wan_user *user, uint64_t need);
/* What of the bound is its own now: all needs, if they fit; else in proportion to them. */
uint64_t rs_wan_pool_share(const rs_wan_user *user);
/* False: there is no room for that many bytes more, of its own share or of the bound. */
bool rs_wan_pool_take(rs_wan_user *user, uint64_t bytes);
bool rs_wan_pool_may(const rs_wan_user *user, uint64_t bytes);
void rs_wan_pool_give(rs_wan_user *user, uint64_t bytes);

#endif
