#include "daemon/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

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
    uint8_t *buffer;   /* one chunk, for step_file; on demand */
    EVP_MD_CTX *sha;
};

static bool digest_bytes(rs_digest_tree *tree, const uint8_t *data, size_t length, uint8_t *out) {
    if (tree->algorithm == RS_DIGEST_XXH3) {
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, length));
        memcpy(out, canonical.digest, sizeof canonical.digest);
        return true;
    }
    return EVP_DigestInit_ex(tree->sha, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(tree->sha, data, length) == 1 &&
           EVP_DigestFinal_ex(tree->sha, out, NULL) == 1;
}

static uint64_t chunk_length(const rs_digest_tree *tree, uint64_t chunk) {
    uint64_t begin = chunk * RS_DIGEST_CHUNK;
    return tree->size - begin < RS_DIGEST_CHUNK ? tree->size - begin : RS_DIGEST_CHUNK;
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
    if (algorithm == RS_DIGEST_SHA256)
        tree->sha = EVP_MD_CTX_new();
    if (!tree->present || !tree->queue || !tree->leaves || (algorithm == RS_DIGEST_SHA256 && !tree->sha)) {
        rs_digest_tree_free(tree);
        return NULL;
    }
    return tree;
}

void rs_digest_tree_free(rs_digest_tree *tree) {
    if (!tree)
        return;
    EVP_MD_CTX_free(tree->sha);
    free(tree->present);
    free(tree->queue);
    free(tree->leaves);
    free(tree->buffer);
    free(tree);
}

static void chunk_filled(rs_digest_tree *tree, uint64_t chunk) {
    tree->queue[(tree->ready_first + tree->ready) % tree->chunks] = (uint32_t)chunk;
    tree->ready++;
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

/* Digests the chunk at the head of the queue from `data`. False if the crypto library failed: the chunk stays pending,
 * so there is never a final digest that was not taken. */
static bool digest_next(rs_digest_tree *tree, const uint8_t *data) {
    uint64_t chunk = tree->queue[tree->ready_first];
    if (!digest_bytes(tree, data, (size_t)chunk_length(tree, chunk), tree->leaves + chunk * tree->width))
        return false;
    tree->ready_first = (tree->ready_first + 1) % tree->chunks;
    tree->ready--;
    tree->done++;
    return true;
}

uint64_t rs_digest_tree_step(rs_digest_tree *tree, const uint8_t *data, uint64_t max_chunks) {
    uint64_t count = 0;
    while (count < max_chunks && tree->ready &&
           digest_next(tree, data + tree->queue[tree->ready_first] * RS_DIGEST_CHUNK))
        count++;
    return count;
}

static bool read_whole(int fd, uint8_t *to, size_t length, uint64_t offset) {
    while (length) {
        ssize_t got = pread(fd, to, length, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            if (got == 0)
                errno = EIO;
            return false;
        }
        to += got;
        offset += (uint64_t)got;
        length -= (size_t)got;
    }
    return true;
}

int64_t rs_digest_tree_step_file(rs_digest_tree *tree, int fd, uint64_t max_chunks) {
    if (!tree->buffer && tree->ready) {
        tree->buffer = malloc(RS_DIGEST_CHUNK);
        if (!tree->buffer) {
            errno = ENOMEM;
            return -1;
        }
    }
    uint64_t count = 0;
    for (; count < max_chunks && tree->ready; count++) {
        uint64_t chunk = tree->queue[tree->ready_first];
        if (!read_whole(fd, tree->buffer, (size_t)chunk_length(tree, chunk), chunk * RS_DIGEST_CHUNK))
            return -1;
        if (!digest_next(tree, tree->buffer)) {
            errno = EIO;
            return -1;
        }
    }
    return (int64_t)count;
}

bool rs_digest_tree_final(rs_digest_tree *tree, rs_digest *out) {
    if (tree->done != tree->chunks)
        return false;
    memset(out, 0, sizeof *out);
    out->algorithm = tree->algorithm;
    out->length = tree->width;
    return digest_bytes(tree, tree->leaves, (size_t)(tree->chunks * tree->width), out->value);
}

bool rs_digest_equal(const rs_digest *a, const rs_digest *b) {
    return a->algorithm == b->algorithm && a->length == b->length && a->length <= sizeof a->value &&
           memcmp(a->value, b->value, a->length) == 0;
}
