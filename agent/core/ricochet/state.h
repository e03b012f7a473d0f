/* What Ricochet remembers of a node: made with the node, its files' alone. */
#ifndef RS_CORE_RICOCHET_STATE_H
#define RS_CORE_RICOCHET_STATE_H

#include "core/groups/state.h"
#include "core/ricochet/options.h"
#include "core/ricochet/regions.h"
#include "core/ricochet/wire.h"

/* Options of its groups, in the order of the table of ricochet.c. */
enum { RS_RICOCHET_R, RS_RICOCHET_C, RS_RICOCHET_STAGGER, RS_RICOCHET_NAKS, RS_RICOCHET_FLUSH };

static inline uint32_t rs_ricochet_option(const rs_gm_group *group, uint32_t which) {
    return group->option[which] / 1000;
}

/* A repair that cannot be used yet; `link` joins it to each packet it waits for. */
typedef struct rs_ricochet_pending rs_ricochet_pending;

typedef struct {
    rs_list in_missing;
    rs_ricochet_pending *kept;
    uint32_t missing;
} rs_ricochet_link;

struct rs_ricochet_pending {
    rs_list order; /* Oldest first, or ready, or free. */
    uint32_t count, length;
    rs_ricochet_link link[RS_RICOCHET_R_MAX]; /* The first `count`, by increasing number. */
    uint8_t *bytes;                           /* The XOR of the missing packets' bodies. */
};

struct rs_ricochet {
    rs_messages *node;
    rs_ricochet_config config; /* Without zeros, but for `flush`. */
    rs_lec_plane planes[RS_LEC_PLANES];
    uint64_t regions, bins; /* How many there are now. */
    rs_lec_group *prepared; /* Made for a view that is about to hold. */

    rs_list repairs; /* Repairs that wait to be sent, */
    rs_list handed;  /* were given out, until the next call, */
    rs_list free;    /* or are free. */
    uint32_t repairs_waiting;
    void **chunks; /* Of memory for repairs. */
    uint32_t chunk_count;

    rs_ricochet_pending *kept; /* kept_repairs of them. */
    uint32_t kept_used;
    rs_list kept_order, kept_ready, kept_free;
    uint8_t *scratch; /* A datagram made out of a repair. */

    struct {
        uint64_t made, sent, dropped; /* XORs completed; datagrams, one for each target; no buffer, or a full queue. */
        uint64_t received, useless, used, kept, combined;
        uint64_t xors; /* Packets XORed into repairs being made. */
    } stats;
};

#endif
