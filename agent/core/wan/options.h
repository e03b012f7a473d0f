/* The options of the engine for wide areas, for rs_config.options (docs/wan.md). */
#ifndef RS_CORE_WAN_OPTIONS_H
#define RS_CORE_WAN_OPTIONS_H

#include "core/base/types.h"

/* Of rs_wan_config.memory: bounds; others of that order would do. */
#define RS_WAN_MEMORY_LEAST (UINT64_C(1) << 20)
#define RS_WAN_MEMORY_MOST (UINT64_C(1) << 40)

typedef enum {
    RS_WAN_OWN = 0,      /* by what comes out and by delay: docs/wan.md, "Rate" */
    RS_WAN_FRIENDLY = 1, /* shares with TCP: the window of CUBIC, as a rate */
    RS_WAN_FIXED = 2     /* fixed_bps, whatever happens */
} rs_wan_congestion;

/* Zero in any field means its default, given in brackets. */
typedef struct {
    rs_wan_congestion congestion; /* [own] */
    int64_t fixed_bps;            /* with RS_WAN_FIXED, and only then: on the wire */
    bool coded;                   /* repairs are XORs of fragments that different receivers miss [plain copies] */
    uint32_t proactive;           /* after so many data packets goes the XOR of them, 2 to 21 [0: never] */
    bool wait;                    /* all wait for a receiver that is much slower than the others [it is demoted] */
    uint64_t memory;              /* bytes sent and not freed, of all transfers of this agent together [512 MiB] */
} rs_wan_config;

#endif
