/* Message groups at this server: the programs that publish and subscribe, the manager's views, and the datagrams
 * (docs/groups.md, docs/agent.md). The engines are in core/groups/messages.h. */
#ifndef RS_DAEMON_GROUPS_H
#define RS_DAEMON_GROUPS_H

#include "core/groups/messages.h"
#include "daemon/api/server.h"
#include "daemon/loop.h"
#include "daemon/manager/link.h"
#include "io/io.h"

struct rs_agent;
typedef struct rs_groups rs_groups;

/* NULL: the log says why. */
rs_groups *rs_groups_new(struct rs_agent *agent, uint64_t seed);
void rs_groups_free(rs_groups *groups);

/* Handler of the application interface: a program wants to publish to a group, or to subscribe to it too. */
void rs_groups_api(void *agent, const rs_api_join *join);
/* One row for each group in use; returns how many of `most` it filled. */
uint32_t rs_groups_status(const rs_groups *groups, rostrum_group_status *rows, uint32_t most);
uint32_t rs_groups_count(const rs_groups *groups);
void rs_groups_stats(const rs_groups *groups, rs_messages_stats *out);
/* Of the sockets that multicast comes by. */
rs_io_stats rs_groups_io_stats(const rs_groups *groups);
uint64_t rs_groups_socket_drops(const rs_groups *groups);

/* Callbacks of the link to the manager (context: the agent), and what it says of engines. */
void rs_groups_link_options(rs_link_options *options, rs_link_callbacks *callbacks);
void rs_groups_peer(void *agent, const rs_link_group_peer *peer);
void rs_groups_view(void *agent, const rs_link_group_view *view);
void rs_groups_refused(void *agent, const char *group, const char *reason);
/* The manager is there (again): it is told what is joined here. */
void rs_groups_link_up(rs_groups *groups);

/* Reads multicast that waits, before datagrams that came to this server alone are read: a repair that is read before
 * its packets takes them for missing. False: there is more of it than one turn takes; datagrams are to wait, which
 * they do for a few milliseconds at most. */
bool rs_groups_read_first(rs_groups *groups);
/* A datagram that came to this server alone, from that address. False: it is not of group messages. */
bool rs_groups_datagram(rs_groups *groups, uint32_t source, const uint8_t *bytes, size_t length);
/* Reports of receivers that did not count: of no member, or such as cannot be. */
uint64_t rs_groups_reports_refused(const rs_groups *groups);

/* What the engine has to say, to programs and to the network. True: there may be more. */
bool rs_groups_pump(rs_groups *groups);
rs_time rs_groups_deadline(const rs_groups *groups);
void rs_groups_timeout(rs_groups *groups);

#endif
