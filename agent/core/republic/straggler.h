/* Receivers that hold the others back. */
#ifndef RS_CORE_REPUBLIC_STRAGGLER_H
#define RS_CORE_REPUBLIC_STRAGGLER_H

#include "core/republic/state.h"

void rs_straggler_look(rs_node *node, rs_time now, rs_sending *x);
void rs_straggler_stop(rs_sending *x); /* high rate is over */

#endif
