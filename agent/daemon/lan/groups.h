/* Message groups of a LAN that nobody manages (docs/lan.md): the agents whose programs use a group tell each other, and
 * each makes its own views of it. No I/O and no clock: time and messages go in, messages and views come out.
 *
 * It stands in for the manager: the same calls, and views by the same callbacks. */
#ifndef RS_DAEMON_LAN_GROUPS_H
#define RS_DAEMON_LAN_GROUPS_H

#include "daemon/lan/peers.h"
#include "daemon/manager/client.h"

#define RS_LAN_GROUPS_MAX 1024u  /* used here at a time */
#define RS_LAN_MEMBERS_MAX 1024u /* of a group, besides this agent */
#define RS_LAN_SERVERS_MAX 8192u /* met in groups since this agent was started */

typedef struct rs_lan_groups rs_lan_groups;

typedef struct {
    const char *server;
    uint32_t address; /* IPv4, host order */
    uint16_t control_port, data_port;
    uint64_t boot, seed, secret;
    const rs_lan_known *peers; /* RS_LAN_PEERS_MAX */
    const rs_manager_callbacks *views;
    void *context;
    /* Who says it is filled in by the callee; address 0: to all of the LAN, by multicast and broadcast. */
    void (*say)(void *context, rs_lan_group_message *message, uint32_t address, uint16_t port);
    /* A multicast address that no path uses: `wanted`, or the next one after it. */
    uint32_t (*address_free)(void *context, uint32_t wanted);
    /* Members that the group's multicast does not reach: they get copies. */
    void (*copies)(void *context, const char *group, const uint32_t *addresses, uint32_t count);
    int64_t (*wall_clock)(void);
} rs_lan_groups_options;

/* NULL: out of memory. The options are copied, but for what they point to. */
rs_lan_groups *rs_lan_groups_new(const rs_lan_groups_options *options);
void rs_lan_groups_free(rs_lan_groups *groups);
rs_time rs_lan_groups_deadline(const rs_lan_groups *groups);
void rs_lan_groups_timeout(rs_lan_groups *groups, rs_time now);

/* A program here uses a group, or none does any more. `facts` are all that a new group has; `asked`: a group that is
 * there already is refused if it is another one. */
void rs_lan_groups_call(rs_lan_groups *groups, rs_time now, rs_manager_group_call call, const char *group,
                        const rs_manager_group_options *facts, bool asked);
void rs_lan_groups_heard(rs_lan_groups *groups, rs_time now, const rs_lan_group_message *message, uint32_t from,
                         uint16_t port, bool multicast);
/* A group used here has that address. */
bool rs_lan_groups_has(const rs_lan_groups *groups, uint32_t address);

#endif
