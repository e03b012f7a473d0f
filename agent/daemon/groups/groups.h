/* Message groups at this server: the programs that publish and subscribe, the manager's views, and the datagrams
 * (docs/groups.md, docs/agent.md). The engines are in core/groups/messages.h. */
#ifndef RS_DAEMON_GROUPS_H
#define RS_DAEMON_GROUPS_H

#include "core/groups/engine.h"
#include "daemon/api/server.h"
#include "daemon/loop.h"
#include "daemon/manager/client.h"
#include "io/io.h"

struct rs_agent;
typedef struct rs_groups rs_groups;
typedef struct rs_local_group rs_local_group;

/* NULL: the log says why. */
rs_groups *rs_groups_new(struct rs_agent *agent, uint64_t seed);
void rs_groups_free(rs_groups *groups);

/* Handler of the application interface: a program wants to publish to a group, or to subscribe to it too. */
void rs_groups_api(void *agent, const rs_api_join *join);
/* The same: a program wants a socket for many groups, which it joins on it. */
void rs_groups_channels(void *agent, const rs_api_join *join);
/* Programs that may not be in their groups any more are put out. */
void rs_groups_policy_changed(rs_groups *groups);
/* One row for each group in use; returns how many of `most` it filled. */
uint32_t rs_groups_status(const rs_groups *groups, rostrum_group_status *rows, uint32_t most);
uint32_t rs_groups_count(const rs_groups *groups);
void rs_groups_stats(const rs_groups *groups, rs_messages_stats *out);
/* What the engine of that number counts besides; `out` has room for RS_GROUP_STATS_MOST. */
uint32_t rs_groups_engine_stats(const rs_groups *groups, uint32_t engine, rs_group_stat *out);

/* Callbacks of the link to the manager, or of who stands in for it (context: the agent), and what the link says of
 * engines. */
void rs_groups_link_callbacks(rs_manager_callbacks *callbacks);
void rs_groups_link_options(rs_manager_options *options);
/* Members of a group that its multicast does not reach: they get each packet by unicast, too. */
void rs_groups_copies(void *agent, const char *group, const uint32_t *addresses, uint32_t count);
/* The manager is there (again): it is told what is joined here. */
void rs_groups_link_up(rs_groups *groups);
/* It was silent, and answers: who joins gets as long an answer's time as from a new connection. */
void rs_groups_link_answers(rs_groups *groups);

/* What the engine has to say, to programs and to the network. True: there may be more. */
bool rs_groups_pump(rs_groups *groups);
rs_time rs_groups_deadline(const rs_groups *groups);
void rs_groups_timeout(rs_groups *groups);

/* Whether there is a view of that group, or region. */
bool rs_groups_knows(const rs_groups *groups, uint32_t number, bool region);

/* ---- For the other files of this folder. */

rs_local_group *rs_groups_by_id(const rs_groups *groups, uint32_t id);
/* A message of that group comes: what that needs here is on its way into the caches. Each is found by the one before,
 * and asked in this order. */
typedef enum { RS_GROUPS_SOON_PLACE, RS_GROUPS_SOON_GROUP, RS_GROUPS_SOON_PROGRAMS } rs_groups_soon_what;
void rs_groups_soon(const rs_groups *groups, uint32_t id, rs_groups_soon_what what);
rs_local_group *rs_groups_by_name(const rs_groups *groups, const char *name);
/* The manager is told, if it is there; with what is held of the group if `held`. */
void rs_group_tell(rs_groups *groups, rs_local_group *group, rs_manager_group_call call, bool held);
/* What of joining and publishing the manager was not told yet. */
void rs_group_tell_role(rs_groups *groups, rs_local_group *group);
/* This process stood still for so long: nothing is published before `until`, or until shortly after the manager has
 * answered (rs_groups_checked), or has told views. Where this server was put out of groups it is in them again then;
 * what it published before would reach nobody. */
void rs_groups_hold(rs_groups *groups, rs_time until, rs_time pause);
void rs_groups_checked(rs_groups *groups);
/* The engine has nothing to do with it any more. */
void rs_group_forget(rs_groups *groups, rs_local_group *group);
/* The one with an address that no program here has used for the longest time goes, but for `but`. False: there is
 * none. */
bool rs_group_end_unused(rs_groups *groups, const rs_local_group *but);
/* Its programs, or those that wait for it, are told why. */
void rs_group_refuse(rs_local_group *group, bool waiting_only, rostrum_code code, const char *text);

/* A stream was closed: the group goes some time after its last one. */
void rs_groups_stream_gone(rs_groups *groups, rs_local_group *group, bool received);

#endif
