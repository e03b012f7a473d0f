#include "baselines/srm_law.h"

/* Sec. VII-A: duplicates and delays that are aimed at, and how timers move. */
#define DUPLICATES_MOST 1.0
#define DUPLICATES_FEW 0.9
#define DUPLICATES_NONE 0.25
#define DELAY_MOST 1.0 /* distances */
#define WEIGHT 0.25    /* of the newest round in averages */
#define START_LEAST 0.5
#define START_MORE 0.1
#define START_LITTLE 0.05
#define WIDTH_LEAST 1.0
#define WIDTH_MORE 0.5
#define WIDTH_LESS 0.1

static double bounded(double value, double least, double most) {
    most = most > least ? most : least;
    return value < least ? least : value > most ? most : value;
}

srm_law srm_law_new(double start, double width, double start_most, uint32_t members) {
    return (srm_law){.start = start, .width = width, .start_most = start_most, .width_most = members};
}

void srm_law_adapt(srm_law *law) {
    if (law->duplicates >= DUPLICATES_MOST) {
        law->start += START_MORE;
        law->width += WIDTH_MORE;
    } else if (law->duplicates < DUPLICATES_FEW) {
        law->width -= law->delay > DELAY_MOST ? WIDTH_LESS : 0;
        law->start -= law->duplicates < DUPLICATES_NONE ? START_LITTLE : 0;
    } else {
        law->start += START_LITTLE;
    }
    law->start = bounded(law->start, START_LEAST, law->start_most);
    law->width = bounded(law->width, WIDTH_LEAST, law->width_most);
}

void srm_law_was_first(srm_law *law) {
    if (law->start > START_LEAST + START_LITTLE)
        law->start -= START_LITTLE;
}

void srm_law_count(srm_law *law, double duplicates) {
    law->duplicates += WEIGHT * (duplicates - law->duplicates);
}

void srm_law_took(srm_law *law, double delay) {
    law->delay += WEIGHT * (delay - law->delay);
}

rs_time srm_law_wait(const srm_law *law, double chance, double distance, uint32_t backoff) {
    double wait = (law->start + chance * law->width) * distance;
    return (rs_time)(wait * (double)(UINT64_C(1) << backoff));
}
