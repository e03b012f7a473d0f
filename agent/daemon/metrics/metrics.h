/* What the agent tells of itself: the page for Prometheus (docs/agent.md lists the names), and `rostrum status`. */
#ifndef RS_DAEMON_METRICS_H
#define RS_DAEMON_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/api/server.h"

/* From malloc; NULL if out of memory. */
char *rs_metrics_page(void *agent, size_t *length);

/* Handler of the application interface: what `rostrum status` shows. */
void rs_status_api(void *agent, const rs_api_call *call);

#endif
