#include "daemon/data/origin.h"

#include <stdio.h>
#include <string.h>

#define ASK_EVERY (250 * RS_MILLISECOND)

static void ask(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender) {
    rs_time now = rs_agent_now(agent);
    origin->ask_at = now + ASK_EVERY;
    if (agent->link)
        (void)rs_manager_whose(agent->link, now, id, rs_peers_name(&agent->peers, sender));
}

void rs_origin_ask(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender) {
    *origin = (rs_origin){.wanted = agent->options.security && agent->sites_known};
    if (origin->wanted)
        ask(agent, origin, id, sender);
}

void rs_origin_ask_again(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender) {
    bool settled = origin->told && (origin->own || origin->digest[0]);
    if (origin->wanted && !settled && rs_agent_now(agent) >= origin->ask_at)
        ask(agent, origin, id, sender);
}

void rs_origin_told(rs_origin *origin, const rs_manager_origin *answer) {
    origin->told = true;
    origin->own = strcmp(answer->origin, answer->sender) == 0;
    snprintf(origin->name, sizeof origin->name, "%s", answer->origin);
    snprintf(origin->digest, sizeof origin->digest, "%s", answer->digest);
}

rs_origin_verdict rs_origin_judge(const rs_origin *origin, const rs_digest *digest) {
    char text[RS_DIGEST_TEXT];
    if (!origin->wanted || (origin->told && origin->own))
        return RS_ORIGIN_SAME;
    if (!origin->told || !origin->digest[0])
        return RS_ORIGIN_UNKNOWN;
    rs_digest_text(digest, text);
    return strcmp(text, origin->digest) == 0 ? RS_ORIGIN_SAME : RS_ORIGIN_OTHER;
}
