/* What a node remembers of a transfer by RDCM, beside what all transfers have. Private to agent/core. */
#ifndef RS_CORE_RDCM_STATE_H
#define RS_CORE_RDCM_STATE_H

#include "core/base/list.h"
#include "core/rate/rtt.h"
#include "core/rdcm/losses.h"
#include "core/rdcm/passes.h"
#include "core/rdcm/set.h"
#include "core/rdcm/wire.h"
#include "core/transfer/engine.h"

/* Bounds: others of that order would do. */
#define RS_RDCM_RINGS 4       /* leaf and proxy ring, and the two that are not left yet (Sec. 3.4) */
#define RS_RDCM_FLYING 512    /* repairs to one successor that are not acknowledged yet, at most (docs/rdcm.md) */
#define RS_RDCM_GAPS 16       /* losses on the tree not told to congestion control yet */
#define RS_RDCM_SAID 32       /* expectations said last */
#define RS_RDCM_CHILDREN 4096 /* of one sender */
#define RS_RDCM_SEEDS 64      /* packets to be sent to children, at most: the ring brings what is more */
#define RS_RDCM_OWED 4        /* of a stream: a silence bound is looked at in so many parts */

/* A repair that is under way. */
typedef struct {
    uint64_t sn;  /* The fragment. */
    rs_time at;   /* It was sent then... */
    bool assumed; /* ...by another, so far as is known. */
} rs_flying;

typedef enum {
    RS_WATCH_OFF,     /* Nobody is watched. */
    RS_WATCH_UNKNOWN, /* What it has is not known yet. */
    RS_WATCH_KNOWN    /* It has said what it has, or nothing was sent when the ring was joined. */
} rs_rdcm_watching;

/* Those who must acknowledge what this node has: a successor, to whom it repairs by unicast; or, at the sender, all
 * children together, to whom it repairs by multicast. rdcm/repair.c */
typedef struct {
    rs_peer peer; /* RS_NO_PEER: it is not in use, or it is the sender's. */
    rs_rdcm_watching state;
    uint64_t settled;     /* What is below and not acknowledged was lost: that need not be waited for. */
    rs_rdcm_set acked;    /* It has acknowledged these: a ring of words... */
    uint64_t *repaired;   /* ...and as many bits: these were repaired and are not acknowledged yet... */
    uint64_t *tried;      /* ...and again: these were repaired at any time, also if that was lost. */
    rs_rtt rtt;           /* From a packet's passing here to its ACK. */
    rs_rtt answer;        /* From a repair to its ACK. */
    rs_time delay;        /* Its ACKs wait so long beside; 0: as long as they may. */
    rs_flying *flying;    /* The repairs of `repaired`, in order, are a ring: */
    uint32_t head;        /* the oldest is there, */
    uint32_t count;       /* there are so many, */
    uint32_t flying_room; /* and there is room for so many. */
    uint32_t out;         /* So many of them are not acknowledged. */
    uint32_t flying_most; /* There may be so many: the network's answer, AIMD. */
    uint32_t stretch;     /* The timeout is that many times doubled: packets were late, and no ACK was of use since. */
    rs_time stretched_at; /* It was doubled last then. */
    rs_time check_at;     /* Something may be due then; RS_NEVER: when something comes in. */
    uint32_t early;       /* So many were taken for lost at the object's end, soon. */
    rs_time halved_at;    /* `flying_most` was halved last then. */
    rs_time heard_at;     /* It was heard last then, */
    rs_time probed_at;    /* and probed last then. */
    /* silence */
    rs_time asked_at;    /* The first repair since the last ACK went then; 0: none did. */
    uint32_t unanswered; /* So many times repairs went on without one. */
    rs_time pause;       /* Between two of them it waits so long, */
    rs_time pause_until; /* now until then. */
    uint32_t failed;     /* Its failure was told so often; it holds nobody back until it is heard again. */
    rs_time failed_at;   /* That was told last then. */
    /* is there a tree above it? */
    bool by_tree;         /* It said last that packets come to it by the tree, */
    rs_time tree_at;      /* then. */
    uint32_t by_repair;   /* It acknowledged so many packets since then, all of them repaired. */
    uint32_t suspected;   /* That was told so often, since the view or the last packet by the tree, */
    rs_time suspected_at; /* last then. */
} rs_rdcm_watch;

/* A ring this node is in. One that is left: the predecessor until the new one can repair, the successor until it has
 * left. */
typedef struct {
    rs_peer predecessor; /* It repairs for this node. */
    rs_peer parent;      /* It is told what all of the ring have. */
    bool ready;          /* The predecessor can repair. */
    bool left;           /* The predecessor is to be told that it need not any more. */
    rs_rdcm_watch successor;
} rs_rdcm_ring;

typedef struct {
    rs_peer peer;      /* Who it is. */
    uint64_t expected; /* HESN, its own and that of all below it. */
    uint64_t settled;  /* What is below need not be waited for, by it and all below it. */
    rs_time heard_at;  /* It was heard last then. */
    uint64_t cum;      /* At the sender: it has all below that. */
} rs_rdcm_child;

/* An acknowledgement being gathered, of the leaf or of the proxy rings. */
typedef struct {
    uint32_t unacked;  /* It is about so many packets, */
    uint64_t low;      /* of which this is the lowest. */
    uint64_t expected; /* This was said last. */
    rs_time due;       /* It is said then. */
} rs_rdcm_news;

/* Packets [from, to) were lost on the tree, as was seen then. */
typedef struct {
    uint64_t from, to; /* The gap: from the first to before the last. */
    rs_time at;        /* It was found then. */
} rs_rdcm_gap;

/* A packet that came by repair and goes to children (overlay.c). */
typedef struct {
    uint64_t sn;   /* The fragment. */
    rs_peer from;  /* It came from there. */
    uint32_t done; /* So many of the children have been looked at. */
} rs_rdcm_seeding;

/* Packets come to a successor by the tree, and none here: repair.c. */
typedef struct {
    rs_time since;    /* It is so since then. */
    uint64_t version; /* Of the view in which that is so. */
    uint32_t acks;    /* So many showed it. */
    bool told;        /* It was told. */
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
    struct rs_transfer *transfer;         /* What it is about. */
    uint64_t capacity;                    /* A window can tell so many sns apart: a power of 2. */
    uint32_t say;                         /* That is to be said: bits as above. */
    uint32_t later;                       /* Of these, that need not be said before... */
    rs_time later_due;                    /* ...then. */
    rs_time tail_due;                     /* What is missing after the last packet is said again then, */
    uint32_t tail_tries;                  /* as it was so often. */
    bool tail_over;                       /* Nothing more comes by the tree. */
    uint32_t seed_count;                  /* So many packets go to children: */
    rs_rdcm_seeding seeds[RS_RDCM_SEEDS]; /* these, the oldest first. */
    rs_peer not_predecessor;              /* It repaired though it is no predecessor: it learns that it need not. */
    rs_rdcm_leaving leaving;

    rs_rdcm_view_state view;           /* Tree and rings in use. */
    uint64_t version;                  /* Of the view. */
    rs_rdcm_ring rings[RS_RDCM_RINGS]; /* The leaf and the proxy ring, and the two that are not left yet. */
    rs_time ready_due;                 /* The new predecessors are asked again then, */
    uint32_t ready_tries;              /* so many times more. */
    rs_rdcm_child *children;
    uint32_t child_count; /* Length of `children`. */
    bool own_child;       /* It is in the ring it is the parent of. */

    rs_rdcm_set here;      /* At a receiver the fragments that are here; at the sender those that were sent. */
    rs_passes passes;      /* When `here.top` went by. */
    rs_rdcm_set subtree;   /* This node or some child has these; without memory where there are no children. */
    rs_rdcm_news news[2];  /* By rs_ring_kind. */
    uint64_t settled_told; /* Gaps below have been told in the proxy ring. */
    rs_time silent;        /* A child that says nothing so long after a packet passed here holds nobody back. */
    /* Such packets passed then, the oldest first, each a part of `silent` after the one before: all children have had
     * `silent` at least to answer the oldest, and those that were not heard since are silent. */
    rs_time owed[RS_RDCM_OWED + 1];
    uint32_t owed_parts; /* `silent` is so many of them. */

    /* receiver: congestion control */
    rs_bic bic;
    rs_losses losses;             /* What is missing and who is asked. */
    uint64_t tree_top;            /* One past the highest sn that came by the tree. */
    bool tree_report;             /* That one said REPORT. */
    rs_time tree_at;              /* It came then. */
    rs_rdcm_starving starving[2]; /* By rs_ring_kind. */
    rs_rdcm_gap gaps[RS_RDCM_GAPS];
    uint32_t gap_count;          /* Length of `gaps`. */
    uint64_t said[RS_RDCM_SAID]; /* These expectations were said last, */
    uint32_t said_at;            /* the newest there. */
    uint64_t limit;              /* The sender's limit, as its newest packet says. */
    bool limits;                 /* The sender's limit was said here. */
    /* receiver: requests to the sender */
    rs_time request_due;     /* What is missing is asked for then. */
    uint64_t missing;        /* The lowest one that was missing when that was set. */
    uint64_t request_at;     /* The present request goes on from there, */
    uint64_t request_top;    /* and ends there; */
    uint32_t request_runs;   /* it may name so many runs more. */
    uint64_t refused_top;    /* One past the highest sn of which wrong bytes came by repair: the sender has sent it. */
    rs_time refused_request; /* A request was made due then for what was refused. */
    rs_time serve_until;     /* After rs_verified, while others may need repairs. */

    /* sender: `children` is the highest ring, or all receivers while there is no view */
    rs_rdcm_watch all;   /* Them together. */
    bool started;        /* Data packets go. */
    rs_time start_due;   /* They go then, though not all have accepted. */
    rs_time view_due;    /* It goes without a view then. */
    uint64_t expected;   /* The least of the children's. */
    rs_time progress_at; /* That grew last then. */
    rs_time stall_later; /* Nothing is concluded from a stall before. */
    rs_time probe_due;   /* The last packet goes once more then, */
    rs_time probe_pause; /* and again after so long. */
    rs_time last_due;    /* A stream without a view: the last packet goes once more then, as some may lack it, */
    rs_time last_pause;  /* and again after so long. */
    rs_time min_rtt;     /* The way takes so long without a queue, */
    rs_time min_rtt_at;  /* as was seen then. */
    uint64_t pace;       /* Children acknowledge so many packets a second, at most lately: */
    uint64_t pace_cum;   /* counted from that sn, */
    rs_time pace_at;     /* since then. */
} rs_rdcm;

rs_receiving *rs_rdcm_receiving(const rs_rdcm *r);
rs_sending *rs_rdcm_sending(const rs_rdcm *r);
void rs_rdcm_wake(rs_node *node, rs_rdcm *r, rs_time due); /* no later than then */
void rs_rdcm_say(rs_node *node, rs_rdcm *r, uint32_t bits);
void rs_rdcm_emit(rs_node *node, const rs_rdcm *r, rs_event_kind kind, rs_peer peer, rs_ring_kind ring);
uint64_t rs_rdcm_low(const rs_rdcm *r); /* of the repair window (Sec. 3.3): below, nobody needs anything from here */
uint32_t rs_rdcm_ack_every(const rs_node *node, const rs_rdcm *r, rs_ring_kind kind); /* an ACK for so many packets, */
rs_time rs_rdcm_ack_delay(const rs_node *node, const rs_rdcm *r);                     /* and after so long at most */

#endif
