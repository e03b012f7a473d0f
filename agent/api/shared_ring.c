#include "api/shared_ring.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 65536u /* at least a page of any machine */
#define LINE 64     /* what each side writes has cache lines of its own */
#define SIZE_MOST (UINT32_C(1) << 30)
#define GIVE_BACK 8u /* of the ring's size, a part of which is given back together */

struct rs_shared_page {
    _Alignas(LINE) _Atomic uint64_t put;
    _Atomic uint32_t wants_room; /* who puts sleeps until there is more */
    _Alignas(LINE) _Atomic uint64_t taken;
    _Atomic uint32_t sleeps; /* who takes does */
};

static bool map(rs_shared_ring *ring, int fd, uint32_t size) {
    uint8_t *all = mmap(NULL, PAGE + 2 * (size_t)size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return false;
    const int both = PROT_READ | PROT_WRITE, fixed = MAP_SHARED | MAP_FIXED;
    if (mmap(all, PAGE + (size_t)size, both, fixed, fd, 0) == MAP_FAILED ||
        mmap(all + PAGE + size, size, both, fixed, fd, PAGE) == MAP_FAILED) {
        munmap(all, PAGE + 2 * (size_t)size);
        return false;
    }
    *ring = (rs_shared_ring){.page = (rs_shared_page *)(void *)all, .bytes = all + PAGE, .size = size};
    return true;
}

void rs_shared_ring_close(rs_shared_ring *ring) {
    if (ring->page)
        munmap(ring->page, PAGE + 2 * (size_t)ring->size);
    *ring = (rs_shared_ring){0};
}

/* Wakes the other side if it said that it sleeps, or will. What is told before is seen by who looks after that. */
static bool wake(_Atomic uint32_t *sleeps) {
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(sleeps, memory_order_relaxed) && atomic_exchange(sleeps, 0);
}

bool rs_shared_ring_make(rs_shared_ring *ring, uint32_t size, int *fd) {
    *fd = memfd_create("rostrum-group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return false;
    if (size % PAGE == 0 && (size & (size - 1)) == 0 && ftruncate(*fd, (off_t)PAGE + size) == 0 &&
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 && map(ring, *fd, size))
        return true;
    close(*fd);
    *fd = -1;
    return false;
}

bool rs_shared_ring_open(rs_shared_ring *ring, int fd) {
    struct stat info;
    if (fstat(fd, &info) != 0 || info.st_size <= PAGE || (uint64_t)info.st_size - PAGE > SIZE_MOST)
        return false;
    uint32_t size = (uint32_t)((uint64_t)info.st_size - PAGE);
    return size % PAGE == 0 && (size & (size - 1)) == 0 && map(ring, fd, size);
}

/* ----------------------------------------------------------------------------------------------------- who puts */

static void look(rs_shared_ring *ring) {
    uint64_t taken = atomic_load_explicit(&ring->page->taken, memory_order_acquire);
    ring->broken |= taken < ring->taken || taken > ring->told;
    if (!ring->broken)
        ring->taken = taken;
}

static size_t room(const rs_shared_ring *ring) {
    return ring->broken ? 0 : (size_t)(ring->size - (ring->put - ring->taken));
}

size_t rs_shared_ring_free(rs_shared_ring *ring) {
    look(ring);
    return room(ring);
}

uint8_t *rs_shared_ring_put(rs_shared_ring *ring, size_t length) {
    if (room(ring) < length && rs_shared_ring_free(ring) < length)
        return NULL;
    uint8_t *at = ring->bytes + (ring->put & (ring->size - 1));
    ring->put += length;
    return at;
}

bool rs_shared_ring_tell(rs_shared_ring *ring) {
    if (ring->told == ring->put)
        return false;
    ring->told = ring->put;
    atomic_store_explicit(&ring->page->put, ring->put, memory_order_release);
    return wake(&ring->page->sleeps);
}

bool rs_shared_ring_await_room(rs_shared_ring *ring) {
    atomic_store(&ring->page->wants_room, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (rs_shared_ring_free(ring) == 0)
        return true;
    atomic_store(&ring->page->wants_room, 0);
    return false;
}

/* ---------------------------------------------------------------------------------------------------- who takes */

/* More than before, and no more than there was room for. */
static void see(rs_shared_ring *ring) {
    uint64_t put = atomic_load_explicit(&ring->page->put, memory_order_acquire);
    ring->broken |= put - ring->put > ring->size || put - ring->told > ring->size;
    if (!ring->broken)
        ring->put = put;
}

size_t rs_shared_ring_waiting(rs_shared_ring *ring, size_t wanted, const uint8_t **at) {
    if (ring->put - ring->taken < wanted)
        see(ring);
    *at = ring->bytes + (ring->taken & (ring->size - 1));
    return ring->broken ? 0 : (size_t)(ring->put - ring->taken);
}

void rs_shared_ring_take(rs_shared_ring *ring, size_t length) {
    ring->taken += length;
}

bool rs_shared_ring_give_back(rs_shared_ring *ring, bool all) {
    if (ring->taken - ring->told < (all ? 1 : ring->size / GIVE_BACK))
        return false;
    ring->told = ring->taken;
    atomic_store_explicit(&ring->page->taken, ring->taken, memory_order_release);
    return wake(&ring->page->wants_room);
}

bool rs_shared_ring_sleep(rs_shared_ring *ring) {
    atomic_store(&ring->page->sleeps, 1);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&ring->page->put, memory_order_acquire) == ring->put)
        return true;
    atomic_store(&ring->page->sleeps, 0);
    return false;
}
