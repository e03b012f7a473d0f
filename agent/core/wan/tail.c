#include "core/wan/tail.h"

#include <math.h>

/* Rows are primes, so that two fragments that one pass has in one XOR are apart in all others: passes shift each row
 * by a multiple of a row's part of the columns. */
static const uint32_t primes[] = {19, 17, 13, 11, 7, 5, 3, 2, 1};
#define COLUMNS_MOST 190 /* distances in a repair packet are a byte (wire.h) */
#define PASSES_LEAST 2   /* losses come in bursts, and a pass cannot mend all (a bound) */
#define PASSES_MOST 4    /* (a bound) */
#define LOST_LEAST 0.005 /* is reckoned with: of a short object little is known (a bound) */
#define ROWS_LOST 0.45   /* fragments of an XOR that are lost at most, in the mean (tests/agent/core/wan/test_tail.c) */
#define REST 0.02        /* fragments still missing in the end, in the mean (as ROWS_LOST) */

void rs_wan_tail_begin(rs_wan_tail *t, uint64_t first, uint64_t end, double lost) {
    double count = (double)(end - first), most = sqrt(count);
    lost = lost > LOST_LEAST ? lost : LOST_LEAST;
    most = most * lost > ROWS_LOST ? ROWS_LOST / lost : most;
    most = most > 2 ? most : 2; /* a packet of each */
    uint32_t i = 0;
    while ((double)primes[i] > most)
        i++;
    *t = (rs_wan_tail){.first = first, .end = end, .rows = primes[i]};
    uint64_t most_of_block = (uint64_t)t->rows * COLUMNS_MOST,
             blocks = (end - first + most_of_block - 1) / most_of_block;
    t->columns = blocks ? (uint32_t)((end - first + t->rows * blocks - 1) / (t->rows * blocks)) : 0;
    double rest = count * lost;
    while (t->passes < PASSES_LEAST || (rest > REST && t->passes < PASSES_MOST)) {
        rest *= 1 - pow(1 - rest / count, t->rows - 1);
        t->passes++;
    }
}

/* Packets of a pass: XORs, and before them the last fragment, which tells that there was one; or is all there is. */
static uint64_t of_pass(const rs_wan_tail *t) {
    uint64_t count = t->end - t->first, block = (uint64_t)t->rows * t->columns;
    return count <= 1 ? 1 : 1 + (count + block - 1) / block * t->columns;
}

bool rs_wan_tail_left(const rs_wan_tail *t) {
    return t->end > t->first && t->at < t->passes * of_pass(t);
}

uint32_t rs_wan_tail_next(rs_wan_tail *t, uint64_t member[RS_COMBINE_MAX]) {
    while (rs_wan_tail_left(t)) {
        uint64_t pass = t->at / of_pass(t), packet = t->at % of_pass(t);
        t->at++;
        if (packet == 0) {
            member[0] = t->end - 1;
            return 1;
        }
        uint64_t block = t->first + (packet - 1) / t->columns * t->columns * t->rows,
                 column = (packet - 1) % t->columns;
        uint64_t shift = pass * (t->columns / t->rows > 1 ? t->columns / t->rows : 1);
        uint32_t count = 0;
        for (uint64_t row = 0; row < t->rows; row++) {
            uint64_t sn = block + row * t->columns + (column + row * shift) % t->columns;
            if (sn < t->end)
                member[count++] = sn;
        }
        if (count)
            return count;
    }
    return 0;
}
