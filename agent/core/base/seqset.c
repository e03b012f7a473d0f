#include "core/base/seqset.h"

#include <string.h>

size_t rs_seqset_words(uint64_t size) {
    return (size_t)((size + 63) / 64);
}

void rs_seqset_init(rs_seqset *set, uint64_t size, uint64_t *words) {
    *set = (rs_seqset){.size = size, .words = words};
}

bool rs_seqset_has(const rs_seqset *set, uint64_t sn) {
    return sn < set->size && (set->words[sn / 64] >> (sn % 64) & 1);
}

bool rs_seqset_add(rs_seqset *set, uint64_t sn) {
    uint64_t bit = UINT64_C(1) << (sn % 64);
    if (sn >= set->size || (set->words[sn / 64] & bit))
        return false;
    set->words[sn / 64] |= bit;
    set->count++;
    return true;
}

/* Pairs, nibbles, bytes. The compiler's own may be a call into its library, and the core calls nothing. */
static uint64_t bits(uint64_t word) {
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return word * UINT64_C(0x0101010101010101) >> 56;
}

uint64_t rs_seqset_add_range(rs_seqset *set, uint64_t from, uint64_t end) {
    uint64_t fresh = 0;
    end = end < set->size ? end : set->size;
    while (from < end) {
        uint64_t count = 64 - from % 64 < end - from ? 64 - from % 64 : end - from;
        uint64_t mask = (count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1) << (from % 64);
        fresh += bits(mask & ~set->words[from / 64]);
        set->words[from / 64] |= mask;
        from += count;
    }
    set->count += fresh;
    return fresh;
}

bool rs_seqset_remove(rs_seqset *set, uint64_t sn) {
    if (!rs_seqset_has(set, sn))
        return false;
    set->words[sn / 64] &= ~(UINT64_C(1) << (sn % 64));
    set->count--;
    return true;
}

void rs_seqset_clear(rs_seqset *set) {
    if (set->count)
        memset(set->words, 0, rs_seqset_words(set->size) * sizeof *set->words);
    set->count = 0;
}

/* First bit at or after `from` whose value in (set | other) XOR `flip` is 1. */
static uint64_t next(const rs_seqset *set, const rs_seqset *other, uint64_t flip, uint64_t from, uint64_t end) {
    if (end > set->size)
        end = set->size;
    while (from < end) {
        uint64_t word = set->words[from / 64];
        if (other)
            word |= other->words[from / 64];
        word = (word ^ flip) >> (from % 64);
        if (word) {
            from += (uint64_t)__builtin_ctzll(word);
            return from < end ? from : end;
        }
        from = (from / 64 + 1) * 64;
    }
    return end;
}

uint64_t rs_seqset_next_absent(const rs_seqset *set, const rs_seqset *other, uint64_t from, uint64_t end) {
    return next(set, other, UINT64_MAX, from, end);
}

uint64_t rs_seqset_next_present(const rs_seqset *set, const rs_seqset *other, uint64_t from, uint64_t end) {
    return next(set, other, 0, from, end);
}
