/* Messages of a group in total order that are kept for who wants them later (docs/guarantees.md, Replay), sans-IO:
 * records one behind the other in segments of memory, which the caller gives: mapped files, or memory alone.
 *
 * A record, little-endian: magic u16, version u8, length of the name u8, length of the message u32, XXH64 u64 of all
 * behind it, time u64 (wall clock, ns, when it was given out), number u64, view u64, sender u32 (its address), zero
 * u32, the name of the sender's server, the message. Records of a segment are numbered without a gap; a zero ends
 * them. */
#ifndef RS_CORE_ORDER_HISTORY_H
#define RS_CORE_ORDER_HISTORY_H

#include "core/base/types.h"

#define RS_HISTORY_HEAD 48u
#define RS_HISTORY_SEGMENTS_MOST 4096u

typedef struct rs_history rs_history;

typedef struct {
    uint64_t number; /* from 1, the same at all members */
    uint64_t view;   /* that it was given out in */
    uint64_t time;   /* wall clock, ns, at whoever kept it first */
    rs_peer sender;
    const char *name; /* of the sender's server; not ended by a NUL */
    uint32_t name_length;
    const uint8_t *bytes;
    uint32_t length;
} rs_history_record;

typedef struct {
    uint64_t bytes;         /* most that all segments take; while `pin` holds back, twice as much */
    uint64_t age;           /* ns; older ones are not kept; 0: any age */
    uint32_t segment_bytes; /* of a segment, if no record needs a larger one */
    /* Zeroed memory for a segment whose first record is `first`; NULL: there is none. */
    void *(*take)(void *context, uint64_t first, size_t bytes);
    /* A segment is used no more; `drop`: nor at another time. */
    void (*give)(void *context, uint64_t first, void *memory, size_t bytes, bool drop);
    void *context;
} rs_history_config;

/* NULL: out of memory. */
rs_history *rs_history_new(const rs_history_config *config, const rs_allocator *allocator);
void rs_history_free(rs_history *history);
/* What was kept before, and may have been torn by a crash: what is whole of it stays, and what is behind is zeroed.
 * Returns how many records; 0: nothing of it, or it overlaps others, and the caller has the memory again. */
uint32_t rs_history_load(rs_history *history, uint64_t first, void *memory, size_t bytes);
/* RS_ERR_STATE: that number is there. RS_ERR_LIMIT: it is older than what is kept, or there is no memory for more.
 * `wall`: now. `pin`: what is needed from there on stays a while longer; UINT64_MAX: nothing is. */
rs_status rs_history_add(rs_history *history, const rs_history_record *record, uint64_t wall, uint64_t pin);
/* Drops what is too old. */
void rs_history_trim(rs_history *history, uint64_t wall);
/* All behind that number is dropped. */
void rs_history_cut(rs_history *history, uint64_t number);
/* The first record with that number or a larger one; valid until the next change. */
bool rs_history_find(const rs_history *history, uint64_t number, rs_history_record *out);
/* The first one that is not older. */
bool rs_history_since(const rs_history *history, uint64_t time, rs_history_record *out);
/* The bytes of the records from that number on without a gap: at least one, and more up to `most` bytes, as many as are
 * in one segment. NULL: it is not there. */
const uint8_t *rs_history_raw(const rs_history *history, uint64_t number, size_t most, size_t *length);
/* The first number from `from` to `to` that is not there; 0: all are. */
uint64_t rs_history_missing(const rs_history *history, uint64_t from, uint64_t to);
uint64_t rs_history_first(const rs_history *history); /* 0: nothing is kept */
uint64_t rs_history_last(const rs_history *history);
uint64_t rs_history_bytes(const rs_history *history); /* that segments take */
/* Of a record that was given out by any member: all but the time. 0: it is not there. */
uint64_t rs_history_digest(const rs_history *history, uint64_t number);
/* The first number kept of the view that the record is of, without a gap before it. */
uint64_t rs_history_view_first(const rs_history *history, uint64_t number);
/* One record at the front of `bytes`; its length, 0: it is none, or not whole. */
size_t rs_history_parse(const uint8_t *bytes, size_t length, rs_history_record *out);

#endif
