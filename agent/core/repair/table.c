#include "core/repair/table.h"

#include "core/base/memory.h"
#include "core/base/wire.h"

#include <string.h>

/* Where no other source is named: test_table. */
#define CANDIDATES 512u      /* wanted rows looked at for a set, */
#define CANDIDATES_LEAST 96u /* and at least. The more receivers there are the fewer rows: */
#define CHOICE 16384u        /* rows by receivers: a choice costs about the same */
#define PART_LEAST 4u        /* rows of each receiver */
#define WEIGHT_BITS 3u       /* who wants most counts 7 times what one counts that wants next to nothing */

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

/* Bits of receivers' weights, each by what it wants: as in max-weight scheduling (Tassiulas and Ephremides, 1992), what
 * is served is worth most where most waits, so that nobody falls behind for ever where all could be served. */
typedef struct {
    uint64_t bit[WEIGHT_BITS][RS_REPAIR_WORDS];
} weights;

/* Rows that a set is chosen from. */
typedef struct {
    uint32_t count, row[CANDIDATES];
} candidates;

/* Receivers' bits while a set grows: those that miss one member, more than one; of the former, those that nothing is
 * under way for. */
typedef struct {
    uint64_t once[RS_REPAIR_WORDS], twice[RS_REPAIR_WORDS], gain[RS_REPAIR_WORDS];
    const weights *of;
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
        for (uint32_t bit = 0; bit < WEIGHT_BITS; bit++)
            gain += ones(served & g->of->bit[bit][i]) << bit;
    }
    return gain;
}

/* Somebody wants it who misses no member. */
static bool serves_more(const rs_repair_table *t, const growing *g, uint32_t row) {
    uint64_t more = 0;
    for (uint32_t i = 0; i < t->words; i++)
        more |= wanted_word(t, row, i) & ~g->once[i] & ~g->twice[i];
    return more != 0;
}

static void add(const rs_repair_table *t, growing *g, uint32_t row) {
    for (uint32_t i = 0; i < t->words; i++) {
        uint64_t lacking = lacking_word(t, row, i);
        g->twice[i] |= g->once[i] & lacking;
        g->once[i] = (g->once[i] | lacking) & ~g->twice[i];
        g->gain[i] = (g->gain[i] | wanted_word(t, row, i)) & g->once[i];
    }
}

/* The oldest, but no more of one receiver than its part: one that is far behind would take all places, and a set mends
 * one loss of each. */
static void find_candidates(const rs_repair_table *t, uint32_t wanting, candidates *out) {
    uint32_t has[RS_REPAIR_RECEIVERS] = {0}, most = CHOICE / t->receivers;
    most = most < CANDIDATES_LEAST ? CANDIDATES_LEAST : most > CANDIDATES ? CANDIDATES : most;
    uint32_t part = wanting < most / PART_LEAST ? most / wanting : PART_LEAST;
    uint64_t open[RS_REPAIR_WORDS];
    memset(open, 0xff, sizeof open);
    out->count = 0;
    for (uint32_t row = 0; row < t->count && out->count < most; row++) {
        uint64_t any = 0;
        for (uint32_t i = 0; i < t->words; i++)
            any |= wanted_word(t, row, i) & open[i];
        if (!any)
            continue;
        out->row[out->count++] = row;
        for (uint32_t i = 0; i < t->words; i++)
            for (uint64_t left = wanted_word(t, row, i); left; left &= left - 1) {
                uint32_t receiver = i * 64 + (uint32_t)__builtin_ctzll(left);
                if (++has[receiver] >= part)
                    open[i] &= ~(UINT64_C(1) << receiver % 64);
            }
    }
}

static void insert_member(rs_repair_set *s, uint32_t row) {
    uint32_t at = s->count++;
    for (; at && s->row[at - 1] > row; at--)
        s->row[at] = s->row[at - 1];
    s->row[at] = row;
}

/* The candidate with which most is gained, in increasing order of rows and no further than `far` from the last member;
 * `from->count` if none gains more than without it. The oldest is taken as it is, or it would wait for ever. Those that
 * can serve nobody any more are dropped. */
static uint32_t best_of(const rs_repair_table *t, const growing *g, const rs_repair_set *s, candidates *from,
                        uint64_t far, uint32_t *most) {
    uint32_t best = UINT32_MAX, kept = 0;
    uint64_t reach = s->count ? t->rows[s->row[s->count - 1]].sn + far : UINT64_MAX;
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t row = from->row[i];
        if (!serves_more(t, g, row))
            continue;
        from->row[kept++] = row;
        if (t->rows[row].sn > reach || (s->count == 0 && kept > 1))
            continue;
        uint32_t gain = gain_with(t, g, row);
        if (gain > *most) {
            *most = gain;
            best = kept - 1;
        }
    }
    from->count = kept;
    return best < kept ? best : kept;
}

static void grow(const rs_repair_table *t, const weights *of, const candidates *oldest, uint32_t most, uint64_t far,
                 rs_repair_set *out) {
    candidates from = *oldest;
    uint32_t gain = 0;
    growing g = {.of = of};
    *out = (rs_repair_set){0};
    while (from.count && out->count < most) {
        uint32_t best = best_of(t, &g, out, &from, far, &gain);
        if (best == from.count)
            break;
        add(t, &g, from.row[best]);
        insert_member(out, from.row[best]);
    }
    out->gain = gain;
    for (uint32_t i = 0; i < t->words; i++)
        out->served += ones(g.gain[i]);
    memcpy(out->serves, g.gain, sizeof out->serves);
}

/* Returns how many want anything. */
static uint32_t weigh(const rs_repair_table *t, weights *of) {
    uint32_t wanting = 0, heaviest = (1u << WEIGHT_BITS) - 1;
    uint64_t most = 0;
    for (uint32_t i = 0; i < t->receivers; i++) {
        wanting += t->of[i].wanted > 0;
        most = t->of[i].wanted > most ? t->of[i].wanted : most;
    }
    for (uint32_t i = 0; i < t->receivers; i++) {
        uint32_t weight = t->of[i].wanted ? (uint32_t)(t->of[i].wanted * heaviest / most) : 0;
        weight = t->of[i].wanted && weight == 0 ? 1 : weight;
        for (uint32_t bit = 0; bit < WEIGHT_BITS; bit++)
            of->bit[bit][i / 64] |= (uint64_t)(weight >> bit & 1) << i % 64;
    }
    return wanting;
}

bool rs_repair_pick(rs_repair_table *t, rs_repair_set *out) {
    candidates oldest = {0};
    weights of = {0};
    uint32_t wanting = weigh(t, &of);
    rs_repair_set near;
    if (wanting)
        find_candidates(t, wanting, &oldest);
    grow(t, &of, &oldest, RS_REPAIR_SPARSE, RS_REPAIR_FAR, out);
    if (out->count == RS_REPAIR_SPARSE && out->served < wanting) {
        grow(t, &of, &oldest, RS_COMBINE_MAX, RS_REPAIR_NEAR, &near);
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
