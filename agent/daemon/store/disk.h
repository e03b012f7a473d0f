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
/* The header as it is now (fd -1: nothing is written); a piece that came. What the disk does not take is fetched again
 * after a restart, and nothing worse. */
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

/* A file and its mapping, all of it. */
typedef struct {
    int fd;
    uint8_t *map; /* NULL: none */
    uint64_t size;
    bool writable;
} rs_disk_mapping;

#define RS_DISK_PIECES_KEPT 8u /* of an object that is written, in memory */

/* The latest pieces that were written, in a ring. */
typedef struct {
    uint64_t pieces[RS_DISK_PIECES_KEPT];
    uint32_t count; /* all there were */
} rs_disk_written;

/* A written piece begins its way to the disk; the one before the last few has arrived there, or will be asked to go
 * another time: the kernel takes what memory it needs. Does not wait for the disk. */
void rs_disk_piece_written(rs_disk_written *written, const rs_disk_mapping *mapping, uint64_t piece);
/* These bytes need not stay in memory any more. */
void rs_disk_let_go(const rs_disk_mapping *mapping, uint64_t offset, uint64_t length);
/* Nor the page tables of these: 8 bytes for each page that was ever touched, 1/512 of the object, which the kernel
 * takes back with a mapping only. The bytes stay where they are. */
void rs_disk_drop_tables(const rs_disk_mapping *mapping, uint64_t offset, uint64_t length);
/* Bytes that will be read soon. */
void rs_disk_read_ahead(const rs_disk_mapping *mapping, uint64_t offset, uint64_t length);

#endif
