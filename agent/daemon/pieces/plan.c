#include "daemon/pieces/plan.h"

#include <stdlib.h>

#include "core/base/random.h"

enum { MISSING, ASKED, HERE, COMES };

struct rs_piece_plan {
    uint32_t pieces, missing;
    uint64_t random;
    uint8_t *state;
    uint16_t *holders; /* that have it */
};

rs_piece_plan *rs_piece_plan_new(uint32_t pieces, uint64_t seed) {
    rs_piece_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    *plan = (rs_piece_plan){.pieces = pieces, .missing = pieces, .random = seed};
    plan->state = calloc((size_t)pieces + 1, sizeof *plan->state);
    plan->holders = calloc((size_t)pieces + 1, sizeof *plan->holders);
    if (!plan->state || !plan->holders) {
        rs_piece_plan_free(plan);
        return NULL;
    }
    return plan;
}

void rs_piece_plan_free(rs_piece_plan *plan) {
    if (!plan)
        return;
    free(plan->state);
    free(plan->holders);
    free(plan);
}

void rs_piece_plan_holder(rs_piece_plan *plan, uint32_t piece, bool has) {
    if (piece < plan->pieces)
        plan->holders[piece] = (uint16_t)(plan->holders[piece] + (has ? 1 : -1));
}

static void set_state(rs_piece_plan *plan, uint32_t piece, uint8_t state) {
    if (piece >= plan->pieces)
        return;
    plan->missing -= plan->state[piece] == MISSING;
    plan->missing += state == MISSING;
    plan->state[piece] = state;
}

void rs_piece_plan_here(rs_piece_plan *plan, uint32_t piece) {
    set_state(plan, piece, HERE);
}

void rs_piece_plan_wait(rs_piece_plan *plan, uint32_t first, uint32_t end, bool comes) {
    for (uint32_t piece = first; piece < end && piece < plan->pieces; piece++)
        if (plan->state[piece] == (comes ? MISSING : COMES))
            set_state(plan, piece, comes ? COMES : MISSING);
}

void rs_piece_plan_again(rs_piece_plan *plan, uint32_t piece) {
    set_state(plan, piece, MISSING);
}

bool rs_piece_plan_next(rs_piece_plan *plan, const uint8_t *bits, uint32_t *piece) {
    uint32_t equals = 0, rarest = UINT32_MAX;
    for (uint32_t i = 0; plan->missing > 0 && i < plan->pieces; i++) {
        if (plan->state[i] != MISSING || !(bits[i / 8] >> i % 8 & 1) || plan->holders[i] > rarest)
            continue;
        equals = plan->holders[i] < rarest ? 1 : equals + 1;
        rarest = plan->holders[i];
        if (rs_random_next(&plan->random) % equals == 0)
            *piece = i;
    }
    if (equals > 0)
        set_state(plan, *piece, ASKED);
    return equals > 0;
}

uint32_t rs_piece_plan_missing(const rs_piece_plan *plan) {
    return plan->missing;
}
