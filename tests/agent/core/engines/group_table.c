/* The table of engines of groups with one row more: of what is linked with this, in place of core/groups/engines.c. */
#include "core/groups/engine.h"
#include "core/plain/plain.h"
#include "core/qsm/qsm.h"
#include "core/ricochet/ricochet.h"

extern const rs_group_engine rs_group_engine_resend;

const rs_group_engine *const rs_group_engines_known[] = {&rs_group_engine_plain, &rs_group_engine_ricochet,
                                                         &rs_group_engine_qsm, &rs_group_engine_resend};
const uint32_t rs_group_engine_count = sizeof rs_group_engines_known / sizeof *rs_group_engines_known;
