#include "daemon/data/nameless.h"

#include <stdlib.h>
#include <string.h>

#define OPENED 1024u /* transfers */
#define NOTED 4096u  /* pairs of transfer and receiver: forgotten, one is told twice */
#define UNTOLD 4096u /* receivers share places */

typedef struct {
    uint64_t nonce; /* 0: none */
    rs_object_id object;
    rs_peer *peers;
    uint32_t count, room;
    bool named; /* and these could not be told */
} opened;

struct rs_nameless {
    opened opened[OPENED];
    uint64_t noted[NOTED];
    uint32_t untold_at[UNTOLD]; /* of transfers that are named, by receiver */
    uint32_t count, oldest;     /* all of them; where to forget next */
};

rs_nameless *rs_nameless_new(void) {
    return calloc(1, sizeof(rs_nameless));
}

static void forget(rs_nameless *n, opened *o) {
    for (uint32_t i = 0; o->named && i < o->count; i++)
        n->untold_at[o->peers[i] % UNTOLD]--;
    n->count -= o->count;
    free(o->peers);
    *o = (opened){.nonce = o->nonce, .object = o->object};
}

void rs_nameless_free(rs_nameless *n) {
    for (uint32_t i = 0; n && i < OPENED; i++)
        forget(n, &n->opened[i]);
    free(n);
}

static opened *find(const rs_nameless *n, uint64_t nonce) {
    const opened *o = &n->opened[nonce % OPENED];
    return o->nonce == nonce && nonce ? (opened *)(uintptr_t)o : NULL;
}

void rs_nameless_opened(rs_nameless *n, uint64_t nonce, const rs_object_id *object) {
    opened *o = &n->opened[nonce % OPENED];
    if (o->nonce == nonce)
        return;
    forget(n, o);
    o->nonce = nonce;
    o->object = *object;
}

const rs_object_id *rs_nameless_object(const rs_nameless *n, uint64_t nonce) {
    const opened *o = find(n, nonce);
    return o ? &o->object : NULL;
}

void rs_nameless_note(rs_nameless *n, uint64_t nonce, rs_peer peer) {
    uint64_t pair = nonce ^ (peer + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
    opened *o = find(n, nonce);
    if (!o || n->noted[(pair >> 32) % NOTED] == pair)
        return;
    while (n->count >= RS_NAMELESS_MOST)
        forget(n, &n->opened[n->oldest++ % OPENED]);
    if (o->count == o->room) {
        uint32_t room = o->room ? 2 * o->room : 4;
        rs_peer *peers = realloc(o->peers, room * sizeof *peers);
        if (!peers)
            return;
        o->peers = peers;
        o->room = room;
    }
    o->peers[o->count++] = peer;
    n->untold_at[peer % UNTOLD] += o->named;
    n->count++;
    n->noted[(pair >> 32) % NOTED] = pair;
}

/* Those that are told go; `only`: of these alone, or RS_NO_PEER. */
static void tell_some(rs_nameless *n, opened *o, rs_peer only, rs_nameless_tell tell, void *context) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t *untold = &n->untold_at[o->peers[i] % UNTOLD];
        bool stays = (only != RS_NO_PEER && o->peers[i] != only) || !tell(context, o->peers[i], o->nonce);
        *untold = *untold - o->named + stays;
        if (stays)
            o->peers[kept++] = o->peers[i];
    }
    n->count -= o->count - kept;
    o->count = kept;
    o->named = kept > 0;
}

void rs_nameless_named(rs_nameless *n, const rs_object_id *object, rs_nameless_tell tell, void *context) {
    for (uint32_t i = 0; i < OPENED; i++)
        if (n->opened[i].count && memcmp(&n->opened[i].object, object, sizeof *object) == 0)
            tell_some(n, &n->opened[i], RS_NO_PEER, tell, context);
}

void rs_nameless_again(rs_nameless *n, rs_peer peer, rs_nameless_tell tell, void *context) {
    for (uint32_t i = 0; n->untold_at[peer % UNTOLD] && i < OPENED; i++) /* each message asks, and most have none */
        if (n->opened[i].named)
            tell_some(n, &n->opened[i], peer, tell, context);
}
