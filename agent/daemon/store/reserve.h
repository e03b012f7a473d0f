/* Memory kept ready for objects: populated beforehand, given back to the system piece by piece just before an object's
 * pages are allocated, which then finds them at once. A first touch is slow where a virtual machine's memory is backed
 * only then (some 1 GB/s against 10), and on any machine it may fail when an object is already on its way. */
#ifndef RS_DAEMON_RESERVE_H
#define RS_DAEMON_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint8_t *map;
    uint64_t size, filled; /* bytes */
} rs_reserve;

/* Takes address room for `size` bytes (0: an empty reserve); false with errno. */
bool rs_reserve_open(rs_reserve *reserve, uint64_t size);
void rs_reserve_close(rs_reserve *reserve);
/* Populates up to `bytes` more (whole huge pages). True if there is more to do; a system that has no memory to give
 * ends it. */
bool rs_reserve_fill(rs_reserve *reserve, uint64_t bytes);
/* Gives up to `bytes` back to the system. */
void rs_reserve_give(rs_reserve *reserve, uint64_t bytes);

#endif
