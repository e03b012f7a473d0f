/* What the files of this folder know of one node. Sec. is of the paper.
 *   wire.c    datagrams                          regions.c  region views: partitions, rings, leaders (2.1, 2.3.1)
 *   streams.c what is here of one sender         token.c    tokens and loss recovery (2.3.2, 2.3.3)
 *   send.c    what this node sends to a region   rate.c     rate control (2.4)
 *   completion.c  what of a group's packets all have (Fig. 20)
 *   qsm.c     the engine's row: groups in regions (2.2) */
#ifndef RS_CORE_QSM_STATE_H
#define RS_CORE_QSM_STATE_H

#include "core/base/list.h"
#include "core/groups/state.h"
#include "core/qsm/rate.h"
#include "core/qsm/wire.h"

#define RS_QSM_NOWHERE UINT32_MAX
#define RS_QSM_WINDOW 65536u      /* packets of one sender between the first missing and the newest; a power of two */
#define RS_QSM_SEND_WINDOW 32768u /* packets of this node that are not stable yet */
#define RS_QSM_UNSENT 256u        /* packets of a region that wait for credits */
#define RS_QSM_PARTS 64u          /* tokens that a round is split into at most */
#define RS_QSM_ENTRIES 64u        /* senders in one token */
#define RS_QSM_ACKS_EACH 4u       /* ACKs after a round; more senders take turns: tokens say what is stable, too */
#define RS_QSM_REPLICAS 5u        /* R, Sec. 2.2 */
#define RS_QSM_OUTBOX 4096u       /* small datagrams, and packets to be forwarded, that wait to be sent */
#define RS_QSM_CONTROL_RATE 20000 /* datagrams a second of control, and forwarded: fixed (end of Sec. 2.3.3) */
#define RS_QSM_FORWARD_MARKS (16 * RS_QSM_OUTBOX) /* bits: of 16 packets one is taken for another that waits */
#define RS_QSM_BUCKETS 1024u
#define RS_QSM_LEFT 4096u /* regions whose numbering is remembered: as many as an agent knows at a time */
#define RS_QSM_RETRY (3 * INT64_C(1000000)) /* a token is passed again then, each time twice as long after it, */
#define RS_QSM_TRIES 7u                     /* so many times in all: a node with much to do is waited for */
#define RS_QSM_TRIED (127 * RS_QSM_RETRY)
#define RS_QSM_SILENT_MOST \
    (3000 * INT64_C(1000000))                     /* a node that takes no token for so long is waited for no more: the
                                                   * time after which the manager leaves it out, too (its lease) */
#define RS_QSM_GIVE_UP (10000 * INT64_C(1000000)) /* a packet is lost when tokens bring it not for so long, */
#define RS_QSM_GIVE_UP_DEAD (2000 * INT64_C(1000000)) /* ... or so long if its sender is gone */
#define RS_QSM_GIVE_UP_BEHIND \
    (1000 * INT64_C(1000000)) /* ... or, in a group, so long if its sender had been put out and did not know: its view
                               * of the region is over, most likely; if not, tokens bring it in far less */
#define RS_QSM_LINGER (10000 * INT64_C(1000000)) /* an old region view ends so long after the next one came, */
#define RS_QSM_LINGER_LEAST \
    (3000 * INT64_C(1000000)) /* ... or after this, if all is there: senders may hear of it late */
#define RS_QSM_OLD_MOST 1024u /* old region views that stay for late senders: one each 20 ms for twenty seconds */
#define RS_QSM_MAPPING_MOST \
    (3000 * INT64_C(1000000)) /* so long messages wait for region views that have all members of their group */

enum { RS_QSM_OPTION_REPLICAS, RS_QSM_OPTION_TOKEN, RS_QSM_OPTION_RATE, RS_QSM_OPTION_LAMBDA, RS_QSM_OPTION_LEAST };

typedef struct rs_qsm rs_qsm;
typedef struct rs_qsm_view rs_qsm_view;

/* A packet of the node's own partition, or its own, for whoever missed it. */
typedef struct {
    uint8_t *bytes;
    uint32_t length;
} rs_qsm_packet;

/* What is here of one sender's packets in one region view. */
typedef struct rs_qsm_stream {
    rs_list in_view;
    rs_qsm_view *view;
    rs_peer sender;
    uint32_t incarnation;
    uint64_t prefix;      /* Everything up to here has come, or is given up. */
    uint64_t came;        /* The newest one that the sender's multicast brought. */
    uint64_t newest;      /* It came, or the sender, or the region, says that it was sent. */
    uint64_t cutoff;      /* What is missing up to here is lost (Sec. 2.3.3). */
    uint64_t last_cutoff; /* The last token's, */
    uint64_t last_came;   /* ... and the newest one that had come before it. */
    rs_time came_at;
    rs_time began_at; /* Its first packet came. */
    uint32_t found;   /* So many packets were missing of those that the last token made lost. */
    uint64_t told;    /* At the leader: the newest one in the last round, the next one's cutoff. */
    uint64_t stable, cached;
    uint64_t spread; /* At the leader: all nodes were told that it is stable up to here. */
    uint64_t asked;  /* Packets of other partitions up to here were asked for in `asked_round`. */
    uint32_t asked_round;
    rs_time asked_at;
    uint64_t mended;    /* What was lost up to here, whoever caches it has had a round to have it again. */
    rs_time visited_at; /* The last token was here then. */
    uint64_t *bits;     /* A ring of `window` bits: what has come after the prefix. */
    uint32_t window;
    uint64_t first_q;     /* The first of the own partition's packets that is missing. */
    rs_qsm_packet *cache; /* A ring of `cache_room`: the own partition's from `cache_q` on. */
    uint64_t cache_q;
    uint32_t cache_room;
    rs_time stuck; /* So long tokens brought nothing of what is missing first. */
    uint64_t stuck_at;
    rs_qsm_meter meter;
} rs_qsm_stream;

typedef struct {
    uint8_t *bytes;
    uint32_t length, room;
    uint32_t span;  /* Bytes that its messages take at a receiver. */
    uint32_t again; /* So often it was sent again, for a NAK. */
    rs_time sent_at;
} rs_qsm_own_packet;

/* What this node sends to a region view. */
typedef struct {
    rs_qsm_own_packet *ring; /* `room` of them, a power of two; from `kept` on to `next`. */
    uint32_t room;
    uint64_t kept, sent, next; /* Numbers: the oldest kept, the first that is not sent, the first that is not made. */
    uint64_t stable, cached;
    uint64_t ahead;        /* Bytes at a receiver of what is not stable: so much waits there for what is missing. */
    uint64_t owed;         /* Bytes that a node misses of those sent since `epoch` was not stable, as it says, */
    uint64_t owed_before;  /* ... and of those before, */
    uint64_t epoch;        /* ... until this packet is stable: then the next ones count. */
    uint32_t senders;      /* So many of them send to the region, as it says. */
    uint64_t told, spread; /* If this node leads: as of a stream. */
    rs_qsm_ranges naked;   /* What all of a partition missed, and is multicast again, */
    uint32_t naked_partition, naked_range;
    uint64_t naked_q; /* ... from here on, */
    rs_peer naked_by; /* ... or sent to this node of it alone, which said so. */
    uint32_t turn;    /* Without a multicast address: the packet went to so many nodes. */
    rs_time position_at;
    uint32_t positions; /* Told without an answer. */
    rs_time stable_at;  /* More became stable then, or the first that is not was sent. */
    uint64_t excused;   /* A node stood still before these were stable: their losses say nothing of the rate. */
    rs_qsm_control control;
    rs_list waiting; /* In rs_qsm.sending while there is something to send. */
    rs_qsm_view *view;
} rs_qsm_out;

/* A region that this node sent to and knows no more. */
typedef struct {
    uint32_t region;
    uint64_t version, next; /* as of rs_qsm_out */
} rs_qsm_left;

/* A token that this node passes on, until it is acknowledged. */
typedef struct {
    rs_list in_view;
    uint32_t place, phase;
    uint32_t tries;
    rs_time due;
    rs_qsm_token token;
    uint32_t length;
    uint8_t bytes[];
} rs_qsm_pass;

/* Which token of a part came last. */
typedef struct {
    rs_peer leader;
    uint32_t round;
    uint32_t phases; /* a bit each */
    rs_time at;
} rs_qsm_seen;

struct rs_qsm_view {
    rs_qsm_view *next; /* The next one in its bucket. */
    rs_list active;    /* In rs_qsm.active while it has something to wait for. */
    rs_qsm *own;
    uint32_t region;
    uint64_t version;
    uint64_t made; /* A number of its own for each time that it became the current one. */
    rs_group channel;
    rs_peer *nodes; /* ascending */
    uint32_t count;
    uint32_t self; /* This node's place among them, or RS_QSM_NOWHERE. */
    uint32_t partitions, partition;
    uint32_t option[RS_GROUP_OPTIONS_MOST];
    rs_time interval;
    bool open, current;
    rs_time retired_at; /* 0: it is current, or it was not looked at since. */
    rs_list streams;
    rs_qsm_stream **by_place; /* Of senders that are nodes; made with the first. */
    rs_qsm_out *out;
    rs_list passes;
    rs_qsm_seen *seen; /* RS_QSM_PARTS of them; made with the first token. */
    rs_time *silent;   /* By place: so long it takes no tokens; made with the first. */
    rs_time token_at;  /* A token of another node, or the own one's return, was seen then. */
    rs_time woke_at;   /* Something was not stable since then: tokens are expected. */
    rs_time since;     /* So long it was from the token before to this one. */
    rs_time gap;       /* The longest time of late from one token to the next one here: rounds take so long. */
    rs_time wake_at;   /* Nobody passes a token, and something is missing, or not stable: the leader is told then. */
    uint32_t wakes;
    /* At the leader. */
    bool leads; /* in place of the first node, which does not answer */
    uint32_t round, outstanding, parts;
    rs_time round_at, next_at;
    rs_time ticked_at; /* The last token was here then. */
    rs_qsm_meter meter;
};

/* Own packets of a group that its application wants to know of: rs_gm_group.own. */
typedef struct {
    rs_list done; /* In rs_qsm.completed while there is something to tell. */
    rs_message_group group;
    uint64_t first, next; /* Numbers: the first that is not complete, the first that no request was made of. */
    uint32_t *left;       /* A ring of `room` from `first` on: requests that are not acknowledged. */
    uint32_t room;
    uint64_t given_up; /* So many of those before `first`, since it was told. */
} rs_qsm_completion;

typedef struct {
    rs_list order;
    rs_peer peer;
    uint32_t length;
    uint8_t bytes[];
} rs_qsm_small;

/* A packet that a peer is to have. */
typedef struct {
    rs_qsm_view *view; /* NULL: it has ended */
    uint32_t region;
    rs_peer sender, peer;
    uint64_t sn;
} rs_qsm_forward;

typedef struct {
    uint64_t data_sent, data_received, duplicates, again_sent, forwards_sent, forwards_received;
    uint64_t tokens_sent, token_acks_sent, tokens_again, tokens_skipped, rounds, rounds_incomplete;
    uint64_t acked, ack_us; /* Packets that all who cache them have, and how long that took, added up. */
    uint64_t pulls_sent, acks_sent, naks_sent, positions_sent, packed, lost, refused, foreign;
} rs_qsm_stats;

struct rs_qsm {
    rs_messages *node;
    rs_qsm_view *views[RS_QSM_BUCKETS];
    uint32_t view_count;
    uint32_t old_count; /* Of these are no more current. */
    rs_list active, sending;
    rs_list smalls, handed;
    uint32_t small_count;
    rs_qsm_forward *forwards; /* a ring */
    uint64_t *forward_marks;  /* RS_QSM_FORWARD_MARKS bits, by hash: that one waits already */
    uint32_t forward_head, forward_tail;
    double control_credits;
    rs_time control_at;
    rs_qsm_view *prepared;
    rs_qsm_entry *entries; /* RS_QSM_ENTRIES of them, of the token in hand */
    uint32_t entry_count;
    uint8_t *scratch; /* one message */
    uint64_t cache_bytes, out_bytes;
    rs_qsm_left *left; /* A ring of RS_QSM_LEFT, made with the first. */
    uint32_t left_count, left_next;
    rs_list completed;
    uint32_t completions; /* groups whose applications want to know */
    uint64_t views_made;
    bool unmapped;         /* Messages wait for views of regions that belong together, since `unmapped_at`. */
    rs_time unmapped_at;   /* Or the last wait ended then. */
    rs_time unmapped_left; /* So long they may wait yet. */
    rs_qsm_stats stats;
    rs_time now; /* of the last timeout */
};

/* -------------------------------------------------------------------------------------------------- small things */

static inline rs_time rs_qsm_earlier(rs_time a, rs_time b) {
    return a < b ? a : b;
}

static inline uint32_t rs_qsm_ack_turns(uint32_t senders) {
    return 1 + (senders ? senders - 1 : 0) / RS_QSM_ACKS_EACH;
}

static inline uint64_t rs_qsm_sn_of(const rs_qsm_view *view, uint32_t partition, uint64_t q) {
    return q * view->partitions + partition;
}

#endif
