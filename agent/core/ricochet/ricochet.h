/* Ricochet (Balakrishnan et al., NSDI 2007; docs/ricochet.md): lateral error correction. Each packet that a member
 * receives is put into repairs of r packets for c of the other members on average; what they do not bring is asked for
 * with NAKs. Files: regions.h who is to get repairs of what, bins.h repairs being made, kept.h repairs received. */
#ifndef RS_CORE_RICOCHET_RICOCHET_H
#define RS_CORE_RICOCHET_RICOCHET_H

#include "core/groups/engine.h"

extern const rs_group_engine rs_group_engine_ricochet;

#endif
