/* What Ricochet is given for a node, in rs_messages_config.engines. */
#ifndef RS_CORE_RICOCHET_OPTIONS_H
#define RS_CORE_RICOCHET_OPTIONS_H

#include "core/base/types.h"

/* Zero in any field means its default, given in brackets. */
typedef struct {
    uint32_t kept_repairs;   /* Repairs received that cannot be used yet and are kept [1024]. */
    uint32_t repair_buffers; /* Repairs being made or waiting to be sent [16,384]. */
    /* The option `flush` of groups that have none of their own, with a timer as exact as that. [0: never, as in the
     * paper] */
    rs_time flush;
} rs_ricochet_config;

#endif
