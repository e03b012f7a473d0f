#include "api/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_BOUND_S 60 /* while as many connections as may wait for the agent, which takes none */
#define FDS_MAX 8          /* taken from one message, so that what is too much can be closed */

/* A path that does not fit is reached through a descriptor of its folder, which the caller closes; *folder is -1 when
 * it is not needed. */
static bool make_address(const char *path, struct sockaddr_un *out, int *folder, rs_error *error) {
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    *folder = -1;
    size_t length = path ? strlen(path) : 0;
    if (!length)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "the agent's socket has no path");
    if (length < sizeof out->sun_path) {
        memcpy(out->sun_path, path, length + 1);
        return true;
    }
    char parent[4096];
    const char *slash = strrchr(path, '/');
    size_t before = slash ? (size_t)(slash - path) : 0;
    if (!slash || before == 0 || before >= sizeof parent || strlen(slash) > 64)
        return rs_error_set(error, ROSTRUM_ERR_INVALID, "the socket's path is too long: %.100s...", path);
    memcpy(parent, path, before);
    parent[before] = 0;
    *folder = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return rs_error_system(error, errno, "folder %.150s", parent);
    (void)snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d%.70s", *folder, slash);
    return true;
}

static void close_if_open(int fd) {
    if (fd >= 0)
        close(fd);
}

/* Is the socket file at this address a leftover that may go? */
static bool remove_stale(const struct sockaddr_un *address, const char *path, rs_error *error) {
    struct stat info;
    if (lstat(address->sun_path, &info) < 0)
        return errno == ENOENT || rs_error_system(error, errno, "socket %s", path);
    if (!S_ISSOCK(info.st_mode))
        return rs_error_set(error, ROSTRUM_ERR_EXISTS, "%s exists and is not a socket", path);
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int number = probe < 0 || connect(probe, (const struct sockaddr *)address, sizeof *address) < 0 ? errno : 0;
    close_if_open(probe);
    if (number == 0 || number == EAGAIN || number == EPROTOTYPE)
        return rs_error_set(error, ROSTRUM_ERR_EXISTS, "another process listens on %s; stop it or use another --socket",
                            path);
    if (number != ECONNREFUSED)
        return rs_error_system(error, number, "socket %s", path);
    return unlink(address->sun_path) == 0 || rs_error_system(error, errno, "old socket %s", path);
}

int rs_unix_listen(const char *path, int type, mode_t mode, const gid_t *group, rs_error *error) {
    struct sockaddr_un address;
    int folder, fd = -1;
    if (!make_address(path, &address, &folder, error))
        return -1;
    if (remove_stale(&address, path, error)) {
        fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        /* The mode before bind keeps others out in between; the umask may have taken too much away. */
        if (fd < 0 || fchmod(fd, group ? mode & 0700 : mode) < 0 ||
            bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ||
            (group && chown(address.sun_path, (uid_t)-1, *group) < 0) || chmod(address.sun_path, mode) < 0 ||
            listen(fd, 128) < 0) {
            rs_error_system(error, errno, "socket %s%s", path, group ? " (its group must be one of the agent's)" : "");
            close_if_open(fd);
            fd = -1;
        }
    }
    close_if_open(folder);
    return fd;
}

/* A bounded wait is not begun again by itself after a signal (signal(7)): it is here, for what is left of the bound. */
static bool connects(int fd, const struct sockaddr_un *address) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    now = from;
    do {
        const struct timeval left = {.tv_sec = CONNECT_BOUND_S - (now.tv_sec - from.tv_sec)};
        if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof left) < 0)
            return false;
        if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0)
            return true;
        if (errno != EINTR)
            return false;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - from.tv_sec < CONNECT_BOUND_S);
    errno = EAGAIN;
    return false;
}

int rs_unix_connect(const char *path, bool nonblocking, rs_error *error) {
    struct sockaddr_un address;
    int folder;
    if (!make_address(path, &address, &folder, error)) {
        if (error && error->code == ROSTRUM_ERR_IO)
            error->code = ROSTRUM_ERR_UNAVAILABLE;
        return -1;
    }
    const struct timeval none = {0};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || !connects(fd, &address) || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none) < 0 ||
        (nonblocking && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)) {
        bool stands = fd >= 0 && errno == EAGAIN;
        rs_error_system(error, errno, "no agent answers at %s (%s)", path,
                        stands ? "many connections wait: is its process stopped?" : "is rostrumd running here?");
        if (error)
            error->code = ROSTRUM_ERR_UNAVAILABLE;
        close_if_open(fd);
        fd = -1;
    }
    close_if_open(folder);
    return fd;
}

int rs_unix_send(int socket, const void *data, size_t length, int fd, bool nonblocking) {
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    for (;;) {
        if (sendmsg(socket, &message, MSG_NOSIGNAL | (nonblocking ? MSG_DONTWAIT : 0)) >= 0)
            return 0;
        if (errno != EINTR)
            return errno;
    }
}

ssize_t rs_unix_receive(int socket, void *data, size_t size, int *fd, bool nonblocking) {
    union {
        char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = data, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    ssize_t got;
    *fd = -1;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (nonblocking ? MSG_DONTWAIT : 0));
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -1;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int one;
            memcpy(&one, CMSG_DATA(header) + i * sizeof one, sizeof one);
            if (*fd < 0)
                *fd = one;
            else
                close(one);
        }
    }
    if (message.msg_flags & MSG_TRUNC) {
        close_if_open(*fd);
        *fd = -1;
        errno = EMSGSIZE;
        return -1;
    }
    return got;
}
