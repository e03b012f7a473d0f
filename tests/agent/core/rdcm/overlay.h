/* Random multicast trees and the backup overlay over each (RDCM Fig. 8), as the manager makes them: test data. */
#ifndef TEST_OVERLAY_H
#define TEST_OVERLAY_H

#include "net.h"

#define OVERLAY_SERVERS 130
#define OVERLAY_NODES 1024
#define OVERLAY_CHILDREN 64

typedef struct {
    rs_ring_place leaf, proxy;
    rs_peer children[OVERLAY_CHILDREN];
    uint32_t child_count;
    uint32_t rings; /* joined */
} overlay_place;

/* Node 0 is the sender's; a node's parent has a lower number. `server` of a leaf: the receiver there. */
typedef struct {
    uint32_t nodes;
    uint32_t parent[OVERLAY_NODES];
    rs_peer server[OVERLAY_NODES];
    uint32_t node_of[OVERLAY_SERVERS];
    overlay_place at[OVERLAY_SERVERS]; /* of server 0, the sender, `children` only */
} overlay;

/* Over servers 1..receivers, those in `without` (a bit each) left out. Of the same seed the same tree. */
void overlay_make(overlay *o, uint32_t receivers, uint64_t seed, const bool *without);
/* Hands each of them its view. Those whose transfer is not there (yet, any more) are passed over. */
void overlay_tell(net *n, const overlay *o, uint32_t receivers, rs_xfer sending, uint64_t version);
void overlay_tell_one(net *n, const overlay *o, rs_peer server, rs_xfer xfer, uint64_t version);
bool overlay_is_below(const overlay *o, rs_peer server, uint32_t node);

#endif
