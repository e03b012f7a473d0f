#include "engine/calendar.h"

#include <stdlib.h>
#include <string.h>

#define WAYS 4
#define SLOT_NS_LOG2 10
#define SLOTS_LOG2 12 /* of CALENDAR_SLOTS; SLOT_NS_LOG2 + CALENDAR_LEVELS * SLOTS_LOG2 is all 64 bits, or more */
#define NOWHERE 0
#define IN_HEAP 1
#define IN_RUN 2
#define IN_SLOT 3 /* + level * CALENDAR_SLOTS + slot */
#define SORTED 8  /* so many are sorted by insertion, then merged */

static bool earlier(calendar_due a, calendar_due b) {
    return a.at != b.at ? a.at < b.at : a.source < b.source;
}

/* The heap of what was set for the present slot while it is worked off. */

static void put(calendar *c, uint32_t place, calendar_due due) {
    c->heap[place] = due;
    c->entries[due.source].next = place;
}

static void rise(calendar *c, uint32_t place, calendar_due due) {
    while (place && earlier(due, c->heap[(place - 1) / WAYS])) {
        put(c, place, c->heap[(place - 1) / WAYS]);
        place = (place - 1) / WAYS;
    }
    put(c, place, due);
}

static void sink(calendar *c, uint32_t place, calendar_due due) {
    for (;;) {
        uint32_t first = place * WAYS + 1, least = first;
        if (first >= c->due)
            break;
        uint32_t end = first + WAYS < c->due ? first + WAYS : c->due;
        for (uint32_t child = first + 1; child < end; child++)
            if (earlier(c->heap[child], c->heap[least]))
                least = child;
        if (!earlier(c->heap[least], due))
            break;
        put(c, place, c->heap[least]);
        place = least;
    }
    put(c, place, due);
}

static void leave_heap(calendar *c, uint32_t place) {
    calendar_due last = c->heap[--c->due];
    if (place == c->due)
        return;
    if (place && earlier(last, c->heap[(place - 1) / WAYS]))
        rise(c, place, last);
    else
        sink(c, place, last);
}

/* The wheel. */

static int shift_of(int level) {
    return SLOT_NS_LOG2 + level * SLOTS_LOG2;
}

static void enter_slot(calendar *c, uint32_t source, int level, uint32_t slot) {
    calendar_level *l = &c->levels[level];
    calendar_entry *e = &c->entries[source];
    bool empty = !(l->used[slot / 64] >> (slot % 64) & 1);
    e->where = IN_SLOT + (uint32_t)level * CALENDAR_SLOTS + slot;
    e->previous = CALENDAR_NOBODY;
    e->next = empty ? CALENDAR_NOBODY : l->head[slot];
    if (!empty)
        c->entries[e->next].previous = source;
    l->head[slot] = source;
    l->used[slot / 64] |= UINT64_C(1) << (slot % 64);
    l->any |= UINT64_C(1) << (slot / 64);
}

static void empty_slot(calendar_level *l, uint32_t slot) {
    l->used[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    if (l->used[slot / 64] == 0)
        l->any &= ~(UINT64_C(1) << (slot / 64));
}

static void leave_slot(calendar *c, const calendar_entry *e) {
    uint32_t at = e->where - IN_SLOT;
    calendar_level *l = &c->levels[at / CALENDAR_SLOTS];
    if (e->next != CALENDAR_NOBODY)
        c->entries[e->next].previous = e->previous;
    if (e->previous != CALENDAR_NOBODY)
        c->entries[e->previous].next = e->next;
    else if (e->next != CALENDAR_NOBODY)
        l->head[at % CALENDAR_SLOTS] = e->next;
    else
        empty_slot(l, at % CALENDAR_SLOTS);
}

/* The first level on which a time is in another slot than the clock is where it waits. */
static void enter(calendar *c, uint32_t source) {
    uint64_t at = (uint64_t)c->entries[source].at;
    if (at >> SLOT_NS_LOG2 <= c->clock >> SLOT_NS_LOG2) {
        c->entries[source].where = IN_HEAP;
        rise(c, c->due++, (calendar_due){c->entries[source].at, source});
        return;
    }
    int level = (63 - __builtin_clzll(at ^ c->clock) - SLOT_NS_LOG2) / SLOTS_LOG2;
    enter_slot(c, source, level, (uint32_t)(at >> shift_of(level)) % CALENDAR_SLOTS);
}

/* The first slot with a list after `slot`; CALENDAR_SLOTS if there is none. */
static uint32_t next_used(const calendar_level *l, uint32_t slot) {
    uint32_t word = slot / 64;
    uint64_t left = slot % 64 == 63 ? 0 : l->used[word] >> (slot % 64 + 1) << (slot % 64 + 1);
    if (left == 0) {
        uint64_t words = word == 63 ? 0 : l->any >> (word + 1) << (word + 1);
        if (words == 0)
            return CALENDAR_SLOTS;
        word = (uint32_t)__builtin_ctzll(words);
        left = l->used[word];
    }
    return word * 64 + (uint32_t)__builtin_ctzll(left);
}

/* In place, by merging of runs; `spare` has room for as many. */
static void sort(uint64_t *keys, uint64_t *spare, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        uint64_t key = keys[i];
        uint32_t place = i;
        for (; place % SORTED && key < keys[place - 1]; place--)
            keys[place] = keys[place - 1];
        keys[place] = key;
    }
    uint64_t *from = keys, *to = spare;
    for (uint32_t width = SORTED; width < count; width *= 2) {
        for (uint32_t begin = 0; begin < count; begin += 2 * width) {
            uint32_t middle = begin + width < count ? begin + width : count;
            uint32_t end = middle + width < count ? middle + width : count, left = begin, right = middle;
            for (uint32_t i = begin; i < end; i++)
                to[i] = right == end || (left < middle && from[left] < from[right]) ? from[left++] : from[right++];
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys)
        memcpy(keys, from, count * sizeof *keys);
}

/* The sources of a slot of the lowest level, whose time has come, in order. */
static void make_run(calendar *c, uint32_t source) {
    uint32_t count = 0;
    for (; source != CALENDAR_NOBODY; source = c->entries[source].next)
        c->run[count++] = ((uint64_t)c->entries[source].at - c->clock) << 32 | source;
    sort(c->run, c->spare, count);
    for (uint32_t i = 0; i < count; i++) {
        calendar_entry *e = &c->entries[(uint32_t)c->run[i]];
        e->where = IN_RUN;
        e->next = i;
    }
    c->run_at = 0;
    c->run_end = count;
    c->run_clock = (rs_time)c->clock;
}

/* Moves the clock to the next slot with a list, and what is in the list downward. False: nothing is left, or not until
 * `limit`, which the clock must not pass: what is set before it would all go through the heap. */
static bool advance(calendar *c, rs_time limit) {
    for (int level = 0; level < CALENDAR_LEVELS; level++) {
        int shift = shift_of(level);
        uint32_t slot = next_used(&c->levels[level], (uint32_t)(c->clock >> shift) % CALENDAR_SLOTS);
        if (slot == CALENDAR_SLOTS)
            continue;
        uint64_t above = level == CALENDAR_LEVELS - 1 ? 0 : c->clock >> (shift + SLOTS_LOG2) << (shift + SLOTS_LOG2);
        uint64_t clock = above | (uint64_t)slot << shift;
        if (clock > (uint64_t)limit)
            return false;
        c->clock = clock;
        uint32_t source = c->levels[level].head[slot];
        empty_slot(&c->levels[level], slot);
        if (level == 0)
            make_run(c, source);
        while (level && source != CALENDAR_NOBODY) {
            uint32_t next = c->entries[source].next;
            enter(c, source);
            source = next;
        }
        return true;
    }
    return false;
}

bool calendar_reserve(calendar *c, uint32_t sources) {
    if (!c->levels)
        c->levels = calloc(CALENDAR_LEVELS, sizeof *c->levels);
    if (!c->levels)
        return false;
    if (sources <= c->sources)
        return true;
    uint32_t more = c->sources ? c->sources : 256;
    while (more < sources)
        more *= 2;
    calendar_due *heap = realloc(c->heap, more * sizeof *heap);
    if (!heap)
        return false;
    c->heap = heap;
    uint64_t *run = realloc(c->run, more * sizeof *run);
    if (!run)
        return false;
    c->run = run;
    uint64_t *spare = realloc(c->spare, more * sizeof *spare);
    if (!spare)
        return false;
    c->spare = spare;
    calendar_entry *entries = realloc(c->entries, more * sizeof *entries);
    if (!entries)
        return false;
    memset(entries + c->sources, 0, (more - c->sources) * sizeof *entries);
    c->entries = entries;
    c->sources = more;
    return true;
}

void calendar_free(calendar *c) {
    free(c->heap);
    free(c->run);
    free(c->spare);
    free(c->entries);
    free(c->levels);
    *c = (calendar){0};
}

void calendar_set(calendar *c, uint32_t source, rs_time at) {
    calendar_entry *e = &c->entries[source];
    if (e->where != NOWHERE && e->at == at)
        return;
    if (e->where == IN_HEAP)
        leave_heap(c, e->next);
    else if (e->where == IN_RUN)
        c->run[e->next] |= CALENDAR_NOBODY;
    else if (e->where != NOWHERE)
        leave_slot(c, e);
    e->where = NOWHERE;
    e->at = at;
    if (at != RS_NEVER)
        enter(c, source);
}

rs_time calendar_first(calendar *c, rs_time limit, uint32_t *source) {
    for (;;) {
        while (c->run_at < c->run_end && (uint32_t)c->run[c->run_at] == CALENDAR_NOBODY)
            c->run_at++;
        bool any = c->run_at < c->run_end;
        calendar_due first = {0};
        if (any)
            first = (calendar_due){c->run_clock + (rs_time)(c->run[c->run_at] >> 32), (uint32_t)c->run[c->run_at]};
        if (c->due && !(any && earlier(first, c->heap[0])))
            first = c->heap[0];
        else if (!any && c->levels && advance(c, limit))
            continue;
        else if (!any)
            return RS_NEVER;
        *source = first.source;
        return first.at;
    }
}
