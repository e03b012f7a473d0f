/* Writes log lines, each with one write so that lines of several processes do not mix: at once, or by a thread that may
 * wait where the loop must not. */
#include "daemon/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define JSON_MAX_BYTES (6 * LINE_MAX_BYTES + 256) /* every byte escaped */
#define TIME_BYTES 64
#define QUOTES 8
#define QUOTE_BYTES 272

static const char *const level_names[] = {"debug", "info", "warning", "error"};
static rs_log_level threshold = RS_LOG_INFO;
static bool as_json;

void rs_log_set_json(bool json) {
    as_json = json;
}

bool rs_log_set_level(const char *name) {
    for (unsigned i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (strcmp(level_names[i], name) == 0) {
            threshold = (rs_log_level)i;
            return true;
        }
    return false;
}

/* ---- the way out ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more, done;
    pthread_t thread;
    bool running, stopping, busy; /* busy: a line is being written */
    uint64_t dropped, told;       /* lines */
    size_t head, used;
    char ring[RS_LOG_ROOM];
} out_queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

/* A log that cannot be written has nowhere to say so. */
static void write_all(const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, length);
        if (written < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
            (void)poll(&ready, 1, -1);
        } else if (written < 0 && errno != EINTR) {
            return;
        } else if (written > 0) {
            bytes += written;
            length -= (size_t)written;
        }
    }
}

static void put_bytes(const char *bytes, size_t length) {
    size_t at = (out_queue.head + out_queue.used) % RS_LOG_ROOM;
    size_t first = length < RS_LOG_ROOM - at ? length : RS_LOG_ROOM - at;
    memcpy(out_queue.ring + at, bytes, first);
    memcpy(out_queue.ring, bytes + first, length - first);
    out_queue.used += length;
}

static void take_bytes(void *bytes, size_t length) {
    size_t first = length < RS_LOG_ROOM - out_queue.head ? length : RS_LOG_ROOM - out_queue.head;
    memcpy(bytes, out_queue.ring + out_queue.head, first);
    memcpy((char *)bytes + first, out_queue.ring, length - first);
    out_queue.head = (out_queue.head + length) % RS_LOG_ROOM;
    out_queue.used -= length;
}

static void *write_lines(void *context) {
    (void)context;
    static char line[JSON_MAX_BYTES];
    pthread_mutex_lock(&out_queue.lock);
    for (;;) {
        while (out_queue.used == 0 && !out_queue.stopping)
            pthread_cond_wait(&out_queue.more, &out_queue.lock);
        if (out_queue.used == 0)
            break;
        uint32_t length;
        take_bytes(&length, sizeof length);
        take_bytes(line, length);
        out_queue.busy = true;
        pthread_mutex_unlock(&out_queue.lock);
        write_all(line, length);
        pthread_mutex_lock(&out_queue.lock);
        out_queue.busy = false;
        if (out_queue.used == 0)
            pthread_cond_signal(&out_queue.done);
    }
    pthread_mutex_unlock(&out_queue.lock);
    return NULL;
}

void rs_log_start(void) {
    sigset_t all, before;
    sigfillset(&all);
    out_queue.stopping = false;
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the loop's */
    out_queue.running = pthread_create(&out_queue.thread, NULL, write_lines, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void rs_log_stop(uint32_t most_ms) {
    if (!out_queue.running)
        return;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += most_ms / 1000;
    until.tv_nsec += (long)(most_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&out_queue.lock);
    out_queue.stopping = true;
    pthread_cond_signal(&out_queue.more);
    int waited = 0;
    while ((out_queue.used > 0 || out_queue.busy) && waited == 0)
        waited = pthread_cond_timedwait(&out_queue.done, &out_queue.lock, &until);
    bool all = out_queue.used == 0 && !out_queue.busy;
    out_queue.used = 0; /* what nobody read in time */
    pthread_mutex_unlock(&out_queue.lock);
    if (all)
        pthread_join(out_queue.thread, NULL);
    else
        pthread_detach(out_queue.thread); /* it waits for a reader; the end of the process ends it */
    out_queue.running = !all;             /* what comes now must not wait either */
}

uint64_t rs_log_dropped(void) {
    pthread_mutex_lock(&out_queue.lock);
    uint64_t dropped = out_queue.dropped;
    pthread_mutex_unlock(&out_queue.lock);
    return dropped;
}

static void queue_line(const char *line, size_t length) {
    uint32_t size = (uint32_t)length;
    if (out_queue.used + sizeof size + length > RS_LOG_ROOM) {
        out_queue.dropped++;
        return;
    }
    if (out_queue.used == 0) /* else the writer is not waiting */
        pthread_cond_signal(&out_queue.more);
    put_bytes((const char *)&size, sizeof size);
    put_bytes(line, length);
}

static size_t line_of_dropped(char *line, size_t size, const char *time, uint64_t count);

/* `line` with its end. */
static void put_line(const char *time, const char *line, size_t length) {
    if (!out_queue.running) {
        write_all(line, length);
        return;
    }
    pthread_mutex_lock(&out_queue.lock);
    if (out_queue.dropped > out_queue.told && out_queue.used < RS_LOG_ROOM / 2) {
        char text[LINE_MAX_BYTES];
        uint64_t count = out_queue.dropped - out_queue.told;
        out_queue.told = out_queue.dropped;
        queue_line(text, line_of_dropped(text, sizeof text, time, count));
    }
    queue_line(line, length);
    pthread_mutex_unlock(&out_queue.lock);
}

/* ---- JSON ---- */

typedef struct {
    char bytes[JSON_MAX_BYTES];
    size_t used;
} json;

static void put_raw(json *out, const char *text) {
    size_t length = strlen(text);
    if (out->used + length < sizeof out->bytes) {
        memcpy(out->bytes + out->used, text, length);
        out->used += length;
    }
}

/* Bytes outside ASCII become U+FFFD: what comes from strangers need not be UTF-8. */
static void put_string(json *out, const char *text, size_t length) {
    put_raw(out, "\"");
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        char escaped[8] = {(char)byte, '\0'};
        if (byte == '"' || byte == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", byte);
        else if (byte < 0x20 || byte >= 0x7f)
            snprintf(escaped, sizeof escaped, "\\u%04x", byte < 0x80 ? byte : 0xfffdu);
        put_raw(out, escaped);
    }
    put_raw(out, "\"");
}

static void put_member(json *out, const char *key, size_t key_length, const char *value, size_t value_length) {
    put_raw(out, ",");
    put_string(out, key, key_length);
    put_raw(out, ":");
    put_string(out, value, value_length);
}

/* Length of the report that begins here; a quoted part of it may hold blanks. */
static size_t word_length(const char *at) {
    bool quoted = false;
    size_t length = 0;
    for (; at[length] && (quoted || at[length] != ' '); length++)
        if (at[length] == '\\' && quoted && at[length + 1])
            length++;
        else if (at[length] == '"')
            quoted = !quoted;
    return length;
}

/* The quoted value as rs_quote made it, without the quotes and their escapes. */
static size_t unquote(const char *from, size_t length, char *to) {
    size_t used = 0;
    for (size_t i = 1; i + 1 < length; i++) {
        if (from[i] == '\\' && (from[i + 1] == '"' || from[i + 1] == '\\'))
            i++;
        to[used++] = from[i];
    }
    return used;
}

/* "some words key=value ..." as members; keys are letters, digits and _. */
static void put_pairs(json *out, const char *line) {
    char message[LINE_MAX_BYTES] = "", value[LINE_MAX_BYTES];
    size_t text_used = 0;
    while (*line) {
        size_t length = word_length(line);
        size_t key = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (key > 0 && key < length && line[key] == '=') {
            const char *text = line + key + 1;
            size_t text_length = length - key - 1;
            if (text_length > 1 && text[0] == '"')
                put_member(out, line, key, value, unquote(text, text_length, value));
            else
                put_member(out, line, key, text, text_length);
        } else if (text_used + length + 1 < sizeof message) {
            if (text_used > 0)
                message[text_used++] = ' ';
            memcpy(message + text_used, line, length);
            text_used += length;
        }
        line += length;
        line += strspn(line, " ");
    }
    if (text_used > 0)
        put_member(out, "text", 4, message, text_used);
}

__attribute__((format(printf, 4, 0))) static void write_json(const char *time, rs_log_level level, const char *event,
                                                             const char *format, va_list arguments) {
    static json out;
    char line[LINE_MAX_BYTES];
    vsnprintf(line, sizeof line, format, arguments);
    out.used = 0;
    put_raw(&out, "{\"time\":");
    put_string(&out, time, strlen(time));
    put_member(&out, "level", 5, level_names[level], strlen(level_names[level]));
    put_member(&out, "event", 5, event, strlen(event));
    put_pairs(&out, line);
    put_raw(&out, "}\n");
    put_line(time, out.bytes, out.used);
}

/* ---- lines ---- */

__attribute__((format(printf, 3, 0))) static void write_line(rs_log_level level, const char *event, const char *format,
                                                             va_list arguments) {
    char line[LINE_MAX_BYTES];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof line - used, ".%06ldZ", now.tv_nsec / 1000);
    char time[TIME_BYTES];
    memcpy(time, line, used + 1);
    if (as_json) {
        write_json(time, level, event, format, arguments);
        return;
    }
    used += (size_t)snprintf(line + used, sizeof line - used, " %s %s ", level_names[level], event);
    int added = vsnprintf(line + used, sizeof line - used, format, arguments);
    used += added > 0 ? (size_t)added : 0;
    if (used > sizeof line - 1)
        used = sizeof line - 1;
    line[used++] = '\n';
    put_line(time, line, used);
}

static size_t line_of_dropped(char *line, size_t size, const char *time, uint64_t count) {
    const char *format = as_json ? "{\"time\":\"%s\",\"level\":\"warning\",\"event\":\"log\",\"dropped\":\"%llu\","
                                   "\"text\":\"lines were dropped: nobody read this log for a while\"}\n"
                                 : "%s warning log dropped=%llu lines: nobody read this log for a while\n";
    return (size_t)snprintf(line, size, format, time, (unsigned long long)count);
}

void rs_log(rs_log_level level, const char *event, const char *format, ...) {
    if (level < threshold)
        return;
    va_list arguments;
    va_start(arguments, format);
    write_line(level, event, format, arguments);
    va_end(arguments);
}

void rs_log_limited(rs_log_limit *limit, uint32_t per_second, rs_log_level level, const char *event, const char *format,
                    ...) {
    if (level < threshold)
        return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec != limit->second) {
        if (limit->left_out > 0)
            rs_log(level, event, "left_out=%u like the last ones", limit->left_out);
        *limit = (rs_log_limit){.second = now.tv_sec};
    }
    if (limit->written >= per_second) {
        limit->left_out++;
        return;
    }
    limit->written++;
    va_list arguments;
    va_start(arguments, format);
    write_line(level, event, format, arguments);
    va_end(arguments);
}

const char *rs_quote(const char *text) {
    static char buffers[QUOTES][QUOTE_BYTES];
    static unsigned turn;
    char *out = buffers[turn++ % QUOTES];
    size_t used = 0;
    out[used++] = '"';
    for (const char *at = text; *at && used < QUOTE_BYTES - 8; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte == '"' || byte == '\\')
            out[used++] = '\\';
        if (byte < 0x20 || byte == 0x7f)
            used += (size_t)snprintf(out + used, 5, "\\x%02x", byte);
        else
            out[used++] = (char)byte;
    }
    out[used++] = '"';
    out[used] = '\0';
    return out;
}
