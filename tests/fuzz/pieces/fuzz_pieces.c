/* Bytes about pieces from outside: manifests and records of sends on disk, messages of servers that fetch and give.
 * Whatever is taken keeps its bounds, and is the same when it is written and taken again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/pieces/wire.h"
#include "daemon/store/digest.h"
#include "daemon/store/manifest.h"
#include "daemon/store/record.h"
#include "daemon/store/xxh3.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool true_then) {
    if (!true_then)
        abort();
}

static void manifest(const uint8_t *data, size_t size) {
    rs_manifest found, again;
    const char *why;
    uint8_t bytes[RS_MANIFEST_HEADER], record[RS_MANIFEST_RECORD], leaf[32];
    if (!rs_manifest_take(data, size, &found, &why))
        return;
    must(found.from[RS_MANIFEST_FROM - 1] == '\0' && found.root.length <= sizeof found.root.value);
    must(rs_manifest_pieces(&found) <= UINT32_MAX && rs_manifest_width(found.algorithm) > 0);
    rs_manifest_put(&found, bytes);
    must(rs_manifest_take(bytes, sizeof bytes, &again, &why));
    must(again.size == found.size && again.complete == found.complete && strcmp(again.from, found.from) == 0);
    if (size >= RS_MANIFEST_HEADER + RS_MANIFEST_RECORD) {
        memcpy(record, data + RS_MANIFEST_HEADER, sizeof record);
        if (rs_manifest_take_piece(&found, 0, record, leaf))
            must(memcmp(leaf, record, sizeof leaf) == 0);
    }
}

static void record(const uint8_t *data, size_t size) {
    const char *why;
    uint8_t *bytes;
    rs_send_record *found = rs_send_record_take(data, size, &why);
    if (!found)
        return;
    must(found->receiver_count > 0 && found->receivers[found->receiver_count - 1][0] != '\0');
    size_t length = rs_send_record_put(found, &bytes);
    must(length == size && memcmp(bytes + 112, data + 112, size - 128) == 0);
    free(bytes);
    free(found);
}

/* Whole messages, as they stand one behind the other in a stream. */
static void messages(const uint8_t *data, size_t size) {
    while (size >= RS_PIECE_HEAD) {
        uint8_t type, again[RS_PIECE_HEAD + 512];
        uint32_t length;
        rs_piece_message found, same;
        if (!rs_piece_take_head(data, &type, &length))
            return;
        must(length <= 4 + RS_DIGEST_CHUNK);
        uint32_t body = type == RS_PIECE_PIECE ? 4 : length;
        if (size - RS_PIECE_HEAD < body)
            return;
        if (rs_piece_take(type, data + RS_PIECE_HEAD, body, &found)) {
            must(!found.bytes || (found.bytes >= data && found.bytes + found.length <= data + size));
            uint32_t put = rs_piece_put(&found, again);
            must(put <= sizeof again);
            if (!found.bytes && type != RS_PIECE_PIECE)
                must(rs_piece_take(type, again + RS_PIECE_HEAD, put - RS_PIECE_HEAD, &same) &&
                     same.first == found.first && same.size == found.size && strcmp(same.name, found.name) == 0);
        }
        data += RS_PIECE_HEAD + body;
        size -= RS_PIECE_HEAD + body;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    messages(data, size);
    manifest(data, size);
    record(data, size);
    if (size >= 128) {
        uint8_t *copy = malloc(size);
        must(copy != NULL);
        memcpy(copy, data, size);
        memcpy(copy, "RSSEND01", 8);
        for (unsigned i = 0; i < 4; i++)
            copy[8 + i] = (uint8_t)(size >> 8 * i);
        rs_xxh3_best()->whole(copy, size - 16, copy + size - 16);
        record(copy, size);
        free(copy);
    }
    if (size >= RS_MANIFEST_HEADER) { /* the check mended, so that what is behind it is reached */
        uint8_t *copy = malloc(size);
        must(copy != NULL);
        memcpy(copy, data, size);
        memcpy(copy, "RSPIECE1", 8);
        rs_xxh3_best()->whole(copy, RS_MANIFEST_HEADER - 16, copy + RS_MANIFEST_HEADER - 16);
        manifest(copy, size);
        free(copy);
    }
    return 0;
}
