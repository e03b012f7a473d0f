#include "core/repair/table.h"

#include "core/base/memory.h"
#include "core/base/wire.h"

#include <string.h>

/* Where no other source is named: test_table. */
#define CANDIDATES 96u /* wanted rows looked at for a set */
#define NEED 1u        /* how much more those count who want most */

enum { MISSING, FLYING, PATCHED, PLANES };

static uint64_t *plane(const rs_repair_table *t, uint32_t row, uint32_t which) {
    return t->planes + ((size_t)row * PLANES + which) * t->words;
}

static bool has(const rs_repair_table *t, uint32_t row, uint32_t which, uint32_t receiver) {
    return plane(t, row, which)[receiver / 64] >> receiver % 64 & 1;
}

static void set(rs_repair_table *t, uint32_t row, uint32_t which, uint32_t receiver) {
    plane(t, row, which)[receiver / 64] |= UINT64_C(1) << receiver % 64;
}

static void unset(rs_repair_table *t, uint32_t row, uint32_t which, uint32_t receiver) {
    plane(t, row, which)[receiver / 64] &= ~(UINT64_C(1) << receiver % 64);
}

/* They will lack it when the next repair comes: what flies to them will most likely be there by then. */
static uint64_t lacking_word(const rs_repair_table *t, uint32_t row, uint32_t word) {
    const uint64_t *p = plane(t, row, MISSING);
    return p[word] & ~p[FLYING * t->words + word];
}

static uint64_t wanted_word(const rs_repair_table *t, uint32_t row, uint32_t word) {
    const uint64_t *p = plane(t, row, MISSING);
    return p[word] & ~p[FLYING * t->words + word] & ~p[PATCHED * t->words + word];
}

rs_status rs_repair_table_init(rs_repair_table *t, const rs_allocator *a, uint32_t receivers) {
    *t = (rs_repair_table){.receivers = receivers, .words = (receivers + 63) / 64, .capacity = RS_REPAIR_ROWS};
    if (receivers == 0 || receivers > RS_REPAIR_RECEIVERS)
        return RS_ERR_LIMIT;
    t->share = t->capacity / (receivers < 4 ? receivers : 4);
    t->rows = rs_memory_take(a, t->capacity * sizeof *t->rows);
    t->planes = rs_memory_take(a, (size_t)t->capacity * PLANES * t->words * sizeof *t->planes);
    t->of = rs_memory_take(a, receivers * sizeof *t->of);
    if (t->rows && t->planes && t->of)
        return RS_OK;
    rs_repair_table_free(t, a);
    return RS_ERR_MEMORY;
}

void rs_repair_table_free(rs_repair_table *t, const rs_allocator *a) {
    void *memory[] = {t->rows, t->planes, t->of};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        rs_memory_give(a, memory[i]);
    *t = (rs_repair_table){0};
}

/* The first row of at least that sn. */
static uint32_t find(const rs_repair_table *t, uint64_t sn) {
    uint32_t low = 0, high = t->count;
    if (high && t->rows[high - 1].sn < sn)
        return high; /* the usual case: losses are found in increasing order */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (t->rows[middle].sn < sn)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_dead(const rs_repair_table *t, uint32_t row) {
    const uint64_t *missing = plane(t, row, MISSING);
    for (uint32_t i = 0; i < t->words; i++)
        if (missing[i])
            return false;
    return true;
}

static void compact(rs_repair_table *t) {
    uint32_t kept = 0;
    size_t stride = (size_t)PLANES * t->words;
    for (uint32_t i = 0; i < t->count; i++) {
        if (is_dead(t, i))
            continue;
        if (kept != i) {
            t->rows[kept] = t->rows[i];
            memcpy(t->planes + kept * stride, t->planes + i * stride, stride * sizeof *t->planes);
        }
        kept++;
    }
    t->count = kept;
    t->dead = 0;
}

static void open_row(rs_repair_table *t, uint32_t at, uint64_t sn, rs_time now) {
    size_t stride = (size_t)PLANES * t->words;
    memmove(&t->rows[at + 1], &t->rows[at], (t->count - at) * sizeof *t->rows);
    memmove(t->planes + (at + 1) * stride, t->planes + at * stride, (t->count - at) * stride * sizeof *t->planes);
    memset(t->planes + at * stride, 0, stride * sizeof *t->planes);
    t->rows[at] = (rs_repair_row){.sn = sn, .since = now};
    t->count++;
}

static void wanted_changes(rs_repair_table *t, uint32_t receiver, int by) {
    t->of[receiver].wanted += (uint32_t)by;
    t->wanted += (uint64_t)(int64_t)by;
}

bool rs_repair_want(rs_repair_table *t, rs_time now, uint32_t receiver, uint64_t sn) {
    rs_repair_of *of = &t->of[receiver];
    uint32_t at = find(t, sn);
    bool known = at < t->count && t->rows[at].sn == sn;
    if (known && has(t, at, MISSING, receiver))
        return true;
    if (of->missing >= t->share)
        return false;
    if (!known) {
        if (t->count == t->capacity && t->dead) {
            compact(t);
            at = find(t, sn);
        }
        if (t->count == t->capacity)
            return false;
        open_row(t, at, sn, now);
    } else if (is_dead(t, at)) {
        t->dead--;
        t->rows[at].since = now;
    }
    set(t, at, MISSING, receiver);
    of->missing++;
    of->told++;
    of->gone = false;
    wanted_changes(t, receiver, 1);
    return true;
}

static void came(rs_repair_table *t, uint32_t row, uint32_t receiver) {
    bool flying = has(t, row, FLYING, receiver), patched = has(t, row, PATCHED, receiver);
    if (!flying && !patched)
        wanted_changes(t, receiver, -1);
    t->mended += flying;
    unset(t, row, MISSING, receiver);
    unset(t, row, FLYING, receiver);
    unset(t, row, PATCHED, receiver);
    t->of[receiver].missing--;
    t->dead += is_dead(t, row);
}

static bool told_missing(const rs_repair_told *told, uint64_t sn) {
    if (sn < told->base || sn - told->base >= told->bits)
        return false;
    uint64_t bit = sn - told->base;
    return told->map[bit / 8] >> bit % 8 & 1;
}

void rs_repair_tell(rs_repair_table *t, rs_time now, uint32_t receiver, const rs_repair_told *told) {
    uint64_t end = told->last ? UINT64_MAX : told->base + told->bits;
    for (uint32_t i = find(t, told->from); i < t->count && t->rows[i].sn < end; i++) {
        if (!has(t, i, MISSING, receiver))
            continue;
        if (!told_missing(told, t->rows[i].sn)) {
            came(t, i, receiver);
        } else if (has(t, i, FLYING, receiver) && t->rows[i].number <= told->number) {
            unset(t, i, FLYING, receiver); /* it was lost, or of no use */
            wanted_changes(t, receiver, 1);
        }
    }
    for (uint32_t byte = 0; byte < (told->bits + 7) / 8; byte++)
        for (uint32_t left = told->map[byte]; left; left &= left - 1)
            if (!rs_repair_want(t, now, receiver, told->base + byte * 8 + (uint32_t)__builtin_ctz(left)))
                return;
    if (t->dead > t->count / 2)
        compact(t);
}

void rs_repair_forget(rs_repair_table *t, uint32_t receiver, bool complete) {
    uint64_t mended = t->mended;
    for (uint32_t i = 0; t->of[receiver].missing && i < t->count; i++)
        if (has(t, i, MISSING, receiver))
            came(t, i, receiver);
    if (!complete)
        t->mended = mended;
    t->of[receiver].gone = true;
    compact(t);
}

/* Receivers' bits while a set grows: those that miss one member, more than one; of the former, those that nothing is
 * under way for. */
typedef struct {
    uint64_t once[RS_REPAIR_WORDS], twice[RS_REPAIR_WORDS], gain[RS_REPAIR_WORDS];
    uint64_t needy[RS_REPAIR_WORDS]; /* those who want most, and so decide how many repairs it takes */
} growing;

static uint32_t ones(uint64_t word) {
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(word * UINT64_C(0x0101010101010101) >> 56);
}

static uint32_t gain_with(const rs_repair_table *t, const growing *g, uint32_t row) {
    uint32_t gain = 0;
    for (uint32_t i = 0; i < t->words; i++) {
        uint64_t twice = g->twice[i] | (g->once[i] & lacking_word(t, row, i));
        uint64_t served = (g->gain[i] | wanted_word(t, row, i)) & ~twice;
        gain += ones(served) + NEED * ones(served & g->needy[i]);
    }
    return gain;
}

static void add(const rs_repair_table *t, growing *g, uint32_t row) {
    for (uint32_t i = 0; i < t->words; i++) {
        uint64_t lacking = lacking_word(t, row, i);
        g->twice[i] |= g->once[i] & lacking;
        g->once[i] = (g->once[i] | lacking) & ~g->twice[i];
        g->gain[i] = (g->gain[i] | wanted_word(t, row, i)) & g->once[i];
    }
}

static uint32_t find_candidates(const rs_repair_table *t, uint32_t out[CANDIDATES]) {
    uint32_t found = 0;
    for (uint32_t row = 0; row < t->count && found < CANDIDATES; row++) {
        uint64_t any = 0;
        for (uint32_t i = 0; i < t->words; i++)
            any |= wanted_word(t, row, i);
        if (any)
            out[found++] = row;
    }
    return found;
}

static void insert_member(rs_repair_set *s, uint32_t row) {
    uint32_t at = s->count++;
    for (; at && s->row[at - 1] > row; at--)
        s->row[at] = s->row[at - 1];
    s->row[at] = row;
}

/* The candidate with which most are served, in increasing order of rows and no further than `far` from the last
 * member; `left` if none serves more than without it. The first set's oldest is taken as it is, or it would wait for
 * ever. */
static uint32_t best_of(const rs_repair_table *t, const growing *g, const rs_repair_set *s, const uint32_t *candidate,
                        uint32_t left, uint64_t far, uint32_t *most) {
    uint32_t best = left;
    uint64_t reach = s->count ? t->rows[s->row[s->count - 1]].sn + far : 0;
    for (uint32_t i = 0; i < left; i++) {
        if (s->count && t->rows[candidate[i]].sn > reach)
            break;
        uint32_t gain = gain_with(t, g, candidate[i]);
        if (gain > *most) {
            *most = gain;
            best = i;
        }
        if (s->count == 0)
            break;
    }
    return best;
}

static void grow(const rs_repair_table *t, const uint64_t *needy, const uint32_t *from, uint32_t left, uint32_t most,
                 uint64_t far, rs_repair_set *out) {
    uint32_t candidate[CANDIDATES], gain = 0;
    growing g = {0};
    *out = (rs_repair_set){0};
    memcpy(g.needy, needy, sizeof g.needy);
    memcpy(candidate, from, left * sizeof *from);
    while (left && out->count < most) {
        uint32_t best = best_of(t, &g, out, candidate, left, far, &gain);
        if (best == left)
            break;
        add(t, &g, candidate[best]);
        insert_member(out, candidate[best]);
        memmove(&candidate[best], &candidate[best + 1], (--left - best) * sizeof candidate[0]);
    }
    out->gain = gain;
    for (uint32_t i = 0; i < t->words; i++)
        out->served += ones(g.gain[i]);
    memcpy(out->serves, g.gain, sizeof out->serves);
}

/* Returns how many want anything. */
static uint32_t find_needy(const rs_repair_table *t, uint64_t needy[RS_REPAIR_WORDS]) {
    uint32_t wanting = 0, most = 0;
    for (uint32_t i = 0; i < t->receivers; i++) {
        wanting += t->of[i].wanted > 0;
        most = t->of[i].wanted > most ? t->of[i].wanted : most;
    }
    for (uint32_t i = 0; i < t->receivers; i++)
        if (t->of[i].wanted > most / 4 * 3)
            needy[i / 64] |= UINT64_C(1) << i % 64;
    return wanting;
}

bool rs_repair_pick(rs_repair_table *t, rs_repair_set *out) {
    uint32_t candidate[CANDIDATES];
    uint64_t needy[RS_REPAIR_WORDS] = {0};
    uint32_t left = t->wanted ? find_candidates(t, candidate) : 0, wanting = find_needy(t, needy);
    rs_repair_set near;
    grow(t, needy, candidate, left, RS_REPAIR_SPARSE, RS_REPAIR_FAR, out);
    if (out->count == RS_REPAIR_SPARSE && out->served < wanting) {
        grow(t, needy, candidate, left, RS_COMBINE_MAX, RS_REPAIR_NEAR, &near);
        if (near.gain > out->gain)
            *out = near;
    }
    out->full = out->count == RS_COMBINE_MAX || (out->count == RS_REPAIR_SPARSE && out->served < wanting);
    for (uint32_t i = 0; i < out->count; i++) {
        const rs_repair_row *row = &t->rows[out->row[i]];
        out->sn[i] = row->sn;
        if (i == 0 || row->since < out->since)
            out->since = row->since;
    }
    return out->count > 0;
}

static void under_way(rs_repair_table *t, const rs_repair_set *s, uint32_t which, uint32_t number) {
    for (uint32_t m = 0; m < s->count; m++) {
        uint32_t row = s->row[m];
        if (number)
            t->rows[row].number = number;
        for (uint32_t i = 0; i < t->words; i++)
            for (uint64_t left = s->serves[i] & wanted_word(t, row, i); left; left &= left - 1) {
                uint32_t receiver = i * 64 + (uint32_t)__builtin_ctzll(left);
                set(t, row, which, receiver);
                wanted_changes(t, receiver, -1);
            }
    }
}

void rs_repair_sent(rs_repair_table *t, const rs_repair_set *s, uint32_t number) {
    under_way(t, s, FLYING, number);
}

void rs_repair_patched(rs_repair_table *t, const rs_repair_set *s) {
    under_way(t, s, PATCHED, 0);
}
