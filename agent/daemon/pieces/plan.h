/* Which piece is asked of which holder: the rarest of those that are missing, by chance among equals, so that servers
 * that fetch the same have different pieces to give each other. No I/O, no clock. */
#ifndef RS_PIECES_PLAN_H
#define RS_PIECES_PLAN_H

#include "core/base/types.h"

typedef struct rs_piece_plan rs_piece_plan;

/* NULL: out of memory. */
rs_piece_plan *rs_piece_plan_new(uint32_t pieces, uint64_t seed);
void rs_piece_plan_free(rs_piece_plan *plan);
/* One more holder has it, or one less. */
void rs_piece_plan_holder(rs_piece_plan *plan, uint32_t piece, bool has);
void rs_piece_plan_here(rs_piece_plan *plan, uint32_t piece);
/* Those that are missing, from `first` to before `end`, come by themselves and are not asked for; or are again. */
void rs_piece_plan_wait(rs_piece_plan *plan, uint32_t first, uint32_t end, bool comes);
/* It was asked for and will not come. */
void rs_piece_plan_again(rs_piece_plan *plan, uint32_t piece);
/* A piece to be asked of a holder of `bits`, which counts as asked for then. False: it has none that is missing. */
bool rs_piece_plan_next(rs_piece_plan *plan, const uint8_t *bits, uint32_t *piece);
/* Pieces that are neither here, nor asked for, nor come by themselves. */
uint32_t rs_piece_plan_missing(const rs_piece_plan *plan);

#endif
