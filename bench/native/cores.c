/* cores: how far apart the first two processors of this process are: nanoseconds that a line of memory takes to the
 * other one and back, the best of several tries; 0: there is only one.
 *
 * A hypervisor moves a machine's processors now and then: to cores that share a cache, or not. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { TRIES = 20, TRIPS = 1000 };

static _Alignas(128) _Atomic int turn;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int stay_on(size_t processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *answer(void *processor) {
    (void)stay_on(*(const size_t *)processor);
    for (int i = 0; i < TRIES * TRIPS; i++) {
        while (atomic_load(&turn) != 1)
            ;
        atomic_store(&turn, 0);
    }
    return NULL;
}

int main(void) {
    cpu_set_t allowed;
    size_t processors[2];
    int found = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    for (size_t i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET(i, &allowed))
            processors[found++] = i;
    pthread_t other;
    int64_t best = 0;
    if (found == 2 && stay_on(processors[0]) == 0 && pthread_create(&other, NULL, answer, &processors[1]) == 0) {
        for (int i = 0; i < TRIES; i++) {
            int64_t began = now_ns();
            for (int trip = 0; trip < TRIPS; trip++) {
                atomic_store(&turn, 1);
                while (atomic_load(&turn) != 0)
                    ;
            }
            int64_t each = (now_ns() - began) / TRIPS;
            best = best == 0 || each < best ? each : best;
        }
        pthread_join(other, NULL);
    }
    printf("%lld\n", (long long)best);
    return 0;
}
