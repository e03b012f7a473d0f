/* Bytes about pieces from outside: manifests on disk. Whatever is taken keeps its bounds, and is the same when it is
 * written and taken again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/digest.h"
#include "daemon/store/manifest.h"
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
    must(again.size == found.size && again.whole == found.whole && strcmp(again.from, found.from) == 0);
    if (size >= RS_MANIFEST_HEADER + RS_MANIFEST_RECORD) {
        memcpy(record, data + RS_MANIFEST_HEADER, sizeof record);
        if (rs_manifest_take_piece(&found, 0, record, leaf))
            must(memcmp(leaf, record, sizeof leaf) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    manifest(data, size);
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
