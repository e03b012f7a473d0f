/* A program wants an object or stream no more that comes in here: this server leaves its transfer, or its fetch. */
#ifndef RS_DAEMON_LEAVE_H
#define RS_DAEMON_LEAVE_H

#include "daemon/agent.h"

/* rs_api_handlers.on_leave. */
void rs_leave_api(void *agent, const rs_api_call *call, const rs_object_id *id);

#endif
