#include "daemon/store/reserve.h"

#include <stddef.h>
#include <unistd.h>

#define ROOM_LEFT 16 /* this part of the tmpfs stays free for what others put there */

static uint64_t whole(uint64_t bytes) {
    return (bytes + RS_STORE_SLICE - 1) / RS_STORE_SLICE * RS_STORE_SLICE;
}

void rs_reserve_open(rs_reserve *reserve, const rs_store_folder *folder, uint64_t size) {
    *reserve = (rs_reserve){.folder = folder, .size = whole(size), .each = whole(size)};
}

void rs_reserve_close(rs_reserve *reserve) {
    for (unsigned i = 0; i < reserve->count; i++)
        close(reserve->files[i].fd);
    *reserve = (rs_reserve){0};
}

/* The file leaves the reserve, and is the caller's. */
static int take_out(rs_reserve *reserve, unsigned at) {
    int fd = reserve->files[at].fd;
    reserve->filled -= reserve->files[at].filled;
    reserve->count--;
    for (unsigned i = at; i < reserve->count; i++)
        reserve->files[i] = reserve->files[i + 1];
    return fd;
}

/* The end of a file, up to `bytes`, goes back to the system; its bytes. More: all of a file that cannot be cut. */
static uint64_t cut(rs_reserve *reserve, unsigned at, uint64_t bytes) {
    rs_ready_file *file = &reserve->files[at];
    uint64_t part = bytes < file->filled ? bytes : file->filled;
    if (part == file->filled || ftruncate(file->fd, (off_t)(file->filled - part)) < 0) {
        part = file->filled;
        close(take_out(reserve, at));
        return part;
    }
    file->filled -= part;
    reserve->filled -= part;
    return part;
}

/* A file that is larger than objects are now; RS_RESERVE_FILES: none. */
static unsigned too_large(const rs_reserve *reserve) {
    for (unsigned i = 0; i < reserve->count; i++)
        if (reserve->files[i].filled > reserve->each)
            return i;
    return RS_RESERVE_FILES;
}

static unsigned not_full(const rs_reserve *reserve) {
    for (unsigned i = 0; i < reserve->count; i++)
        if (reserve->files[i].filled < reserve->each)
            return i;
    return RS_RESERVE_FILES;
}

bool rs_reserve_is_filled(const rs_reserve *reserve) {
    bool no_more = reserve->count == RS_RESERVE_FILES && not_full(reserve) == RS_RESERVE_FILES;
    return too_large(reserve) == RS_RESERVE_FILES && (reserve->filled == reserve->size || no_more);
}

/* One slice more in the first file that lacks some, or in a new one. */
static bool fill_slice(rs_reserve *reserve) {
    uint64_t unused, total;
    rs_error error;
    if (!rs_store_folder_space(reserve->folder, &unused, &total, &error) || unused < total / ROOM_LEFT + RS_STORE_SLICE)
        return false;
    unsigned at = not_full(reserve);
    if (at == RS_RESERVE_FILES) {
        int fd = rs_store_file_new(reserve->folder, 0, &error);
        if (fd < 0)
            return false;
        at = reserve->count++;
        reserve->files[at] = (rs_ready_file){.fd = fd};
    }
    rs_ready_file *file = &reserve->files[at];
    if (ftruncate(file->fd, (off_t)(file->filled + RS_STORE_SLICE)) < 0 || /* whether it may be huge goes by the size */
        !rs_store_file_zeros(file->fd, file->filled, RS_STORE_SLICE)) {
        (void)cut(reserve, at, 0); /* what was written of it */
        return false;
    }
    file->filled += RS_STORE_SLICE;
    reserve->filled += RS_STORE_SLICE;
    return true;
}

bool rs_reserve_fill(rs_reserve *reserve, uint64_t bytes) {
    for (uint64_t did = 0; did < bytes && !rs_reserve_is_filled(reserve);) {
        unsigned large = too_large(reserve);
        if (large < RS_RESERVE_FILES) {
            uint64_t surplus = reserve->files[large].filled - reserve->each, most = whole(bytes - did);
            did += cut(reserve, large, surplus < most ? surplus : most);
            continue;
        }
        if (!fill_slice(reserve))
            return false;
        did += RS_STORE_SLICE;
    }
    return !rs_reserve_is_filled(reserve);
}

void rs_reserve_give(rs_reserve *reserve, uint64_t bytes) {
    for (uint64_t left = whole(bytes), went; left > 0 && reserve->count > 0; left -= went < left ? went : left)
        went = cut(reserve, reserve->count - 1, left);
}

/* The smallest one that is large enough and not much larger; else the largest that is smaller. */
static unsigned best_for(const rs_reserve *reserve, uint64_t size) {
    unsigned best = RS_RESERVE_FILES;
    for (unsigned i = 0; i < reserve->count; i++) {
        uint64_t has = reserve->files[i].filled, most = best < RS_RESERVE_FILES ? reserve->files[best].filled : 0;
        bool nearer = most < size ? has > most : has >= size && has < most;
        if (has <= size + RS_RESERVE_SURPLUS && nearer)
            best = i;
    }
    return best;
}

int rs_reserve_take(rs_reserve *reserve, uint64_t size, uint64_t *ready) {
    if (size == 0 || size < reserve->size / RS_RESERVE_FILES)
        return -1;
    reserve->each = whole(size) < reserve->size ? whole(size) : reserve->size;
    unsigned at = best_for(reserve, size);
    if (at == RS_RESERVE_FILES || ftruncate(reserve->files[at].fd, (off_t)size) < 0)
        return -1;
    *ready = reserve->files[at].filled < size ? reserve->files[at].filled : size;
    return take_out(reserve, at);
}
