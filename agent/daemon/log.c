/* Writes log lines, each with one write so that lines of several processes do not mix. */
#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define QUOTES 8
#define QUOTE_BYTES 272

static const char *const level_names[] = {"debug", "info", "warning", "error"};
static rs_log_level threshold = RS_LOG_INFO;

bool rs_log_set_level(const char *name) {
    for (unsigned i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (strcmp(level_names[i], name) == 0) {
            threshold = (rs_log_level)i;
            return true;
        }
    return false;
}

__attribute__((format(printf, 3, 0))) static void write_line(rs_log_level level, const char *event, const char *format,
                                                             va_list arguments) {
    char line[LINE_MAX_BYTES];
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof line - used, ".%06ldZ %s %s ", now.tv_nsec / 1000, level_names[level],
                             event);
    int added = vsnprintf(line + used, sizeof line - used, format, arguments);
    used += added > 0 ? (size_t)added : 0;
    if (used > sizeof line - 1)
        used = sizeof line - 1;
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* a log that cannot be written has nowhere to say so */
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
