/* What receiving.c holds of an object, or stream, that comes in. */
#ifndef RS_DAEMON_RECEIVING_STATE_H
#define RS_DAEMON_RECEIVING_STATE_H

#include "daemon/data/origin.h"
#include "daemon/data/receiving.h"
#include "daemon/data/repairers.h"
#include "daemon/store/digest.h"

struct rs_receive_state {
    rs_transfer_entry base;
    rs_peer sender;
    rs_group group; /* RS_NO_GROUP: none joined */
    rs_digest expected;
    rs_digest_tree *tree;
    uint64_t size;
    uint32_t session;
    bool announced_up;   /* its sender had a control connection then */
    bool allocated;      /* all room is there */
    bool resumed;        /* pieces of it were here before: each counts until its bytes come again */
    rs_time allocate_at; /* when the next piece of it is made */
    bool complete;       /* every byte is there */
    int64_t started_ns;
    uint64_t moved_bytes;   /* present when it was last seen to move on */
    uint32_t stalled_ticks; /* since then, of this process: time in which it stood still does not count */
    uint8_t *leaves;        /* the sender's digests of chunks, asked for when the object's digest is wrong; else NULL */
    uint64_t leaves_known;
    bool leaves_asked;       /* and not here yet: nothing is judged before */
    uint64_t wrong_chunk;    /* that is fetched again; UINT64_MAX: none yet */
    uint32_t fetches;        /* of it */
    uint64_t fetched;        /* chunks, all fetches */
    uint32_t leaf_rounds;    /* times that all leaves came */
    rs_repairers *repairers; /* NULL: no peer has repaired anything */
    rs_origin origin;
    bool serving; /* whole, checked and the application's: held while others may need repairs from here (RDCM) */
};

#endif
