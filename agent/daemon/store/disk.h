/* Files of objects on disk: in the application's folder "<dataID>.part" while pieces come, "<dataID>" when all of it is
 * right, and "<dataID>.pieces", the manifest (manifest.h). They outlive the agent. Used by store.c alone. */
#ifndef RS_STORE_DISK_H
#define RS_STORE_DISK_H

#include "daemon/store/files.h"
#include "daemon/store/manifest.h"

/* Both files of an object, open. -1: there is none. */
typedef struct {
    int fd, manifest_fd;
} rs_disk_files;

/* Makes the files of an object that is to come; what an older one left goes. */
bool rs_disk_begin(const rs_store_folder *folder, const rs_manifest *manifest, rs_disk_files *out, rs_error *error);
/* The manifest's header as it is now; a piece that came. What the disk does not take is fetched again after a restart,
 * and nothing worse. */
void rs_disk_write_header(int manifest_fd, const rs_manifest *manifest);
void rs_disk_write_piece(int manifest_fd, const rs_manifest *manifest, uint64_t piece, const uint8_t *leaf);
void rs_disk_erase_piece(int manifest_fd, uint64_t piece);
bool rs_disk_read_piece(int manifest_fd, const rs_manifest *manifest, uint64_t piece, uint8_t *leaf);
/* "<dataID>.part" becomes "<dataID>", read-only for owner and group. */
bool rs_disk_name(const rs_store_folder *folder, int fd, const rs_object_id *id, rs_error *error);
/* Removes all of it, and the application's folder with the last. */
void rs_disk_unname(const rs_store_folder *folder, const rs_object_id *id);

typedef struct {
    void *context;
    /* The files are the callee's. False: it cannot take them; they are closed and stay on disk. */
    bool (*found)(void *context, const rs_manifest *manifest, const rs_disk_files *files);
    /* Files that are no object, or half of one, were removed: why. */
    void (*removed)(void *context, const char *name, const char *why);
} rs_disk_scan_callbacks;

/* What an earlier run left. False: the folder cannot be read. */
bool rs_disk_scan(const rs_store_folder *folder, const rs_disk_scan_callbacks *callbacks, rs_error *error);

/* Bytes of the file that are as they will be go to the disk soon; these need not stay in memory any more. Neither
 * waits for the disk. */
void rs_disk_write_back(int fd, uint64_t offset, uint64_t length);
void rs_disk_let_go(int fd, uint8_t *map, uint64_t offset, uint64_t length);
/* Bytes that will be read soon. */
void rs_disk_read_ahead(uint8_t *map, uint64_t size, uint64_t offset, uint64_t length);

#endif
