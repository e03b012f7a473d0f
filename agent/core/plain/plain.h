/* Plain groups: multicast as the network does it. What is lost stays lost, and is told. */
#ifndef RS_CORE_PLAIN_PLAIN_H
#define RS_CORE_PLAIN_PLAIN_H

#include "core/groups/engine.h"

extern const rs_group_engine rs_group_engine_plain;

#endif
