#include "core/rdcm/set.h"

#define PLAIN UINT64_MAX

void rs_rdcm_set_init(rs_rdcm_set *set, uint64_t end, uint64_t *words, uint64_t count) {
    *set = (rs_rdcm_set){.end = end, .mask = count ? count - 1 : PLAIN, .words = words};
}

static uint64_t *word_of(const rs_rdcm_set *set, uint64_t index) {
    return &set->words[index & set->mask];
}

bool rs_rdcm_set_fits(const rs_rdcm_set *set, uint64_t sn) {
    return sn < set->end && (sn < set->cum || sn / 64 - set->cum / 64 <= set->mask);
}

bool rs_rdcm_set_has(const rs_rdcm_set *set, uint64_t sn) {
    return sn < set->cum || (sn < set->top && (*word_of(set, sn / 64) >> (sn % 64) & 1));
}

/* Moves `cum` over members; words of a ring that it leaves behind become 0. */
void rs_rdcm_set_settle(rs_rdcm_set *set) {
    while (set->cum < set->top) {
        uint64_t *word = word_of(set, set->cum / 64);
        uint64_t absent = ~(*word >> (set->cum % 64));
        unsigned members = absent ? (unsigned)__builtin_ctzll(absent) : 64;
        set->cum += members;
        if (members == 0 || set->cum % 64)
            return;
        if (set->mask != PLAIN)
            *word = 0;
    }
}

void rs_rdcm_set_note(rs_rdcm_set *set, uint64_t sn) {
    if (sn >= set->top)
        set->top = sn + 1;
    if (sn == set->cum)
        rs_rdcm_set_settle(set);
}

bool rs_rdcm_set_add(rs_rdcm_set *set, uint64_t sn) {
    if (!rs_rdcm_set_fits(set, sn) || rs_rdcm_set_has(set, sn))
        return false;
    *word_of(set, sn / 64) |= UINT64_C(1) << (sn % 64);
    rs_rdcm_set_note(set, sn);
    return true;
}

void rs_rdcm_set_raise(rs_rdcm_set *set, uint64_t cum) {
    cum = cum < set->end ? cum : set->end;
    if (cum <= set->cum)
        return;
    for (uint64_t index = set->cum / 64, left = set->mask + 1; index < cum / 64 && left > 0; index++, left--)
        *word_of(set, index) = 0;
    set->cum = cum;
    if (set->top < cum)
        set->top = cum;
    rs_rdcm_set_settle(set);
}

uint64_t rs_rdcm_set_word(const rs_rdcm_set *set, uint64_t index) {
    uint64_t base = index * 64;
    if (base + 64 <= set->cum)
        return UINT64_MAX;
    if (base >= set->top)
        return 0;
    uint64_t below = set->cum > base ? (UINT64_C(1) << (set->cum - base)) - 1 : 0;
    if (set->cum == set->top)
        return below;
    return *word_of(set, index) | below;
}

/* Pairs, nibbles, bytes. The compiler's own may be a call into its library, and the core calls nothing. */
uint32_t rs_rdcm_bits(uint64_t word) {
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(word * UINT64_C(0x0101010101010101) >> 56);
}

uint64_t rs_rdcm_set_or(rs_rdcm_set *set, uint64_t index, uint64_t bits) {
    uint64_t base = index * 64;
    if (base + 64 <= set->cum || base >= set->end || index - set->cum / 64 > set->mask)
        return 0;
    if (set->end - base < 64)
        bits &= (UINT64_C(1) << (set->end - base)) - 1;
    uint64_t fresh = bits & ~rs_rdcm_set_word(set, index);
    if (fresh == 0)
        return 0;
    *word_of(set, index) |= fresh;
    uint64_t top = base + 64 - (uint64_t)__builtin_clzll(fresh);
    if (top > set->top)
        set->top = top;
    return fresh;
}
