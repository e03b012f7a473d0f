/* What came before its view: data of groups that no view tells of yet, or of senders in them. Views of regions and of
 * groups are told one after the other, and who heard of both first may have sent; a program's first message may be
 * quicker than the view that lists it. All of it waits in one room:
 *   expected  carried by an engine's datagrams, a moment after some view: such packets count as delivered where they
 *             were carried; 4 MiB, 3 s, and of groups that are not known, too
 *   strange   of a sender that its group's view does not list: few, and a sender has a part of them at most, for 1 s */
#ifndef RS_CORE_GROUPS_EARLY_H
#define RS_CORE_GROUPS_EARLY_H

#include "core/groups/state.h"

/* A view was told: others may follow that belong to it. */
void rs_gm_early_expect(rs_messages *node, rs_time now);
/* Copies the packet. `known`: its group is here, and lacks the sender. false: there is no room for it, or nothing says
 * that a view comes for it. */
bool rs_gm_early_keep(rs_messages *node, rs_time now, rs_peer sender, const uint8_t *bytes, size_t length,
                      rs_messages_via via, bool carried, bool known);
/* Gives, oldest first, each packet of the group whose sender is believed; what is given is kept no more. None is kept
 * meanwhile. */
void rs_gm_early_give(rs_messages *node, rs_time now, const rs_gm_group *group,
                      void (*take)(rs_messages *node, rs_time now, const rs_gm_early *packet));
void rs_gm_early_timeout(rs_messages *node, rs_time now);
rs_time rs_gm_early_deadline(const rs_messages *node);
void rs_gm_early_free(rs_messages *node);

#endif
