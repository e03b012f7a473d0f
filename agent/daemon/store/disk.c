#include "daemon/store/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/digest.h"

#define NAME_SIZE (RS_STORE_NAME_SIZE + 8)
#define TABLE_BYTES ((uintptr_t)2 << 20) /* that a page table serves */

static const char PART[] = ".part", PIECES[] = ".pieces";

static const char *name_of(const rs_object_id *id, const char *suffix, char out[NAME_SIZE]) {
    char app[37];
    rs_store_uuid_text(id->app, app);
    (void)snprintf(out, NAME_SIZE, "%s/%" PRIu64 "%s", app, id->data, suffix);
    return out;
}

bool rs_disk_begin(const rs_store_folder *folder, const rs_manifest *manifest, rs_disk_files *out, rs_error *error) {
    char part[NAME_SIZE], pieces[NAME_SIZE], app[37];
    rs_store_uuid_text(manifest->id.app, app);
    *out = (rs_disk_files){-1, -1};
    if (mkdirat(folder->fd, app, rs_store_app_mode(folder)) < 0 && errno != EEXIST)
        return rs_error_system(error, errno, "object store %s: folder %s", folder->path, app);
    name_of(&manifest->id, PART, part);
    name_of(&manifest->id, PIECES, pieces);
    (void)unlinkat(folder->fd, part, 0);
    (void)unlinkat(folder->fd, pieces, 0);
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    out->fd = openat(folder->fd, part, flags, 0600);
    out->manifest_fd = out->fd < 0 ? -1 : openat(folder->fd, pieces, flags, 0600);
    uint64_t records = RS_MANIFEST_HEADER + rs_manifest_pieces(manifest) * RS_MANIFEST_RECORD;
    if (out->manifest_fd < 0 || ftruncate(out->fd, (off_t)manifest->size) < 0 ||
        ftruncate(out->manifest_fd, (off_t)records) < 0) {
        rs_error_system(error, errno, "object store %s: files of %" PRIu64 " bytes for %s", folder->path,
                        manifest->size, part);
        if (out->fd >= 0)
            close(out->fd);
        if (out->manifest_fd >= 0)
            close(out->manifest_fd);
        rs_disk_unname(folder, &manifest->id);
        return false;
    }
    rs_disk_write_header(out->manifest_fd, manifest);
    return true;
}

/* A manifest that is not written says less than there is: no harm. */
static void write_at(int fd, const uint8_t *bytes, size_t length, uint64_t offset) {
    while (pwrite(fd, bytes, length, (off_t)offset) < 0 && errno == EINTR)
        ;
}

void rs_disk_write_header(int manifest_fd, const rs_manifest *manifest) {
    uint8_t bytes[RS_MANIFEST_HEADER];
    rs_manifest_put(manifest, bytes);
    if (manifest_fd >= 0)
        write_at(manifest_fd, bytes, sizeof bytes, 0);
}

static uint64_t record_at(uint64_t piece) {
    return RS_MANIFEST_HEADER + piece * RS_MANIFEST_RECORD;
}

void rs_disk_write_piece(int manifest_fd, const rs_manifest *manifest, uint64_t piece, const uint8_t *leaf) {
    uint8_t bytes[RS_MANIFEST_RECORD];
    rs_manifest_put_piece(manifest, piece, leaf, bytes);
    write_at(manifest_fd, bytes, sizeof bytes, record_at(piece));
}

void rs_disk_erase_piece(int manifest_fd, uint64_t piece) {
    const uint8_t bytes[RS_MANIFEST_RECORD] = {0};
    write_at(manifest_fd, bytes, sizeof bytes, record_at(piece));
}

bool rs_disk_read_piece(int manifest_fd, const rs_manifest *manifest, uint64_t piece, uint8_t *leaf) {
    uint8_t bytes[RS_MANIFEST_RECORD];
    return pread(manifest_fd, bytes, sizeof bytes, (off_t)record_at(piece)) == (ssize_t)sizeof bytes &&
           rs_manifest_take_piece(manifest, piece, bytes, leaf);
}

bool rs_disk_name(const rs_store_folder *folder, int fd, const rs_object_id *id, rs_error *error) {
    char part[NAME_SIZE], whole[NAME_SIZE];
    if (fchmod(fd, folder->by_grant ? 0400 : 0440) < 0 ||
        renameat(folder->fd, name_of(id, PART, part), folder->fd, name_of(id, "", whole)) < 0)
        return rs_error_system(error, errno, "object store %s: %s", folder->path, whole);
    return true;
}

void rs_disk_unname(const rs_store_folder *folder, const rs_object_id *id) {
    char name[NAME_SIZE], app[37];
    rs_store_uuid_text(id->app, app);
    (void)unlinkat(folder->fd, name_of(id, "", name), 0);
    (void)unlinkat(folder->fd, name_of(id, PART, name), 0);
    (void)unlinkat(folder->fd, name_of(id, PIECES, name), 0);
    (void)unlinkat(folder->fd, app, AT_REMOVEDIR);
}

/* ------------------------------------------------------------------------------------------------------- scanning */

static void close_files(const rs_disk_files *files) {
    if (files->fd >= 0)
        close(files->fd);
    if (files->manifest_fd >= 0)
        close(files->manifest_fd);
}

/* Is "<app>/<name>" where this manifest's files are? */
static bool names_itself(const rs_manifest *manifest, const char *app, const char *name) {
    char expected[NAME_SIZE], found[NAME_SIZE + 256];
    (void)snprintf(found, sizeof found, "%s/%s", app, name);
    return strcmp(name_of(&manifest->id, PIECES, expected), found) == 0;
}

/* NULL: taken (or left for another time); else why these files are no object. */
static const char *take_manifest(const rs_store_folder *folder, int app_fd, const char *app, const char *name,
                                 const rs_disk_scan_callbacks *callbacks) {
    uint8_t bytes[RS_MANIFEST_HEADER];
    char file[NAME_SIZE];
    rs_manifest manifest;
    struct stat info;
    const char *why = "it cannot be read";
    rs_disk_files files = {-1, openat(app_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC)};
    if (files.manifest_fd < 0)
        return why;
    ssize_t got = pread(files.manifest_fd, bytes, sizeof bytes, 0);
    if (!rs_manifest_take(bytes, got < 0 ? 0 : (size_t)got, &manifest, &why))
        goto bad;
    why = "it is the manifest of another object";
    if (!names_itself(&manifest, app, name))
        goto bad;
    why = "the file beside it is not there";
    char part[NAME_SIZE];
    name_of(&manifest.id, PART, part);
    /* Nobody sees it before it was checked again. */
    if (renameat(folder->fd, name_of(&manifest.id, "", file), folder->fd, part) == 0)
        (void)fchmodat(folder->fd, part, 0600, 0);
    files.fd = openat(folder->fd, part, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (files.fd < 0)
        goto bad;
    why = "the file beside it has another size";
    if (fstat(files.fd, &info) < 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != manifest.size)
        goto bad;
    if (!callbacks->found(callbacks->context, &manifest, &files))
        close_files(&files);
    return NULL;
bad:
    close_files(&files);
    return why;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), end = strlen(suffix);
    return length > end && strcmp(name + length - end, suffix) == 0;
}

/* "<dataID>" of "<dataID>.pieces": its files go. */
static void remove_files(int app_fd, const char *name) {
    char stem[64], path[80];
    size_t length = strlen(name) - strlen(PIECES);
    if (length >= sizeof stem)
        return;
    memcpy(stem, name, length);
    stem[length] = '\0';
    (void)unlinkat(app_fd, name, 0);
    (void)unlinkat(app_fd, stem, 0);
    (void)snprintf(path, sizeof path, "%s%s", stem, PART);
    (void)unlinkat(app_fd, path, 0);
}

static void scan_application(const rs_store_folder *folder, const char *app, const rs_disk_scan_callbacks *callbacks) {
    int fd = openat(folder->fd, app, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list));) {
        if (!ends_with(entry->d_name, PIECES) ||
            strspn(entry->d_name, "0123456789") + strlen(PIECES) != strlen(entry->d_name))
            continue;
        const char *why = take_manifest(folder, fd, app, entry->d_name, callbacks);
        if (!why)
            continue;
        char name[300];
        (void)snprintf(name, sizeof name, "%.36s/%.255s", app, entry->d_name);
        remove_files(fd, entry->d_name);
        callbacks->removed(callbacks->context, name, why);
    }
    closedir(list);
}

bool rs_disk_scan(const rs_store_folder *folder, const rs_disk_scan_callbacks *callbacks, rs_error *error) {
    DIR *list = rs_store_folder_list(folder, error);
    if (!list)
        return false;
    for (struct dirent *entry; (entry = readdir(list));)
        if (rs_store_is_uuid(entry->d_name))
            scan_application(folder, entry->d_name, callbacks);
    closedir(list);
    return true;
}

/* --------------------------------------------------------------------------------------------------------- memory */

static uint64_t piece_length(const rs_disk_mapping *mapping, uint64_t piece) {
    uint64_t begin = piece * RS_DIGEST_CHUNK;
    return mapping->size - begin < RS_DIGEST_CHUNK ? mapping->size - begin : RS_DIGEST_CHUNK;
}

void rs_disk_piece_written(rs_disk_written *written, const rs_disk_mapping *mapping, uint64_t piece) {
    uint64_t *slot = &written->pieces[written->count % RS_DISK_PIECES_KEPT];
    if (written->count >= RS_DISK_PIECES_KEPT)
        rs_disk_let_go(mapping, *slot * RS_DIGEST_CHUNK, piece_length(mapping, *slot));
    *slot = piece;
    written->count++;
    (void)sync_file_range(mapping->fd, (off_t)(piece * RS_DIGEST_CHUNK), (off_t)piece_length(mapping, piece),
                          SYNC_FILE_RANGE_WRITE);
}

void rs_disk_let_go(const rs_disk_mapping *mapping, uint64_t offset, uint64_t length) {
    rs_disk_drop_tables(mapping, offset, length);
    (void)posix_fadvise(mapping->fd, (off_t)offset, (off_t)length, POSIX_FADV_DONTNEED);
}

/* Mapped anew where it was: a table serves 2 MiB, and goes when no older mapping is left there. */
void rs_disk_drop_tables(const rs_disk_mapping *mapping, uint64_t offset, uint64_t length) {
    uintptr_t begin = (uintptr_t)mapping->map, end = begin + mapping->size;
    if (!mapping->map || offset >= mapping->size)
        return;
    uintptr_t from = (begin + offset) & ~(TABLE_BYTES - 1);
    uintptr_t upto = (begin + offset + length + TABLE_BYTES - 1) & ~(TABLE_BYTES - 1);
    from = from < begin ? begin : from;
    upto = upto > end ? end : upto;
    int protection = PROT_READ | (mapping->writable ? PROT_WRITE : 0);
    if (mmap((void *)from, upto - from, protection, MAP_SHARED | MAP_FIXED, mapping->fd, (off_t)(from - begin)) ==
        MAP_FAILED)
        (void)madvise((void *)from, upto - from, MADV_DONTNEED);
}

void rs_disk_read_ahead(const rs_disk_mapping *mapping, uint64_t offset, uint64_t length) {
    if (!mapping->map || offset >= mapping->size)
        return;
    uint64_t most = mapping->size - offset;
    (void)madvise(mapping->map + offset, (size_t)(length < most ? length : most), MADV_WILLNEED);
}
