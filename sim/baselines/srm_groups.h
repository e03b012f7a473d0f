/* SRM as an engine of message groups: "srm" in the simulator's groups, beside the agents' own engines. */
#ifndef SIM_SRM_GROUPS_H
#define SIM_SRM_GROUPS_H

#include "core/groups/engine.h"

extern const rs_group_engine rs_group_engine_srm;

#endif
