/* What this agent is doing, for `rostrum status`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/data/sending.h"
#include "daemon/streams/streams.h"

static const char *const phase_names[] = {
    [RS_PHASE_WAITING] = "waiting",   [RS_PHASE_ATTEMPT] = "attempt", [RS_PHASE_HIGH_RATE] = "high-rate",
    [RS_PHASE_PATCHING] = "patching", [RS_PHASE_DONE] = "done",
};

static rostrum_transfer describe(const rs_agent *agent, rs_transfer *t) {
    rs_xfer_stats stats = {0};
    rs_incoming incoming;
    rs_xfer_stats_get(agent->node, t->xfer, &stats);
    rostrum_transfer out = {.data_id = t->id.data,
                            .sending = t->sending,
                            .size = stats.size,
                            .bytes = stats.bytes_present,
                            .rate_bps = stats.rate_bps,
                            .receivers = stats.receivers,
                            .receivers_done = stats.receivers_done,
                            .receivers_failed = stats.receivers_failed,
                            .protocol =
                                stats.protocol == RS_PROTOCOL_RDCM ? ROSTRUM_PROTOCOL_RDCM : ROSTRUM_PROTOCOL_REPUBLIC,
                            .view = stats.view,
                            .acks_sent = stats.acks_sent,
                            .acks_received = stats.acks_received,
                            .repairs_sent = stats.peer_repairs_sent,
                            .repairs_received = stats.peer_repairs_received,
                            .repairs_old = stats.peer_repairs_old,
                            .window = stats.window,
                            .ack_timeout_ns = stats.protocol == RS_PROTOCOL_RDCM ? stats.ack_timeout : 0};
    memcpy(out.app, t->id.app, sizeof out.app);
    snprintf(out.phase, sizeof out.phase, "%s", t->sending ? phase_names[stats.phase] : "receiving");
    if (t->source || t->sink) {
        out.size = out.bytes = t->source ? rs_stream_source_bytes(t->source) : rs_stream_sink_bytes(t->sink);
        if (!t->sending || stats.phase == RS_PHASE_HIGH_RATE)
            snprintf(out.phase, sizeof out.phase, "streaming");
    }
    if (t->sending) {
        out.path = rs_sending_of(t)->result.path;
        out.requested_ns = rs_sending_of(t)->result.requested_ns;
    } else if (rs_incoming_info(agent->node, t->xfer, &incoming) == RS_OK) {
        snprintf(out.peer, sizeof out.peer, "%s", rs_peers_name(&agent->peers, incoming.sender));
    }
    return out;
}

void rs_status_api(void *context, const rs_api_call *call) {
    rs_agent *agent = context;
    uint32_t count = 0;
    rostrum_transfer *transfers = calloc(agent->transfers.count + 1u, sizeof *transfers);
    if (!transfers) {
        rs_api_reply_error(agent->api, call, ROSTRUM_ERR_LIMIT, "no memory to list the transfers");
        return;
    }
    uint32_t group_count = rs_groups_count(agent->groups);
    rostrum_group_status *groups = calloc(group_count + 1u, sizeof *groups);
    if (groups)
        group_count = rs_groups_status(agent->groups, groups, group_count);
    for (rs_transfer *t = agent->transfers.sending; t; t = t->next)
        transfers[count++] = describe(agent, t);
    for (rs_transfer *t = agent->transfers.receiving; t; t = t->next)
        transfers[count++] = describe(agent, t);
    rostrum_status status = {.started_ns = agent->started_ns,
                             .manager_up = agent->link && rs_link_up(agent->link),
                             .packets_bad = agent->packets_bad + rs_control_stats_get(agent->control).malformed,
                             .transfers = transfers,
                             .transfer_count = count,
                             .groups = groups,
                             .group_count = groups ? group_count : 0};
    if (agent->link)
        rs_link_describe(agent->link, rs_agent_now(agent), status.manager, sizeof status.manager);
    else
        snprintf(status.manager, sizeof status.manager, "none (started without --manager)");
    rs_api_reply_status(agent->api, call, &status);
    free(groups);
    free(transfers);
}
