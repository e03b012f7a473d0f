/* Moves wrongly predicted payloads so that none is overwritten before it was moved itself. */
#include "io/place.h"

#include <stdbool.h>
#include <string.h>

static bool overlap(const uint8_t *a, size_t a_length, const uint8_t *b, size_t b_length) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_length > 0 && b_length > 0 && x < y + b_length && y < x + a_length;
}

/* Still to be moved: it has a target and part of it is elsewhere. */
static bool is_pending(const rs_placement *p) {
    return p->target && p->length > 0 && (p->head != p->target || p->head_length < p->length);
}

/* Another datagram that is still needed lies where `mine` belongs. */
static bool is_blocked(const rs_placement *all, unsigned count, unsigned mine) {
    for (unsigned i = 0; i < count; i++)
        if (i != mine && is_pending(&all[i]) && all[i].head &&
            overlap(all[mine].target, all[mine].length, all[i].head, all[i].head_length))
            return true;
    return false;
}

static void move(rs_placement *p) {
    uint32_t head_length = p->head ? p->head_length : 0;
    if (head_length > 0 && p->head != p->target)
        memmove(p->target, p->head, head_length);
    if (p->length > head_length)
        memcpy(p->target + head_length, p->bounce + head_length, p->length - head_length);
    p->head = p->target;
    p->head_length = p->length;
}

/* Out of the others' way, into its own buffer. */
static void evacuate(rs_placement *p) {
    memcpy(p->bounce, p->head, p->head_length);
    p->head = NULL;
    p->head_length = 0;
}

static void break_cycle(rs_placement *all, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (is_pending(&all[i]) && all[i].head) {
            evacuate(&all[i]);
            return;
        }
}

unsigned rs_place_all(rs_placement *placements, unsigned count) {
    unsigned pending = 0;
    for (unsigned i = 0; i < count; i++) {
        rs_placement *p = &placements[i];
        if (p->head && p->head_length > p->length)
            p->head_length = p->length;
        pending += is_pending(p);
    }
    unsigned moved = pending;
    for (bool upward = false; pending > 0; upward = !upward) {
        unsigned before = pending;
        /* From the last to the first: after a loss all that follow lie too low, and the last one's target is free. Then
         * from the first: after a datagram that was not predicted all that follow lie too high. */
        for (unsigned k = 0; k < count; k++) {
            unsigned i = upward ? k : count - 1 - k;
            if (is_pending(&placements[i]) && !is_blocked(placements, count, i)) {
                move(&placements[i]);
                pending--;
            }
        }
        if (pending == before)
            break_cycle(placements, count);
    }
    return moved;
}
