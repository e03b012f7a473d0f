/* Which pieces of an object are here while it is not whole yet: chunks of the digest tree, each with its digest.
 * Whoever passes an object on before it is whole (a relay, a holder that others fetch from) asks this, and is told of
 * new ones.
 *
 * "Here" means: all bytes are in the object's memory, and `leaves` has their digest. Whether that is the digest the
 * sender means is known when `confirmed` is set: then the leaves make the object's own digest. Nobody is shown bytes of
 * a piece that is not confirmed, except who checks the whole himself: a relay's receivers, a server that fetches. */
#ifndef RS_STORE_PIECES_H
#define RS_STORE_PIECES_H

#include "core/base/types.h"

struct rs_object;

/* Told when a piece comes, and at the end: the object is whole, or will not be (it is freed, or kept as it is). May
 * stop itself inside a call; must not free the object. */
typedef struct rs_piece_watch {
    struct rs_piece_watch *next;
    void (*came)(void *context, struct rs_object *object, uint64_t piece);
    void (*over)(void *context, struct rs_object *object, bool complete);
    void *context;
} rs_piece_watch;

typedef struct rs_pieces {
    uint64_t size, count; /* Bytes of the object, and its pieces. */
    uint64_t known;       /* Pieces that are here. */
    uint64_t prefix;      /* All pieces below are here. */
    uint64_t bytes;       /* Of the pieces that are here. */
    uint8_t algorithm, width;
    bool confirmed;  /* The leaves of all pieces, here or not, are in `leaves`, and make the object's digest. */
    uint8_t *bits;   /* Here. */
    uint8_t *leaves; /* [count][width] */
    rs_piece_watch *watches;
} rs_pieces;

/* NULL: out of memory, or there is no such algorithm. */
rs_pieces *rs_pieces_new(uint64_t size, uint8_t algorithm);
void rs_pieces_free(rs_pieces *pieces);

bool rs_pieces_have(const rs_pieces *pieces, uint64_t piece);
uint64_t rs_pieces_length(const rs_pieces *pieces, uint64_t piece);
/* The piece is here, with that digest. False: it was here before, or is none, or `leaf` is not the confirmed one. */
bool rs_pieces_put(rs_pieces *pieces, uint64_t piece, const uint8_t *leaf);
/* Its bytes are not there (any more). */
void rs_pieces_drop(rs_pieces *pieces, uint64_t piece);
/* Pieces' digests by the report of somebody else: if they make `root`, they are the right ones; pieces here that have
 * others go. False: they do not, and nothing changed. */
bool rs_pieces_confirm(rs_pieces *pieces, const uint8_t *leaves, const rs_digest *root);
/* The first piece from `from` on that is not here; `count` if there is none. */
uint64_t rs_pieces_missing(const rs_pieces *pieces, uint64_t from);

/* The watches are told. */
void rs_pieces_tell_came(rs_pieces *pieces, struct rs_object *object, uint64_t piece);
void rs_pieces_tell_over(rs_pieces *pieces, struct rs_object *object, bool complete);
void rs_pieces_watch(rs_pieces *pieces, rs_piece_watch *watch);
void rs_pieces_unwatch(rs_pieces *pieces, rs_piece_watch *watch);

#endif
