#include "core/wan/memory.h"

static uint64_t wants(const rs_wan_user *user) {
    return user->need > user->least ? user->need : user->least;
}

void rs_wan_pool_join(rs_wan_pool *pool, rs_wan_user *user, uint64_t least) {
    *user = (rs_wan_user){.pool = pool, .least = least, .need = least};
    pool->wanted += least;
    pool->count++;
}

void rs_wan_pool_leave(rs_wan_user *user) {
    if (!user->pool)
        return;
    rs_wan_pool_give(user, user->used);
    user->pool->wanted -= wants(user);
    user->pool->count--;
    user->pool = NULL;
}

void rs_wan_pool_need(rs_wan_user *user, uint64_t need) {
    user->pool->wanted -= wants(user);
    user->need = need;
    user->pool->wanted += wants(user);
}

uint64_t rs_wan_pool_share(const rs_wan_user *user) {
    const rs_wan_pool *pool = user->pool;
    uint64_t least = pool->bound / 4 / pool->count;
    least = user->least < least ? user->least : least;
    if (pool->wanted <= pool->bound) /* what nobody needs is for whoever comes to need it */
        return wants(user) + (pool->bound - pool->wanted) / pool->count;
    uint64_t part = (uint64_t)((double)wants(user) / (double)pool->wanted * (double)pool->bound);
    return part > least ? part : least;
}

bool rs_wan_pool_may(const rs_wan_user *user, uint64_t bytes) {
    const rs_wan_pool *pool = user->pool;
    return pool->used + bytes <= pool->bound && user->used + bytes <= rs_wan_pool_share(user);
}

bool rs_wan_pool_take(rs_wan_user *user, uint64_t bytes) {
    rs_wan_pool *pool = user->pool;
    if (!rs_wan_pool_may(user, bytes))
        return false;
    user->used += bytes;
    pool->used += bytes;
    pool->used_most = pool->used > pool->used_most ? pool->used : pool->used_most;
    return true;
}

void rs_wan_pool_give(rs_wan_user *user, uint64_t bytes) {
    bytes = bytes < user->used ? bytes : user->used;
    user->used -= bytes;
    user->pool->used -= bytes;
}
