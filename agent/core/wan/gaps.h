/* At a relay that sends an object to another one while it comes: what goes beyond its gaps, and what is left out for
 * that. Fragments that are not here at their turn are passed over; each goes as a repair as soon as it is here. So a
 * relay, and each behind it, waits for no section's repair (docs/wan.md, "Sites"). */
#ifndef RS_CORE_WAN_GAPS_H
#define RS_CORE_WAN_GAPS_H

#include "core/transfer/state.h"
#include "core/wan/wire.h"

#define RS_WAN_GAP_SECTIONS 64 /* so far beyond the first gap it may go (a bound) */
#define RS_WAN_GAP_RECENT 256  /* fragments that went late of which is known when (a bound) */

/* All zero at first. */
typedef struct {
    uint64_t *words;    /* Of both sets; NULL: nothing was passed over so far. */
    bool off;           /* There was no memory for them: only what has no gap before it goes. */
    rs_seqset passed;   /* Fragments that were passed over at their turn, */
    rs_seqset left;     /* and those of them that have not gone yet: */
    uint64_t from, end; /* none before `from`, and none from `end` on. */
    uint64_t look_from; /* None of those left before that one is here, as far as is known. */
    struct {
        uint64_t sn;  /* It went late... */
        rs_time when; /* ...then. */
    } recent[RS_WAN_GAP_RECENT];
    uint64_t recent_count; /* So many ever did. */
} rs_wan_gaps;

void rs_wan_gaps_free(rs_wan_gaps *g, const rs_allocator *allocator);
/* The first from `sn` on, and before `end`, that is here; `end`: none is, or it is too far beyond the first gap. */
uint64_t rs_wan_gaps_next(const rs_wan_gaps *g, const rs_node *node, const rs_sending *x, uint64_t sn, uint64_t end);
/* The turn of [sn, here) is over. False: no memory, and they keep it. */
bool rs_wan_gaps_pass(rs_wan_gaps *g, const rs_node *node, const rs_sending *x, uint64_t sn, uint64_t here);
/* More may be here than before. */
void rs_wan_gaps_grown(rs_wan_gaps *g);
/* The first of those left that is here; UINT64_MAX: none is. */
uint64_t rs_wan_gaps_late(rs_wan_gaps *g, const rs_node *node, const rs_sending *x);
/* That one goes now. */
void rs_wan_gaps_went(rs_wan_gaps *g, rs_time now, uint64_t sn);
bool rs_wan_gaps_has(const rs_wan_gaps *g, uint64_t sn);
/* So many of [from, end) were passed over at their turn. */
uint64_t rs_wan_gaps_count(const rs_wan_gaps *g, uint64_t from, uint64_t end);
/* Takes out of a NACK what has not gone yet, or went within `moot` before: whoever said it could not know. */
void rs_wan_gaps_excuse(const rs_wan_gaps *g, rs_time now, rs_time moot, rs_wan_nack *nack);

#endif
