/* Whom a node makes repairs for (Ricochet, Sec. 4.1): its groups with the same r, stagger and flush are a plane; in it
 * the other members of its groups, the neighbours, fall into regions by which of these groups they share; Algorithm 1
 * says how many targets each bin chooses from each region.
 *
 * Rates are integers in units of 2^-32 targets: group A's rate is c_A / |A| a member (at most 1), so c_A^R of the paper
 * is rate * |R|, and what a region's bins choose adds up to it exactly. */
#ifndef RS_CORE_RICOCHET_REGIONS_H
#define RS_CORE_RICOCHET_REGIONS_H

#include "core/base/list.h"
#include "core/groups/messages.h"

#define RS_LEC_ONE (UINT64_C(1) << 32)
#define RS_LEC_BUCKETS 2048u
#define RS_LEC_PLANES 8u
#define RS_LEC_DEAL 2u  /* a bin whose repairs go to so many targets ... */
#define RS_LEC_DEALT 2u /* ... has at least so many in the making */

typedef struct rs_ricochet rs_ricochet;
typedef struct rs_lec_bin rs_lec_bin;
typedef struct rs_lec_region rs_lec_region;
typedef struct rs_lec_plane rs_lec_plane;

typedef struct {
    uint64_t a, b;
} rs_lec_key; /* of a set of groups: XOR of its groups' keys */

/* A group of this node. */
typedef struct {
    rs_lec_plane *plane;
    rs_message_group id;
    rs_lec_key key;
    uint64_t rate;
    rs_lec_bin **bins; /* those that take its packets; `places[i]`: the group's place in that bin's groups */
    uint32_t *places;
    uint32_t bin_count, bin_room, place_room;
} rs_lec_group;

/* A neighbour. */
typedef struct {
    rs_list hashed, dirty;
    rs_peer id;
    rs_lec_key key;
    rs_lec_group **groups; /* by increasing id */
    uint32_t group_count, group_room;
    rs_lec_region *region; /* NULL: not placed yet */
    uint32_t position;     /* in region->peers */
} rs_lec_peer;

typedef struct {
    rs_lec_bin *bin;
    uint64_t rate; /* targets it chooses from the region, a member */
} rs_lec_share;

struct rs_lec_region {
    rs_list hashed, dirty;
    rs_lec_key key;
    rs_lec_peer **peers;
    uint32_t peer_count, peer_room;
    rs_lec_share *shares; /* Algorithm 1: the region's bins, the one of all its groups first */
    uint32_t share_count;
};

typedef struct rs_lec_repair rs_lec_repair; /* bins.c */

/* One of a bin's `stagger` repairs in the making. */
typedef struct {
    rs_lec_repair *repair; /* NULL: this round is for nobody */
    uint16_t count;        /* packets of this round, if it is for nobody */
    uint16_t limit;        /* packets that end the round */
} rs_lec_instance;

struct rs_lec_bin {
    uint32_t turn, stagger; /* which of its `stagger` instances takes the next packet; 0: it has not begun */
    rs_lec_instance *instances;
    rs_lec_plane *plane;
    rs_lec_key key;
    rs_lec_group **groups;
    uint32_t *positions; /* in each group's bins */
    uint32_t group_count;
    struct rs_lec_use {
        rs_lec_region *region;
        uint64_t rate;
    } * uses;
    uint32_t use_count, use_room;
    rs_list hashed;
};

struct rs_lec_plane {
    uint32_t r, stagger, flush_us;
    /* A repair that is not full goes as it is with the first packet that comes so long after its own first one, or
     * after `flush_last` if none comes: a steady stream needs no timer. 0: never. */
    rs_time flush, flush_last;
    rs_list open;                    /* repairs that have packets, oldest first */
    uint32_t group_count;            /* 0: not in use */
    rs_list *peers, *regions, *bins; /* hash tables of RS_LEC_BUCKETS */
    rs_list dirty_peers, dirty_regions;
};

/* The plane of that r, stagger and flush, made if need be; NULL if there are too many, or (`*any`: one is free) memory
 * is short. */
rs_lec_plane *rs_lec_plane_get(rs_ricochet *own, uint32_t r, uint32_t stagger, uint32_t flush_us, bool *any);
/* Frees what is in it if no group is left. */
void rs_lec_plane_put(rs_ricochet *own, rs_lec_plane *plane);

/* This node's group in a plane, nobody in it yet; NULL if out of memory. */
rs_lec_group *rs_lec_group_new(rs_ricochet *own, rs_lec_plane *plane, rs_message_group id);
/* Everybody must have left. */
void rs_lec_group_free(rs_ricochet *own, rs_lec_group *group);
/* Makes room so that rs_lec_join of that peer into one more group cannot fail. */
bool rs_lec_reserve(rs_ricochet *own, rs_lec_plane *plane, rs_peer peer);
void rs_lec_join(rs_lec_group *group, rs_peer peer);
void rs_lec_leave(rs_lec_group *group, rs_peer peer);
/* c in thousandths, and who is in the group besides this node: its neighbours' regions are to be reckoned again. */
void rs_lec_tune(rs_lec_group *group, uint32_t c_milli, const rs_peer *members, uint32_t count, rs_peer self);

/* Brings regions and bins up to date; costs only what changed. */
void rs_lec_settle(rs_ricochet *own, rs_lec_plane *plane);

static inline bool rs_lec_settled(const rs_lec_plane *plane) {
    return rs_list_empty(&plane->dirty_peers);
}

/* Algorithm 1 for one region: `groups` become sorted by rate, `level[i]` is the first of them in its i-th bin and
 * `rate[i]` what that bin chooses. Returns the number of bins, at most `count`. */
uint32_t rs_lec_algorithm(rs_lec_group **groups, uint32_t count, uint32_t *level, uint64_t *rate);

#endif
