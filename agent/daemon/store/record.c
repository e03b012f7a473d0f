#include "daemon/store/record.h"

#include <rostrum/types.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/manifest.h"
#include "daemon/store/xxh3.h"

#define MAGIC "RSSEND01"
#define CHECK RS_XXH3_BYTES
#define PATH_MOST 4095u
#define TEXT_MOST 255u
#define OPTIONS_MOST 4095u
#define CHOICES 4u /* of a protocol, and of a policy */

enum { AT_LENGTH = 8, AT_FROM = 12, AT_PROTOCOL, AT_STRAGGLERS, AT_ALGORITHM, AT_SIZE = 16, AT_CHANGED = 24 };
enum { AT_BEGAN = 32, AT_WAIT = 40, AT_COUNT = 44, AT_APP = 48, AT_DATA = 64, AT_ROOT = 72, AT_ROOT_LENGTH = 104 };
enum { AT_TEXTS = 112 };

static void put_number(uint8_t *out, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t take_number(const uint8_t *from, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

/* ------------------------------------------------------------------------------------------------------- writing */

static size_t put_text(uint8_t *out, const char *text) {
    size_t length = strlen(text);
    put_number(out, length, 2);
    memcpy(out + 2, text, length);
    return 2 + length;
}

size_t rs_send_record_put(const rs_send_record *record, uint8_t **out) {
    size_t length = AT_TEXTS + 6 + strlen(record->path) + strlen(record->name) + strlen(record->options) + CHECK;
    for (uint32_t i = 0; i < record->receiver_count; i++)
        length += 2 + strlen(record->receivers[i]);
    uint8_t *bytes = length <= RS_SEND_RECORD_MOST ? calloc(1, length) : NULL;
    *out = bytes;
    if (!bytes)
        return 0;
    memcpy(bytes, MAGIC, 8);
    put_number(bytes + AT_LENGTH, length, 4);
    bytes[AT_FROM] = (uint8_t)record->from;
    bytes[AT_PROTOCOL] = record->protocol;
    bytes[AT_STRAGGLERS] = record->stragglers;
    bytes[AT_ALGORITHM] = record->root.algorithm;
    put_number(bytes + AT_SIZE, record->size, 8);
    put_number(bytes + AT_CHANGED, (uint64_t)record->changed_ns, 8);
    put_number(bytes + AT_BEGAN, (uint64_t)record->began_ns, 8);
    put_number(bytes + AT_WAIT, record->wait_ms, 4);
    put_number(bytes + AT_COUNT, record->receiver_count, 4);
    memcpy(bytes + AT_APP, record->id.app, sizeof record->id.app);
    put_number(bytes + AT_DATA, record->id.data, 8);
    memcpy(bytes + AT_ROOT, record->root.value, sizeof record->root.value);
    bytes[AT_ROOT_LENGTH] = record->root.length;
    size_t at = AT_TEXTS;
    at += put_text(bytes + at, record->path);
    at += put_text(bytes + at, record->name);
    at += put_text(bytes + at, record->options);
    for (uint32_t i = 0; i < record->receiver_count; i++)
        at += put_text(bytes + at, record->receivers[i]);
    rs_xxh3_best()->whole(bytes, at, bytes + at);
    const char *why;
    rs_send_record *again = rs_send_record_take(bytes, length, &why);
    free(again);
    if (again)
        return length;
    free(bytes);
    *out = NULL;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------- reading */

typedef struct {
    const uint8_t *bytes;
    size_t at, end;
    char *texts; /* where strings go */
    bool wrong;
} reader;

/* The next string, with a NUL, behind those before. */
static const char *take_text(reader *r, size_t least, size_t most) {
    size_t length = r->end - r->at < 2 ? SIZE_MAX : (size_t)take_number(r->bytes + r->at, 2);
    char *text = r->texts;
    r->wrong |= length > most || length < least || length > r->end - r->at - 2 ||
                memchr(r->bytes + r->at + 2, '\0', length) != NULL;
    if (r->wrong)
        return "";
    memcpy(text, r->bytes + r->at + 2, length);
    text[length] = '\0';
    r->texts += length + 1;
    r->at += 2 + length;
    return text;
}

static bool head_is_good(const uint8_t *bytes, uint32_t count) {
    uint8_t width = rs_manifest_width(bytes[AT_ALGORITHM]), known = bytes[AT_ROOT_LENGTH];
    return bytes[AT_FROM] >= RS_SENT_FROM_FILE && bytes[AT_FROM] <= RS_SENT_FROM_MEMORY &&
           bytes[AT_PROTOCOL] < CHOICES && bytes[AT_STRAGGLERS] < CHOICES && width > 0 &&
           (known == 0 || known == width) && take_number(bytes + AT_SIZE, 8) <= INT64_MAX / 2 &&
           take_number(bytes + AT_BEGAN, 8) <= INT64_MAX && count > 0 && count <= ROSTRUM_RECEIVERS_MAX;
}

rs_send_record *rs_send_record_take(const uint8_t *bytes, size_t length, const char **why) {
    uint8_t check[CHECK];
    *why = "it has no length of a record";
    if (length < AT_TEXTS + CHECK || length > RS_SEND_RECORD_MOST)
        return NULL;
    *why = "it does not begin as a record of this version";
    if (memcmp(bytes, MAGIC, 8) != 0)
        return NULL;
    rs_xxh3_best()->whole(bytes, length - CHECK, check);
    *why = "its check is wrong: it was torn or changed";
    if (take_number(bytes + AT_LENGTH, 4) != length || memcmp(check, bytes + length - CHECK, CHECK) != 0)
        return NULL;
    uint32_t count = (uint32_t)take_number(bytes + AT_COUNT, 4);
    *why = "its fields contradict each other";
    if (!head_is_good(bytes, count))
        return NULL;
    /* A string's NUL takes less than its length does. */
    const char **receivers;
    rs_send_record *out = calloc(1, sizeof *out + count * sizeof *receivers + length);
    *why = "out of memory";
    if (!out)
        return NULL;
    receivers = (const char **)(void *)(out + 1);
    reader r = {.bytes = bytes, .at = AT_TEXTS, .end = length - CHECK, .texts = (char *)(receivers + count)};
    *out = (rs_send_record){.size = take_number(bytes + AT_SIZE, 8),
                            .from = (rs_sent_from)bytes[AT_FROM],
                            .changed_ns = (int64_t)take_number(bytes + AT_CHANGED, 8),
                            .began_ns = (int64_t)take_number(bytes + AT_BEGAN, 8),
                            .wait_ms = (uint32_t)take_number(bytes + AT_WAIT, 4),
                            .protocol = bytes[AT_PROTOCOL],
                            .stragglers = bytes[AT_STRAGGLERS],
                            .receiver_count = count,
                            .receivers = receivers};
    memcpy(out->id.app, bytes + AT_APP, sizeof out->id.app);
    out->id.data = take_number(bytes + AT_DATA, 8);
    out->root = (rs_digest){.algorithm = bytes[AT_ALGORITHM], .length = bytes[AT_ROOT_LENGTH]};
    memcpy(out->root.value, bytes + AT_ROOT, out->root.length);
    out->path = take_text(&r, out->from == RS_SENT_FROM_FILE, PATH_MOST);
    out->name = take_text(&r, 0, TEXT_MOST);
    out->options = take_text(&r, 0, OPTIONS_MOST);
    for (uint32_t i = 0; i < count && !r.wrong; i++)
        receivers[i] = take_text(&r, 1, TEXT_MOST);
    if (!r.wrong && r.at == r.end)
        return out;
    *why = "its strings contradict its length";
    free(out);
    return NULL;
}
