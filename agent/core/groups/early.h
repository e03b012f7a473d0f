/* What an engine's datagrams carried, of groups that no view tells of yet, or of senders in them: views of regions and
 * of groups are told one after the other, and who heard of both first may have sent. Such packets count as delivered
 * where they were carried, so they wait here: EARLY_BYTES of them, for EARLY_BOUND, and only that long after a view. */
#ifndef RS_CORE_GROUPS_EARLY_H
#define RS_CORE_GROUPS_EARLY_H

#include "core/groups/state.h"

/* A view was told: others may follow that belong to it. */
void rs_gm_early_expect(rs_messages *node, rs_time now);
/* Copies the packet; false: it is not to be expected that a view comes for it. */
bool rs_gm_early_carried(rs_messages *node, rs_time now, rs_peer sender, const uint8_t *bytes, size_t length,
                         rs_messages_via via);
/* Gives, oldest first, each packet of the group whose sender is believed; what is given is kept no more. None is kept
 * meanwhile. */
void rs_gm_early_give(rs_messages *node, rs_time now, const rs_gm_group *group,
                      void (*take)(rs_messages *node, rs_time now, const rs_gm_carried *packet));
void rs_gm_early_timeout(rs_messages *node, rs_time now);
rs_time rs_gm_early_deadline(const rs_messages *node);
void rs_gm_early_free(rs_messages *node);

#endif
