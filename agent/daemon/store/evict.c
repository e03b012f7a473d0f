#include "daemon/store/evict.h"

#include <stdlib.h>

#include "daemon/store/store.h"

struct rs_evict {
    rs_evict_config config;
    uint64_t lacking[2]; /* of memory, of disk: what did not fit, until room for it was made */
    rs_evict_stats stats;
};

/* In memory, received objects are of whole pages; the difference does not matter here. */
static bool may_go(const rs_object *object, bool disk) {
    return object->received && object->on_disk == disk && !object->pinned && object->holds == 0 &&
           (object->phase == RS_OBJECT_COMPLETE || object->phase == RS_OBJECT_PARTIAL);
}

const char *rs_evict_to_do(const rs_store *store, bool disk, bool makes, uint64_t lacks) {
    uint64_t room = 0;
    uint32_t cursor = 0;
    for (const rs_object *object; (object = rs_store_next(store, &cursor));)
        room += may_go(object, disk) ? object->size : 0;
    return !makes          ? "delete objects nobody needs"
           : room >= lacks ? "room is being made: try again soon"
                           : "the rest is pinned, in use or added";
}

static rs_object *read_longest_ago(rs_store *store, bool disk, int64_t after, const rs_object *but) {
    rs_object *oldest = NULL;
    uint32_t cursor = 0;
    for (rs_object *object; (object = rs_store_next(store, &cursor));) {
        int64_t at = rs_store_read_at(object);
        bool behind = at > after || (at == after && (uintptr_t)object > (uintptr_t)but);
        if (may_go(object, disk) && behind &&
            (!oldest || at < rs_store_read_at(oldest) ||
             (at == rs_store_read_at(oldest) && (uintptr_t)object < (uintptr_t)oldest)))
            oldest = object;
    }
    return oldest;
}

/* Bytes of room that are to be made. */
static uint64_t wanted(rs_evict *e, bool disk) {
    uint64_t used = disk ? rs_store_disk_used(e->config.store) : rs_store_used(e->config.store);
    uint64_t quota = disk ? rs_store_disk_quota(e->config.store) : rs_store_quota(e->config.store);
    uint64_t lacks = rs_store_take_lacking(e->config.store, disk);
    e->lacking[disk] = lacks > e->lacking[disk] ? lacks : e->lacking[disk];
    uint64_t full = quota > 0 && used > quota / 10 * 9 ? used - quota / 10 * 8 : 0;
    return full > e->lacking[disk] ? full : e->lacking[disk];
}

static void stays(rs_evict *e, rs_object *object) {
    object->goes_at = 0;
    e->config.tell(e->config.context, object, RS_NEVER);
}

/* The next one that goes; true: now. */
static bool goes(rs_evict *e, rs_object *object, rs_time now) {
    if (!object->goes_at) {
        object->goes_at = now + e->config.notice > 0 ? now + e->config.notice : 1;
        e->config.tell(e->config.context, object, e->config.notice);
    }
    return object->goes_at <= now;
}

static bool check_room(rs_evict *e, bool disk, rs_time now) {
    rs_store *store = e->config.store;
    uint64_t room = 0, most = wanted(e, disk), went = 0;
    uint32_t cursor = 0, last = 0;
    rs_object *victims[256]; /* more at the next look */
    /* Whoever was read, pinned or held since it was told stays. */
    for (rs_object *object; (object = rs_store_next(store, &cursor));)
        if (object->on_disk == disk && object->goes_at &&
            (!may_go(object, disk) || rs_store_read_at(object) > object->told_going_at))
            stays(e, object);
    rs_object *object = NULL;
    int64_t after = INT64_MIN;
    while (room < most && last < 256 && (object = read_longest_ago(store, disk, after, object))) {
        after = rs_store_read_at(object);
        room += object->size;
        victims[last++] = object;
    }
    e->stats.short_of += room < most && last < 256 ? most - room : 0;
    cursor = 0;
    while ((object = rs_store_next(store, &cursor))) {
        bool chosen = false;
        for (uint32_t i = 0; i < last && !chosen; i++)
            chosen = victims[i] == object;
        if (object->on_disk == disk && object->goes_at && !chosen)
            stays(e, object); /* others went, or were deleted */
    }
    for (uint32_t i = 0; i < last; i++) {
        rs_error error;
        bool told = victims[i]->goes_at != 0;
        if (!told)
            victims[i]->told_going_at = rs_store_clock();
        if (!goes(e, victims[i], now)) {
            e->stats.going++;
            e->stats.going_bytes += victims[i]->size;
            continue;
        }
        e->config.tell(e->config.context, victims[i], 0);
        e->stats.objects++;
        e->stats.bytes += victims[i]->size;
        went += victims[i]->size;
        (void)rs_store_delete(store, &victims[i]->id, &error);
    }
    e->lacking[disk] = went >= e->lacking[disk] || room == 0 ? 0 : e->lacking[disk] - went;
    return went > 0;
}

bool rs_evict_look(rs_evict *e, rs_time now) {
    e->stats.going = e->stats.going_bytes = e->stats.short_of = 0;
    bool memory = check_room(e, false, now), disk = check_room(e, true, now);
    return memory || disk;
}

rs_evict_stats rs_evict_stats_get(const rs_evict *e) {
    return e->stats;
}

rs_evict *rs_evict_new(const rs_evict_config *config) {
    rs_evict *e = calloc(1, sizeof *e);
    if (e)
        e->config = *config;
    return e;
}

void rs_evict_free(rs_evict *e) {
    free(e);
}
