#include "daemon/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/store/files.h"

#define LINE_BYTES 16384u
#define TAIL_BYTES 1024u /* kept for what comes behind a list of servers */

struct rs_audit {
    int fd;
    char *path, *server;
    rs_log_limit complaints;
    size_t used;
    char line[LINE_BYTES];
};

static int open_file(const char *path, rs_error *error) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0) {
        rs_error_system(error, errno, "audit %.200s cannot be opened", path);
    } else if (!S_ISREG(info.st_mode) || (info.st_mode & (S_IWGRP | S_IWOTH))) {
        rs_error_set(error, ROSTRUM_ERR_INVALID,
                     "audit %.200s must be a file that only its owner can write (chmod go-w)", path);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

rs_audit *rs_audit_open(const char *path, const char *server, rs_error *error) {
    rs_audit *audit = calloc(1, sizeof *audit);
    if (!audit) {
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for the audit");
        return NULL;
    }
    audit->fd = open_file(path, error);
    audit->path = strdup(path);
    audit->server = strdup(server);
    if (audit->fd >= 0 && audit->path && audit->server)
        return audit;
    if (audit->fd >= 0)
        rs_error_set(error, ROSTRUM_ERR_NO_ROOM, "no memory for the audit");
    rs_audit_close(audit);
    return NULL;
}

void rs_audit_close(rs_audit *audit) {
    if (!audit)
        return;
    if (audit->fd >= 0)
        close(audit->fd);
    free(audit->path);
    free(audit->server);
    free(audit);
}

bool rs_audit_reopen(rs_audit *audit, rs_error *error) {
    int fd = open_file(audit->path, error);
    if (fd < 0)
        return false;
    close(audit->fd);
    audit->fd = fd;
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- lines */

__attribute__((format(printf, 2, 3))) static void put(rs_audit *a, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(a->line + a->used, sizeof a->line - a->used, format, arguments);
    va_end(arguments);
    a->used += more > 0 ? (size_t)more : 0;
    a->used = a->used < sizeof a->line ? a->used : sizeof a->line - 1;
}

/* As a JSON string; what is no text that may stand in one becomes "?". */
static void put_text(rs_audit *a, const char *text) {
    put(a, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if (*at == '"' || *at == '\\')
            put(a, "\\%c", *at);
        else
            put(a, "%c", *at < 0x20 || *at == 0x7f ? '?' : *at);
    put(a, "\"");
}

static void begin(rs_audit *a, const char *what) {
    struct timespec now;
    struct tm parts;
    char time[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    (void)strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &parts);
    a->used = 0;
    put(a, "{\"time\":\"%s.%06ldZ\",\"server\":", time, now.tv_nsec / 1000);
    put_text(a, a->server);
    put(a, ",\"request\":");
    put_text(a, what);
}

/* One write: lines of one that is renamed meanwhile, or that others append to, are not mixed. */
static void end(rs_audit *a) {
    put(a, "}\n");
    ssize_t done = write(a->fd, a->line, a->used);
    if (done == (ssize_t)a->used)
        return;
    rs_log_limited(&a->complaints, 1, RS_LOG_ERROR, "audit", "a line was not written to %s: %s", rs_quote(a->path),
                   done < 0 ? strerror(errno) : "the disk is full");
}

static void put_servers(rs_audit *a, const char *const *servers, uint32_t count) {
    uint32_t named = 0;
    put(a, ",\"servers\":[");
    for (; named < count && a->used < LINE_BYTES - TAIL_BYTES - 2 * ROSTRUM_NAME_MAX; named++) {
        put(a, "%s", named ? "," : "");
        put_text(a, servers[named]);
    }
    put(a, "],\"server_count\":%u", count);
}

void rs_audit_asked(rs_audit *a, const rs_api_asked *asked) {
    char app[37];
    rs_store_uuid_text(asked->app, app);
    begin(a, asked->what);
    put(a, ",\"uid\":%u,\"gid\":%u,\"pid\":%d,\"process\":", (unsigned)asked->who->uid, (unsigned)asked->who->gid,
        asked->pid);
    put_text(a, asked->process);
    put(a, ",\"application\":\"%s\"", app);
    if (asked->has_object)
        put(a, ",\"object\":%" PRIu64, asked->data_id);
    if (asked->group) {
        put(a, ",\"group\":");
        put_text(a, asked->group);
    }
    if (asked->server_count)
        put_servers(a, asked->servers, asked->server_count);
    put(a, ",\"allowed\":%s", asked->refusal ? "false" : "true");
    end(a);
}

void rs_audit_event(rs_audit *a, const char *what, ...) {
    va_list arguments;
    if (!a)
        return;
    begin(a, what);
    va_start(arguments, what);
    for (const char *name; (name = va_arg(arguments, const char *));) {
        put(a, ",\"%s\":", name);
        put_text(a, va_arg(arguments, const char *));
    }
    va_end(arguments);
    end(a);
}
