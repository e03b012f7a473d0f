/* A ring of bytes in memory that the agent and one program share: one puts frames in, and the other reads them where
 * they lie. So a message goes to its subscriber, or from its publisher, by one copy instead of the socket's three.
 *
 * The first page has what each tells the other; the bytes behind it are mapped twice, one map behind the other, so that
 * nothing in the ring is ever cut. What the other side says (how much it has put in, or taken) is checked: a program
 * that says what cannot be is not served any more, and nobody can shorten the memory. What a program puts in it may
 * change while it is read: the agent reads each length once, and copies the rest. Each side sleeps only after it said
 * so and looked once more, and is woken by the other: no wake is lost, and none is sent to who is awake. */
#ifndef RS_API_SHARED_RING_H
#define RS_API_SHARED_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rs_shared_page rs_shared_page;

/* One side's view. */
typedef struct {
    rs_shared_page *page; /* NULL: there is none */
    uint8_t *bytes;
    uint32_t size;  /* a power of two */
    uint64_t put;   /* bytes ever put in; at who takes, as far as it has seen */
    uint64_t taken; /* bytes ever taken; at who puts, as far as it has seen */
    uint64_t told;  /* the own one of these, as the other side knows it */
    bool broken;    /* the other side told what cannot be */
} rs_shared_ring;

void rs_shared_ring_close(rs_shared_ring *ring);

/* The agent's. False: no memory, or no descriptors. `*fd` is for the program. */
bool rs_shared_ring_make(rs_shared_ring *ring, uint32_t size, int *fd);
/* The program's. */
bool rs_shared_ring_open(rs_shared_ring *ring, int fd);

/* ---- who puts */
/* Bytes that may be put in now. */
size_t rs_shared_ring_free(rs_shared_ring *ring);
/* Where the next `length` bytes go, which are put in; NULL: there is no room. The other sees them with the next
 * rs_shared_ring_tell. */
uint8_t *rs_shared_ring_put(rs_shared_ring *ring, size_t length);
/* The other may read what was put in. True: it sleeps, and is to be woken. */
bool rs_shared_ring_tell(rs_shared_ring *ring);
/* True: the ring is full, and the other will wake this side when it is not. */
bool rs_shared_ring_await_room(rs_shared_ring *ring);

/* ---- who takes */
/* Bytes that wait, at `*at`; whether there are more than were seen before is looked for if these are less than
 * `wanted`. They stay until they are taken, and given back. */
size_t rs_shared_ring_waiting(rs_shared_ring *ring, size_t wanted, const uint8_t **at);
void rs_shared_ring_take(rs_shared_ring *ring, size_t length);
/* What was taken is room again; many at once, or (`all`) as much as there is. True: who puts is to be woken. */
bool rs_shared_ring_give_back(rs_shared_ring *ring, bool all);
/* True: nothing new is there, and who puts will wake this side. */
bool rs_shared_ring_sleep(rs_shared_ring *ring);

#endif
