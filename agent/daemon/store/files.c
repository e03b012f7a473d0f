#include "daemon/store/files.h"

#include <ctype.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ZEROS ((size_t)64 << 10)

mode_t rs_store_app_mode(const rs_store_folder *folder) {
    return folder->by_grant ? 0711 : 0710;
}

static mode_t object_mode(const rs_store_folder *folder) {
    return folder->by_grant ? 0400 : 0440;
}

/* An access control list (acl(5)), as the kernel takes it: little-endian; users come second. */
typedef struct {
    uint16_t tag, permissions;
    uint32_t id;
} acl_entry;

#define ACL_USERS_MAX 32 /* to whom a file may be given at a time; beyond, the first loses it */
#define ACL_HEAD 4       /* its version */

enum { ACL_USER_OBJ = 1, ACL_USER = 2, ACL_GROUP_OBJ = 4, ACL_MASK = 16, ACL_OTHER = 32 };
static const char acl_name[] = "system.posix_acl_access";

static size_t put_entry(uint8_t *list, size_t at, uint16_t tag, uint16_t permissions, uint32_t id) {
    const acl_entry entry = {htole16(tag), htole16(permissions), htole32(id)};
    memcpy(list + at, &entry, sizeof entry);
    return at + sizeof entry;
}

/* Users that the file's list has already, but for `uid`. */
static unsigned users_of(int fd, uid_t uid, uint32_t users[ACL_USERS_MAX]) {
    uint8_t list[ACL_HEAD + (ACL_USERS_MAX + 4) * sizeof(acl_entry)];
    ssize_t got = fgetxattr(fd, acl_name, list, sizeof list);
    unsigned count = 0;
    acl_entry entry;
    for (size_t at = ACL_HEAD; got > 0 && at + sizeof entry <= (size_t)got; at += sizeof entry) {
        memcpy(&entry, list + at, sizeof entry);
        if (le16toh(entry.tag) == ACL_USER && le32toh(entry.id) != uid && count < ACL_USERS_MAX)
            users[count++] = le32toh(entry.id);
    }
    return count;
}

bool rs_store_file_grant(const rs_store_folder *folder, int fd, uid_t uid, bool write) {
    uint8_t list[ACL_HEAD + (ACL_USERS_MAX + 4) * sizeof(acl_entry)] = {2};
    uint32_t users[ACL_USERS_MAX];
    const uint16_t right = write ? 6 : 4;
    const uint32_t nobody = UINT32_MAX;
    if (!folder->by_grant || uid == 0 || uid == geteuid())
        return true;
    unsigned count = users_of(fd, uid, users);
    size_t at = put_entry(list, ACL_HEAD, ACL_USER_OBJ, right, nobody);
    for (unsigned i = count == ACL_USERS_MAX; i < count; i++)
        at = put_entry(list, at, ACL_USER, right, users[i]);
    at = put_entry(list, at, ACL_USER, right, uid);
    at = put_entry(list, at, ACL_GROUP_OBJ, 0, nobody);
    at = put_entry(list, at, ACL_MASK, right, nobody);
    at = put_entry(list, at, ACL_OTHER, 0, nobody);
    return fsetxattr(fd, acl_name, list, at, 0) == 0;
}

bool rs_store_file_revoke(int fd) {
    return fremovexattr(fd, acl_name) == 0 || errno == ENODATA || errno == EOPNOTSUPP;
}

/* Names in the folder are what gives access to objects: nobody but the owner may list them. With a group, what is made
 * in the folder is that group's too. One that others share (sticky, or of another owner) is not changed. */
static bool protect(const rs_store_folder *folder, int fd, const char *path, const gid_t *group, rs_error *error) {
    struct stat now;
    if (fstat(fd, &now) < 0)
        return rs_error_system(error, errno, "object store %s", path);
    bool listable = now.st_mode & (S_IROTH | S_IWOTH);
    bool ours = now.st_uid == geteuid() && !(now.st_mode & S_ISVTX);
    if (!ours)
        return !listable ||
               rs_error_set(
                   error, ROSTRUM_ERR_INVALID,
                   "object store %s is a folder that others can list, and what they read there gives access "
                   "to objects; make one for this agent alone: install -d -m 0710 -o USER -g GROUP FOLDER, or mount it "
                   "with mode=0710",
                   path);
    if (group && fchown(fd, (uid_t)-1, *group) < 0)
        return rs_error_system(error, errno, "object store %s cannot be given to group %u (is this agent a member?)",
                               path, (unsigned)*group);
    const mode_t mode = group ? S_ISGID : 0;
    return fchmod(fd, mode | rs_store_app_mode(folder)) == 0 ||
           rs_error_system(error, errno, "object store %s: chmod", path);
}

bool rs_store_folder_open(rs_store_folder *out, const char *path, bool memory, const gid_t *group, rs_error *error) {
    struct statfs info;
    if (!path || !*path || strlen(path) >= sizeof out->path)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "the object store's folder needs a path shorter than %zu bytes",
                            sizeof out->path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return rs_error_system(error, errno, "object store %s cannot be opened", path);
    if (fstatfs(fd, &info) < 0) {
        rs_error_system(error, errno, "object store %s: statfs", path);
        close(fd);
        return false;
    }
    if (memory && info.f_type != TMPFS_MAGIC) {
        close(fd);
        return rs_error_set(error, ROSTRUM_ERR_INVALID,
                            "object store %s is not on tmpfs; mount one: mount -t tmpfs -o "
                            "size=4G,mode=0710,huge=within_size rostrum %s",
                            path, path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        bool taken = errno == EWOULDBLOCK;
        if (taken)
            rs_error_set(error, ROSTRUM_ERR_EXISTS, "object store %s is used by another running agent", path);
        else
            rs_error_system(error, errno, "object store %s cannot be locked", path);
        close(fd);
        return false;
    }
    if (!protect(out, fd, path, group, error)) {
        close(fd);
        return false;
    }
    out->fd = fd;
    memcpy(out->path, path, strlen(path) + 1);
    return true;
}

bool rs_store_is_uuid(const char *name) {
    if (strlen(name) != 36)
        return false;
    for (int i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? name[i] != '-' : !isxdigit((unsigned char)name[i]))
            return false;
    }
    return true;
}

static bool looks_like_data_id(const char *name) {
    name += strncmp(name, "new-", 4) == 0 ? 4 : 0; /* rs_store_file_show */
    size_t length = strlen(name);
    return length >= 1 && length <= 20 && strspn(name, "0123456789") == length;
}

static bool clean_application(int parent, const char *name, rs_error *error) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOTDIR || errno == ELOOP || rs_error_system(error, errno, "object store: old folder %s", name);
    DIR *folder = fdopendir(fd);
    if (!folder) {
        rs_error_system(error, errno, "object store: old folder %s", name);
        close(fd);
        return false;
    }
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(folder));)
        if (looks_like_data_id(entry->d_name) && unlinkat(fd, entry->d_name, 0) < 0 && errno != EISDIR)
            ok = rs_error_system(error, errno, "object store: old object %s/%s cannot be removed", name, entry->d_name);
    closedir(folder);
    /* Not empty = somebody keeps other things there: theirs to remove. */
    if (ok && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY && errno != EEXIST)
        ok = rs_error_system(error, errno, "object store: old folder %s cannot be removed", name);
    return ok;
}

DIR *rs_store_folder_list(const rs_store_folder *folder, rs_error *error) {
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        rs_error_system(error, errno, "object store %s cannot be read", folder->path);
        if (fd >= 0)
            close(fd);
    }
    return list;
}

bool rs_store_folder_clean(const rs_store_folder *folder, rs_error *error) {
    DIR *list = rs_store_folder_list(folder, error);
    if (!list)
        return false;
    bool ok = true;
    for (struct dirent *entry; ok && (entry = readdir(list));)
        if (rs_store_is_uuid(entry->d_name))
            ok = clean_application(folder->fd, entry->d_name, error);
    closedir(list);
    return ok;
}

bool rs_store_folder_space(const rs_store_folder *folder, uint64_t *free_bytes, uint64_t *total_bytes,
                           rs_error *error) {
    struct statfs info;
    if (fstatfs(folder->fd, &info) < 0)
        return rs_error_system(error, errno, "object store %s: statfs", folder->path);
    uint64_t block = (uint64_t)info.f_bsize;
    *total_bytes = (uint64_t)info.f_blocks * block;
    *free_bytes = (uint64_t)info.f_bavail * block;
    if (info.f_blocks == 0) { /* a tmpfs without limit: memory is the limit, and tmpfs's own default is half of it */
        long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        *total_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : 0;
        *free_bytes = *total_bytes;
    }
    return true;
}

int rs_store_file_new(const rs_store_folder *folder, uint64_t size, rs_error *error) {
    int fd = openat(folder->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        rs_error_system(error, errno, "object store %s: no new file", folder->path);
        return -1;
    }
    if (ftruncate(fd, (off_t)size) < 0) {
        rs_error_system(error, errno, "object store %s: a file of %" PRIu64 " bytes", folder->path, size);
        close(fd);
        return -1;
    }
    return fd;
}

bool rs_store_file_allocate(int fd, uint64_t offset, uint64_t length, rs_error *error) {
    while (length && fallocate(fd, 0, (off_t)offset, (off_t)length) < 0)
        if (errno != EINTR)
            return rs_error_system(error, errno,
                                   "the object store has no room (tmpfs or disk is full) for %" PRIu64 " bytes more",
                                   length);
    return true;
}

/* Since Linux 6.11 write() fills a huge page without clearing it first. */
static bool writes_huge_pages(int fd) {
    struct utsname kernel;
    unsigned major = 0, minor = 0;
    struct stat info;
    bool known = uname(&kernel) == 0 && sscanf(kernel.release, "%u.%u", &major, &minor) == 2;
    return known && (major > 6 || (major == 6 && minor >= 11)) && fstat(fd, &info) == 0 &&
           (uint64_t)info.st_blksize >= RS_STORE_SLICE; /* tmpfs's, with huge pages */
}

bool rs_store_file_zeros(int fd, uint64_t offset, uint64_t length) {
    static uint8_t zeros[ZEROS]; /* never written to: one page of the kernel's, which stays in the cache */
    struct iovec parts[RS_STORE_SLICE / ZEROS];
    for (unsigned i = 0; i < RS_STORE_SLICE / ZEROS; i++)
        parts[i] = (struct iovec){zeros, ZEROS};
    return length == RS_STORE_SLICE &&
           pwritev(fd, parts, RS_STORE_SLICE / ZEROS, (off_t)offset) == (ssize_t)RS_STORE_SLICE;
}

bool rs_store_file_allocate_new(int fd, uint64_t offset, uint64_t length, rs_error *error) {
    bool huge = length == RS_STORE_SLICE && offset % RS_STORE_SLICE == 0 && writes_huge_pages(fd);
    /* What is short of it is made, or refused with the reason, as ever. */
    return (huge && rs_store_file_zeros(fd, offset, length)) || rs_store_file_allocate(fd, offset, length, error);
}

bool rs_store_file_map(int fd, uint64_t size, bool writable, uint8_t **out, rs_error *error) {
    *out = NULL;
    if (!size)
        return true;
    void *map = mmap(NULL, (size_t)size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return rs_error_system(error, errno, "an object of %" PRIu64 " bytes cannot be mapped", size);
    *out = map;
    return true;
}

int rs_store_file_reopen(int fd, int flags) {
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

bool rs_store_file_check(int fd, uint64_t *size, dev_t *device, ino_t *inode, bool *in_memory, rs_error *error) {
    struct stat info;
    struct statfs place;
    if (fstat(fd, &info) < 0 || fstatfs(fd, &place) < 0)
        return rs_error_system(error, errno, "the descriptor cannot be examined");
    if (!S_ISREG(info.st_mode))
        return rs_error_set(error, ROSTRUM_ERR_INVALID,
                            "the descriptor is not a regular file; get one with create and write into it");
    int mode = fcntl(fd, F_GETFL);
    if (mode < 0 || (mode & O_PATH) || (mode & O_ACCMODE) == O_WRONLY)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "the descriptor cannot be read; open the file for reading too");
    *size = (uint64_t)info.st_size;
    *device = info.st_dev;
    *inode = info.st_ino;
    *in_memory = place.f_type == TMPFS_MAGIC;
    return true;
}

bool rs_store_file_same(int fd, int other) {
    struct stat one, two;
    return fstat(fd, &one) == 0 && fstat(other, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

bool rs_store_file_path(int fd, char *out, size_t size) {
    char self[32];
    struct stat has, there;
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(self, out, size - 1);
    out[length > 0 ? length : 0] = 0;
    return fstat(fd, &has) == 0 && lstat(out, &there) == 0 && has.st_dev == there.st_dev && has.st_ino == there.st_ino;
}

bool rs_store_file_sealed(int fd) {
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) && (seals & F_SEAL_WRITE);
}

bool rs_store_file_ours_alone(int fd) {
    /* A write lease is granted to a sole opener only, and mappings and descriptors under way between processes count as
     * openers. */
    struct stat info;
    if (fstat(fd, &info) < 0 || info.st_nlink > 0 || fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
        return false;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return true;
}

void rs_store_uuid_text(const uint8_t app[16], char out[37]) {
    (void)snprintf(out, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", app[0], app[1],
                   app[2], app[3], app[4], app[5], app[6], app[7], app[8], app[9], app[10], app[11], app[12], app[13],
                   app[14], app[15]);
}

/* The name for an object's file, and its application's folder, which is made. */
static bool own_name(const rs_store_folder *folder, const rs_object_id *id, char name[RS_STORE_NAME_SIZE], char app[37],
                     rs_error *error) {
    rs_store_uuid_text(id->app, app);
    (void)snprintf(name, RS_STORE_NAME_SIZE, "%s/%" PRIu64, app, id->data);
    return mkdirat(folder->fd, app, rs_store_app_mode(folder)) == 0 || errno == EEXIST ||
           rs_error_system(error, errno, "object store: folder %s/%s", folder->path, app);
}

static bool not_named(const rs_store_folder *folder, const char *name, const char *app, rs_error *error) {
    rs_error_system(error, errno, "object store: %s/%s", folder->path, name);
    (void)unlinkat(folder->fd, app, AT_REMOVEDIR);
    return false;
}

bool rs_store_file_name(const rs_store_folder *folder, int fd, const rs_object_id *id, rs_error *error) {
    char name[RS_STORE_NAME_SIZE], self[32], app[37];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (!own_name(folder, id, name, app, error))
        return false;
    if (fchmod(fd, object_mode(folder)) < 0 || linkat(AT_FDCWD, self, folder->fd, name, AT_SYMLINK_FOLLOW) < 0)
        return not_named(folder, name, app, error);
    return true;
}

void rs_store_file_unname(const rs_store_folder *folder, const rs_object_id *id) {
    char name[RS_STORE_NAME_SIZE], app[37];
    rs_store_uuid_text(id->app, app);
    (void)snprintf(name, sizeof name, "%s/%" PRIu64, app, id->data);
    /* Either may be gone already: somebody with rights there may have tidied up by hand. */
    (void)unlinkat(folder->fd, name, 0);
    (void)unlinkat(folder->fd, app, AT_REMOVEDIR);
}

/* "<uuid>/new-<handle>" */
static void shown_name(const uint8_t app[16], uint64_t handle, char name[RS_STORE_NAME_SIZE], char folder[37]) {
    rs_store_uuid_text(app, folder);
    (void)snprintf(name, RS_STORE_NAME_SIZE, "%s/new-%" PRIu64, folder, handle);
}

bool rs_store_file_show(const rs_store_folder *folder, int fd, const uint8_t app[16], uint64_t handle,
                        rs_error *error) {
    char name[RS_STORE_NAME_SIZE], self[32], of[37];
    shown_name(app, handle, name, of);
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (mkdirat(folder->fd, of, rs_store_app_mode(folder)) < 0 && errno != EEXIST)
        return rs_error_system(error, errno, "object store: folder %s/%s", folder->path, of);
    if (fchmod(fd, folder->by_grant ? 0600 : 0660) < 0 ||
        linkat(AT_FDCWD, self, folder->fd, name, AT_SYMLINK_FOLLOW) < 0)
        return not_named(folder, name, of, error);
    return true;
}

/* A file whose last name went can get none any more: the name is changed. */
bool rs_store_file_rename(const rs_store_folder *folder, int fd, const uint8_t app[16], uint64_t handle,
                          const rs_object_id *id, rs_error *error) {
    char shown[RS_STORE_NAME_SIZE], name[RS_STORE_NAME_SIZE], of[37], own[37];
    shown_name(app, handle, shown, of);
    if (!own_name(folder, id, name, own, error))
        return false;
    if ((folder->by_grant && !rs_store_file_revoke(fd)) || fchmod(fd, object_mode(folder)) < 0 ||
        renameat2(folder->fd, shown, folder->fd, name, RENAME_NOREPLACE) < 0)
        return not_named(folder, name, own, error);
    (void)unlinkat(folder->fd, of, AT_REMOVEDIR); /* empty, if the object is another application's */
    return true;
}

void rs_store_file_hide(const rs_store_folder *folder, const uint8_t app[16], uint64_t handle) {
    char name[RS_STORE_NAME_SIZE], of[37];
    shown_name(app, handle, name, of);
    (void)unlinkat(folder->fd, name, 0);
    (void)unlinkat(folder->fd, of, AT_REMOVEDIR);
}

bool rs_store_reclaim_step(rs_store_reclaim *reclaim, uint64_t max_bytes) {
    uint64_t left = reclaim->size - reclaim->at;
    uint64_t part = max_bytes < RS_STORE_SLICE ? RS_STORE_SLICE : max_bytes - max_bytes % RS_STORE_SLICE;
    if (part > left)
        part = left;
    if (part) {
        if (reclaim->map)
            munmap(reclaim->map + reclaim->at, (size_t)part);
        if (reclaim->punch)
            (void)fallocate(reclaim->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)reclaim->at, (off_t)part);
        reclaim->at += part;
    }
    if (reclaim->at < reclaim->size)
        return false;
    close(reclaim->fd);
    return true;
}
