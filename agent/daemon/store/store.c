#include "daemon/store/store.h"

#include "daemon/store/digest.h"
#include "daemon/store/disk.h"
#include "daemon/store/evict.h"
#include "daemon/store/files.h"
#include "daemon/store/reserve.h"
#include "daemon/store/slices.h"
#include "daemon/store/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_OBJECTS_DEFAULT 4096u
#define FIRST_ALLOCATION RS_STORE_SLICE
#define FILE_TIME_MOST INT64_C(8000000000) /* s since 1970: a later one is no time of a read (a bound) */
#define READ_WINDOW ((uint64_t)8 << 20)    /* of one that is read, ahead of the reader */

static bool open_place(rs_store_place *p, const rs_store_config *config, bool disk, rs_error *error) {
    const char *path = disk ? config->disk : config->directory;
    const uint64_t quota = disk ? config->disk_quota_bytes : config->quota_bytes;
    uint64_t unused, total;
    p->folder.by_grant = config->by_grant;
    if (!rs_store_folder_open(&p->folder, path, !disk, config->has_group ? &config->group : NULL, error))
        return false;
    if ((!disk && !rs_store_folder_clean(&p->folder, error)) ||
        !rs_store_folder_space(&p->folder, &unused, &total, error)) {
        close(p->folder.fd);
        return false;
    }
    p->quota = quota ? quota : total;
    p->disk = disk;
    return true;
}

static bool find_on_disk(rs_store *store, rs_error *error);

rs_store *rs_store_open(const rs_store_config *config, rs_error *error) {
    rs_store *store = calloc(1, sizeof *store);
    uint32_t cap = config->max_objects ? config->max_objects : MAX_OBJECTS_DEFAULT;
    rs_object **objects = calloc(cap, sizeof(rs_object *));
    rs_store_reclaim *dead = calloc(cap, sizeof *dead);
    if (!store || !objects || !dead) {
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for an object store of %u objects", cap);
        goto fail;
    }
    if (!open_place(&store->memory, config, false, error))
        goto fail;
    rs_reserve_open(&store->reserve, &store->memory.folder, config->reserve_bytes);
    store->has_disk = config->disk != NULL;
    if (store->has_disk && !open_place(&store->disk, config, true, error)) {
        close(store->memory.folder.fd);
        goto fail;
    }
    store->disk_from = config->disk_from;
    store->log = config->log;
    store->evict_notice = config->evict_notice;
    store->gone = config->gone;
    store->context = config->context;
    store->page = (uint64_t)sysconf(_SC_PAGESIZE);
    store->cap = cap;
    store->objects = objects;
    store->dead = dead;
    if (!store->has_disk || find_on_disk(store, error))
        return store;
    rs_store_close(store);
    return NULL;
fail:
    free(dead);
    free(objects);
    free(store);
    return NULL;
}

bool rs_store_prepare(rs_store *store, uint64_t max_bytes) {
    return rs_reserve_fill(&store->reserve, max_bytes);
}

bool rs_store_prepared(const rs_store *store) {
    return rs_reserve_is_filled(&store->reserve);
}

uint64_t rs_store_in_reserve(const rs_store *store) {
    return store->reserve.filled;
}

static void object_free(rs_store *store, rs_object *object, bool stays);

bool rs_store_work(rs_store *store, uint64_t max_bytes) {
    if (store->reclaims) {
        rs_store_reclaim *last = &store->dead[store->reclaims - 1];
        if (rs_store_reclaim_step(last, max_bytes))
            store->reclaims--;
    }
    return store->reclaims > 0;
}

void rs_store_close(rs_store *store) {
    if (!store)
        return;
    while (store->count) {
        rs_object *object = store->objects[store->count - 1];
        if (object->phase == RS_OBJECT_COMPLETE && !object->internal->foreign && !object->on_disk)
            rs_store_file_unname(&store->memory.folder, &object->id);
        object_free(store, object, object->on_disk);
    }
    while (store->reclaims)
        rs_slices_bury_oldest(store);
    rs_reserve_close(&store->reserve);
    close(store->memory.folder.fd);
    if (store->has_disk)
        close(store->disk.folder.fd);
    free(store->objects);
    free(store->dead);
    free(store);
}

uint64_t rs_store_used(const rs_store *store) {
    return store->memory.used;
}

uint64_t rs_store_quota(const rs_store *store) {
    return store->memory.quota;
}

uint64_t rs_store_disk_used(const rs_store *store) {
    return store->disk.used;
}

uint64_t rs_store_disk_quota(const rs_store *store) {
    return store->disk.quota;
}

const char *rs_store_directory(const rs_store *store) {
    return store->memory.folder.path;
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

static int64_t newest; /* what rs_store_clock told, or a file's time */

int64_t rs_store_clock(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    int64_t now = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
    newest = now > newest ? now : newest + 1;
    return newest;
}

int64_t rs_store_read_at(const rs_object *object) {
    return object->internal->read_at;
}

/* On disk it is known after a restart; not the system's time, which may have been set back since others were read. */
static void is_read(const rs_object *object) {
    int64_t at = object->internal->read_at = rs_store_clock();
    const struct timespec times[2] = {{.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000}, {.tv_nsec = UTIME_OMIT}};
    if (object->on_disk)
        (void)futimens(object->fd, times);
}

uint64_t rs_store_take_lacking(rs_store *store, bool disk) {
    rs_store_place *p = disk ? &store->disk : &store->memory;
    uint64_t bytes = p->lacking;
    p->lacking = 0;
    return bytes;
}

uint32_t rs_store_count(const rs_store *store) {
    return store->count;
}

uint32_t rs_store_most(const rs_store *store) {
    return store->cap;
}

uint64_t rs_store_takes(const rs_object *object) {
    return object->internal->charged;
}

static const char *to_do(const rs_store *store, const rs_store_place *p, uint64_t bytes, uint64_t lacks,
                         uint64_t total) {
    return bytes > total ? "it is too large" : rs_evict_to_do(store, p->disk, store->evict_notice > 0, lacks);
}

/* Charges an object of `size` bytes to `p`, when its quota has room; with `room`, also when tmpfs or disk has. */
static bool charge(rs_store *store, rs_store_place *p, uint64_t size, bool room, uint64_t *charged, rs_error *error) {
    if (size > INT64_MAX / 2)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "no object has %" PRIu64 " bytes", size);
    uint64_t bytes = in_pages(store, size);
    if (p->used > p->quota || bytes > p->quota - p->used) {
        uint64_t over = p->used + bytes - p->quota;
        p->lacking = over > p->lacking && bytes <= p->quota ? over : p->lacking;
        return rs_error_set(error, ROSTRUM_ERR_NO_ROOM,
                            "%" PRIu64 " bytes do not fit: %" PRIu64 " of %" PRIu64 " (quota%s) are in use; %s", size,
                            p->used, p->quota, p->disk ? " on disk" : "", to_do(store, p, bytes, over, p->quota));
    }
    for (uint64_t available = 0, total = 0; room;) {
        if (!rs_store_folder_space(&p->folder, &available, &total, error))
            return false;
        available += p->disk ? 0 : store->reserve.filled;
        if (available >= p->reserved && bytes <= available - p->reserved)
            break;
        if (!store->reclaims) {
            uint64_t free_now = available > p->reserved ? available - p->reserved : 0;
            p->lacking = bytes - free_now > p->lacking && bytes <= total ? bytes - free_now : p->lacking;
            return rs_error_set(error, ROSTRUM_ERR_NO_ROOM,
                                "%" PRIu64 " bytes do not fit: %" PRIu64 " of %" PRIu64
                                " bytes are free in the %s at %s; %s",
                                size, free_now, total, p->disk ? "disk" : "tmpfs", p->folder.path,
                                to_do(store, p, bytes, bytes - free_now, total));
        }
        rs_slices_bury_oldest(store);
    }
    p->used += bytes;
    *charged = bytes;
    return true;
}

/* An empty place in the store's list, charged to `p` (NULL: to nobody). NULL and `error`. */
static rs_object *object_new(rs_store *store, rs_store_place *p, uint64_t size, bool room, rs_error *error) {
    if (store->count == store->cap) {
        rs_error_set(error, ROSTRUM_ERR_LIMIT, "the object store holds its maximum of %u objects; %s", store->cap,
                     rs_evict_to_do(store, p && p->disk, store->evict_notice > 0, 1));
        return NULL;
    }
    rs_object *object = calloc(1, sizeof *object);
    struct rs_object_private *internal = calloc(1, sizeof *internal);
    if (!object || !internal) {
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for one more object");
        goto fail;
    }
    if (p && !charge(store, p, size, room, &internal->charged, error))
        goto fail;
    internal->place = p;
    internal->manifest_fd = -1;
    internal->read_at = rs_store_clock();
    object->internal = internal;
    object->size = size;
    object->on_disk = p && p->disk;
    object->fd = -1;
    store->objects[store->count++] = object;
    return object;
fail:
    free(internal);
    free(object);
    return NULL;
}

static void hide(rs_object *object) {
    if (object->internal->shown)
        rs_store_file_hide(&object->internal->place->folder, object->internal->shown_to, object->handle);
    object->internal->shown = false;
}

/* The object leaves the list; its file is freed bit by bit by rs_store_work. With `stays`, it is on disk, to be found
 * again. */
static void object_free(rs_store *store, rs_object *object, bool stays) {
    struct rs_object_private *internal = object->internal;
    for (uint32_t i = 0; i < store->count; i++)
        if (store->objects[i] == object) {
            store->objects[i] = store->objects[--store->count];
            break;
        }
    if (object->pieces)
        rs_pieces_tell_over(object->pieces, object, false);
    if (object->told && store->gone)
        store->gone(store->context, &object->id);
    hide(object);
    if (object->on_disk && !stays)
        rs_disk_unname(&internal->place->folder, &object->id);
    if (internal->place)
        internal->place->used -= internal->charged;
    rs_slices_forget(object);
    if (internal->manifest_fd >= 0)
        close(internal->manifest_fd);
    if (object->fd >= 0) {
        if (store->reclaims == store->cap)
            rs_slices_bury_oldest(store);
        store->dead[store->reclaims++] =
            (rs_store_reclaim){.fd = object->fd,
                               .map = object->map,
                               .size = object->size,
                               .punch = !stays && !internal->foreign && rs_store_file_ours_alone(object->fd)};
    }
    free(internal);
    free(object->leaves);
    rs_pieces_free(object->pieces);
    free(object->name);
    free(object);
}

/* An unnamed file, or on disk one of that object, its room reserved, its beginning allocated. */
static bool start_allocation(rs_store *store, rs_object *object, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    if (!rs_slices_reserve(object, error))
        return false;
    if (object->on_disk) {
        rs_disk_files files;
        if (!rs_disk_begin(&internal->place->folder, &internal->manifest, &files, error))
            return false;
        object->fd = files.fd;
        internal->manifest_fd = files.manifest_fd;
    } else {
        uint64_t ready = 0;
        object->fd = rs_reserve_take(&store->reserve, object->size, &ready);
        if (object->fd < 0)
            object->fd = rs_store_file_new(&internal->place->folder, object->size, error);
        rs_slices_are_ready(object, ready);
    }
    return object->fd >= 0 && rs_store_allocate_step(store, object, FIRST_ALLOCATION, error) >= 0;
}

rs_object *rs_store_create(rs_store *store, uint64_t size, uint64_t owner, rs_error *error) {
    rs_object *object = object_new(store, &store->memory, size, true, error);
    if (!object)
        return NULL;
    object->phase = RS_OBJECT_CREATED;
    object->owner = owner;
    object->handle = ++store->next_handle;
    uint64_t now_size;
    bool in_memory;
    if (!start_allocation(store, object, error) ||
        !rs_store_file_check(object->fd, &now_size, &object->internal->device, &object->internal->inode, &in_memory,
                             error)) {
        object_free(store, object, false);
        return NULL;
    }
    return object;
}

static bool refuse_existing(const rs_store *store, const rs_object_id *id, rs_error *error) {
    static const char *const text[] = {"is being written", "is being received",      "is being added",
                                       "exists",           "is being checked again", "is partly here"};
    const rs_object *object = rs_store_find(store, id);
    if (!object)
        return true;
    return rs_error_set(error, ROSTRUM_ERR_EXISTS, "object %" PRIu64 " of this application %s already on this server",
                        id->data, text[object->phase]);
}

/* Of a file of which `missing` bytes are not there; the reserve makes room. */
static bool fill_holes(rs_store *store, int fd, uint64_t size, uint64_t missing, rs_error *error) {
    rs_reserve_give(&store->reserve, missing);
    while (!rs_store_file_allocate(fd, 0, size, error))
        if (!rs_slices_make_room(store, missing, false))
            return false;
    return true;
}

/* The file of rs_store_create comes back as an object. It may have been shortened or grown meanwhile. */
static bool adopt_created(rs_store *store, rs_object *object, uint64_t size, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    uint64_t before = internal->charged, charged;
    internal->place->used -= before;
    internal->charged = 0;
    if (!charge(store, internal->place, size, false, &charged, error)) {
        internal->place->used += before;
        internal->charged = before;
        return false;
    }
    internal->charged = charged;
    uint8_t *map;
    struct stat info;
    if (fstat(object->fd, &info) < 0)
        return rs_error_system(error, errno, "the created file cannot be examined");
    uint64_t there = (uint64_t)info.st_blocks * 512; /* less: the application made it longer, or punched */
    if (there < size && !fill_holes(store, object->fd, size, size - there, error))
        return false;
    if (!rs_store_file_map(object->fd, size, false, &map, error))
        return false;
    object->size = size;
    object->map = map;
    return true;
}

/* One on disk takes nothing of the memory that the quota is about: its pages come and go. */
static rs_object *adopt_foreign(rs_store *store, int fd, uint64_t size, bool in_memory, rs_error *error) {
    rs_object *object = object_new(store, in_memory ? &store->memory : NULL, size, false, error);
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
        object_free(store, object, false);
        return NULL;
    }
    return object;
}

rs_object *rs_store_add(rs_store *store, const rs_object_id *id, int fd, uint64_t owner, rs_error *error) {
    uint64_t size;
    dev_t device;
    ino_t inode;
    bool in_memory;
    if (!rs_store_file_check(fd, &size, &device, &inode, &in_memory, error) || !refuse_existing(store, id, error))
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
        object = adopt_foreign(store, fd, size, in_memory, error);
        if (!object)
            return NULL;
    }
    object->phase = RS_OBJECT_DIGESTING;
    object->id = *id;
    object->owner = owner;
    return object;
}

static bool name_file(rs_object *object, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    if (internal->foreign)
        return true;
    const rs_store_folder *folder = &internal->place->folder;
    if (object->on_disk)
        return rs_disk_name(folder, object->fd, &object->id, error);
    if (!internal->shown)
        return rs_store_file_name(folder, object->fd, &object->id, error);
    if (!rs_store_file_rename(folder, object->fd, internal->shown_to, object->handle, &object->id, error))
        return false;
    internal->shown = false;
    return true;
}

static bool make_complete(rs_object *object, const rs_digest *digest, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    if (!name_file(object, error))
        return false;
    object->digest = *digest;
    object->phase = RS_OBJECT_COMPLETE;
    object->owner = 0;
    if (object->on_disk) {
        internal->manifest.root = *digest;
        internal->manifest.complete = true;
        rs_disk_write_header(internal->manifest_fd, &internal->manifest);
    }
    if (object->pieces) {
        rs_pieces *pieces = object->pieces;
        object->pieces = NULL;
        rs_pieces_tell_over(pieces, object, true);
        rs_pieces_free(pieces);
    }
    return true;
}

void rs_store_keep_leaves(rs_object *object, uint8_t *leaves, uint64_t count) {
    free(object->leaves);
    object->leaves = leaves;
    object->leaf_count = count;
}

bool rs_store_added(rs_store *store, rs_object *object, const rs_digest *digest, rs_error *error) {
    (void)store;
    if (object->phase != RS_OBJECT_DIGESTING)
        return rs_error_set(error, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is not being added", object->id.data);
    return make_complete(object, digest, error);
}

rs_object *rs_store_receive(rs_store *store, const rs_object_id *id, uint64_t size, rs_error *error) {
    if (!refuse_existing(store, id, error))
        return NULL;
    rs_object *object = object_new(store, &store->memory, size, true, error);
    if (!object)
        return NULL;
    object->phase = RS_OBJECT_RECEIVING;
    object->id = *id;
    object->private_file = true;
    object->received = true;
    object->holds = 1;
    if (!start_allocation(store, object, error) || !rs_store_file_map(object->fd, size, true, &object->map, error)) {
        object_free(store, object, false);
        return NULL;
    }
    return object;
}

/* ---------------------------------------------------------------------------------------------------------- pieces */

bool rs_store_resumes(const rs_object *object, const rs_manifest *what) {
    const rs_manifest *has = &object->internal->manifest;
    bool roots = has->root.length > 0 && what->root.length > 0;
    return object->phase == RS_OBJECT_PARTIAL && object->size == what->size && has->algorithm == what->algorithm &&
           (!roots || rs_digest_equal(&has->root, &what->root));
}

/* Memory for it is mapped writable again, and further pieces are counted. */
static rs_object *take_up(rs_object *object, const rs_manifest *what, rs_error *error) {
    struct rs_object_private *internal = object->internal;
    if (object->map && mprotect(object->map, (size_t)object->size, PROT_READ | PROT_WRITE) < 0) {
        rs_error_system(error, errno, "object %" PRIu64 " cannot be gone on with", object->id.data);
        return NULL;
    }
    /* Blocks of pieces that are missing may be holes: a full disk must be an error, not a signal. */
    if (!internal->slice_bits && !rs_slices_reserve(object, error))
        return NULL;
    rs_digest root = internal->manifest.root.length ? internal->manifest.root : what->root;
    if (what->from[0])
        internal->manifest = *what;
    internal->manifest.root = root;
    rs_manifest_rename(&internal->manifest, object->name);
    internal->manifest.complete = false;
    internal->manifest.pinned = object->pinned;
    rs_disk_write_header(internal->manifest_fd, &internal->manifest);
    object->phase = RS_OBJECT_RECEIVING;
    object->holds = 1;
    return object;
}

rs_object *rs_store_receive_pieces(rs_store *store, const rs_manifest *what, rs_error *error) {
    rs_object *partial = rs_store_find(store, &what->id);
    if (partial && rs_store_resumes(partial, what))
        return take_up(partial, what, error);
    if (!refuse_existing(store, &what->id, error))
        return NULL;
    rs_store_place *p =
        store->has_disk && what->size >= store->disk_from && what->size > 0 ? &store->disk : &store->memory;
    rs_object *object = object_new(store, p, what->size, true, error);
    if (!object)
        return NULL;
    object->phase = RS_OBJECT_RECEIVING;
    object->id = what->id;
    object->private_file = true;
    object->received = true;
    object->holds = 1;
    object->internal->manifest = *what;
    object->internal->manifest.complete = false;
    object->pieces = rs_pieces_new(what->size, what->algorithm);
    if (!object->pieces)
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for the pieces of an object of %" PRIu64 " bytes",
                     what->size);
    if (!object->pieces || !start_allocation(store, object, error) ||
        !rs_store_file_map(object->fd, what->size, true, &object->map, error)) {
        object_free(store, object, false);
        return NULL;
    }
    return object;
}

static rs_disk_mapping mapping_of(const rs_object *object) {
    return (rs_disk_mapping){object->fd, object->map, object->size, object->phase == RS_OBJECT_RECEIVING};
}

bool rs_store_piece_came(rs_object *object, uint64_t piece, const uint8_t *leaf) {
    struct rs_object_private *internal = object->internal;
    if (!object->pieces || !rs_pieces_put(object->pieces, piece, leaf))
        return false;
    if (object->on_disk) {
        const rs_disk_mapping mapping = mapping_of(object);
        rs_disk_write_piece(internal->manifest_fd, &internal->manifest, piece, leaf);
        rs_disk_piece_written(&internal->written, &mapping, piece);
    }
    rs_pieces_tell_came(object->pieces, object, piece);
    return true;
}

void rs_store_piece_gone(rs_object *object, uint64_t piece) {
    if (!object->pieces || !rs_pieces_have(object->pieces, piece))
        return;
    rs_pieces_drop(object->pieces, piece);
    if (object->on_disk)
        rs_disk_erase_piece(object->internal->manifest_fd, piece);
}

bool rs_store_root_known(rs_object *object, const rs_digest *root) {
    struct rs_object_private *internal = object->internal;
    if (!object->on_disk)
        return true;
    if (internal->manifest.root.length > 0)
        return rs_digest_equal(&internal->manifest.root, root);
    if (root->algorithm != internal->manifest.algorithm)
        return false;
    internal->manifest.root = *root;
    rs_disk_write_header(internal->manifest_fd, &internal->manifest);
    return true;
}

bool rs_store_keep(rs_object *object) {
    if (object->phase != RS_OBJECT_RECEIVING || !object->on_disk || !object->pieces || object->pieces->known == 0)
        return false;
    if (object->map)
        (void)mprotect(object->map, (size_t)object->size, PROT_READ);
    rs_pieces_tell_over(object->pieces, object, false);
    object->phase = RS_OBJECT_PARTIAL;
    rs_store_release(object); /* the transfer's; it may be passed on at the same time */
    return true;
}

const rs_manifest *rs_store_manifest(const rs_object *object) {
    return object->on_disk ? &object->internal->manifest : NULL;
}

const rs_manifest *rs_store_origin(const rs_object *object) {
    const rs_manifest *manifest = &object->internal->manifest;
    return manifest->from_address && manifest->from_port ? manifest : NULL;
}

void rs_store_read_ahead(rs_object *object, uint64_t offset) {
    struct rs_object_private *internal = object->internal;
    if (internal->place && !internal->place->disk)
        return;
    bool near = offset + READ_WINDOW / 2 < internal->ahead && offset + 2 * READ_WINDOW > internal->ahead;
    if (near)
        return;
    const rs_disk_mapping mapping = mapping_of(object);
    rs_disk_read_ahead(&mapping, offset, READ_WINDOW);
    internal->ahead = offset + READ_WINDOW;
    if (offset >= 2 * READ_WINDOW)
        rs_disk_drop_tables(&mapping, offset - 2 * READ_WINDOW, READ_WINDOW);
}

void rs_store_was_read(const rs_object *object, uint64_t offset, uint64_t length) {
    const rs_disk_mapping mapping = mapping_of(object);
    if (!object->internal->place || object->internal->place->disk)
        rs_disk_drop_tables(&mapping, offset, length);
}

/* ------------------------------------------------------------------------------------------------------ at a start */

static void tell(const rs_store *store, const char *text) {
    if (store->log)
        store->log(store->context, text);
}

static bool found_on_disk(void *context, const rs_manifest *manifest, const rs_disk_files *files) {
    rs_store *store = context;
    rs_error error = {0};
    char text[400];
    rs_object *object =
        rs_store_find(store, &manifest->id) ? NULL : object_new(store, &store->disk, manifest->size, false, &error);
    if (!object) {
        (void)snprintf(text, sizeof text, "object %" PRIu64 " on disk is left alone: %.250s", manifest->id.data,
                       error.text);
        tell(store, text);
        return false;
    }
    object->id = manifest->id;
    object->phase = RS_OBJECT_CHECKING;
    object->private_file = true;
    object->received = true;
    object->internal->manifest = *manifest;
    object->pinned = manifest->pinned;
    struct stat info; /* as it was left: a mapping, too, counts as a read to the system */
    if (fstat(files->fd, &info) == 0 && info.st_atim.tv_sec >= 0 && info.st_atim.tv_sec < FILE_TIME_MOST)
        object->internal->read_at = (int64_t)info.st_atim.tv_sec * 1000000000 + info.st_atim.tv_nsec;
    newest = object->internal->read_at > newest ? object->internal->read_at : newest;
    (void)fcntl(files->fd, F_SETFL, fcntl(files->fd, F_GETFL) | O_NOATIME);
    object->pieces = rs_pieces_new(manifest->size, manifest->algorithm);
    if (!object->pieces || !rs_store_file_map(files->fd, manifest->size, true, &object->map, &error)) {
        object_free(store, object, true);
        return false;
    }
    if (object->map)
        (void)mprotect(object->map, (size_t)object->size, PROT_READ);
    object->fd = files->fd;
    object->internal->manifest_fd = files->manifest_fd;
    object->name = manifest->name[0] ? strdup(manifest->name) : NULL;
    return true;
}

static void removed_on_disk(void *context, const char *name, const char *why) {
    const rs_store *store = context;
    char text[400];
    (void)snprintf(text, sizeof text, "%s in %.200s was removed: %s", name, store->disk.folder.path, why);
    tell(store, text);
}

static bool find_on_disk(rs_store *store, rs_error *error) {
    const rs_disk_scan_callbacks callbacks = {.context = store, .found = found_on_disk, .removed = removed_on_disk};
    return rs_disk_scan(&store->disk.folder, &callbacks, error);
}

/* All that the manifest names was digested again. */
static void checked(rs_store *store, rs_object *object) {
    struct rs_object_private *internal = object->internal;
    rs_pieces *pieces = object->pieces;
    rs_digest found = {0};
    rs_error error = {0};
    bool all = pieces->known == pieces->count && internal->manifest.root.length > 0 &&
               rs_digest_of_leaves(pieces->algorithm, pieces->leaves, pieces->count, &found) &&
               rs_digest_equal(&found, &internal->manifest.root);
    if (all) {
        uint64_t count = pieces->count;
        uint8_t *leaves = pieces->leaves;
        pieces->leaves = NULL;
        rs_store_keep_leaves(object, leaves, count);
        all = make_complete(object, &found, &error);
    }
    if (all)
        return;
    char text[200];
    (void)snprintf(text, sizeof text, "object %" PRIu64 " has %" PRIu64 " of %" PRIu64 " pieces on disk",
                   object->id.data, pieces->known, pieces->count);
    tell(store, text);
    object->phase = RS_OBJECT_PARTIAL;
}

static void check_piece(rs_object *object, uint64_t piece) {
    struct rs_object_private *internal = object->internal;
    uint8_t recorded[32], found[32];
    uint64_t offset = piece * RS_DIGEST_CHUNK;
    if (!rs_disk_read_piece(internal->manifest_fd, &internal->manifest, piece, recorded))
        return;
    rs_store_read_ahead(object, offset);
    if (rs_digest_leaf(internal->manifest.algorithm, object->map, object->size, piece, found) &&
        memcmp(recorded, found, object->pieces->width) == 0)
        (void)rs_pieces_put(object->pieces, piece, found);
    else
        rs_disk_erase_piece(internal->manifest_fd, piece);
    const rs_disk_mapping mapping = mapping_of(object);
    rs_disk_let_go(&mapping, offset, rs_pieces_length(object->pieces, piece));
}

bool rs_store_check_step(rs_store *store, uint32_t max_pieces, rs_object **done) {
    *done = NULL;
    rs_object *object = NULL;
    for (uint32_t i = 0; i < store->count && !object; i++)
        if (store->objects[i]->phase == RS_OBJECT_CHECKING)
            object = store->objects[i];
    if (!object)
        return false;
    uint64_t *at = &object->internal->checked;
    for (uint32_t i = 0; i < max_pieces && *at < object->pieces->count; i++)
        check_piece(object, (*at)++);
    if (*at == object->pieces->count) {
        checked(store, object);
        *done = object;
    }
    return true;
}

bool rs_store_commit(rs_store *store, rs_object *object, const rs_digest *digest, rs_error *error) {
    (void)store;
    if (object->phase != RS_OBJECT_RECEIVING)
        return rs_error_set(error, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is not being received", object->id.data);
    /* Nothing writes any more: a stray write of ours would be a bug, and shows as one. */
    if (object->map && mprotect(object->map, (size_t)object->size, PROT_READ) < 0)
        return rs_error_system(error, errno, "object %" PRIu64 " cannot be made read-only", object->id.data);
    if (!make_complete(object, digest, error))
        return false;
    rs_store_release(object); /* others may hold it by now: who gives its pieces to others */
    return true;
}

void rs_store_rename(rs_object *object, const char *name) {
    char *copy = name[0] ? strdup(name) : NULL;
    if (name[0] && !copy)
        return; /* it is known by its number */
    object->told &= object->name && copy && strcmp(object->name, copy) == 0;
    free(object->name);
    object->name = copy;
    rs_manifest_rename(&object->internal->manifest, copy);
    rs_disk_write_header(object->internal->manifest_fd, &object->internal->manifest);
}

void rs_store_pin(rs_object *object, bool on) {
    object->pinned = on;
    object->internal->manifest.pinned = on;
    rs_disk_write_header(object->internal->manifest_fd, &object->internal->manifest);
}

void rs_store_discard(rs_store *store, rs_object *object) {
    if (object->phase != RS_OBJECT_COMPLETE)
        object_free(store, object, false);
}

bool rs_store_is_file(const rs_object *object, int fd) {
    return rs_store_file_same(object->fd, fd);
}

void rs_store_hold(rs_object *object) {
    is_read(object);
    object->holds++;
}

void rs_store_release(rs_object *object) {
    if (object->holds)
        object->holds--;
}

int rs_store_reader_fd(const rs_object *object, rs_error *error) {
    if (object->phase != RS_OBJECT_COMPLETE) {
        rs_error_set(error, ROSTRUM_ERR_BUSY, "object %" PRIu64 " is not whole yet", object->id.data);
        return -1;
    }
    int fd = rs_store_file_reopen(object->fd, O_RDONLY);
    if (fd < 0 && object->internal->foreign)
        fd = fcntl(object->fd, F_DUPFD_CLOEXEC, 0); /* itself read-only */
    if (fd < 0)
        rs_error_system(error, errno, "object %" PRIu64 " cannot be opened for reading", object->id.data);
    else
        is_read(object);
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

static bool in_folder(const rs_object *object, uid_t reader, const uint8_t app[16], const char *prefix, uint64_t number,
                      char out[RS_STORE_PATH_SIZE], rs_error *error) {
    const rs_store_folder *folder = &object->internal->place->folder;
    char whole[PATH_MAX], uuid[37];
    if (!realpath(folder->path, whole) || !rs_store_file_grant(folder, object->fd, reader, prefix[0]))
        return rs_error_system(error, errno, "object store %s", folder->path);
    rs_store_uuid_text(app, uuid);
    (void)snprintf(out, RS_STORE_PATH_SIZE, "%s/%s/%s%" PRIu64, whole, uuid, prefix, number);
    return true;
}

bool rs_store_reader_path(const rs_object *object, uid_t uid, char out[RS_STORE_PATH_SIZE], rs_error *error) {
    if (!object->internal->foreign)
        return in_folder(object, uid, object->id.app, "", object->id.data, out, error);
    return rs_store_file_path(object->fd, out, RS_STORE_PATH_SIZE) ||
           rs_error_set(error, ROSTRUM_ERR_INVALID,
                        "object %" PRIu64 " lies in a file without a name, which this program cannot open; add it from "
                        "a file that has one, or by create",
                        object->id.data);
}

bool rs_store_writer_path(rs_object *object, uid_t uid, const uint8_t app[16], char out[RS_STORE_PATH_SIZE],
                          rs_error *error) {
    memcpy(object->internal->shown_to, app, sizeof object->internal->shown_to);
    const rs_store_folder *folder = &object->internal->place->folder;
    object->internal->shown = rs_store_file_show(folder, object->fd, app, object->handle, error);
    return object->internal->shown && in_folder(object, uid, app, "new-", object->handle, out, error);
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
    if (!object->internal->foreign && !object->on_disk)
        rs_store_file_unname(&store->memory.folder, id);
    object_free(store, object, false);
    return true;
}
