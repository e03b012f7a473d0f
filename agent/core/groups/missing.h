/* What is known to be missing, and given up in the end. */
#ifndef RS_CORE_GROUPS_MISSING_H
#define RS_CORE_GROUPS_MISSING_H

#include "core/groups/state.h"

/* False if there is no room to remember it: it is given up. */
bool rs_gm_missing_new(rs_messages *node, rs_time now, rs_gm_stream *stream, uint64_t sn);
/* It is of no interest any more. */
void rs_gm_missing_free(rs_messages *node, rs_gm_missing *missing);
/* The group's engine needs not wait for it any more. */
void rs_gm_missing_drop(rs_messages *node, rs_gm_missing *missing);
/* Given up: reported, its slot is RS_GM_GONE. */
void rs_gm_missing_lost(rs_messages *node, rs_time now, rs_gm_missing *missing, rs_messages_reason reason);
void rs_gm_missing_timeout(rs_messages *node, rs_time now);
rs_time rs_gm_missing_deadline(const rs_messages *node);

#endif
