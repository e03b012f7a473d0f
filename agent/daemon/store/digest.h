/* Digest of an object as a tree of 1 MiB chunks (docs/protocol.md, "Object digest"), taken while the object fills, in
 * any order, so that little is left to do when the last fragment arrives.
 *
 * Receiver: rs_digest_tree_present and rs_digest_tree_warm for each fragment stored; rs_digest_tree_step whenever there
 * is time (a chunk takes some 0.05 ms with xxh3); rs_digest_tree_final when the object is complete. Sender:
 * rs_digest_tree_all_present, then steps of the shared mapping. Memory: 40 bytes per MiB (56 with SHA-256), of
 * rs_digest_tree_new. */
#ifndef RS_DIGEST_H
#define RS_DIGEST_H

#include "core/base/types.h"

#define RS_DIGEST_NONE 0
#define RS_DIGEST_XXH3 1   /* xxh3-128, canonical (big-endian) form, 16 bytes */
#define RS_DIGEST_SHA256 2 /* 32 bytes */

#define RS_DIGEST_CHUNK ((uint64_t)1 << 20)

typedef struct rs_digest_tree rs_digest_tree;

/* NULL if `algorithm` is none of the above (RS_DIGEST_NONE is not a tree), or out of memory. */
rs_digest_tree *rs_digest_tree_new(uint8_t algorithm, uint64_t size);
void rs_digest_tree_free(rs_digest_tree *tree);

/* Bytes [offset, offset + length) are now there. Each byte is reported once (the core says RS_RX_STORE once per
 * fragment); more than a chunk holds, or a range outside the object, is refused with false and changes nothing. */
bool rs_digest_tree_present(rs_digest_tree *tree, uint64_t offset, uint64_t length);
void rs_digest_tree_all_present(rs_digest_tree *tree);

/* How many chunks are full but not digested yet. */
uint64_t rs_digest_tree_pending(const rs_digest_tree *tree);

/* Digests what has come in order lately, while the processor has it in its cache: call it when bytes that were reported
 * are in their places in `data`. It is never needed, and cheap when there is nothing to do. */
void rs_digest_tree_warm(rs_digest_tree *tree, const uint8_t *data);

/* Digests up to `max_chunks` full chunks out of `data`, the object's mapping (may be NULL for an empty object). Returns
 * how many it did. */
uint64_t rs_digest_tree_step(rs_digest_tree *tree, const uint8_t *data, uint64_t max_chunks);

/* The same of a mapping whose file somebody else might shorten. Returns the number done, or -1 with errno (EIO: the
 * file is shorter than the object). */
int64_t rs_digest_tree_step_shared(rs_digest_tree *tree, const uint8_t *data, uint64_t max_chunks);

/* The same of what lies before `upto`, part of a chunk too: while it is in the processor's cache. */
int64_t rs_digest_tree_follow_shared(rs_digest_tree *tree, const uint8_t *data, uint64_t upto);

/* The object's digest, once every chunk is digested; false before that. */
bool rs_digest_tree_final(rs_digest_tree *tree, rs_digest *out);

/* `leaf_done` is told of each chunk that has its digest. */
void rs_digest_tree_tell(rs_digest_tree *tree, void (*leaf_done)(void *context, uint64_t chunk, const uint8_t *leaf),
                         void *context);
/* The leaves, in order: the chunks' digests, valid when there is a final one. */
const uint8_t *rs_digest_tree_leaves(const rs_digest_tree *tree, uint64_t *count, uint32_t *width);
/* The same, the caller's to free; the tree is of no further use. */
uint8_t *rs_digest_tree_take_leaves(rs_digest_tree *tree, uint64_t *count);
/* The bytes of an object that was complete, and digested, are wrong in [offset, offset + length): they will come, and
 * be reported, once more. */
void rs_digest_tree_absent(rs_digest_tree *tree, uint64_t offset, uint64_t length);

#define RS_DIGEST_TEXT 96u
/* As the manager is told of it: algorithm, colon, hexadecimal digits. */
void rs_digest_text(const rs_digest *digest, char out[RS_DIGEST_TEXT]);

/* The object's digest of its leaves. */
bool rs_digest_of_leaves(uint8_t algorithm, const uint8_t *leaves, uint64_t count, rs_digest *out);
/* The digest of one chunk of an object at `data`, whose file somebody else might shorten: false then. */
bool rs_digest_leaf(uint8_t algorithm, const uint8_t *data, uint64_t size, uint64_t chunk, uint8_t out[32]);

/* Same algorithm and same bytes. */
bool rs_digest_equal(const rs_digest *a, const rs_digest *b);

#endif
