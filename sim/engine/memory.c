/* Memory, packets, queues, chance. */
#include "engine/state.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define SLAB_LEAST ((size_t)16 << 10)

/* Bytes of header: of data packets; of acknowledgements; of all control messages; of message groups' datagrams. */
static const uint16_t CAPACITIES[SIM_PACKET_SIZES] = {64, 128, 192, RS_HEADER_MAX, SIM_HEADER_MOST};

_Static_assert(sizeof(packet) == SIM_LINE, "a packet's header begins on a line of its own");

static void no_memory(size_t bytes) {
    fprintf(stderr, "rostrum sim: no memory for %zu bytes more\n", bytes);
    abort();
}

void *sim_take(sim *s, size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory)
        no_memory(bytes);
    s->stats.bytes += bytes;
    return memory;
}

/* Large ones in large pages, where the system has them: most of a run's time goes into finding what is far apart. */
void *sim_take_lines(sim *s, size_t bytes) {
    size_t line = bytes < HUGE_PAGE ? SIM_LINE : HUGE_PAGE, whole = (bytes + line - 1) / line * line;
    void *memory = aligned_alloc(line, whole);
    if (!memory)
        no_memory(bytes);
    if (line == HUGE_PAGE)
        madvise(memory, whole, MADV_HUGEPAGE);
    memset(memory, 0, whole);
    s->stats.bytes += bytes;
    return memory;
}

void sim_give(sim *s, void *memory, size_t bytes) {
    if (memory)
        s->stats.bytes -= bytes;
    free(memory);
}

/* Room for `count` + 1 members. New ones are zeroed. */
void *sim_grow(sim *s, void *array, uint64_t count, uint64_t *capacity, size_t each) {
    if (count < *capacity)
        return array;
    uint64_t more = *capacity ? *capacity * 2 : 16;
    void *grown = sim_take_lines(s, more * each);
    if (array)
        memcpy(grown, array, *capacity * each);
    sim_give(s, array, *capacity * each);
    *capacity = more;
    return grown;
}

/* More packets of a size, twice as many each time, up to a large page. */
static void make_packets(sim *s, uint8_t size) {
    size_t each = sizeof(packet) + CAPACITIES[size], bytes = s->slab_bytes[size];
    bytes = bytes == 0 ? SLAB_LEAST : 2 * bytes < HUGE_PAGE ? 2 * bytes : HUGE_PAGE;
    s->slab_bytes[size] = bytes;
    uint64_t capacity = s->slab_capacity;
    s->slabs = sim_grow(s, s->slabs, s->slab_count, &capacity, sizeof *s->slabs);
    s->slab_capacity = (uint32_t)capacity;
    char *slab = sim_take_lines(s, bytes);
    s->slabs[s->slab_count++] = (slab_place){slab, bytes};
    for (size_t at = (bytes / each) * each; at > 0;) {
        at -= each;
        packet *p = (packet *)(void *)(slab + at);
        p->size = size;
        p->next_free = s->free_packets[size];
        s->free_packets[size] = p;
    }
}

packet *packet_new(sim *s, packet_kind kind, uint32_t header_length) {
    uint8_t size = 0;
    while (header_length > CAPACITIES[size])
        size++;
    if (!s->free_packets[size])
        make_packets(s, size);
    packet *p = s->free_packets[size];
    s->free_packets[size] = p->next_free;
    p->references = 1;
    p->kind = (uint8_t)kind;
    p->header_length = (uint16_t)header_length;
    p->to = SIM_NONE;
    p->way_left = 0;
    s->stats.packets++;
    return p;
}

void packet_drop(sim *s, packet *p) {
    if (--p->references)
        return;
    p->next_free = s->free_packets[p->size];
    s->free_packets[p->size] = p;
}

void packets_free(sim *s) {
    for (uint32_t i = 0; i < s->slab_count; i++)
        sim_give(s, s->slabs[i].memory, s->slabs[i].bytes);
    sim_give(s, s->slabs, s->slab_capacity * sizeof *s->slabs);
}

void flights_put(sim *s, flights *f, packet *p, rs_time at) {
    if (f->count == f->capacity) {
        uint32_t capacity = f->capacity ? f->capacity * 2 : 8;
        flight *items = sim_take(s, capacity * sizeof *items);
        for (uint32_t i = 0; i < f->count; i++)
            items[i] = f->items[(f->head + i) & (f->capacity - 1)];
        sim_give(s, f->items, f->capacity * sizeof *items);
        f->items = items;
        f->head = 0;
        f->capacity = capacity;
    }
    f->items[(f->head + f->count++) & (f->capacity - 1)] = (flight){p, at};
}

flight flights_take(flights *f) {
    flight first = f->items[f->head];
    f->head = (f->head + 1) & (f->capacity - 1);
    f->count--;
    return first;
}

void flights_free(sim *s, flights *f) {
    while (f->count)
        packet_drop(s, flights_take(f).packet);
    sim_give(s, f->items, f->capacity * sizeof *f->items);
    *f = (flights){0};
}

/* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled" (2016). */
double sim_random(sim *s) {
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (double)((s->random * UINT64_C(0x2545f4914f6cdd1d)) >> 11) / (double)(UINT64_C(1) << 53);
}

bool sim_fail(sim *s, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->error, sizeof s->error, format, arguments);
    va_end(arguments);
    return false;
}
