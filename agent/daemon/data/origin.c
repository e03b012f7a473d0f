#include "daemon/data/origin.h"

#include <stdio.h>
#include <string.h>

#define ASK_EVERY (250 * RS_MILLISECOND)
#define WAITS 10u             /* silence bounds, for the manager's word, */
#define MOST (50 * RS_SECOND) /* and no longer: the transfer gives up after 60 s */

static void digest_text(const rs_digest *digest, char out[RS_DIGEST_TEXT]) {
    out[0] = '\0';
    if (!rs_digest_follows(digest))
        rs_digest_text(digest, out);
}

/* Another answer could change nothing. */
static bool is_settled(const rs_origin *origin, const char *digest) {
    if (!origin->told || origin->own)
        return origin->told;
    return origin->digest[0] && digest[0] &&
           (strcmp(origin->digest, digest) == 0 || strcmp(origin->answered, digest) == 0);
}

void rs_origin_ask(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender,
                   const rs_digest *digest) {
    char text[RS_DIGEST_TEXT];
    rs_time now = rs_agent_now(agent);
    digest_text(digest, text);
    bool other = strcmp(text, origin->asked) != 0;
    if (!origin->wanted || is_settled(origin, text) || (now < origin->ask_at && !other))
        return;
    /* What is not known yet may be known soon: whose it is, and the origin's digest. */
    if (origin->told && origin->digest[0] && !text[0])
        return;
    origin->ask_at = now + ASK_EVERY;
    snprintf(origin->asked, sizeof origin->asked, "%s", text);
    (void)rs_manager_whose(agent->link, now, id, rs_peers_name(&agent->peers, sender), text);
}

void rs_origin_begin(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender,
                     const rs_digest *digest) {
    /* Before a manager has said whether there are sites there may be some. */
    bool may_be = agent->sites_known || !agent->manager_met;
    *origin = (rs_origin){.wanted = agent->options.security && agent->link && may_be};
    rs_origin_ask(agent, origin, id, sender, digest);
}

void rs_origin_told(rs_origin *origin, const rs_manager_origin *answer) {
    origin->told = true;
    origin->own = strcmp(answer->origin, answer->sender) == 0;
    snprintf(origin->name, sizeof origin->name, "%s", answer->origin);
    snprintf(origin->digest, sizeof origin->digest, "%s", answer->digest);
    snprintf(origin->answered, sizeof origin->answered, "%s", answer->asked);
}

rs_origin_verdict rs_origin_judge(const rs_origin *origin, const rs_digest *digest) {
    char text[RS_DIGEST_TEXT];
    if (!origin->wanted || (origin->told && origin->own))
        return RS_ORIGIN_SAME;
    digest_text(digest, text);
    if (!origin->told || !is_settled(origin, text))
        return RS_ORIGIN_UNKNOWN;
    return strcmp(text, origin->digest) == 0 ? RS_ORIGIN_SAME : RS_ORIGIN_OTHER;
}

rs_origin_verdict rs_origin_check(rs_agent *agent, rs_origin *origin, const rs_object_id *id, rs_peer sender,
                                  const rs_digest *digest, char cause[RS_ORIGIN_CAUSE]) {
    const rs_origin_verdict found = rs_origin_judge(origin, digest);
    if (found == RS_ORIGIN_OTHER)
        snprintf(cause, RS_ORIGIN_CAUSE, "the object at %.40s is not %.40s's, for whom %.40s passes it on",
                 agent->options.server, origin->name, rs_peers_name(&agent->peers, sender));
    if (found == RS_ORIGIN_UNKNOWN) {
        rs_origin_ask(agent, origin, id, sender, digest);
        origin->waits_since = origin->waits_since ? origin->waits_since : rs_agent_now(agent);
    }
    return found;
}

bool rs_origin_is_in_vain(const rs_agent *agent, const rs_origin *origin, char cause[RS_ORIGIN_CAUSE]) {
    rs_time now = rs_agent_now(agent), bound = WAITS * agent->options.silence_bound;
    char why[120] = "the manager did not answer";
    bound = bound < MOST ? bound : MOST;
    if (!origin->waits_since || now - origin->waits_since < bound)
        return false;
    if (!rs_manager_up(agent->link))
        rs_manager_describe(agent->link, now, why, sizeof why);
    else if (origin->told)
        snprintf(why, sizeof why, "%.40s has not told the manager its digest", origin->name);
    snprintf(cause, RS_ORIGIN_CAUSE, "whole, but for %g s nobody could say whose it is: %.150s",
             (double)bound / RS_SECOND, why);
    return true;
}
