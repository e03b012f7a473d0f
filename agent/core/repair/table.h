/* Which receivers miss which fragments, at the sender, and which fragments to combine so that one repair packet mends a
 * different loss at each of many receivers.
 *
 * A repair is the XOR of some fragments. It helps a receiver that misses exactly one of them: what the sender knows of
 * each receiver's losses is side information, as in index coding (Birk and Kol, 1998). Sets are built greedily.
 *
 * A row per fragment that somebody misses, in order of sn; in it a bit per receiver and plane: misses it; a repair for
 * it is under way; a patch for it is. Rows have a fixed cap: receivers tell again what found no room. */
#ifndef RS_CORE_REPAIR_TABLE_H
#define RS_CORE_REPAIR_TABLE_H

#include "core/base/types.h"

/* Bounds: others of that order would do. */
#define RS_REPAIR_ROWS 4096u      /* fragments remembered */
#define RS_REPAIR_RECEIVERS 1024u /* more are patched one by one */
#define RS_REPAIR_WORDS (RS_REPAIR_RECEIVERS / 64)

typedef struct {
    uint64_t sn;     /* the fragment */
    rs_time since;   /* first heard of */
    uint32_t number; /* of the newest repair packet it went out in; 0 = none */
} rs_repair_row;

typedef struct {
    uint32_t wanted;  /* rows that nothing is under way for */
    uint32_t missing; /* all rows */
    uint64_t told;    /* losses heard of, ever */
    bool gone;        /* whole, or not repaired here any longer */
} rs_repair_of;

typedef struct {
    uint32_t receivers, words;      /* how many; 64-bit words of a set of them */
    uint32_t capacity, count, dead; /* rows; those of `count` that nobody misses any more */
    uint32_t share;                 /* rows one receiver may have */
    uint64_t wanted;                /* sum of all receivers' */
    uint64_t mended;                /* losses that a repair packet mended */
    rs_repair_row *rows;
    uint64_t *planes; /* per row: missing, flying, patched; `words` each */
    rs_repair_of *of; /* per receiver */
} rs_repair_table;

/* A set of fragments to combine. */
typedef struct {
    uint32_t count;               /* members */
    uint32_t row[RS_COMBINE_MAX]; /* in increasing order, as the sns are */
    uint64_t sn[RS_COMBINE_MAX];
    bool full;                        /* it has as many members as a packet can name */
    uint32_t gain;                    /* what it was chosen by */
    uint32_t served;                  /* receivers for whom it is new and of use */
    uint64_t serves[RS_REPAIR_WORDS]; /* they */
    rs_time since;                    /* of its oldest fragment */
} rs_repair_set;

/* What a receiver said is missing (PTCH_MAP): nothing in [from, base), in [base, base + bits) what `map` says; nothing
 * beyond either if `last`. `number` is the newest repair packet it saw. */
typedef struct {
    uint64_t from, base;   /* where what is said, and where `map`, begins */
    uint32_t bits, number; /* length of `map`; see above */
    bool last;             /* nothing beyond is missing */
    const uint8_t *map;    /* bit i: base + i is missing */
} rs_repair_told;

rs_status rs_repair_table_init(rs_repair_table *table, const rs_allocator *allocator, uint32_t receivers);
void rs_repair_table_free(rs_repair_table *table, const rs_allocator *allocator);

/* The receiver misses sn. False if there is no room to remember it. */
bool rs_repair_want(rs_repair_table *table, rs_time now, uint32_t receiver, uint64_t sn);
void rs_repair_tell(rs_repair_table *table, rs_time now, uint32_t receiver, const rs_repair_told *told);
/* The receiver has everything (`whole`), or is no longer repaired here. */
void rs_repair_forget(rs_repair_table *table, uint32_t receiver, bool complete);

/* A good set with the oldest wanted fragment in it. False if nothing is wanted. */
bool rs_repair_pick(rs_repair_table *table, rs_repair_set *out);
/* The set goes out as repair packet `number`; nothing was changed since it was picked. */
void rs_repair_sent(rs_repair_table *table, const rs_repair_set *set, uint32_t number);
/* The same, but each receiver it serves gets its fragment by a patch. */
void rs_repair_patched(rs_repair_table *table, const rs_repair_set *set);

#endif
