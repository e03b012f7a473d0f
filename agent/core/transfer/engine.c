/* The engines of objects that this agent knows. */
#include "core/transfer/engine.h"

#include "core/rdcm/rdcm.h"
#include "core/republic/republic.h"
#include "core/wan/wan.h"

const rs_engine *const rs_engines_known[] = {&rs_engine_republic, &rs_engine_rdcm, &rs_engine_wan};
const uint32_t rs_engine_count = sizeof rs_engines_known / sizeof rs_engines_known[0];
