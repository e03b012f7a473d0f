/* What programs of `rostrum bench order` have in common: each member of a group sends in phases, gets all messages in
 * one order, its own too, and says what it got. A phase begins with a line "RATE SECONDS OFFSET" on standard input
 * (messages a second of this member, 0: as many as go; its first one goes OFFSET seconds later) and is over when all
 * members' last messages have come. */
#ifndef BENCH_ORDERED_H
#define BENCH_ORDERED_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STAMPS_MOST (1u << 20)

typedef struct {
    uint32_t last; /* 1: of its sender in this phase */
    uint32_t phase;
    int64_t at_ns;
    uint64_t number; /* differs by sender */
} stamp;

typedef struct {
    uint32_t members, ended, phase;
    uint64_t messages, hash;
    int64_t first_ns, last_ns;
    uint32_t late_us[STAMPS_MOST];
    uint32_t late_count;
} tally;

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A message came. True: the phase is over. */
static inline bool tally_take(tally *t, const void *bytes, size_t length) {
    stamp s;
    if (length < sizeof s)
        return false;
    memcpy(&s, bytes, sizeof s);
    if (s.phase != t->phase)
        return false;
    if (s.last)
        return ++t->ended == t->members;
    int64_t now = now_ns();
    t->hash = (t->hash ^ s.number) * UINT64_C(0x100000001b3);
    t->messages++;
    t->first_ns = t->first_ns ? t->first_ns : now;
    t->last_ns = now;
    if (t->late_count < STAMPS_MOST)
        t->late_us[t->late_count++] = (uint32_t)((now - s.at_ns) / 1000);
    return false;
}

static inline int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static inline void tally_tell(tally *t) {
    uint32_t n = t->late_count;
    qsort(t->late_us, n, sizeof t->late_us[0], by_size);
    printf("{\"messages\": %" PRIu64 ", \"first_ns\": %" PRId64 ", \"last_ns\": %" PRId64 ", \"p50_us\": %u, "
           "\"p99_us\": %u, \"hash\": \"%016" PRIx64 "\"}\n",
           t->messages, t->first_ns, t->last_ns, n ? t->late_us[n / 2] : 0, n ? t->late_us[(uint64_t)n * 99 / 100] : 0,
           t->hash);
    fflush(stdout);
}

/* The next phase; false: there is none. */
static inline bool tally_begin(tally *t, double *rate, double *seconds, double *offset) {
    char line[96];
    if (!fgets(line, sizeof line, stdin) || sscanf(line, "%lf %lf %lf", rate, seconds, offset) != 3)
        return false;
    t->phase++;
    t->ended = t->late_count = 0;
    t->messages = 0;
    t->hash = UINT64_C(0xcbf29ce484222325);
    t->first_ns = t->last_ns = 0;
    return true;
}

#endif
