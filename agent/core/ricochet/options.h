/* What Ricochet is given for a node, in rs_messages_config.engines. */
#ifndef RS_CORE_RICOCHET_OPTIONS_H
#define RS_CORE_RICOCHET_OPTIONS_H

#include "core/base/types.h"

/* Zero in any field means its default, given in brackets. */
typedef struct {
    uint32_t kept_repairs;   /* Repairs received that cannot be used yet and are kept [1024]. */
    uint32_t repair_buffers; /* Repairs being made or waiting to be sent [16,384]. */
    /* A repair that is still not full this long after its first packet is sent as it is, so that a quiet node repairs
     * too; each packet is still in c repairs, but these are of fewer packets each. [0: never, as in the paper] */
    rs_time flush;
} rs_ricochet_config;

#endif
