/* Stamps in the messages of a bench, and what a receiver makes of them. For C and C++.
 *
 * A message begins with its number (from 0) and the time it was due at, both 8 bytes in the machine's order; times are
 * ns of CLOCK_MONOTONIC, which all network namespaces of a machine share. A message that waits because the sender is
 * late has waited. Numbers of WARM_UP and above are not counted. */
#ifndef ROSTRUM_BENCH_STAMPS_H
#define ROSTRUM_BENCH_STAMPS_H

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STAMP_BYTES 16
#define STAMP_WARM_UP (UINT64_C(1) << 62)

typedef struct {
    uint64_t count, received, again, malformed; /* messages wanted; distinct, repeated, with no stamp */
    int64_t first_ns, last_ns;
    uint8_t *seen;        /* a bit each */
    uint32_t *delay_us10; /* of each distinct message in the order they came, tenths of microseconds */
    int printed;
    pthread_mutex_t lock;
} stamp_book;

static inline int64_t stamp_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void stamp_put(void *message, uint64_t number, int64_t due_ns) {
    memcpy(message, &number, 8);
    memcpy((char *)message + 8, &due_ns, 8);
}

/* When message `number` is due; `rate` messages a second, 0 = now. */
static inline int64_t stamp_due(int64_t start_ns, uint64_t number, uint64_t rate) {
    return rate ? start_ns + (int64_t)(number * (UINT64_C(1000000000) / rate)) : stamp_now();
}

static inline void stamp_wait(int64_t due_ns) {
    struct timespec until = {due_ns / 1000000000, due_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) {
    }
}

/* Says that the sender is ready; returns when the file `go` is there. */
static inline void stamp_await(const char *go) {
    puts("ready");
    fflush(stdout);
    while (access(go, F_OK))
        usleep(200);
}

/* Publishes one; `more`: the next one is due by now too. */
typedef void (*stamp_publish)(void *context, uint64_t number, int64_t due_ns, int more);

/* Messages 0 ... count - 1 when they are due. Returns the time of the start. */
static inline int64_t stamp_send(uint64_t count, uint64_t rate, stamp_publish publish, void *context) {
    const int64_t start = stamp_now();
    for (uint64_t i = 0; i < count; i++) {
        const int64_t due = stamp_due(start, i, rate);
        if (rate && due > stamp_now())
            stamp_wait(due);
        publish(context, i, due, i + 1 < count && (!rate || stamp_due(start, i + 1, rate) <= stamp_now()));
    }
    return start;
}

/* One line of JSON for the bench: all is sent. */
static inline void stamp_print_sent(uint64_t count, int64_t start_ns) {
    printf("{\"sent\": %" PRIu64 ", \"first_ns\": %" PRId64 ", \"last_ns\": %" PRId64 "}\n", count, start_ns,
           stamp_now());
    fflush(stdout);
}

/* True if it was the last one wanted. */
static inline int stamp_note(stamp_book *book, const void *message, size_t length) {
    uint64_t number;
    int64_t due, now = stamp_now();
    if (length < STAMP_BYTES) {
        book->malformed++;
        return 0;
    }
    memcpy(&number, message, 8);
    memcpy(&due, (const char *)message + 8, 8);
    if (number >= STAMP_WARM_UP)
        return 0;
    if (number >= book->count || due > now) {
        book->malformed++;
        return 0;
    }
    if (book->seen[number / 8] >> number % 8 & 1) {
        book->again++;
        return 0;
    }
    if (book->printed)
        return 0;
    book->seen[number / 8] = (uint8_t)(book->seen[number / 8] | 1u << number % 8);
    int64_t tenths = (now - due) / 100;
    book->delay_us10[book->received++] = tenths < UINT32_MAX ? (uint32_t)tenths : UINT32_MAX;
    if (!book->first_ns)
        book->first_ns = due;
    book->last_ns = now;
    return book->received == book->count;
}

static inline int stamp_take(stamp_book *book, const void *message, size_t length) {
    pthread_mutex_lock(&book->lock);
    int last = stamp_note(book, message, length);
    pthread_mutex_unlock(&book->lock);
    return last;
}

/* The delays in order, 16 bits at a time: who has all of a flood early takes little from others' last messages. The
 * second half of the memory is for this. */
static inline void stamp_order(stamp_book *book) {
    static uint32_t places[1u << 16];
    uint32_t *from = book->delay_us10, *to = from + book->count + 1;
    for (unsigned shift = 0; shift < 32; shift += 16) {
        uint32_t before = 0, *swapped = from;
        memset(places, 0, sizeof places);
        for (uint64_t i = 0; i < book->received; i++)
            places[from[i] >> shift & 0xffff]++;
        for (uint32_t i = 0; i < 1u << 16; i++) {
            uint32_t here = places[i];
            places[i] = before;
            before += here;
        }
        for (uint64_t i = 0; i < book->received; i++)
            to[places[from[i] >> shift & 0xffff]++] = from[i];
        from = to;
        to = swapped;
    }
}

static inline double stamp_share_us(const stamp_book *book, double share) {
    uint64_t place = (uint64_t)(share * (double)book->received);
    return book->received ? book->delay_us10[place < book->received ? place : book->received - 1] / 10.0 : 0;
}

/* One line of JSON for the bench, once. Orders the delays. */
static inline void stamp_print(stamp_book *book) {
    pthread_mutex_lock(&book->lock);
    if (!book->printed++) {
        stamp_order(book);
        printf("{\"received\": %" PRIu64 ", \"again\": %" PRIu64 ", \"malformed\": %" PRIu64 ", \"first_ns\": %" PRId64
               ", \"last_ns\": %" PRId64 ", \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
               book->received, book->again, book->malformed, book->first_ns, book->last_ns, stamp_share_us(book, 0.5),
               stamp_share_us(book, 0.9), stamp_share_us(book, 0.99), stamp_share_us(book, 1));
        fflush(stdout);
    }
    pthread_mutex_unlock(&book->lock);
}

/* SIGTERM: says what has come, and ends the program. */
static inline void *stamp_watch(void *book) {
    sigset_t set;
    int number;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigwait(&set, &number);
    stamp_print((stamp_book *)book);
    _exit(0);
}

/* For messages 0 ... count - 1; called before any thread is made. False if that cannot be. */
static inline int stamp_book_new(stamp_book *book, uint64_t count) {
    sigset_t set;
    pthread_t watch;
    memset(book, 0, sizeof *book);
    pthread_mutex_init(&book->lock, NULL);
    book->count = count;
    book->seen = (uint8_t *)calloc(1, (size_t)(count / 8 + 1));
    book->delay_us10 = (uint32_t *)calloc(2 * ((size_t)count + 1), sizeof *book->delay_us10);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    return book->seen && book->delay_us10 && !pthread_sigmask(SIG_BLOCK, &set, NULL) &&
           !pthread_create(&watch, NULL, stamp_watch, book);
}

#endif
