/* The engines of groups that this agent knows. */
#include "core/groups/engine.h"
#include "core/plain/plain.h"
#include "core/qsm/qsm.h"
#include "core/ricochet/ricochet.h"

const rs_group_engine *const rs_group_engines_known[] = {&rs_group_engine_plain, &rs_group_engine_ricochet,
                                                         &rs_group_engine_qsm};
const uint32_t rs_group_engine_count = sizeof rs_group_engines_known / sizeof *rs_group_engines_known;
