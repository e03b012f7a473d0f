#include "daemon/store/store.h"

#include "daemon/store/files.h"
#include "daemon/store/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OBJECTS_DEFAULT 4096u
#define FIRST_ALLOCATION RS_STORE_SLICE

struct rs_object_private {
    uint64_t charged; /* bytes on the quota */
    uint64_t slices;  /* RECEIVING: of RS_STORE_SLICE, the last may be short */
    uint64_t slices_done;
    uint64_t cursor;     /* where to look for the next slice to do */
    uint8_t *slice_bits; /* NULL when all is allocated */
    dev_t device;
    ino_t inode;
    bool foreign; /* added from elsewhere: no name of ours, mode untouched */
};

struct rs_store {
    rs_store_folder folder;
    uint64_t quota, used;
    uint64_t reserved; /* promised to RECEIVING objects but not allocated yet */
    rs_reserve reserve;
    uint64_t page;
    uint64_t next_handle;
    uint32_t count, cap;
    rs_object **objects;
    uint32_t corpses;
    rs_store_corpse *dead; /* [cap]; when full, the oldest is freed at once */
};

rs_store *rs_store_open(const rs_store_config *config, rs_error *error) {
    rs_store *store = calloc(1, sizeof *store);
    uint32_t cap = config->max_objects ? config->max_objects : MAX_OBJECTS_DEFAULT;
    rs_object **objects = calloc(cap, sizeof(rs_object *));
    rs_store_corpse *dead = calloc(cap, sizeof *dead);
    uint64_t unused, total;
    if (!store || !objects || !dead) {
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for an object store of %u objects", cap);
        goto fail;
    }
    if (!rs_reserve_open(&store->reserve, config->reserve_bytes)) {
        rs_error_system(error, errno, "no room to keep memory in reserve");
        goto fail;
    }
    if (!rs_store_folder_open(&store->folder, config->directory, config->has_group ? &config->group : NULL, error))
        goto fail;
    if (!rs_store_folder_clean(&store->folder, error) ||
        !rs_store_folder_space(&store->folder, &unused, &total, error)) {
        close(store->folder.fd);
        goto fail;
    }
    store->quota = config->quota_bytes ? config->quota_bytes : total;
    store->page = (uint64_t)sysconf(_SC_PAGESIZE);
    store->cap = cap;
    store->objects = objects;
    store->dead = dead;
    return store;
fail:
    if (store)
        rs_reserve_close(&store->reserve);
    free(dead);
    free(objects);
    free(store);
    return NULL;
}

bool rs_store_prepare(rs_store *store, uint64_t max_bytes) {
    return rs_reserve_fill(&store->reserve, max_bytes);
}

bool rs_store_prepared(const rs_store *store) {
    return store->reserve.filled == store->reserve.size;
}

static void bury_oldest(rs_store *store) {
    while (!rs_store_corpse_step(&store->dead[0], UINT64_MAX))
        ;
    store->corpses--;
    memmove(&store->dead[0], &store->dead[1], store->corpses * sizeof store->dead[0]);
}

bool rs_store_work(rs_store *store, uint64_t max_bytes) {
    if (store->corpses) {
        rs_store_corpse *last = &store->dead[store->corpses - 1];
        if (rs_store_corpse_step(last, max_bytes))
            store->corpses--;
    }
    return store->corpses > 0;
}

void rs_store_close(rs_store *store) {
    if (!store)
        return;
    while (store->count) {
        rs_object *object = store->objects[store->count - 1];
        if (object->phase == RS_OBJECT_WHOLE && !object->internal->foreign)
            rs_store_file_unname(&store->folder, &object->id);
        object->phase = RS_OBJECT_RECEIVING;
        rs_store_discard(store, object);
    }
    while (store->corpses)
        bury_oldest(store);
    rs_reserve_close(&store->reserve);
    close(store->folder.fd);
    free(store->objects);
    free(store->dead);
    free(store);
}

uint64_t rs_store_used(const rs_store *store) {
    return store->used;
}

uint64_t rs_store_quota(const rs_store *store) {
    return store->quota;
}

const char *rs_store_directory(const rs_store *store) {
    return store->folder.path;
}

rs_object *rs_store_find(const rs_store *store, const rs_object_id *id) {
    for (uint32_t i = 0; i < store->count; i++) {
        rs_object *object = store->objects[i];
        if (object->phase != RS_OBJECT_CREATED && object->id.data == id->data &&
            memcmp(object->id.app, id->app, sizeof id->app) == 0)
            return object;
    }
    return NULL;
}

rs_object *rs_store_next(const rs_store *store, uint32_t *cursor) {
    return *cursor < store->count ? store->objects[(*cursor)++] : NULL;
}

rs_object *rs_store_find_created(const rs_store *store, uint64_t handle) {
    for (uint32_t i = 0; i < store->count; i++)
        if (store->objects[i]->phase == RS_OBJECT_CREATED && store->objects[i]->handle == handle)
            return store->objects[i];
    return NULL;
}

static uint64_t in_pages(const rs_store *store, uint64_t size) {
    return (size + store->page - 1) / store->page * store->page;
}

/* Charges an object of `size` bytes, when the quota has room; with `memory`, also when the tmpfs has. */
static bool charge(rs_store *store, uint64_t size, bool memory, uint64_t *charged, rs_error *error) {
    if (size > INT64_MAX / 2)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "no object has %" PRIu64 " bytes", size);
    uint64_t bytes = in_pages(store, size);
    if (store->used > store->quota || bytes > store->quota - store->used)
        return rs_error_set(error, ROSTRUM_ERR_NO_ROOM,
                            "%" PRIu64 " bytes do not fit: %" PRIu64 " of the object store's quota of %" PRIu64
                            " bytes are in use; delete objects nobody needs",
                            size, store->used, store->quota);
    for (uint64_t available = 0, total = 0; memory;) {
        if (!rs_store_folder_space(&store->folder, &available, &total, error))
            return false;
        if (available >= store->reserved && bytes <= available - store->reserved)
            break;
        if (!store->corpses)
            return rs_error_set(error, ROSTRUM_ERR_NO_ROOM,
                                "%" PRIu64 " bytes do not fit: %" PRIu64 " of %" PRIu64
                                " bytes are free in the tmpfs at %s",
                                size, available, total, store->folder.path);
        bury_oldest(store);
    }
    store->used += bytes;
    *charged = bytes;
    return true;
}

/* An empty place in the store's list, charged. NULL and `error`. */
static rs_object *object_new(rs_store *store, uint64_t size, bool memory, rs_error *error) {
    if (store->count == store->cap) {
        rs_error_set(error, ROSTRUM_ERR_LIMIT, "the object store holds its maximum of %u objects; delete some",
                     store->cap);
        return NULL;
    }
    rs_object *object = calloc(1, sizeof *object);
    struct rs_object_private *internal = calloc(1, sizeof *internal);
    if (!object || !internal) {
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for one more object");
        goto fail;
    }
    if (!charge(store, size, memory, &internal->charged, error))
        goto fail;
    object->internal = internal;
    object->size = size;
    object->fd = -1;
    store->objects[store->count++] = object;
    return object;
fail:
    free(internal);
    free(object);
    return NULL;
}

static uint64_t slice_length(const rs_object *object, uint64_t slice) {
    uint64_t begin = slice * RS_STORE_SLICE;
    return object->size - begin < RS_STORE_SLICE ? object->size - begin : RS_STORE_SLICE;
}

/* The object leaves the list; its file is freed bit by bit by rs_store_work. */
static void object_free(rs_store *store, rs_object *object) {
    struct rs_object_private *internal = object->internal;
    for (uint32_t i = 0; i < store->count; i++)
        if (store->objects[i] == object) {
            store->objects[i] = store->objects[--store->count];
            break;
        }
    store->used -= internal->charged;
    for (uint64_t slice = 0; internal->slice_bits && slice < internal->slices; slice++)
        if (!(internal->slice_bits[slice / 8] & (1u << slice % 8)))
            store->reserved -= slice_length(object, slice);
    if (object->fd >= 0) {
        if (store->corpses == store->cap)
            bury_oldest(store);
        store->dead[store->corpses++] =
            (rs_store_corpse){.fd = object->fd,
                              .map = object->map,
                              .size = object->size,
                              .punch = !internal->foreign && rs_store_file_ours_alone(object->fd)};
    }
    free(internal->slice_bits);
    free(internal);
    free(object->leaves);
    free(object);
}

static bool allocate_slice(rs_store *store, rs_object *object, uint64_t slice, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    uint8_t bit = (uint8_t)(1u << slice % 8);
    if (internal->slice_bits[slice / 8] & bit)
        return true;
    uint64_t length = slice_length(object, slice);
    rs_reserve_give(&store->reserve, length);
    while (!rs_store_file_allocate(object->fd, slice * RS_STORE_SLICE, length, error)) {
        if (!store->corpses)
            return false;
        bury_oldest(store);
    }
    internal->slice_bits[slice / 8] |= bit;
    internal->slices_done++;
    store->reserved -= length;
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

/* An unnamed file, its room reserved, its beginning allocated. */
static bool start_allocation(rs_store *store, rs_object *object, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    internal->slices = (object->size + RS_STORE_SLICE - 1) / RS_STORE_SLICE;
    internal->slice_bits = calloc(1, (size_t)internal->slices / 8 + 1);
    if (!internal->slice_bits)
        return rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for one more object");
    store->reserved += object->size;
    object->fd = rs_store_file_new(&store->folder, object->size, error);
    return object->fd >= 0 && rs_store_allocate_step(store, object, FIRST_ALLOCATION, error) >= 0;
}

rs_object *rs_store_create(rs_store *store, uint64_t size, uint64_t owner, rs_error *error) {
    rs_object *object = object_new(store, size, true, error);
    if (!object)
        return NULL;
    object->phase = RS_OBJECT_CREATED;
    object->owner = owner;
    object->handle = ++store->next_handle;
    uint64_t now_size;
    if (!start_allocation(store, object, error) ||
        !rs_store_file_check(object->fd, &now_size, &object->internal->device, &object->internal->inode, error)) {
        object_free(store, object);
        return NULL;
    }
    return object;
}

static bool refuse_existing(const rs_store *store, const rs_object_id *id, rs_error *error) {
    static const char *const words[] = {"is being written", "is being received", "is being added", "exists"};
    const rs_object *object = rs_store_find(store, id);
    if (!object)
        return true;
    return rs_error_set(error, ROSTRUM_ERR_EXISTS, "object %" PRIu64 " of this application %s already on this server",
                        id->data, words[object->phase]);
}

/* The file of rs_store_create comes back as an object. It may have been shortened or grown meanwhile. */
static bool adopt_created(rs_store *store, rs_object *object, uint64_t size, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    uint64_t before = internal->charged, charged;
    store->used -= before;
    internal->charged = 0;
    if (!charge(store, size, false, &charged, error)) {
        store->used += before;
        internal->charged = before;
        return false;
    }
    internal->charged = charged;
    uint8_t *map;
    struct stat info;
    if (fstat(object->fd, &info) < 0)
        return rs_error_system(error, errno, "the created file cannot be examined");
    bool holes = (uint64_t)info.st_blocks * 512 < size; /* the application made it longer, or punched */
    if (holes && !rs_store_file_allocate(object->fd, 0, size, error))
        return false;
    if (!rs_store_file_map(object->fd, size, false, &map, error))
        return false;
    object->size = size;
    object->map = map;
    return true;
}

static rs_object *adopt_foreign(rs_store *store, int fd, uint64_t size, rs_error *error) {
    rs_object *object = object_new(store, size, false, error);
    if (!object)
        return NULL;
    object->internal->foreign = true;
    object->private_file = rs_store_file_sealed(fd);
    object->fd = rs_store_file_reopen(fd, O_RDONLY);
    if (object->fd < 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        object->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (object->fd < 0)
        rs_error_system(error, errno,
                        "the agent may not open the file for reading; make it readable for the agent, or use create");
    if (object->fd < 0 || !rs_store_file_map(object->fd, size, false, &object->map, error)) {
        object_free(store, object);
        return NULL;
    }
    return object;
}

rs_object *rs_store_add(rs_store *store, const rs_object_id *id, int fd, uint64_t owner, rs_error *error) {
    uint64_t size;
    dev_t device;
    ino_t inode;
    if (!rs_store_file_check(fd, &size, &device, &inode, error) || !refuse_existing(store, id, error))
        return NULL;
    rs_object *object = NULL;
    for (uint32_t i = 0; i < store->count && !object; i++) {
        rs_object *other = store->objects[i];
        if (other->phase == RS_OBJECT_CREATED && other->internal->device == device && other->internal->inode == inode)
            object = other;
    }
    if (object) {
        if (object->internal->slice_bits) {
            rs_error_set(error, ROSTRUM_ERR_BUSY, "the file is still being created; wait for the answer to create");
            return NULL;
        }
        if (!adopt_created(store, object, size, error))
            return NULL;
    } else {
        object = adopt_foreign(store, fd, size, error);
        if (!object)
            return NULL;
    }
    object->phase = RS_OBJECT_DIGESTING;
    object->id = *id;
    object->owner = owner;
    return object;
}

static bool make_whole(rs_store *store, rs_object *object, const rs_digest *digest, rs_error *error) {
    if (!object->internal->foreign && !rs_store_file_name(&store->folder, object->fd, &object->id, error))
        return false;
    object->digest = *digest;
    object->phase = RS_OBJECT_WHOLE;
    object->owner = 0;
    return true;
}

void rs_store_keep_leaves(rs_object *object, uint8_t *leaves, uint64_t count) {
    free(object->leaves);
    object->leaves = leaves;
    object->leaf_count = count;
}

bool rs_store_added(rs_store *store, rs_object *object, const rs_digest *digest, rs_error *error) {
    if (object->phase != RS_OBJECT_DIGESTING)
        return rs_error_set(error, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is not being added", object->id.data);
    return make_whole(store, object, digest, error);
}

rs_object *rs_store_receive(rs_store *store, const rs_object_id *id, uint64_t size, rs_error *error) {
    if (!refuse_existing(store, id, error))
        return NULL;
    rs_object *object = object_new(store, size, true, error);
    if (!object)
        return NULL;
    object->phase = RS_OBJECT_RECEIVING;
    object->id = *id;
    object->private_file = true;
    object->received = true;
    object->holds = 1;
    if (!start_allocation(store, object, error) || !rs_store_file_map(object->fd, size, true, &object->map, error)) {
        object_free(store, object);
        return NULL;
    }
    return object;
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

bool rs_store_commit(rs_store *store, rs_object *object, const rs_digest *digest, rs_error *error) {
    if (object->phase != RS_OBJECT_RECEIVING)
        return rs_error_set(error, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is not being received", object->id.data);
    /* Nothing writes any more: a stray write of ours would be a bug, and shows as one. */
    if (object->map && mprotect(object->map, (size_t)object->size, PROT_READ) < 0)
        return rs_error_system(error, errno, "object %" PRIu64 " cannot be made read-only", object->id.data);
    if (!make_whole(store, object, digest, error))
        return false;
    object->holds = 0;
    return true;
}

void rs_store_discard(rs_store *store, rs_object *object) {
    if (object->phase != RS_OBJECT_WHOLE)
        object_free(store, object);
}

void rs_store_hold(rs_object *object) {
    object->holds++;
}

void rs_store_release(rs_object *object) {
    if (object->holds)
        object->holds--;
}

int rs_store_reader_fd(const rs_object *object, rs_error *error) {
    if (object->phase != RS_OBJECT_WHOLE) {
        rs_error_set(error, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is not whole yet", object->id.data);
        return -1;
    }
    int fd = rs_store_file_reopen(object->fd, O_RDONLY);
    if (fd < 0 && object->internal->foreign)
        fd = fcntl(object->fd, F_DUPFD_CLOEXEC, 0); /* itself read-only */
    if (fd < 0)
        rs_error_system(error, errno, "object %" PRIu64 " cannot be opened for reading", object->id.data);
    return fd;
}

int rs_store_writer_fd(const rs_object *object, rs_error *error) {
    int fd = -1;
    if (object->phase != RS_OBJECT_CREATED || object->internal->slice_bits)
        rs_error_set(error, ROSTRUM_ERR_BUSY, "the file is not in the state to be written");
    else if ((fd = rs_store_file_reopen(object->fd, O_RDWR)) < 0)
        rs_error_system(error, errno, "a created file cannot be opened");
    return fd;
}

bool rs_store_delete(rs_store *store, const rs_object_id *id, rs_error *error) {
    rs_object *object = rs_store_find(store, id);
    if (!object)
        return rs_error_set(error, ROSTRUM_ERR_UNKNOWN,
                            "there is no object %" PRIu64 " of this application on this server", id->data);
    if (object->phase == RS_OBJECT_RECEIVING)
        return rs_error_set(error, ROSTRUM_ERR_BUSY,
                            "object %" PRIu64 " is being received; delete it when the transfer is over", id->data);
    if (object->phase == RS_OBJECT_DIGESTING)
        return rs_error_set(error, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is being added; wait for the answer to add",
                            id->data);
    if (object->holds)
        return rs_error_set(error, ROSTRUM_ERR_BUSY,
                            "object %" PRIu64
                            " is being sent by %u transfer(s); wait until they are over, or cancel them",
                            id->data, object->holds);
    if (!object->internal->foreign)
        rs_store_file_unname(&store->folder, id);
    object_free(store, object);
    return true;
}
