/* Writes log lines, each with one write so that lines of several processes do not mix. */
#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define JSON_MAX_BYTES (6 * LINE_MAX_BYTES + 256) /* every byte escaped */
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

/* Length of the word that begins here; a quoted part of it may hold blanks. */
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
    char words[LINE_MAX_BYTES] = "", value[LINE_MAX_BYTES];
    size_t words_used = 0;
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
        } else if (words_used + length + 1 < sizeof words) {
            if (words_used > 0)
                words[words_used++] = ' ';
            memcpy(words + words_used, line, length);
            words_used += length;
        }
        line += length;
        line += strspn(line, " ");
    }
    if (words_used > 0)
        put_member(out, "text", 4, words, words_used);
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
    ssize_t written = write(STDERR_FILENO, out.bytes, out.used);
    (void)written;
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
    if (as_json) {
        write_json(line, level, event, format, arguments);
        return;
    }
    used += (size_t)snprintf(line + used, sizeof line - used, " %s %s ", level_names[level], event);
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
