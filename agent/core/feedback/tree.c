#include "core/feedback/tree.h"

typedef struct {
    uint32_t from, to; /* [from, to) */
} part;

/* Of the parts that [from, to) falls into, the one with `number` in it. */
static part part_of(part whole, uint32_t parts, uint32_t number) {
    uint32_t size = whole.to - whole.from, count = parts < size ? parts : size;
    uint32_t least = size / count, larger = size % count, offset = number - whole.from;
    uint32_t in_larger = larger * (least + 1);
    uint32_t nth = offset < in_larger ? offset / (least + 1) : larger + (offset - in_larger) / least;
    uint32_t from = whole.from + nth * least + (nth < larger ? nth : larger);
    return (part){from, from + least + (nth < larger)};
}

/* Levels below the head of so many. */
static uint32_t height(uint32_t size, uint32_t arity) {
    uint32_t levels = 0;
    for (uint32_t below = size - 1; below > 0; below = (below + arity - 1) / arity - 1)
        levels++;
    return levels;
}

/* In an order of `count`: who is above, and how many levels are below. */
static rs_tree_place place_in(uint32_t count, uint32_t tops, uint32_t arity, uint32_t number) {
    rs_tree_place place = {.parent = RS_TREE_SENDER};
    part p = part_of((part){0, count}, tops, number);
    while (p.from != number) {
        place.parent = p.from;
        p = part_of((part){p.from + 1, p.to}, arity, number);
    }
    place.height = height(p.to - p.from, arity);
    return place;
}

static uint32_t rack_of(const rs_tree *tree, uint32_t number) {
    uint32_t low = 0, high = tree->rack_count - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (tree->starts[middle] <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

rs_tree_place rs_tree_place_of(const rs_tree *tree, uint32_t number) {
    uint32_t rack = rack_of(tree, number), head = tree->starts[rack];
    uint32_t end = rack + 1 < tree->rack_count ? tree->starts[rack + 1] : tree->count, others = end - head - 1;
    if (number == head) {
        rs_tree_place place = place_in(tree->rack_count, tree->tops, tree->arity, rack);
        if (place.parent != RS_TREE_SENDER)
            place.parent = tree->starts[place.parent];
        if (others) /* a rack below may have as many levels */
            place.height += height(others + 1, tree->arity);
        return place;
    }
    rs_tree_place place = place_in(others, tree->arity, tree->arity, number - head - 1);
    place.parent = place.parent == RS_TREE_SENDER ? head : head + 1 + place.parent;
    return place;
}
