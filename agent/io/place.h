/* Bringing received payloads to where they belong when the kernel wrote some of them elsewhere.
 *
 * The payload of datagram i lies in two pieces: `head_length` bytes at `head` (a predicted place in an object, that may
 * be the place of another datagram of the batch) and the rest at bounce + head_length. Each bounce buffer is the
 * datagram's own and has room for the whole payload. */
#ifndef RS_IO_PLACE_H
#define RS_IO_PLACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint8_t *target; /* where it belongs; NULL = nowhere */
    uint32_t length; /* of the whole payload */
    uint8_t *head;   /* predicted place; NULL = none, all of it is in the bounce buffer */
    uint32_t head_length;
    uint8_t *bounce;
} rs_placement;

/* Moves every payload to its target, whatever cycles the places form. Targets must not overlap each other. Returns how
 * many had to be moved; what lay right stays untouched. */
unsigned rs_place_all(rs_placement *placements, unsigned count);

#endif
