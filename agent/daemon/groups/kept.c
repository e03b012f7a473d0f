/* Kept messages of groups: memory and files for core/order's history, and datagrams between members for its replay. */
#include "daemon/groups/kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/heap.h"

#define SEGMENT_LEAST (64u << 10)
#define SEGMENT_MOST (4u << 20)
#define SEGMENTS 8u /* of a group at most, if that makes them no larger than SEGMENT_MOST: they are dropped whole */
#define FILE_MOST (64u << 20) /* no segment is larger: the largest message is 1 MiB */
#define NAME "%016llx.kept"

struct rs_kept {
    rs_groups *groups;
    rs_history *history;
    rs_replay *replay;
    int folder;     /* of the files; -1: in memory */
    uint64_t bytes; /* of segments */
    bool told;      /* that there is no room */
    rs_time trim_at;
    char name[ROSTRUM_GROUP_NAME_MAX + 1];
};

uint64_t rs_kept_clock(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* -------------------------------------------------------------------------------------------------------- segments */

/* Its blocks are reserved: a full disk is told now, and not when a page is written. */
static void *map_file(const rs_kept *k, const char *name, size_t bytes) {
    int fd = openat(k->folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    void *at = MAP_FAILED;
    if (fd >= 0 && (errno = posix_fallocate(fd, 0, (off_t)bytes)) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && at == MAP_FAILED)
        unlinkat(k->folder, name, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void *take_segment(void *context, uint64_t first, size_t bytes) {
    rs_kept *k = context;
    rs_groups *g = k->groups;
    char name[32];
    snprintf(name, sizeof name, NAME, (unsigned long long)first);
    const char *why = "--keep-quota is used up";
    void *at = NULL;
    if (g->history_bytes + bytes <= g->agent->options.keep_quota_bytes) {
        at = k->folder >= 0 ? map_file(k, name, bytes) : calloc(1, bytes);
        why = at ? why : strerror(errno);
    }
    if (!at && !k->told)
        rs_log(RS_LOG_WARNING, "groups", "group=%s keeps fewer messages than it is to: %s", k->name, why);
    k->told = !at;
    k->bytes += at ? bytes : 0;
    g->history_bytes += at ? bytes : 0;
    return at;
}

static void give_segment(void *context, uint64_t first, void *at, size_t bytes, bool drop) {
    rs_kept *k = context;
    char name[32];
    k->bytes -= bytes;
    k->groups->history_bytes -= bytes;
    if (k->folder < 0) {
        free(at);
        return;
    }
    munmap(at, bytes);
    snprintf(name, sizeof name, NAME, (unsigned long long)first);
    if (drop)
        unlinkat(k->folder, name, 0);
}

static bool load_file(rs_kept *k, const char *name, uint64_t first) {
    struct stat info;
    int fd = openat(k->folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    void *at = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 && info.st_size <= FILE_MOST &&
        posix_fallocate(fd, 0, info.st_size) == 0)
        at = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED)
        return false;
    uint32_t count = rs_history_load(k->history, first, at, (size_t)info.st_size);
    if (count == 0) {
        munmap(at, (size_t)info.st_size);
        return false;
    }
    k->bytes += (uint64_t)info.st_size;
    k->groups->history_bytes += (uint64_t)info.st_size;
    return true;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_segment(const struct dirent *entry) {
    return strlen(entry->d_name) == 21 && strspn(entry->d_name, "0123456789abcdef") == 16 &&
           strcmp(entry->d_name + 16, ".kept") == 0;
}

/* What an earlier run kept. Files of which nothing is whole go. */
static void load(rs_kept *k) {
    struct dirent **names = NULL;
    int count = scandirat(k->folder, ".", &names, is_segment, by_name), bad = 0;
    for (int i = 0; i < count; i++) {
        if (!load_file(k, names[i]->d_name, strtoull(names[i]->d_name, NULL, 16))) {
            unlinkat(k->folder, names[i]->d_name, 0);
            bad++;
        }
        free(names[i]);
    }
    free(names);
    if (count > 0)
        rs_log(RS_LOG_INFO, "groups", "group=%s kept from before: messages %llu to %llu, files dropped=%d", k->name,
               (unsigned long long)rs_history_first(k->history), (unsigned long long)rs_history_last(k->history), bad);
}

static int open_folder(const rs_agent *agent, const char *group) {
    char path[ROSTRUM_GROUP_NAME_MAX + 3];
    const char *root = agent->options.disk_directory;
    int disk = root ? open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, all = -1, own = -1;
    snprintf(path, sizeof path, "g.%s", group);
    if (disk >= 0 && (mkdirat(disk, "groups", 0700) == 0 || errno == EEXIST))
        all = openat(disk, "groups", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (all >= 0 && (mkdirat(all, path, 0700) == 0 || errno == EEXIST))
        own = openat(all, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (own < 0)
        rs_log(RS_LOG_WARNING, "groups", "group=%s keeps messages in memory: %s", group,
               root ? strerror(errno) : "rostrumd has no --to-disk");
    if (disk >= 0)
        close(disk);
    if (all >= 0)
        close(all);
    return own;
}

/* ------------------------------------------------------------------------------------------------------------ life */

void rs_kept_begin(rs_groups *g, rs_local_group *group) {
    if (group->kept || !rs_group_delivery_keeps(&group->delivery))
        return;
    rs_kept *k = calloc(1, sizeof *k);
    uint64_t quota = g->agent->options.keep_quota_bytes, most = group->delivery.keep_bytes;
    most = most && most < quota ? most : quota;
    uint64_t segment = most / SEGMENTS;
    segment = segment < SEGMENT_LEAST ? SEGMENT_LEAST : segment > SEGMENT_MOST ? SEGMENT_MOST : segment;
    const rs_history_config config = {.bytes = most,
                                      .age = group->delivery.keep_ns,
                                      .segment_bytes = (uint32_t)segment,
                                      .take = take_segment,
                                      .give = give_segment,
                                      .context = k};
    const rs_replay_config replay = {.group = group->id,
                                     .self = g->agent->options.address,
                                     .message_bytes = g->message_bytes,
                                     .seed = rs_kept_clock() ^ g->incarnation};
    if (k)
        k->history = rs_history_new(&config, &rs_heap);
    if (k && k->history)
        k->replay = rs_replay_new(&replay, k->history, &rs_heap);
    if (!k || !k->replay) {
        rs_log(RS_LOG_WARNING, "groups", "group=%s keeps no messages: out of memory", group->name);
        if (k)
            rs_history_free(k->history);
        free(k);
        return;
    }
    k->groups = g;
    snprintf(k->name, sizeof k->name, "%s", group->name);
    k->folder = group->delivery.keep_on_disk ? open_folder(g->agent, group->name) : -1;
    if (k->folder >= 0)
        load(k);
    group->kept = k;
}

void rs_kept_end(rs_groups *g, rs_local_group *group, bool deleted) {
    rs_kept *k = group->kept;
    (void)g;
    if (!k)
        return;
    if (deleted)
        rs_history_cut(k->history, 0);
    rs_replay_free(k->replay);
    rs_history_free(k->history);
    if (k->folder >= 0)
        close(k->folder);
    free(k);
    group->kept = NULL;
}

uint64_t rs_kept_bytes(const rs_groups *g) {
    return g->history_bytes;
}

rs_replay *rs_kept_replay(const rs_local_group *group) {
    return group->kept ? group->kept->replay : NULL;
}

uint32_t rs_kept_list(const rs_groups *g, rs_kept_facts *out, uint32_t most) {
    uint32_t count = 0;
    for (const rs_local_group *group = g->groups; group && count < most; group = group->next) {
        const rs_kept *k = group->kept;
        if (k)
            out[count++] =
                (rs_kept_facts){group->name, k->bytes, rs_history_first(k->history), rs_history_last(k->history)};
    }
    return count;
}

rs_history *rs_kept_history(const rs_local_group *group) {
    return group->kept ? group->kept->history : NULL;
}

/* ----------------------------------------------------------------------------------------------------------- turns */

void rs_kept_event(rs_groups *g, rs_local_group *group, const rs_order_event *event, const char *sender) {
    rs_kept *k = group->kept;
    if (!k || event->kind == RS_ORDER_PRIMARY)
        return;
    rs_time now = rs_agent_now(g->agent);
    if (event->kind == RS_ORDER_VIEW) {
        rs_replay_view(k->replay, now, event);
        return;
    }
    uint64_t wall = rs_kept_clock();
    const rs_history_record record = {.number = event->number,
                                      .view = event->view,
                                      .time = wall,
                                      .sender = event->sender,
                                      .name = sender,
                                      .name_length = (uint32_t)strnlen(sender, 255),
                                      .bytes = event->bytes,
                                      .length = event->length};
    (void)rs_history_add(k->history, &record, wall, rs_replay_pinned(k->replay));
}

void rs_kept_receive(rs_groups *g, rs_local_group *group, uint32_t from, const uint8_t *bytes, size_t length) {
    if (group->kept)
        (void)rs_replay_receive(group->kept->replay, rs_agent_now(g->agent), rs_kept_clock(), from, bytes, length);
}

rs_time rs_kept_deadline(const rs_groups *g) {
    rs_time deadline = RS_NEVER;
    for (const rs_local_group *group = g->ordered; group; group = group->next_ordered) {
        rs_time due = group->kept ? rs_replay_deadline(group->kept->replay) : RS_NEVER;
        if (group->kept && group->delivery.keep_ns && group->kept->trim_at < due)
            due = group->kept->trim_at;
        deadline = due < deadline ? due : deadline;
    }
    return deadline;
}

void rs_kept_timeout(rs_groups *g) {
    rs_time now = rs_agent_now(g->agent);
    for (rs_local_group *group = g->ordered; group; group = group->next_ordered) {
        rs_kept *k = group->kept;
        if (!k)
            continue;
        rs_replay_timeout(k->replay, now);
        if (now >= k->trim_at) {
            rs_history_trim(k->history, rs_kept_clock());
            k->trim_at = now + RS_SECOND;
        }
    }
}
