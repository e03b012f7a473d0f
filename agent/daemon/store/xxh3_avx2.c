/* xxh3-128 with 256-bit vectors: a third of the time, and this file is compiled for processors that have them. */
#include "daemon/store/xxh3_ways.h"

const rs_xxh3 rs_xxh3_avx2 = RS_XXH3_WAY;
