/* Groups' views: how they begin to hold (rs_messages_set_view, rs_messages_change_view), and end. */
#ifndef RS_CORE_GROUPS_VIEWS_H
#define RS_CORE_GROUPS_VIEWS_H

#include "core/groups/state.h"

/* The group is in no table any more. */
void rs_gm_group_free(rs_messages *node, rs_gm_group *group);
/* Why an engine, or the node, does not take a view or its options, for rs_messages_refusal. */
__attribute__((format(printf, 2, 3))) void rs_gm_refuse(rs_messages *node, const char *format, ...);

#endif
