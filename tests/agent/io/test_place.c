/* Wrongly predicted payloads reach their places, whatever the order (agent/io/place.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "io/place.h"

#define SLOT 96u
#define SLOTS 64u
#define BOUNCE (4 * SLOT)

typedef struct {
    uint8_t memory[SLOTS * SLOT];
    uint8_t bounce[SLOTS][BOUNCE];
    rs_placement placements[SLOTS];
    unsigned count;
} world;

static uint64_t random_state;

static unsigned draw(unsigned below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((random_state >> 33) % below);
}

static uint8_t content(unsigned datagram, unsigned at) {
    return (uint8_t)(datagram * 37u + at * 11u + 1u);
}

/* What the kernel does: a payload fills the predicted place as far as there is room, its rest to the bounce buffer. */
static void arrive(world *w, int slot, unsigned room, unsigned length, int target) {
    unsigned i = w->count++;
    rs_placement *p = &w->placements[i];
    *p = (rs_placement){.length = length, .bounce = w->bounce[i]};
    p->head = slot < 0 ? NULL : w->memory + (unsigned)slot * SLOT;
    p->head_length = slot < 0 ? 0 : room;
    p->target = target < 0 ? NULL : w->memory + (unsigned)target * SLOT;
    for (unsigned at = 0; at < length; at++)
        if (at < p->head_length)
            p->head[at] = content(i, at);
        else
            p->bounce[at] = content(i, at);
}

static void assert_at(const world *w, unsigned datagram, unsigned slot, unsigned length) {
    for (unsigned at = 0; at < length; at++)
        if (w->memory[slot * SLOT + at] != content(datagram, at))
            fail_msg("byte %u of datagram %u is not in slot %u", at, datagram, slot);
}

static world *new_world(void) {
    world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    memset(w->memory, 0xee, sizeof w->memory);
    return w;
}

static void place__right_predictions_are_left_alone(void **state) {
    (void)state;
    world *w = new_world();
    for (int i = 0; i < 5; i++)
        arrive(w, i, SLOT, SLOT, i);
    assert_int_equal(rs_place_all(w->placements, w->count), 0);
    for (unsigned i = 0; i < 5; i++)
        assert_at(w, i, i, SLOT);
    free(w);
}

static void place__one_loss_shifts_all_that_follow(void **state) {
    (void)state;
    world *w = new_world();
    for (int i = 0; i < 8; i++)
        arrive(w, i, SLOT, SLOT, i + 1);
    assert_int_equal(rs_place_all(w->placements, w->count), 8);
    for (unsigned i = 0; i < 8; i++)
        assert_at(w, i, i + 1, SLOT);
    free(w);
}

static void place__one_stranger_shifts_all_that_follow(void **state) {
    (void)state;
    world *w = new_world();
    arrive(w, 0, SLOT, 2 * SLOT, -1); /* a repair, say, which was not predicted */
    for (int i = 1; i < (int)SLOTS; i++)
        arrive(w, i, SLOT, SLOT, i - 1);
    assert_int_equal(rs_place_all(w->placements, w->count), SLOTS - 1);
    for (unsigned i = 1; i < SLOTS; i++)
        assert_at(w, i, i - 1, SLOT);
    free(w);
}

static void place__cycle_of_reordered_datagrams(void **state) {
    (void)state;
    world *w = new_world();
    arrive(w, 0, SLOT, SLOT, 1);
    arrive(w, 1, SLOT, SLOT, 2);
    arrive(w, 2, SLOT, SLOT, 0);
    rs_place_all(w->placements, w->count);
    assert_at(w, 0, 1, SLOT);
    assert_at(w, 1, 2, SLOT);
    assert_at(w, 2, 0, SLOT);
    free(w);
}

static void place__unwanted_datagram_frees_its_slot(void **state) {
    (void)state;
    world *w = new_world();
    arrive(w, 0, SLOT, SLOT, -1); /* an old one, where the next belongs */
    arrive(w, 1, SLOT, SLOT, 0);
    rs_place_all(w->placements, w->count);
    assert_at(w, 1, 0, SLOT);
    free(w);
}

static void place__longer_than_predicted(void **state) {
    (void)state;
    world *w = new_world();
    arrive(w, 3, 10, SLOT, 3); /* right place, but only 10 bytes of room were predicted */
    arrive(w, 4, 10, SLOT, 7); /* wrong place too */
    arrive(w, 5, SLOT, 20, 9); /* shorter */
    uint8_t neighbour[SLOT];
    memset(neighbour, 0xee, sizeof neighbour);
    rs_place_all(w->placements, w->count);
    assert_at(w, 0, 3, SLOT);
    assert_at(w, 1, 7, SLOT);
    assert_at(w, 2, 9, 20);
    assert_memory_equal(w->memory + 9 * SLOT + 20, neighbour, SLOT - 20);
    assert_memory_equal(w->memory + 8 * SLOT, neighbour, SLOT);
    free(w);
}

/* Any mixture of predictions, rooms, lengths and targets. */
static void place__random_batches(void **state) {
    (void)state;
    const char *given = getenv("ROSTRUM_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    random_state = seed;
    for (int round = 0; round < 2000; round++) {
        world *w = new_world();
        unsigned slots[SLOTS], targets[SLOTS], lengths[SLOTS];
        for (unsigned i = 0; i < SLOTS; i++)
            slots[i] = targets[i] = i;
        for (unsigned i = SLOTS - 1; i > 0; i--) {
            unsigned j = draw(i + 1), k = draw(i + 1), swap = slots[i];
            slots[i] = slots[j], slots[j] = swap;
            swap = targets[i], targets[i] = targets[k], targets[k] = swap;
        }
        unsigned count = 1 + draw(SLOTS), spread = 1 + draw(SLOTS); /* few slots: dense cycles */
        unsigned used = 0;
        for (unsigned i = 0; i < SLOTS && w->count < count; i++) {
            if (slots[i] >= spread && draw(4) != 0)
                continue;
            lengths[w->count] = draw(5) == 0 ? draw(SLOT + 1) : SLOT;
            arrive(w, draw(6) == 0 ? -1 : (int)slots[i], draw(5) == 0 ? draw(SLOT + 1) : SLOT, lengths[w->count],
                   draw(8) == 0 ? -1 : (int)targets[used]);
            used++;
        }
        rs_placement before[SLOTS];
        memcpy(before, w->placements, sizeof before);
        rs_place_all(w->placements, w->count);
        for (unsigned i = 0; i < w->count; i++)
            if (before[i].target)
                assert_at(w, i, (unsigned)(before[i].target - w->memory) / SLOT, lengths[i]);
        free(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place__right_predictions_are_left_alone),
        cmocka_unit_test(place__one_loss_shifts_all_that_follow),
        cmocka_unit_test(place__one_stranger_shifts_all_that_follow),
        cmocka_unit_test(place__cycle_of_reordered_datagrams),
        cmocka_unit_test(place__unwanted_datagram_frees_its_slot),
        cmocka_unit_test(place__longer_than_predicted),
        cmocka_unit_test(place__random_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
