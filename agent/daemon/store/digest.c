#include "daemon/store/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/xxh3.h"
#include "io/guard.h"

#define WARM_BYTES 8192u /* digested as soon as so much of a chunk has come in order */
#define STREAMS 2u

/* A chunk that comes in order, digested while it lies in the processor's cache. */
typedef struct {
    void *state; /* of xxh3 */
    EVP_MD_CTX *sha;
    uint64_t chunk;
    bool active;
    uint32_t there, done; /* bytes from the chunk's beginning on: without a gap, and digested */
} stream;

struct rs_digest_tree {
    uint8_t algorithm;
    uint8_t width; /* bytes of one digest */
    uint64_t size;
    uint64_t chunks;
    uint64_t done;  /* chunks digested */
    uint64_t ready; /* chunks full but not digested: ready_first ... in `queue` */
    uint64_t ready_first;
    uint32_t *present; /* [chunks] bytes there */
    uint32_t *queue;   /* [chunks] ring of full chunks, in the order they filled; each enters once */
    uint8_t *leaves;   /* [chunks][width] */
    bool guards;       /* SIGBUS, for step_shared */
    EVP_MD_CTX *sha;
    const rs_xxh3 *xxh3;
    void (*leaf_done)(void *context, uint64_t chunk, const uint8_t *leaf);
    void *leaf_context;
    stream streams[STREAMS]; /* a chunk's is the one of its parity, so that the next chunk has the other */
};

static bool digest_bytes(rs_digest_tree *tree, const uint8_t *data, size_t length, uint8_t *out) {
    if (tree->algorithm == RS_DIGEST_XXH3) {
        tree->xxh3->whole(data, length, out);
        return true;
    }
    return EVP_DigestInit_ex(tree->sha, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(tree->sha, data, length) == 1 &&
           EVP_DigestFinal_ex(tree->sha, out, NULL) == 1;
}

static uint64_t chunk_length(const rs_digest_tree *tree, uint64_t chunk) {
    uint64_t begin = chunk * RS_DIGEST_CHUNK;
    return tree->size - begin < RS_DIGEST_CHUNK ? tree->size - begin : RS_DIGEST_CHUNK;
}

static bool make_hashers(rs_digest_tree *tree) {
    if (tree->algorithm == RS_DIGEST_SHA256)
        tree->sha = EVP_MD_CTX_new();
    else
        tree->xxh3 = rs_xxh3_best();
    bool made = tree->sha || tree->xxh3;
    for (unsigned i = 0; i < STREAMS && made; i++) {
        stream *s = &tree->streams[i];
        made = tree->xxh3 ? (s->state = tree->xxh3->create()) != NULL : (s->sha = EVP_MD_CTX_new()) != NULL;
    }
    return made;
}

rs_digest_tree *rs_digest_tree_new(uint8_t algorithm, uint64_t size) {
    uint64_t chunks = size / RS_DIGEST_CHUNK + (size % RS_DIGEST_CHUNK != 0);
    if ((algorithm != RS_DIGEST_XXH3 && algorithm != RS_DIGEST_SHA256) || chunks > UINT32_MAX)
        return NULL;
    rs_digest_tree *tree = calloc(1, sizeof *tree);
    if (!tree)
        return NULL;
    tree->algorithm = algorithm;
    tree->width = algorithm == RS_DIGEST_XXH3 ? 16 : 32;
    tree->size = size;
    tree->chunks = chunks;
    size_t count = chunks ? (size_t)chunks : 1;
    tree->present = calloc(count, sizeof *tree->present);
    tree->queue = calloc(count, sizeof *tree->queue);
    tree->leaves = calloc(count, tree->width);
    if (!tree->present || !tree->queue || !tree->leaves || !make_hashers(tree)) {
        rs_digest_tree_free(tree);
        return NULL;
    }
    return tree;
}

void rs_digest_tree_free(rs_digest_tree *tree) {
    if (!tree)
        return;
    EVP_MD_CTX_free(tree->sha);
    for (unsigned i = 0; i < STREAMS; i++) {
        EVP_MD_CTX_free(tree->streams[i].sha);
        if (tree->streams[i].state)
            tree->xxh3->release(tree->streams[i].state);
    }
    free(tree->present);
    free(tree->queue);
    free(tree->leaves);
    if (tree->guards)
        rs_guard_stop();
    free(tree);
}

static void chunk_filled(rs_digest_tree *tree, uint64_t chunk) {
    tree->queue[(tree->ready_first + tree->ready) % tree->chunks] = (uint32_t)chunk;
    tree->ready++;
}

static stream *stream_of(rs_digest_tree *tree, uint64_t chunk) {
    return &tree->streams[chunk % STREAMS];
}

static bool stream_begin(rs_digest_tree *tree, stream *s) {
    if (!tree->xxh3)
        return EVP_DigestInit_ex(s->sha, EVP_sha256(), NULL) == 1;
    tree->xxh3->begin(s->state);
    return true;
}

/* Bytes of a chunk came: the first of it, or what follows those before. */
static void follow(rs_digest_tree *tree, uint64_t chunk, uint32_t offset, uint32_t length) {
    stream *s = stream_of(tree, chunk);
    if (offset == 0 && tree->present[chunk] == 0) {
        s->chunk = chunk;
        s->active = stream_begin(tree, s);
        s->there = length;
        s->done = 0;
    } else if (s->active && s->chunk == chunk && offset == s->there) {
        s->there += length;
    }
}

bool rs_digest_tree_present(rs_digest_tree *tree, uint64_t offset, uint64_t length) {
    if (offset > tree->size || length > tree->size - offset)
        return false;
    /* Two passes, so that a refused range changes nothing. */
    for (int apply = 0; apply < 2; apply++) {
        uint64_t end = offset + length;
        for (uint64_t at = offset; at < end;) {
            uint64_t chunk = at / RS_DIGEST_CHUNK;
            uint64_t full = chunk_length(tree, chunk);
            uint64_t upto = chunk * RS_DIGEST_CHUNK + full;
            uint64_t part = (end < upto ? end : upto) - at;
            if (!apply && part > full - tree->present[chunk])
                return false;
            if (apply) {
                follow(tree, chunk, (uint32_t)(at - chunk * RS_DIGEST_CHUNK), (uint32_t)part);
                tree->present[chunk] += (uint32_t)part;
                if (tree->present[chunk] == full)
                    chunk_filled(tree, chunk);
            }
            at += part;
        }
    }
    return true;
}

void rs_digest_tree_all_present(rs_digest_tree *tree) {
    for (uint64_t chunk = 0; chunk < tree->chunks; chunk++) {
        uint32_t full = (uint32_t)chunk_length(tree, chunk);
        if (tree->present[chunk] < full) {
            tree->present[chunk] = full;
            chunk_filled(tree, chunk);
        }
    }
}

uint64_t rs_digest_tree_pending(const rs_digest_tree *tree) {
    return tree->ready;
}

/* Up to `end`. If the crypto library fails, the chunk is digested as a whole later. */
static void digest_warm(const rs_digest_tree *tree, stream *s, const uint8_t *chunk, uint32_t end) {
    if (tree->xxh3)
        tree->xxh3->add(s->state, chunk + s->done, end - s->done);
    else
        s->active = EVP_DigestUpdate(s->sha, chunk + s->done, end - s->done) == 1;
    s->done = end;
}

/* The digest of a stream that has its whole chunk. */
static bool stream_end(const rs_digest_tree *tree, stream *s, uint8_t *leaf) {
    s->active = false;
    if (!tree->xxh3)
        return EVP_DigestFinal_ex(s->sha, leaf, NULL) == 1;
    tree->xxh3->end(s->state, leaf);
    return true;
}

/* The chunk at the head of the queue has its digest. */
static void chunk_done(rs_digest_tree *tree) {
    uint64_t chunk = tree->queue[tree->ready_first];
    if (tree->leaf_done)
        tree->leaf_done(tree->leaf_context, chunk, tree->leaves + chunk * tree->width);
    tree->ready_first = (tree->ready_first + 1) % tree->chunks;
    tree->ready--;
    tree->done++;
}

/* Digests the chunk at the head of the queue, of an object at `data`. False if the crypto library failed: the chunk
 * stays pending, so there is never a final digest that was not taken. */
static bool digest_next(rs_digest_tree *tree, const uint8_t *data) {
    uint64_t chunk = tree->queue[tree->ready_first];
    uint8_t *leaf = tree->leaves + chunk * tree->width;
    uint32_t length = (uint32_t)chunk_length(tree, chunk);
    stream *s = stream_of(tree, chunk);
    const uint8_t *bytes = data + chunk * RS_DIGEST_CHUNK;
    bool whole = s->active && s->chunk == chunk;
    if (whole)
        digest_warm(tree, s, bytes, length);
    if (!(whole && s->active && stream_end(tree, s, leaf)) && !digest_bytes(tree, bytes, length, leaf))
        return false;
    chunk_done(tree);
    return true;
}

void rs_digest_tree_warm(rs_digest_tree *tree, const uint8_t *data) {
    for (unsigned i = 0; i < STREAMS; i++) {
        stream *s = &tree->streams[i];
        uint64_t full = s->active ? chunk_length(tree, s->chunk) : 0;
        if (s->active && s->there > s->done && (s->there - s->done >= WARM_BYTES || s->there == full))
            digest_warm(tree, s, data + s->chunk * RS_DIGEST_CHUNK, s->there);
    }
    while (tree->ready > 0) {
        uint64_t chunk = tree->queue[tree->ready_first];
        const stream *s = stream_of(tree, chunk);
        if (!s->active || s->chunk != chunk || s->done < chunk_length(tree, chunk) || !digest_next(tree, data))
            return;
    }
}

uint64_t rs_digest_tree_step(rs_digest_tree *tree, const uint8_t *data, uint64_t max_chunks) {
    uint64_t count = 0;
    while (count < max_chunks && tree->ready && digest_next(tree, data))
        count++;
    return count;
}

typedef struct {
    rs_digest_tree *tree;
    const uint8_t *data;
    uint64_t upto, count;
    bool ok;
} guarded;

static void digest_guarded(void *context) {
    guarded *g = context;
    g->ok = digest_next(g->tree, g->data);
}

int64_t rs_digest_tree_step_shared(rs_digest_tree *tree, const uint8_t *data, uint64_t max_chunks) {
    uint64_t count = 0;
    guarded next = {.tree = tree, .data = data};
    if (!tree->guards && !(tree->guards = rs_guard_start()))
        return -1;
    for (; count < max_chunks && tree->ready; count++)
        if (!rs_guard_run(digest_guarded, &next) || !next.ok) {
            errno = EIO;
            return -1;
        }
    return (int64_t)count;
}

/* The chunk at the head of the queue, as far as `upto` of the object. False: not to its end. */
static bool follow_head(rs_digest_tree *tree, const uint8_t *data, uint64_t upto) {
    uint64_t chunk = tree->queue[tree->ready_first], begin = chunk * RS_DIGEST_CHUNK;
    uint32_t length = (uint32_t)chunk_length(tree, chunk);
    stream *s = stream_of(tree, chunk);
    if (upto <= begin)
        return false;
    if (!s->active || s->chunk != chunk) {
        s->chunk = chunk;
        s->active = stream_begin(tree, s);
        s->there = s->done = 0;
    }
    if (upto - begin >= length)
        return true;
    if (s->active && upto - begin >= s->done + (uint64_t)WARM_BYTES)
        digest_warm(tree, s, data + begin, (uint32_t)(upto - begin));
    return false;
}

static void follow_guarded(void *context) {
    guarded *g = context;
    g->ok = true;
    while (g->ok && g->tree->ready && follow_head(g->tree, g->data, g->upto)) {
        g->ok = digest_next(g->tree, g->data);
        g->count += g->ok;
    }
}

int64_t rs_digest_tree_follow_shared(rs_digest_tree *tree, const uint8_t *data, uint64_t upto) {
    guarded all = {.tree = tree, .data = data, .upto = upto};
    if (!tree->guards && !(tree->guards = rs_guard_start()))
        return -1;
    if (!rs_guard_run(follow_guarded, &all) || !all.ok) {
        errno = EIO;
        return -1;
    }
    return (int64_t)all.count;
}

bool rs_digest_tree_final(rs_digest_tree *tree, rs_digest *out) {
    if (tree->done != tree->chunks)
        return false;
    memset(out, 0, sizeof *out);
    out->algorithm = tree->algorithm;
    out->length = tree->width;
    return digest_bytes(tree, tree->leaves, (size_t)(tree->chunks * tree->width), out->value);
}

void rs_digest_tree_tell(rs_digest_tree *tree, void (*leaf_done)(void *context, uint64_t chunk, const uint8_t *leaf),
                         void *context) {
    tree->leaf_done = leaf_done;
    tree->leaf_context = context;
}

const uint8_t *rs_digest_tree_leaves(const rs_digest_tree *tree, uint64_t *count, uint32_t *width) {
    *count = tree->chunks;
    *width = tree->width;
    return tree->leaves;
}

uint8_t *rs_digest_tree_take_leaves(rs_digest_tree *tree, uint64_t *count) {
    uint8_t *leaves = tree->leaves;
    *count = tree->chunks;
    tree->leaves = NULL;
    return leaves;
}

void rs_digest_tree_absent(rs_digest_tree *tree, uint64_t offset, uint64_t length) {
    uint64_t end = offset + length;
    for (uint64_t at = offset; at < end;) {
        uint64_t chunk = at / RS_DIGEST_CHUNK, upto = chunk * RS_DIGEST_CHUNK + chunk_length(tree, chunk);
        uint64_t part = (end < upto ? end : upto) - at;
        tree->done -= tree->present[chunk] == chunk_length(tree, chunk);
        tree->present[chunk] -= (uint32_t)part;
        at += part;
    }
}

static rs_digest_tree hasher(uint8_t algorithm) {
    rs_digest_tree tree = {.algorithm = algorithm, .width = algorithm == RS_DIGEST_XXH3 ? 16 : 32};
    if (algorithm == RS_DIGEST_XXH3)
        tree.xxh3 = rs_xxh3_best();
    else
        tree.sha = EVP_MD_CTX_new();
    return tree;
}

void rs_digest_text(const rs_digest *digest, char out[RS_DIGEST_TEXT]) {
    int used =
        snprintf(out, RS_DIGEST_TEXT, "%s:", digest->algorithm == RS_DIGEST_SHA256 ? "sha256-tree" : "xxh3-128-tree");
    for (uint32_t i = 0; i < digest->length && i < sizeof digest->value; i++)
        used += snprintf(out + used, (size_t)(RS_DIGEST_TEXT - (unsigned)used), "%02x", digest->value[i]);
}

bool rs_digest_of_leaves(uint8_t algorithm, const uint8_t *leaves, uint64_t count, rs_digest *out) {
    rs_digest_tree tree = hasher(algorithm);
    memset(out, 0, sizeof *out);
    out->algorithm = algorithm;
    out->length = tree.width;
    bool ok = (tree.xxh3 || tree.sha) && digest_bytes(&tree, leaves, (size_t)(count * tree.width), out->value);
    EVP_MD_CTX_free(tree.sha);
    return ok;
}

typedef struct {
    rs_digest_tree tree;
    const uint8_t *data;
    size_t length;
    uint8_t *out;
    bool ok;
} one_leaf;

static void digest_one(void *context) {
    one_leaf *l = context;
    l->ok = digest_bytes(&l->tree, l->data, l->length, l->out);
}

bool rs_digest_leaf(uint8_t algorithm, const uint8_t *data, uint64_t size, uint64_t chunk, uint8_t out[32]) {
    one_leaf l = {.tree = hasher(algorithm), .out = out};
    l.tree.size = size;
    bool ok = chunk < size / RS_DIGEST_CHUNK + (size % RS_DIGEST_CHUNK != 0) && (l.tree.xxh3 || l.tree.sha);
    if (ok && (ok = rs_guard_start())) {
        l.data = data + chunk * RS_DIGEST_CHUNK;
        l.length = (size_t)chunk_length(&l.tree, chunk);
        ok = rs_guard_run(digest_one, &l) && l.ok;
        rs_guard_stop();
    }
    EVP_MD_CTX_free(l.tree.sha);
    return ok;
}

bool rs_digest_equal(const rs_digest *a, const rs_digest *b) {
    return a->algorithm == b->algorithm && a->length == b->length && a->length <= sizeof a->value &&
           memcmp(a->value, b->value, a->length) == 0;
}
