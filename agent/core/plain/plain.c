#include "core/plain/plain.h"

#include "core/groups/state.h"

static rs_group_policy policy(const rs_messages *node, const rs_gm_group *next) {
    if (next->whole)
        return (rs_group_policy){.recovers = true, .naks = true, .alone = true, .give_up = node->config.give_up};
    return (rs_group_policy){.give_up = node->config.give_up_plain};
}

const rs_group_engine rs_group_engine_plain = {.name = "plain", .meaning = "what is lost is lost", .policy = policy};
