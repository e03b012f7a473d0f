/* The table of engines with one row more: of what is linked with this, in place of core/transfer/engine.c. */
#include "core/rdcm/rdcm.h"
#include "core/republic/republic.h"
#include "core/transfer/engine.h"
#include "core/wan/wan.h"

extern const rs_engine rs_engine_plainseq;

const rs_engine *const rs_engines_known[] = {&rs_engine_republic, &rs_engine_rdcm, &rs_engine_wan, &rs_engine_plainseq};
const uint32_t rs_engine_count = sizeof rs_engines_known / sizeof rs_engines_known[0];
