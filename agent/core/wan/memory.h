/* One bound of memory for all transfers by this engine at an agent: bytes that were sent and may be needed again.
 * Sec. V: "dynamic memory allocation for each stream with further re-allocation of available memory among other
 * streams". */
#ifndef RS_CORE_WAN_MEMORY_H
#define RS_CORE_WAN_MEMORY_H

#include "core/base/list.h"
#include "core/wan/options.h"

typedef struct {
    uint64_t bound, used, used_most;
    uint64_t wanted; /* by all */
    uint32_t count;
} rs_wan_pool;

/* A transfer's part in it. */
typedef struct {
    rs_wan_pool *pool; /* NULL: none */
    uint64_t used;
    uint64_t least; /* it can always have, if that many for all fit */
    uint64_t need;  /* what it could use now: rate x (round trips), and what is unrepaired */
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
