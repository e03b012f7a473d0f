#include "daemon/store/slices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/files.h"
#include "daemon/store/reserve.h"
#include "daemon/store/store_private.h"

static uint64_t slice_length(const rs_object *object, uint64_t slice) {
    uint64_t begin = slice * RS_STORE_SLICE;
    return object->size - begin < RS_STORE_SLICE ? object->size - begin : RS_STORE_SLICE;
}

bool rs_slices_reserve(rs_object *object, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    internal->slices = (object->size + RS_STORE_SLICE - 1) / RS_STORE_SLICE;
    internal->slices_done = internal->cursor = 0;
    internal->slice_bits = calloc(1, (size_t)internal->slices / 8 + 1);
    if (!internal->slice_bits)
        return rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for one more object");
    internal->place->reserved += object->size;
    internal->untouched = object->fd < 0 && !object->on_disk;
    return true;
}

void rs_slices_are_ready(rs_object *object, uint64_t bytes) {
    struct rs_object_private *internal = object->internal;
    for (; internal->cursor < internal->slices; internal->cursor++) {
        uint64_t slice = internal->cursor, length = slice_length(object, slice);
        if (slice * RS_STORE_SLICE + length > bytes)
            break;
        internal->slice_bits[slice / 8] |= (uint8_t)(1u << slice % 8);
        internal->slices_done++;
        internal->place->reserved -= length;
    }
}

void rs_slices_forget(rs_object *object) {
    struct rs_object_private *internal = object->internal;
    for (uint64_t slice = 0; internal->slice_bits && slice < internal->slices; slice++)
        if (!(internal->slice_bits[slice / 8] & (1u << slice % 8)))
            internal->place->reserved -= slice_length(object, slice);
    free(internal->slice_bits);
    internal->slice_bits = NULL;
}

void rs_slices_bury_oldest(rs_store *store) {
    while (!rs_store_reclaim_step(&store->dead[0], UINT64_MAX))
        ;
    store->reclaims--;
    memmove(&store->dead[0], &store->dead[1], store->reclaims * sizeof store->dead[0]);
}

bool rs_slices_make_room(rs_store *store, uint64_t bytes, bool disk) {
    if (!disk && store->reserve.filled > 0)
        rs_reserve_give(&store->reserve, bytes);
    else if (store->reclaims)
        rs_slices_bury_oldest(store);
    else
        return false;
    return true;
}

static bool allocate_slice(rs_store *store, rs_object *object, uint64_t slice, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    uint8_t bit = (uint8_t)(1u << slice % 8);
    if (internal->slice_bits[slice / 8] & bit)
        return true;
    uint64_t length = slice_length(object, slice);
    if (!object->on_disk)
        rs_reserve_give(&store->reserve, length);
    while (!(internal->untouched ? rs_store_file_allocate_new
                                 : rs_store_file_allocate)(object->fd, slice * RS_STORE_SLICE, length, error))
        if (!rs_slices_make_room(store, length, object->on_disk))
            return false;
    internal->slice_bits[slice / 8] |= bit;
    internal->slices_done++;
    internal->place->reserved -= length;
    return true;
}

static void allocation_done(struct rs_object_private *internal) {
    if (internal->slices_done == internal->slices) {
        free(internal->slice_bits);
        internal->slice_bits = NULL;
    }
}

int64_t rs_store_allocate_step(rs_store *store, rs_object *object, uint64_t max_bytes, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    if (!internal->slice_bits)
        return 0;
    for (uint64_t did = 0; did < max_bytes && internal->cursor < internal->slices;
         did += RS_STORE_SLICE, internal->cursor++)
        if (!allocate_slice(store, object, internal->cursor, error))
            return -1;
    uint64_t left = internal->slices - internal->slices_done;
    allocation_done(internal);
    return (int64_t)(left * RS_STORE_SLICE);
}

bool rs_store_ensure(rs_store *store, rs_object *object, uint64_t offset, uint64_t length, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    if (offset > object->size || length > object->size - offset)
        return rs_error_set(error, ROSTRUM_ERR_INVALID,
                            "bytes %" PRIu64 "+%" PRIu64 " are outside an object of %" PRIu64, offset, length,
                            object->size);
    if (!internal->slice_bits || !length)
        return true;
    for (uint64_t slice = offset / RS_STORE_SLICE; slice <= (offset + length - 1) / RS_STORE_SLICE; slice++)
        if (!allocate_slice(store, object, slice, error))
            return false;
    allocation_done(internal);
    return true;
}
