/* What the agent counts, and the page of it for Prometheus (docs/agent.md lists the names). */
#ifndef RS_DAEMON_METRICS_H
#define RS_DAEMON_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "core/transfer/node.h"

/* Of transfers that ended; of one direction. */
typedef struct {
    uint64_t done, failed;
    uint64_t bytes;
    uint64_t packets_sent, packets_attempt, packets_redundant, packets_received, packets_old;
    uint64_t patches_sent, patches_received;
    uint64_t repairs_sent, repairs_mended, repairs_received, repairs_used;
    uint64_t lost;
    uint64_t acks_sent, acks_received, peer_repairs_sent, peer_repairs_received, peer_repairs_old;
} rs_totals_of;

typedef struct {
    rs_totals_of sent, received;
    uint64_t socket_drops;                      /* data packets that the kernel dropped because its buffer was full */
    uint64_t probes;                            /* reports to the manager */
    uint64_t stream_bytes_out, stream_bytes_in; /* of programs: taken from them, handed to them */
} rs_totals;

void rs_totals_add(rs_totals_of *totals, const rs_xfer_stats *stats, bool ok);

struct rs_agent;
/* From malloc; NULL if memory is short. */
char *rs_metrics_page(void *agent, size_t *length);

#endif
