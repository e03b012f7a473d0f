/* What programs of this server may do, and what they asked for: policy and audit of the agent. */
#ifndef RS_DAEMON_PROGRAMS_H
#define RS_DAEMON_PROGRAMS_H

#include "daemon/agent.h"

/* Reads --policy, opens --audit. False: the log says why. */
bool rs_programs_start(rs_agent *agent);
/* Both again. What cannot be read leaves what was; programs that lost a right lose their groups and waiting reads. */
void rs_programs_reload(rs_agent *agent);
/* Handler of the application interface. */
void rs_programs_asked(void *agent, const rs_api_asked *asked);

#endif
