#include "engine/calendar.h"

#include <stdlib.h>
#include <string.h>

#define WAYS 4

static bool earlier(calendar_entry a, calendar_entry b) {
    return a.at != b.at ? a.at < b.at : a.source < b.source;
}

static void put(calendar *c, uint32_t at, calendar_entry entry) {
    c->heap[at] = entry;
    c->place[entry.source] = at + 1;
}

static void rise(calendar *c, uint32_t at, calendar_entry entry) {
    while (at && earlier(entry, c->heap[(at - 1) / WAYS])) {
        put(c, at, c->heap[(at - 1) / WAYS]);
        at = (at - 1) / WAYS;
    }
    put(c, at, entry);
}

static void sink(calendar *c, uint32_t at, calendar_entry entry) {
    for (;;) {
        uint32_t first = at * WAYS + 1, least = first;
        if (first >= c->count)
            break;
        uint32_t end = first + WAYS < c->count ? first + WAYS : c->count;
        for (uint32_t child = first + 1; child < end; child++)
            if (earlier(c->heap[child], c->heap[least]))
                least = child;
        if (!earlier(c->heap[least], entry))
            break;
        put(c, at, c->heap[least]);
        at = least;
    }
    put(c, at, entry);
}

bool calendar_reserve(calendar *c, uint32_t sources) {
    if (sources <= c->sources)
        return true;
    uint32_t more = c->sources ? c->sources : 256;
    while (more < sources)
        more *= 2;
    calendar_entry *heap = realloc(c->heap, more * sizeof *heap);
    if (!heap)
        return false;
    c->heap = heap;
    uint32_t *place = realloc(c->place, more * sizeof *place);
    if (!place)
        return false;
    memset(place + c->sources, 0, (more - c->sources) * sizeof *place);
    c->place = place;
    c->sources = more;
    return true;
}

void calendar_free(calendar *c) {
    free(c->heap);
    free(c->place);
    *c = (calendar){0};
}

static void take_out(calendar *c, uint32_t source) {
    uint32_t at = c->place[source] - 1;
    calendar_entry last = c->heap[--c->count];
    c->place[source] = 0;
    if (at == c->count)
        return;
    if (at && earlier(last, c->heap[(at - 1) / WAYS]))
        rise(c, at, last);
    else
        sink(c, at, last);
}

void calendar_set(calendar *c, uint32_t source, rs_time at) {
    uint32_t place = c->place[source];
    calendar_entry entry = {at, source};
    if (at == RS_NEVER) {
        if (place)
            take_out(c, source);
    } else if (!place) {
        rise(c, c->count++, entry);
    } else if (at < c->heap[place - 1].at) {
        rise(c, place - 1, entry);
    } else if (at > c->heap[place - 1].at) {
        sink(c, place - 1, entry);
    }
}

rs_time calendar_first(const calendar *c, uint32_t *source) {
    if (c->count == 0)
        return RS_NEVER;
    *source = c->heap[0].source;
    return c->heap[0].at;
}
