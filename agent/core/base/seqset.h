/* A set of sequence numbers [0, size) as a bitmap: which fragments are here, which are asked for. */
#ifndef RS_CORE_SEQSET_H
#define RS_CORE_SEQSET_H

#include "core/base/types.h"

typedef struct {
    uint64_t size;
    uint64_t count;  /* members */
    uint64_t *words; /* owned by the caller: rs_seqset_words(size) of them, zero at first */
} rs_seqset;

size_t rs_seqset_words(uint64_t size);
void rs_seqset_init(rs_seqset *set, uint64_t size, uint64_t *words);

bool rs_seqset_has(const rs_seqset *set, uint64_t sn);                     /* false beyond the size */
bool rs_seqset_add(rs_seqset *set, uint64_t sn);                           /* true if it is new */
uint64_t rs_seqset_add_range(rs_seqset *set, uint64_t from, uint64_t end); /* how many were new; 64 sns a step */
bool rs_seqset_remove(rs_seqset *set, uint64_t sn);                        /* true if it was a member */
void rs_seqset_clear(rs_seqset *set);

/* First sn in [from, end) that is in none of the two sets of the same size (`other` may be NULL); `end` if there is
 * none. 64 sns a step. */
uint64_t rs_seqset_next_absent(const rs_seqset *set, const rs_seqset *other, uint64_t from, uint64_t end);
/* First sn in [from, end) that is in one of them; `end` if there is none. */
uint64_t rs_seqset_next_present(const rs_seqset *set, const rs_seqset *other, uint64_t from, uint64_t end);

#endif
