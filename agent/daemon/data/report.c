/* What the manager is told of a transfer: at each change of phase or of a receiver, not more often than it can use. */
#include <stdlib.h>

#include "daemon/data/sending.h"

#define REPORT_GAP (50 * RS_MILLISECOND)

static const char *const state_names[] = {
    [ROSTRUM_RECEIVER_WAITING] = "waiting",
    [ROSTRUM_RECEIVER_RECEIVING] = "receiving",
    [ROSTRUM_RECEIVER_DONE] = "done",
    [ROSTRUM_RECEIVER_FAILED] = "failed",
};

void rs_sending_sample(rs_agent *agent, rs_sending *s) {
    rs_xfer_stats stats;
    if (rs_xfer_stats_get(agent->node, s->base.xfer, &stats) != RS_OK)
        return; /* closed in the core: the last sample stands */
    s->stats = stats;
    if (stats.rate_bps > s->result.rate_bps)
        s->result.rate_bps = stats.rate_bps;
}

void rs_report_later(rs_agent *agent, rs_sending *s) {
    if (s->report_at == RS_NEVER && s->ever_granted)
        s->report_at = rs_agent_now(agent) + REPORT_GAP;
}

static const char *phase_name(const rs_sending *s) {
    if (s->final_phase)
        return s->final_phase;
    return s->phase == RS_PHASE_PATCHING || s->phase == RS_PHASE_DONE ? "patching"
           : s->phase == RS_PHASE_HIGH_RATE                           ? "high-rate"
                                                                      : "attempt";
}

void rs_report_now(rs_agent *agent, rs_sending *s) {
    s->report_at = RS_NEVER;
    if (!s->ever_granted)
        return; /* the manager knows what it did not grant */
    rs_link_receiver_report *receivers = calloc(s->receiver_count, sizeof *receivers);
    if (!receivers)
        return;
    for (uint32_t i = 0; i < s->receiver_count; i++) {
        const rostrum_receiver *from = &s->receivers[i];
        receivers[i] = (rs_link_receiver_report){.server = from->name,
                                                 .state = state_names[from->state],
                                                 .cause = from->cause,
                                                 .initial_sn = from->initial_sn,
                                                 .patched_fragments = from->patched_fragments,
                                                 .first_light_ns = from->first_light_ns,
                                                 .complete_ns = from->complete_ns};
    }
    rs_sending_sample(agent, s);
    const rs_link_report_params report = {.request_id = s->request_id,
                                          .response_id = s->response_id,
                                          .phase = phase_name(s),
                                          .cause = s->result.cause,
                                          .bytes = s->result.size,
                                          .sent_packets = s->stats.packets_sent,
                                          .redundant_packets = s->stats.packets_redundant,
                                          .patched_packets = s->stats.patches_sent + s->stats.repairs_sent,
                                          .receivers = receivers,
                                          .receiver_count = s->receiver_count};
    rs_link_report(agent->link, rs_agent_now(agent), &report);
    free(receivers);
}
