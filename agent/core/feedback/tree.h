/* The tree by which many receivers report: who collects whose reports.
 *
 * Receivers stand rack by rack. The first of a rack is its head: it alone collects from within the rack and reports
 * outside, so that what the rack says, and what is repaired for it, crosses the rack's links once. Heads form a tree
 * over the racks, the other receivers of each rack one below its head. Either is made the same way: an order falls into
 * parts of nearly equal size, each is headed by its first, and the rest of it falls into parts again. A pure function
 * of the racks' sizes: whoever knows them knows the whole tree. */
#ifndef RS_CORE_FEEDBACK_TREE_H
#define RS_CORE_FEEDBACK_TREE_H

#include "core/base/types.h"

#define RS_TREE_SENDER UINT32_MAX /* as a parent: the sender itself */
#define RS_TREE_TOPS 8u           /* docs/feedback.md: at 50 us for each they are asked every 0.4 ms */

typedef struct {
    const uint32_t *starts; /* The number of each rack's first receiver, in increasing order from 0. */
    uint32_t rack_count;
    uint32_t count; /* Receivers. */
    uint32_t tops;  /* Heads that report to the sender, at most; at least 1. */
    uint32_t arity; /* A head collects from so many heads and so many receivers of its rack at most; at least 1. */
} rs_tree;

typedef struct {
    uint32_t parent; /* Its number, or RS_TREE_SENDER. */
    uint32_t height; /* Levels below it: 0 for who collects nobody's reports. */
} rs_tree_place;

rs_tree_place rs_tree_place_of(const rs_tree *tree, uint32_t number);

#endif
