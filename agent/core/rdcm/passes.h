/* When the data went by which sequence number: the stretches of some 16 per ACK timeout that are remembered say since
 * when a packet could have been acknowledged, without a time for each packet. */
#ifndef RS_CORE_RDCM_PASSES_H
#define RS_CORE_RDCM_PASSES_H

#include "core/base/types.h"

#define RS_PASSES 64 /* stretches remembered: four timeouts of a sixteenth each (docs/rdcm.md) */

typedef struct {
    uint64_t top;  /* All below had passed. */
    rs_time first; /* The stretch that ends with it began then, */
    rs_time at;    /* and this is told for all of it. */
} rs_pass;

typedef struct {
    uint32_t newest; /* It lies there in the ring, */
    uint32_t count;  /* which has so many. */
    rs_pass ring[RS_PASSES];
    uint64_t forgotten; /* All below passed before the oldest stretch. */
} rs_passes;

/* All below `top` have passed; it increases. Stretches are as long as `grain`. */
void rs_passes_note(rs_passes *passes, rs_time now, uint64_t top, rs_time grain);
/* All below had passed at that time. */
uint64_t rs_passes_by(const rs_passes *passes, rs_time at);
/* When it passed, within a grain: never too early. RS_NEVER: it has not; INT64_MIN: long ago. */
rs_time rs_passes_when(const rs_passes *passes, uint64_t sn);
/* In which so many pass, as of late; `otherwise` where too few did to tell. */
rs_time rs_passes_time(const rs_passes *passes, uint32_t packets, rs_time otherwise);
/* The end of the oldest stretch that is remembered; INT64_MIN: none is. */
rs_time rs_passes_oldest(const rs_passes *passes);

#endif
