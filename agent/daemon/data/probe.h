/* Probes that the manager orders (preflight, doctor): what this agent is, whether packets of a group and to this server
 * come in, sending such packets, connecting to other agents. Beside everything else: sockets of their own, small, few
 * at a time, each with a bound in time. docs/operating.md says what they are for. */
#ifndef RS_DAEMON_PROBE_H
#define RS_DAEMON_PROBE_H

#include "daemon/loop.h"
#include "daemon/manager/client.h"

#define RS_PROBES_MAX 8u          /* at a time; more are refused with a reason */
#define RS_PROBE_SERVERS_MAX 128u /* of one order */
#define RS_PROBE_TEXT 160

typedef struct rs_probes rs_probes;

/* The report's facts about the agent (software, interface, MTU ...) are filled in by the callee; its pointers hold
 * until it returns. */
typedef void rs_probes_report_fn(void *context, rs_manager_probe_report *report);

/* `address`: of the data NIC, host order. NULL: out of memory. */
rs_probes *rs_probes_new(rs_loop *loop, uint32_t address, rs_probes_report_fn *report, void *context);
void rs_probes_free(rs_probes *probes);

/* Begins to carry it out, or reports why not. */
void rs_probes_order(rs_probes *probes, const rs_manager_probe *order);
rs_time rs_probes_deadline(const rs_probes *probes);
void rs_probes_timeout(rs_probes *probes);

#endif
