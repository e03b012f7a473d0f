/* The end of an object goes a second time as XORs, before anybody can ask for what was lost of it: a lost fragment that
 * is asked for costs everybody a round trip (docs/wan.md, "Sections"). Each pass has every fragment in one XOR, with
 * others than the pass before; a receiver takes from an XOR the one that it misses, and a pass mends most of what the
 * one before could not. By multicast that is always done, without `coded`; nothing waits for it but repairs that nobody
 * has asked for. Before each pass the last fragment goes as it was, so that who has missed it knows that there was one;
 * an object of one fragment goes twice more. */
#ifndef RS_CORE_WAN_TAIL_H
#define RS_CORE_WAN_TAIL_H

#include "core/base/types.h"

/* All zero: nothing is left to go. */
typedef struct {
    uint64_t first, end; /* These fragments; they are cut into blocks, of which... */
    uint32_t rows;       /* ...an XOR has so many fragments, one of each row, */
    uint32_t columns;    /* which are so long. */
    uint32_t passes;     /* So many are to go, */
    uint64_t at;         /* and so many of their packets went. */
} rs_wan_tail;

/* `lost`: the share of packets that is lost on the way to the worst receiver. */
void rs_wan_tail_begin(rs_wan_tail *tail, uint64_t first, uint64_t end, double lost);
bool rs_wan_tail_left(const rs_wan_tail *tail);
/* The fragments of the next packet, in increasing order; one: it goes as it is. 0: nothing is left. */
uint32_t rs_wan_tail_next(rs_wan_tail *tail, uint64_t member[RS_COMBINE_MAX]);

#endif
