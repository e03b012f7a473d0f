/* Kept messages: segments in the order of their numbers, and in each an index of every 64th record. */
#include "core/order/history.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/memory.h"
#include "core/base/xxh64.h"

#define MAGIC 0x4852u /* "RH" */
#define VERSION 1u
#define STRIDE 64u
#define CHECKED_AT 16u /* what XXH64 is of */
#define CONTENT_AT 24u /* what is the same at all members */

typedef struct {
    uint64_t first;
    uint32_t count;
    size_t used, size;
    uint8_t *memory;
    uint64_t newest; /* time of its newest record */
    uint32_t *index; /* places of records 0, 64, 128, ... */
    uint32_t index_room;
} segment;

struct rs_history {
    rs_history_config config;
    rs_allocator allocator;
    segment *segments; /* ascending */
    uint32_t count, room;
    uint64_t bytes; /* sizes of all */
};

size_t rs_history_parse(const uint8_t *bytes, size_t length, rs_history_record *out) {
    if (length < RS_HISTORY_HEAD || rs_le_get(bytes, 2) != MAGIC || bytes[2] != VERSION)
        return 0;
    uint32_t name = bytes[3], message = (uint32_t)rs_le_get(bytes + 4, 4);
    size_t whole = RS_HISTORY_HEAD + (size_t)name + message;
    if (whole > length || rs_le_get(bytes + 8, 8) != rs_gm_xxh64(bytes + CHECKED_AT, whole - CHECKED_AT, message) ||
        rs_le_get(bytes + 44, 4) != 0)
        return 0;
    *out = (rs_history_record){.time = rs_le_get(bytes + 16, 8),
                               .number = rs_le_get(bytes + 24, 8),
                               .view = rs_le_get(bytes + 32, 8),
                               .sender = (rs_peer)rs_le_get(bytes + 40, 4),
                               .name = (const char *)bytes + RS_HISTORY_HEAD,
                               .name_length = name,
                               .bytes = bytes + RS_HISTORY_HEAD + name,
                               .length = message};
    return out->number > 0 ? whole : 0;
}

static void write_record(uint8_t *to, const rs_history_record *r) {
    uint8_t *at = rs_le_put(to, MAGIC, 2);
    at = rs_le_put(at, VERSION, 1);
    at = rs_le_put(at, r->name_length, 1);
    rs_le_put(at, r->length, 4);
    at = rs_le_put(to + CHECKED_AT, r->time, 8);
    at = rs_le_put(at, r->number, 8);
    at = rs_le_put(at, r->view, 8);
    at = rs_le_put(at, r->sender, 4);
    at = rs_le_put(at, 0, 4);
    if (r->name_length)
        memcpy(at, r->name, r->name_length);
    if (r->length)
        memcpy(at + r->name_length, r->bytes, r->length);
    size_t whole = RS_HISTORY_HEAD + (size_t)r->name_length + r->length;
    rs_le_put(to + 8, rs_gm_xxh64(to + CHECKED_AT, whole - CHECKED_AT, r->length), 8);
}

/* Of one of ours, which is whole. */
static size_t length_at(const uint8_t *record) {
    return RS_HISTORY_HEAD + (size_t)record[3] + rs_le_get(record + 4, 4);
}

/* -------------------------------------------------------------------------------------------------------- segments */

static bool index_put(rs_history *h, segment *s) {
    uint32_t place = s->count / STRIDE;
    if (s->count % STRIDE != 0)
        return true;
    if (place == s->index_room) {
        uint32_t room = s->index_room ? 2 * s->index_room : 8;
        uint32_t *larger = rs_memory_take(&h->allocator, room * sizeof *larger);
        if (!larger)
            return false;
        if (s->index)
            memcpy(larger, s->index, s->index_room * sizeof *larger);
        rs_memory_give(&h->allocator, s->index);
        s->index = larger;
        s->index_room = room;
    }
    s->index[place] = (uint32_t)s->used;
    return true;
}

/* The place of the segment that has the number, or of the first one behind it. */
static uint32_t place_of(const rs_history *h, uint64_t number) {
    uint32_t low = 0, high = h->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (h->segments[middle].first + h->segments[middle].count <= number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_in(const segment *s, uint64_t number) {
    return number >= s->first && number - s->first < s->count;
}

static size_t offset_of(const segment *s, uint64_t number) {
    uint64_t which = number - s->first;
    size_t at = s->index[which / STRIDE];
    for (uint64_t i = which % STRIDE; i > 0; i--)
        at += length_at(s->memory + at);
    return at;
}

static void read_at(const segment *s, uint64_t number, rs_history_record *out) {
    size_t at = offset_of(s, number);
    (void)rs_history_parse(s->memory + at, s->used - at, out);
}

static segment *insert(rs_history *h, uint32_t place) {
    if (h->count == RS_HISTORY_SEGMENTS_MOST)
        return NULL;
    if (h->count == h->room) {
        uint32_t room = h->room ? 2 * h->room : 16;
        segment *larger = rs_memory_take(&h->allocator, room * sizeof *larger);
        if (!larger)
            return NULL;
        if (h->count)
            memcpy(larger, h->segments, h->count * sizeof *larger);
        rs_memory_give(&h->allocator, h->segments);
        h->segments = larger;
        h->room = room;
    }
    memmove(h->segments + place + 1, h->segments + place, (h->count - place) * sizeof *h->segments);
    h->count++;
    h->segments[place] = (segment){0};
    return &h->segments[place];
}

static void forget(rs_history *h, uint32_t place) {
    rs_memory_give(&h->allocator, h->segments[place].index);
    h->bytes -= h->segments[place].size;
    h->count--;
    memmove(h->segments + place, h->segments + place + 1, (h->count - place) * sizeof *h->segments);
}

static void drop(rs_history *h, uint32_t place) {
    const segment s = h->segments[place];
    forget(h, place);
    h->config.give(h->config.context, s.first, s.memory, s.size, true);
}

/* Room for a segment of that size at that place. What is older makes room; what a pin holds, up to twice the bound. */
static bool make_room(rs_history *h, uint32_t *place, size_t size, uint64_t pin) {
    while (h->count > 0 && h->bytes + size > h->config.bytes) {
        const segment *oldest = &h->segments[0];
        bool pinned = oldest->first + oldest->count > pin && h->bytes + size <= 2 * h->config.bytes;
        if (pinned)
            return true;
        if (*place == 0)
            return false; /* it would be the oldest itself */
        drop(h, 0);
        --*place;
    }
    return true;
}

static segment *new_segment(rs_history *h, uint32_t place, uint64_t first, size_t least, uint64_t pin) {
    size_t size = least > h->config.segment_bytes ? least : h->config.segment_bytes;
    void *memory = make_room(h, &place, size, pin) ? h->config.take(h->config.context, first, size) : NULL;
    while (!memory && place > 0) { /* none is left: then the oldest one's */
        drop(h, 0);
        memory = h->config.take(h->config.context, first, size);
        place--;
    }
    segment *s = memory ? insert(h, place) : NULL;
    if (!s && memory)
        h->config.give(h->config.context, first, memory, size, true);
    if (!s)
        return NULL;
    s->first = first;
    s->size = size;
    s->memory = memory;
    h->bytes += size;
    return s;
}

/* -------------------------------------------------------------------------------------------------- what is put in */

uint32_t rs_history_load(rs_history *h, uint64_t first, void *memory, size_t bytes) {
    uint32_t place = place_of(h, first);
    segment s = {.first = first, .size = bytes, .memory = memory};
    uint64_t end = place < h->count ? h->segments[place].first : UINT64_MAX;
    rs_history_record record;
    if (first == 0 || end <= first || bytes > UINT32_MAX)
        return 0;
    for (size_t length; first + s.count < end; s.used += length, s.count++) {
        length = rs_history_parse(s.memory + s.used, s.size - s.used, &record);
        if (length == 0 || record.number != first + s.count || !index_put(h, &s))
            break;
        s.newest = record.time > s.newest ? record.time : s.newest;
    }
    segment *kept = s.count > 0 ? insert(h, place) : NULL;
    if (!kept) {
        rs_memory_give(&h->allocator, s.index);
        return 0;
    }
    memset(s.memory + s.used, 0, s.size - s.used);
    *kept = s;
    h->bytes += s.size;
    return s.count;
}

rs_status rs_history_add(rs_history *h, const rs_history_record *r, uint64_t wall, uint64_t pin) {
    size_t length = RS_HISTORY_HEAD + (size_t)r->name_length + r->length;
    uint32_t place = place_of(h, r->number);
    if (r->number == 0 || r->name_length > 255 || length > UINT32_MAX)
        return RS_ERR_INVALID;
    if (place < h->count && is_in(&h->segments[place], r->number))
        return RS_ERR_STATE;
    if (h->config.age && r->time < wall && wall - r->time > h->config.age)
        return RS_ERR_LIMIT;
    segment *s = place > 0 ? &h->segments[place - 1] : NULL;
    bool fits = s && s->first + s->count == r->number && s->used + length <= s->size;
    /* with an age, a segment has an eighth of it: whole segments are dropped */
    if (fits && h->config.age && s->newest > 0 && s->count > 0) {
        rs_history_record oldest;
        read_at(s, s->first, &oldest);
        fits = r->time < oldest.time || r->time - oldest.time <= h->config.age / 8;
    }
    if (!fits)
        s = new_segment(h, place, r->number, length, pin);
    if (!s || !index_put(h, s))
        return RS_ERR_LIMIT;
    write_record(s->memory + s->used, r);
    s->used += length;
    s->count++;
    s->newest = r->time > s->newest ? r->time : s->newest;
    return RS_OK;
}

void rs_history_trim(rs_history *h, uint64_t wall) {
    while (h->config.age && h->count > 0 && h->segments[0].newest < wall &&
           wall - h->segments[0].newest > h->config.age)
        drop(h, 0);
}

void rs_history_cut(rs_history *h, uint64_t number) {
    while (h->count > 0 && h->segments[h->count - 1].first > number)
        drop(h, h->count - 1);
    segment *s = h->count > 0 ? &h->segments[h->count - 1] : NULL;
    if (!s || s->first + s->count - 1 <= number)
        return;
    size_t used = offset_of(s, number + 1);
    memset(s->memory + used, 0, s->used - used);
    s->used = used;
    s->count = (uint32_t)(number + 1 - s->first);
}

/* --------------------------------------------------------------------------------------------------- what is there */

bool rs_history_find(const rs_history *h, uint64_t number, rs_history_record *out) {
    uint32_t place = place_of(h, number);
    if (place == h->count)
        return false;
    const segment *s = &h->segments[place];
    read_at(s, number > s->first ? number : s->first, out);
    return true;
}

bool rs_history_since(const rs_history *h, uint64_t time, rs_history_record *out) {
    for (uint32_t i = 0; i < h->count; i++) {
        const segment *s = &h->segments[i];
        if (s->newest < time)
            continue;
        size_t at = 0;
        for (uint32_t k = 0; k < s->count; k++, at += length_at(s->memory + at)) {
            (void)rs_history_parse(s->memory + at, s->used - at, out);
            if (out->time >= time)
                return true;
        }
    }
    return false;
}

const uint8_t *rs_history_raw(const rs_history *h, uint64_t number, size_t most, size_t *length) {
    uint32_t place = place_of(h, number);
    if (place == h->count || !is_in(&h->segments[place], number))
        return NULL;
    const segment *s = &h->segments[place];
    size_t from = offset_of(s, number), to = from + length_at(s->memory + from);
    while (to < s->used && to + length_at(s->memory + to) - from <= most)
        to += length_at(s->memory + to);
    *length = to - from;
    return s->memory + from;
}

uint64_t rs_history_missing(const rs_history *h, uint64_t from, uint64_t to) {
    while (from <= to) {
        uint32_t place = place_of(h, from);
        if (place == h->count || !is_in(&h->segments[place], from))
            return from;
        from = h->segments[place].first + h->segments[place].count;
    }
    return 0;
}

uint64_t rs_history_first(const rs_history *h) {
    return h->count ? h->segments[0].first : 0;
}

uint64_t rs_history_last(const rs_history *h) {
    return h->count ? h->segments[h->count - 1].first + h->segments[h->count - 1].count - 1 : 0;
}

uint64_t rs_history_bytes(const rs_history *h) {
    return h->bytes;
}

uint64_t rs_history_digest(const rs_history *h, uint64_t number) {
    size_t length;
    const uint8_t *record = rs_history_raw(h, number, 0, &length);
    uint64_t digest = record ? rs_gm_xxh64(record + CONTENT_AT, length - CONTENT_AT, length) : 0;
    return record && !digest ? 1 : digest;
}

uint64_t rs_history_view_first(const rs_history *h, uint64_t number) {
    rs_history_record at, record;
    uint64_t first = number;
    if (!rs_history_find(h, number, &at) || at.number != number)
        return 0;
    for (uint32_t place = place_of(h, number) + 1; place-- > 0;) {
        const segment *s = &h->segments[place];
        if (!is_in(s, first) && s->first + s->count != first)
            break;
        read_at(s, s->first, &record);
        if (record.view == at.view) {
            first = s->first;
            continue;
        }
        uint64_t low = s->first, high = first; /* views rise: by halves */
        while (high - low > 1) {
            uint64_t middle = low + (high - low) / 2;
            read_at(s, middle, &record);
            *(record.view == at.view ? &high : &low) = middle;
        }
        return high;
    }
    return first;
}

/* ------------------------------------------------------------------------------------------------------------ life */

rs_history *rs_history_new(const rs_history_config *config, const rs_allocator *allocator) {
    rs_history *h = rs_memory_take(allocator, sizeof *h);
    if (!h)
        return NULL;
    h->config = *config;
    h->allocator = *allocator;
    return h;
}

void rs_history_free(rs_history *h) {
    if (!h)
        return;
    const rs_allocator allocator = h->allocator;
    while (h->count > 0) {
        const segment s = h->segments[h->count - 1];
        forget(h, h->count - 1);
        h->config.give(h->config.context, s.first, s.memory, s.size, false);
    }
    rs_memory_give(&allocator, h->segments);
    rs_memory_give(&allocator, h);
}
