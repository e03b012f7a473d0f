#include "daemon/store/evict.h"

#include <stdlib.h>

#include "daemon/store/store.h"

struct rs_evict {
    rs_evict_config config;
    uint64_t lacking[2]; /* of memory, of disk: what did not fit, until room for it was made */
    rs_evict_stats stats;
};

static bool may_go(const rs_object *object, bool disk) {
    return object->received && object->on_disk == disk && !object->pinned && object->holds == 0 &&
           (object->phase == RS_OBJECT_COMPLETE || object->phase == RS_OBJECT_PARTIAL);
}

const char *rs_evict_to_do(const rs_store *store, bool disk, bool makes, uint64_t lacks) {
    uint64_t room = 0;
    uint32_t cursor = 0;
    for (const rs_object *object; (object = rs_store_next(store, &cursor));)
        room += may_go(object, disk) ? rs_store_takes(object) : 0;
    return !makes          ? "delete objects nobody needs"
           : room >= lacks ? "room is being made: try again soon"
                           : "the rest is pinned, in use or added";
}

static int read_before(const void *one, const void *other) {
    const rs_object *a = *(rs_object *const *)one, *b = *(rs_object *const *)other;
    int64_t at = rs_store_read_at(a), than = rs_store_read_at(b);
    return at != than ? (at > than) - (at < than) : ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

/* Those that may go, which was read longest ago first; the caller frees the list. NULL: no memory. */
static rs_object **candidates(rs_store *store, bool disk, uint32_t *count) {
    rs_object **list = calloc(rs_store_count(store) + (size_t)1, sizeof *list);
    uint32_t cursor = 0;
    *count = 0;
    for (rs_object *object; list && (object = rs_store_next(store, &cursor));)
        if (may_go(object, disk))
            list[(*count)++] = object;
    if (list)
        qsort(list, *count, sizeof(rs_object *), read_before);
    return list;
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

/* Objects that are to go as the list is nearly full: of each place in proportion. */
static uint32_t surplus(const rs_store *store, bool disk) {
    uint64_t count = rs_store_count(store), most = rs_store_most(store), there = 0;
    uint32_t cursor = 0;
    if (count <= most / 10 * 9)
        return 0;
    for (const rs_object *object; (object = rs_store_next(store, &cursor));)
        there += object->on_disk == disk;
    return (uint32_t)(((count - most / 10 * 8) * there + count - 1) / count);
}

static void stays(rs_evict *e, rs_object *object) {
    object->goes_at = 0;
    e->config.tell(e->config.context, object, RS_NEVER);
}

/* The next one that goes; true: now. */
static bool goes(rs_evict *e, rs_object *object, rs_time now) {
    if (!object->goes_at) {
        object->told_going_at = rs_store_clock();
        object->goes_at = now + e->config.notice > 0 ? now + e->config.notice : 1;
        e->config.tell(e->config.context, object, e->config.notice);
    }
    return object->goes_at <= now;
}

/* Returns its bytes. */
static uint64_t let_go(rs_evict *e, rs_object *object) {
    rs_error error;
    uint64_t bytes = rs_store_takes(object);
    e->config.tell(e->config.context, object, 0);
    e->stats.objects++;
    e->stats.bytes += object->size;
    (void)rs_store_delete(e->config.store, &object->id, &error);
    return bytes;
}

/* `many`: so many objects at least. */
static bool check_room(rs_evict *e, bool disk, uint32_t many, rs_time now) {
    rs_store *store = e->config.store;
    uint64_t room = 0, most = wanted(e, disk), went = 0;
    uint32_t cursor = 0, count, last = 0, gone = 0;
    bool told = false;
    /* Whoever was read, pinned or held since it was told stays. */
    for (rs_object *object; (object = rs_store_next(store, &cursor));) {
        if (object->on_disk == disk && object->goes_at &&
            (!may_go(object, disk) || rs_store_read_at(object) > object->told_going_at))
            stays(e, object);
        told |= object->on_disk == disk && object->goes_at;
    }
    rs_object **list = most || many || told ? candidates(store, disk, &count) : NULL;
    if (!list)
        return false;
    for (; last < count && (room < most || last < many); last++)
        room += rs_store_takes(list[last]);
    e->stats.short_of += room < most ? most - room : 0;
    for (uint32_t i = last; i < count; i++)
        if (list[i]->goes_at)
            stays(e, list[i]); /* others went, or were deleted */
    for (uint32_t i = 0; i < last; i++) {
        if (goes(e, list[i], now)) {
            went += let_go(e, list[i]);
            gone++;
            continue;
        }
        e->stats.going++;
        e->stats.going_bytes += list[i]->size;
    }
    free(list);
    e->lacking[disk] = went >= e->lacking[disk] || room == 0 ? 0 : e->lacking[disk] - went;
    return gone > 0;
}

bool rs_evict_look(rs_evict *e, rs_time now) {
    e->stats.going = e->stats.going_bytes = e->stats.short_of = 0;
    const uint32_t of_memory = surplus(e->config.store, false), of_disk = surplus(e->config.store, true);
    bool memory = check_room(e, false, of_memory, now), disk = check_room(e, true, of_disk, now);
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
