#include "daemon/data/wrong_digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/units.h"

#define FETCHES_MOST 8u     /* of one chunk whose digest is wrong */
#define LEAF_ROUNDS_MOST 3u /* times that the sender's leaves are asked for, if they contradict its digest */

static void fail_digest(rs_agent *agent, rs_receive_state *r, const char *why) {
    char cause[220];
    snprintf(cause, sizeof cause, "the digest at %.40s is not the sender's: %.120s", agent->options.server, why);
    rs_receiving_verdict(agent, r, false, cause);
}

static void ask_leaves(rs_agent *agent, rs_receive_state *r, uint64_t first, uint64_t count, bool retake) {
    uint16_t most = (uint16_t)(count < 1000 ? count : 1000);
    r->leaves_asked = true;
    if (rs_leaves_want(agent->node, rs_agent_now(agent), r->base.xfer, first, most, retake) != RS_OK)
        fail_digest(agent, r, "and the digests of its pieces cannot be asked for");
}

/* Fetches a chunk again, with the fragments at its borders: these are parts of its neighbours, which are digested again
 * too. */
static void fetch(rs_agent *agent, rs_receive_state *r) {
    uint64_t offset = r->wrong_chunk * RS_DIGEST_CHUNK, left = r->size - offset;
    uint64_t length = left < RS_DIGEST_CHUNK ? left : RS_DIGEST_CHUNK;
    rs_status status = rs_fetch_again(agent->node, rs_agent_now(agent), r->base.xfer, &offset, &length);
    if (status != RS_OK) {
        fail_digest(agent, r, rs_strerror(status));
        return;
    }
    agent->digest_chunks_fetched++;
    r->fetches++;
    r->fetched++;
    r->complete = false;
    rs_digest_tree_absent(r->tree, offset, length);
    for (uint64_t piece = offset / RS_DIGEST_CHUNK; piece <= (offset + length - 1) / RS_DIGEST_CHUNK; piece++)
        rs_store_piece_gone(r->base.object, piece);
}

/* The first chunk that is not as the sender has it. The second time that it is the same one, the sender is asked
 * whether its bytes are still those that it digested. */
static void mend_next(rs_agent *agent, rs_receive_state *r) {
    uint64_t count, chunk = 0;
    uint32_t width;
    char text[RS_REPAIRERS_TEXT];
    const uint8_t *mine = rs_digest_tree_leaves(r->tree, &count, &width);
    while (chunk < count && memcmp(mine + chunk * width, r->leaves + chunk * width, width) == 0)
        chunk++;
    if (chunk == count) {
        fail_digest(agent, r, "though those of all pieces are");
        return;
    }
    if (chunk != r->wrong_chunk) {
        r->wrong_chunk = chunk;
        r->fetches = 0;
        agent->digest_chunks_wrong++;
        rs_log(RS_LOG_WARNING, "receive",
               "object=%s chunk=%llu has a wrong digest: fetched again from=%s; what was lost of it came from=%s",
               rs_id_text(&r->base.id), (unsigned long long)chunk, rs_quote(rs_peers_name(&agent->peers, r->sender)),
               rs_quote(rs_repairers_take(&agent->peers, r->repairers, chunk, text)));
    }
    if (r->fetches >= FETCHES_MOST || r->fetched >= FETCHES_MOST + 4 * count)
        fail_digest(agent, r,
                    "pieces stay wrong though fetched again, and the sender's are unchanged: memory or a NIC changes "
                    "bytes");
    else if (r->fetches > 0)
        ask_leaves(agent, r, chunk, 1, true);
    else
        fetch(agent, r);
}

void rs_wrong_digest_mend(rs_agent *agent, rs_receive_state *r) {
    uint64_t count;
    uint32_t width;
    rs_digest_tree_leaves(r->tree, &count, &width);
    if (r->leaves && r->leaves_known == count) {
        mend_next(agent, r);
        return;
    }
    r->wrong_chunk = UINT64_MAX;
    r->leaves_known = 0;
    if (!r->leaves && !(r->leaves = calloc(count ? (size_t)count : 1, width))) {
        fail_digest(agent, r, "no memory for the digests of its pieces");
        return;
    }
    if (count == 0)
        fail_digest(agent, r, "the object is empty");
    else
        ask_leaves(agent, r, 0, count, false);
}

void rs_wrong_digest_leaves(rs_agent *agent, rs_receive_state *r, const rs_rx_result *result) {
    uint64_t count, first = result->offset;
    uint32_t width;
    rs_digest root;
    rs_digest_tree_leaves(r->tree, &count, &width);
    uint64_t came = result->length / width;
    if (!r->leaves || first >= count || came > count - first)
        return;
    r->leaves_asked = false;
    if (r->leaves_known == count) { /* the sender looked at its bytes again, and has what it told */
        fetch(agent, r);
        return;
    }
    memcpy(r->leaves + first * width, result->leaves, (size_t)(came * width));
    r->leaves_known = first + came;
    if (r->leaves_known < count) {
        ask_leaves(agent, r, r->leaves_known, count - r->leaves_known, false);
        return;
    }
    r->leaf_rounds++;
    if (rs_digest_of_leaves(r->expected.algorithm, r->leaves, count, &root) && rs_digest_equal(&root, &r->expected)) {
        mend_next(agent, r);
    } else if (r->leaf_rounds < LEAF_ROUNDS_MOST) {
        r->leaves_known = 0;
        ask_leaves(agent, r, 0, count, false);
    } else {
        fail_digest(agent, r, "and the digests of pieces that the sender tells contradict its own");
    }
}
