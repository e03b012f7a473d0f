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

/* What is pinned, or was added here, never goes. */
static bool stays_for_good(const rs_object *object) {
    return object->pinned || !object->received;
}

static uint64_t tenths(uint64_t of, uint64_t many) {
    return of / 10 * many + of % 10 * many / 10;
}

/* How much of `used` is to go: above 9/10 of the room that what never goes leaves to others, down to 8/10. */
static uint64_t above(uint64_t used, uint64_t fixed, uint64_t most) {
    uint64_t room = most > fixed ? most - fixed : 0, others = used > fixed ? used - fixed : 0;
    return others > tenths(room, 9) ? others - tenths(room, 8) : 0;
}

/* Bytes of room that are to be made. `should`: that should be, if what never goes could. */
static uint64_t wanted(rs_evict *e, bool disk, uint64_t *should) {
    const rs_store *store = e->config.store;
    uint64_t used = disk ? rs_store_disk_used(store) : rs_store_used(store), fixed = 0;
    uint64_t quota = disk ? rs_store_disk_quota(store) : rs_store_quota(store);
    uint64_t lacks = rs_store_take_lacking(e->config.store, disk);
    uint32_t cursor = 0;
    e->lacking[disk] = lacks > e->lacking[disk] ? lacks : e->lacking[disk];
    for (const rs_object *object; used > tenths(quota, 8) && (object = rs_store_next(store, &cursor));)
        fixed += object->on_disk == disk && stays_for_good(object) ? rs_store_takes(object) : 0;
    uint64_t full = quota ? above(used, fixed, quota) : 0;
    *should = quota ? above(used, 0, quota) : 0;
    *should = *should > e->lacking[disk] ? *should : e->lacking[disk];
    return full > e->lacking[disk] ? full : e->lacking[disk];
}

/* Objects that are to go as the list is nearly full: of each place in proportion. */
static uint32_t surplus(const rs_store *store, bool disk) {
    uint64_t count = rs_store_count(store), most = rs_store_most(store), there = 0, fixed = 0;
    uint32_t cursor = 0;
    if (count <= tenths(most, 8))
        return 0;
    for (const rs_object *object; (object = rs_store_next(store, &cursor));) {
        bool for_good = stays_for_good(object);
        fixed += for_good;
        there += !for_good && object->on_disk == disk;
    }
    return there ? (uint32_t)((above(count, fixed, most) * there + count - fixed - 1) / (count - fixed)) : 0;
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
    uint64_t room = 0, should, most = wanted(e, disk, &should), went = 0;
    uint32_t cursor = 0, count, last = 0, gone = 0;
    bool told = false;
    /* Whoever was read, pinned or held since it was told stays. */
    for (rs_object *object; (object = rs_store_next(store, &cursor));) {
        if (object->on_disk == disk && object->goes_at &&
            (!may_go(object, disk) || rs_store_read_at(object) > object->told_going_at))
            stays(e, object);
        told |= object->on_disk == disk && object->goes_at;
    }
    rs_object **list = should || many || told ? candidates(store, disk, &count) : NULL;
    if (!list)
        return false;
    for (; last < count && (room < most || last < many); last++)
        room += rs_store_takes(list[last]);
    uint64_t could = room;
    for (uint32_t i = last; i < count && could < should; i++)
        could += rs_store_takes(list[i]);
    e->stats.short_of += could < should ? should - could : 0;
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
