#include "daemon/programs.h"

#include "daemon/api/access.h"

bool rs_programs_start(rs_agent *agent) {
    const rs_options *o = &agent->options;
    rs_error error = {0};
    agent->policy = o->policy ? rs_policy_load(o->policy, &error) : NULL;
    if (o->policy && !agent->policy) {
        rs_log(RS_LOG_ERROR, "policy", "%s", error.text);
        return false;
    }
    agent->audit = o->audit ? rs_audit_open(o->audit, o->server, &error) : NULL;
    if (o->audit && !agent->audit)
        rs_log(RS_LOG_ERROR, "audit", "%s", error.text);
    rs_audit_event(agent->audit, "start", "policy", o->policy ? o->policy : "none", NULL);
    return !o->audit || agent->audit;
}

void rs_programs_reload(rs_agent *agent) {
    rs_error error = {0};
    if (agent->audit && !rs_audit_reopen(agent->audit, &error))
        rs_log(RS_LOG_ERROR, "audit", "%s; lines go on to the file that is open", error.text);
    if (!agent->options.policy)
        return;
    rs_policy *policy = rs_policy_load(agent->options.policy, &error);
    rs_audit_event(agent->audit, "policy", "result", policy ? "taken" : error.text, NULL);
    if (!policy) {
        rs_log(RS_LOG_ERROR, "policy", "%s; the one that was read before goes on", error.text);
        return;
    }
    rs_api_policy_set(agent->api, policy);
    rs_groups_policy_changed(agent->groups);
    rs_policy_free(agent->policy);
    agent->policy = policy;
    rs_log(RS_LOG_INFO, "policy", "read again from %s", rs_quote(agent->options.policy));
}

void rs_programs_asked(void *context, const rs_api_asked *asked) {
    const rs_agent *agent = context;
    if (agent->audit)
        rs_audit_asked(agent->audit, asked);
}
