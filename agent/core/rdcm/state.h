/* What a node remembers of a transfer by RDCM, beside what all transfers have. Private to agent/core. */
#ifndef RS_CORE_RDCM_STATE_H
#define RS_CORE_RDCM_STATE_H

#include "core/base/list.h"
#include "core/rate/rtt.h"
#include "core/rdcm/losses.h"
#include "core/rdcm/passes.h"
#include "core/rdcm/set.h"
#include "core/rdcm/wire.h"
#include "core/transfer/node.h"

#define RS_RDCM_RINGS 4    /* leaf and proxy ring, and the two that are not left yet */
#define RS_RDCM_FLYING 512 /* repairs to one successor that are not acknowledged yet, at most */
#define RS_RDCM_GAPS 16    /* losses on the tree not told to congestion control yet */
#define RS_RDCM_SAID 32    /* expectations said last */
#define RS_RDCM_CHILDREN 4096
#define RS_RDCM_OWED 4

typedef struct {
    uint64_t sn;
    rs_time at;
} rs_flying;

/* Those who must acknowledge what this node has: a successor, to whom it repairs by unicast; or, at the sender, all
 * children together, to whom it repairs by multicast. rdcm/overlay.c */
typedef struct {
    rs_peer peer; /* RS_NO_PEER: not in use, or the sender's */
    bool in_use;
    bool known;         /* what it has: it has said so, or nothing was sent when the ring was joined */
    uint64_t settled;   /* what is below and not acknowledged was lost: that need not be waited for */
    rs_rdcm_set acked;  /* a ring of words... */
    uint64_t *repaired; /* ...and as many bits: repaired, not acknowledged yet */
    uint64_t *tried;    /* and again: repaired at any time, also if that was lost, not acknowledged yet */
    rs_rtt rtt;         /* from a packet's passing here to its ACK */
    rs_rtt answer;      /* from a repair to its ACK */
    rs_flying *flying;  /* the repairs of `repaired`, in order: a ring */
    uint32_t head, count, flying_room;
    uint32_t out;         /* of these, not acknowledged */
    uint32_t flying_most; /* how many there may be: the network's answer, AIMD */
    uint32_t stretch;     /* the timeout is that many times doubled: packets were late, and no ACK was of use since */
    rs_time stretched_at;
    rs_time check_at; /* something may be due then; RS_NEVER: when something comes in */
    rs_time halved_at;
    rs_time heard_at, probed_at;
    /* silence */
    rs_time asked_at; /* the first repair since the last ACK; 0 = none */
    uint32_t unanswered;
    rs_time pause, pause_until;
    uint32_t failed;   /* how often that was told; it holds nobody back until it is heard again */
    rs_time failed_at; /* when that was told last */
    /* is there a tree above it? */
    bool by_tree; /* it said last that packets come to it by the tree */
    rs_time tree_at;
    uint32_t by_repair; /* packets it acknowledged since then, all of them repaired */
    uint32_t suspected; /* how often that was told, since the view or the last packet by the tree */
    rs_time suspected_at;
} rs_rdcm_watch;

/* A ring this node is in. One that is left: the predecessor until the new one can repair, the successor until it has
 * left. */
typedef struct {
    rs_peer predecessor, parent;
    bool ready; /* the predecessor can repair */
    bool left;  /* the predecessor is to be told that it need not any more */
    rs_rdcm_watch successor;
} rs_rdcm_ring;

typedef struct {
    rs_peer peer;
    uint64_t expected; /* HESN, its own and that of all below it */
    uint64_t settled;  /* of it and all below it */
    rs_time heard_at;
} rs_rdcm_child;

/* An acknowledgement being gathered, of the leaf or of the proxy rings. */
typedef struct {
    uint32_t unacked;  /* packets */
    uint64_t low;      /* the lowest of them */
    uint64_t expected; /* said last */
    rs_time due;
} rs_rdcm_news;

typedef struct {
    uint64_t from, to;
    rs_time at;
} rs_rdcm_gap;

/* Packets come to a successor by the tree, and none here: repair.c. */
typedef struct {
    rs_time since;
    uint64_t version; /* of the view */
    uint32_t acks;    /* that showed it */
    bool told;
} rs_rdcm_starving;

/* What is to be said: for ring i bit 2 i to its predecessor, 2 i + 1 to its parent, RS_RDCM_READY << i to its
 * successor. */
enum { RS_RDCM_READY = 1 << 8, RS_RDCM_NOT_PREDECESSOR = 1 << 12 };

typedef enum {
    RS_RDCM_STAYS,
    RS_RDCM_LEAVES, /* Its caller wants nothing more: it holds nobody back. */
    RS_RDCM_GOES    /* And nobody behind it needs it. */
} rs_rdcm_leaving;

typedef enum {
    RS_RDCM_NO_VIEW,
    RS_RDCM_VIEW_GIVEN, /* Its predecessors have not all said that they can repair. */
    RS_RDCM_VIEW_USED   /* RS_EV_VIEW_USED is out for it. */
} rs_rdcm_view_state;

typedef struct rs_rdcm {
    struct rs_transfer *transfer;
    uint64_t capacity; /* sns a window can tell apart: a power of 2 */
    uint32_t say;      /* bits as above */
    uint32_t later;    /* of these, what need not be said before `later_due` */
    rs_time later_due;
    rs_peer not_predecessor; /* it repaired though it is no predecessor: it learns that it need not */

    rs_rdcm_leaving leaving;

    rs_rdcm_view_state view;
    uint64_t version;
    rs_rdcm_ring rings[RS_RDCM_RINGS];
    rs_time ready_due; /* the new predecessors are asked again */
    uint32_t ready_tries;
    rs_rdcm_child *children;
    uint32_t child_count;
    bool own_child; /* it is in the ring it is the parent of */

    rs_rdcm_set here;      /* receiver: fragments that are here; sender: that were sent */
    rs_passes passes;      /* of `here.top` */
    rs_rdcm_set subtree;   /* what this node or some child has; without memory where there are no children */
    rs_rdcm_news news[2];  /* rs_ring_kind */
    uint64_t settled_told; /* gaps below have been told in the proxy ring */
    rs_time silent;        /* a child that says nothing so long after a packet passed here holds nobody back */
    /* When such packets passed, the oldest first, each a part of `silent` after the one before: all children have had
     * `silent` at least to answer the oldest, and those that were not heard since are silent. */
    rs_time owed[RS_RDCM_OWED + 1];
    uint32_t owed_parts;

    /* receiver: congestion control */
    rs_bic bic;
    rs_losses losses;
    uint64_t tree_top; /* one past the highest sn that came by the tree */
    bool tree_report;  /* that one said REPORT */
    rs_time tree_at;
    rs_rdcm_starving starving[2]; /* rs_ring_kind */
    rs_rdcm_gap gaps[RS_RDCM_GAPS];
    uint32_t gap_count;
    uint64_t said[RS_RDCM_SAID], limit;
    uint32_t said_at;
    bool limits; /* the sender's limit was said here */
    /* receiver: requests to the sender */
    rs_time request_due;
    uint64_t missing; /* the lowest one when that was set */
    uint64_t request_at, request_top;
    uint32_t request_runs;
    uint64_t refused_top;    /* one past the highest sn of which wrong bytes came by repair: the sender has sent it */
    rs_time refused_request; /* when a request was made due for what was refused */
    rs_time serve_until;     /* after rs_verified, while others may need repairs */

    /* sender: `children` is the highest ring, or all receivers while there is no view */
    rs_rdcm_watch all;
    bool started;
    rs_time probe_pause;
    rs_time start_due, view_due;
    uint64_t expected; /* the least of the children's */
    rs_time progress_at;
    rs_time stall_later; /* nothing is concluded from a stall before */
    rs_time probe_due;
    rs_time min_rtt, min_rtt_at; /* the way without a queue */
    uint64_t pace;               /* packets a second that children acknowledge, at most lately */
    uint64_t pace_cum;
    rs_time pace_at;
} rs_rdcm;

#endif
