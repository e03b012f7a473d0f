/* Files of the object store: a locked folder, unnamed files in it, names, allocation, and freeing big files a
 * piece at a time. Used by store.c alone. */
#ifndef RS_STORE_FILES_H
#define RS_STORE_FILES_H

#include "api/error.h"
#include "core/base/types.h"

#include <dirent.h>
#include <limits.h>
#include <sys/types.h>

#define RS_STORE_SLICE \
    ((uint64_t)2 << 20)       /* unit of allocation and of freeing: a huge page; else some 0.5 ms of work */
#define RS_STORE_NAME_SIZE 64 /* "<uuid>/<dataID>" */

typedef struct {
    int fd; /* of the folder, locked */
    char path[PATH_MAX];
    bool by_grant; /* files are the owner's alone, and of users to whom rs_store_file_grant gave them */
} rs_store_folder;

/* A file that nobody needs any more: its mapping and pages go slice by slice, since freeing 512 MiB at once takes some
 * 80 ms. */
typedef struct {
    int fd;
    uint8_t *map;
    uint64_t size, at;
    bool punch; /* nobody else reads it, so its pages can be freed before the last close */
} rs_store_reclaim;

/* Opens, checks (with `memory`: tmpfs), locks and protects the folder: mode 0710 (0711 with out->by_grant, to be set
 * before), of that group (NULL: as it is; what
 * is made in it is of the process's). The descriptor is in out->fd. */
bool rs_store_folder_open(rs_store_folder *out, const char *path, bool memory, const gid_t *group, rs_error *error);
DIR *rs_store_folder_list(const rs_store_folder *folder, rs_error *error); /* NULL: it cannot be read */
/* Removes what looks like an object's name; anything else is left alone. */
bool rs_store_folder_clean(const rs_store_folder *folder, rs_error *error);
/* Bytes free and in all. */
bool rs_store_folder_space(const rs_store_folder *folder, uint64_t *free_bytes, uint64_t *total_bytes, rs_error *error);

/* An unnamed file of `size` bytes, not allocated. -1 and `error`. */
int rs_store_file_new(const rs_store_folder *folder, uint64_t size, rs_error *error);
/* Backs [offset, offset + length) by memory. */
bool rs_store_file_allocate(int fd, uint64_t offset, uint64_t length, rs_error *error);
/* The same of a slice that nobody has written to. Huge pages are written full of zeros at once (0.10 s per GB), which
 * takes less than having them cleared when they are touched (0.16 s). */
bool rs_store_file_allocate_new(int fd, uint64_t offset, uint64_t length, rs_error *error);
/* Writes a slice full of zeros, which has its pages then. False with errno: not all of it. */
bool rs_store_file_zeros(int fd, uint64_t offset, uint64_t length);
/* Shared mapping; *out is NULL for size 0. */
bool rs_store_file_map(int fd, uint64_t size, bool writable, uint8_t **out, rs_error *error);
/* A new descriptor of the same file with `flags` (O_RDONLY, O_RDWR), with a position of its own. -1 with errno. */
int rs_store_file_reopen(int fd, int flags);
/* Is it a regular file that can be read? `text` of the error say what it is and what to do. */
bool rs_store_file_check(int fd, uint64_t *size, dev_t *device, ino_t *inode, bool *in_memory, rs_error *error);
/* Do both descriptors name one file? */
bool rs_store_file_same(int fd, int other);
/* The path by which that file can be opened. False: it has none any more, or never had one. */
bool rs_store_file_path(int fd, char *out, size_t size);
/* A memfd that nobody can shorten or change any more? */
bool rs_store_file_sealed(int fd);

/* Does nobody else have it open or mapped, or by a name? */
bool rs_store_file_ours_alone(int fd);

/* With folder->by_grant: that user may read, or write too, the file by its path. False with errno. */
bool rs_store_file_grant(const rs_store_folder *folder, int fd, uid_t uid, bool write);
/* Nobody may any more. False with errno. */
bool rs_store_file_revoke(int fd);
/* Mode of an application's folder. */
mode_t rs_store_app_mode(const rs_store_folder *folder);
/* Gives the file its name, read-only for owner and group; removes the name, and the application's folder with the last.
 */
bool rs_store_file_name(const rs_store_folder *folder, int fd, const rs_object_id *id, rs_error *error);
void rs_store_file_unname(const rs_store_folder *folder, const rs_object_id *id);
/* One that an application writes gets a name for a while, "<uuid>/new-<handle>", writable for owner and group;
 * then that becomes the object's. */
bool rs_store_file_show(const rs_store_folder *folder, int fd, const uint8_t app[16], uint64_t handle, rs_error *error);
bool rs_store_file_rename(const rs_store_folder *folder, int fd, const uint8_t app[16], uint64_t handle,
                          const rs_object_id *id, rs_error *error);
void rs_store_file_hide(const rs_store_folder *folder, const uint8_t app[16], uint64_t handle);

/* Frees up to `max_bytes`; true when all of it is free. */
bool rs_store_reclaim_step(rs_store_reclaim *reclaim, uint64_t max_bytes);

bool rs_store_is_uuid(const char *name);
/* The 36 characters of a UUID and a NUL. */
void rs_store_uuid_text(const uint8_t app[16], char out[37]);

#endif
