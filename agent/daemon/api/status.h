/* The answer to STATUS: the agent, its transfers, groups and objects. */
#ifndef RS_API_STATUS_H
#define RS_API_STATUS_H

#include "daemon/api/server.h"

/* The answer to NAMES: of the objects whose application the client may see. */
void rs_api_reply_names(rs_api_server *server, const rs_api_call *call);
/* The caller fills started_ns, manager_up, manager, packets_bad, transfers, groups and their counts; the server fills
 * the rest. */
void rs_api_reply_status(rs_api_server *server, const rs_api_call *call, const rostrum_status *status);

#endif
