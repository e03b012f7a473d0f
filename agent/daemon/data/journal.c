#include "daemon/data/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <rostrum/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/data/transfers.h"
#include "daemon/log.h"
#include "daemon/store/digest.h"
#include "daemon/store/files.h"

#define TICK (100 * RS_MILLISECOND)
#define AGAIN_FIRST RS_SECOND
#define AGAIN_MOST (600 * RS_SECOND) /* between two tries to reach receivers */
#define AGE_MOST_NS ((int64_t)24 * 3600 * 1000000000)
#define RECORDS_MOST 1024u
#define NAME_SIZE (RS_STORE_NAME_SIZE + 16)
#define WHY_SIZE 160

static const char SEND[] = ".send", NEW[] = ".send.new";

typedef enum { WAITS, PREPARES, RUNS, FAILED } entry_state;

/* A send of an earlier run. */
typedef struct entry {
    struct entry *next;
    rs_object_id id;
    entry_state state;
    rs_send_record *record; /* FAILED: none */
    bool added;             /* the object, by this journal */
    bool said;              /* that its object is not whole here */
    rs_time at, gap;        /* WAITS: until then */
    char why[WHY_SIZE];     /* FAILED */
} entry;

struct rs_journal {
    rs_journal_config config;
    int folder; /* -1: none */
    uint32_t count;
    entry *entries;
    rs_time check_at;
};

static entry *find(const rs_journal *j, const rs_object_id *id) {
    for (entry *e = j->entries; e; e = e->next)
        if (memcmp(&e->id, id, sizeof *id) == 0)
            return e;
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------- files */

static void name_of(const rs_object_id *id, const char *suffix, char app[37], char out[NAME_SIZE]) {
    rs_store_uuid_text(id->app, app);
    (void)snprintf(out, NAME_SIZE, "%s/%" PRIu64 "%s", app, id->data, suffix);
}

static void erase(const rs_journal *j, const rs_object_id *id) {
    char app[37], name[NAME_SIZE];
    name_of(id, SEND, app, name);
    if (j->folder >= 0 && unlinkat(j->folder, name, 0) == 0)
        (void)unlinkat(j->folder, app, AT_REMOVEDIR); /* with the last that is in it */
}

/* Whole or not at all. What the disk does not take is not gone on with after a restart, and nothing worse. */
void rs_journal_write(rs_journal *j, const rs_send_record *record) {
    char app[37], fresh[NAME_SIZE], name[NAME_SIZE];
    uint8_t *bytes = NULL;
    size_t length = j->folder >= 0 ? rs_send_record_put(record, &bytes) : 0;
    name_of(&record->id, NEW, app, fresh);
    name_of(&record->id, SEND, app, name);
    if (length > 0)
        (void)mkdirat(j->folder, app, 0710);
    int fd = length ? openat(j->folder, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    bool ok = fd >= 0 && write(fd, bytes, length) == (ssize_t)length;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && (!ok || renameat(j->folder, fresh, j->folder, name) < 0)) {
        (void)unlinkat(j->folder, fresh, 0);
        rs_log(RS_LOG_WARNING, "send", "object=%s is not written down, and would not go on after a restart: %s",
               rs_id_text(&record->id), strerror(errno));
    }
    free(bytes);
}

static rs_send_record *read_record(int app_fd, const char *name, const char **why) {
    struct stat info;
    rs_send_record *record = NULL;
    *why = "it cannot be read";
    int fd = openat(app_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool readable = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= RS_SEND_RECORD_MOST;
    uint8_t *bytes = readable ? malloc((size_t)info.st_size + 1) : NULL;
    if (bytes && read(fd, bytes, (size_t)info.st_size) == info.st_size)
        record = rs_send_record_take(bytes, (size_t)info.st_size, why);
    free(bytes);
    if (fd >= 0)
        close(fd);
    return record;
}

/* ------------------------------------------------------------------------------------------------------- entries */

static void free_entry(rs_journal *j, entry *gone) {
    for (entry **at = &j->entries; *at; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            j->count--;
            break;
        }
    free(gone->record);
    free(gone);
}

/* It cannot go on: who asks is told why. */
static void fail(rs_journal *j, entry *e, const char *why) {
    rs_log(RS_LOG_WARNING, "send", "object=%s does not go on after the restart: receivers=%u text=%s",
           rs_id_text(&e->id), e->record->receiver_count, rs_quote(why));
    (void)snprintf(e->why, sizeof e->why, "the agent was restarted, and %.120s", why);
    e->state = RUNS; /* whoever lets go of the object does not forget this */
    if (e->added)
        j->config.drop(j->config.context, &e->id);
    erase(j, &e->id);
    e->state = FAILED;
    free(e->record);
    e->record = NULL;
}

static bool take_entry(rs_journal *j, rs_send_record *record, rs_time now) {
    entry *e = j->count < RECORDS_MOST && !find(j, &record->id) ? calloc(1, sizeof *e) : NULL;
    if (!e)
        return false;
    *e = (entry){.next = j->entries, .id = record->id, .record = record, .at = now, .gap = AGAIN_FIRST};
    j->entries = e;
    j->count++;
    return true;
}

static bool ends_with(const char *name, const char *suffix) {
    size_t length = strlen(name), end = strlen(suffix);
    return length > end && strcmp(name + length - end, suffix) == 0;
}

static void scan_application(rs_journal *j, const char *app, rs_time now) {
    int fd = openat(j->folder, app, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list && fd >= 0)
        close(fd);
    for (struct dirent *file; list && (file = readdir(list));) {
        if (ends_with(file->d_name, NEW))
            (void)unlinkat(fd, file->d_name, 0);
        if (!ends_with(file->d_name, SEND))
            continue;
        char of[37], name[NAME_SIZE], found[NAME_SIZE + 256];
        const char *why;
        rs_send_record *record = read_record(fd, file->d_name, &why);
        (void)snprintf(found, sizeof found, "%.36s/%.255s", app, file->d_name);
        if (record) {
            name_of(&record->id, SEND, of, name);
            why = strcmp(name, found) == 0 ? "" : "it is of another object";
            if (why[0] == '\0' && take_entry(j, record, now))
                continue;
        }
        free(record);
        if (why[0] == '\0')
            continue; /* no room: left for the next start */
        rs_log(RS_LOG_WARNING, "send", "file=%s is no send to go on with, and was removed: %s", rs_quote(found), why);
        (void)unlinkat(fd, file->d_name, 0);
    }
    if (list)
        closedir(list);
    (void)unlinkat(j->folder, app, AT_REMOVEDIR); /* if nothing is left there */
}

static bool scan(rs_journal *j, rs_time now) {
    int fd = openat(j->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    for (struct dirent *app; (app = readdir(list));)
        if (rs_store_is_uuid(app->d_name))
            scan_application(j, app->d_name, now);
    closedir(list);
    return true;
}

/* ------------------------------------------------------------------------------------------------------- going on */

/* The file, if it is still the one. -1: with the reason. */
static int open_source(const rs_send_record *record, char why[WHY_SIZE]) {
    struct stat info;
    int fd = open(record->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        (void)snprintf(why, WHY_SIZE, "its file cannot be opened: %s", strerror(errno));
        return -1;
    }
    bool same = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == record->size &&
                (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec == record->changed_ns;
    if (same)
        return fd;
    (void)snprintf(why, WHY_SIZE, "its file was changed since");
    close(fd);
    return -1;
}

static void again_later(entry *e, rs_time now) {
    e->state = WAITS;
    e->at = now + e->gap;
    e->gap = e->gap < AGAIN_MOST / 2 ? 2 * e->gap : AGAIN_MOST;
}

/* The object is to be in the store: found there, or added again. */
static void prepare(rs_journal *j, entry *e) {
    char why[WHY_SIZE] = "its bytes were in the memory of the agent alone";
    rs_error error = {0};
    bool here = rs_store_find(j->config.store, &e->id) != NULL;
    e->state = PREPARES;
    if (here && e->record->from != RS_SENT_FROM_MEMORY)
        return;
    if (e->record->from == RS_SENT_FROM_STORE)
        (void)snprintf(why, sizeof why, "its copy on disk there is gone");
    int fd = e->record->from == RS_SENT_FROM_FILE ? open_source(e->record, why) : -1;
    if (fd >= 0) {
        e->added = j->config.add(j->config.context, &e->id, fd, &error) != NULL;
        (void)snprintf(why, sizeof why, "%.150s", error.text);
        close(fd);
    }
    if (!e->added)
        fail(j, e, why);
}

static void begin(rs_journal *j, entry *e, rs_time now) {
    char text[ROSTRUM_TEXT_MAX + 1] = "";
    const rs_send_record *record = e->record;
    rs_object *object = rs_store_find(j->config.store, &e->id);
    if (!object) {
        fail(j, e, record->from == RS_SENT_FROM_FILE ? "its file cannot be read" : "its copy on disk there is gone");
    } else if (object->phase == RS_OBJECT_PARTIAL && !e->said) {
        e->said = true;
        rs_log(RS_LOG_WARNING, "send", "object=%s is damaged on disk: its send goes on when all of it is here again",
               rs_id_text(&e->id));
    } else if (object->phase == RS_OBJECT_COMPLETE &&
               (object->size != record->size ||
                (record->root.length > 0 && !rs_digest_equal(&object->digest, &record->root)))) {
        fail(j, e, "its bytes were changed since");
    } else if (object->phase == RS_OBJECT_COMPLETE) {
        e->state = RUNS;
        if (j->config.start(j->config.context, record, object, text)) {
            rs_log(RS_LOG_INFO, "send", "object=%s goes on after a restart: receivers=%u", rs_id_text(&e->id),
                   record->receiver_count);
            return;
        }
        rs_log(RS_LOG_INFO, "send", "object=%s goes on later: text=%s", rs_id_text(&e->id), rs_quote(text));
        again_later(e, now);
    }
}

static void step(rs_journal *j, entry *e, rs_time now) {
    bool old = e->state != RUNS && e->state != FAILED && j->config.clock() - e->record->began_ns > AGE_MOST_NS;
    if (old)
        fail(j, e, "for a day it could not go on");
    if (e->state == WAITS && now >= e->at)
        prepare(j, e);
    if (e->state == PREPARES)
        begin(j, e, now);
}

rs_time rs_journal_deadline(const rs_journal *j) {
    return j->check_at;
}

void rs_journal_timeout(rs_journal *j, rs_time now) {
    bool waits = false;
    if (now < j->check_at)
        return;
    for (entry *e = j->entries; e; e = e->next) {
        step(j, e, now);
        waits |= e->state == WAITS || e->state == PREPARES;
    }
    j->check_at = waits ? now + TICK : RS_NEVER;
}

void rs_journal_over(rs_journal *j, rs_time now, const rs_object_id *id, const rs_send_record *rest) {
    entry *e = find(j, id);
    uint8_t *bytes;
    const char *why;
    size_t length = e && rest ? rs_send_record_put(rest, &bytes) : 0;
    rs_send_record *record = length ? rs_send_record_take(bytes, length, &why) : NULL;
    if (length)
        free(bytes);
    if (!record) {
        erase(j, id);
        if (e)
            free_entry(j, e);
        return;
    }
    rs_journal_write(j, record);
    free(e->record);
    e->record = record;
    again_later(e, now);
    rs_log(RS_LOG_INFO, "send", "object=%s goes on in %.0f s: receivers=%u", rs_id_text(id),
           (double)(e->at - now) / 1e9, record->receiver_count);
    j->check_at = j->check_at < now + TICK ? j->check_at : now + TICK;
}

bool rs_journal_forget(rs_journal *j, const rs_object_id *id) {
    entry *e = find(j, id);
    if (!e || e->state == RUNS)
        return false;
    bool waited = e->state != FAILED;
    if (waited)
        erase(j, id);
    free_entry(j, e);
    return waited;
}

const char *rs_journal_why(const rs_journal *j, const rs_object_id *id) {
    const entry *e = find(j, id);
    return e && e->state == FAILED ? e->why : NULL;
}

/* ---------------------------------------------------------------------------------------------------------- life */

rs_journal *rs_journal_new(const rs_journal_config *config, rs_time now) {
    rs_journal *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->config = *config;
    j->folder = config->directory ? open(config->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (config->directory && (j->folder < 0 || !scan(j, now))) {
        rs_log(RS_LOG_ERROR, "send", "folder=%s cannot be read: %s", rs_quote(config->directory), strerror(errno));
        rs_journal_free(j);
        return NULL;
    }
    j->check_at = j->entries ? now : RS_NEVER;
    return j;
}

void rs_journal_free(rs_journal *j) {
    if (!j)
        return;
    while (j->entries)
        free_entry(j, j->entries);
    if (j->folder >= 0)
        close(j->folder);
    free(j);
}
