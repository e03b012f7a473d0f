/* QSM (Ostrowski and Birman, "QuickSilver Scalable Multicast"): many groups that overlap, carried by few regions. */
#ifndef RS_CORE_QSM_H
#define RS_CORE_QSM_H

#include "core/groups/engine.h"

extern const rs_group_engine rs_group_engine_qsm;

#endif
