#include "daemon/store/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/store/digest.h"
#include "daemon/store/manifest.h"

rs_pieces *rs_pieces_new(uint64_t size, uint8_t algorithm) {
    uint8_t width = rs_manifest_width(algorithm);
    uint64_t count = size / RS_DIGEST_CHUNK + (size % RS_DIGEST_CHUNK != 0);
    if (width == 0 || count > UINT32_MAX)
        return NULL;
    rs_pieces *pieces = calloc(1, sizeof *pieces);
    if (!pieces)
        return NULL;
    *pieces = (rs_pieces){.size = size, .count = count, .algorithm = algorithm, .width = width};
    pieces->bits = calloc((size_t)count / 8 + 1, 1);
    pieces->leaves = calloc((size_t)count + 1, width);
    if (!pieces->bits || !pieces->leaves) {
        rs_pieces_free(pieces);
        return NULL;
    }
    return pieces;
}

void rs_pieces_free(rs_pieces *pieces) {
    if (!pieces)
        return;
    free(pieces->bits);
    free(pieces->leaves);
    free(pieces);
}

bool rs_pieces_have(const rs_pieces *pieces, uint64_t piece) {
    return piece < pieces->count && (pieces->bits[piece / 8] >> piece % 8 & 1);
}

uint64_t rs_pieces_length(const rs_pieces *pieces, uint64_t piece) {
    uint64_t begin = piece * RS_DIGEST_CHUNK;
    return pieces->size - begin < RS_DIGEST_CHUNK ? pieces->size - begin : RS_DIGEST_CHUNK;
}

bool rs_pieces_put(rs_pieces *pieces, uint64_t piece, const uint8_t *leaf) {
    uint8_t *mine = pieces->leaves + piece * pieces->width;
    if (piece >= pieces->count || rs_pieces_have(pieces, piece) ||
        (pieces->confirmed && memcmp(mine, leaf, pieces->width) != 0))
        return false;
    memcpy(mine, leaf, pieces->width);
    pieces->bits[piece / 8] |= (uint8_t)(1u << piece % 8);
    pieces->known++;
    pieces->bytes += rs_pieces_length(pieces, piece);
    if (piece == pieces->prefix)
        pieces->prefix = rs_pieces_missing(pieces, piece);
    return true;
}

void rs_pieces_drop(rs_pieces *pieces, uint64_t piece) {
    if (!rs_pieces_have(pieces, piece))
        return;
    pieces->bits[piece / 8] &= (uint8_t) ~(1u << piece % 8);
    pieces->known--;
    pieces->bytes -= rs_pieces_length(pieces, piece);
    if (piece < pieces->prefix)
        pieces->prefix = piece;
}

bool rs_pieces_confirm(rs_pieces *pieces, const uint8_t *leaves, const rs_digest *root) {
    rs_digest found;
    if (root->algorithm != pieces->algorithm ||
        !rs_digest_of_leaves(pieces->algorithm, leaves, pieces->count, &found) || !rs_digest_equal(&found, root))
        return false;
    for (uint64_t piece = 0; piece < pieces->count; piece++)
        if (memcmp(pieces->leaves + piece * pieces->width, leaves + piece * pieces->width, pieces->width) != 0)
            rs_pieces_drop(pieces, piece);
    memcpy(pieces->leaves, leaves, (size_t)(pieces->count * pieces->width));
    pieces->confirmed = true;
    return true;
}

uint64_t rs_pieces_missing(const rs_pieces *pieces, uint64_t from) {
    while (from < pieces->count && rs_pieces_have(pieces, from))
        from += from % 8 == 0 && pieces->bits[from / 8] == 0xff ? 8 : 1;
    return from < pieces->count ? from : pieces->count;
}

/* A watch that is told may take itself out. */
void rs_pieces_tell_came(rs_pieces *pieces, struct rs_object *object, uint64_t piece) {
    for (rs_piece_watch *watch = pieces->watches, *next; watch; watch = next) {
        next = watch->next;
        watch->came(watch->context, object, piece);
    }
}

void rs_pieces_tell_over(rs_pieces *pieces, struct rs_object *object, bool complete) {
    while (pieces->watches) {
        rs_piece_watch *watch = pieces->watches;
        pieces->watches = watch->next;
        watch->over(watch->context, object, complete);
    }
}

void rs_pieces_watch(rs_pieces *pieces, rs_piece_watch *watch) {
    watch->next = pieces->watches;
    pieces->watches = watch;
}

void rs_pieces_unwatch(rs_pieces *pieces, rs_piece_watch *watch) {
    for (rs_piece_watch **at = &pieces->watches; *at; at = &(*at)->next)
        if (*at == watch) {
            *at = watch->next;
            return;
        }
}
