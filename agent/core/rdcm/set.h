/* A set of sequence numbers that grows from below: all under `cum`, and some in a window above it. What a receiver has,
 * what its successor has acknowledged, what some child has.
 *
 * The window is a ring of bits, which are 0 outside of it; or, over words that somebody else keeps, a plain bitmap. */
#ifndef RS_CORE_RDCM_SET_H
#define RS_CORE_RDCM_SET_H

#include "core/base/types.h"

typedef struct {
    uint64_t cum;  /* All below are members. */
    uint64_t top;  /* One past the highest member; at least `cum`. */
    uint64_t end;  /* Members are below. */
    uint64_t mask; /* The number of words in the ring - 1; UINT64_MAX: it is a plain bitmap. */
    uint64_t *words;
} rs_rdcm_set;

/* Over `words`, zero, of the caller: `count` (a power of 2) as a ring, or 0: all that `end` takes as a plain bitmap. */
void rs_rdcm_set_init(rs_rdcm_set *set, uint64_t end, uint64_t *words, uint64_t count);
bool rs_rdcm_set_has(const rs_rdcm_set *set, uint64_t sn);
bool rs_rdcm_set_fits(const rs_rdcm_set *set, uint64_t sn); /* it can be put in, now or because it is in */
bool rs_rdcm_set_add(rs_rdcm_set *set, uint64_t sn);        /* true if it is new; what does not fit is left out */
/* A bit of a plain bitmap was set by its owner. */
void rs_rdcm_set_note(rs_rdcm_set *set, uint64_t sn);
void rs_rdcm_set_raise(rs_rdcm_set *set, uint64_t cum); /* all below are members; of a ring only */
/* Membership of the 64 sns from 64 * index on. */
uint64_t rs_rdcm_set_word(const rs_rdcm_set *set, uint64_t index);
/* Puts them in as far as they fit; returns those that are new. The caller ends with rs_rdcm_set_settle. */
uint64_t rs_rdcm_set_or(rs_rdcm_set *set, uint64_t index, uint64_t bits);
void rs_rdcm_set_settle(rs_rdcm_set *set);
uint32_t rs_rdcm_bits(uint64_t word); /* how many are 1 */

#endif
