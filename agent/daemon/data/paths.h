/* Paths of sends: asked of the manager, granted, moved, lost, given back (Republic, Table II). */
#ifndef RS_DAEMON_PATHS_H
#define RS_DAEMON_PATHS_H

#include "daemon/data/sending.h"

/* The manager's answers, for sends. */
void rs_paths_link_callbacks(rs_agent *agent, rs_manager_callbacks *callbacks);
/* The manager is there and answers, or not: who waits for a path is told. */
void rs_paths_link_state(rs_agent *agent, bool up);
/* How long a request waits for its answer. Without a wait of the program's (0) the manager's own counts, which
 * is not known here: it is waited for once the manager has said that the request is `queued`. */
rs_time rs_paths_wait(uint32_t wait_ms, bool queued);
/* When the wait ends that would end at `bound`, as the manager is there (again) since `now`: it must hear of its
 * switches before it can answer. No longer after that than the program would have waited at all. */
rs_time rs_paths_bound_back(rs_time bound, rs_time now, uint32_t wait_ms);
/* Asks the manager for a path. */
void rs_paths_request(rs_agent *agent, rs_send_state *sending, uint64_t remaining);
/* The present session's data channel is done: its path goes back, the next session's takes its place. */
void rs_paths_session_over(rs_agent *agent, rs_send_state *sending);
/* Gives back whatever is held or asked for. */
void rs_paths_give_back(rs_agent *agent, rs_send_state *sending);
rs_time rs_paths_deadline(const rs_send_state *sending);
/* Ends waits for an answer that took too long. */
void rs_paths_timeout(rs_agent *agent, rs_send_state *sending);
/* These receivers have no light: the manager is told. */
void rs_paths_tell_dark(rs_agent *agent, rs_send_state *sending);

#endif
