/* Republic (docs/republic.md), the engine of objects that goes by every path: its row in the table of engines. */
#ifndef RS_CORE_REPUBLIC_REPUBLIC_H
#define RS_CORE_REPUBLIC_REPUBLIC_H

#include "core/transfer/engine.h"

extern const rs_engine rs_engine_republic;

#endif
