#include "daemon/store/manifest.h"

#include <string.h>

#include "daemon/store/digest.h"
#include "daemon/store/xxh3.h"

#define MAGIC "RSPIECE1"
#define CHECK 16u
#define PIECE_HERE 1u
#define COMPLETE 1u /* flags */
#define PINNED 2u

enum { AT_ALGORITHM = 8, AT_FLAGS, AT_LENGTH, AT_FROM_LENGTH, AT_PORT, AT_ADDRESS = 16, AT_SIZE = 24 };
enum { AT_APP = 32, AT_DATA = 48, AT_ROOT = 56, AT_FROM = 88, AT_NAME = 152, AT_CHECK = RS_MANIFEST_HEADER - CHECK };

static void put64(uint8_t *out, uint64_t value) {
    for (unsigned i = 0; i < 8; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t take64(const uint8_t *from) {
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

uint8_t rs_manifest_width(uint8_t algorithm) {
    return algorithm == RS_DIGEST_XXH3 ? 16 : algorithm == RS_DIGEST_SHA256 ? 32 : 0;
}

uint64_t rs_manifest_pieces(const rs_manifest *manifest) {
    return manifest->size / RS_DIGEST_CHUNK + (manifest->size % RS_DIGEST_CHUNK != 0);
}

void rs_manifest_put(const rs_manifest *manifest, uint8_t out[RS_MANIFEST_HEADER]) {
    size_t from = strnlen(manifest->from, RS_MANIFEST_FROM - 1), name = strnlen(manifest->name, RS_MANIFEST_NAME - 1);
    memset(out, 0, RS_MANIFEST_HEADER);
    memcpy(out, MAGIC, 8);
    out[AT_ALGORITHM] = manifest->algorithm;
    out[AT_FLAGS] = (uint8_t)((manifest->complete ? COMPLETE : 0) | (manifest->pinned ? PINNED : 0));
    out[AT_LENGTH] = manifest->root.length;
    out[AT_FROM_LENGTH] = (uint8_t)from;
    out[AT_PORT] = (uint8_t)manifest->from_port;
    out[AT_PORT + 1] = (uint8_t)(manifest->from_port >> 8);
    put64(out + AT_ADDRESS, manifest->from_address);
    put64(out + AT_SIZE, manifest->size);
    memcpy(out + AT_APP, manifest->id.app, sizeof manifest->id.app);
    put64(out + AT_DATA, manifest->id.data);
    memcpy(out + AT_ROOT, manifest->root.value, sizeof manifest->root.value);
    memcpy(out + AT_FROM, manifest->from, from);
    memcpy(out + AT_NAME, manifest->name, name);
    rs_xxh3_best()->whole(out, AT_CHECK, out + AT_CHECK);
}

bool rs_manifest_take(const uint8_t *bytes, size_t length, rs_manifest *out, const char **why) {
    uint8_t check[CHECK];
    memset(out, 0, sizeof *out);
    *why = "it is shorter than a header";
    if (length < RS_MANIFEST_HEADER)
        return false;
    *why = "it does not begin as a manifest of this version";
    if (memcmp(bytes, MAGIC, 8) != 0)
        return false;
    rs_xxh3_best()->whole(bytes, AT_CHECK, check);
    *why = "its check is wrong: it was torn or changed";
    if (memcmp(check, bytes + AT_CHECK, CHECK) != 0)
        return false;
    uint8_t width = rs_manifest_width(bytes[AT_ALGORITHM]), flags = bytes[AT_FLAGS], known = bytes[AT_LENGTH];
    uint64_t size = take64(bytes + AT_SIZE), address = take64(bytes + AT_ADDRESS);
    *why = "its fields contradict each other";
    if (width == 0 || flags > (COMPLETE | PINNED) || (known != 0 && known != width) || (flags & COMPLETE && !known) ||
        size > INT64_MAX / 2 || size / RS_DIGEST_CHUNK >= UINT32_MAX || address > UINT32_MAX ||
        bytes[AT_FROM_LENGTH] >= RS_MANIFEST_FROM || memchr(bytes + AT_FROM, '\0', bytes[AT_FROM_LENGTH]))
        return false;
    out->algorithm = bytes[AT_ALGORITHM];
    out->complete = flags & COMPLETE;
    out->pinned = flags & PINNED;
    out->size = size;
    out->from_address = (uint32_t)address;
    out->from_port = (uint16_t)(bytes[AT_PORT] | bytes[AT_PORT + 1] << 8);
    memcpy(out->from, bytes + AT_FROM, bytes[AT_FROM_LENGTH]);
    memcpy(out->name, bytes + AT_NAME, RS_MANIFEST_NAME - 1);
    memcpy(out->id.app, bytes + AT_APP, sizeof out->id.app);
    out->id.data = take64(bytes + AT_DATA);
    out->root = (rs_digest){.algorithm = out->algorithm, .length = known};
    memcpy(out->root.value, bytes + AT_ROOT, known);
    return true;
}

void rs_manifest_rename(rs_manifest *manifest, const char *name) {
    size_t length = name ? strlen(name) : 0;
    memset(manifest->name, 0, sizeof manifest->name);
    if (length < sizeof manifest->name && length > 0)
        memcpy(manifest->name, name, length);
}

/* A record is good for one piece of one object only. */
static void check_piece(const rs_manifest *manifest, uint64_t piece, const uint8_t *record, uint8_t out[CHECK]) {
    uint8_t bytes[32 + 16 + 24] = {0};
    memcpy(bytes, record, 32);
    memcpy(bytes + 32, manifest->id.app, 16);
    put64(bytes + 48, manifest->id.data);
    put64(bytes + 56, manifest->size);
    put64(bytes + 64, piece << 8 | PIECE_HERE);
    rs_xxh3_best()->whole(bytes, sizeof bytes, out);
}

void rs_manifest_put_piece(const rs_manifest *manifest, uint64_t piece, const uint8_t *leaf,
                           uint8_t out[RS_MANIFEST_RECORD]) {
    memset(out, 0, RS_MANIFEST_RECORD);
    memcpy(out, leaf, rs_manifest_width(manifest->algorithm));
    check_piece(manifest, piece, out, out + 32);
}

bool rs_manifest_take_piece(const rs_manifest *manifest, uint64_t piece, const uint8_t bytes[RS_MANIFEST_RECORD],
                            uint8_t *leaf) {
    uint8_t check[CHECK];
    check_piece(manifest, piece, bytes, check);
    if (piece >= rs_manifest_pieces(manifest) || memcmp(check, bytes + 32, CHECK) != 0)
        return false;
    memcpy(leaf, bytes, 32);
    return true;
}
