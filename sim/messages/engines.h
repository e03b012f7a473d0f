/* For C programs around the simulator: message groups with engines of their own (agent/core/groups/engine.h). */
#ifndef ROSTRUM_SIM_MESSAGES_ENGINES_H
#define ROSTRUM_SIM_MESSAGES_ENGINES_H

#include "core/groups/engine.h"
#include "messages/messages.h"

#pragma GCC visibility push(default)

/* The engines of hosts that get theirs from now on; must stay. Else they are the agent's. */
void sim_groups_engines(sim_groups *groups, const rs_group_engine *const *engines, uint32_t count);

/* Each group has this further channel, beside the one of its number. */
#define SIM_SECOND_CHANNEL(group) ((group) | UINT32_C(1) << 24)

#pragma GCC visibility pop

#endif
