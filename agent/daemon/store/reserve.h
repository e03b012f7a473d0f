/* Memory kept ready for objects: files without a name in the store's folder, written full of zeros beforehand. An
 * object of such a size takes one as its own, and none of its pages is made while it comes. That takes longer than
 * receiving them does where a virtual machine's memory is backed at its first touch (some 1 GB/s against 10), and may
 * fail on any machine when an object is already on its way. Other objects have as much given back as they allocate.
 *
 * What an object leaves behind when it is deleted is not taken again: who has read it may keep its pages (in a pipe, in
 * a socket, pinned) after the file is closed, and would see the next object there. */
#ifndef RS_DAEMON_RESERVE_H
#define RS_DAEMON_RESERVE_H

#include "daemon/store/files.h"

#include <stdbool.h>
#include <stdint.h>

#define RS_RESERVE_FILES 8u
#define RS_RESERVE_SURPLUS ((uint64_t)64 << 20) /* of a file that an object takes, at most: freed at once, in 10 ms */

typedef struct {
    int fd;
    uint64_t filled; /* bytes from its beginning on, whole slices */
} rs_ready_file;

typedef struct {
    const rs_store_folder *folder;
    uint64_t size, filled; /* bytes */
    uint64_t each;         /* of a file: as large as the last object that was no small part of the reserve */
    unsigned count;
    rs_ready_file files[RS_RESERVE_FILES];
} rs_reserve;

/* Nothing is taken from the system yet. `folder` outlives the reserve. */
void rs_reserve_open(rs_reserve *reserve, const rs_store_folder *folder, uint64_t size);
void rs_reserve_close(rs_reserve *reserve);
/* Makes up to `bytes` more ready (whole slices). True if there is more to do; a system that has no memory to give ends
 * it, and so does a tmpfs that is nearly full. */
bool rs_reserve_fill(rs_reserve *reserve, uint64_t bytes);
bool rs_reserve_is_filled(const rs_reserve *reserve);
/* Gives up to `bytes` back to the system. */
void rs_reserve_give(rs_reserve *reserve, uint64_t bytes);
/* A file for an object of `size` bytes, of which the first `*ready` are there; -1: none fits. */
int rs_reserve_take(rs_reserve *reserve, uint64_t size, uint64_t *ready);

#endif
