/* The manifest of an object on disk: what object it is, and which of its pieces (chunks of the digest tree) are in the
 * file beside it, each with its digest. Bytes only, no I/O. What a manifest says is never believed: at a start every
 * piece that it names is digested again (store.c).
 *
 * A header of RS_MANIFEST_HEADER bytes, then a record of RS_MANIFEST_RECORD bytes for each piece, all zero while the
 * piece is not here. Integers are little-endian. Header and records end with a check of theirs, so that a torn write is
 * known as one. */
#ifndef RS_STORE_MANIFEST_H
#define RS_STORE_MANIFEST_H

#include "core/base/types.h"

#define RS_MANIFEST_HEADER 256u
#define RS_MANIFEST_RECORD 48u
#define RS_MANIFEST_FROM 64u
#define RS_MANIFEST_NAME 88u

typedef struct {
    rs_object_id id;
    uint64_t size;
    uint8_t algorithm;           /* of the digests of pieces */
    bool pinned;                 /* It does not go when room is made. */
    bool complete;               /* All pieces were here, and the object had its digest. */
    rs_digest root;              /* of the object; length 0: it is not known yet */
    uint32_t from_address;       /* Who sent it: IPv4, host order; 0: not known. */
    uint16_t from_port;          /* The port of its control channel. */
    char from[RS_MANIFEST_FROM]; /* Its name; "": not known. */
    char name[RS_MANIFEST_NAME]; /* By which programs know the object; "": it has none, or a longer one. */
} rs_manifest;

void rs_manifest_put(const rs_manifest *manifest, uint8_t out[RS_MANIFEST_HEADER]);
/* False: these bytes are no header of ours, and `why` says it as text. */
bool rs_manifest_take(const uint8_t *bytes, size_t length, rs_manifest *out, const char **why);

/* NULL: it has none. */
void rs_manifest_rename(rs_manifest *manifest, const char *name);

/* How many pieces it has, and the bytes of one's digest. */
uint64_t rs_manifest_pieces(const rs_manifest *manifest);
uint8_t rs_manifest_width(uint8_t algorithm);

void rs_manifest_put_piece(const rs_manifest *manifest, uint64_t piece, const uint8_t *leaf,
                           uint8_t out[RS_MANIFEST_RECORD]);
/* The digest of a piece that is here into `leaf` (32 bytes); false: it is not, or its record was torn, or is of another
 * object or piece. */
bool rs_manifest_take_piece(const rs_manifest *manifest, uint64_t piece, const uint8_t bytes[RS_MANIFEST_RECORD],
                            uint8_t *leaf);

#endif
