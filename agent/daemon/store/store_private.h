/* What a store and its objects are made of: for store.c and slices.c alone. */
#ifndef RS_STORE_PRIVATE_H
#define RS_STORE_PRIVATE_H

#include "daemon/store/disk.h"
#include "daemon/store/files.h"
#include "daemon/store/reserve.h"
#include "daemon/store/store.h"

/* Where objects lie: memory, or disk. */
typedef struct {
    rs_store_folder folder;
    uint64_t quota, used;
    uint64_t lacking;  /* rs_store_take_lacking */
    uint64_t reserved; /* promised to RECEIVING objects but not allocated yet */
    bool disk;
} rs_store_place;

struct rs_object_private {
    rs_store_place *place;
    rs_manifest manifest; /* on disk */
    int manifest_fd;
    uint64_t checked; /* CHECKING: pieces below were looked at */
    rs_disk_written written;
    uint64_t ahead;   /* read ahead until there */
    int64_t read_at;  /* rs_store_read_at */
    uint64_t charged; /* bytes on the quota */
    uint64_t slices;  /* RECEIVING: of RS_STORE_SLICE, the last may be short */
    uint64_t slices_done;
    uint64_t cursor;     /* where to look for the next slice to do */
    uint8_t *slice_bits; /* NULL when all is allocated */
    bool untouched;      /* nothing was written to slices without their bit */
    dev_t device;
    ino_t inode;
    bool foreign; /* added from elsewhere: no name of ours, mode untouched */
    bool shown;   /* CREATED, DIGESTING: rs_store_writer_path gave it a name, in the folder of */
    uint8_t shown_to[16];
};

struct rs_store {
    rs_store_place memory, disk;
    bool has_disk;
    uint64_t disk_from;
    void (*log)(void *context, const char *text);
    void (*gone)(void *context, const rs_object_id *id);
    void *context;
    rs_time evict_notice;
    rs_reserve reserve;
    uint64_t page;
    uint64_t next_handle;
    uint32_t count, cap;
    rs_object **objects;
    uint32_t reclaims;
    rs_store_reclaim *dead; /* [cap]; when full, the oldest is freed at once */
};

#endif
